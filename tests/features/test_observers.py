"""Observers of an application: every call that has ended, refused ones included."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from foundation_rt import CompletedCall, RegistrationError, Server, ToolContext, UsageError
from foundation_rt.protocol.principal import Principal
from foundation_rt.testing import ManualClock, TestClient
from tests.lab.apps.observed import call_everything, converse, make_server, refused


def observed(server: Server, talk: Any = call_everything) -> list[CompletedCall]:
    """Return the calls of a conversation, as an observer is given them."""
    calls: list[CompletedCall] = []
    server.call_observer(calls.append)
    converse(server, talk)
    return calls


@pytest.mark.rule("OPS-34")
def test_every_call_is_observed_once() -> None:
    calls = observed(make_server())
    seen = [(c.method, c.label, c.outcome, c.error_code, c.refusal) for c in calls]
    tool = partial(lambda *rest: ("tools/call", *rest))
    assert seen == [
        tool("add", "success", None, None),
        tool("fails", "tool_error", None, None),
        tool("fails", "tool_error", "NOT_FOUND", None),
        tool("fails", "tool_error", "INTERNAL", None),
        tool("other", "tool_error", "NOT_FOUND", "NOT_FOUND"),
        tool("add", "tool_error", "INVALID_ARGUMENT", "schema_validation"),
        ("resources/read", "", "success", None, None),
        ("resources/read", "", "tool_error", "NOT_FOUND", None),
        ("prompts/get", "review", "success", None, None),
        ("completion/complete", "", "success", None, None),
    ]
    assert [c.succeeded for c in calls] == [c.outcome == "success" for c in calls]
    names = [c.name for c in calls]
    assert names[4:8] == ["nowhere", "add", "data://all", "data://lost"]
    assert {c.transport for c in calls} == {"memory"}


@pytest.mark.rule("OPS-34", "FEAT-07")
def test_request_that_is_refused_before_it_is_a_call_is_observed() -> None:
    async def talk(client: TestClient) -> None:
        await refused(client, "resources/read", {"uri": "unknown://x"})
        await refused(client, "resources/read", {"uri": 5})
        await refused(client, "prompts/get", {"name": "nowhere"})
        await refused(client, "prompts/get", {"name": "review", "arguments": {}})
        reference = {"type": "ref/prompt", "name": "nowhere"}
        await refused(client, "completion/complete", {"ref": reference})
        await refused(client, "tools/call", {"name": 5})

    calls = observed(make_server(), talk)
    assert [(c.method, c.name, c.label, c.refusal) for c in calls] == [
        ("resources/read", "unknown://x", "", "resource_not_found"),
        ("resources/read", "", "", "invalid_params"),
        ("prompts/get", "nowhere", "other", "invalid_params"),
        ("prompts/get", "review", "review", "invalid_params"),
        ("completion/complete", "nowhere", "", "invalid_params"),
        ("tools/call", "", "other", "invalid_params"),
    ]
    assert {(c.outcome, c.error_code, c.run_id) for c in calls} == {("protocol_error", None, None)}


@pytest.mark.rule("FEAT-07", "OPS-26")
def test_refused_scope_of_a_resource_is_audited() -> None:
    server = Server("s", config={"audit": {"enabled": True}})
    server.resource("secret://all", scopes=["secrets"])(lambda: "")

    async def talk(client: TestClient) -> None:
        client.connection.session.principal = Principal("alice")
        await refused(client, "resources/read", {"uri": "secret://all"})

    lines = converse(server, talk)
    [record] = [each for each in lines if each.get("eventType", "").startswith("RESOURCE")]
    assert (record["eventType"], record["category"]) == ("RESOURCE_READ_REFUSED", "SECURITY")
    assert (record["subject"], record["errorCode"]) == ("alice", "UNAUTHORIZED")


@pytest.mark.rule("OPS-34")
def test_call_has_its_ids_and_its_duration() -> None:
    server, clock, seen = Server("s"), ManualClock(), []

    @server.tool
    def slow(*, ctx: ToolContext) -> None:
        seen.append(ctx.run_id)
        clock.advance(1.5)

    async def talk(client: TestClient) -> None:
        meta = {"correlationId": "c"}
        params = {"name": "slow", "arguments": {}, "_meta": meta}
        await client.request("tools/call", params)

    calls: list[CompletedCall] = []
    server.call_observer(calls.append)
    converse(server, talk, clock)
    [call] = calls
    assert (call.run_id, call.correlation_id, call.seconds) == (seen[0], "c", 1.5)


@pytest.mark.rule("OPS-34")
def test_call_beyond_a_rate_limit_is_observed() -> None:
    server = Server("s", config={"rate_limit": {"per_key": 1}})
    server.tool(lambda: 1, name="one")  # type: ignore[call-overload]

    async def talk(client: TestClient) -> None:
        for _ in range(2):
            await client.request("tools/call", {"name": "one", "arguments": {}})

    _, refused = observed(server, talk)
    assert (refused.label, refused.refusal, refused.seconds) == ("one", "rate_limit", 0)


@pytest.mark.rule("OPS-34")
def test_observer_that_raises_is_logged_and_the_others_go_on() -> None:
    server, seen = make_server(), []

    @server.call_observer
    def broken(call: CompletedCall) -> None:
        raise LookupError("no such series")

    server.call_observer(seen.append)

    async def talk(client: TestClient) -> None:
        assert await client.call("add", a=1, b=2) == 3

    lines = converse(server, talk)
    [failed] = [line for line in lines if line["message"] == "observer failed"]
    assert failed["error"]["type"] == "LookupError"
    assert len(seen) == 1


@pytest.mark.rule("OPS-34")
def test_observer_that_cannot_be_called_is_refused() -> None:
    async def waits(call: CompletedCall) -> None:
        """Wait."""

    server = Server("s")
    for wrong in (waits, lambda: None, lambda a, b: None, 5):
        with pytest.raises(RegistrationError, match="observer"):
            server.call_observer(wrong)  # type: ignore[type-var]
    assert server.runtime.observers == []
    with pytest.raises(UsageError, match="before the server is started"):
        server.call_observer(lambda call: None)
