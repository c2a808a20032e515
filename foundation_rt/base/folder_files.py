"""The files below a folder, read once: no links, no names that begin with a dot, and limits."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .files import open_below

MAX_DEPTH: Final = 16
"""The most folders in one another."""

MAX_FOLDERS: Final = 1_000
"""The most that are looked at."""

_LEFT_OUT: Final = frozenset(("__pycache__", "node_modules"))


class FolderError(ValueError):
    """A folder cannot be read, or has more in it than it may; the message says what to change."""


def files_below(root: Path) -> Iterator[Path]:
    """Yield the paths of all files below a folder, those of one before those further below.

    Args:
        root: absolute, without links.

    Raises:
        FolderError: there is a link, a folder that cannot be read, or too much.
    """
    waiting = [root]
    for _ in range(MAX_FOLDERS):
        if not waiting:
            return
        folder = waiting.pop(0)
        for entry in sorted(entries_of(folder), key=lambda each: each.name):
            path = Path(entry.path)
            if not entry.is_dir(follow_symlinks=False):
                yield path
            elif len(path.relative_to(root).parts) > MAX_DEPTH:
                raise FolderError(f"its folders are nested deeper than {MAX_DEPTH} levels")
            else:
                waiting.append(path)
    raise FolderError(f"it has more than {MAX_FOLDERS:,} folders")


def entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder, but for names that begin with a dot, and caches.

    Raises:
        FolderError: it cannot be read, or has a link in it.
    """
    try:
        with os.scandir(folder) as found:
            entries = [
                each
                for each in found
                if not each.name.startswith(".") and each.name not in _LEFT_OUT
            ]
    except OSError as error:
        raise FolderError(f"{str(folder)!r} cannot be read: {error.strerror or error}") from None
    for each in entries:
        if os.path.realpath(each.path) != each.path:  # a junction of Windows is no symbolic link
            raise FolderError(f"{each.path!r} is a link: put the file itself there")
    return entries


def read_below(root: Path, path: Path, left: int, limit: int) -> bytes:
    """Return the content of a file.

    Args:
        root: absolute, without links.
        path: of the file, below it.
        left: the most bytes that it may have.
        limit: the most bytes of all files together, for the error.

    Raises:
        FolderError: it is larger, cannot be read, or is no longer below `root`.
    """
    name = path.relative_to(root).as_posix()
    try:
        with os.fdopen(open_below(root, path), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FolderError(f"{name!r} is no file that can be read")
            content = file.read(left + 1)
    except OSError as error:
        raise FolderError(f"{name!r} cannot be read: {error.strerror or error}") from None
    if len(content) > left:
        raise FolderError(f"its files have more than {limit >> 20} MiB together")
    return content
