"""The lines of a program on stderr, and messages on the wire."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from foundation_rt.apps.dev.client_wire import MAX_SHOWN_BYTES, describe_message
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
