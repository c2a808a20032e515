"""The log records and the metrics of turns."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from foundation_rt import Server
from foundation_rt.apps.host.chat import chat_label
from foundation_rt.apps.host.orchestrator import TurnMetrics
from foundation_rt.base.logs.redaction import Redactor
from tests.lab.host.chat import Desk, ScriptedModel, approving, call, chat, say

SECRET = "s3ss10n"


async def one_turn(**options: Any) -> None:
    model = ScriptedModel([["private words", call("desk:note", "c1", text="private note")]])
    async with chat(model, Desk(), **options) as orchestrator:
        act = approving(orchestrator, session=SECRET)
        await say(orchestrator, "private question", session=SECRET, turn="t1", act=act)


@pytest.mark.rule("TURN-70", "TURN-71")
async def test_records_have_the_fields_of_the_turn_and_no_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "foundation_rt.host")
    await one_turn()
    records = [each for each in caplog.records if each.name == "foundation_rt.host"]
    fields = [each.fields for each in records]  # type: ignore[attr-defined]
    assert [each["action"] for each in fields] == [
        "turn_started",
        "approval",
        "tool_execution_start",
        "tool_execution_end",
        "turn_ended",
    ]
    for each in fields:
        assert each["chat"] == chat_label(SECRET)
        assert each["requestId"] == each["correlationId"] == "t1"
        is_call = each["action"].startswith("tool_execution")
        assert each["component"] == ("MCP" if is_call else "Orchestrator")
    shown = Redactor().redact(fields[-1])
    assert (shown["usage"]["prompt"], shown["usage"]["total"]) == (20, 22)
    assert fields[3]["tool"] == "desk:note"
    written = str(fields)
    assert "private" not in written
    assert SECRET not in written


@pytest.mark.rule("TURN-71")
async def test_words_are_in_debug_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "foundation_rt.host")
    await one_turn()
    written = str([getattr(each, "fields", "") for each in caplog.records])
    assert "private question" in written
    assert SECRET not in written


@pytest.mark.rule("TURN-72")
async def test_metrics_count_turns_tokens_rounds_calls_and_approvals() -> None:
    server = Server("host")
    server.override("telemetry", metrics=True)
    assert server.runtime.metrics is not None
    metrics = TurnMetrics(server)
    await one_turn(more={"metrics": metrics})
    text = server.runtime.metrics.render()[1].decode()
    for line in (
        'mcp_host_turns_total{state="finished"} 1.0',
        'mcp_host_tokens_total{kind="prompt"} 20.0',
        "mcp_host_rounds_total 1.0",
        'mcp_host_calls_total{result="success"} 1.0',
        'mcp_host_approvals_total{decision="once"} 1.0',
        "mcp_host_first_token_seconds_count 2.0",
        "mcp_host_turn_seconds_count 1.0",
    ):
        assert line in text
