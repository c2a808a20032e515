"""The server in other programs: with a loop, without one, with nothing but the dispatcher."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any
from unittest import mock

import orjson
import pytest

import foundation_rt
from foundation_rt import ToolContext, ToolDefinition, ToolError
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.settings import ResourcesSection, ServerConfig, ToolsSection
from foundation_rt.kernel.effects import Abort, Log, Reply
from foundation_rt.kernel.invocation import Invocation, Raised, Returned
from foundation_rt.protocol.jsonrpc import parse
from tests.lab.clock.virtual_loop import VirtualLoop, run_virtual
from tests.lab.programs.program import run_source
from tests.lab.servers.fixture import COMPLETED, ServerFixture, ServerPeer
from tests.lab.waiting import PATIENCE, until

ANYTHING = {"type": "object"}


def configured(*, slots: int = 10, timeout_ms: int = 30_000, grace_ms: int = 5000) -> ServerConfig:
    return ServerConfig(
        tools=ToolsSection(default_timeout_ms=timeout_ms, cancel_grace_ms=grace_ms),
        resources=ResourcesSection(max_concurrent_executions=slots),
    )


def our_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("foundation-rt-")}


class QueuePeer(ServerPeer):
    """A peer whose messages can be waited for, and who knows the threads that send."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[threading.Thread] = []
        self._arrived: SimpleQueue[None] = SimpleQueue()

    def receive(self, line: bytes) -> None:
        super().receive(line)
        self.threads.append(threading.current_thread())
        self._arrived.put(None)

    def wait_for(self, request_id: int | str) -> dict[str, Any]:
        """Return the answer with this id, when it has come."""
        while not self.answers(request_id):
            self._arrived.get(timeout=PATIENCE)
        return self.answer(request_id)


def connect(rig: ServerFixture) -> QueuePeer:
    peer = QueuePeer()
    peer.connection = rig.server.connect(peer.receive)
    peer.shake_hands()
    peer.threads.clear()
    return peer


# -- a host without an event loop ------------------------------------------------------------------


@pytest.mark.rule("EMBED-03", "EMBED-01")
def test_without_a_loop_no_thread_starts_before_it_is_needed() -> None:
    before = our_threads()
    rig = ServerFixture()
    where: list[threading.Thread] = []

    def note(arguments: dict[str, Any], context: ToolContext) -> str:
        where.append(threading.current_thread())
        return "done"

    async def note_async(arguments: dict[str, Any], context: ToolContext) -> str:
        await asyncio.sleep(0)
        return note(arguments, context)

    rig.server.register(ToolDefinition("inline", "", ANYTHING), note, inline=True)
    rig.server.register(ToolDefinition("worker", "", ANYTHING), note)
    rig.server.register(ToolDefinition("task", "", ANYTHING), note_async)
    peer = connect(rig)
    assert peer.outcome(peer.start("inline")) == "done"
    assert peer.outcome(peer.start("health"))["status"] == "healthy"
    assert where == peer.threads[:1] == [threading.current_thread()]
    assert our_threads() <= before

    peer.wait_for(peer.start("worker"))
    names = {thread.name for thread in our_threads() - before}
    assert names == {"foundation-rt-worker-1", "foundation-rt-timers"}
    assert where[1].name == "foundation-rt-worker-1"

    peer.wait_for(peer.start("task"))
    names = {thread.name for thread in our_threads() - before}
    assert names == {"foundation-rt-worker-1", "foundation-rt-timers", "foundation-rt-loop"}
    assert where[2].name == "foundation-rt-loop"
    assert all(thread.daemon for thread in our_threads())
    rig.assert_all_ended()


@pytest.mark.rule("EMBED-03", "TIME-02", "TIME-04")
def test_without_a_loop_deadlines_are_kept_by_the_timer_thread() -> None:
    rig = ServerFixture(configured(timeout_ms=5, grace_ms=5))
    gate = threading.Event()
    reasons: SimpleQueue[str | None] = SimpleQueue()

    def hold(arguments: dict[str, Any], context: ToolContext) -> None:
        signal = context.abort_signal
        signal.add_callback(lambda: reasons.put(signal.reason))
        assert gate.wait(PATIENCE)

    async def hold_async(arguments: dict[str, Any], context: ToolContext) -> None:
        await asyncio.Event().wait()

    rig.server.register(ToolDefinition("hold", "", ANYTHING), hold)
    rig.server.register(ToolDefinition("hold_async", "", ANYTHING), hold_async)
    peer = connect(rig)
    request_id = peer.start("hold")
    peer.wait_for(request_id)
    assert peer.outcome(request_id)["code"] == "TIMEOUT"
    assert peer.threads[0].name == "foundation-rt-timers"
    assert reasons.get(timeout=PATIENCE) == "deadline"
    assert rig.slots_in_use == 1
    gate.set()
    request_id = peer.start("hold_async")
    peer.wait_for(request_id)
    assert rig.server.runtime.engine.wait_idle(PATIENCE)
    assert [record["outcome"] for record in rig.records] == ["late_completed", "timeout"]
    assert len(peer.received) == 2
    rig.assert_all_ended()


@pytest.mark.rule("EMBED-03", "TIME-03", "TIME-08")
def test_without_a_loop_a_close_reaches_what_runs_and_nothing_is_sent_any_more() -> None:
    rig = ServerFixture(configured(grace_ms=1))
    started = threading.Barrier(3)
    reasons: SimpleQueue[str | None] = SimpleQueue()

    def hold(arguments: dict[str, Any], context: ToolContext) -> None:
        signal, fired = context.abort_signal, threading.Event()
        signal.add_callback(lambda: reasons.put(signal.reason))
        signal.add_callback(fired.set)
        started.wait(PATIENCE)
        assert fired.wait(PATIENCE)
        signal.raise_if_aborted()

    async def hold_async(arguments: dict[str, Any], context: ToolContext) -> None:
        signal = context.abort_signal
        signal.add_callback(lambda: reasons.put(signal.reason))
        await asyncio.get_running_loop().run_in_executor(None, started.wait, PATIENCE)
        await asyncio.Event().wait()

    rig.server.register(ToolDefinition("hold", "", ANYTHING), hold)
    rig.server.register(ToolDefinition("hold_async", "", ANYTHING), hold_async)
    peer = connect(rig)
    peer.start("hold")
    peer.start("hold_async")
    started.wait(PATIENCE)
    peer.connection.close()
    assert [reasons.get(timeout=PATIENCE), reasons.get(timeout=PATIENCE)] == ["disconnected"] * 2
    assert rig.server.runtime.engine.wait_idle(PATIENCE)
    assert peer.received == []
    assert [record["outcome"] for record in rig.records] == ["aborted", "aborted"]
    rig.assert_all_ended()


@pytest.mark.rule("EMBED-03", "CALL-07", "RES-01")
def test_several_connections_share_the_slots() -> None:
    rig = ServerFixture(configured(slots=2))
    gate = threading.Event()
    started: SimpleQueue[None] = SimpleQueue()

    def hold(arguments: dict[str, Any], context: ToolContext) -> str:
        started.put(None)
        assert gate.wait(PATIENCE)
        return "held"

    rig.server.register(ToolDefinition("hold", "", ANYTHING), hold)
    first, second = connect(rig), connect(rig)
    held = [(first, first.start("hold", id=7)), (second, second.start("hold", id=7))]
    for _ in held:
        started.get(timeout=PATIENCE)
    assert second.outcome(second.start("hold", id=8))["details"]["reason"] == "concurrency_limit"
    report = first.outcome(first.start("health"))
    assert report["resources"]["concurrentExecutions"] == 2
    assert report["status"] == "unhealthy"
    gate.set()
    for peer, request_id in held:
        peer.wait_for(request_id)
        assert peer.outcome(request_id) == "held"
    assert rig.server.runtime.engine.wait_idle(PATIENCE)
    rig.assert_all_ended()


@pytest.mark.rule("EMBED-01", "CALL-15", "ERR-06")
def test_connections_that_are_fed_at_once_each_get_their_own_answers() -> None:
    rig = ServerFixture(configured(slots=50))

    def work(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return arguments

    async def work_async(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        await asyncio.sleep(0)
        return arguments

    rig.server.register(ToolDefinition("inline", "", ANYTHING), work, inline=True)
    rig.server.register(ToolDefinition("worker", "", ANYTHING), work)
    rig.server.register(ToolDefinition("task", "", ANYTHING), work_async)
    peers = [connect(rig) for _ in range(4)]
    failures: list[BaseException] = []

    def converse(number: int) -> None:
        peer = peers[number]
        try:
            for turn in range(40):
                tool = ("inline", "worker", "task")[turn % 3]
                request_id = peer.start(tool, {"peer": number, "turn": turn})
                peer.wait_for(request_id)
                assert peer.outcome(request_id) == {"peer": number, "turn": turn}
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=converse, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    assert rig.server.runtime.engine.wait_idle(PATIENCE)
    assert len(rig.records) == 160
    assert {record["outcome"] for record in rig.records} == {"success"}
    rig.assert_all_ended()


# -- a host with an event loop of its own ----------------------------------------------------------


async def reply(peer: ServerPeer, request_id: int | str) -> Any:
    """Return the result of the tool, after as many turns of the loop as it takes."""
    await until(lambda: peer.answers(request_id), "the call is answered")
    return peer.outcome(request_id)


def tools_for_a_loop(rig: ServerFixture) -> list[tuple[str, int, bool]]:
    """Tools of each kind; the list notes where each handler ran, and whether a loop ran there."""
    where: list[tuple[str, int, bool]] = []

    def note(name: str) -> None:
        try:
            asyncio.get_running_loop()
            has_loop = True
        except RuntimeError:
            has_loop = False
        where.append((name, threading.get_ident(), has_loop))

    @rig.server.tool
    async def task() -> str:
        note("task")
        await asyncio.sleep(0)
        return "task"

    @rig.server.tool
    def worker() -> str:
        note("worker")
        return "worker"

    @rig.server.tool(inline=True)
    def inline() -> str:
        note("inline")
        return "inline"

    return where


@pytest.mark.rule("EMBED-02", "CALL-12")
async def test_with_a_loop_of_its_own_everything_happens_there_but_what_works_in_threads() -> None:
    before = our_threads()
    rig = ServerFixture()
    where = tools_for_a_loop(rig)
    peer = ServerPeer()
    sent_in: list[tuple[int, asyncio.AbstractEventLoop]] = []

    def send(line: bytes) -> None:
        sent_in.append((threading.get_ident(), asyncio.get_running_loop()))
        peer.receive(line)

    peer.connection = rig.server.connect(send)
    peer.shake_hands()
    for name in ("task", "worker", "inline"):
        assert await reply(peer, peer.start(name)) == name
    here = threading.get_ident()
    loop = asyncio.get_running_loop()
    assert set(sent_in) == {(here, loop)}
    assert {name: ident == here for name, ident, _ in where} == {
        "task": True,
        "worker": False,
        "inline": True,
    }
    assert {name: has_loop for name, _, has_loop in where}["worker"] is False
    started = {thread.name for thread in our_threads() - before}
    assert started == {"foundation-rt-worker-1"}
    rig.assert_all_ended()
    peer.connection.close()


@pytest.mark.rule("CALL-44")
async def test_a_coroutine_that_never_waits_runs_in_place_on_the_loop() -> None:
    rig = ServerFixture()
    tasks: list[asyncio.Task[Any] | None] = []

    @rig.server.tool
    async def brief() -> str:
        tasks.append(asyncio.current_task())
        return "done"

    peer = rig.connect()
    assert peer.answer(peer.start("brief"))["result"]["content"][0]["text"] == "done"
    assert tasks == [asyncio.current_task()]


@pytest.mark.rule("CALL-44", "EMBED-03")
def test_without_a_loop_a_coroutine_that_never_waits_is_a_task() -> None:
    rig = ServerFixture()
    threads: list[str] = []

    @rig.server.tool
    async def brief() -> str:
        threads.append(threading.current_thread().name)
        return "done"

    peer = connect(rig)
    peer.wait_for(peer.start("brief"))
    assert threads == ["foundation-rt-loop"]


@pytest.mark.rule("CALL-12")
async def test_a_coroutine_handler_is_a_proper_task(clock: ManualClock) -> None:
    rig = ServerFixture(configured(timeout_ms=60_000), clock)

    @rig.server.tool
    async def proper() -> list[Any]:
        task = asyncio.current_task()
        assert task is not None and not task.done()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await asyncio.sleep(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.25)

        async def child(value: int) -> int:
            await asyncio.sleep(0.1)
            return value

        async with asyncio.TaskGroup() as group:
            children = [group.create_task(child(number)) for number in range(3)]
        gathered = await asyncio.gather(child(3), child(4))
        return [*(each.result() for each in children), *gathered]

    peer = rig.connect()
    assert await reply(peer, peer.start("proper")) == [0, 1, 2, 3, 4]
    assert rig.records[0]["durationMs"] == pytest.approx(700, abs=1)


@pytest.mark.rule("CALL-12", "ERR-05", "TIME-06")
async def test_what_goes_wrong_inside_a_task_group_is_the_handlers_failure(
    clock: ManualClock,
) -> None:
    rig = ServerFixture(configured(), clock)

    @rig.server.tool
    async def broken_group() -> None:
        async def fail() -> None:
            raise LookupError("inside")

        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(asyncio.sleep(60))

    @rig.server.tool
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    peer = rig.connect()
    assert (await reply(peer, peer.start("broken_group")))["code"] == "INTERNAL"
    assert (await reply(peer, peer.start("cancels_itself")))["code"] == "INTERNAL"
    assert [record["outcome"] for record in rig.records] == ["tool_error", "tool_error"]
    assert rig.logged("tool handler failed")[0]["error"]["type"] == "ExceptionGroup"
    rig.assert_all_ended()


@pytest.mark.rule("TIME-04", "TIME-05", "TIME-06")
async def test_cancellation_after_the_grace_unwinds_a_task_group(clock: ManualClock) -> None:
    rig = ServerFixture(configured(grace_ms=250), clock)
    ended: list[tuple[str, float]] = []

    @rig.server.tool
    async def group_of_two() -> None:
        async def child(name: str) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append((name, clock.monotonic()))

        async with asyncio.TaskGroup() as group:
            group.create_task(child("a"))
            group.create_task(child("b"))

    peer = rig.connect()
    request_id = peer.start("group_of_two")
    await asyncio.sleep(1)
    peer.notify("notifications/cancelled", {"requestId": request_id})
    await asyncio.sleep(0.2)
    assert ended == []
    assert rig.slots_in_use == 1
    await asyncio.sleep(0.1)
    assert sorted(name for name, _ in ended) == ["a", "b"]
    assert [at for _, at in ended] == [pytest.approx(1.25, abs=1e-3)] * 2
    assert peer.received == []
    assert rig.records[0]["outcome"] == "aborted"
    rig.assert_all_ended()


@pytest.mark.rule("EMBED-02", "TIME-02", "TIME-05", "TIME-08")
def test_nothing_is_done_to_a_loop_from_another_thread() -> None:
    """Run in asyncio's debug mode, which refuses calls that are not thread-safe."""

    async def main() -> None:
        rig = ServerFixture(configured(timeout_ms=1, grace_ms=1))
        where = tools_for_a_loop(rig)
        started, gate = held_worker(rig)
        here = threading.get_ident()
        senders: set[int] = set()
        peer = ServerPeer()

        def send(line: bytes) -> None:
            senders.add(threading.get_ident())
            peer.receive(line)

        peer.connection = rig.server.connect(send)
        peer.shake_hands()

        @rig.server.tool
        async def waits(*, ctx: ToolContext) -> None:
            await ctx.abort_signal.wait()
            await asyncio.Event().wait()

        assert (await reply(peer, peer.start("waits")))["code"] == "TIMEOUT"
        assert (await reply(peer, peer.start("hold")))["code"] == "TIMEOUT"
        assert started.wait(PATIENCE)
        gate.set()
        peer.notify("notifications/cancelled", {"requestId": peer.start("waits")})
        await reply(peer, peer.start("worker"))
        await reply(peer, peer.start("task"))
        peer.start("waits")
        peer.connection.close()
        await until(lambda: not rig.server.runtime.engine.running, "no call runs")
        assert senders == {here}
        assert {name for name, _, _ in where} == {"worker", "task"}
        assert len(rig.records) == 6
        rig.assert_all_ended()

    asyncio.run(main(), debug=True)


# -- contexts --------------------------------------------------------------------------------------

mood: contextvars.ContextVar[str] = contextvars.ContextVar("mood", default="unset")


@pytest.mark.rule("CALL-12")
@pytest.mark.parametrize("way", ["task", "worker", "inline"])
@pytest.mark.parametrize("host", ["with a loop", "without a loop"])
def test_a_context_variable_set_in_one_call_is_not_seen_by_another(way: str, host: str) -> None:
    seen: list[str] = []

    def function(arguments: dict[str, Any], context: ToolContext) -> None:
        seen.append(mood.get())
        mood.set(arguments["mood"])
        seen.append(mood.get())

    async def coroutine(arguments: dict[str, Any], context: ToolContext) -> None:
        function(arguments, context)
        await asyncio.sleep(0)
        assert mood.get() == arguments["mood"]

    def register(rig: ServerFixture) -> None:
        rig.server.register(
            ToolDefinition("set", "", ANYTHING),
            coroutine if way == "task" else function,
            inline=way == "inline",
        )

    def with_a_loop() -> None:
        async def main() -> None:
            rig = ServerFixture(configured(slots=1))
            register(rig)
            peer = rig.connect()
            for number in range(3):
                await reply(peer, peer.start("set", {"mood": f"mood {number}"}))
            assert mood.get() == "unset"

        asyncio.run(main())

    def without_a_loop() -> None:
        rig = ServerFixture(configured(slots=1))
        register(rig)
        peer = connect(rig)
        for number in range(3):
            peer.wait_for(peer.start("set", {"mood": f"mood {number}"}))
            assert rig.server.runtime.engine.wait_idle(PATIENCE)

    with_a_loop() if host == "with a loop" else without_a_loop()
    assert seen == ["unset", "mood 0", "unset", "mood 1", "unset", "mood 2"]
    assert mood.get() == "unset"


# -- a host's loop that ends -----------------------------------------------------------------------


def held_worker(rig: ServerFixture) -> tuple[threading.Event, threading.Event]:
    """Make a tool `hold` that sets an event in its thread, and ends when another is set."""
    started, gate = threading.Event(), threading.Event()

    def hold(arguments: dict[str, Any], context: ToolContext) -> str:
        started.set()
        assert gate.wait(PATIENCE)
        return "held"

    rig.server.register(ToolDefinition("hold", "", ANYTHING), hold)
    return started, gate


@pytest.mark.rule("EMBED-02", "CALL-09", "CALL-13")
def test_a_worker_that_outlives_the_hosts_loop_still_gives_its_slot_back() -> None:
    rig = ServerFixture()
    started, gate = held_worker(rig)
    here = threading.get_ident()
    senders: list[int] = []

    async def main() -> None:
        peer = ServerPeer()
        peer.connection = rig.server.connect(lambda line: senders.append(threading.get_ident()))
        peer.shake_hands_quietly()
        peer.start("hold")
        assert started.wait(PATIENCE)

    asyncio.run(main())
    assert rig.slots_in_use == 1
    gate.set()
    assert rig.server.runtime.engine.wait_idle(PATIENCE)
    rig.assert_all_ended()
    assert len(rig.records) == 1
    # There is no loop any more to send on, and `send` is never called anywhere else.
    assert set(senders) == {here}


@pytest.mark.rule("EMBED-02", "CALL-09", "CALL-13")
def test_a_worker_that_returns_to_a_loop_which_never_runs_again_gives_its_slot_back() -> None:
    """A loop that was stopped takes a callback, and drops it when it is closed."""
    rig = ServerFixture()
    started, gate = held_worker(rig)
    loop = asyncio.new_event_loop()

    async def main() -> None:
        peer = ServerPeer()
        peer.connection = rig.server.connect(peer.receive)
        peer.shake_hands_quietly()
        peer.start("hold")
        assert started.wait(PATIENCE)

    returned = threading.Event()
    real = loop.call_soon_threadsafe

    def call_soon_threadsafe(*args: Any, **kwargs: Any) -> Any:
        handle = real(*args, **kwargs)
        returned.set()
        return handle

    loop.run_until_complete(main())
    with mock.patch.object(loop, "call_soon_threadsafe", call_soon_threadsafe):
        gate.set()
        assert returned.wait(PATIENCE)
    loop.close()
    assert rig.server.runtime.engine.wait_idle(PATIENCE)
    rig.assert_all_ended()
    assert len(rig.records) == 1


@pytest.mark.rule("CALL-09", "CALL-13", "CALL-15")
def test_what_asyncio_run_cancels_at_its_end_has_ended() -> None:
    rig = ServerFixture()
    entered: list[str] = []

    async def hold(arguments: dict[str, Any], context: ToolContext) -> None:
        entered.append(context.run_id)
        await asyncio.Event().wait()

    rig.server.register(ToolDefinition("hold", "", ANYTHING), hold)

    async def main() -> None:
        peer = rig.connect()
        peer.start("hold")
        await asyncio.sleep(0)
        peer.start("hold")  # where tasks start later, this one never gets to its first step

    asyncio.run(main())
    assert len(rig.records) == 2
    assert {record["outcome"] for record in rig.records} <= {"tool_error", "aborted"}
    rig.assert_all_ended()


@pytest.mark.rule("EMBED-02")
def test_one_server_serves_one_loop_after_another() -> None:
    rig = ServerFixture()
    tools_for_a_loop(rig)

    async def main() -> None:
        peer = rig.connect()
        for name in ("task", "worker", "inline"):
            assert await reply(peer, peer.start(name)) == name
        peer.connection.close()

    asyncio.run(main())
    asyncio.run(main())
    peer = connect(rig)
    peer.wait_for(peer.start("task"))
    rig.assert_all_ended()


# -- the delay of a host's loop --------------------------------------------------------------------


@pytest.mark.rule("RES-20")
async def test_the_delay_of_a_hosts_loop_is_measured_while_any_connection_is_open() -> None:
    rig = ServerFixture()
    first, second = rig.connect(), rig.connect()
    telemetry = rig.server.runtime.resources.get_telemetry
    second.connection.close()
    delays = []
    for _ in range(5):
        await asyncio.sleep(0.11)
        delays.append(telemetry().event_loop_delay_ms)
        if delays[-1] >= 50:
            break
        time.sleep(0.2)  # this is the load, not a wait
    assert delays[-1] >= 50
    first.connection.close()


@pytest.mark.rule("RES-20")
def test_a_hosts_loop_is_left_alone_when_no_connection_is_open() -> None:
    clock = ManualClock()
    loop = VirtualLoop(clock)

    async def main() -> None:
        rig = ServerFixture(clock=clock)
        peer = rig.connect()
        await asyncio.sleep(1)
        peer.connection.close()
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert [handle for handle in loop._scheduled if not handle.cancelled()] == []  # type: ignore[attr-defined]
    loop.close()


# -- the dispatcher alone --------------------------------------------------------------------------


class OwnHost:
    """A host that performs the effects itself: its calls run when it pleases, in no thread."""

    def __init__(self, rig: ServerFixture) -> None:
        self.runtime = rig.server.runtime
        self.session = self.runtime.open_session("sse")
        self.written: list[dict[str, Any]] = []
        self.logged: list[tuple[str, str]] = []
        self.to_run: list[Invocation] = []
        self.aborted: list[tuple[Invocation, str]] = []

    def take(self, message: dict[str, Any]) -> None:
        line = orjson.dumps({"jsonrpc": "2.0", **message})
        self.perform(self.runtime.dispatcher.dispatch(self.session, parse(line)))

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case Reply(line):
                    self.written.append(orjson.loads(line))
                case Log(level, message, _):
                    self.logged.append((level, message))
                case Abort(call, reason):
                    self.aborted.append((call, reason))
                case Invocation():
                    self.to_run.append(effect)

    def run(self, call: Invocation) -> None:
        context = ToolContext(
            call.run_id,
            call.correlation_id,
            foundation_rt.AbortSignal(),
            self.session.logger,
        )
        try:
            outcome: Returned | Raised = Returned(call.handler(call.arguments, context))
        except ToolError as error:
            outcome = Raised(error)
        self.perform(self.runtime.dispatcher.conclude(call, outcome, 2.5))


@pytest.mark.rule("EMBED-05")
def test_the_dispatcher_alone_serves_a_host_that_performs_effects_itself() -> None:
    rig = ServerFixture(configured(slots=2))

    def double(arguments: dict[str, Any], context: ToolContext) -> int:
        if arguments["n"] > 100:
            raise ToolError("INVALID_ARGUMENT", "too much")
        return 2 * int(arguments["n"])

    rig.server.register(ToolDefinition("double", "", ANYTHING), double)
    host = OwnHost(rig)
    host.take({"id": 0, "method": "initialize", "params": {"protocolVersion": "2024-11-05"}})
    host.take({"method": "notifications/initialized"})
    for request_id, number in ((1, 21), (2, 1000)):
        params = {"name": "double", "arguments": {"n": number}}
        host.take({"id": request_id, "method": "tools/call", "params": params})
    assert len(host.written) == 1
    assert rig.slots_in_use == 2
    for call in host.to_run:
        host.run(call)
    first, second = host.written[1:]
    assert first["result"] == {"content": [{"type": "text", "text": "42"}], "isError": False}
    assert second["result"]["isError"] is True
    assert host.logged.count(("info", COMPLETED)) == 2
    # A deadline, a cancellation and a goodbye, all decided here and performed by nobody.
    for request_id in (3, 4):
        params = {"name": "double", "arguments": {"n": 1}}
        host.take({"id": request_id, "method": "tools/call", "params": params})
    expired, left = host.to_run[2:]
    host.perform(host.runtime.dispatcher.expire(expired))
    assert orjson.loads(host.written[-1]["result"]["content"][0]["text"])["code"] == "TIMEOUT"
    host.perform(host.runtime.dispatcher.close(host.session))
    assert host.aborted == [(expired, "deadline"), (left, "disconnected")]
    for call in (expired, left):
        host.run(call)
    assert len(host.written) == 4
    assert rig.slots_in_use == 0
    assert threading.current_thread() is threading.main_thread()


HOST_WITHOUT_LOOP = """
import sys, threading
from foundation_rt import Server

server = Server("host")

@server.tool
def double(n: int) -> int:
    return 2 * n

done = threading.Event()
lines = []

def send(line):
    lines.append(line)
    if b'"id":2' in line:
        done.set()

connection = server.connect(send=send, transport_type="http")
connection.feed(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x"}}\\n')
connection.feed(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\\n')
connection.feed(b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"double",')
connection.feed(b'"arguments":{"n":21}}}\\n')
assert done.wait(20)
connection.close()
print(lines[-1].decode())
print("asyncio" in sys.modules)
"""


@pytest.mark.rule("EMBED-01", "EMBED-03", "PROC-08")
def test_a_host_without_coroutines_never_imports_asyncio_and_ends_by_itself() -> None:
    done = run_source(HOST_WITHOUT_LOOP)
    reply_line, has_asyncio = done.stdout.splitlines()
    assert orjson.loads(reply_line)["result"]["content"][0]["text"] == "42"
    assert has_asyncio == "False"
    records = [orjson.loads(line) for line in done.stderr.splitlines()]
    assert [each["outcome"] for each in records if each["message"] == COMPLETED] == ["success"]


# -- the loop these tests run in -------------------------------------------------------------------


@pytest.mark.rule("ID-07")
def test_time_in_a_virtual_loop_is_the_clocks() -> None:
    async def main(clock: ManualClock) -> tuple[float, float]:
        await asyncio.sleep(3600)
        return clock.monotonic(), asyncio.get_running_loop().time()

    main_: Callable[[ManualClock], Coroutine[Any, Any, tuple[float, float]]] = main
    assert run_virtual(main_) == (3600.0, 3600.0)
