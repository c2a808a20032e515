"""The use of limits by principals: shares, and the return of everything taken."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.settings import ResourcesSection, ServerConfig
from foundation_rt.base.principal_shares import Limit, LimitReached, Quota
from foundation_rt.errors import ToolError
from foundation_rt.kernel.execution_limits import ResourceManager
from foundation_rt.kernel.invocation import Invocation, Returned
from foundation_rt.protocol.principal import Principal, identity_of
from tests.lab.servers.core import Core, make_core, replies, tool_error
from tests.lab.sizes import examples

ALICE, BOB = Principal("key:alice"), Principal("key:bob")
KEYS = ("alice:" + "a" * 16, "bob:" + "b" * 16)
LIMIT = Limit(8, "places", "maxPlaces", "all_taken")


def make_config(slots: int = 8, keys: tuple[str, ...] = KEYS) -> ServerConfig:
    resources = ResourcesSection(max_concurrent_executions=slots)
    return ServerConfig(http=HttpSection(api_keys=keys), resources=resources)


def refused(quota: Quota, identity: str | None, count: int = 1) -> Any:
    with pytest.raises(LimitReached) as found:
        quota.take(identity, count)
    return found.value.details


# -- a quota -------------------------------------------------------------------------------------


@pytest.mark.rule("RES-12", "RES-13")
def test_principal_uses_no_more_than_its_share() -> None:
    quota = Quota(make_config(), LIMIT)
    quota.take("alice", 2)
    assert refused(quota, "alice") == {"reason": "principal_share", "maxPlaces": 8, "share": 2}
    quota.take("bob")
    quota.give_back("alice")
    quota.take("alice")
    assert quota.used() == {"alice": 2, "bob": 1}


@pytest.mark.rule("RES-13")
@pytest.mark.parametrize("identity", ["alice", None])
def test_refusal_keeps_nothing_of_refused_call(identity: str | None) -> None:
    class Arguments:
        pass

    def call() -> weakref.ref[Arguments]:
        arguments = Arguments()
        try:
            quota.take(identity, 9)
        except LimitReached:
            return weakref.ref(arguments)
        raise AssertionError("it was not refused")

    quota = Quota(make_config(), LIMIT)
    gc.collect()
    gc.disable()  # what reference counting does not free is in a cycle, and stays
    try:
        assert call()() is None
    finally:
        gc.enable()


@pytest.mark.rule("RES-21")
def test_only_whole_limit_applies_without_shares() -> None:
    for config, identity in ((make_config(keys=KEYS[:1]), "alice"), (make_config(), None)):
        quota = Quota(config, LIMIT)
        quota.take(identity, 8)
        assert refused(quota, identity) == {"reason": "all_taken", "maxPlaces": 8}


@pytest.mark.rule("RES-12")
def test_limit_holds_for_all_principals_together() -> None:
    quota = Quota(make_config(), LIMIT)
    for number in range(4):
        quota.take(f"principal {number}", 2)
    assert refused(quota, "one more") == {"reason": "all_taken", "maxPlaces": 8}
    assert "one more" not in quota.used()


# -- slots ---------------------------------------------------------------------------------------


def core_of(core: Core, principal: Principal | None) -> Core:
    """Return the same core, in a session of `principal` that is RUNNING."""
    core.session = core.open_session()
    core.session.principal = principal
    return core.handshake()


def begin(core: Core, tool: str, request_id: int) -> Invocation | dict[str, Any]:
    """Return the invocation of a call, or the error that it is refused with."""
    first = core.call(tool, request_id=request_id)[0]
    if isinstance(first, Invocation):
        return first
    return tool_error(replies([first])[0])


@pytest.mark.rule("RES-13", "RES-14")
def test_principal_uses_no_more_slots_than_its_share() -> None:
    core = make_core(config=make_config(8), tools={"hold": lambda arguments, context: None})
    core_of(core, ALICE)
    held = [begin(core, "hold", number) for number in range(3)]
    assert [isinstance(each, Invocation) for each in held] == [True, True, False]
    error = held[2]
    assert isinstance(error, dict)
    assert error["code"] == "RESOURCE_EXHAUSTED"
    assert error["details"] == {
        "reason": "principal_share",
        "maxConcurrentExecutions": 8,
        "share": 2,
    }
    assert "2 execution slots that one principal may use" in error["message"]
    core_of(core, BOB)
    assert isinstance(begin(core, "hold", 4), Invocation)
    assert core.resources.concurrent_executions == 3
    core.conclude(held[0], Returned(None))  # type: ignore[arg-type]
    core_of(core, ALICE)
    assert isinstance(begin(core, "hold", 5), Invocation)


@pytest.mark.rule("RES-06", "RES-13")
def test_refusals_for_share_do_not_affect_health() -> None:
    core = make_core(config=make_config(8), tools={"hold": lambda arguments, context: None})
    core_of(core, ALICE)
    for number in range(20):
        begin(core, "hold", number)
    assert core.resources.get_health_status() == "healthy"


@pytest.mark.rule("RES-14")
def test_peers_without_principal_may_use_all_slots() -> None:
    core = make_core(config=make_config(4), tools={"hold": lambda arguments, context: None})
    core_of(core, None)
    found = [begin(core, "hold", number) for number in range(5)]
    assert isinstance(found[3], Invocation)
    assert isinstance(found[4], dict)
    assert found[4]["details"]["reason"] == "concurrency_limit"
    core_of(core, ALICE)
    alone = begin(core, "hold", 1)
    assert isinstance(alone, dict)
    assert alone["details"]["reason"] == "concurrency_limit"
    assert core.resources.shares_used() == {}


class Slots(RuleBasedStateMachine):
    """Any order of takes and releases by several principals."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = ResourceManager(make_config(5), lambda: 0)
        self.held: list[tuple[Principal | None, Any]] = []

    @rule(principal=st.sampled_from([ALICE, BOB, Principal("carol"), None]))
    def take(self, principal: Principal | None) -> None:
        own = sum(each == principal for each, _ in self.held)
        fits = len(self.held) < 5 and (principal is None or own < 2)
        try:
            slot = self.resources.take_slot(principal)
        except ToolError:
            assert not fits
        else:
            assert fits
            self.held.append((principal, slot))

    @rule(which=st.integers(0, 4), times=st.integers(1, 2))
    def release(self, which: int, times: int) -> None:
        for _, slot in self.held[which : which + 1]:
            for _ in range(times):
                slot.release()
        del self.held[which : which + 1]

    @invariant()
    def counts_what_is_held(self) -> None:
        assert self.resources.concurrent_executions == len(self.held)
        owners = Counter(identity_of(each) for each, _ in self.held if each is not None)
        assert self.resources.shares_used() == owners

    def teardown(self) -> None:
        for _, slot in self.held:
            slot.release()
        assert self.resources.concurrent_executions == 0
        assert self.resources.shares_used() == {}


TestSlots = pytest.mark.rule("RES-14")(Slots.TestCase)
TestSlots.settings = settings(max_examples=examples(40), deadline=None)
