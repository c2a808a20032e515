"""Registering agents, and messages to them: order, ends, refusals, states."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from functools import partial
from typing import Any

import pytest

from foundation_rt.agents.errors import (
    AgentCycleError,
    AgentNotFoundError,
    AgentQueueFullError,
    AgentUnregisteredError,
)
from foundation_rt.agents.local import AgentCoordinator
from foundation_rt.agents.messages import AgentContext, AgentMessage
from foundation_rt.base.abort import AbortSignal
from foundation_rt.base.clock import ManualClock
from foundation_rt.errors import AbortError, RegistrationError, UsageError
from tests.agents.support import AgentHarness
from tests.lab.clock.virtual_loop import PATIENCE
from tests.lab.servers.core import correlation_id
from tests.lab.waiting import settle

HELLO = AgentMessage("hello")


@pytest.fixture
def harness(clock: ManualClock, options: dict[str, Any]) -> AgentHarness:
    """Return a harness of agents in virtual time."""
    return AgentHarness(**options)


async def nothing(message: AgentMessage, context: AgentContext) -> None:
    """Handle a message at once."""


# -- registering


@pytest.mark.rule("AGENT-01")
def test_agents_are_registered_listed_and_unregistered() -> None:
    coordinator = AgentCoordinator()
    for agent_id in ("b", "a", "Z", "é", "with space"):
        coordinator.register_agent(agent_id, nothing)
    assert coordinator.agent_ids() == ["Z", "a", "b", "with space", "é"]
    assert coordinator.unregister_agent("b") is True
    assert coordinator.unregister_agent("b") is False
    assert coordinator.agent_ids() == ["Z", "a", "with space", "é"]


@pytest.mark.rule("AGENT-01")
@pytest.mark.parametrize(
    ("agent_id", "message"),
    [
        ("", "must be a string of 1 to 256 characters, not ''"),
        ("x" * 257, "must be a string of 1 to 256 characters"),
        (5, "must be a string of 1 to 256 characters, not 5"),
        (None, "not None"),
        (" a", "must be printable, without white space at its ends"),
        ("a\u00a0", "must be printable"),
        ("a\nb", "must be printable"),
        ("\ud800", "must be printable"),
    ],
)
def test_invalid_agent_ids_are_refused(agent_id: Any, message: str) -> None:
    coordinator = AgentCoordinator()
    with pytest.raises(RegistrationError, match=message):
        coordinator.register_agent(agent_id, nothing)
    assert coordinator.agent_ids() == []


class Instance:
    async def __call__(self, message: AgentMessage, context: AgentContext) -> str:
        return "instance"

    async def method(self, message: AgentMessage, context: AgentContext) -> str:
        return "method"


async def with_name(name: str, message: AgentMessage, context: AgentContext) -> str:
    return name


@pytest.mark.rule("AGENT-01")
@pytest.mark.parametrize(
    ("handler", "response"),
    [(Instance(), "instance"), (Instance().method, "method"), (partial(with_name, "p"), "p")],
)
def test_every_async_def_callable_is_a_handler(handler: Any, response: str) -> None:
    coordinator = AgentCoordinator()
    coordinator.register_agent("a", handler)
    assert asyncio.run(coordinator.send_message("a", HELLO)) == response


async def generator(message: AgentMessage, context: AgentContext) -> Any:
    yield 1


@pytest.mark.rule("AGENT-01")
@pytest.mark.parametrize("handler", [lambda message, context: None, 5, None, generator])
def test_other_handler_is_refused_with_advice(handler: Any) -> None:
    coordinator = AgentCoordinator()
    with pytest.raises(RegistrationError, match=r"agent 'a': the handler must be async def") as no:
        coordinator.register_agent("a", handler)
    assert "asyncio.to_thread" in str(no.value)


@pytest.mark.rule("AGENT-01")
async def test_duplicate_agent_id_is_refused_and_first_agent_stays(harness: AgentHarness) -> None:
    harness.add("a")
    with pytest.raises(RegistrationError, match="agent 'a' is already registered: choose"):
        harness.coordinator.register_agent("a", nothing)
    harness.open(1)
    assert await harness.send("a", 1) == "re 1"


# -- order


@pytest.mark.rule("AGENT-02")
async def test_new_message_never_overtakes_waiting_one(harness: AgentHarness) -> None:
    """The end of one and the begin of the next are a turn of the loop apart."""
    harness.add("a")
    second = harness.send("a", 2)
    harness.open(2, 3)
    await harness.send_first("a", 1)
    await harness.coordinator.send_message("a", AgentMessage("3"))
    await second
    assert [line for line in harness.log if "begin" in line] == [
        "begin a 1",
        "begin a 2",
        "begin a 3",
    ]


@pytest.mark.rule("AGENT-02")
async def test_different_agents_handle_messages_concurrently(harness: AgentHarness) -> None:
    harness.add("a", "b")
    sent = [harness.send("a", 1), harness.send("b", 2), harness.send("a", 3)]
    await settle()
    assert harness.take_log() == ["begin a 1", "begin b 2"]
    harness.open(2)
    assert await sent[1] == "re 2"
    harness.open(1, 3)
    assert await asyncio.gather(sent[0], sent[2]) == ["re 1", "re 3"]


# -- what comes back


@pytest.mark.rule("AGENT-03")
async def test_message_is_handled_unchanged_in_task_of_sender(harness: AgentHarness) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")
    seen: list[Any] = []

    async def handler(message: AgentMessage, context: AgentContext) -> Any:
        seen.extend([message, asyncio.current_task(), variable.get()])
        return message.payload

    harness.coordinator.register_agent("a", handler)
    variable.set("of the sender")
    message = AgentMessage("x", object(), "me")
    assert await harness.coordinator.send_message("a", message) is message.payload
    assert seen[0] is message
    assert seen[1:] == [asyncio.current_task(), "of the sender"]


@pytest.mark.rule("AGENT-03")
@pytest.mark.parametrize("error", [LookupError("no"), SystemExit(3), BaseException("b")])
async def test_failed_handler_fails_only_its_message(
    error: BaseException, harness: AgentHarness
) -> None:
    async def handler(message: AgentMessage, context: AgentContext) -> str:
        await asyncio.sleep(0)
        if message.type == "bad":
            raise error
        return "fine"

    async def send(harness: AgentHarness, kind: str) -> Any:
        try:
            return await harness.coordinator.send_message("a", AgentMessage(kind))
        except BaseException as caught:
            return caught

    harness.coordinator.register_agent("a", handler)
    kinds = ("good", "bad", "good")
    assert await asyncio.gather(*(send(harness, kind) for kind in kinds)) == [
        "fine",
        error,
        "fine",
    ]


@pytest.mark.rule("AGENT-02", "AGENT-03")
@pytest.mark.parametrize("doomed", [[1], [1, 2], [2, 1], [1, 2, 3]])
async def test_sender_cancelled_as_it_gets_mailbox_hands_it_on(
    doomed: list[int], harness: AgentHarness
) -> None:
    harness.add("a")
    sent = {number: harness.send("a", number) for number in range(1, 5)}
    harness.open(*sent)
    await harness.send_first("a", 0)
    for number in doomed:
        sent[number].cancel()
    await asyncio.wait(sent.values())
    begun = [line for line in harness.log if line.startswith("begin")]
    assert begun == [f"begin a {number}" for number in range(5) if number not in doomed]


# -- context


@pytest.mark.rule("AGENT-04")
async def test_handler_gets_options_of_sender(harness: AgentHarness) -> None:
    harness.add("a")
    harness.open(1)
    signal = AbortSignal()
    logger = harness.logger.child({"runId": "r", "correlationId": "old"})
    options = {"abort_signal": signal, "correlation_id": "c", "logger": logger}
    await harness.send("a", 1, **options)
    [context] = harness.contexts
    assert (context.agent_id, context.correlation_id) == ("a", "c")
    assert context.abort_signal is signal
    context.logger.info("hello")
    [line] = harness.sink.lines
    assert (line["agentId"], line["correlationId"], line["runId"]) == ("a", "c", "r")


@pytest.mark.rule("AGENT-24")
async def test_defaults_are_new_id_and_signal_that_never_fires(harness: AgentHarness) -> None:
    harness.add("a")
    harness.open(1)
    await harness.send("a", 1)
    await harness.send("a", 1)
    one, other = harness.contexts
    assert [each.correlation_id for each in (one, other)] == [
        correlation_id(1),
        correlation_id(2),
    ]
    assert not one.abort_signal.aborted
    assert one.abort_signal is not other.abort_signal
    assert one.state is other.state
    one.logger.info("hello")
    assert "runId" not in harness.sink.lines[0]


@pytest.mark.rule("AGENT-24")
async def test_message_of_handler_inherits_its_chain(harness: AgentHarness) -> None:
    async def relay(message: AgentMessage, context: AgentContext) -> None:
        await office_of[0].coordinator.send_message("a", AgentMessage("1"), **message.payload)

    office_of: list[AgentHarness] = []

    office_of.append(harness)
    harness.add("a")
    harness.coordinator.register_agent("relay", relay)
    harness.open(1)
    signal = AbortSignal()
    logger = harness.logger.child({"runId": "r"})
    chain = {"abort_signal": signal, "correlation_id": "c", "logger": logger}
    own: dict[str, Any] = {"abort_signal": AbortSignal(), "correlation_id": "d"}
    for payload in ({}, own):
        message = AgentMessage("go", payload)
        await harness.coordinator.send_message("relay", message, **chain)
    inherited, told = harness.contexts
    assert inherited.abort_signal is signal
    assert inherited.correlation_id == "c"
    inherited.logger.info("hello")
    assert harness.sink.lines[0].items() >= {"agentId": "a", "runId": "r"}.items()
    assert told.abort_signal is own["abort_signal"]
    assert told.correlation_id == "d"


@pytest.mark.rule("AGENT-04")
def test_a_coordinator_of_no_server_logs_to_standard_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def handler(message: AgentMessage, context: AgentContext) -> None:
        context.logger.warn("hello")
        context.base_logger.sink.close(PATIENCE)  # type: ignore[attr-defined]

    coordinator = AgentCoordinator()
    coordinator.register_agent("a", handler)
    asyncio.run(coordinator.send_message("a", HELLO))
    assert '"agentId":"a"' in capfd.readouterr().err


# -- refusals


@pytest.mark.rule("AGENT-05")
async def test_message_to_unknown_agent_is_refused_at_once(harness: AgentHarness) -> None:
    sending = harness.coordinator.send_message("a", HELLO)
    with pytest.raises(AgentNotFoundError, match="There is no agent 'a'"):
        sending.send(None)


@pytest.mark.rule("AGENT-06")
@pytest.mark.options(max_queue=2)
async def test_message_beyond_queue_limit_is_refused_and_others_stay(harness: AgentHarness) -> None:
    harness.add("a", "b")
    sent = [harness.send("a", number) for number in range(3)]
    await settle()
    with pytest.raises(AgentQueueFullError) as full:
        await harness.coordinator.send_message("a", HELLO)
    assert full.value.details == {
        "reason": "agent_queue_full",
        "agentId": "a",
        "maxQueue": 2,
    }
    harness.open(*range(5))
    assert await harness.send("b", 4) == "re 4"
    assert await asyncio.gather(*sent) == ["re 0", "re 1", "re 2"]
    assert await harness.send("a", 3) == "re 3"


@pytest.mark.rule("AGENT-06")
@pytest.mark.options(max_queue=1)
async def test_withdrawn_message_frees_its_place(harness: AgentHarness) -> None:
    harness.add("a")
    sent = [harness.send("a", number) for number in range(2)]
    await settle()
    sent[1].cancel()
    await settle()
    third = harness.send("a", 2)
    harness.open(0, 2)
    assert await third == "re 2"


# -- unregistering


@pytest.mark.rule("AGENT-07")
async def test_unregistering_fails_waiting_messages_and_not_running_one(
    harness: AgentHarness,
) -> None:
    harness.add("a")
    sent = [harness.send("a", number) for number in range(3)]
    await settle()
    assert harness.coordinator.unregister_agent("a")
    await settle()
    for task in sent[1:]:
        with pytest.raises(AgentUnregisteredError, match="Agent 'a' was unregistered"):
            task.result()
    with pytest.raises(AgentNotFoundError):
        await harness.coordinator.send_message("a", HELLO)
    harness.open(0)
    assert await sent[0] == "re 0"
    assert harness.log == ["begin a 0", "end a 0"]


@pytest.mark.rule("AGENT-07")
async def test_unregistering_fails_message_that_has_not_begun(harness: AgentHarness) -> None:
    harness.add("a")
    sent = [harness.send("a", number) for number in (1, 2)]
    await harness.send_first("a", 0)
    harness.coordinator.unregister_agent("a")
    for task in sent:
        with pytest.raises(AgentUnregisteredError):
            await task
    assert harness.log == ["begin a 0", "end a 0"]


@pytest.mark.rule("AGENT-07")
async def test_agent_can_unregister_itself(harness: AgentHarness) -> None:
    async def leave(message: AgentMessage, context: AgentContext) -> bool:
        return harness.coordinator.unregister_agent(context.agent_id)

    harness.coordinator.register_agent("a", leave)
    assert await harness.send("a", 1) is True
    assert harness.coordinator.agent_ids() == []


@pytest.mark.rule("AGENT-08")
async def test_agent_registered_again_begins_after_old_handler_ended(harness: AgentHarness) -> None:
    harness.add("a")
    old = harness.send("a", "old")
    await settle()
    harness.contexts[0].state["who"] = "old"
    harness.coordinator.unregister_agent("a")
    gc.collect()
    harness.add("a")
    new = harness.send("a", "new")
    await settle()
    assert harness.take_log() == ["begin a old"]
    assert harness.coordinator.get_agent_state("a") == {}
    harness.open("old", "new")
    assert await asyncio.gather(old, new) == ["re old", "re new"]
    assert harness.take_log() == ["end a old", "begin a new", "end a new"]
    assert harness.contexts[1].state == {}


@pytest.mark.rule("AGENT-08")
async def test_message_for_old_agent_is_not_handed_to_new_one(harness: AgentHarness) -> None:
    harness.add("a")
    second = harness.send("a", 2)
    await harness.send_first("a", 1)
    harness.coordinator.unregister_agent("a")
    harness.add("a")
    third = harness.send("a", 3)
    harness.open(3)
    with pytest.raises(AgentUnregisteredError):
        await second
    assert await third == "re 3"


@pytest.mark.rule("AGENT-08")
async def test_unregistered_agent_leaves_nothing_behind(harness: AgentHarness) -> None:
    harness.open(1)
    for number in range(100):
        harness.add(f"a{number}")
        await harness.send(f"a{number}", 1)
        harness.coordinator.unregister_agent(f"a{number}")
    harness.contexts.clear()
    gc.collect()
    assert len(harness.coordinator._mailboxes) == 0


# -- abort


@pytest.mark.rule("AGENT-11")
@pytest.mark.parametrize("from_thread", [False, True])
async def test_waiting_message_is_withdrawn_when_signal_fires(
    from_thread: bool, harness: AgentHarness
) -> None:
    harness.add("a")
    signal = AbortSignal()
    running = harness.send("a", 1, abort_signal=signal)
    waiting = harness.send("a", 2, abort_signal=signal)
    third = harness.send("a", 3)
    await settle()
    if from_thread:
        await asyncio.to_thread(signal.fire, "deadline")
    else:
        signal.fire("deadline")
    with pytest.raises(AbortError, match="deadline"):
        await waiting
    assert harness.contexts[0].abort_signal.reason == "deadline"
    assert harness.take_log() == ["begin a 1"]
    harness.open(1, 3)
    assert await asyncio.gather(running, third) == ["re 1", "re 3"]


@pytest.mark.rule("AGENT-11")
@pytest.mark.parametrize("busy", [False, True])
async def test_message_with_fired_signal_is_not_handled(busy: bool, harness: AgentHarness) -> None:
    harness.add("a")
    if busy:
        harness.send("a", 1)
        await settle()
    signal = AbortSignal()
    signal.fire("cancelled")
    with pytest.raises(AbortError, match="cancelled"):
        await harness.coordinator.send_message("a", HELLO, abort_signal=signal)
    harness.open(1, 2)
    assert await harness.send("a", 2) == "re 2"


@pytest.mark.rule("AGENT-11")
async def test_signal_that_fires_as_mailbox_is_handed_over_hands_it_on(
    harness: AgentHarness,
) -> None:
    harness.add("a")
    signal = AbortSignal()
    second = harness.send("a", 2, abort_signal=signal)
    third = harness.send("a", 3)
    harness.open(2, 3)
    await harness.send_first("a", 1)
    signal.fire("disconnected")
    with pytest.raises(AbortError):
        await second
    assert await third == "re 3"
    assert "begin a 2" not in harness.log


# -- cycles


def relaying(coordinator: AgentCoordinator) -> Any:
    """Return a handler that relays a route: ["b", "c"] goes to b, and from there to c."""

    async def relay(message: AgentMessage, context: AgentContext) -> Any:
        await asyncio.sleep(0)
        if not message.payload:
            return "arrived"
        target, *rest = message.payload
        return await coordinator.send_message(target, AgentMessage("go", rest))

    return relay


@pytest.mark.rule("AGENT-09", "AGENT-25")
@pytest.mark.parametrize(
    ("route", "cycle"),
    [("aa", "aa"), ("aba", "aba"), ("abca", "abca"), ("abcb", "bcb"), ("abb", "bb")],
)
async def test_cyclic_chain_is_refused_with_its_cycle(
    route: str, cycle: str, harness: AgentHarness
) -> None:
    for agent_id in "abc":
        harness.coordinator.register_agent(agent_id, relaying(harness.coordinator))
    first, *rest = route
    sending = harness.coordinator.send_message(first, AgentMessage("go", rest))
    with pytest.raises(AgentCycleError) as refused:
        await sending
    assert refused.value.details == {"reason": "agent_cycle", "cycle": list(cycle)}
    # Nothing is left of it.
    arrived = await harness.coordinator.send_message("a", AgentMessage("go", ["b", "c"]))
    assert arrived == "arrived"


@pytest.mark.rule("AGENT-09", "AGENT-25")
async def test_cycle_through_two_coordinators_is_refused(harness: AgentHarness) -> None:
    other = AgentHarness()
    harness.coordinator.register_agent("a", relaying(other.coordinator))
    other.coordinator.register_agent("b", relaying(harness.coordinator))
    with pytest.raises(AgentCycleError):
        await harness.coordinator.send_message("a", AgentMessage("go", ["b", "a"]))


@pytest.mark.rule("AGENT-27")
async def test_task_of_running_handler_sends_as_that_handler(harness: AgentHarness) -> None:
    coordinator = harness.coordinator
    tasks: dict[str, asyncio.Task[Any]] = {}
    go_on = asyncio.Event()

    async def later() -> Any:
        await go_on.wait()
        return await coordinator.send_message("a", AgentMessage("again"))

    async def handler(message: AgentMessage, context: AgentContext) -> None:
        if message.type == "hello":
            at_once = coordinator.send_message("a", AgentMessage("again"))
            tasks["at once"] = asyncio.create_task(at_once)
            tasks["later"] = asyncio.create_task(later())
            apart = coordinator.send_message("a", AgentMessage("again"))
            tasks["apart"] = asyncio.create_task(apart, context=contextvars.Context())
            await settle()

    coordinator.register_agent("a", handler)
    await coordinator.send_message("a", HELLO)
    go_on.set()
    await asyncio.wait(tasks.values())
    assert isinstance(tasks["at once"].exception(), AgentCycleError)
    assert tasks["later"].exception() is None
    assert tasks["apart"].exception() is None


@pytest.mark.rule("AGENT-27")
async def test_task_left_by_ended_handler_blocks_no_sender(harness: AgentHarness) -> None:
    coordinator = harness.coordinator
    left: list[asyncio.Task[Any]] = []

    async def leave(message: AgentMessage, context: AgentContext) -> None:
        sending = coordinator.send_message("b", AgentMessage("go", ["a"]))
        left.append(asyncio.create_task(sending))
        await asyncio.sleep(0)

    harness.add("c")
    coordinator.register_agent("a", leave)
    coordinator.register_agent("b", relaying(coordinator))
    await coordinator.send_message("a", HELLO)
    assert await left[0] is None


# -- the one loop


@pytest.mark.rule("AGENT-10")
def test_a_coordinator_outlives_its_loop_when_nothing_is_under_way() -> None:
    harness = AgentHarness()
    harness.add("a")

    async def once() -> None:
        harness.open(1)
        assert await harness.send("a", 1) == "re 1"
        harness._gates.clear()

    asyncio.run(once())
    asyncio.run(once())


def run_elsewhere(function: Any) -> Any:
    """Run `function()` in a thread of its own; return what it returns, or raises."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(function())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    [result] = results
    return result


@pytest.mark.rule("AGENT-10")
async def test_call_from_other_loop_is_refused_while_loop_is_open(harness: AgentHarness) -> None:
    harness.add("a")
    harness.open(1)
    await harness.send("a", 1)
    coordinator = harness.coordinator
    for call in (
        lambda: asyncio.run(coordinator.send_message("a", HELLO)),
        lambda: coordinator.register_agent("b", nothing),
        lambda: coordinator.unregister_agent("a"),
    ):
        refused = run_elsewhere(call)
        assert isinstance(refused, UsageError)
        assert "asyncio.run_coroutine_threadsafe" in str(refused)
    assert run_elsewhere(coordinator.agent_ids) == ["a"]
    assert run_elsewhere(partial(coordinator.get_agent_state, "a")) == {}


@pytest.mark.rule("AGENT-10")
def test_message_left_on_closed_loop_is_reported_and_harmless() -> None:
    harness = AgentHarness()
    harness.add("a")
    loop = asyncio.new_event_loop()
    coroutines = [harness.coordinator.send_message("a", AgentMessage(kind)) for kind in "xyz"]
    tasks = [loop.create_task(each) for each in coroutines]
    loop.run_until_complete(settle())
    loop.close()
    with pytest.raises(UsageError, match="left unfinished on an event loop that was closed"):
        asyncio.run(harness.coordinator.send_message("a", HELLO))
    assert harness.coordinator.unregister_agent("a")
    for task, coroutine in zip(tasks, coroutines, strict=True):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine.close()
    assert harness.log == ["begin a x", "end a x"]


# -- run_in_turn


@pytest.mark.rule("AGENT-12")
async def test_run_in_turn_works_before_and_after_handler(harness: AgentHarness) -> None:
    harness.add("a")

    async def work(handle: Any) -> tuple[Any, Any]:
        harness.log.append("claim")
        await settle()
        first = await handle(AgentMessage("1", "one"))
        second = await handle(AgentMessage("2", "two"))
        await settle()
        harness.log.append("record")
        return first, second

    harness.open(1, 2, 3)
    working = asyncio.create_task(harness.coordinator.run_in_turn("a", work))
    await asyncio.sleep(0)
    third = harness.send("a", 3)
    assert await working == ("one", "two")
    await third
    assert harness.log == [
        "claim",
        "begin a 1",
        "end a 1",
        "begin a 2",
        "end a 2",
        "record",
        "begin a 3",
        "end a 3",
    ]


@pytest.mark.rule("AGENT-12")
async def test_failed_work_ends_turn_without_calling_handler(harness: AgentHarness) -> None:
    harness.add("a")

    async def work(handle: Any) -> None:
        raise LookupError("no claim")

    with pytest.raises(LookupError, match="no claim"):
        await harness.coordinator.run_in_turn("a", work)
    assert harness.log == []
    harness.open(1)
    assert await harness.send("a", 1) == "re 1"


# -- state


async def keep(message: AgentMessage, context: AgentContext) -> None:
    """Perform the message on the state: "set", "append", "fail" or "look"."""
    if message.type == "set":
        context.state.update(message.payload)
    elif message.type == "append":
        context.state["list"].append(1)
    elif message.type == "fail":
        context.state["failed"] = True
        raise LookupError


@pytest.mark.rule("AGENT-13", "AGENT-29")
async def test_hook_gets_snapshot_after_each_message_that_changed_state(
    harness: AgentHarness,
) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    coordinator = harness.coordinator
    coordinator.on_state_change = lambda agent_id, state: told.append((agent_id, dict(state)))
    coordinator.register_agent("a", keep)
    assert coordinator.get_agent_state("a") == {}
    assert coordinator.get_agent_state("b") is None

    async def send(kind: str, payload: Any = None) -> None:
        await coordinator.send_message("a", AgentMessage(kind, payload))

    await send("set", {"list": []})
    assert told == [("a", {"list": []})]
    await send("look")
    await send("append")
    assert len(told) == 1
    with pytest.raises(LookupError):
        await send("fail")
    assert told[1:] == [("a", {"list": [1], "failed": True})]
    snapshot = coordinator.get_agent_state("a")
    assert snapshot == {"list": [1], "failed": True}
    assert snapshot is not None
    snapshot.clear()
    assert coordinator.get_agent_state("a") == {"list": [1], "failed": True}


@pytest.mark.rule("AGENT-13")
async def test_the_hook_is_called_before_the_next_message_begins(harness: AgentHarness) -> None:
    async def handler(message: AgentMessage, context: AgentContext) -> None:
        harness.log.append(f"begin {message.type}")
        await asyncio.sleep(0)
        context.state["last"] = message.type

    harness.coordinator.on_state_change = lambda _, state: harness.log.append(f"{state}")
    harness.coordinator.register_agent("a", handler)
    await asyncio.gather(harness.send("a", 1), harness.send("a", 2))
    assert harness.log == ["begin 1", "{'last': '1'}", "begin 2", "{'last': '2'}"]


@pytest.mark.rule("AGENT-28")
async def test_a_hook_that_raises_is_logged_and_fails_nothing(harness: AgentHarness) -> None:
    def hook(agent_id: str, state: Any) -> None:
        raise LookupError("in the hook")

    harness.coordinator.on_state_change = hook
    harness.coordinator.register_agent("a", keep)
    message = AgentMessage("set", {"x": 1})
    await harness.coordinator.send_message("a", message, correlation_id="c")
    [line] = harness.sink.lines
    assert line["level"] == "error"
    assert line["message"] == "on_state_change failed"
    assert (line["agentId"], line["correlationId"]) == ("a", "c")
    assert line["error"]["message"] == "in the hook"


@pytest.mark.rule("AGENT-13")
async def test_hook_is_not_called_for_unregistered_agent(harness: AgentHarness) -> None:
    told: list[str] = []
    coordinator = harness.coordinator
    coordinator.on_state_change = lambda agent_id, state: told.append(agent_id)

    async def leave(message: AgentMessage, context: AgentContext) -> None:
        context.state["x"] = 1
        coordinator.unregister_agent("a")
        coordinator.register_agent("a", nothing)

    coordinator.register_agent("a", leave)
    await harness.send("a", 1)
    assert told == []
    assert coordinator.get_agent_state("a") == {}


@pytest.mark.rule("AGENT-28")
@pytest.mark.parametrize("hook", [nothing, 5])
def test_async_hook_is_refused(hook: Any) -> None:
    coordinator = AgentCoordinator()
    with pytest.raises(UsageError, match="on_state_change must be a function"):
        coordinator.on_state_change = hook
    with pytest.raises(UsageError):
        AgentCoordinator(on_state_change=hook)
    coordinator.on_state_change = None
