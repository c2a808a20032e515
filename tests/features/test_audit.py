"""Who did what: the records of the audit log."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import Server, ToolContext, ToolDefinition, UsageError
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import AuditSection, RateLimitSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.audit import AuditLog, _show
from foundation_rt.features.composition import ServerOptions
from foundation_rt.protocol.principal import Principal
from foundation_rt.testing import ProtocolError, TestClient
from tests.lab.apps.observed import call_everything, converse, make_server, refused
from tests.lab.peers.forwarders import ScriptedForwarder

CALL = ("TOOL_INVOCATION_START", "TOOL_INVOCATION_COMPLETED")
EVERYTHING = ["SECURITY", "TOOL", "DATA", "ADMIN", "ERROR"]


def shortened(text: str) -> str:
    """Return a long text as the mode `truncate` shows it."""
    return f"{text[:64]} [cut at 64 of {len(text)} characters]"


def audit(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["message"] == "audit"]


def audited(server: Server | None = None, talk: Any = call_everything) -> list[dict[str, Any]]:
    """Return the audit records of a conversation."""
    return audit(converse(server or make_server({"audit": {"enabled": True}}), talk))


@pytest.mark.rule("OPS-11", "OPS-12")
def test_every_event_is_recorded_with_its_category() -> None:
    told = [(line["eventType"], line["category"], line["success"]) for line in audited()]
    start, failed = ("TOOL_INVOCATION_START", "TOOL", True), "TOOL_INVOCATION_FAILED"
    refused = ("TOOL_INVOCATION_REFUSED", "ERROR", False)
    assert told == [
        ("SESSION_OPENED", "SECURITY", True),
        start,
        ("TOOL_INVOCATION_COMPLETED", "TOOL", True),
        *[start, (failed, "ERROR", False)] * 3,
        refused,
        refused,
        ("RESOURCE_READ_START", "DATA", True),
        ("RESOURCE_READ_COMPLETED", "DATA", True),
        ("RESOURCE_READ_START", "DATA", True),
        ("RESOURCE_READ_FAILED", "ERROR", False),
        ("PROMPT_GET_START", "DATA", True),
        ("PROMPT_GET_COMPLETED", "DATA", True),
        ("COMPLETION_START", "DATA", True),
        ("COMPLETION_COMPLETED", "DATA", True),
        ("SESSION_CLOSED", "SECURITY", True),
    ]


@pytest.mark.rule("OPS-11")
def test_record_has_event_client_and_outcome() -> None:
    async def talk(client: TestClient) -> None:
        client.connection.session.principal = Principal("alice", client_id="desk")
        params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {"correlationId": "c"}}
        await client.request("tools/call", params)

    start, completed = (line for line in audited(talk=talk) if line["eventType"] in CALL)
    assert start == {
        "timestamp": "2024-01-01T00:00:00.000Z",
        "level": "info",
        "message": "audit",
        "eventType": "TOOL_INVOCATION_START",
        "category": "TOOL",
        "success": True,
        "connectionCorrelationId": start["connectionCorrelationId"],
        "transport": "memory",
        "subject": "alice",
        "clientId": "desk",
        "correlationId": "c",
        "runId": start["runId"],
        "toolName": "add",
        "metadata": {"arguments": {"a": 1, "b": 2}},
    }
    expected = start | {"eventType": "TOOL_INVOCATION_COMPLETED"}
    expected["metadata"] = {"outcome": "success", "durationMs": 0.0}
    assert completed == expected


@pytest.mark.rule("OPS-25", "OPS-26")
def test_failure_is_a_warning_with_code_and_reason() -> None:
    failed = [line for line in audited() if not line["success"]]
    assert {line["level"] for line in failed} == {"warn"}
    codes = [(line.get("errorCode"), line["metadata"].get("reason")) for line in failed]
    assert codes == [
        (None, None),
        ("NOT_FOUND", None),
        ("INTERNAL", None),
        ("NOT_FOUND", "NOT_FOUND"),
        ("INVALID_ARGUMENT", "schema_validation"),
        ("NOT_FOUND", None),
    ]


@pytest.mark.rule("OPS-41")
def test_record_of_a_failed_call_says_what_went_wrong() -> None:
    async def talk(client: TestClient) -> None:
        await call_everything(client)
        await refused(client, "prompts/get", {"name": "nowhere"})
        await refused(client, "tools/call", {"name": 5})

    def messages(how: str) -> list[str | None]:
        server = make_server({"audit": {"enabled": True, "sensitive_data": how}})
        return [each.get("errorMessage") for each in audited(server, talk) if not each["success"]]

    assert messages("truncate") == [
        "it went wrong",
        "Nowhere.",
        "The tool failed. LookupError: details for the operator",
        "There is no tool 'nowhere'.",
        'Invalid arguments: the arguments must have the property "b".',
        "There is no lost.",
        "Invalid params: there is no prompt 'nowhere'",
        "Invalid params: name must be a string",
    ]
    assert set(messages("redact")) == {"[REDACTED]"}


@pytest.mark.rule("OPS-41", "FWD-01")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([7, {"text": 7}, {"type": "text", "text": "no paper"}], "no paper"),
        (None, "The result is an error without a text."),
    ],
)
def test_record_of_a_forwarded_failure_has_its_first_text(content: Any, message: str) -> None:
    async def talk(client: TestClient) -> None:
        await client.request("tools/call", {"name": "theirs", "arguments": {}})

    server = make_server({"audit": {"enabled": True}})
    server.forward(ScriptedForwarder(lambda *_: {"content": content, "isError": True}))
    records = audited(server, talk)
    assert [each["errorMessage"] for each in records if "errorMessage" in each] == [message]


@pytest.mark.rule("OPS-41", "OPS-26")
def test_record_of_an_aborted_call_says_what_ended_it() -> None:
    server = make_server({"audit": {"enabled": True}})

    @server.tool(timeout_ms=1)
    async def slow(context: ToolContext) -> None:
        await context.abort_signal.wait()
        context.abort_signal.raise_if_aborted()

    async def talk(client: TestClient) -> None:
        await client.request("tools/call", {"name": "slow", "arguments": {}})

    [ended] = (each for each in audited(server, talk) if not each["success"])
    assert ended["errorMessage"] == "The tool did not finish within 1 ms. It may still be running."


@pytest.mark.rule("OPS-25")
@pytest.mark.parametrize("category", EVERYTHING)
def test_only_configured_categories_are_written(category: str) -> None:
    only = make_server({"audit": {"enabled": True, "categories": [category]}})
    expected = [line["eventType"] for line in audited() if line["category"] == category]
    assert [line["eventType"] for line in audited(only)] == expected


@pytest.mark.rule("OPS-25")
def test_the_level_of_the_log_does_not_matter() -> None:
    server = make_server({"audit": {"enabled": True}, "logging": {"level": "error"}})
    lines = converse(server, call_everything)
    assert len(audit(lines)) == len(audited())
    assert {line["level"] for line in lines if line["message"] != "audit"} == {"error"}


@pytest.mark.rule("OPS-11")
def test_without_the_audit_log_nothing_is_written() -> None:
    assert audit(converse(make_server(), call_everything)) == []


@pytest.mark.rule("OPS-12", "OPS-26")
def test_calls_of_administrative_tools_are_admin_and_refused_ones_security() -> None:
    on = {
        "security": {"dynamic_registration_enabled": True},
        "tools": {
            "admin_registration_enabled": True,
            "admin_policy": {"mode": "local_stdio_only"},
        },
        "audit": {"enabled": True},
    }

    async def talk(client: TestClient) -> None:
        tool = {"name": "shout", "description": "Say it.", "toolType": "echo"}
        params = {"name": "admin/registerTool", "arguments": tool}
        await client.request("tools/call", params)
        client.connection.session.transport_type = "stdio"
        await client.request("tools/call", params)

    told = [
        (line["eventType"], line["category"], line.get("errorCode"))
        for line in audited(make_server(on), talk)
        if line.get("toolName") == "admin/registerTool"
    ]
    assert told == [
        ("TOOL_INVOCATION_REFUSED", "SECURITY", "UNAUTHORIZED"),
        ("TOOL_INVOCATION_START", "ADMIN", None),
        ("TOOL_INVOCATION_COMPLETED", "ADMIN", None),
    ]


@pytest.mark.rule("OPS-12")
def test_malformed_call_is_recorded_as_refused() -> None:
    async def talk(client: TestClient) -> None:
        with pytest.raises(ProtocolError):
            await client.request("tools/call", {"name": 5})

    [refused] = [line for line in audited(talk=talk) if not line["success"]]
    assert refused["eventType"] == "TOOL_INVOCATION_REFUSED"
    assert "runId" not in refused


@pytest.mark.rule("OPS-22", "OPS-23", "OPS-12", "OPS-26")
def test_call_refused_by_a_rate_limit_is_recorded() -> None:
    config = ServerConfig(audit=AuditSection(enabled=True), rate_limit=RateLimitSection(per_key=1))
    server = Server(options=ServerOptions(config=config))
    server.tool(lambda: 1, name="one")  # type: ignore[call-overload]

    async def talk(client: TestClient) -> None:
        for _ in range(2):
            await client.request("tools/call", {"name": "one", "arguments": {}})

    lines = audited(server, talk)
    *_, before, limited, refused, _ = lines
    assert [before["eventType"], refused["eventType"]] == [CALL[1], "TOOL_INVOCATION_REFUSED"]
    assert refused["metadata"]["reason"] == "rate_limit"
    assert (limited["eventType"], limited["category"]) == ("RATE_LIMIT_EXCEEDED", "SECURITY")
    assert limited["runId"] == refused["runId"] != before["runId"]
    assert limited["toolName"] == "one"
    assert limited["metadata"]["reason"] == "rate_limit"


# -- arguments


def shown(how: str, arguments: dict[str, Any]) -> Any:
    """Return the arguments as the audit log shows them."""

    async def talk(client: TestClient) -> None:
        await client.request("tools/call", {"name": "any", "arguments": arguments})

    server = Server("s", config={"audit": {"enabled": True, "sensitive_data": how}})
    server.register(ToolDefinition("any", "", {"type": "object"}), lambda a, c: 1, inline=True)
    [start] = [line for line in audited(server, talk) if line["eventType"].endswith("_START")]
    return start["metadata"]["arguments"]


ARGUMENTS = {
    "text": "x" * 100,
    "short": "y" * 64,
    "numbers": [*range(20)],
    "deep": {"a": {"b": {"c": {"d": 1}}}},
    "many": {str(number): number for number in range(18)},
    "password": "hunter2",
    "flag": None,
}


@pytest.mark.rule("OPS-13")
def test_truncate_shows_the_beginning_of_everything() -> None:
    assert shown("truncate", ARGUMENTS) == {
        "text": "x" * 64 + " [cut at 64 of 100 characters]",
        "short": "y" * 64,
        "numbers": [*range(16), "... 4 more"],
        "deep": {"a": {"b": {"c": "[1 members]"}}},
        "many": {str(number): number for number in range(16)} | {"...": "2 more"},
        "password": "[REDACTED]",
        "flag": None,
    }


@pytest.mark.rule("OPS-13")
def test_mode_redact_shows_only_names() -> None:
    assert shown("redact", ARGUMENTS) == dict.fromkeys(ARGUMENTS, "[REDACTED]")


@pytest.mark.rule("OPS-13")
def test_mode_full_shows_everything_but_secrets() -> None:
    assert shown("full", ARGUMENTS) == ARGUMENTS | {"password": "[REDACTED]"}


@pytest.mark.rule("OPS-13")
def test_results_are_never_shown() -> None:
    server = Server("s", config={"audit": {"enabled": True, "sensitive_data": "full"}})
    server.tool(lambda: "a result", name="one")  # type: ignore[call-overload]

    async def talk(client: TestClient) -> None:
        assert await client.call("one") == "a result"

    assert "a result" not in str(audited(server, talk))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(), inner, max_size=40),
    max_leaves=60,
)


@pytest.mark.rule("OPS-13")
@given(arguments=st.dictionaries(st.text(), JSON, max_size=40))
def test_mode_truncate_is_bounded(arguments: dict[str, Any]) -> None:
    def check(value: Any, level: int) -> None:
        assert level <= 5
        if isinstance(value, str):
            assert len(value) <= 64 + 40
        elif isinstance(value, dict | list):
            assert len(value) <= 17
            for each in value.values() if isinstance(value, dict) else value:
                check(each, level + 1)

    check(_show(arguments, "truncate"), 1)


# -- records of the application


def written(
    write: Any, audit_section: dict[str, Any] | None = None, **params: Any
) -> list[dict[str, Any]]:
    """Return the records that `write(server, context)` writes in a call of a tool."""
    section = {"enabled": True, "categories": ["DATA", "ADMIN", "ERROR"], **(audit_section or {})}
    server = Server("s", config={"audit": section})

    @server.tool(name="import-tasks")
    def tool(*, ctx: ToolContext) -> None:
        write(server, ctx)

    async def talk(client: TestClient) -> None:
        client.connection.session.principal = Principal("alice")
        await client.request("tools/call", {"name": "import-tasks", "arguments": {}, **params})

    return audited(server, talk)


@pytest.mark.rule("OPS-29")
def test_record_of_the_application_names_the_call_it_happens_in() -> None:
    def write(server: Server, context: ToolContext) -> None:
        server.audit("TASKS_CREATED", "DATA", context=context, metadata={"count": 5000})

    [record] = written(write, _meta={"correlationId": "c"})
    assert record == {
        "timestamp": "2024-01-01T00:00:00.000Z",
        "level": "info",
        "message": "audit",
        "eventType": "TASKS_CREATED",
        "category": "DATA",
        "success": True,
        "connectionCorrelationId": record["connectionCorrelationId"],
        "transport": "memory",
        "subject": "alice",
        "correlationId": "c",
        "runId": record["runId"],
        "toolName": "import-tasks",
        "metadata": {"count": 5000},
    }


@pytest.mark.rule("OPS-29")
def test_record_outside_of_a_call_has_the_given_correlation_id() -> None:
    def write(server: Server, context: ToolContext) -> None:
        def job() -> None:
            server.audit(
                "BATCH_JOB_FAILED",
                "ERROR",
                success=False,
                correlation_id="of the job",
                error_message="connect to postgresql://app:hunter2@db/tasks failed",
            )

        thread = threading.Thread(target=job)
        thread.start()
        thread.join()

    [record] = written(write)
    del record["timestamp"]
    assert record == {
        "level": "warn",
        "message": "audit",
        "eventType": "BATCH_JOB_FAILED",
        "category": "ERROR",
        "success": False,
        "correlationId": "of the job",
        "errorMessage": record["errorMessage"],
    }
    assert "hunter2" not in record["errorMessage"]
    assert "connect to" in record["errorMessage"]


@pytest.mark.rule("OPS-29")
def test_given_correlation_id_replaces_that_of_the_context() -> None:
    def write(server: Server, context: ToolContext) -> None:
        server.audit("TASKS_UPDATED", "DATA", context=context, correlation_id="mine")
        by_hand = ToolContext("run", "by hand", context.abort_signal, context.logger)
        server.audit("TASKS_DELETED", "DATA", context=by_hand)

    updated, deleted = written(write, _meta={"correlationId": "c"})
    assert (updated["correlationId"], updated["toolName"]) == ("mine", "import-tasks")
    assert (deleted["correlationId"], deleted["runId"]) == ("by hand", "run")
    assert "toolName" not in deleted


@pytest.mark.rule("OPS-29")
@pytest.mark.parametrize("section", [{"enabled": False}, {"categories": ["SECURITY"]}])
def test_record_that_is_not_wanted_is_dropped_unread(section: dict[str, Any]) -> None:
    class Unread(dict[str, Any]):
        def items(self) -> Any:
            raise AssertionError("it was read")

    def write(server: Server, context: ToolContext) -> None:
        server.audit("TASKS_CREATED", "DATA", context=context, metadata=Unread(a=1))

    records = written(write, section)
    assert [record["eventType"] for record in records if record["category"] == "DATA"] == []
    Server("s", config={"audit": {"enabled": True}}).audit("SERVER_STARTUP", "ADMIN")


@pytest.mark.rule("OPS-30")
@pytest.mark.parametrize(
    ("mode", "metadata", "sensitive"),
    [
        ("redact", {"jobId": "j", "token": "[REDACTED]"}, {"title": "[REDACTED]"}),
        ("truncate", {"jobId": "j", "token": "[REDACTED]"}, {"title": shortened("x" * 99)}),
        ("full", {"jobId": "j", "token": "[REDACTED]"}, {"title": "x" * 99}),
    ],
)
def test_sensitive_data_is_shown_as_configured(
    mode: str, metadata: dict[str, Any], sensitive: dict[str, Any]
) -> None:
    def write(server: Server, context: ToolContext) -> None:
        facts = {"jobId": "j", "token": "hunter2"}
        server.audit("TASKS_CREATED", "DATA", metadata=facts, sensitive={"title": "x" * 99})

    [record] = written(write, {"sensitive_data": mode})
    assert (record["metadata"], record["sensitiveData"]) == (metadata, sensitive)


@pytest.mark.rule("OPS-30")
def test_metadata_is_bounded_and_its_failure_loses_no_record() -> None:
    class Broken(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("dictionary changed size during iteration")

    def write(server: Server, context: ToolContext) -> None:
        server.audit("TASKS_CREATED", "DATA", metadata={"ids": [*range(5000)], "text": "x" * 99})
        server.audit("TASKS_CREATED", "DATA", metadata=Broken(a=1))

    bounded, broken = written(write)
    ids = [*range(16), "... 4984 more"]
    assert bounded["metadata"] == {"ids": ids, "text": shortened("x" * 99)}
    assert broken["metadata"] == {"unreadable": "RuntimeError"}


@pytest.mark.rule("OPS-30")
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(
    ("event_type", "category"),
    [("TASKS_CREATED", "TASKS"), ("tasks created", "DATA"), ("", "DATA"), (None, "DATA")],
)
def test_wrong_event_type_or_category_is_a_usage_error(
    enabled: bool, event_type: Any, category: Any
) -> None:
    server = Server("s", config={"audit": {"enabled": enabled}})
    with pytest.raises(UsageError, match=r"^audit: "):
        server.audit(event_type, category)


# -- what others write


@pytest.mark.rule("OPS-11", "OPS-26")
def test_transport_writes_records_of_configured_categories() -> None:
    sink = MemorySink()
    logger = StructuredLogger(sink, ManualClock(), "error")
    log = AuditLog(logger, AuditSection(enabled=True, categories=("SECURITY",)), lambda name: False)
    log.write("AUTHENTICATION_FAILED", "SECURITY", False, remote="10.0.0.1", subject=None)
    log.write("SOMETHING_ELSE", "DATA", True)
    assert sink.lines == [
        {
            "timestamp": "2024-01-01T00:00:00.000Z",
            "level": "warn",
            "message": "audit",
            "eventType": "AUTHENTICATION_FAILED",
            "category": "SECURITY",
            "success": False,
            "remote": "10.0.0.1",
        }
    ]
