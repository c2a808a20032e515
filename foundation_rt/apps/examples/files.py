"""A folder of files and images, which nobody can leave.

::

    FILES_ROOT=~/Pictures foundation-rt serve foundation_rt.examples.files

Models name files with paths of their own. A path is resolved first, links included, and then has to
be below the folder.
"""

from __future__ import annotations

import os
from mimetypes import guess_type
from pathlib import Path

from foundation_rt import ErrorCode, Image, ResourceLink, Server, Text, ToolAnnotations, ToolError

MAX_BYTES = 4_000_000
READS = ToolAnnotations(read_only=True, open_world=False)

server = Server("files", version="1.0.0")


def root() -> Path:
    """Return the folder."""
    return Path(os.environ.get("FILES_ROOT", ".")).expanduser().resolve()


def inside(path: str) -> Path:
    """Return a path of the folder; refuse any other."""
    written = Path(os.path.normpath(root() / path))  # Windows logs in to a share to resolve it
    try:
        found = written.resolve() if written.is_relative_to(root()) else written
    except (OSError, ValueError) as error:
        raise ToolError(ErrorCode.INVALID_ARGUMENT, f"{path!r} is no path.") from error
    if not found.is_relative_to(root()):
        raise ToolError(ErrorCode.UNAUTHORIZED, f"{path!r} is outside of the folder.")
    if not found.exists():
        raise ToolError(ErrorCode.NOT_FOUND, f"There is no {path!r}.")
    return found


def contents(path: str) -> tuple[bytes, str]:
    """Return the bytes of a file, and their media type."""
    file = inside(path)
    if not file.is_file():
        raise ToolError(ErrorCode.INVALID_ARGUMENT, f"{path!r} is no file.")
    if file.stat().st_size > MAX_BYTES:
        raise ToolError(ErrorCode.RESOURCE_EXHAUSTED, f"{path!r} has over {MAX_BYTES} bytes.")
    return file.read_bytes(), guess_type(file.name)[0] or "text/plain"


@server.tool(annotations=READS)
def list_files(folder: str = ".") -> list[ResourceLink]:
    """List the files of a folder."""
    listed = inside(folder)
    if not listed.is_dir():
        raise ToolError(ErrorCode.INVALID_ARGUMENT, f"{folder!r} is no folder.")
    return [
        ResourceLink(
            f"files:///{each.relative_to(root()).as_posix()}",
            each.name,
            size=each.stat().st_size,
        )
        for each in sorted(listed.iterdir())
        if each.is_file() and each.resolve().is_relative_to(root())
    ]


@server.tool(annotations=READS)
def show(path: str) -> list[Image | Text]:
    """Show a file: an image as an image, any other file as text."""
    data, mime_type = contents(path)
    if mime_type.startswith("image/"):
        return [Text(f"{path}, {len(data)} bytes"), Image(data, mime_type)]
    return [Text(data.decode(errors="replace"))]


@server.resource("files:///{+path}")
def file(path: str) -> bytes | str:
    """Read a file of the folder."""
    data, mime_type = contents(path)
    return data.decode(errors="replace") if mime_type.startswith("text/") else data


if __name__ == "__main__":
    server.run()
