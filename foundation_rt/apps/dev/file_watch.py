"""The files of a program, and how they change (DEV-11 to DEV-13).

They are looked at four times a second. That needs no package, works in containers and on network
drives, and takes some milliseconds of a thread for a thousand files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from attrs import field, frozen

from ...base.file_changes import Stamp, stamp_of
from ...base.skill_format import MANIFEST

INTERVAL_SECONDS = 0.25
QUIET_SECONDS = 0.15
"""Files have to stay the same for so long before the program is restarted."""
LONGEST_BURST_SECONDS = 3.0

MAX_FILES = 5_000
MAX_FOLDERS = 2_000

SUFFIXES = (
    ".py",
    ".pyi",
    ".toml",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".mts",
    ".cts",
    ".go",
    ".rs",
    ".rb",
    ".html",
)
_LEFT_OUT_OF_SKILLS = frozenset({"__pycache__", "node_modules"})
_LEFT_OUT = _LEFT_OUT_OF_SKILLS | {"site-packages", "build", "dist", "target"}

Stamps = dict[str, Stamp]
"""Of files, by path."""


@frozen
class WatchedFiles:
    """The files that belong to a program.

    Attributes:
        folders: in which, and below which, every file with one of `suffixes` counts, and every file
            of a skill.
        files: those that count besides, whether or not they are there.
        suffixes: of source files.
    """

    folders: tuple[Path, ...] = ()
    files: frozenset[Path] = field(factory=frozenset)
    suffixes: tuple[str, ...] = SUFFIXES

    def stamps(self) -> Stamps:
        """Return the files that are there now, at most `MAX_FILES`; it reads the disk."""
        found: Stamps = {}
        for path in chain(map(os.fspath, self.files), _sources(self.folders, self.suffixes)):
            if len(found) >= MAX_FILES:
                break
            stamp = stamp_of(path)
            if stamp is not None:
                found[path] = stamp
        return found


def changed_files(before: Stamps, after: Stamps) -> list[str]:
    """Return the paths that were written, made, deleted or renamed, sorted."""
    paths = before.keys() | after.keys()
    return sorted(path for path in paths if before.get(path) != after.get(path))


def shown_path(path: str, folder: Path) -> str:
    """Return a path relative to a folder, where it is in it."""
    try:
        return os.fspath(Path(path).relative_to(folder))
    except ValueError:
        return path


def _sources(folders: Iterable[Path], suffixes: tuple[str, ...]) -> Iterator[str]:
    """Yield source files, the nearest first; links to folders are not followed."""
    # Each folder with what is left out below it; below that of a skill every file counts.
    pending = [(os.fspath(each), _LEFT_OUT) for each in folders]
    for number, (folder, left_out) in enumerate(pending):
        if number >= MAX_FOLDERS:
            return
        try:
            entries = [*os.scandir(folder)]
        except OSError:
            continue
        # An environment, in which packages are: it is not the author's.
        names = {each.name for each in entries}
        if "pyvenv.cfg" in names:
            continue
        if MANIFEST in names:
            left_out = _LEFT_OUT_OF_SKILLS
        for each in entries:
            try:
                is_folder = each.is_dir(follow_symlinks=False)
            except OSError:
                continue
            if is_folder:
                if each.name not in left_out and not each.name.startswith("."):
                    pending.append((each.path, left_out))
            elif left_out is _LEFT_OUT_OF_SKILLS or each.name.endswith(suffixes):
                yield each.path
