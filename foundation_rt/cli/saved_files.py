"""Images, audio and other bytes of a result, written into a folder: `--save FOLDER` (CLI-51)."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from .render import Page, Paragraph, Part, Payload

_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME = 64
_MAX_FILES = 10_000


def save(page: Page, folder: Path, name: str) -> Sequence[Part]:
    """Write the bytes of a page to files; return the page with their paths in place of them.

    Args:
        page: of a result.
        folder: is made if it is not there; no file in it is replaced.
        name: of the files, before their numbers; characters that no file name needs are replaced.

    Raises:
        UsageError: a file cannot be written.
    """
    stem = _NOT_OF_A_NAME.sub("-", name).strip("-")[:_MAX_NAME] or "file"
    return [
        _saved(part, part.data, folder, stem)
        if isinstance(part, Payload) and isinstance(part.data, bytes)
        else part
        for part in page
    ]


def _saved(part: Payload, data: bytes, folder: Path, stem: str) -> Paragraph:
    ending = mimetypes.guess_extension((part.mime_type or "").partition(";")[0].strip()) or ".bin"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, _MAX_FILES):
            path = folder / f"{stem}-{number}{ending}"
            try:
                with path.open("xb") as file:
                    file.write(data)
            except FileExistsError:
                continue
            return Paragraph(f"{path} ({part.mime_type or 'bytes'}, {len(data):,} bytes)")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from None
    raise UsageError(f"{folder} has {_MAX_FILES - 1:,} files {stem}-N{ending}: empty it")
