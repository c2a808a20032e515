"""Running a command of a client, from its arguments to its exit code (CLI-20)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..client.errors import InvalidArgumentsError, MCPError, ToolCallError
from ..engine.shutdown import ending_signals
from ..errors import UsageError
from .args import CommandLine, CommandLineError, parse
from .commands import CLIENT_COMMANDS, FAILURE_EXIT, Answer, ClientCommand
from .render import Output, pretty_json
from .targets import FLAGS, VALUED_OPTIONS, reach

if TYPE_CHECKING:
    from ..client.client import Client

Result = TypeVar("Result")

_TOOL_EXIT = 1
_USAGE_EXIT = 2
INTERRUPTED_EXIT = 130
_STDERR = 2

_log = logging.getLogger("foundation_rt.client")


class EndedBySignal(Exception):
    """SIGTERM or SIGHUP came, and what ran has ended in order."""

    def __init__(self, number: int) -> None:
        self.number = number


def run(name: str, arguments: list[str]) -> int:
    """Run one of `CLIENT_COMMANDS`; print its result or its error; return the exit code."""
    output = Output(sys.stdout, sys.stderr, as_json="--json" in arguments)
    if output.out is None:
        return output.write(b"")  # before a server does work whose result cannot be written
    fill_descriptors()
    try:
        with warnings_to(output):
            answer = _perform(CLIENT_COMMANDS[name], name, arguments)
        return output.result(answer.data, answer.page) or answer.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT
    except EndedBySignal as ended:
        return 128 + ended.number
    except (CommandLineError, UsageError, MCPError, ToolCallError) as error:
        return _report(error, output)


def fill_descriptors() -> None:
    """Keep sockets from the number of a closed stream, to which logs are written."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(opened)


def _perform(command: ClientCommand, name: str, arguments: list[str]) -> Answer:
    line = _parse(command, name, arguments)
    with reach(line, require=command.require, **command.options) as client:
        return run_to_end(partial(_request, command, client, line))


def _parse(command: ClientCommand, name: str, arguments: list[str]) -> CommandLine:
    at_most = None if command.takes_more else len(command.takes)
    line = parse(arguments, VALUED_OPTIONS, FLAGS, at_most, takes_program=True)
    if len(line.positional) < len(command.takes):
        raise CommandLineError(f"{name} needs {' and '.join(command.takes)}")
    if "--count" in line.options and name != "ping":
        raise CommandLineError("--count goes with ping")
    for word in line.positional[1:]:
        if not _is_text(word):
            raise CommandLineError(f"{word!r} is no text in UTF-8")
    return line


async def _request(command: ClientCommand, client: Client, line: CommandLine) -> Answer:
    async with client:
        return await command.perform(client, line)


def run_to_end(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine; a signal cancels it, so that it ends the processes of its servers in order.

    Raises:
        KeyboardInterrupt: SIGINT came.
        EndedBySignal: another signal that ends the process came.
    """

    async def until_signal() -> Result:
        task = asyncio.current_task()
        assert task is not None
        received: list[int] = []

        def end(number: int) -> None:
            received.append(number)
            task.cancel()

        # SIGINT cancels the task by itself; the other signals would leave a child behind.
        for number in ending_signals():
            if number != signal.SIGINT:
                asyncio.get_running_loop().add_signal_handler(number, end, number)
        try:
            return await main()
        except asyncio.CancelledError:
            if received:
                raise EndedBySignal(received[0]) from None
            raise

    return asyncio.run(until_signal())


def _report(error: Exception, output: Output) -> int:
    match error:
        case CommandLineError():
            output.error(
                {"code": "USAGE", "message": str(error)}, f"{error}; see foundation-rt --help"
            )
            return _USAGE_EXIT
        case ToolCallError():
            details = f"\n{pretty_json(error.details)}" if error.details else ""
            output.error(_tool_error(error), f"the tool failed: {error}{details}")
            return _TOOL_EXIT
        case MCPError():
            text = f"{error.code} {error.message.rstrip()}\n{error.suggested_action}"
            output.error(_mcp_error(error), text)
            return _USAGE_EXIT if isinstance(error, InvalidArgumentsError) else FAILURE_EXIT
        case _:
            output.error({"code": "USAGE", "message": str(error)}, str(error))
            return _USAGE_EXIT


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
    handler, propagates = _Warnings(output), _log.propagate
    _log.addHandler(handler)
    _log.propagate = False
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.propagate = propagates
