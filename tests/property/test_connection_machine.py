"""One connection under every interleaving hypothesis can think of, beside a model of the rules.

The machine drives a whole server: lines valid and hostile, cut anywhere; handlers that run as
tasks, in workers and in place, and end in every way; deadlines, cancellations, the disconnect.
Time moves when the machine says so, coroutines run when it says so, and a worker's function runs
when it says so, so that every history can be replayed and shrunk.

`Model` says, independently of the runtime's tables, what has to be answered and recorded. After
every step, all that the server wrote must be exactly what the model expected: nothing missing,
nothing twice, nothing after the end.

A grace never ends in the very millisecond of a deadline (it is odd, and all else is even): the
rules do not say which comes first.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from copy import copy
from typing import Any

import orjson
import pytest
from attrs import define, field, frozen
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from foundation_rt import ErrorCode, ToolContext, ToolDefinition, ToolError
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.settings import (
    ResourcesSection,
    ServerConfig,
    ToolsSection,
    TransportSection,
)
from foundation_rt.kernel.call_lifecycle import CallLifecycle
from foundation_rt.kernel.dispatcher import Dispatcher
from foundation_rt.kernel.effects import Abort, CallCompleted, Reply
from foundation_rt.kernel.engine.connection import Connection
from foundation_rt.kernel.engine.executor import Engine
from foundation_rt.kernel.execution_limits import ResourceManager
from tests.lab.clock.fake_scheduler import FakeScheduler, HeldWorkers
from tests.lab.servers.fixture import COMPLETED, HANDSHAKE, ServerFixture
from tests.lab.sizes import examples

SLOTS = 3
TIMEOUT_MS = 1000
QUICK_TIMEOUT_MS = 400
GRACE_MS = 701
MAX_LINE_BYTES = 1024
MAX_PAYLOAD_BYTES = 300

Id = int | str
CONNECTION_ID = "00000000-0000-4000-a000-000000000001"


# -- what handlers do ------------------------------------------------------------------------------


@frozen
class End:
    """A way for a handler to end.

    Attributes:
        name: what shows in a failing example.
        do: ends the handler: returns or raises, given its context.
        kind: what that is to the model, where no signal has fired.
        code: the error that its client reads, if it waits for it.
        may_stop: whether it counts as stopped once the signal has fired.
    """

    name: str
    do: Callable[[ToolContext], Any] = field(repr=False)
    kind: str
    code: str | None = None
    may_stop: bool = False


def _raise(error: BaseException) -> Callable[[ToolContext], Any]:
    def end(context: ToolContext) -> Any:
        raise error.with_traceback(None)

    return end


def _stop_if_aborted(context: ToolContext) -> str:
    context.abort_signal.raise_if_aborted()
    return "not aborted"


ENDS = [
    End("returns", lambda context: {"ok": True}, "returned"),
    End("returns what JSON cannot say", lambda context: 1j, "returned", "INTERNAL"),
    End("raises", _raise(LookupError("no")), "raised", "INTERNAL"),
    End("raises SystemExit", _raise(SystemExit(3)), "raised", "INTERNAL"),
    End("raises KeyboardInterrupt", _raise(KeyboardInterrupt()), "raised", "INTERNAL"),
    End("chooses", _raise(ToolError(ErrorCode.NOT_FOUND, "no")), "raised", "NOT_FOUND"),
    End(
        "is exhausted itself",
        _raise(ToolError(ErrorCode.RESOURCE_EXHAUSTED, "no")),
        "raised",
        "RESOURCE_EXHAUSTED",
    ),
    End("is cancelled", _raise(asyncio.CancelledError()), "raised", "INTERNAL", may_stop=True),
    End("stops if aborted", _stop_if_aborted, "returned", may_stop=True),
]


@define(eq=False)
class Control:
    """The strings of one handler: how it is to end, and what it has come to see."""

    end: End | None = None
    stubborn: bool = False
    context: ToolContext | None = None
    release: asyncio.Future[None] | None = None

    async def run(self, context: ToolContext) -> Any:
        """As a coroutine: wait for the machine; a stubborn one does not let itself be cancelled."""
        self.context = context
        while self.end is None:
            self.release = asyncio.get_running_loop().create_future()
            try:
                await self.release
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise
        return self.end.do(context)

    def run_in_place(self, context: ToolContext) -> Any:
        """As a function: it ends at once, as it was told."""
        self.context = context
        assert self.end is not None
        return self.end.do(context)

    def finish(self, end: End) -> None:
        self.end = end
        if self.release is not None and not self.release.done():
            self.release.set_result(None)


# -- the model -------------------------------------------------------------------------------------

TOOLS = {  # name: way to run, timeout in ms
    "task": ("task", TIMEOUT_MS),
    "quick_task": ("task", QUICK_TIMEOUT_MS),
    "worker": ("worker", TIMEOUT_MS),
    "inline": ("inline", TIMEOUT_MS),
    "health": ("inline", TIMEOUT_MS),
}


@define(eq=False)
class Call:
    """A call whose handler has not ended."""

    id: Id
    correlation_id: str
    tool: str
    started_ms: int
    control: Control = field(factory=Control)
    phase: str = "waited for"
    aborted_ms: int | None = None

    @property
    def kind(self) -> str:
        return TOOLS[self.tool][0]

    @property
    def deadline_ms(self) -> int | None:
        """When its deadline passes, where that still makes a difference."""
        if self.phase in ("waited for", "disconnected"):
            return self.started_ms + TOOLS[self.tool][1]
        return None

    @property
    def stops_ms(self) -> int | None:
        """When it is cancelled at its await, if nothing else ends it first."""
        if self.kind == "task" and self.aborted_ms is not None and not self.control.stubborn:
            return self.aborted_ms + GRACE_MS
        return None


# TIME-06, as its table has it.
OUTCOMES = {
    ("waited for", "returned"): "success",
    ("waited for", "raised"): "tool_error",
    ("expired", "returned"): "late_completed",
    ("expired", "raised"): "late_completed",
    ("expired", "stopped"): "timeout",
    ("cancelled", "returned"): "late_completed",
    ("cancelled", "raised"): "late_completed",
    ("cancelled", "stopped"): "aborted",
    ("disconnected", "returned"): "disconnected_completed",
    ("disconnected", "raised"): "disconnected_completed",
    ("disconnected", "stopped"): "aborted",
    ("disconnected, expired", "returned"): "late_completed",
    ("disconnected, expired", "raised"): "late_completed",
    ("disconnected, expired", "stopped"): "late_completed",
}


@define(eq=False)
class Model:
    """What the rules say of one connection.

    Attributes:
        replies: expected and not yet seen: request id and what it is answered with.
        records: expected and not yet seen: correlation id, outcome and error code.
    """

    state: str = "STARTING"
    now_ms: int = 0
    in_flight: dict[tuple[type, Id], Call] = field(factory=dict)
    running: list[Call] = field(factory=list)
    rejections: int = 0
    replies: Counter[tuple[Any, ...]] = field(factory=Counter)
    records: Counter[tuple[Any, ...]] = field(factory=Counter)

    @property
    def slots(self) -> int:
        return sum(call.tool != "health" for call in self.running)

    @property
    def health(self) -> str:
        """RES-08, with a loop that is never late."""
        if self.slots >= SLOTS or self.rejections >= 3:
            return "unhealthy"
        return "degraded" if self.slots > 0.8 * SLOTS else "healthy"

    # -- what arrives ------------------------------------------------------------------------------

    def reply(self, request_id: Id | None, what: Any) -> None:
        self.replies[type(request_id), request_id, what] += 1

    def record(self, correlation_id: str, outcome: str, code: str | None = None) -> None:
        self.records[correlation_id, outcome, code] += 1

    def malformed(self, request_id: Id | None, code: int) -> None:
        if self.state != "CLOSED":
            is_taken = (type(request_id), request_id) in self.in_flight
            self.reply(None if is_taken else request_id, code)

    def request(self, request_id: Id, method: str, answers: dict[str, Any]) -> None:
        """Any request but `tools/call`; `answers` says what it gets in each state."""
        if self.state == "CLOSED":
            return
        if (type(request_id), request_id) in self.in_flight:
            self.reply(None, -32600)
            return
        self.reply(request_id, answers.get(self.state, -32002))
        if method == "initialize" and self.state == "STARTING":
            self.state = "INITIALIZING"
        if method == "initialized" and self.state == "INITIALIZING":
            self.state = "RUNNING"

    def initialized(self) -> None:
        if self.state == "INITIALIZING":
            self.state = "RUNNING"

    def call(self, call: Call, flaw: str | None) -> None:
        """Take the ten steps, as far as they go without a handler."""
        if self.state == "CLOSED":
            return
        if (type(call.id), call.id) in self.in_flight:
            self.reply(None, -32600)
            self.record(call.correlation_id, "protocol_error")
        elif self.state != "RUNNING":
            self.reply(call.id, -32002)
            self.record(CONNECTION_ID, "protocol_error")  # RPC-09: always the connection's
        elif flaw == "shape":
            self.reply(call.id, -32602)
            self.record(call.correlation_id, "protocol_error")
        elif flaw == "payload":
            self._reject(call, "RESOURCE_EXHAUSTED")
        elif flaw == "name":
            self._reject(call, "NOT_FOUND")
        elif call.tool != "health" and self.slots == SLOTS:
            self._reject(call, "RESOURCE_EXHAUSTED")
        elif flaw == "arguments":
            self._reject(call, "INVALID_ARGUMENT")
        else:
            call.started_ms = self.now_ms
            self.in_flight[type(call.id), call.id] = call
            self.running.append(call)
            if call.kind == "inline":
                assert call.control.end is not None
                self.ended(call, call.control.end)

    def _reject(self, call: Call, code: str) -> None:
        self.rejections = self.rejections + 1 if code == "RESOURCE_EXHAUSTED" else 0
        self.reply(call.id, code)
        self.record(call.correlation_id, "tool_error", code)

    def cancel(self, request_id: Any) -> None:
        call = self.in_flight.pop((type(request_id), request_id), None)
        if call is not None:
            call.phase = "cancelled"
            call.aborted_ms = self.now_ms

    def close(self) -> None:
        self.state = "CLOSED"
        for call in self.in_flight.values():
            call.phase = "disconnected"
            call.aborted_ms = self.now_ms
        self.in_flight.clear()

    # -- what handlers and time do -----------------------------------------------------------------

    def ended(self, call: Call, end: End | None) -> None:
        """End the handler of `call`; `end` is None when its task was cancelled."""
        self.running.remove(call)
        self.rejections = 0
        aborted = call.aborted_ms is not None
        kind = "stopped" if end is None or (aborted and end.may_stop) else end.kind
        code = None if end is None or kind == "stopped" else end.code
        if call.phase == "waited for":
            assert end is not None
            del self.in_flight[type(call.id), call.id]
            self.reply(call.id, code or "success")
            outcome = "tool_error" if code else "success"
        else:
            outcome = OUTCOMES[call.phase, kind]
            if kind == "returned":
                code = None  # nobody tried to write what it returned
            if "expired" in call.phase:
                code = "TIMEOUT"
        self.record(call.correlation_id, outcome, code)

    def advance(self, milliseconds: int) -> None:
        """Let time pass: deadlines and graces, in their order."""
        until = self.now_ms + milliseconds
        while True:
            due = [
                (moment, happen, call)
                for call in self.running
                for moment, happen in (
                    (call.deadline_ms, self._expire),
                    (call.stops_ms, self._stop),
                )
                if moment is not None and moment <= until
            ]
            if not due:
                break
            self.now_ms, happen, call = min(due, key=lambda each: each[0])
            happen(call)
        self.now_ms = until

    def _expire(self, call: Call) -> None:
        if call.phase == "waited for":
            call.phase = "expired"
            call.aborted_ms = self.now_ms
            del self.in_flight[type(call.id), call.id]
            self.reply(call.id, "TIMEOUT")
        elif call.phase == "disconnected":
            call.phase = "disconnected, expired"

    def _stop(self, call: Call) -> None:
        self.ended(call, None)


# -- the machine -----------------------------------------------------------------------------------

FRESH = "fresh"
known_ids: list[Id] = [1, "1", "a", -(2**63), 2**64 - 1, ""]
ids = st.sampled_from([FRESH, FRESH, FRESH, *known_ids])
ends = st.sampled_from(ENDS)
moments = st.sampled_from([20, 100, 300, 400, 600, 1000, 1400])
# How many bytes of a line stay in the pipe until the next one is written.
held_back = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 30])

MALFORMED: list[tuple[bytes, Id | None, int]] = [
    (b"{", None, -32700),
    (b"\xff\xfe", None, -32700),
    (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', None, -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"p\\ud800"}', None, -32700),
    (b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}', None, -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":1e999}', None, -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"pi\x00ng"}', None, -32700),
    (b"[" * 1024, None, -32700),
    (b"[]", None, -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None, -32600),
    (b"5", None, -32600),
    (b"{}", None, -32600),
    (b'{"id":7,"method":"ping"}', 7, -32600),
    (b'{"jsonrpc":"2.0","id":"x"}', "x", -32600),
    (b'{"jsonrpc":"2.0","id":7,"method":5}', 7, -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":{}}', 1, -32600),
    (b'{"id":"a","method":"tools/call"}', "a", -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"tools/call"}', None, -32600),
    (b'{"jsonrpc":"2.0","id":1.0,"method":"tools/call"}', None, -32600),
    (b'{"jsonrpc":"2.0","id":18446744073709551616,"method":"tools/call"}', None, -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', None, -32600),
    (b"x" * (MAX_LINE_BYTES + 1), None, -32600),
    (b'"' + b"x" * (5 * MAX_LINE_BYTES) + b'"', None, -32600),
]

UNANSWERED = [
    b"",
    b" \t\r",
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"you too"}}',
    b'{"jsonrpc":"2.0","method":"no/such/notification"}',
    b'{"jsonrpc":"2.0","method":"ping"}',
    b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"task"}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
]

REQUESTS: list[tuple[str, Any, dict[str, Any]]] = [
    ("ping", None, {"RUNNING": "result"}),
    ("ping", {"extra": 1}, {"RUNNING": "result"}),
    ("ping", [], {"RUNNING": -32602}),
    ("tools/list", {}, {"RUNNING": "result"}),
    ("tools/list", {"cursor": None}, {"RUNNING": "result"}),
    ("tools/list", {"cursor": "x"}, {"RUNNING": -32602}),
    ("no/such/method", None, {"RUNNING": -32601}),
    (
        "initialize",
        HANDSHAKE,
        {"STARTING": "result", "INITIALIZING": -32600, "RUNNING": -32600},
    ),
    ("initialized", None, {"INITIALIZING": "result", "RUNNING": -32600}),
]


Draw = Callable[[st.SearchStrategy[Any]], Any]

# What may happen, as often as it should: in a connection that is closed little does.
EVENTS = (
    ["call"] * 12
    + ["other_line"] * 7
    + ["finish"] * 8
    + ["wait"] * 5
    + ["cancel"] * 4
    + ["storm"] * 2
    + ["close"]
)

other_lines = st.one_of(
    st.sampled_from(["shape", "payload", "payload", "payload", "name", "arguments", "health"]),
    st.sampled_from(REQUESTS),
    st.sampled_from(MALFORMED),
    st.sampled_from([*UNANSWERED, "initialized"]),
)


class ConnectionMachine(RuleBasedStateMachine):
    """Drives one connection and its model side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.rig = ServerFixture(
            ServerConfig(
                tools=ToolsSection(
                    default_timeout_ms=TIMEOUT_MS,
                    cancel_grace_ms=GRACE_MS,
                    max_payload_bytes=MAX_PAYLOAD_BYTES,
                ),
                resources=ResourcesSection(max_concurrent_executions=SLOTS),
                transport=TransportSection(max_line_bytes=MAX_LINE_BYTES),
            ),
            self.clock,
        )
        self.controls: dict[str, Control] = {}
        self._register_tools()
        runtime = self.rig.server.runtime
        self.resources: ResourceManager = runtime.resources
        self.workers = HeldWorkers()
        self.engine = runtime.engine = Engine(
            runtime.dispatcher,
            self.clock,
            runtime.config,
            self.workers,  # type: ignore[arg-type]
            runtime.directory,
            ToolContext,
        )
        self.scheduler = FakeScheduler(self.clock)
        self.sent: list[bytes] = []
        self.connection: Connection = runtime.connect(
            lambda message: self.sent.append(message.line), "memory", self.scheduler
        )
        self.model = Model()
        self.sent_seen = self.records_seen = 0
        self.requests: Counter[tuple[type, Any]] = Counter()
        self.answers: Counter[tuple[type, Any]] = Counter()
        self.unanswered: Counter[tuple[type, Any]] = Counter()
        self.held: list[Call] = []
        # Bytes that were written and not yet fed, and what each of their lines means.
        self.pipe = bytearray()
        self.meanings: deque[tuple[int, Callable[[], None]]] = deque()
        self.serial = 0

    def _register_tools(self) -> None:
        schema = {
            "type": "object",
            "properties": {"key": {"type": "string"}},
            "required": ["key"],
        }

        async def task(arguments: dict[str, Any], context: ToolContext) -> Any:
            return await self.controls[arguments["key"]].run(context)

        def in_place(arguments: dict[str, Any], context: ToolContext) -> Any:
            return self.controls[arguments["key"]].run_in_place(context)

        register = self.rig.server.register
        register(ToolDefinition("task", "", schema), task)
        register(ToolDefinition("quick_task", "", schema), task, timeout_ms=QUICK_TIMEOUT_MS)
        register(ToolDefinition("worker", "", schema), in_place)
        register(ToolDefinition("inline", "", schema), in_place, inline=True)

    # -- lines -------------------------------------------------------------------------------------

    @initialize(as_far_as=st.sampled_from(["RUNNING"] * 18 + ["INITIALIZING", "STARTING"]))
    def open(self, as_far_as: str) -> None:
        if as_far_as != "STARTING":
            self._request("hello", "initialize", HANDSHAKE, {"STARTING": "result"})
        if as_far_as == "RUNNING":
            self._write({"method": "notifications/initialized"}, self.model.initialized)
        self._feed(len(self.pipe))

    @rule(data=st.data(), what=st.sampled_from(EVENTS))
    def happen(self, data: st.DataObject, what: str) -> None:
        """One rule that chooses: of many, hypothesis would leave some out of every history."""
        if what in ("finish", "cancel") and not self.model.running:
            what = "call"
        if what == "call" and self.model.state == "CLOSED":
            what = "wait"
        getattr(self, f"_{what}")(data.draw)

    def _call(self, draw: Draw) -> None:
        tool = draw(st.sampled_from(["task", "worker", "task", "quick_task", "worker", "inline"]))
        control = Control(draw(ends) if tool == "inline" else None, draw(st.booleans()))
        self._write_call(draw(ids), tool, {"key": f"key {self.serial}"}, None, control)
        self._feed(len(self.pipe) - draw(held_back))

    def _other_line(self, draw: Draw) -> None:
        """Flawed calls, other requests, hostile lines; cut anywhere."""
        id = draw(ids)
        what = draw(other_lines)
        if what == "health":
            self._write_call(id, "health", {}, None, Control(ENDS[0]))
        elif what == "initialized":
            self._write({"method": "initialized"}, self.model.initialized)
        elif isinstance(what, str):
            self._flawed_call(id, what)
        elif isinstance(what, bytes):
            self._write(what, lambda: None)
        elif isinstance(what[0], bytes):
            self._malformed(*what)
        else:
            self._request(self._id(id), *what)
        for size in draw(st.lists(st.integers(1, 200), max_size=4)):
            self._feed(min(size, len(self.pipe)))
        self._feed(max(0, len(self.pipe) - draw(held_back)))

    def _storm(self, draw: Draw) -> None:
        """Rejections in a row, whether or not there are slots: three of them are unhealthy."""
        for _ in range(draw(st.integers(1, 5))):
            self._flawed_call(FRESH, "payload")
        self._feed(len(self.pipe))

    def _cancel(self, draw: Draw) -> None:
        """Cancel a call in flight, a late one or an unknown one, as it comes."""
        in_flight = [id for _, id in self.model.in_flight]
        id = draw(st.sampled_from(in_flight * 4 + known_ids))

        def meaning() -> None:
            if (type(id), id) in self.model.in_flight:
                self.unanswered[type(id), id] += 1
            self.model.cancel(id)

        message = {"method": "notifications/cancelled", "params": {"requestId": id}}
        self._write(message, meaning)
        self._feed(len(self.pipe) - draw(held_back))

    def _id(self, id: Id) -> Id:
        self.serial += 1
        return 1000 + self.serial if id == FRESH else id

    def _malformed(self, line: bytes, request_id: Id | None, code: int) -> None:
        def meaning() -> None:
            if request_id is not None:
                self._count_request(request_id)
            self.model.malformed(request_id, code)

        self._write(line, meaning)

    def _flawed_call(self, id: Id, flaw: str) -> None:
        arguments: Any = {"key": f"key {self.serial}"}
        tool = "task"
        if flaw == "shape":
            arguments = [arguments]
        elif flaw == "payload":
            arguments["key"] += "x" * MAX_PAYLOAD_BYTES
        elif flaw == "name":
            tool = "no such tool"
        else:
            arguments = {"key": 5}
        self._write_call(id, tool, arguments, flaw, Control())

    def _write_call(
        self, id: Id, tool: str, arguments: Any, flaw: str | None, control: Control
    ) -> None:
        id = self._id(id)
        correlation_id = f"call {self.serial}"
        call = Call(id, correlation_id, tool, 0, control)
        if flaw is None and tool != "health":
            self.controls[arguments["key"]] = control
        params = {
            "name": tool,
            "arguments": arguments,
            "_meta": {"correlationId": correlation_id},
        }

        def meaning() -> None:
            self._count_request(id)
            self.model.call(call, flaw)
            if call in self.model.running and call.kind == "worker":
                self.held.append(call)

        self._write({"id": id, "method": "tools/call", "params": params}, meaning)

    def _request(self, id: Id, method: str, params: Any, answers: dict[str, Any]) -> None:
        def meaning() -> None:
            self._count_request(id)
            self.model.request(id, method, answers)

        message = {"id": id, "method": method}
        self._write(message if params is None else message | {"params": params}, meaning)

    # -- bytes -------------------------------------------------------------------------------------

    def _write(self, message: dict[str, Any] | bytes, meaning: Callable[[], None]) -> None:
        if isinstance(message, dict):
            message = orjson.dumps({"jsonrpc": "2.0"} | message)
        self.pipe += message + b"\n"
        self.meanings.append((len(message) + 1, meaning))

    def _feed(self, size: int) -> None:
        data = bytes(self.pipe[:size])
        del self.pipe[:size]
        self.connection.feed(data)
        while self.meanings and size >= self.meanings[0][0]:
            length, meaning = self.meanings.popleft()
            size -= length
            meaning()
        if size:
            length, meaning = self.meanings[0]
            self.meanings[0] = (length - size, meaning)
        self.scheduler.settle()

    def _count_request(self, id: Id) -> None:
        if self.model.state != "CLOSED" and (type(id), id) not in self.model.in_flight:
            self.requests[type(id), id] += 1

    # -- handlers ----------------------------------------------------------------------------------

    def _finish(self, draw: Draw) -> None:
        self._end(draw(st.sampled_from(self.model.running)), draw(ends))

    def _end(self, call: Call, end: End) -> None:
        call.control.finish(end)
        if call.kind == "worker":
            index = self.held.index(call)
            del self.held[index]
            self.workers.run(index)
        self.scheduler.settle()
        self.model.ended(call, end)

    # -- time, and the end -------------------------------------------------------------------------

    def _wait(self, draw: Draw) -> None:
        milliseconds = draw(moments)
        self.scheduler.advance(milliseconds / 1000)
        self.model.advance(milliseconds)

    def _close(self, draw: Draw) -> None:
        reason = draw(st.sampled_from(["disconnected", "shutdown"]))
        for key in self.model.in_flight:
            self.unanswered[key] += 1
        self.connection.close(reason)
        self.model.close()
        self.scheduler.settle()

    # -- after every step --------------------------------------------------------------------------

    @invariant()
    def the_rules_hold(self) -> None:
        self.check_what_was_written()
        self.check_what_was_recorded()
        self.check_slots()
        self.check_accounts()
        self.check_signals()
        assert self.resources.get_health_status() == self.model.health

    def check_what_was_written(self) -> None:
        """Exactly what the model expected: nothing missing, nothing twice, nothing after CLOSED."""
        fresh = self.sent[self.sent_seen :]
        self.sent_seen = len(self.sent)
        seen: Counter[tuple[Any, ...]] = Counter()
        for line in fresh:
            answer = orjson.loads(line)
            assert answer["jsonrpc"] == "2.0"
            assert ("result" in answer) != ("error" in answer)
            seen[type(answer["id"]), answer["id"], _summary(answer)] += 1
            self.answers[type(answer["id"]), answer["id"]] += 1
        assert seen == self.model.replies
        self.model.replies.clear()

    def check_what_was_recorded(self) -> None:
        """One record for every `tools/call`, once its handler has ended."""
        lines = self.rig.sink.lines
        fresh = lines[self.records_seen :]
        self.records_seen = len(lines)
        seen = Counter(
            (each["correlationId"], each["outcome"], each.get("errorCode"))
            for each in fresh
            if each["message"] == COMPLETED
        )
        assert seen == self.model.records
        self.model.records.clear()
        assert [each for each in fresh if each["message"] == "internal error"] == []

    def check_slots(self) -> None:
        """They are held by exactly the handlers that have not ended."""
        assert self.resources.concurrent_executions == self.model.slots <= SLOTS
        running = sorted(call.correlation_id for call in self.engine.running)
        assert running == sorted(call.correlation_id for call in self.model.running)

    def check_accounts(self) -> None:
        """Every request was answered once, or is in flight, or was given up by its client."""
        in_flight = self.connection.session.in_flight
        assert {(type(id), id) for id in in_flight} == set(self.model.in_flight)
        for key, asked in self.requests.items():
            waiting = key in self.model.in_flight
            assert self.answers[key] + self.unanswered[key] + waiting == asked

    def check_signals(self) -> None:
        """They have fired exactly where nobody waits any more."""
        for call in self.model.running:
            if call.control.context is not None:
                assert call.control.context.abort_signal.aborted == (call.aborted_ms is not None)

    def teardown(self) -> None:
        """Whatever happened: once every handler has ended, nothing is left of it."""
        try:
            for call in list(self.model.running):
                self._end(call, ENDS[0])
            self.the_rules_hold()
            self.rig.assert_all_ended()
            assert self.connection.session.in_flight == {}
            assert self.scheduler.timers == []
            assert self.engine.wait_idle(0)
        finally:
            self.scheduler.close()


def _summary(answer: dict[str, Any]) -> Any:
    """Return the kind of an answer: an error's code, `success`, or `result` of another method."""
    if "error" in answer:
        return answer["error"]["code"]
    result = answer["result"]
    if "isError" not in result:
        return "result"
    [content] = result["content"]
    value = orjson.loads(content["text"])
    return value["code"] if result["isError"] else "success"


MACHINE_SETTINGS = settings(
    max_examples=examples(120),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.rule(
    "CALL-07", "CALL-09", "CALL-13", "CALL-14", "CALL-15", "ERR-06", "FRAME-01", "LIFE-01",
    "LIFE-06", "RES-01", "RES-06", "RES-08", "RPC-05", "TIME-02", "TIME-03", "TIME-04", "TIME-05",
    "TIME-06", "TIME-07", "TIME-08",
)  # fmt: skip
def test_no_interleaving_breaks_the_rules() -> None:
    run_state_machine_as_test(ConnectionMachine, settings=MACHINE_SETTINGS)


# -- the machine finds bugs ------------------------------------------------------------------------

Method = Callable[..., Any]


def _keeps_a_slot(conclude: Method) -> Method:
    def planted(self: CallLifecycle, *args: Any) -> list[Any]:
        effects: list[Any] = conclude(self, *args)
        self.resources.try_acquire_slot()
        return effects

    return planted


def _repeats(kind: type) -> Callable[[Method], Method]:
    def plant(conclude: Method) -> Method:
        def planted(self: CallLifecycle, *args: Any) -> list[Any]:
            effects: list[Any] = conclude(self, *args)
            return effects + [copy(effect) for effect in effects if type(effect) is kind]

        return planted

    return plant


def _leaves_out(kind: type) -> Callable[[Method], Method]:
    def plant(method: Method) -> Method:
        def planted(self: CallLifecycle, *args: Any) -> list[Any]:
            return [effect for effect in method(self, *args) if type(effect) is not kind]

        return planted

    return plant


def _does_nothing(method: Method) -> Method:
    return lambda *args: None


def _decides_nothing(method: Method) -> Method:
    return lambda *args: []


def _forgets_the_id(conclude: Method) -> Method:
    def planted(self: CallLifecycle, call: Any, *args: Any) -> Any:
        effects = conclude(self, call, *args)
        call.session.in_flight[call.request_id] = call
        return effects

    return planted


PLANTED: list[tuple[str, type, str, Callable[[Method], Method]]] = [
    ("a slot is not given back", CallLifecycle, "conclude", _keeps_a_slot),
    ("a call is answered twice", CallLifecycle, "conclude", _repeats(Reply)),
    ("a call is recorded twice", CallLifecycle, "conclude", _repeats(CallCompleted)),
    ("a call is not answered", CallLifecycle, "conclude", _leaves_out(Reply)),
    ("a call is not recorded", CallLifecycle, "conclude", _leaves_out(CallCompleted)),
    ("an id stays in flight", CallLifecycle, "conclude", _forgets_the_id),
    ("a deadline is not answered", CallLifecycle, "expire", _leaves_out(Reply)),
    ("a deadline does not abort", CallLifecycle, "expire", _leaves_out(Abort)),
    ("a deadline does nothing", CallLifecycle, "expire", _decides_nothing),
    ("a cancelled call is answered", CallLifecycle, "cancel", _decides_nothing),
    ("a disconnect aborts nothing", CallLifecycle, "disconnect", _decides_nothing),
    ("a closed connection goes on", Dispatcher, "close", _decides_nothing),
    ("a completion does not count", ResourceManager, "record_completion", _does_nothing),
    ("a rejection does not count", ResourceManager, "record_rejection", _does_nothing),
]


@pytest.mark.rule("CALL-09", "CALL-13", "CALL-15", "RES-06", "TIME-08")
@pytest.mark.parametrize(
    ("owner", "name", "plant"),
    [each[1:] for each in PLANTED],
    ids=[each[0].replace(" ", "_") for each in PLANTED],
)
def test_the_machine_finds_a_planted_bug(
    owner: type, name: str, plant: Callable[[Method], Method], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, plant(getattr(owner, name)))
    hunt = settings(
        MACHINE_SETTINGS,
        max_examples=120,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        print_blob=False,
    )
    with pytest.raises(BaseException) as caught:
        run_state_machine_as_test(ConnectionMachine, settings=hunt)
    found = caught.value
    errors = found.exceptions if isinstance(found, BaseExceptionGroup) else [found]
    assert all(isinstance(error, AssertionError) for error in errors)
