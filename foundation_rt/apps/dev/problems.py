"""The error of a program that cannot run: a sentence, the file, the line. Pure (DEV-10)."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from attrs import asdict, frozen

from ...errors import UsageError
from .log_lines import LogLine, read_line

_MAX_TRACEBACK = 32 * 1024
_MAX_MESSAGE = 2_000
_MAX_SOURCE = 500
_MAX_LAST_LINES = 50
_PROBLEM_LEVELS = ("stderr", "warn", "error")
_NOT_OWN = ("site-packages", "dist-packages")
_FRAME = re.compile(r'^ *File "([^"\n]{1,4096})", line (\d{1,9})', re.MULTILINE)
_OWN_WORDS = re.compile(r"^foundation-rt: (.+)$", re.MULTILINE)
_LAST_LINE = re.compile(r"^(\w[\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b.*)$", re.MULTILINE)


@frozen
class Problem:
    """The error of a program.

    Attributes:
        message: one sentence.
        file: of the author; None if none is known.
        line: in that file, from 1.
        source: the text of that line.
        traceback: for the page, or the last lines of stderr; None without any.
    """

    message: str
    file: str | None = None
    line: int | None = None
    source: str | None = None
    traceback: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the error as the page has it."""
        return asdict(self)

    def sentence(self) -> str:
        """Return the place and the message in one line."""
        if self.file is None:
            return self.message
        place = PurePath(self.file).name + ("" if self.line is None else f", line {self.line}")
        return f"{place}: {self.message}"


def problem_of_report(report: Any) -> Problem | None:
    """Return the problem that a program has reported; None if it is none."""
    if not isinstance(report, dict) or not isinstance(report.get("message"), str):
        return None
    line = report.get("line")
    return Problem(
        report["message"][:_MAX_MESSAGE],
        _text(report.get("file"), 4096),
        line if type(line) is int else None,
        _text(report.get("source"), 500),
        _text(report.get("traceback"), _MAX_TRACEBACK),
    )


def problem_of_exception(error: BaseException, ignored: Sequence[str] = ()) -> Problem:
    """Return the problem of an exception: its place is the author's own innermost frame.

    Args:
        error: was raised while the program was loaded.
        ignored: folders whose files are not the author's.
    """
    shown = "".join(traceback.format_exception(error))[-_MAX_TRACEBACK:]
    # An error of the runtime is a sentence for the author, whatever its class is called.
    named = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
    message = f"{named}{error}"[:_MAX_MESSAGE]
    if isinstance(error, SystemExit):
        message = f"it called sys.exit({error.code!r}) while it was loaded"[:_MAX_MESSAGE]
    if isinstance(error, SyntaxError) and error.filename is not None:
        message = f"{type(error).__name__}: {error.msg}"[:_MAX_MESSAGE]
    places = own_places(error, ignored)
    if not places:
        return Problem(message, traceback=shown)
    innermost = places[-1]
    source = None if innermost.line is None else innermost.line[:_MAX_SOURCE]
    return Problem(message, innermost.filename, innermost.lineno, source, shown)


def own_places(
    error: BaseException, ignored: Sequence[str] = ()
) -> Sequence[traceback.FrameSummary]:
    """Return the author's own places that an exception came through, innermost last.

    Args:
        error: was raised while the program was loaded; the place of a SyntaxError is the last.
        ignored: folders whose files are not the author's.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_own(frame.filename, ignored)]
    if isinstance(error, SyntaxError) and error.filename is not None:
        text = None if error.text is None else error.text.rstrip()
        own.append(traceback.FrameSummary(error.filename, error.lineno, "", line=text))
    return own


def problem_of_text(text: str, otherwise: str) -> Problem:
    """Return the problem that the stderr of a program shows, as Python writes a traceback.

    Args:
        text: its last lines.
        otherwise: the message if they show none. What a command of this runtime has said follows
            it, else the last of the lines.
    """
    messages = _LAST_LINE.findall(text)
    frames = [(file, int(line)) for file, line in _FRAME.findall(text) if _is_own(file, ())]
    if not messages or not frames:
        own, last = _OWN_WORDS.findall(text), _last_said(text)
        message = f"{otherwise}; its last line: {last}" if last else otherwise
        message = f"{otherwise}: {own[-1]}" if own else message
        return Problem(message[:_MAX_MESSAGE], traceback=text[-_MAX_TRACEBACK:].strip() or None)
    file, line = frames[-1]
    return Problem(messages[-1][:_MAX_MESSAGE], file, line, None, text[-_MAX_TRACEBACK:])


def _last_said(text: str) -> str:
    """Return the last line that may say why: no blank one, and of log records only problems."""
    for line in reversed(text.splitlines()[-_MAX_LAST_LINES:]):
        read = read_line(line.strip())
        if isinstance(read, LogLine) and read.message and read.level in _PROBLEM_LEVELS:
            return read.message
    return ""


def _is_own(file: str, ignored: Sequence[str]) -> bool:
    if file.startswith("<") or any(file.startswith(folder) for folder in ignored):
        return False
    return not any(name in PurePath(file).parts for name in _NOT_OWN)


def _text(value: object, longest: int) -> str | None:
    return value[:longest] if isinstance(value, str) else None
