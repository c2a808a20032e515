"""Reading a file of tasks that a client names (TASKS-40).

The client chooses the path, so nothing outside of the root may be opened, not even for a moment: a
FIFO or a device does something when it is opened. The path is resolved first, and then walked from
the root without following any link, so that a link that appears in between is refused as well.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from ...errors import ErrorCode, ToolError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK the opening of a FIFO waits for a writer.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def read_task_file(path: str, root: str | None, max_bytes: int) -> list[Any]:
    """Return the tasks in a JSON file: an array, or an object with `tasks`; they are not checked.

    Args:
        path: of the file; a relative one is taken from the root.
        root: the folder that clients may read from; None if they may not.
        max_bytes: the largest file that is read.

    Raises:
        ToolError: UNAUTHORIZED without a root, and outside of it; INVALID_ARGUMENT for anything
            that is no such file. No message quotes the file.
    """
    if root is None:
        raise ToolError(
            ErrorCode.UNAUTHORIZED,
            "This server reads no files. Send the tasks with mcp-tasks, or have the operator set"
            " task_server.file_root.",
            {"reason": "file_root_not_set"},
        )
    if not path.endswith(".json") or "\0" in path:
        raise _refusal("is not the path of a .json file", "not_json_file")
    try:
        data = _read(*_resolve(path, root), max_bytes)
    except OSError as error:
        raise _refusal(f"cannot be read: {error.strerror}", "unreadable") from None
    except UnicodeEncodeError:
        raise _refusal("has a name that is not valid Unicode", "unreadable") from None
    try:
        tasks = orjson.loads(data.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _refusal(f"is not valid JSON ({where})", "not_json") from None
    if isinstance(tasks, dict):
        tasks = tasks.get("tasks")
    if not isinstance(tasks, list):
        raise _refusal("holds neither an array nor an object with `tasks`", "no_tasks")
    return tasks


def _resolve(path: str, root: str) -> tuple[Path, tuple[str, ...]]:
    """Return the real root, and the names that lead from it to the file."""
    real_root = Path(os.path.realpath(root))
    resolved = Path(os.path.realpath(real_root / path))
    if not resolved.is_relative_to(real_root) or resolved == real_root:
        raise ToolError(
            ErrorCode.UNAUTHORIZED,
            "The file is outside of the folder that this server may read from.",
            {"reason": "outside_file_root"},
        )
    return real_root, resolved.relative_to(real_root).parts


def _read(root: Path, names: Sequence[str], max_bytes: int) -> bytes:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            inner = os.open(name, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(names[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    # Python would not close the descriptor of a folder, which it refuses to make a file of.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refusal("is not a regular file", "not_a_file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise _refusal(f"has more than {max_bytes} bytes", "file_too_large")
    return data


def _refusal(problem: str, reason: str) -> ToolError:
    details = {"reason": reason, "pointer": "/filePath"}
    return ToolError(ErrorCode.INVALID_ARGUMENT, f"The file {problem}.", details)
