"""Changes of files that a program reads while it runs: keys, lists of servers, sources.

It asks for what the system keeps of the file. That needs no package and no signal, and works on
every system, in containers and on network drives.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from attrs import define, field

_INTERVAL_S: Final = 1.0

Stamp = tuple[int, int, int]
"""Time, size and number of a file, one of which changes with it."""


def stamp_of(path: str | os.PathLike[str]) -> Stamp | None:
    """Return the stamp of a file; None while there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 -- a Path for each of thousands
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@define(eq=False)
class FileWatch:
    """Notices changes of files since it was made; make it before they are read.

    Args:
        paths: of the files, whether or not they are there.
    """

    paths: tuple[os.PathLike[str], ...] = field(converter=tuple[os.PathLike[str], ...])
    _seen: list[Stamp | None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._seen = self._stamps()

    async def changed(self) -> None:
        """Return when a file has changed since this returned last, at most a second after it."""
        while (now := self._stamps()) == self._seen:
            await asyncio.sleep(_INTERVAL_S)
        self._seen = now

    def _stamps(self) -> list[Stamp | None]:
        return [*map(stamp_of, self.paths)]
