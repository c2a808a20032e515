"""What may become of a request: every state against every event, spelled out."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.agents.ledger.encoder import encode_payload
from foundation_rt.agents.ledger.rules import (
    Claimability,
    claimability,
    conflict_error,
    digest_of,
    is_repeated,
    judge,
    may_complete,
    may_settle,
    read_response,
    response_payload,
)
from foundation_rt.agents.ledger.types import (
    TERMINAL,
    ClaimCompletion,
    EntryVerdict,
    Envelope,
    MessageRecord,
    MessageState,
    MessageType,
    Outcome,
    RequestRecord,
    RequestState,
)
from foundation_rt.errors import ErrorCode
from tests.lab.agents.envelopes import json_values

SENT, HELD, DELAYED, RECEIVED, CLAIMED, COMPLETED, FAILED = RequestState
TAKE, PASS_OVER, STOP = Claimability

NOW_MS = 1_705_314_600_000
DIGEST = bytes(16)
REPLY_ID = "00000000-0000-4000-8000-000000000002"


def record(state: RequestState = RECEIVED, **values: Any) -> RequestRecord:
    made = RequestRecord(
        "request",
        MessageType.REQUEST,
        "source",
        "target",
        1,
        DIGEST,
        b"null",
        state,
        NOW_MS - 1000,
        NOW_MS + 1000,
    )
    return evolve(made, **values)


def completion(epoch: int, state: RequestState = COMPLETED) -> ClaimCompletion:
    return ClaimCompletion("request", epoch, state, b"1", None, REPLY_ID, NOW_MS)


def response(source: str, target: str, request_id: str = "request") -> Envelope:
    payload = response_payload(COMPLETED, b"1", None)
    return Envelope(
        REPLY_ID, request_id, source, target, 1, None, MessageType.RESPONSE, NOW_MS, payload
    )


# -- what a caller knows


@pytest.mark.rule("AACP-06", "AACP-20")
@pytest.mark.parametrize("state", RequestState)
def test_a_caller_knows_an_outcome_only_when_it_is_recorded(state: RequestState) -> None:
    known = {COMPLETED: Outcome.COMPLETED, FAILED: Outcome.FAILED}
    assert state.outcome is known.get(state, Outcome.UNKNOWN)
    assert record(state).outcome is state.outcome
    assert (state in TERMINAL) is (state in known)


@pytest.mark.rule("AACP-14")
@pytest.mark.parametrize(
    ("state", "outcome", "tombstone"),
    [
        (MessageState.PENDING, Outcome.UNKNOWN, False),
        (MessageState.TOMBSTONE, Outcome.FAILED, True),
        (MessageState.ACKNOWLEDGED, Outcome.COMPLETED, False),
    ],
)
def test_message_record_gives_outcome_and_envelope(
    state: MessageState, outcome: Outcome, tombstone: bool
) -> None:
    message = MessageRecord(
        "first",
        "request",
        "a",
        "b",
        7,
        MessageType.REQUEST,
        b"5",
        state,
        NOW_MS,
        NOW_MS + 9,
        low_watermark=5,
    )
    assert message.outcome is outcome
    assert message.envelope("another", 3, 11, 12) == Envelope(
        "another",
        "request",
        "a",
        "b",
        7,
        3,
        MessageType.REQUEST,
        NOW_MS,
        b"5",
        NOW_MS + 9,
        tombstone,
        11,
        12,
        5,
    )


# -- the same request, or another


texts = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)
contents = st.tuples(texts, texts, st.sampled_from(MessageType), json_values.map(encode_payload))


@pytest.mark.rule("AACP-12")
@given(one=contents, other=contents)
def test_a_digest_tells_apart_whatever_differs_in_any_part(
    one: tuple[str, str, MessageType, bytes], other: tuple[str, str, MessageType, bytes]
) -> None:
    assert (digest_of(*one) == digest_of(*other)) is (one == other)
    for index, part in enumerate(other):
        changed: Any = (*one[:index], part, *one[index + 1 :])
        assert (digest_of(*changed) == digest_of(*one)) is (part == one[index])


@pytest.mark.rule("AACP-12")
def test_a_digest_does_not_mistake_where_one_part_ends_and_the_next_begins() -> None:
    request = MessageType.REQUEST
    assert digest_of("ab", "c", request, b"1") != digest_of("a", "bc", request, b"1")
    assert digest_of("a", "b", request, b"1") != digest_of("b", "a", request, b"1")
    assert digest_of("a", "b", request, b"") != digest_of("a", "b", request, b"\0")


@pytest.mark.rule("AACP-12")
def test_a_digest_is_the_same_in_every_process_and_version() -> None:
    """It is kept in ledgers, which outlive both."""
    digest = digest_of("weather", "größe", MessageType.REQUEST, b'{"a":1}')
    assert digest.hex() == "b34eaa4212859a72cdc3f851d8bdecd3"


@pytest.mark.rule("AACP-12", "AACP-21")
@pytest.mark.parametrize("state", RequestState)
def test_the_state_of_a_request_makes_no_difference_to_whether_it_is_the_same(
    state: RequestState,
) -> None:
    assert judge(None, DIGEST) is EntryVerdict.NEW
    assert judge(record(state), DIGEST) is EntryVerdict.DUPLICATE
    assert judge(record(state), bytes(15) + b"\1") is EntryVerdict.CONFLICT


@pytest.mark.rule("AACP-60")
def test_conflict_error_names_request() -> None:
    error = conflict_error("order-7")
    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert error.details == {"reason": "request_id_conflict", "requestId": "order-7"}


# -- claims

PAST, NOW, FUTURE = NOW_MS - 1, NOW_MS, NOW_MS + 1


@pytest.mark.rule("AACP-15", "AACP-70", "AACP-25")
@pytest.mark.parametrize(
    ("values", "decision"),
    [
        ({"state": RECEIVED}, TAKE),
        ({"state": RECEIVED, "not_before_ms": PAST}, TAKE),
        ({"state": RECEIVED, "not_before_ms": NOW}, TAKE),
        ({"state": RECEIVED, "not_before_ms": FUTURE}, STOP),
        ({"state": CLAIMED, "owner": "me", "lease_until_ms": FUTURE}, PASS_OVER),
        ({"state": CLAIMED, "owner": "other", "lease_until_ms": FUTURE}, STOP),
        ({"state": CLAIMED, "owner": "me", "lease_until_ms": NOW}, PASS_OVER),
        ({"state": CLAIMED, "owner": "other", "lease_until_ms": NOW}, TAKE),
        ({"state": CLAIMED, "owner": "other", "lease_until_ms": PAST}, TAKE),
        # A request that was given back has had an owner, and may have to wait.
        ({"state": RECEIVED, "epoch": 3, "owner": "other"}, TAKE),
        ({"state": RECEIVED, "epoch": 3, "not_before_ms": FUTURE}, STOP),
    ],
)
def test_claimability_of_each_state(values: dict[str, Any], decision: Claimability) -> None:
    assert claimability(record(**values), "me", NOW_MS) is decision
    for expires_at_ms in (PAST, NOW):
        expired = record(**values, expires_at_ms=expires_at_ms)
        assert claimability(expired, "me", NOW_MS) is PASS_OVER


# -- outcomes


@pytest.mark.rule("AACP-01", "AACP-03", "AACP-21", "AACP-23")
@pytest.mark.parametrize(
    ("state", "claimed", "completed"), list(product(RequestState, range(3), range(1, 4)))
)
def test_an_outcome_is_taken_from_the_newest_claim_once(
    state: RequestState, claimed: int, completed: int
) -> None:
    made, done = record(state, epoch=claimed), completion(completed)
    is_newest = claimed == completed
    assert may_complete(made, done) is (state is CLAIMED and is_newest)
    assert is_repeated(made, done) is (state in (COMPLETED, FAILED) and is_newest)


@pytest.mark.rule("AACP-23")
def test_nothing_can_be_completed_that_is_not_there_or_was_never_claimed() -> None:
    assert not may_complete(None, completion(1))
    assert not is_repeated(None, completion(1))
    settled_elsewhere = record(COMPLETED, epoch=0)
    assert not is_repeated(settled_elsewhere, completion(0))


@pytest.mark.rule("AACP-16", "AACP-21")
@pytest.mark.parametrize("state", RequestState)
def test_response_settles_request_made_here_for_its_source(
    state: RequestState,
) -> None:
    made = record(state)
    assert may_settle(made, response("target", "source")) is (state is SENT)
    for source, target in [("source", "target"), ("target", "other"), ("other", "source")]:
        assert not may_settle(made, response(source, target))
    assert not may_settle(None, response("target", "source"))


# -- what a RESPONSE carries


@pytest.mark.rule("AACP-16")
def test_result_that_is_not_kept_is_null() -> None:
    assert response_payload(COMPLETED, None, None) == b'{"outcome":"COMPLETED","result":null}'
    assert read_response(response_payload(COMPLETED, None, None)) == (COMPLETED, b"null", None)
