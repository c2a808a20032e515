"""Reading the folder of a skill, once: what is served is what was digested (SKILL-04)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from ...base.files import open_below
from ...base.skill_format import MANIFEST, MAX_BYTES, MAX_FILES, read_front_matter
from ...errors import RegistrationError

MAX_DEPTH: Final = 16
"""The most folders in one another, of a skill and around it."""

MAX_FOLDERS: Final = 1_000
"""The most that are looked at to find skills, or the files of one."""

_LEFT_OUT: Final = frozenset(("__pycache__", "node_modules"))


@frozen
class SkillFolder:
    """The folder of a skill, as it was when it was read.

    Attributes:
        front_matter: of its `SKILL.md`.
        files: the content of each, by its path below the folder, with ``/``.
    """

    front_matter: dict[str, Any]
    files: dict[str, bytes]


def read_skill(folder: Path) -> SkillFolder:
    """Read a skill.

    Raises:
        RegistrationError: it is none, or larger than a skill may be; says what to change.
        MissingExtraError: the extra `skills` is not installed.
    """
    root = Path(os.path.realpath(folder))
    files: dict[str, bytes] = {}
    left = MAX_BYTES
    for path in _walk(root, folder):
        if len(files) == MAX_FILES:
            raise refusal(folder, f"it has more than {MAX_FILES} files")
        name = path.relative_to(root).as_posix()
        files[name] = _read(root, path, folder, name, left)
        left -= len(files[name])
    if MANIFEST not in files:
        raise refusal(folder, f"it has no file {MANIFEST}, written so")
    try:
        front_matter = read_front_matter(files[MANIFEST])
    except ValueError as error:
        raise refusal(folder / MANIFEST, str(error)) from None
    if front_matter["name"] != root.name:
        raise refusal(
            folder / MANIFEST,
            f"its name is {front_matter['name']!r}, and its folder {root.name!r}: they are the same"
            " name",
        )
    return SkillFolder(front_matter, files)


def find_skills(folder: Path) -> list[tuple[str, ...]]:
    """Return the folders of skills below a folder, each as the parts of its path; sorted.

    What is below the folder of a skill belongs to that skill.

    Raises:
        RegistrationError: there is none, or a link is in the way.
    """
    root = Path(os.path.realpath(folder))
    found: list[tuple[str, ...]] = []
    waiting = [root]
    for _ in range(MAX_FOLDERS):
        if not waiting:
            break
        inner = waiting.pop()
        entries = _entries(inner, folder)
        if inner != root and any(each.name == MANIFEST for each in entries):
            found.append(inner.relative_to(root).parts)
        elif len(inner.relative_to(root).parts) < MAX_DEPTH:
            waiting += [Path(each.path) for each in entries if each.is_dir(follow_symlinks=False)]
    else:
        raise refusal(folder, f"it has more than {MAX_FOLDERS:,} folders")
    if not found:
        raise refusal(folder, f"no folder in it has a file {MANIFEST}", "a folder of skills")
    return sorted(found)


def _walk(root: Path, shown: Path) -> Iterator[Path]:
    """Yield the paths of all files below `root`, those of a folder before those further below."""
    waiting = [root]
    for _ in range(MAX_FOLDERS):
        if not waiting:
            return
        folder = waiting.pop(0)
        for entry in sorted(_entries(folder, shown), key=lambda each: each.name):
            path = Path(entry.path)
            if not entry.is_dir(follow_symlinks=False):
                yield path
            elif len(path.relative_to(root).parts) > MAX_DEPTH:
                raise refusal(shown, f"its folders are nested deeper than {MAX_DEPTH} levels")
            else:
                waiting.append(path)
    raise refusal(shown, f"it has more than {MAX_FOLDERS:,} folders")


def _entries(folder: Path, shown: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder, but for names that begin with a dot."""
    try:
        with os.scandir(folder) as found:
            entries = [
                each
                for each in found
                if not each.name.startswith(".") and each.name not in _LEFT_OUT
            ]
    except OSError as error:
        raise refusal(shown, f"{folder} cannot be read: {error.strerror or error}") from None
    for each in entries:
        if os.path.realpath(each.path) != each.path:  # a junction of Windows is no symbolic link
            raise refusal(shown, f"{each.path} is a link: put the file itself there")
    return entries


def _read(root: Path, path: Path, shown: Path, name: str, left: int) -> bytes:
    """Return the content of a file, which is no larger than what is left.

    Raises:
        RegistrationError: it is, or it cannot be read, or is no longer below `root`.
    """
    try:
        with os.fdopen(open_below(root, path), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise refusal(shown, f"{name} is no file that can be read")
            content = file.read(left + 1)
    except OSError as error:
        raise refusal(shown, f"{name} cannot be read: {error.strerror or error}") from None
    if len(content) > left:
        raise refusal(shown, f"its files have more than {MAX_BYTES >> 20} MiB together")
    return content


def refusal(path: Path, problem: str, what: str = "a skill") -> RegistrationError:
    """Return the error for what is no skill."""
    return RegistrationError(f"{path} cannot be {what}: {problem}")
