"""The client with a server that misbehaves, in random histories.

The server runs a script (tests/lab/peers/script.py) behind a transport that can be
lost, become congested and refuse to open. Time moves only by a rule of the machine. Every call
carries the acts that answer it; the script has the acts of all else: the probe, the handshake, the
lists.  The invariants:  * No call outlasts its deadline. * A call ends with its own response (each
carries a nonce), with an `MCPError`, or cancelled. * An error never says that a call did not run if
the server has received the call. * The server receives no call twice that must not run twice. *
There is one transport at a time; after the end there is no task, no timer and no transport.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from foundation_rt.base.clock import ManualClock
from foundation_rt.client.client import Client
from foundation_rt.client.errors import MCPError
from foundation_rt.client.handlers.client_handlers import ClientHandlers
from foundation_rt.client.handlers.elicitation import ElicitationRequest
from foundation_rt.client.options import ClientOptions
from foundation_rt.client.resilience.circuit_breaker import BreakerSettings
from foundation_rt.client.results.results import CallResult
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.clock.virtual_loop import VirtualLoop
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import MemoryHarness
from tests.lab.peers.script_strategies import (
    acts_at_a_point,
    acts_of_a_call,
    asks_again,
    in_memory,
    may_refuse,
)
from tests.lab.sizes import examples

CONNECT_TIMEOUT = 6.0
HANDLER_TIMEOUT = 3.0
LONGEST_PAUSE = 5.0
"""Seconds that the client waits at most before it tries something again."""

TURNS = 60
"""More turns of the loop than anything takes that waits for no time."""

POINTS = [
    *("server/discover", "initialize", "notifications/initialized", "tools/list"),
    *("resources/list", "resources/read", "resources/subscribe", "subscriptions/listen"),
    *("ping", "start"),
]
turns = st.sampled_from([TURNS, 3, 0])
timeouts = st.sampled_from([0.5, 2.0, 10.0, 40.0])


@define(eq=False)
class OpenRequest:
    """Something that was asked of the client.

    Attributes:
        until: when it has to have ended.
        task: what waits for it.
        nonce: of a call.
        acts: what the server does about it.
        may_repeat: whether the server may get it twice.
        is_cancelled: whether the one who asked has gone.
    """

    until: float
    task: asyncio.Task[Any]
    nonce: str | None = None
    acts: list[Act] = field(factory=list)
    may_repeat: bool = True
    is_cancelled: bool = False


class ClientMachine(RuleBasedStateMachine):
    """Drives a client; see the module."""

    @initialize(
        revision=st.sampled_from(sorted(REVISIONS)),
        has_exchanges=st.booleans(),
        knows=st.booleans(),
        tool_breakers=st.booleans(),
        is_asked=st.booleans(),
        timeout=st.sampled_from([3, 100]),
    )
    def begin(
        self,
        revision: str,
        has_exchanges: bool,
        knows: bool,
        tool_breakers: bool,
        is_asked: bool,
        timeout: int,
    ) -> None:
        self.loop = VirtualLoop(ManualClock())
        self.loop.set_exception_handler(lambda _, context: self.unhandled.append(context))
        self.unhandled: list[dict[str, Any]] = []
        self.harness = MemoryHarness(revision, has_exchanges)
        options = ClientOptions(
            revision=revision if knows else None,
            connect_timeout=CONNECT_TIMEOUT,
            probe_timeout=1.0,
            breaker=BreakerSettings(failure_threshold=timeout, reset_timeout_ms=5_000),
            tool_breakers=tool_breakers,
            handler_timeout=HANDLER_TIMEOUT,
        )
        self.user = "answers"
        handlers = ClientHandlers(elicitation=self._elicit) if is_asked else ClientHandlers()
        # While somebody is asked, a deadline stands still.
        self.allowance = HANDLER_TIMEOUT if is_asked else 0.0
        self.client = Client(self.harness.make_transport, options, handlers, draw=lambda: 0.5)
        self.asked: list[OpenRequest] = []
        self.subscriptions: list[asyncio.Task[int]] = []
        self.calls = 0

    async def _elicit(self, request: ElicitationRequest) -> dict[str, Any]:
        """Whoever is asked by the server, in their mood."""
        if self.user == "hesitates":
            await asyncio.sleep(1.0)
        elif self.user == "is away":
            await self.loop.create_future()
        elif self.user == "fails":
            raise LookupError("no")
        return {}

    @rule(user=st.sampled_from(["answers", "hesitates", "is away", "fails"]))
    def change_mood(self, user: str) -> None:
        self.user = user

    # -- what is asked

    @rule(
        acts=acts_of_a_call(in_memory),
        timeout=timeouts,
        tool=st.sampled_from(["play", "play_again"]),
        hears=st.booleans(),
        turns=turns,
    )
    def call(self, acts: list[Act], timeout: float, tool: str, hears: bool, turns: int) -> None:
        """Each call waits for whatever it waits for; many may be on their way."""
        nonce = f"call {self.calls}"
        self.calls += 1
        progress = (lambda done, total, message: None) if hears else None
        operation = self.client.call(
            tool, {"nonce": nonce, "acts": acts}, timeout=timeout, on_progress=progress
        )
        self._ask(operation, timeout, nonce, acts, may_repeat=tool == "play_again")
        self.loop.turn(turns)

    @rule(
        what=st.sampled_from(["list_tools", "list_resources", "ping", "read", "schema"]),
        timeout=timeouts,
        turns=turns,
    )
    def ask(self, what: str, timeout: float, turns: int) -> None:
        operation = {
            "list_tools": lambda: self.client.list_tools(timeout=timeout),
            "list_resources": lambda: self.client.list_resources(timeout=timeout),
            "ping": lambda: self.client.ping(timeout=timeout),
            "read": lambda: self.client.read_resource("play://one", timeout=timeout),
            "schema": lambda: self.client.get_tool_schema("play", timeout=timeout),
        }[what]()
        self._ask(operation, timeout)
        self.loop.turn(turns)

    @rule(which=st.integers(0, 20))
    def cancel(self, which: int) -> None:
        """Whoever asked goes away."""
        if which < len(self.asked) and not self.asked[which].task.done():
            self.asked[which].is_cancelled = True
            self.asked[which].task.cancel()

    @rule(uris=st.sampled_from([("play://one",), ("play://one", "play://two")]))
    def subscribe(self, uris: tuple[str, ...]) -> None:
        """Hold a subscription until it is closed, or the server refuses it."""
        self.subscriptions.append(self.loop.create_task(self._listen(uris)))

    async def _listen(self, uris: tuple[str, ...]) -> int:
        changes = 0
        async with self.client.subscribe(*uris) as subscription:
            async for uri in subscription:
                assert uri in uris
                changes += 1
        return changes

    @rule(which=st.integers(0, 5))
    def unsubscribe(self, which: int) -> None:
        if which < len(self.subscriptions):
            self.subscriptions[which].cancel()

    @rule()
    def invalidate(self) -> None:
        self.client.invalidate()

    @precondition(lambda self: self.calls > 3)
    @rule(really=st.sampled_from([True, *[False] * 9]))
    def leave(self, really: bool) -> None:
        """Seldom, for little happens after it."""
        if really:
            self.close()

    def close(self) -> None:
        """Close the client, and check that every call has ended."""
        self.loop.run_until_complete(self.client.close())
        self.wait(LONGEST_PAUSE)
        assert all(each.task.done() for each in self.asked)
        for each in self.subscriptions:
            assert each.cancelled() or isinstance(each.exception(), MCPError | None)

    # -- what the server does

    @rule(point=st.sampled_from(POINTS), acts=acts_at_a_point(in_memory))
    def misbehave(self, point: str, acts: list[Act]) -> None:
        self.harness.play({point: acts})

    @rule(how=st.sampled_from([[["refuse"]], [["hang"]]]))
    def be_unreachable(self, how: list[Act]) -> None:
        self.harness.play({"open": how})

    @rule()
    def behave(self) -> None:
        self.harness.play({})

    @precondition(lambda self: self.harness.transports)
    @rule()
    def die(self) -> None:
        self.loop.call_soon(self.harness.transports[-1].lose)

    @precondition(lambda self: self.harness.transports)
    @rule()
    def unjam(self) -> None:
        self.harness.transports[-1].unjam()

    # -- time

    @rule(times=st.integers(1, 4))
    def turn(self, times: int) -> None:
        """Do a few of the steps that are possible now."""
        self.loop.turn(times)

    @rule()
    def settle(self) -> None:
        """Do all the steps that are possible now."""
        self.loop.turn(TURNS)

    @rule(seconds=st.sampled_from([0.2, 1.0, 6.0, 35.0]))
    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.loop.turn(TURNS)

    # -- what must hold

    @invariant()
    def nothing_outlasts_its_deadline(self) -> None:
        for each in self.asked:
            assert each.task.done() or self.loop.time() <= each.until

    @invariant()
    def everything_ends_as_it_may(self) -> None:
        for each in self.asked:
            if each.task.done():
                self._check(each)

    @invariant()
    def nothing_runs_twice(self) -> None:
        received = self.harness.nonces()
        for each in self.asked:
            if each.nonce is not None and not each.may_repeat and not may_refuse(each.acts):
                assert received.count(each.nonce) <= 1

    @invariant()
    def there_is_one_channel(self) -> None:
        assert sum(not each.is_closed for each in self.harness.transports) <= 1

    @invariant()
    def nothing_went_unnoticed(self) -> None:
        assert self.unhandled == []
        assert self.harness.events("malformed") == []

    def teardown(self) -> None:
        try:
            self.close()
            self.everything_ends_as_it_may()
            self.nothing_runs_twice()
            assert asyncio.all_tasks(self.loop) == set()
            assert all(each.is_closed for each in self.harness.transports)
            timers = self.loop._scheduled  # type: ignore[attr-defined]
            assert [each for each in timers if not each.cancelled()] == []
        finally:
            self.loop.close()

    def _ask(
        self,
        operation: Any,
        timeout: float,
        nonce: str | None = None,
        acts: list[Act] | None = None,
        may_repeat: bool = True,
    ) -> None:
        task = self.loop.create_task(operation)
        # A turn begins in the same moment of the loop's time, and no deadline is finer than 1 us.
        until = self.loop.time() + timeout + self.allowance + 1e-5
        may_repeat = may_repeat or asks_again(acts or [])
        self.asked.append(OpenRequest(until, task, nonce, acts or [], may_repeat))

    def _check(self, asked: OpenRequest) -> None:
        if asked.task.cancelled():
            assert asked.is_cancelled
            return
        error = asked.task.exception()
        if error is None:
            result = asked.task.result()
            if asked.nonce is not None:
                assert isinstance(result, CallResult)
                assert result.text in (asked.nonce, "")
                assert result.structured in ({"nonce": asked.nonce}, None)
        else:
            assert isinstance(error, MCPError), error
            if asked.nonce in self.harness.nonces() and not may_refuse(asked.acts):
                assert error.may_have_run


@pytest.mark.rule("CLIENT-12", "CLIENT-20", "CLIENT-21", "CLIENT-28", "CLIENT-29")
def test_any_history() -> None:
    run_state_machine_as_test(
        ClientMachine,
        settings=settings(
            max_examples=examples(250),
            stateful_step_count=30,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
