"""The lines of a program on stderr, and messages on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pytest

from foundation_rt.apps.dev import client_wire
from foundation_rt.apps.dev.client_wire import (
    MAX_SHOWN_BYTES,
    ClientWire,
    NotingIds,
    describe_message,
)
from foundation_rt.apps.dev.journal import Journal
from foundation_rt.apps.dev.log_lines import REPORT_KEY, LogLine, read_line


def record(**members: object) -> str:
    return orjson.dumps(members).decode()


@pytest.mark.rule("DEV-23")
def test_record_has_its_own_time_ids_and_fields() -> None:
    text = record(
        timestamp="2026-01-02T03:04:05.678Z",
        level="warn",
        message="slow",
        runId="r1",
        correlationId="c1",
        toolName="order",
    )
    found = read_line(text)
    assert isinstance(found, LogLine)
    assert found.at == 1767323045678.0
    assert found.to_json() == {
        "level": "warn",
        "message": "slow",
        "runId": "r1",
        "correlationId": "c1",
        "fields": {"toolName": "order"},
    }


@pytest.mark.rule("DEV-23")
def test_record_whose_time_cannot_be_read_has_none() -> None:
    found = read_line(record(timestamp="yesterday", level="info", message="x"))
    assert isinstance(found, LogLine)
    assert (found.at, found.message) == (None, "x")


@pytest.mark.rule("DEV-23")
@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "",
        "{",
        "[1]",
        "{}",
        '{"level": "loud", "message": "x"}',
        '{"level": "info"}',
        "\ud800",
    ],
)
def test_any_other_line_is_as_it_came(text: str) -> None:
    found = read_line(text)
    assert isinstance(found, LogLine)
    assert (found.level, found.message) == ("stderr", text)


@pytest.mark.rule("DEV-23")
def test_long_lines_are_cut() -> None:
    plain = read_line("x" * 99_999)
    long = read_line(record(level="info", message="m" * 99_999, big="x" * 99_999))
    assert isinstance(plain, LogLine)
    assert isinstance(long, LogLine)
    assert len(plain.message) == len(long.message) == 16 * 1024
    assert long.fields is not None
    assert [*long.fields] == ["cut"]


@pytest.mark.rule("DEV-23")
def test_report_of_the_loader_is_no_record() -> None:
    assert read_line(record(**{REPORT_KEY: {"pid": 3}})) == {"pid": 3}
    assert isinstance(read_line(record(**{REPORT_KEY: 3})), LogLine)


@pytest.mark.rule("DEV-22")
@pytest.mark.parametrize(
    ("line", "kind", "method", "message_id"),
    [
        ({"id": 1, "method": "ping"}, "request", "ping", 1),
        ({"method": "a/b"}, "notification", "a/b", None),
        ({"id": "x", "result": {}}, "response", None, "x"),
        ({"id": [1], "result": {}}, "response", None, None),
        ({"result": {}}, "invalid", None, None),
        ([{"id": 1}], "batch", None, None),
        ("x", "invalid", None, None),
    ],
)
def test_messages_are_told_by_their_kind(
    line: Any, kind: str, method: str | None, message_id: Any
) -> None:
    data = orjson.dumps(line)
    found = describe_message(data)
    assert (found.kind, found.method, found.id, found.size) == (kind, method, message_id, len(data))
    assert found.to_json()["message"] == line


@pytest.mark.rule("DEV-22")
def test_long_message_is_cut_and_its_size_told() -> None:
    data = orjson.dumps({"id": 1, "result": {"text": "x" * 99_999}})
    shown = describe_message(data).to_json()
    assert shown["message"] is None
    assert shown["truncated"] is True
    assert len(shown["text"]) == MAX_SHOWN_BYTES
    assert shown["bytes"] == len(data)


@pytest.mark.rule("DEV-22")
def test_what_is_no_json_is_shown_as_text() -> None:
    shown = describe_message(b"\xffnot json").to_json()
    assert (shown["kind"], shown["message"], shown["truncated"]) == ("invalid", None, False)
    assert shown["text"].endswith("not json")


ID = "s-1"
JSON, STREAM = b"application/json", b"text/event-stream"


class Front:
    """Records one HTTP exchange after the other, and has what was told of them."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.wire = ClientWire(self.journal, "/mcp")

    async def exchange(
        self,
        request: bytes | Sequence[bytes],
        answer: Iterable[bytes] = (),
        *,
        session: str | None = ID,
        kind: bytes = JSON,
        status: int = 200,
        method: str = "POST",
        new: str | None = None,
        ids: NotingIds | None = None,
    ) -> None:
        bodies = [request] if isinstance(request, bytes) else [*request]
        parts = [{"type": "http.request", "body": each, "more_body": True} for each in bodies]
        parts[-1]["more_body"] = False
        pending = iter(parts)

        async def receive() -> Any:
            return next(pending)

        async def send(_: Any) -> None:
            return

        async def app(_: Any, receive: Any, send: Any) -> None:
            while (await receive())["more_body"]:
                pass
            if ids is not None:
                ids.correlation_id()
            headers = [
                (b"Content-Type", kind),
                *([(b"Mcp-Session-Id", new.encode())] if new else []),
            ]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            for each in answer:
                await send({"type": "http.response.body", "body": each, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        own = [] if session is None else [(b"mcp-session-id", session.encode())]
        scope = {"type": "http", "path": "/mcp", "method": method, "headers": own}
        await self.wire.around(app)(scope, receive, send)

    async def begin(self) -> None:
        await self.exchange(rpc(0, "initialize"), session=None, new=ID)

    def told(self, kind: str, *names: str) -> list[Any]:
        events = [orjson.loads(each.data) for each in self.journal.after(0) if each.kind == kind]
        return [tuple(each.get(name) for name in names) for each in events]

    def ends(self) -> list[Any]:
        return [
            each[1:] for each in self.told("call", "phase", "id", "outcome") if each[0] == "end"
        ]


def rpc(number: Any, method: str = "tools/call", **params: object) -> bytes:
    return orjson.dumps({"id": number, "method": method, "params": params})


def event(value: object) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def said(text: object) -> dict[str, object]:
    return {"isError": True, "content": [{"type": "text", "text": text}]}


@pytest.mark.rule("DEV-24")
@pytest.mark.parametrize(
    ("result", "outcome", "error"),
    [
        ({"resultType": "input_required"}, "input_required", None),
        (said("no stock"), "tool_error", {"code": None, "message": "no stock"}),
        (said("[1]"), "tool_error", {"code": None, "message": "[1]"}),
        (said(3), "tool_error", {"code": None, "message": ""}),
        (said('{"code": 3, "message": "x"}'), "tool_error", {"code": None, "message": "x"}),
    ],
)
async def test_end_of_a_call_has_the_outcome_of_its_result(
    result: object, outcome: str, error: object
) -> None:
    front = Front()
    await front.begin()
    await front.exchange(rpc(1), [orjson.dumps({"id": 1, "result": result})])
    assert front.told("call", "phase", "outcome", "error")[1:] == [("end", outcome, error)]


@pytest.mark.rule("DEV-24")
async def test_call_that_nothing_answers_is_lost_with_its_session_or_when_too_many_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_wire, "MAX_OPEN_CALLS", 2)
    front = Front()
    await front.begin()
    for number in range(3):
        await front.exchange(rpc(number))
    assert front.ends() == [(0, "lost")]
    await front.exchange(b"", method="DELETE")
    assert front.ends() == [(0, "lost"), (1, "lost"), (2, "lost")]
    assert not front.wire.sessions
    await front.exchange(rpc(1), status=404)  # its id is of no session any more
    await front.exchange(b"", session=None, method="GET", status=404)
    assert front.told("wire", "session", "method")[-1] == (None, "tools/call")


@pytest.mark.rule("DEV-24")
async def test_cancelled_call_ends_and_one_that_has_ended_stays() -> None:
    front = Front()
    await front.begin()
    await front.exchange(rpc(1))
    for _ in range(2):
        await front.exchange(rpc(None, "notifications/cancelled", requestId=1))
    assert front.ends() == [(1, "cancelled")]


@pytest.mark.rule("DEV-24")
async def test_call_has_the_correlation_id_of_its_client_or_of_the_front() -> None:
    front, ids = Front(), NotingIds()
    await front.begin()
    await front.exchange(rpc(1, _meta={"correlationId": "own"}), ids=ids)
    await front.exchange(rpc(2), ids=ids)
    await front.exchange(rpc(3, "ping"), ids=ids)
    ids.correlation_id()  # of no exchange
    [first, second] = front.told("call", "id", "correlationId")
    assert first == (1, "own")
    assert second[0] == 2
    assert [*front.wire.calls_by_correlation] == ["own", second[1]]


@pytest.mark.rule("DEV-22")
async def test_messages_that_come_in_pieces_are_told_whole() -> None:
    front = Front()
    await front.begin()
    request, answer = rpc(1), event({"method": "a"}) + event({"id": 1, "result": {}})
    for cut in range(1, len(answer)):
        pieces = [answer[:cut], answer[cut:]]
        await front.exchange([request[:9], request[9:]], pieces, kind=STREAM)
        *_, asked, noted, answered = front.told("wire", "direction", "method", "kind")
        assert asked == ("in", "tools/call", "request")
        assert noted == ("out", "a", "notification")
        assert answered == ("out", None, "response")
    assert {each[1] for each in front.ends()} == {"ok"}


@pytest.mark.rule("DEV-22")
async def test_of_a_message_that_is_too_long_to_keep_the_size_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_wire, "MAX_KEPT_BYTES", 200)
    front = Front()
    await front.begin()
    request = rpc(1, text="x" * 300)
    answer = event({"id": 1, "result": "x" * 300})
    pieces = [answer[:150], answer[150:]]
    await front.exchange(request, pieces, kind=STREAM)
    asked, answered = front.told("wire", "kind", "bytes", "message")[-2:]
    assert asked == ("invalid", len(request), None)
    assert answered == ("invalid", len(answer) - 65, None)
