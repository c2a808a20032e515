"""What lines from a server mean: to which request they belong, and to which not."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.ids import SequentialIds
from foundation_rt.base.request_ids import UuidRequestIds
from foundation_rt.client.errors import MCPError
from foundation_rt.client.session.pending_requests import (
    ABANDONED_SECONDS,
    Ignored,
    InvalidResponse,
    MessageReceived,
    NotificationReceived,
    PendingRequest,
    PendingRequests,
    RequestReceived,
    ResponseReceived,
    encode_response,
    notification,
)
from foundation_rt.protocol.framing import LineTooLong
from foundation_rt.protocol.jsonrpc import Request
from foundation_rt.protocol.peer import SUBSCRIPTION_ID_KEY
from tests.lab.values.json_values import json_values

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

any_json = json_values(st.integers(), st.floats(), st.text(max_size=5))


def pending(*methods: str) -> tuple[PendingRequests, list[PendingRequest]]:
    talk = PendingRequests(SequentialIds())
    return talk, [talk.add(method, None, attempt=method)[0] for method in methods]


def line(**members: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", **members})


def only(arrivals: list[MessageReceived]) -> MessageReceived:
    [arrival] = arrivals
    return arrival


# -- asking


@pytest.mark.rule("CLIENT-10")
def test_ids_are_uuids_of_version_4_and_are_used_once() -> None:
    talk = PendingRequests(UuidRequestIds())
    ids = [talk.add("ping", None, None)[0].id for _ in range(300)]
    assert all(UUID4.fullmatch(each) for each in ids)
    assert len({*ids}) == 300
    assert [*talk.pending] == ids


@pytest.mark.rule("CLIENT-10")
def test_request_is_one_line_with_method_and_params() -> None:
    talk = PendingRequests(SequentialIds())
    request, sent = talk.add("tools/call", {"name": "a\nb"}, "me")
    said = {"id": request.id, "method": "tools/call", "params": {"name": "a\nb"}}
    assert orjson.loads(sent) == {"jsonrpc": "2.0", **said}
    assert b"\n" not in sent
    assert "params" not in orjson.loads(talk.add("ping", None, "me")[1])
    assert orjson.loads(notification("x")) == {"jsonrpc": "2.0", "method": "x"}


@pytest.mark.rule("CLIENT-16")
@pytest.mark.parametrize("params", [None, {}, {"_meta": {"k": 1}}, {"name": "x"}])
def test_the_token_of_progress_is_the_id_of_the_request(params: dict[str, Any] | None) -> None:
    talk = PendingRequests(SequentialIds())
    before = orjson.dumps(params)
    request, sent = talk.add("tools/call", params, None, wants_progress=True)
    said = orjson.loads(sent)["params"]
    assert said["_meta"].pop("progressToken") == request.id
    assert said == {"_meta": {}, **(params or {})}
    assert orjson.dumps(params) == before


@pytest.mark.parametrize("bad", [{1, 2}, "\ud800", 2**70, b"bytes"], ids=repr)
def test_params_that_are_not_json_raise_and_leave_nothing_pending(bad: Any) -> None:
    talk = PendingRequests(SequentialIds())
    with pytest.raises(MCPError, match="the params of prompts/get are not JSON") as caught:
        talk.add("prompts/get", {"name": bad}, None)
    assert (caught.value.code, caught.value.may_have_run) == ("E203", False)
    assert talk.pending == {}


def test_server_request_is_answered_with_its_id() -> None:
    sent = Request(7, "roots/list", None)
    assert orjson.loads(encode_response(sent, result={})) == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {},
    }
    refused = orjson.loads(encode_response(sent, error={"code": 1, "message": "no"}))
    assert refused == {"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}}


# -- answers


@pytest.mark.rule("CLIENT-12")
@pytest.mark.parametrize("other", [None, 1, 1.5, True, [], {}, ""], ids=repr)
def test_response_with_an_unknown_id_is_ignored(other: Any) -> None:
    talk, [request] = pending("a")
    assert isinstance(only(talk.receive(line(id=other, result={}), None)), Ignored)
    assert isinstance(only(talk.receive(line(result={}), request.id)), Ignored)
    assert [*talk.pending] == [request.id]


@pytest.mark.rule("CLIENT-12")
def test_an_answer_may_come_on_the_stream_of_another_request() -> None:
    """As after a stream was resumed: there a server tells all it has to tell."""
    talk, (first, second) = pending("a", "b")
    arrival = only(talk.receive(line(id=second.id, result={}), first.id))
    assert isinstance(arrival, ResponseReceived)
    assert arrival.request is second


@pytest.mark.rule("CLIENT-12")
@pytest.mark.parametrize("error", [False, 0, "", [], {}, {"code": -32601}], ids=repr)
def test_an_error_counts_whatever_it_is_also_beside_a_result(error: Any) -> None:
    talk, [request] = pending("a")
    arrival = only(talk.receive(line(id=request.id, result={}, error=error), None))
    assert isinstance(arrival, ResponseReceived)
    assert (arrival.result, arrival.error) == ({}, error)


# -- what has no id


WITHOUT_ID: dict[str, tuple[bytes | LineTooLong, type, bool]] = {
    # what comes; what it is to the request that it belongs to; whether one stream for all is enough
    "an error without an id": (line(error={"code": -32700}), ResponseReceived, True),
    "an error of the id null": (line(id=None, error={"code": -32600}), ResponseReceived, True),
    "too long": (LineTooLong(10), InvalidResponse, True),
    "no JSON": (b"Listening on port 3000", InvalidResponse, False),
    "no UTF-8": (b"\xff\xfe", InvalidResponse, False),
    "a number": (b"5", InvalidResponse, False),
    "an empty object": (b"{}", InvalidResponse, False),
}


@pytest.mark.rule("CLIENT-13")
@pytest.mark.parametrize("name", WITHOUT_ID)
def test_message_without_id_belongs_to_the_request_of_its_stream(name: str) -> None:
    came, kind, _ = WITHOUT_ID[name]
    talk, (first, second) = pending("a", "b")
    arrival = only(talk.receive(came, second.id))
    assert type(arrival) is kind
    assert arrival.request is second  # type: ignore[union-attr]
    assert isinstance(only(talk.receive(came, second.id)), Ignored)
    assert [*talk.pending] == [first.id]


@pytest.mark.rule("CLIENT-13")
@pytest.mark.parametrize("name", WITHOUT_ID)
def test_on_one_stream_for_all_it_belongs_to_the_only_request_that_waits(name: str) -> None:
    came, kind, is_enough = WITHOUT_ID[name]
    talk, (first, second) = pending("a", "b")
    assert isinstance(only(talk.receive(came, None)), Ignored)
    del talk.pending[second.id]
    arrival = only(talk.receive(came, None))
    if is_enough:
        assert type(arrival) is kind
        assert arrival.request is first  # type: ignore[union-attr]
    else:
        assert isinstance(arrival, Ignored)
        assert [*talk.pending] == [first.id]
    talk.pending.clear()
    assert isinstance(only(talk.receive(came, None)), Ignored)


@pytest.mark.rule("CLIENT-39")
@pytest.mark.parametrize(
    "members",
    [{"result": {}}, {"jsonrpc": "1.0", "result": {}}, {"jsonrpc": "2.0"}, {"error": {}}],
    ids=repr,
)
def test_invalid_message_with_the_id_of_a_request_answers_it(
    members: dict[str, Any],
) -> None:
    talk, (first, second) = pending("a", "b")
    arrival = only(talk.receive(orjson.dumps({"id": second.id, **members}), None))
    assert isinstance(arrival, InvalidResponse)
    assert arrival.request is second
    assert [*talk.pending] == [first.id]


HEAD, TAIL = b'{"jsonrpc":"2.0","id":"%b","result":{"text":', b"}}"


@pytest.mark.rule("CLIENT-40")
@pytest.mark.parametrize(
    ("line", "is_taken"),
    [
        (HEAD + b"NaN" + TAIL, True),
        (HEAD + b'"caf\xe9"' + TAIL, True),
        (b"ready." + HEAD + b'"x"' + TAIL, True),
        (b'received {"id":"%b","method":"tools/call","params":{"result":"error"}}', False),
        (b'received {"id":"%b","method":"tools/call"}', False),
        (b'{"id":"%b"', False),
    ],
    ids=["NaN", "Latin-1", "text before it", "the request", "of no result", "a part"],
)
def test_line_that_is_no_json_answers_the_request_whose_response_it_holds(
    line: bytes, is_taken: bool
) -> None:
    talk, (first, second) = pending("tools/call", "tools/call")
    arrival = only(talk.receive(line % second.id.encode(), None))
    assert isinstance(arrival, InvalidResponse if is_taken else Ignored)
    assert [*talk.pending] == ([first.id] if is_taken else [first.id, second.id])


@pytest.mark.rule("CLIENT-40")
def test_line_of_two_responses_answers_both_requests() -> None:
    talk, sent = pending("a", "b")
    line = b"".join(HEAD % each.id.encode() + b'"x"' + TAIL for each in sent)
    arrivals = talk.receive(line, None)
    assert [type(each) for each in arrivals] == [InvalidResponse] * 2
    assert talk.pending == {}


@pytest.mark.rule("CLIENT-41")
@pytest.mark.parametrize(
    ("text", "read"),
    [
        (rb'"cut \ud83d"', "cut \ufffd"),
        (rb'"\ude00 cut"', "\ufffd cut"),
        (rb'"\ud83d\ud83d\ude00\ude00"', "\ufffd\U0001f600\ufffd"),
        (rb'"\\ud83d \ud83d"', r"\ud83d " + "\ufffd"),
        (rb'"\n\uD83D\n"', "\n\ufffd\n"),
        (rb'"\\\ud83d"', "\\\ufffd"),
    ],
)
def test_lone_surrogate_is_read_as_replacement_character(text: bytes, read: str) -> None:
    talk, [request] = pending("a")
    arrival = only(talk.receive(HEAD % request.id.encode() + text + TAIL, None))
    assert isinstance(arrival, ResponseReceived)
    assert arrival.result == {"text": read}


# -- what a server says unasked


@pytest.mark.rule("CLIENT-16")
def test_notification_belongs_to_its_subscription_else_to_its_stream() -> None:
    talk, (first, second) = pending("a", "b")

    def about(params: Any, stream: str | None) -> PendingRequest | None:
        told = only(talk.receive(line(method="notifications/message", params=params), stream))
        assert isinstance(told, NotificationReceived)
        return told.request

    assert about({}, None) is None
    assert about({}, first.id) is first
    assert about({"_meta": {SUBSCRIPTION_ID_KEY: second.id}}, first.id) is second
    assert about({"_meta": {SUBSCRIPTION_ID_KEY: "gone"}}, first.id) is None
    assert about({"_meta": {SUBSCRIPTION_ID_KEY: [1]}}, first.id) is None
    assert about({"_meta": 5}, first.id) is first
    assert about({}, "answered already") is None


@pytest.mark.parametrize("params", [{}, None], ids=repr)
def test_a_notification_without_params_is_one(params: Any) -> None:
    talk = PendingRequests(SequentialIds())
    for said in (line(method="n"), line(method="n", params=params)):
        told = only(talk.receive(said, None))
        assert isinstance(told, NotificationReceived)
        assert told.params == {}


@pytest.mark.rule("CLIENT-12")
@pytest.mark.parametrize("params", [5, "x", [1], True], ids=repr)
def test_a_notification_with_other_params_is_dropped(params: Any) -> None:
    talk = PendingRequests(SequentialIds())
    assert isinstance(only(talk.receive(line(method="n", params=params), None)), Ignored)


@pytest.mark.rule("CLIENT-63")
def test_a_notification_that_is_nested_too_deeply_is_dropped() -> None:
    talk = PendingRequests(SequentialIds())
    deep = b"[" * 400 + b"]" * 400
    said = b'{"jsonrpc":"2.0","method":"n","params":{"a":%b}}'
    dropped = only(talk.receive(said % deep, None))
    assert isinstance(dropped, Ignored) and "nested" in dropped.reason
    flat = only(talk.receive(said % (b"[" + b"[]," * 400 + b"[]]"), None))
    assert isinstance(flat, NotificationReceived)


def test_server_request_may_have_the_id_of_a_client_request() -> None:
    talk, [request] = pending("a")
    arrival = only(talk.receive(line(id=request.id, method="ping"), None))
    assert isinstance(arrival, RequestReceived)
    assert [*talk.pending] == [request.id]


@pytest.mark.rule("CTOOL-20")
def test_server_request_with_long_integer_id_is_answered_under_that_id() -> None:
    line = b'{"jsonrpc": "2.0", "id": 99999999999999999999, "method": "ping"}'
    asked = only(PendingRequests(SequentialIds()).receive(line, None))
    assert isinstance(asked, RequestReceived)
    assert b'"id":99999999999999999999' in encode_response(asked.request, result={})


# -- anything at all


def _messages(ids: list[str]) -> st.SearchStrategy[Any]:
    """Anything a server could send that looks like a message, or does not."""
    some_id = st.sampled_from([*ids, "made up", 1, None])
    members: dict[str, st.SearchStrategy[Any]] = {
        "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", None]),
        "id": some_id,
        "method": st.sampled_from(["ping", "notifications/progress", "notifications/message", 5]),
        "result": st.just({}) | any_json,
        "error": any_json,
        "params": any_json
        | st.fixed_dictionaries(
            {}, optional={"progressToken": some_id, "_meta": any_json, "x": any_json}
        ),
    }
    message = st.fixed_dictionaries({}, optional=members)
    return message | any_json | st.lists(message | any_json, max_size=4)


IDS = [SequentialIds().request_id()[:-1] + str(number) for number in range(1, 5)]


@pytest.mark.rule("CLIENT-12", "CLIENT-13", "CLIENT-14")
@given(st.data())
def test_whatever_comes_in_whatever_order_nothing_is_raised_and_nothing_is_mixed_up(
    data: st.DataObject,
) -> None:
    talk, sent = pending("a", "b", "c", "d")
    assert [each.id for each in sent] == IDS
    waits = {each.id: each for each in sent}
    streams = st.none() | st.sampled_from([*IDS, "unknown"])
    lines = st.one_of(
        _messages(IDS).map(lambda value: json.dumps(value).encode()),
        st.binary(max_size=40),
        st.just(LineTooLong(5)),
    )
    for _ in range(data.draw(st.integers(1, 8))):
        came, stream = data.draw(lines), data.draw(streams)
        for arrival in talk.receive(came, stream):
            if isinstance(arrival, ResponseReceived | InvalidResponse):
                # Taken out of those that wait, exactly once.
                assert waits.pop(arrival.request.id) is arrival.request
                if isinstance(arrival, ResponseReceived) and arrival.error is None:
                    assert type(arrival.result) is dict
            elif isinstance(arrival, NotificationReceived) and arrival.request is not None:
                assert arrival.request in sent
    assert talk.pending == waits


# -- which request makes its server ask


@pytest.mark.rule("QUEST-24", "QUEST-25")
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["send", "send", "respond", "leave", "respond late", "wait"]),
            st.sampled_from(["tools/call", "odd", "ping", "tools/list"]),
            st.integers(0, 5),
        ),
        max_size=25,
    )
)
def test_a_request_is_asked_for_only_if_no_other_can_be_meant(steps: list[Any]) -> None:
    """Held against a model that keeps every request with its whole story."""
    talk = PendingRequests(SequentialIds())
    waiting: list[PendingRequest] = []
    left: dict[str, float] = {}
    now = 0.0
    for what, method, number in steps:
        now += 0.25
        if what == "send":
            waiting.append(talk.add(method, None, None)[0])
        elif what == "wait":
            now += 8 * number
        elif what == "respond late" and left:
            gone = [*left][number % len(left)]
            del left[gone]
            assert isinstance(only(talk.receive(line(id=gone, result={}), None)), Ignored)
        elif waiting and what in ("respond", "leave"):
            request = waiting.pop(number % len(waiting))
            if what == "respond":
                talk.receive(line(id=request.id, result={}), None)
            else:
                del talk.pending[request.id]
                talk.abandon(request, now)
                if request.method in ("tools/call", "odd"):
                    left[request.id] = now
        asking = [each for each in waiting if each.method in ("tools/call", "odd")]
        left = {each: since for each, since in left.items() if now - since <= ABANDONED_SECONDS}
        certain = asking[0] if len(asking) == 1 and not left else None
        assert talk.asker(now) is certain


@pytest.mark.rule("QUEST-25")
def test_requests_that_were_left_are_bounded() -> None:
    talk = PendingRequests(SequentialIds())
    for _ in range(1_500):
        request, _ = talk.add("tools/call", None, None)
        del talk.pending[request.id]
        talk.abandon(request, 0.0)
    assert len(talk.abandoned) == 1_000
    talk.add("tools/call", None, None)
    assert talk.asker(1.0) is None
