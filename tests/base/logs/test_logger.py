"""The structured logger and its sinks."""

from __future__ import annotations

import copy
import errno
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock, SystemClock
from foundation_rt.base.logs.logger import MemorySink, StderrSink, StructuredLogger
from foundation_rt.base.logs.redaction import REDACTED, Redactor
from foundation_rt.base.logs.traversal import CIRCULAR, UNREADABLE
from foundation_rt.errors import ErrorCode, ToolCompletionOutcome, UsageError
from tests.lab.programs.pipes import fill, pipe

PATIENCE = 60.0  # seconds after which a test that waits has failed
NOW = "2024-01-01T00:00:00.000Z"
COMPLETION = {
    "runId": "00000000-0000-4000-8000-000000000001",
    "correlationId": "00000000-0000-4000-9000-000000000001",
    "toolName": "echo",
    "durationMs": 0.25,
    "outcome": ToolCompletionOutcome.TOOL_ERROR,
    "errorCode": ErrorCode.NOT_FOUND,
    "payloadBytes": 17,
    "late": None,
}


class RawSink:
    """Keeps the bytes of every line."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, line: bytes) -> None:
        self.written.append(line)


def make_logger(
    level: str = "info", context: Mapping[str, Any] | None = None, keys: tuple[str, ...] = ()
) -> tuple[StructuredLogger, MemorySink]:
    sink = MemorySink()
    return StructuredLogger(sink, ManualClock(), level, Redactor(keys), context or {}), sink


def logged(fields: Any) -> dict[str, Any]:
    logger, sink = make_logger()
    logger.info("message", fields)
    (record,) = sink.lines
    return record


# -- records -------------------------------------------------------------------------------------


@pytest.mark.rule("LOG-01", "ID-04")
def test_record_is_one_json_line_with_ordered_members() -> None:
    sink = RawSink()
    clock = ManualClock()
    logger = StructuredLogger(sink, clock, context={"connection": "c"})
    for _ in range(2):  # by the general way, then by the short one
        logger.info("tool call completed", COMPLETION)
    clock.advance(0.5)
    logger.warn("späte\nZeile")
    completion = (
        b'{"timestamp":"2024-01-01T00:00:00.000Z","level":"info","message":"tool call completed",'
        b'"connection":"c","runId":"00000000-0000-4000-8000-000000000001",'
        b'"correlationId":"00000000-0000-4000-9000-000000000001","toolName":"echo",'
        b'"durationMs":0.25,"outcome":"tool_error","errorCode":"NOT_FOUND","payloadBytes":17,'
        b'"late":null}\n'
    )
    assert sink.written == [
        completion,
        completion,
        '{"timestamp":"2024-01-01T00:00:00.500Z","level":"warn",'
        '"message":"späte\\\\u000aZeile","connection":"c"}\n'.encode(),
    ]


@pytest.mark.rule("LOG-02")
def test_levels() -> None:
    order = ["debug", "info", "warn", "error"]
    for lowest, level in enumerate(order):
        logger, sink = make_logger(level)
        for name in order:
            getattr(logger, name)("by name")
            logger.log(name, "by level", {"a": 1})
        expected = [name for name in order[lowest:] for _ in range(2)]
        assert [record["level"] for record in sink.lines] == expected
        assert [logger.is_enabled(name) for name in order] == [
            position >= lowest for position in range(4)
        ]


@pytest.mark.rule("LOG-02")
def test_default_level_is_info() -> None:
    assert StructuredLogger(MemorySink(), ManualClock()).level == "info"


@pytest.mark.rule("LOG-02")
def test_unknown_levels() -> None:
    logger, sink = make_logger("warn")
    assert logger.is_enabled("notice")
    logger.log("notice", "unheard of")
    assert [record["level"] for record in sink.lines] == ["warn"]
    assert not make_logger("error")[0].is_enabled("notice")
    with pytest.raises(UsageError, match="'trace': use one of debug, info, warn, error"):
        make_logger("trace")


@pytest.mark.rule("LOG-03")
def test_record_is_snapshot() -> None:
    logger, sink = make_logger()
    fields = {"list": [1], "flat": 1}
    logger.info("message", fields)
    fields["list"].append(2)  # type: ignore[attr-defined]
    fields["flat"] = 2
    assert sink.lines == [
        {"timestamp": NOW, "level": "info", "message": "message", "list": [1], "flat": 1}
    ]


@pytest.mark.rule("LOG-03")
def test_context_is_read_when_record_is_written() -> None:
    values = [1]
    logger, sink = make_logger(context={"values": values})
    child = logger.child({})
    values.append(2)
    child.info("message")
    assert sink.lines[0]["values"] == [1, 2]


@pytest.mark.rule("LOG-04")
@pytest.mark.parametrize("name", ["timestamp", "level", "message"])
def test_field_named_like_standard_member_is_renamed(name: str) -> None:
    assert logged({name: "x"}) == logged(None) | {f"{name}_": "x"}
    assert logged({name: "x", f"{name}_": "y"}) == logged(None) | {
        f"{name}__": "x",
        f"{name}_": "y",
    }
    logger, sink = make_logger(context={name: "context"})
    for _ in range(2):
        logger.info("message")
        logger.info("message", {name: "field"})
    assert [record[f"{name}_"] for record in sink.lines] == ["context", "field"] * 2


@pytest.mark.rule("LOG-04")
def test_keys_with_same_text_stay_separate() -> None:
    record = logged({1: "a", "1": "b", "message\n": "c"})
    assert (record["1"], record["1_"], record["message\\u000a"]) == ("a", "b", "c")


@pytest.mark.rule("LOG-05")
def test_child_context_takes_precedence() -> None:
    logger, sink = make_logger("debug", {"a": 1, "b": 1, "c": 1}, keys=("pin",))
    child = logger.child({"b": 2, "c": 2}).child(MappingProxyType({"pin": 7}))
    for _ in range(2):
        child.debug("message", {"c": 3})
        logger.debug("message")
    expected = [
        {"a": 1, "b": 2, "c": 3, "pin": REDACTED},
        {"a": 1, "b": 1, "c": 1},
    ]
    standard = {"timestamp": NOW, "level": "debug", "message": "message"}
    assert sink.lines == [standard | members for members in expected * 2]


@pytest.mark.rule("LOG-05")
def test_any_mapping_is_accepted_as_context() -> None:
    context = {"a": 1}
    logger, sink = make_logger(context=MappingProxyType(context))
    context["a"] = 2
    logger.info("message")
    assert sink.lines[0]["a"] == 1


# -- what is kept out ----------------------------------------------------------------------------


@pytest.mark.rule("LOG-06")
def test_secrets_are_redacted_in_fields_and_context() -> None:
    logger, sink = make_logger(context={"session": "s"}, keys=("pin",))
    for _ in range(3):
        logger.info("message", {"apiKey": "x", "pin": 1, "plain": 1})
        logger.info("message", {"plain": {"deep": ({"token": "x"},)}})
        logger.info("message", {"plain": [1]})
    for flat, deep, plain in zip(*[iter(sink.lines)] * 3, strict=True):
        assert flat["session"] == flat["apiKey"] == flat["pin"] == REDACTED
        assert deep["plain"] == {"deep": [{"token": REDACTED}]}
        assert plain["plain"] == [1]


@pytest.mark.rule("LOG-11", "LOG-12")
@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\nb\x00", "a\\u000ab\\u0000"),
        ("\x7f", "\\u007f"),
        ("\x85", "\\u0085"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\ud800", "\\ud800"),
        ("Ölçü 測定", "Ölçü 測定"),
        ('"quoted" \\', '"quoted" \\'),
        ("a" * 1025, "a" * 1024 + " [cut at 1024 of 1025 characters]"),
    ],
)
def test_text_is_sanitized_everywhere(text: str, clean: str) -> None:
    logger, sink = make_logger(context={"context": text})
    for _ in range(2):
        logger.info(text, {"field": text, "nested": [{"field": text}]})
        logger.info(text, {"field": text})
    for record in sink.lines:
        assert record["message"] == record["field"] == record["context"] == clean
    assert sink.lines[0]["nested"] == [{"field": clean}]
    assert logger.sanitize(text) == clean


@pytest.mark.rule("LOG-11")
def test_keys_are_sanitized() -> None:
    logger, sink = make_logger()
    for _ in range(2):
        logger.info("message", {"a\nb": 1})
    assert all(record["a\\u000ab"] == 1 for record in sink.lines)


@pytest.mark.rule("LOG-14")
def test_numbers_beyond_json() -> None:
    logger, sink = make_logger()
    fields = {"nan": float("nan"), "inf": float("-inf"), "big": 2**64, "id": 2**64 - 1}
    for _ in range(2):
        logger.info("message", fields)
        logger.info("message", {"nan": float("nan")})
    for record in sink.lines[::2]:
        assert record["nan"] is None
        assert record["inf"] is None
        assert record["big"] == str(2**64)
        assert record["id"] == 2**64 - 1
    assert [record["nan"] for record in sink.lines[1::2]] == [None, None]


@pytest.mark.rule("LOG-14")
def test_foreign_json_is_not_trusted() -> None:
    logger, sink = make_logger()
    for _ in range(2):
        logger.info("message", {"raw": orjson.Fragment(b'{"token":1}\n oops')})
    assert all(record["raw"].startswith("<orjson.Fragment") for record in sink.lines)


@pytest.mark.rule("LOG-08")
def test_logger_offers_redaction() -> None:
    logger, _ = make_logger(keys=("pin",))
    value = {"a": [1]}
    assert logger.redact(value) is value
    assert logger.redact({"pin": 1}) == {"pin": REDACTED}


# -- it never raises -----------------------------------------------------------------------------


class Unreadable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise SystemExit

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


@pytest.mark.rule("LOG-15")
def test_unreadable_fields_leave_rest_of_record() -> None:
    assert logged(Unreadable()) == logged(None) | {"fields": UNREADABLE}
    assert logged({"value": Unreadable(), "a": 1}) == logged(None) | {"value": UNREADABLE, "a": 1}


@pytest.mark.rule("LOG-09", "LOG-38", "LOG-15")
def test_fields_and_messages_of_the_wrong_type() -> None:
    assert logged(["a"])["fields"] == ["a"]
    assert logged("a\n")["fields"] == "a\\u000a"
    fields: dict[str, Any] = {}
    fields["self"] = fields
    assert logged(fields)["self"] == CIRCULAR
    logger, sink = make_logger()
    logger.error(ValueError("bad"))  # type: ignore[arg-type]
    logger.error(None)  # type: ignore[arg-type]
    assert [record["message"] for record in sink.lines] == [
        {"type": "ValueError", "message": "bad"},
        None,
    ]


@pytest.mark.rule("LOG-15")
def test_exception_of_sink_does_not_reach_caller() -> None:
    class Failing:
        def write(self, line: bytes) -> None:
            raise OSError(errno.EIO, "no")

    StructuredLogger(Failing(), ManualClock()).info("message")


@pytest.mark.rule("LOG-15")
def test_fields_changed_by_another_thread() -> None:
    logger, sink = make_logger()
    fields: dict[str, Any] = {str(number): [number] for number in range(300)}
    done = threading.Event()

    def change() -> None:
        number = 0
        while not done.is_set():
            number += 1
            fields[f"more{number % 50}"] = number
            fields.pop(f"more{(number + 25) % 50}", None)

    thread = threading.Thread(target=change)
    thread.start()
    for _ in range(200):
        logger.info("message", fields)
    done.set()
    thread.join(PATIENCE)
    for record in sink.lines:
        assert record.get("fields") == UNREADABLE or record["299"] == [299]


# -- the short way and the general way -----------------------------------------------------------

texts = st.text(st.characters(), max_size=12) | st.sampled_from(
    ["", "plain", "\x7f", '"', "\\", "x" * 1100, "[", "{"]
)
keys = st.sampled_from(["a", "b", "name", "value", "level", "message_", "token", "é"]) | texts
scalars = (
    texts
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.none()
    | st.sampled_from(ErrorCode)
    | st.lists(texts, max_size=2)
)
records = st.dictionaries(
    keys,
    st.recursive(scalars, lambda inner: st.dictionaries(keys, inner, max_size=2), max_leaves=6),
    max_size=5,
)


@pytest.mark.rule("LOG-01", "LOG-03", "LOG-04", "LOG-06", "LOG-11")
@given(texts, records, records)
def test_both_encoders_produce_same_line(
    message: str, context: dict[str, Any], fields: dict[str, Any]
) -> None:
    sink = RawSink()
    logger = StructuredLogger(sink, ManualClock(), context=context)
    before = copy.deepcopy((context, fields))
    for _ in range(3):
        logger.info(message, fields)
    sink.written.append(logger._encode(NOW, "info", message, fields))
    assert len(set(sink.written)) == 1
    assert repr((context, fields)) == repr(before)
    line = sink.written[0]
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert list(orjson.loads(line))[:3] == ["timestamp", "level", "message"]


@pytest.mark.rule("LOG-03", "LOG-05", "LOG-06", "LOG-11")
@given(texts, keys, scalars, keys, texts)
def test_line_does_not_depend_on_record_before(
    message: str, name: str, value: Any, context_name: str, context_value: str
) -> None:
    sink = RawSink()
    context = {"context": "before"}
    logger = StructuredLogger(sink, ManualClock(), context=context)
    for changed, fields in (
        ({}, {"field": "before"}),
        ({}, {"field": value}),
        ({"context": context_value}, {"field": value}),
        ({context_name: "after"}, {name: value}),
    ):
        context.update(changed)
        for each in (logger, logger.child({}), logger.child({"child": context_value})):
            each.info(message, fields)
            assert sink.written[-1] == each._encode(NOW, "info", message, fields)


@pytest.mark.rule("LOG-33")
def test_known_keys_are_bounded() -> None:
    logger, sink = make_logger()
    for number in range(10_000):
        logger.info("message", {f"key-less{number}": number, f"field{number}": number})
        assert len(logger._starts) <= 8
    assert len(logger._plain_keys) <= 4098
    assert sink.lines[-1]["field9999"] == 9999


# -- standard error ------------------------------------------------------------------------------


def records_in(fd: int) -> list[dict[str, Any]]:
    """Everything up to the end of a pipe, decoded."""
    with os.fdopen(os.dup(fd), "rb") as file:
        return [orjson.loads(line) for line in file.read().splitlines()]


@pytest.mark.rule("LOG-16", "LOG-39")
def test_unread_lines_are_dropped_counted_and_reported() -> None:
    with pipe() as (reader, end):
        clock = ManualClock()
        sink = StderrSink(1000, clock=clock, fd=end)
        logger = StructuredLogger(sink, clock)
        spaces = fill(end, b" ")
        for number in range(50):
            logger.info("message", {"number": number})
        dropped = sink.dropped
        assert 0 < dropped < 50
        clock.advance(1)
        while spaces:
            spaces -= len(os.read(reader, spaces))
        assert sink.flush(PATIENCE)
        logger.info("room again")
        logger.info("no loss since")
        sink.close(PATIENCE)
        os.close(end)
        records = records_in(reader)
    assert [record["number"] for record in records[:-3]] == list(range(50 - dropped))
    assert records[-3:-1] == [
        {
            "timestamp": "2024-01-01T00:00:01.000Z",
            "level": "warn",
            "message": "log lines dropped",
            "dropped": dropped,
        },
        {"timestamp": "2024-01-01T00:00:01.000Z", "level": "info", "message": "room again"},
    ]
    assert records[-1]["message"] == "no loss since"


@pytest.mark.rule("LOG-39", "LOG-18")
def test_closing_reports_last_dropped_lines() -> None:
    with pipe() as (reader, end):
        sink = StderrSink(100, clock=ManualClock(), fd=end)
        sink.write(b"x" * 101)
        sink.close(PATIENCE)
        os.close(end)
        assert [record["dropped"] for record in records_in(reader)] == [1]


@pytest.mark.rule("LOG-16")
def test_default_capacity_is_4_mib() -> None:
    with pipe() as (_, end):
        fill(end, b" ")
        sink = StderrSink(fd=end)
        for _ in range(4096):
            sink.write(b"x" * 1024)
        assert sink.dropped == 0
        sink.write(b"x")
        assert sink.dropped == 1
        sink.close(0)


@pytest.mark.rule("LOG-19")
def test_log_stops_when_reader_is_gone() -> None:
    with pipe() as (reader, end):
        os.close(reader)
        sink = StderrSink(fd=end)
        logger = StructuredLogger(sink, SystemClock())
        logger.error("lost")
        assert not sink.flush(PATIENCE)
        logger.error("lost")
        assert sink.dropped == 2
        sink.close(PATIENCE)
    sink = StderrSink(fd=end)
    sink.write(b"{}\n")
    assert not sink.flush(PATIENCE)
    assert sink.dropped == 1


@pytest.mark.rule("LOG-18")
def test_collected_sink_is_flushed() -> None:
    with pipe() as (reader, end):
        sink = StderrSink(fd=end)
        sink.write(b'{"a":1}\n')
        del sink
        gc.collect()
        os.close(end)
        assert records_in(reader) == [{"a": 1}]


def run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.rule("LOG-01", "LOG-18")
def test_process_logs_only_to_stderr_until_exit() -> None:
    done = run(
        "from foundation_rt.base.clock import SystemClock\n"
        "from foundation_rt.base.logs.logger import StderrSink, StructuredLogger\n"
        "logger = StructuredLogger(StderrSink(), SystemClock())\n"
        "logger.info('one')\n"
        "logger.error('two')\n"
    )
    assert (done.returncode, done.stdout) == (0, "")
    records = [orjson.loads(line) for line in done.stderr.splitlines()]
    assert [record["message"] for record in records] == ["one", "two"]
