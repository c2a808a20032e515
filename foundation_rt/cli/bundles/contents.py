"""The files of a bundle: the program, and what is named beside it (PKG-02, PKG-06)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...base.folder_files import FolderError, files_below, read_below
from ...errors import UsageError

MAX_FILES = 512
MAX_BYTES = 64 << 20
"""Of all files together."""


def read_files(program: Path, named: Sequence[str], left_out: Path) -> dict[str, bytes]:
    """Return the content of each file, by its path below the folder of the program, with `/`.

    Args:
        program: its file.
        named: files and folders below the folder of the program.
        left_out: the folder that the bundle is written to.

    Raises:
        UsageError: a file is none of those that may be in a bundle; says which, and why.
    """
    root = Path(os.path.realpath(program.parent))
    files: dict[str, bytes] = {}
    left = MAX_BYTES
    out = Path(os.path.realpath(left_out))
    found = (each for name in named for each in _found(root, name, out))
    for path in (root / program.name, *found):
        name = path.relative_to(root).as_posix()
        if name in files:
            continue
        if len(files) == MAX_FILES:
            raise UsageError(f"a bundle has at most {MAX_FILES} files: name fewer")
        try:
            if os.path.realpath(path) != str(path):
                raise FolderError("it is a link: put the file itself there")
            files[name] = read_below(root, path, left, MAX_BYTES)
        except FolderError as error:
            raise UsageError(f"{name} cannot be in a bundle: {error}") from None
        left -= len(files[name])
    return files


def _found(root: Path, named: str, out: Path) -> Iterator[Path]:
    """Yield the files that a name stands for: itself, or those below that folder, not in `out`."""
    path = Path(os.path.normpath(Path(os.path.realpath(Path(named).parent)) / Path(named).name))
    if path == root or not path.is_relative_to(root):
        raise UsageError(
            f"{named} cannot be in a bundle: name what is below the folder of the program, {root}"
        )
    if any(part.startswith(".") for part in path.relative_to(root).parts):
        raise UsageError(f"{named} cannot be in a bundle: its name begins with a dot")
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    try:
        is_within = out.is_relative_to(path)
        yield from (
            each for each in files_below(path) if not (is_within and each.is_relative_to(out))
        )
    except FolderError as error:
        raise UsageError(f"{named} cannot be in a bundle: {error}") from None


def refuse_absent_modules(program: Path, files: Sequence[str]) -> None:
    """Raise `UsageError` if the loaded program imports a file beside it that is not in the bundle.

    Args:
        program: its file.
        files: those of the bundle, as `read_files` names them.
    """
    root = Path(os.path.realpath(program.parent))
    for module in [*sys.modules.values()]:
        source = getattr(module, "__file__", None)
        path = Path(os.path.realpath(source)) if isinstance(source, str) else root
        if path == root or path.suffix != ".py" or not path.is_relative_to(root):
            continue
        inner = path.relative_to(root)
        # An environment beside the program is not the program.
        is_installed = "site-packages" in inner.parts or path.is_relative_to(sys.prefix)
        if not is_installed and inner.as_posix() not in files:
            raise UsageError(f"the program imports {inner}: add --file {inner}")
