"""Batches of revision 2025-03-26: taken one by one, answered together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.core.batches import MAX_BATCH, requests_of
from foundation_rt.core.effects import Abort, Log, Notify, Reply
from foundation_rt.core.invocation import Invocation, Returned
from foundation_rt.protocol.jsonrpc import RequestId, parse
from foundation_rt.protocol.revisions import HANDSHAKE_REVISIONS
from tests.support.core import INITIALIZED, Core, completions, make_core, notification, request

if TYPE_CHECKING:
    from foundation_rt.core.effects import Effect

WITH_BATCHES = "2025-03-26"


def core_of(revision: str = WITH_BATCHES) -> Core:
    core = make_core({"resources": {"max_concurrent_executions": 4}})
    core.add("tool")
    core.dispatch(request("initialize", {"protocolVersion": revision}, "initialize"))
    core.dispatch(INITIALIZED)
    return core


def array(*lines: bytes) -> bytes:
    return b"[" + b",".join(lines) + b"]"


def ping(request_id: Any = 1) -> bytes:
    return request("ping", None, request_id)


def call(request_id: Any) -> bytes:
    return request("tools/call", {"name": "tool"}, request_id)


def cancel(request_id: Any) -> bytes:
    return notification("notifications/cancelled", {"requestId": request_id})


def answer_of(effects: list[Effect]) -> list[dict[str, Any]] | None:
    """Return the array among effects, if there is one; check that there is no other message."""
    lines = [each.line for each in effects if isinstance(each, Reply)]
    if not lines:
        return None
    [answer] = map(orjson.loads, lines)
    assert type(answer) is list
    return answer


def calls_of(effects: list[Effect]) -> list[Invocation]:
    return [each for each in effects if isinstance(each, Invocation)]


def ids_of(answer: list[dict[str, Any]] | None) -> list[RequestId]:
    assert answer is not None
    return [each["id"] for each in answer]


@pytest.mark.rule("RPC-14")
def test_immediate_replies_are_sent_together() -> None:
    effects = core_of().dispatch(array(ping(1), request("no/such", None, "b"), ping(3)))
    answer = answer_of(effects)
    assert ids_of(answer) == [1, "b", 3]
    assert answer is not None
    assert (answer[0]["result"], answer[1]["error"]["code"]) == ({}, -32601)
    [reply] = [each for each in effects if isinstance(each, Reply)]
    assert (reply.request_id, reply.error_code) == (3, None)


@pytest.mark.rule("RPC-14")
def test_batch_answer_has_the_replies_in_the_order_of_their_ends() -> None:
    core = core_of()
    begun = core.dispatch(array(call(1), ping(2), call(3)))
    assert answer_of(begun) is None
    first, third = calls_of(begun)
    ended = core.conclude(third, Returned("c"))
    assert answer_of(ended) is None
    assert len(completions(ended)) == 1
    last = core.conclude(first, Returned("a"))
    assert ids_of(answer_of(last)) == [2, 3, 1]
    assert [each.request_id for each in last if isinstance(each, Reply)] == [1]
    assert core.session.batches == {}


@pytest.mark.rule("RPC-14")
def test_answer_alone_is_still_an_array() -> None:
    core = core_of()
    assert ids_of(answer_of(core.dispatch(array(ping())))) == [1]
    [begun] = calls_of(core.dispatch(array(call(2))))
    assert ids_of(answer_of(core.conclude(begun, Returned(None)))) == [2]


@pytest.mark.rule("RPC-14")
def test_cancelled_request_is_left_out() -> None:
    core = core_of()
    begun = core.dispatch(array(call(1), call(2)))
    first, second = calls_of(begun)
    assert [type(each) for each in core.dispatch(cancel(1))] == [Abort]
    assert ids_of(answer_of(core.conclude(second, Returned(None)))) == [2]
    assert answer_of(core.conclude(first, Returned(None))) is None


@pytest.mark.rule("RPC-14")
def test_batch_is_answered_when_its_last_request_is_cancelled() -> None:
    core = core_of()
    core.dispatch(array(ping(1), call(2)))
    assert ids_of(answer_of(core.dispatch(cancel(2)))) == [1]
    core.dispatch(array(call(3)))
    assert answer_of(core.dispatch(cancel(3))) is None
    assert core.session.batches == {}


@pytest.mark.rule("RPC-14")
def test_batch_may_cancel_its_own_requests() -> None:
    core = core_of()
    effects = core.dispatch(array(ping(0), call(1), cancel(1), ping(2)))
    assert ids_of(answer_of(effects)) == [0, 2]
    assert answer_of(core.dispatch(array(call(3), cancel(3)))) is None


@pytest.mark.rule("RPC-14")
def test_deadline_answers_for_its_request() -> None:
    core = core_of()
    [begun] = calls_of(core.dispatch(array(call(1), ping(2))))
    answer = answer_of(core.dispatcher.expire(begun))
    assert ids_of(answer) == [2, 1]
    assert answer is not None
    assert answer[1]["result"]["isError"] is True


@pytest.mark.rule("RPC-14")
def test_batch_of_notifications_has_no_answer() -> None:
    effects = core_of().dispatch(
        array(notification("x"), b'{"jsonrpc":"2.0","id":"s","result":{}}')
    )
    assert all(isinstance(each, Log) for each in effects)


@pytest.mark.rule("RPC-15")
def test_notifications_of_a_batched_call_are_sent_at_once() -> None:
    core = core_of()
    [begun] = calls_of(core.dispatch(array(call(1), ping(2))))
    progress = {"progressToken": "t", "progress": 1}
    [said] = core.dispatcher.notify(begun, "notifications/progress", progress)
    assert isinstance(said, Notify)
    assert (orjson.loads(said.line)["params"], said.request_id) == (progress, 1)
    assert ids_of(answer_of(core.conclude(begun, Returned(None)))) == [2, 1]


@pytest.mark.rule("RPC-13", "RPC-14")
def test_malformed_member_of_a_batch_is_answered_in_its_place() -> None:
    answer = answer_of(core_of().dispatch(array(b"1", ping(2), b"[]", b'{"id":4}', b"{}")))
    assert ids_of(answer) == [None, 2, None, 4, None]
    assert answer is not None
    assert [each["error"]["code"] for each in answer if "error" in each] == [-32600] * 4
    alone = answer_of(core_of().dispatch(b"[1,2]"))
    assert ids_of(alone) == [None, None]


@pytest.mark.rule("RPC-13")
def test_initialize_in_a_batch_is_refused() -> None:
    again = request("initialize", {"protocolVersion": WITH_BATCHES}, 1)
    answer = answer_of(core_of().dispatch(array(again, ping(2))))
    assert answer is not None
    assert answer[0]["error"]["data"]["reason"] == "already_initialized"
    starting = make_core()
    error = starting.answer(array(again))["error"]
    assert error["data"]["reason"] == "batch_not_supported"
    assert starting.session.peer is None


@pytest.mark.rule("RPC-18")
@pytest.mark.parametrize(
    ("items", "reason"),
    [(0, "empty_batch"), (MAX_BATCH, None), (MAX_BATCH + 1, "batch_too_large")],
)
def test_empty_or_too_large_batch_is_refused(items: int, reason: str | None) -> None:
    answer = core_of().answer(array(*map(ping, range(items))))
    if reason is None:
        assert ids_of(answer) == list(range(items))
    else:
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        assert answer["error"]["data"]["reason"] == reason


@pytest.mark.rule("RPC-13")
def test_requests_of_lists_the_requests_of_a_message() -> None:
    def found(line: bytes) -> list[RequestId]:
        return [each.id for each in requests_of(parse(line))]

    assert found(ping(1)) == [1]
    assert found(notification("x")) == found(b"5") == found(b"[]") == []
    assert found(array(ping(1), notification("x"), b"{}", call("b"))) == [1, "b"]
    assert found(array(*map(ping, range(MAX_BATCH + 1)))) == []


@pytest.mark.rule("RPC-03")
@pytest.mark.parametrize("revision", [*HANDSHAKE_REVISIONS])
def test_only_one_revision_has_batches(revision: str) -> None:
    answer = core_of(revision).answer(array(ping()))
    if revision == WITH_BATCHES:
        assert ids_of(answer) == [1]
    else:
        assert answer["error"]["data"]["reason"] == "batch_not_supported"


@pytest.mark.rule("RPC-16")
def test_request_of_the_stateless_mode_is_refused_inside_of_a_batch() -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    answer = answer_of(core_of().dispatch(array(request("tools/list", {"_meta": meta}), ping(2))))
    assert answer is not None
    assert answer[0]["error"]["data"]["reason"] == "revision_without_batches"
    assert ids_of(answer) == [1, 2]


@pytest.mark.rule("RPC-05")
def test_id_that_is_in_flight_is_refused_inside_of_a_batch_too() -> None:
    core = core_of()
    [begun] = calls_of(core.dispatch(array(call(1), ping(1))))
    assert answer_of(core.dispatch(array(call(1)))) is not None
    answer = answer_of(core.conclude(begun, Returned(None)))
    assert ids_of(answer) == [None, 1]


@pytest.mark.rule("RPC-10")
def test_bug_in_one_message_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from foundation_rt.core.methods import lifecycle

    def broken(*_: Any) -> list[Effect]:
        raise RuntimeError("boom")

    monkeypatch.setattr(lifecycle, "ping", broken)
    effects = core_of().dispatch(array(ping(1), request("tools/list", None, 2)))
    answer = answer_of(effects)
    assert ids_of(answer) == [1, 2]
    assert answer is not None
    assert answer[0]["error"]["code"] == -32603
    [log] = [each for each in effects if isinstance(each, Log) and each.level == "error"]
    assert log.fields["error"]["message"] == "boom"


@pytest.mark.rule("LIFE-06")
def test_closed_session_gets_no_answer_to_its_batch() -> None:
    core = core_of()
    [begun] = calls_of(core.dispatch(array(call(1), ping(2))))
    core.dispatcher.close(core.session)
    assert core.session.batches == {}
    assert answer_of(core.conclude(begun, Returned(None))) is None


@pytest.mark.rule("RPC-14")
@given(data=st.data())
def test_every_request_is_answered_exactly_once_in_the_array_of_its_batch(
    data: st.DataObject,
) -> None:
    core = core_of()
    kinds = data.draw(st.lists(st.lists(st.sampled_from("pcn"), max_size=5), max_size=3))
    expected: list[set[RequestId]] = []
    running: list[Invocation] = []
    arrays: list[list[RequestId]] = []

    def note(effects: list[Effect]) -> None:
        running.extend(calls_of(effects))
        answer = answer_of(effects)
        if answer is not None:
            arrays.append(ids_of(answer))

    for number, batch in enumerate(kinds):
        lines, ids = [], set[RequestId]()
        for index, kind in enumerate(batch):
            request_id = f"{number}.{index}"
            make = {"p": ping, "c": call, "n": lambda _: notification("x")}[kind]
            lines.append(make(request_id))
            if kind != "n":
                ids.add(request_id)
        if lines:
            expected.append(ids)
            note(core.dispatch(array(*lines)))
    while running:
        ended = running.pop(data.draw(st.integers(0, len(running) - 1)))
        if data.draw(st.booleans()):
            note(core.conclude(ended, Returned(None)))
        else:
            for ids in expected:
                ids.discard(ended.request_id)
            note(core.dispatch(cancel(ended.request_id)))
            core.conclude(ended, Returned(None))
    assert sorted(map(sorted, arrays)) == sorted(sorted(ids) for ids in expected if ids)
    assert core.session.batches == {}
    assert core.session.in_flight == {}
