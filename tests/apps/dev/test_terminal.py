"""The lines that the author sees."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.apps.dev.terminal import Styled, Terminal

pytestmark = pytest.mark.rule("DEV-41")

NOTHING: dict[str, list[str]] = {"added": [], "removed": [], "changed": []}
LISTS = dict.fromkeys(("tools", "resources", "resourceTemplates", "prompts", "skills"), NOTHING)
CALL = {
    "at": 0.0,
    "phase": "end",
    "method": "tools/call",
    "name": "order",
    "outcome": "ok",
    "durationMs": 12.3,
    "client": "ann",
    "error": None,
}
LOG = {"at": 0.0, "server": "shop", "call": None, "level": "info", "message": "x", "fields": {}}
RESTART = {
    "at": 0.0,
    "server": "shop",
    "first": False,
    "because": ["tools.py"],
    "outcome": "running",
    "durationMs": 456.0,
    "error": None,
    **LISTS,
}


def lines(kind: str, members: dict[str, Any], *, many: bool = False) -> list[str]:
    found: list[str] = []

    def write(line: list[Styled]) -> None:
        found.append("".join(text for text, _ in line))

    Terminal(write, many=many).take(kind, members)
    return [each[8:] if each[2:3] == ":" else each for each in found]


def test_call_has_name_outcome_duration_and_client() -> None:
    assert lines("call", CALL) == [" order  ok  12 ms  ann"]
    assert lines("call", {**CALL, "phase": "start"}) == []
    read = {**CALL, "method": "resources/read", "name": "a:b", "client": None, "durationMs": 12_345}
    assert lines("call", read) == [" resources/read a:b  ok  12.3 s"]
    error = {"code": "INTERNAL", "message": "no stock"}
    assert lines("call", {**CALL, "outcome": "tool_error", "error": error})[1:] == [
        "         INTERNAL: no stock"
    ]


@pytest.mark.parametrize("outcome", ["error", "input_required", "cancelled", "lost"])
def test_every_outcome_has_a_word(outcome: str) -> None:
    assert len(lines("call", {**CALL, "outcome": outcome})) == 1


def test_restart_names_files_and_what_differs() -> None:
    tools = {"added": ["refund"], "removed": [], "changed": ["order", "pay"]}
    assert lines("restart", {**RESTART, "tools": tools}) == [
        " restarted: tools.py  456 ms",
        "         + tool refund",
        "         ~ tools order, pay",
    ]
    assert lines("restart", {**RESTART, "first": True}, many=True) == [" shop running  456 ms"]
    assert lines("restart", {**RESTART, "because": []}) == [
        " restarted: it had ended by itself  456 ms"
    ]
    many = {**NOTHING, "added": [f"t{number}" for number in range(40)]}
    assert lines("restart", {**RESTART, "tools": many})[1].endswith("t11 and 28 more")


def test_failure_names_the_place_and_what_to_do() -> None:
    error = {"message": "SyntaxError: x", "file": "/w/tools.py", "line": 3, "source": "def ("}
    assert lines("restart", {**RESTART, "outcome": "failed", "error": error}) == [
        " cannot run  (tools.py)",
        "         /w/tools.py:3",
        "         def (",
        "         SyntaxError: x",
        "         It is started again when a file changes.",
    ]


def test_log_records_are_short_and_noise_is_left_out() -> None:
    assert lines("log", {**LOG, "fields": {"item": "tea", "logger": "x"}}) == ["       x item=tea"]
    assert lines("log", {**LOG, "level": "warn", "call": "c1-1"}, many=True) == [
        "         shop: warn x"
    ]
    assert lines("log", {**LOG, "server": None}) == []
    assert lines("log", {**LOG, "message": "tool call completed"}) == []
    error = {"type": "ValueError", "message": "no", "frames": ["a.py:1 f", "tools.py:3 order"]}
    assert lines("log", {**LOG, "level": "error", "fields": {"error": error}}) == [
        "       error x error=ValueError: no at tools.py:3 order"
    ]
    group = {"type": "ExceptionGroup", "message": "1", "frames": [], "exceptions": [error]}
    assert lines("log", {**LOG, "level": "error", "fields": {"error": group}}) == [
        "       error x error=ValueError: no at tools.py:3 order"
    ]


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "\x1b]0;title\x07", "a\nb", "\u202edlrow", "\x9b31m"]
)
def test_nothing_that_a_program_writes_reaches_the_terminal_as_a_command(hostile: str) -> None:
    error = {"code": hostile, "message": hostile, "file": hostile, "source": hostile, "line": 1}
    lists = {**NOTHING, "added": [hostile]}
    shown = "".join(
        [
            *lines("call", {**CALL, "name": hostile, "client": hostile, "error": error}),
            *lines("log", {**LOG, "message": hostile, "fields": {hostile: hostile}}),
            *lines("restart", {**RESTART, "because": [hostile], "tools": lists}),
            *lines("restart", {**RESTART, "outcome": "failed", "error": error}),
        ]
    )
    assert not {"\x1b", "\x07", "\n", "\u202e", "\x9b"} & set(shown)


def test_long_texts_are_cut() -> None:
    (line,) = lines("log", {**LOG, "message": "x" * 10_000})
    assert len(line) < 450
