"""Ids that belong to a principal: in one ledger, between two, and for hosts that send for one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.agents.ledger.errors import (
    OutcomeUnknownError,
    RequestConflictError,
    RequestFailedError,
)
from foundation_rt.agents.ledger.ownership import (
    given_id,
    is_ledger_id,
    is_request_id,
    owned_id,
    owner_of,
)
from foundation_rt.agents.ledger.types import Outcome
from foundation_rt.agents.messages import AgentContext, AgentMessage
from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.protocol.principal import Principal, identity_of
from tests.lab.agents.coordinators import CoordinatorHarness, record_of, status_of
from tests.lab.agents.loopback import LoopbackNetwork

ALICE, BOB = Principal("key:alice"), Principal("key:bob")
ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", fullmatch=True)
identities = st.text(max_size=20).map(ascii)


async def answer(message: AgentMessage, context: AgentContext) -> Any:
    if message.type == "fail":
        raise ToolError(ErrorCode.NOT_FOUND, "No city.")
    return [message.payload, context.correlation_id]


async def outcome_of(agents: AgentCoordinatorV2, key: str, who: Principal | None) -> Outcome | None:
    status = await agents.status(key, who)
    return None if status is None else status.outcome


# -- ids ------------------------------------------------------------------------------------------


@pytest.mark.rule("AACP-48", "AACP-86")
@given(first=st.tuples(ids, identities), second=st.tuples(ids, identities))
def test_ids_of_two_principals_are_never_the_same(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    assert (owned_id(*first) == owned_id(*second)) is (first == second)


@pytest.mark.rule("AACP-86")
@given(request_id=ids, identity=identities)
def test_caller_cannot_give_id_with_owner(request_id: str, identity: str) -> None:
    owned = owned_id(request_id, identity)
    assert is_ledger_id(owned)
    assert not is_request_id(owned)
    assert given_id(owned) == request_id
    assert owner_of(owned) is not None
    assert owned_id(request_id, None) == request_id
    assert owner_of(request_id) is None


@pytest.mark.rule("AACP-48")
def test_an_owner_is_known_by_subject_and_program_whatever_its_scopes() -> None:
    def owned(*principal: Any) -> str:
        return owned_id("r1", identity_of(Principal(*principal)))

    assert owned("ann", frozenset({"read"})) == owned("ann", frozenset())
    assert len({owned("ann"), owned("bob"), owned("ann", frozenset(), "editor")}) == 3


# -- one ledger -----------------------------------------------------------------------------------


@pytest.mark.rule("AACP-85")
async def test_an_id_of_one_principal_is_not_there_for_another_nor_for_the_host(
    harness: CoordinatorHarness,
) -> None:
    async with harness.coordinator() as agents:
        agents.register_agent("a", answer)
        await agents.send_request("a", 1, request_id="r1", principal=ALICE)
        assert await outcome_of(agents, "r1", ALICE) is Outcome.COMPLETED
        for other in (BOB, None, Principal("key:alice", frozenset(), "editor")):
            assert await outcome_of(agents, "r1", other) is None
        owned = owned_id("r1", identity_of(ALICE))
        for who in (ALICE, BOB, None):  # the id of the ledger is nobody's
            assert await outcome_of(agents, owned, who) is None


@pytest.mark.rule("AACP-85")
async def test_the_same_id_of_another_principal_is_a_request_of_its_own(
    harness: CoordinatorHarness,
) -> None:
    async with harness.coordinator() as agents:
        agents.register_agent("a", answer)
        seen = [
            await agents.send_request("a", payload, request_id="r1", principal=who)
            for who, payload in [(BOB, "bob"), (ALICE, "alice"), (None, "host"), (BOB, "bob")]
        ]
        assert [payload for payload, _ in seen] == ["bob", "alice", "host", "bob"]
        assert seen[0] == seen[3]  # its own it gets again
        assert len({correlation_id for _, correlation_id in seen}) == 3
        assert seen[2][1] == "r1"
        with pytest.raises(RequestConflictError) as caught:
            await agents.send_request("a", "more", request_id="r1", principal=BOB)
        assert caught.value.details == {"reason": "request_id_conflict", "requestId": "r1"}


@pytest.mark.rule("AACP-48")
async def test_errors_and_statuses_show_given_id(harness: CoordinatorHarness) -> None:
    async def forever(message: AgentMessage, context: AgentContext) -> None:
        await asyncio.get_running_loop().create_future()

    async with harness.coordinator() as agents:
        agents.register_agent("a", answer)
        agents.register_agent("slow", forever)
        fail = AgentMessage("fail")
        with pytest.raises(RequestFailedError) as failed:
            await agents.send_request("a", fail, request_id="r1", principal=ALICE)
        assert failed.value.request_id == "r1"
        status = await status_of(agents, "r1", ALICE)
        assert (status.request_id, status.message_id) == ("r1", None)
        with pytest.raises(OutcomeUnknownError) as unknown:
            await agents.send_request("slow", 1, request_id="r2", principal=ALICE, timeout_ms=1)
        assert unknown.value.request_id == "r2"
        assert unknown.value.details is not None
        assert unknown.value.details["requestId"] == "r2"
        await agents.stop(0)


# -- two ledgers ----------------------------------------------------------------------------------


@pytest.mark.rule("AACP-16", "AACP-85", "AACP-86")
async def test_between_ledgers_an_id_keeps_its_owner(harness: CoordinatorHarness) -> None:
    network = LoopbackNetwork()
    far = harness.coordinator("far", transport=network.end())
    far.register_agent("b", answer)
    await far.start()
    async with harness.coordinator("near", transport=network.end()) as near:
        for who in (ALICE, BOB):
            name = who.subject
            payload, _ = await near.send_request("b", name, request_id="r1", principal=who)
            assert payload == name
            assert await outcome_of(near, "r1", who) is Outcome.COMPLETED
            record = await record_of(far, owned_id("r1", identity_of(who)))
            assert record.outcome is Outcome.COMPLETED
        assert await outcome_of(near, "r1", None) is None
        assert await outcome_of(far, "r1", None) is None


@pytest.mark.rule("AACP-60", "AACP-85")
async def test_conflict_in_other_ledger_shows_given_id(harness: CoordinatorHarness) -> None:
    network = LoopbackNetwork()
    far = harness.coordinator("far", transport=network.end())
    far.register_agent("b", answer)
    await far.start()
    await far.send_request("b", 1, request_id="r1", principal=ALICE)
    async with harness.coordinator("near", transport=network.end()) as near:
        with pytest.raises(RequestFailedError) as caught:
            await near.send_request("b", 1, request_id="r1", principal=ALICE)
        assert caught.value.details == {"reason": "request_id_conflict", "requestId": "r1"}


@pytest.mark.rule("AACP-48")
@pytest.mark.parametrize("away", [False, True], ids=["here", "in another ledger"])
async def test_an_event_that_is_sent_for_a_principal_is_known_to_it_alone(
    away: bool, harness: CoordinatorHarness
) -> None:
    network, settled = LoopbackNetwork(), list[str]()

    async def note(message_id: str) -> None:
        settled.append(message_id)

    far = harness.coordinator("far", transport=network.end())
    await far.start()
    near = harness.coordinator("near", transport=network.end(), on_message_completed=note)
    (far if away else near).register_agent("b", answer)
    async with near:
        owned = await near.send_reliable_message("b", 1, principal=ALICE)
        plain = await near.send_reliable_message("b", 2)
        await asyncio.sleep(1)
        expected = {owned: ALICE, plain: None}
        for message_id, owner in expected.items():
            for who in (ALICE, BOB, None):
                outcome = Outcome.COMPLETED if who == owner else None
                assert await outcome_of(near, message_id, who) is outcome
        status = await status_of(near, owned, ALICE)
        assert status.message_id == owned
        assert settled == [owned, plain]
