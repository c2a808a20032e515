"""Running a command of a client, from its command line to its exit code (CLI-20)."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import field, frozen

from ..client.errors import InvalidArgumentsError, MCPError, ToolCallError
from ..errors import JsonRpcErrorCode, UsageError
from ..kernel.engine.shutdown import ending_signals, exit_code
from .args import CommandLine, CommandLineError
from .render import Output, Page, Paragraph, Payload, pretty_json
from .serve import is_terminal
from .targets import reach

if TYPE_CHECKING:
    from ..client.client import Client
    from .live_view import LiveView
    from .questions import Attendance

Result = TypeVar("Result")

FAILURE_EXIT = 3
"""The server cannot be reached, or has not sent the result."""

_TOOL_EXIT = 1
_USAGE_EXIT = 2
_STDERR = 2
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME = 64  # characters
_MAX_FILES = 10_000
_UNATTENDED = (
    "It asks a question, and nobody is there to answer it: run it at a terminal, without a pipe and"
    " without --json."
)
_NO_EXTENSION = (
    "It needs an extension of the protocol, such as tasks, that this command does not have: use a"
    " client that has it."
)

log = logging.getLogger("foundation_rt.client")


@frozen
class Answer:
    """The result of a command.

    Attributes:
        data: JSON, for programs.
        page: for people.
    """

    data: Any
    page: Page
    exit_code: int = 0


@frozen
class ClientCommand:
    """The requests of a command to a server, and how they are sent.

    Attributes:
        perform: sends the requests; is given what shows their progress, if somebody is there;
            raises `CommandLineError`, `MCPError`, `ToolCallError`.
        require: the capabilities that the server must have.
        options: of `ClientOptions`, for this command.
        is_attended: a person at the terminal sees progress and answers questions (CLI-47).
    """

    perform: Callable[[Client, CommandLine, LiveView | None], Awaitable[Answer]]
    require: frozenset[str] = frozenset()
    options: Mapping[str, Any] = field(factory=dict)
    is_attended: bool = False


def run(command: ClientCommand, line: CommandLine) -> int:
    """Ask the TARGET of a command line; print the result or the error; return the exit code.

    Raises:
        CommandLineError: the command line is wrong.
        UsageError: the TARGET is no server, or cannot be used.
    """
    output = Output(sys.stdout, sys.stderr, as_json="--json" in line.options)
    if output.out is None:
        return output.write(b"")  # before a server does work whose result cannot be written
    fill_descriptors()
    for word in line.positional[1:]:
        if not _is_text(word):
            raise CommandLineError(f"{word!r} is no text in UTF-8")
    try:
        with warnings_to(output):
            answer = _perform(command, line)
            page = _saved(answer.page, line)
        return output.result(answer.data, page) or answer.exit_code
    except (MCPError, ToolCallError) as error:
        return report(error, output)


def fill_descriptors() -> None:
    """Keep sockets from the number of a closed stream, to which logs are written."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(opened)


def _saved(page: Page, line: CommandLine) -> Page:
    """Return the page, its bytes written to new files in the folder of `--save` (CLI-51).

    Raises:
        UsageError: a file cannot be written.
    """
    folder = line.option("--save")
    if folder is None:
        return page
    stem = clean_name(line.positional[1].rpartition("/")[2]) or "file"
    return [
        _in_file(part, part.data, Path(folder), stem)
        if isinstance(part, Payload) and isinstance(part.data, bytes)
        else part
        for part in page
    ]


def clean_name(name: str) -> str:
    """Return a name of letters, digits, `-` and `_`; empty if nothing of it is left."""
    return _NOT_OF_A_NAME.sub("-", name).strip("-")[:_MAX_NAME]


def _in_file(part: Payload, data: bytes, folder: Path, stem: str) -> Paragraph:
    """Write bytes to a file that was not there; return its path, for people."""
    import mimetypes

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


def _perform(command: ClientCommand, line: CommandLine) -> Answer:
    attendance = _attendance(command, line)
    if attendance is None:
        view, options = None, command.options
        log_as = _log_form(as_json="--json" in line.options)
    else:
        view, options = attendance.view, {**command.options, **attendance.settings()}
        log_as = view.record
    with reach(line, log_as, require=command.require, **options) as client:
        return run_to_end(partial(_request, command, client, line, view))


def _attendance(command: ClientCommand, line: CommandLine) -> Attendance | None:
    """Return the person who waits for the result, and can be asked; None if nobody does (CLI-47).

    Stdout is a terminal then: a pager that reads it would have the keyboard.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if not command.is_attended or "--json" in line.options or not all(map(is_terminal, streams)):
        return None
    from .live_view import LiveView
    from .questions import Attendance

    return Attendance(LiveView(line.positional[1]))


def _log_form(*, as_json: bool) -> Callable[[bytes], bytes] | None:
    """Return how the log of an APP is written: in lines for people if stderr is a terminal."""
    if as_json or not is_terminal(sys.stderr):
        return None
    from .terminal import has_colours, readable_problem

    coloured = has_colours()
    return lambda record: readable_problem(record, coloured=coloured).encode()


async def _request(
    command: ClientCommand, client: Client, line: CommandLine, view: LiveView | None
) -> Answer:
    if view is not None:
        view.begin()
    try:
        async with client:
            return await command.perform(client, line, view)
    finally:
        if view is not None:
            view.end()


def run_to_end(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine; a signal cancels it, so that it ends the processes of its servers in order.

    Raises:
        KeyboardInterrupt: SIGINT came.
        SystemExit: another signal that ends the process came, and what ran has ended in order.
    """
    received: list[int] = []

    async def until_signal() -> Result:
        task = asyncio.current_task()
        assert task is not None

        def end(number: int) -> None:
            received.append(number)
            task.cancel()

        # SIGINT cancels the task by itself; the other signals would leave a child behind.
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            if number == signal.SIGINT:
                continue
            if sys.platform == "win32":
                signal.signal(number, lambda each, frame: loop.call_soon_threadsafe(end, each))
            else:
                loop.add_signal_handler(number, end, number)
        return await main()

    try:
        return asyncio.run(until_signal())
    except asyncio.CancelledError:
        if received:
            raise SystemExit(exit_code(received[0])) from None
        raise


def report(error: MCPError | ToolCallError, output: Output) -> int:
    if isinstance(error, ToolCallError):
        details = f"\n{pretty_json(error.details)}" if error.details else ""
        output.error(_tool_error(error), f"the tool failed: {error}{details}")
        return _TOOL_EXIT
    action = error.suggested_action
    if error.original_code == JsonRpcErrorCode.MISSING_CLIENT_CAPABILITY:
        action = _NO_EXTENSION if _lacks_extension(error.data) else _UNATTENDED
    output.error(_mcp_error(error), f"{error.code} {error.message.rstrip()}\n{action}")
    return _USAGE_EXIT if isinstance(error, InvalidArgumentsError) else FAILURE_EXIT


def _lacks_extension(data: Any) -> bool:
    required = data.get("requiredCapabilities") if isinstance(data, dict) else None
    return isinstance(required, dict) and "extensions" in required


def _tool_error(error: ToolCallError) -> dict[str, Any]:
    return {
        "code": error.code,
        "message": error.message,
        "details": error.details,
        "runId": error.run_id,
        "correlationId": error.correlation_id,
    }


def _mcp_error(error: MCPError) -> dict[str, Any]:
    data = error.data
    if isinstance(error, InvalidArgumentsError):
        data = {"errors": [{"path": each.path, "message": each.message} for each in error.issues]}
    return {
        "code": error.code,
        "message": error.message,
        "userMessage": error.user_message,
        "suggestedAction": error.suggested_action,
        "retryable": error.retryable,
        "originalCode": error.original_code,
        "data": data,
    }


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:  # bytes of the command line that are no UTF-8
        return False
    return True


class _Warnings(logging.Handler):
    """Shows the warnings of the client, which quote servers, printable."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._shown:
            self._shown.add(text)
            self._output.warning(text)


@contextmanager
def warnings_to(output: Output) -> Iterator[None]:
    """Show the warnings of the client within the block."""
    handler, propagates = _Warnings(output), log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagates
