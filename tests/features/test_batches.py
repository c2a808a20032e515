"""Batches of revision 2025-03-26: taken one by one, answered together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.features.batches import MAX_BATCH, PendingBatches, requests_of
from foundation_rt.kernel.effects import Log, Notify, Reply
from foundation_rt.kernel.invocation import Invocation, Returned
from foundation_rt.protocol.jsonrpc import RequestId, parse
from tests.lab.servers.core import INITIALIZED, Core, make_core, notification, request

if TYPE_CHECKING:
    from foundation_rt.kernel.effects import Effect

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
def test_batch_may_cancel_its_own_requests() -> None:
    core = core_of()
    effects = core.dispatch(array(ping(0), call(1), cancel(1), ping(2)))
    assert ids_of(answer_of(effects)) == [0, 2]
    assert answer_of(core.dispatch(array(call(3), cancel(3)))) is None


@pytest.mark.rule("RPC-15")
def test_notifications_of_a_batched_call_are_sent_at_once() -> None:
    core = core_of()
    [begun] = calls_of(core.dispatch(array(call(1), ping(2))))
    progress = {"progressToken": "t", "progress": 1}
    [said] = core.dispatcher.notify(begun, "notifications/progress", progress)
    assert isinstance(said, Notify)
    assert (orjson.loads(said.line)["params"], said.request_id) == (progress, 1)
    assert ids_of(answer_of(core.conclude(begun, Returned(None)))) == [2, 1]


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


@pytest.mark.rule("RPC-05")
def test_id_that_is_in_flight_is_refused_inside_of_a_batch_too() -> None:
    core = core_of()
    [begun] = calls_of(core.dispatch(array(call(1), ping(1))))
    assert answer_of(core.dispatch(array(call(1)))) is not None
    answer = answer_of(core.conclude(begun, Returned(None)))
    assert ids_of(answer) == [None, 1]


@pytest.mark.rule("RPC-10")
def test_bug_in_one_message_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from foundation_rt.kernel.methods import lifecycle

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
    assert not core.session.part(PendingBatches).by_request
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
    assert not core.session.part(PendingBatches).by_request
    assert core.session.in_flight == {}
