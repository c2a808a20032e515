"""The error of a program, for its author: the file, the line and its source (CLI-50, CLI-57).

The frames of the runtime and of libraries are left out: the author's own innermost one says what to
change. The whole traceback is behind `--traceback`.
"""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..apps.dev.problems import own_places, problem_of_exception

if TYPE_CHECKING:
    from ..apps.dev.problems import Problem

_LOGGED = re.compile(r"(.+):(\d{1,9}) \S+")
_MAX_SOURCE = 500
_MAX_PLACES = 8


def ignored_folders() -> tuple[str, ...]:
    """Return the folders whose files are not the author's, each with a separator at its end."""
    own = Path(__file__).parent.parent
    paths = sysconfig.get_paths()
    return (f"{own}{os.sep}", *(f"{paths[name]}{os.sep}" for name in ("stdlib", "purelib")))


def problem_of(error: BaseException) -> Problem:
    """Return the problem of a program that could not be loaded.

    Args:
        error: of `load_app`, or of the program itself.
    """
    return problem_of_exception(_cause(error), ignored_folders())


def describe_problem(error: BaseException, *, with_traceback: bool) -> str:
    """Return the message of an error that has ended a command, and where the program raised it.

    Args:
        error: its message comes first.
        with_traceback: the whole traceback stands in place of the author's own frames.
    """
    if with_traceback:
        shown = "".join(traceback.format_exception(_cause(error)))
        return f"{error}\n{shown.rstrip()}"
    places = own_places(_cause(error), ignored_folders())
    if not places:
        return str(error)
    lines = [f"  {_place(each)}" for each in places[-_MAX_PLACES:]]
    left_out = len(places) - len(lines)
    if left_out:
        lines.insert(0, f"  ... {left_out} more")
    if places[-1].line:
        lines.append(f"    {places[-1].line.strip()[:_MAX_SOURCE]}")
    return "\n".join([str(error), *lines, "--traceback shows all of it"])


def as_json(error: BaseException) -> dict[str, Any]:
    """Return an error that has ended a command, for programs; with file and line if it has any."""
    found: dict[str, Any] = {"code": "USAGE", "message": str(error)}
    places = own_places(_cause(error), ignored_folders())
    if places:
        found |= {"file": places[-1].filename, "line": places[-1].lineno}
    return found


def _cause(error: BaseException) -> BaseException:
    """Return the error of the program that is behind one of `load_app`."""
    is_loading = type(error).__name__ == "AppError"
    return error.__cause__ if is_loading and error.__cause__ is not None else error


def _place(frame: traceback.FrameSummary) -> str:
    """Return a place: the path from this folder, if it is in it, the line and the function."""
    path = Path(frame.filename)
    folder = Path.cwd()
    shown = path.relative_to(folder) if path.is_relative_to(folder) else path
    function = "" if frame.name in ("", "<module>") else f" {frame.name}"
    return f"{shown}:{frame.lineno}{function}"


def own_frames(frames: Sequence[str]) -> Sequence[str]:
    """Return the author's own frames of a log record; all of them if none is.

    Args:
        frames: as the log has them, each `file:line function`, the innermost last.
    """
    folders = ignored_folders()
    return [each for each in frames if not each.startswith(("<", *folders))] or frames


def source_of(frame: str) -> str:
    """Return the line of source of a frame of a log record; "" if it cannot be read."""
    found = _LOGGED.fullmatch(frame)
    if found is None:
        return ""
    return linecache.getline(found[1], int(found[2])).strip()[:_MAX_SOURCE]
