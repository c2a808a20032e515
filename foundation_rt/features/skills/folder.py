"""Reading the folder of a skill, once: what is served is what was digested (SKILL-04)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from attrs import frozen

from ...base.folder_files import (
    MAX_DEPTH,
    MAX_FOLDERS,
    FolderError,
    entries_of,
    files_below,
    read_below,
)
from ...base.skill_format import MANIFEST, MAX_BYTES, MAX_FILES, read_front_matter
from ...errors import RegistrationError


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
    try:
        files = _read_files(root)
    except FolderError as error:
        raise refusal(folder, str(error)) from None
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
        try:
            entries = entries_of(inner)
        except FolderError as error:
            raise refusal(folder, str(error)) from None
        if inner != root and any(each.name == MANIFEST for each in entries):
            found.append(inner.relative_to(root).parts)
        elif len(inner.relative_to(root).parts) < MAX_DEPTH:
            waiting += [Path(each.path) for each in entries if each.is_dir(follow_symlinks=False)]
    else:
        raise refusal(folder, f"it has more than {MAX_FOLDERS:,} folders")
    if not found:
        raise refusal(folder, f"no folder in it has a file {MANIFEST}", "a folder of skills")
    return sorted(found)


def _read_files(root: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    left = MAX_BYTES
    for path in files_below(root):
        if len(files) == MAX_FILES:
            raise FolderError(f"it has more than {MAX_FILES} files")
        content = read_below(root, path, left, MAX_BYTES)
        files[path.relative_to(root).as_posix()] = content
        left -= len(content)
    return files


def refusal(path: Path, problem: str, what: str = "a skill") -> RegistrationError:
    """Return the error for what is no skill."""
    return RegistrationError(f"{path} cannot be {what}: {problem}")
