"""Reading the vectors, and performing what the dispatcher decides without an event loop.

`load()` reads the conversations of spec/vectors. `Performer` is a host of the pure core: it carries
out effects in a time that only moves when it is told to, so that a conversation in which calls take
seconds is replayed at once, and the same way every time.
"""

from __future__ import annotations

import base64
import heapq
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from foundation_rt.base.abort import AbortSignal
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.ids import SequentialIds
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.batches import requests_of
from foundation_rt.features.composition import ServerOptions, ServerRuntime
from foundation_rt.features.context import ToolContext
from foundation_rt.kernel.effects import Abort, Log, Notify, Reply
from foundation_rt.kernel.execution_limits import ResourceManager
from foundation_rt.kernel.invocation import CallOutcome, Invocation, Raised, Returned, Stopped
from foundation_rt.kernel.records import REQUEST_COMPLETED, TOOL_CALL_COMPLETED
from foundation_rt.kernel.registry.tools import ExecutionMode
from foundation_rt.kernel.session import Session, State
from foundation_rt.protocol.framing import LineReader, LineTooLong
from foundation_rt.protocol.jsonrpc import Request, RequestId, parse
from tests.lab.apps.vector_app import NAME, SERVERS, VERSION, end_of_sleep
from tests.lab.servers.core import make_config

if TYPE_CHECKING:
    from foundation_rt.kernel.effects import Effect

FOLDER = Path(__file__).parents[3] / "spec" / "vectors"

RECORD_FIELDS = (
    *("level", "runId", "correlationId", "toolName", "method", "name", "durationMs", "outcome"),
    *("errorCode", "payloadBytes", "toolVersion"),
)
"""The members of a completion record in a vector; one that is left out must be absent."""

COMPLETIONS = (TOOL_CALL_COMPLETED, REQUEST_COMPLETED)
"""The messages of completion records."""


# -- the files


@define
class Step:
    """One event for the server, with the messages and records that it must cause."""

    line: int
    action: dict[str, Any]
    out: list[dict[str, Any]] = field(factory=list)
    records: list[dict[str, Any]] = field(factory=list)

    @property
    def data(self) -> bytes:
        """The bytes that arrive; none if the step is something else."""
        if "in" in self.action:
            text = self.action["in"]
            if not isinstance(text, str):
                text = "".join(part * times for part, times in text)
            return text.encode() + b"\n"
        return base64.b64decode(self.action.get("in_base64", ""), validate=True)


@define
class Vector:
    """One conversation.

    Attributes:
        server: which of the servers it is with, by its name in `vector_app`.
    """

    file: str
    name: str
    rules: list[str]
    config: dict[str, dict[str, Any]]
    server: str = "server"
    steps: list[Step] = field(factory=list)

    @property
    def id(self) -> str:
        """The id of its test."""
        return f"{self.file}: {self.name}"

    @property
    def is_scripted(self) -> bool:
        """Whether time, or the moment at which the client leaves, is part of it."""
        return any({"advance_ms", "disconnect"} & step.action.keys() for step in self.steps)


ACTIONS = ("in", "in_base64", "advance_ms", "disconnect", "eof")


def load() -> list[Vector]:
    """All conversations, in the order of files and lines."""
    return [vector for path in sorted(FOLDER.glob("*.jsonl")) for vector in read(path)]


def read(path: Path) -> list[Vector]:
    """Return the conversations of one file."""
    vectors: list[Vector] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        entry: dict[str, Any] = orjson.loads(line)
        if "name" in entry:
            vectors.append(Vector(path.stem, **entry))
            continue
        [(kind, value)] = entry.items()
        if kind in ACTIONS:
            vectors[-1].steps.append(Step(number, entry))
        elif kind == "out":
            vectors[-1].steps[-1].out.append(value)
        elif kind == "record":
            vectors[-1].steps[-1].records.append(value)
        else:
            raise ValueError(f"{path.name}:{number}: there is no {kind!r}")
    for vector in vectors:
        if not any("eof" in step.action for step in vector.steps):
            vector.steps.append(Step(vector.steps[-1].line, {"eof": True}))
    return vectors


def record_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a log record as a vector states it."""
    return {name: entry[name] for name in RECORD_FIELDS if name in entry}


# -- a host without an event loop


@define(eq=False)
class Running:
    """A call whose handler has not ended."""

    call: Invocation
    signal: AbortSignal
    started: float
    heeds_abort: bool


@define(eq=False)
class Performer:
    """Performs effects; time passes when `advance` is called.

    Attributes:
        sent: every line the server sent, in order.
        exchanges: every message in them, each with the request it answers, if any.
        sink: every record it logged.
    """

    runtime: ServerRuntime
    clock: ManualClock
    sink: MemorySink
    session: Session
    sent: list[bytes] = field(factory=list)
    exchanges: list[tuple[Request | None, bytes]] = field(factory=list)
    running: dict[str, Running] = field(factory=dict)
    _reader: LineReader = field(init=False)
    _asked: dict[RequestId, Request] = field(factory=dict, init=False)
    _now_ms: int = field(default=0, init=False)
    _agenda: list[tuple[int, int, Callable[[], None]]] = field(factory=list, init=False)
    _entries: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._reader = LineReader(self.runtime.config.transport.max_line_bytes)
        self.runtime.registry.observe(self)

    def act(self, step: Step) -> None:
        """Perform the step."""
        if "advance_ms" in step.action:
            self.advance(step.action["advance_ms"])
        elif "disconnect" in step.action:
            self.close()
        elif "eof" in step.action:
            self.end()
        else:
            self.feed(step.data)

    def feed(self, data: bytes) -> None:
        """Receive bytes."""
        for line in self._reader.feed(data):
            self._receive(line)

    def end(self) -> None:
        """End the input, then pass time until the last handler has ended."""
        for line in self._reader.end():
            self._receive(line)
        self._perform(self.runtime.dispatcher.prepare_stop(self.session))
        if self.running and self.session.state is not State.CLOSED:
            self.advance(self.runtime.config.server.eof_grace_ms)
        self.close()
        while self._agenda:
            self.advance(self._agenda[0][0] - self._now_ms)

    def close(self) -> None:
        """Close the connection as a client that has gone."""
        self._perform(self.runtime.dispatcher.close(self.session))

    def advance(self, ms: int) -> None:
        """Advance the time; what falls due happens in order."""
        until = self._now_ms + ms
        while self._agenda and self._agenda[0][0] <= until:
            due, _, happen = heapq.heappop(self._agenda)
            self._move_to(due)
            happen()
        self._move_to(until)

    def records(self) -> list[dict[str, Any]]:
        """Return the completion records so far, as vectors have them."""
        return [record_of(entry) for entry in self.sink.lines if entry["message"] in COMPLETIONS]

    def list_changed(self, kind: str, *, seen_by: Any = None) -> None:
        """Notify the client that the registry has changed."""
        self._perform(self.runtime.dispatcher.list_changed(self.session, kind))

    def _receive(self, line: bytes | LineTooLong) -> None:
        message = line if isinstance(line, LineTooLong) else parse(line)
        for request in requests_of(message) if not isinstance(message, LineTooLong) else ():
            if request.id not in self.session.in_flight:
                self._asked[request.id] = request
        self._perform(self.runtime.dispatcher.dispatch(self.session, message))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply | Notify):
                if self.session.state is not State.CLOSED:
                    self._note(effect.line)
            elif isinstance(effect, Log):
                self.session.logger.log(effect.level, effect.message, effect.fields)
            elif isinstance(effect, Invocation):
                self._start(effect)
            elif isinstance(effect, Abort):
                self._abort(effect.invocation, effect.reason)

    def _note(self, line: bytes) -> None:
        message = orjson.loads(line)
        self.sent.append(line)
        for each in message if isinstance(message, list) else [message]:
            self.exchanges.append((self._asked.get(each.get("id")), orjson.dumps(each)))

    def _start(self, call: Invocation) -> None:
        heeds = call.arguments.get("heed", True) is True
        run = Running(call, AbortSignal(), self.clock.monotonic(), heeds)
        self.running[call.run_id] = run
        if call.execution is ExecutionMode.INLINE:
            context = ToolContext(call.run_id, call.correlation_id, run.signal, self.session.logger)
            self._finish(run, _outcome(lambda: call.handler(call.arguments, context)))
            return
        self._at(call.arguments["ms"], run, lambda: self._wake(run))
        self._at(call.timeout_ms, run, lambda: self._expire(run))

    def _wake(self, run: Running) -> None:
        self._finish(run, _outcome(lambda: end_of_sleep(run.call.arguments)))

    def _expire(self, run: Running) -> None:
        self._perform(self.runtime.dispatcher.expire(run.call))

    def _abort(self, call: Invocation, reason: str) -> None:
        run = self.running[call.run_id]
        run.signal.fire(reason)
        if run.heeds_abort:
            self._finish(run, Stopped())

    def _finish(self, run: Running, outcome: CallOutcome) -> None:
        del self.running[run.call.run_id]
        duration_ms = round((self.clock.monotonic() - run.started) * 1000, 3)
        self._perform(self.runtime.dispatcher.conclude(run.call, outcome, duration_ms))

    def _at(self, in_ms: int, run: Running, happen: Callable[[], None]) -> None:
        def happen_if_running() -> None:
            if run.call.run_id in self.running:
                happen()

        self._entries += 1
        heapq.heappush(self._agenda, (self._now_ms + in_ms, self._entries, happen_if_running))

    def _move_to(self, ms: int) -> None:
        self.clock.advance((ms - self._now_ms) / 1000)
        self._now_ms = ms


def _outcome(handler: Callable[[], Any]) -> CallOutcome:
    try:
        return Returned(handler())
    except BaseException as error:
        return Raised(error)


def make_performer(
    config: Mapping[str, Mapping[str, Any]] | None = None,
    level: str = "info",
    server: str = "server",
) -> Performer:
    """Return a performer with a server of the vectors, counting ids and a clock at rest."""
    given = config or {}
    identity = {"name": NAME, "version": VERSION, **given.get("server", {})}
    whole = make_config({**given, "server": identity})
    clock, sink = ManualClock(), MemorySink()
    options = ServerOptions(
        config=whole,
        logger=StructuredLogger(sink, clock, level),
        resource_manager=ResourceManager(whole, lambda: 0),
        id_generator=SequentialIds(),
        clock=clock,
    )
    runtime = SERVERS[server](options).runtime
    return Performer(runtime, clock, sink, runtime.open_session("stdio"))
