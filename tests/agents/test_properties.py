"""What holds of agents whatever is sent when: one at a time, in order, and never for ever."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from attrs import define, field, frozen
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foundation_rt.agents.errors import AgentCycleError
from foundation_rt.agents.local import AgentCoordinator
from foundation_rt.agents.messages import AgentContext, AgentMessage
from tests.lab.clock.virtual_loop import run_virtual
from tests.lab.sizes import examples

AGENTS = "abcd"


# -- agent serialism


@frozen
class Order:
    """One message of a history; times in seconds."""

    agent_id: str
    sent_at: int
    takes: int
    raises: bool
    cancelled_at: int | None


ORDERS = st.builds(
    Order,
    st.sampled_from("ab"),
    sent_at=st.integers(0, 6),
    takes=st.integers(0, 4),
    raises=st.booleans(),
    cancelled_at=st.none() | st.integers(0, 12),
)


@define
class History:
    """What happened to messages, by their numbers."""

    coordinator: AgentCoordinator = field(factory=AgentCoordinator)
    running: dict[str, int] = field(factory=dict)
    sent: dict[str, list[int]] = field(factory=lambda: defaultdict(list))
    begun: dict[str, list[int]] = field(factory=lambda: defaultdict(list))
    ended: dict[str, int] = field(factory=lambda: defaultdict(int))

    async def handle(self, message: AgentMessage, context: AgentContext) -> int:
        number, order = message.payload
        assert context.agent_id not in self.running
        self.running[context.agent_id] = number
        self.begun[context.agent_id].append(number)
        try:
            handled = context.state.get("handled", 0)
            await asyncio.sleep(order.takes)
            context.state["handled"] = handled + 1
            self.ended[context.agent_id] += 1
            if order.raises:
                raise LookupError(number)
            return number
        finally:
            try:
                await asyncio.sleep(order.takes / 2)  # and nobody else meanwhile
            finally:
                del self.running[context.agent_id]

    async def post(self, number: int, order: Order) -> int:
        await asyncio.sleep(order.sent_at)
        self.sent[order.agent_id].append(number)
        message = AgentMessage("order", (number, order))
        return await self.coordinator.send_message(order.agent_id, message)


@pytest.mark.rule("AGENT-02", "AGENT-03", "AGENT-13")
@settings(max_examples=examples(200))
@given(st.lists(ORDERS, max_size=12))
def test_agent_serialism(orders: list[Order]) -> None:
    """Property 10: per agent, messages are handled one after the other, in order."""

    async def main(clock: Any) -> None:
        history = History()
        for agent_id in "ab":
            history.coordinator.register_agent(agent_id, history.handle)
        tasks = [asyncio.create_task(history.post(*each)) for each in enumerate(orders)]
        loop = asyncio.get_running_loop()
        for task, order in zip(tasks, orders, strict=True):
            if order.cancelled_at is not None:
                loop.call_later(order.cancelled_at, task.cancel)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for agent_id in "ab":
            begun = history.begun[agent_id]
            assert begun == [each for each in history.sent[agent_id] if each in begun]
            assert len(set(begun)) == len(begun)
            state = history.coordinator.get_agent_state(agent_id)
            assert (state or {}).get("handled", 0) == history.ended[agent_id]
        for number, (order, result) in enumerate(zip(orders, results, strict=True)):
            if isinstance(result, asyncio.CancelledError):
                assert order.cancelled_at is not None
            elif order.raises:
                assert isinstance(result, LookupError)
            else:
                assert result == number
        assert history.running == {}

    run_virtual(main)


# -- no waiting in a circle

# A script is what the handler of a message does, step by step: it pauses for some seconds, or sends
# messages with scripts of their own, all those of a step at once.
LEAVES = st.lists(st.integers(0, 2), max_size=2)
SCRIPTS = st.recursive(
    LEAVES,
    lambda scripts: st.lists(
        st.integers(0, 2)
        | st.lists(st.tuples(st.sampled_from(AGENTS), scripts), min_size=1, max_size=2),
        max_size=3,
    ),
    max_leaves=12,
)


@define
class Theatre:
    """Agents that run scripts, and a record of who really waits for whom."""

    coordinator: AgentCoordinator = field(factory=AgentCoordinator)
    playing: set[str] = field(factory=set)
    awaited: dict[str, list[str]] = field(factory=lambda: defaultdict(list))
    sent: int = 0
    played: int = 0
    refused: int = 0

    async def handle(self, message: AgentMessage, context: AgentContext) -> None:
        me = context.agent_id
        assert me not in self.playing
        self.playing.add(me)
        for step in message.payload:
            if isinstance(step, int):
                await asyncio.sleep(step)
            else:
                await asyncio.gather(*(self.send(me, target, script) for target, script in step))
        self.playing.discard(me)
        self.played += 1

    async def send_later(self, me: str, seconds: int, target: str, script: Any) -> None:
        await asyncio.sleep(seconds)
        await self.send(me, target, script)

    async def send(self, me: str, target: str, script: Any) -> None:
        self.sent += 1
        self.awaited[me].append(target)
        try:
            await self.coordinator.send_message(target, AgentMessage("run", script))
        except AgentCycleError as error:
            self.refused += 1
            self.check(error)
        finally:
            self.awaited[me].remove(target)

    def check(self, error: AgentCycleError) -> None:
        """Each in the cycle handles a message, and waits for the next: it could never end."""
        assert error.details is not None
        cycle = error.details["cycle"]
        assert cycle[0] == cycle[-1]
        assert len(set(cycle[1:])) == len(cycle) - 1
        for one, following in pairwise(cycle):
            assert one in self.playing
            assert following in self.awaited[one]


@pytest.mark.rule("AGENT-09", "AGENT-26")
@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(AGENTS), SCRIPTS), max_size=5))
@example([(0, "a", [[("b", [])], 2]), (1, "b", [[("a", [])]])])
def test_random_messages_never_hang_and_only_cycles_are_refused(
    messages: list[tuple[int, str, Any]],
) -> None:
    async def main(clock: Any) -> None:
        theatre = Theatre()
        for agent_id in AGENTS:
            theatre.coordinator.register_agent(agent_id, theatre.handle)
        sends = (theatre.send_later(f"outside {n}", *each) for n, each in enumerate(messages))
        await asyncio.gather(*sends)
        assert theatre.played + theatre.refused == theatre.sent
        assert theatre.playing == set()

    run_virtual(main)
