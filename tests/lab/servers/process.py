"""A server in a process of its own, and the client's end of its pipes.

`serve(APP)` starts `foundation-rt serve` with an application given as source text and talks to it
as a client would, over real descriptors. Three things hold for every test that uses it:

* Every wait is bounded: after `PATIENCE` seconds the test fails, and names what it waited for and
  what the server wrote to stderr. Nothing sleeps; everything waits in one place for
  the server's output, its log and the end of its process.
* Every line that the server writes to its output must be a JSON message, or the test fails.
* The process is gone when the `with` block is left, however the test ended.

On Linux and on Windows: `Ends` is how each waits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from tests.lab.servers import fork_server

if sys.platform == "win32":
    from tests.lab.programs import windows_processes
    from tests.lab.servers.windows_ends import Ends, input_pipe, output_pipe
else:
    from tests.lab.servers.posix_ends import Ends, input_pipe, output_pipe

PATIENCE = 60.0
"""Seconds after which something that should have happened counts as hanging."""

PLUGINS = str(Path(__file__).parents[1] / "models" / "plugins")
"""The folder of what tests add to the runtime by entry points."""


class Hanging(AssertionError):
    """An event that a test waited for did not happen."""


def environment(settings: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return this environment with only the given settings, as in `tools.cancel_grace_ms`.

    Servers start and print as they do by default, whatever this process was told: a hundred starts
    without cached bytecode take a minute.
    """
    clean = {key: each for key, each in os.environ.items() if not key.startswith("FOUNDATION_RT_")}
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
        clean.pop(name, None)
    clean["PYTHONPATH"] = os.pathsep.join(filter(None, (PLUGINS, clean.get("PYTHONPATH"))))
    for key, value in (settings or {}).items():
        clean["FOUNDATION_RT_" + key.upper().replace(".", "__")] = str(value)
    return clean


def run(
    *words: str, settings: Mapping[str, object] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `foundation-rt` with these arguments to its end; input is empty unless given."""
    options.setdefault("input", "")
    return fork_server.run(
        command(*words),
        env=environment(settings),
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        **options,
    )


class ServerProcess:
    """A running server, and both ends of its conversation.

    Args:
        command: what to run.
        env: its environment.
        stdin, stdout, stderr: the server's end and ours; ours is None where the test has no use
            for it. By default a pipe. Ours belong to this object, the server's are closed here.
        start: what makes the process; `subprocess.Popen` for one that imports the runtime itself.

    Attributes:
        messages: what the server has sent so far, decoded, in order.
        input, output, log: our ends; None once closed.
        exit_code: None while it runs; negative for a signal that killed it.
        reading: set it to False to be a client that does not read.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        stdin: tuple[int, int | None] | None = None,
        stdout: tuple[int, int | None] | None = None,
        stderr: tuple[int, int | None] | None = None,
        start: Callable[..., subprocess.Popen[Any]] = fork_server.Popen,
    ) -> None:
        theirs_in, self.input = stdin or input_pipe()
        ours_out = stdout or output_pipe()
        ours_log = stderr or output_pipe()
        self.output, self.log = ours_out[1], ours_log[1]
        theirs = (theirs_in, ours_out[0], ours_log[0])
        try:
            self.process = start(
                command, stdin=theirs[0], stdout=theirs[1], stderr=theirs[2], env=env
            )
        finally:
            for descriptor in set(theirs):
                os.close(descriptor)
        self._ends = Ends(self.process, self._ours())
        self.exit_code: int | None = None
        self.reading = True
        self.messages: list[dict[str, Any]] = []
        self._incoming = b""
        self._logged = b""
        self._outgoing = b""
        self._last_id = 0

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.exit_code is None:
            if "COVERAGE_PROCESS_CONFIG" in os.environ:
                self._let_it_write_its_lines()
            self.process.kill()
            self.process.wait(PATIENCE)
        ours = self._ours()
        self.input = self.output = self.log = None
        for end in ours:
            self._ends.close_end(end)
        self._ends.close()

    def _let_it_write_its_lines(self) -> None:
        """Give a process under `make coverage` the time to write which lines it has run."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)

    def _ours(self) -> set[int]:
        return {end for end in (self.input, self.output, self.log) if end is not None}

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        return self.process.pid

    # -- sending -----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes as they are; returns when the server's end has taken them all."""
        self._outgoing += data
        self._until(lambda: not self._outgoing, f"the server took {len(data)} bytes")

    def offer(self, data: bytes) -> int:
        """Send as much of `data` as can be sent without waiting; return the number of bytes."""
        assert self.input is not None
        return self._ends.write(self.input, data)

    def takes_input(self, seconds: float) -> bool:
        """Return whether the server's input takes bytes within this time."""
        assert self.input is not None
        return self._ends.wait([], self.input, seconds)[1]

    def send(self, method: str, params: object = None, **members: object) -> None:
        """Send a notification, or with `id=` a request."""
        message = {"jsonrpc": "2.0", **members, "method": method}
        if params is not None:
            message["params"] = params
        self.write(orjson.dumps(message) + b"\n")

    def ask(self, method: str, params: object = None) -> int:
        """Send a request; return its id."""
        self._last_id += 1
        self.send(method, params, id=self._last_id)
        return self._last_id

    def start(self, tool: str, /, **arguments: object) -> int:
        """Start a call; return the id of the request."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def cancel(self, request_id: int | str) -> None:
        """Cancel a request."""
        self.send("notifications/cancelled", {"requestId": request_id})

    def close_input(self) -> None:
        """Close the server's input."""
        assert self.input is not None
        end, self.input = self.input, None
        if end != self.output:
            self._ends.close_end(end)

    def close_output(self) -> None:
        """Close the read end of the server's output."""
        assert self.output is not None
        end, self.output = self.output, None
        if end != self.input:
            self._ends.close_end(end)

    def close_log(self) -> None:
        """Close the read end of the server's stderr."""
        assert self.log is not None
        end, self.log = self.log, None
        self._ends.close_end(end)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server, or on Windows what its console has for it."""
        if sys.platform == "win32":
            windows_processes.send_signal(self.process, number)
        else:
            self.process.send_signal(number)

    def terminate(self) -> None:
        """End it with SIGTERM; fail unless it ends as it should."""
        self.signal(signal.SIGTERM)
        assert self.wait() == 128 + signal.SIGTERM

    def insist(self, number: signal.Signals) -> None:
        """Send a signal again and again, until the process has ended.

        Two at once would count as one: a signal that is pending already is not sent again.
        """
        deadline = time.monotonic() + PATIENCE
        while self.exit_code is None:
            if time.monotonic() > deadline:
                raise Hanging(f"it does not mind {number!r}\nstderr:\n{self.stderr[-4000:]}")
            self.signal(number)
            self._serve(0.05)

    # -- receiving ---------------------------------------------------------------------------

    def answer(self, request_id: object) -> dict[str, Any]:
        """Wait for the answer with this id."""
        found: list[dict[str, Any]] = []

        def has_come() -> bool:
            found.extend(self.answers(request_id))
            return bool(found)

        self._until(has_come, f"an answer to {request_id!r}")
        return found[0]

    def answers(self, request_id: object) -> list[dict[str, Any]]:
        """Return the answers with this id that have been read so far."""
        return [
            each
            for each in self.messages
            if type(each) is dict
            and each.get("id") == request_id
            and type(each["id"]) is type(request_id)
        ]

    def outcome(self, request_id: int) -> Any:
        """Wait for the answer to a call; return what its tool returned, or its error, decoded."""
        return decode(self.answer(request_id))

    def call(self, tool: str, /, **arguments: object) -> Any:
        """Call a tool and wait for what it returns, or for its error."""
        return self.outcome(self.start(tool, **arguments))

    def request(self, method: str, params: object = None) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        return self.answer(self.ask(method, params))

    def handshake(self) -> dict[str, Any]:
        """Initialize the connection; return the server's answer."""
        info = {"name": "tests", "version": "0"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        answer = self.request("initialize", params)
        self.send("notifications/initialized")
        return answer

    def wait_for_messages(self, count: int) -> None:
        """Wait until the server has sent at least so many messages."""
        self._until(lambda: len(self.messages) >= count, f"{count} messages")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something holds that shows in what the server sends or logs."""
        self._until(condition, what)

    # -- its log -----------------------------------------------------------------------------

    @property
    def stderr(self) -> str:
        """All that has been read of its standard error."""
        return self._logged.decode(errors="replace")

    @property
    def records(self) -> list[dict[str, Any]]:
        """The log records read so far, in order."""
        *lines, _ = self._logged.split(b"\n")
        return [orjson.loads(line) for line in lines if line.startswith(b'{"timestamp"')]

    def records_with(self, **fields: object) -> list[dict[str, Any]]:
        """Return the records read so far that have these fields."""
        return [each for each in self.records if fields.items() <= each.items()]

    def record(self, **fields: object) -> dict[str, Any]:
        """Wait for a log record with these fields."""
        self._until(lambda: bool(self.records_with(**fields)), f"a record with {fields}")
        return self.records_with(**fields)[0]

    def completion(self, tool: str) -> dict[str, Any]:
        """Wait for the completion record of a call of this tool."""
        return self.record(message="tool call completed", toolName=tool)

    # -- its end -----------------------------------------------------------------------------

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code. Its output is read to the end."""
        self._until(lambda: self.exit_code is not None, "the end of the process")
        assert self.exit_code is not None
        return self.exit_code

    def finish(self) -> int:
        """Close the server's input and wait for the end of the process; return its exit code."""
        self.close_input()
        return self.wait()

    def drain_log(self) -> None:
        """Read the log to its end, after the process: no child holds its stderr any more."""
        while self.log is not None:
            self._await_end(self.log, "log")
            self._read_log()

    def drain_output(self) -> None:
        """Read the output to its end, after the process: no child holds it any more."""
        while self.output is not None:
            self._await_end(self.output, "output")
            self._read_output()

    def _await_end(self, end: int, name: str) -> None:
        if not self._ends.wait([end], None, PATIENCE)[0]:
            raise Hanging(f"somebody still holds the {name}\nstderr:\n{self.stderr[-4000:]}")

    # -- the one place that waits ------------------------------------------------------------

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self.exit_code is not None:
                raise Hanging(
                    f"waited in vain for: {what}\nexit code: {self.exit_code}\n"
                    f"last messages: {self.messages[-5:]}\nstderr:\n{self.stderr[-4000:]}"
                )
            self._serve(remaining)

    def _serve(self, timeout: float) -> None:
        """Wait for the next event of the process, and handle it."""
        reads = [self.output if self.reading else None, self.log]
        ready, takes, ended = self._ends.wait(
            [end for end in reads if end is not None],
            self.input if self._outgoing else None,
            timeout,
        )
        if takes:
            self._send_some()
        if self.output in ready:
            self._read_output()
        if self.log in ready:
            self._read_log()
        if ended:
            self.exit_code = self.process.wait(PATIENCE)
            while self.reading and self._read_output():
                pass
            while self._read_log():
                pass

    def _send_some(self) -> None:
        assert self.input is not None
        try:
            sent = self._ends.write(self.input, self._outgoing)
        except BrokenPipeError:
            self._outgoing = b""  # the end of the process will tell
            return
        self._outgoing = self._outgoing[sent:]

    def _read_output(self) -> bool:
        data = b"" if self.output is None else self._ends.read(self.output)
        if data is None:
            self.output = self._ended(self.output, self.input)
        elif data:
            *lines, self._incoming = (self._incoming + data).split(b"\n")
            self.messages.extend(map(_message, lines))
        return bool(data)

    def _read_log(self) -> bool:
        data = b"" if self.log is None else self._ends.read(self.log)
        if data is None:
            self.log = self._ended(self.log, None)
        elif data:
            self._logged += data
        return bool(data)

    def _ended(self, end: int | None, other: int | None) -> None:
        if end is not None and end != other:
            self._ends.close_end(end)


def _message(line: bytes) -> Any:
    """Return a message, or the array that answers a batch; its line ends with LF alone."""
    assert not line.endswith(b"\r"), line[-200:]
    try:
        message = orjson.loads(line)
    except ValueError:
        raise AssertionError(f"not a message: {line[:200]!r}") from None
    for each in message if type(message) is list else [message]:
        assert type(each) is dict and each["jsonrpc"] == "2.0", line
    return message


def decode(answer: Mapping[str, Any]) -> Any:
    """Return the result of a tool, or its error, from the answer to a call; a text as it is."""
    [content] = answer["result"]["content"]
    assert content["type"] == "text"
    return decode_text(content["text"])


def decode_text(text: str) -> Any:
    """Return the value of a text that is JSON; any other text as it is."""
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def command(*words: str) -> list[str]:
    """Return the command line of `foundation-rt`."""
    return [sys.executable, "-m", "foundation_rt", *words]


@contextmanager
def app_file(app: str | Path) -> Iterator[Path]:
    """Yield the file of an application: a new one for source text."""
    if isinstance(app, Path):
        yield app
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "app.py")
        file.write_text(app, "utf-8")
        yield file


@contextmanager
def serve(
    app: str | None = None,
    settings: Mapping[str, object] | None = None,
    *,
    handshake: bool = True,
    wrapper: Sequence[str] = (),
    start: Callable[..., subprocess.Popen[Any]] = fork_server.Popen,
    **ends: tuple[int, int | None],
) -> Iterator[ServerProcess]:
    """Serve an application, given as source text, in a process of its own.

    Args:
        app: Python source that makes a `Server`; None for the demo tools.
        settings: configuration, as in `{"server.eof_grace_ms": 50}`.
        handshake: False leaves `initialize` to the test.
        wrapper: a command that runs its arguments.
        start: that of `ServerProcess`.
        ends: `stdin`, `stdout` and `stderr` of `ServerProcess`.
    """
    with ExitStack() as stack:
        words = [*wrapper, *command("serve")]
        if app is not None:
            words.append(str(stack.enter_context(app_file(app))))
        with ServerProcess(words, environment(settings), start=start, **ends) as server:
            if handshake:
                server.handshake()
            yield server


@contextmanager
def serve_each(
    names: Sequence[str], app: str, settings: Mapping[str, object] | None = None
) -> Iterator[dict[str, ServerProcess]]:
    """Run a server for each name, so that tests that wait do so at once."""
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(serve(app, settings, handshake=False)) for name in names
        }
        for server in servers.values():
            server.handshake()
        yield servers
