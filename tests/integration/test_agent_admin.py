"""Tools for the requests of agents: over stdio, and over HTTP for tokens with scopes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_agent_scopes import outcome, post
from tests.lab.login.issuer import AUDIENCE, running_issuer, token
from tests.lab.servers.http_server import serve_http
from tests.lab.servers.process import ServerProcess, serve

ON = "tools.admin_agents_enabled"
MODE = "tools.admin_policy.mode"

APP = """
import asyncio
from foundation_rt import Server

server = Server("office", version="1.0.0")
mended = False


async def clerk(message, context):
    if message.payload == "slow":
        await asyncio.sleep(60)
    if not mended:
        raise ValueError("the printer has no paper")
    return "done"


@server.tool
def mend() -> None:
    global mended
    mended = True


server.agents.register_agent("clerk", clerk)
"""
TOOLS = {
    "admin/listAgentRequests",
    "admin/listAgentQueues",
    "admin/showAgentRequest",
    "admin/cancelAgentRequests",
    "admin/requeueAgentRequests",
    "admin/purgeAgentLedger",
}


def ask(server: ServerProcess, request_id: str, payload: str = "print") -> dict[str, Any]:
    message = {"type": "job", "payload": payload}
    arguments = {"targetAgentId": "clerk", "message": message, "requestId": request_id}
    return server.call("agent/request", timeoutMs=300 if payload == "slow" else 20_000, **arguments)


def offered(server: ServerProcess) -> set[str]:
    return {tool["name"] for tool in server.request("tools/list")["result"]["tools"]}


@pytest.mark.rule("ADMIN-13", "ADMIN-14", "AACP-117")
def test_requests_are_listed_requeued_cancelled_and_purged_with_audit_records(
    tmp_path: Path,
) -> None:
    settings = {ON: "true", MODE: "local_stdio_only", "aacp.store": f"sqlite:{tmp_path}/office.db"}
    with serve(APP, settings) as server:
        assert offered(server) >= TOOLS
        assert [ask(server, each)["outcome"] for each in ("r1", "r2")] == ["FAILED"] * 2
        page = server.call("admin/listAgentRequests", agentId="clerk", states=["FAILED"], limit=1)
        assert [each["requestId"] for each in page["requests"]] == ["r1"] == [page["next"]]
        page = server.call("admin/listAgentRequests", after="r1")
        assert [each["requestId"] for each in page["requests"]] == ["r2"]
        assert page["next"] is None
        shown = server.call("admin/showAgentRequest", requestId="r1")
        assert (shown["payload"]["payload"], shown["result"]) == ("print", None)
        assert shown["error"]["message"] == "The agent failed."

        server.call("mend")
        changes = server.call(
            "admin/requeueAgentRequests", requestIds=["r1", "r3"], reason="it has paper"
        )["requests"]
        assert [each["verdict"] for each in changes] == ["done", "unknown_id"]
        assert ask(server, "r1") == {"requestId": "r1", "outcome": "COMPLETED", "result": "done"}

        assert ask(server, "r4", "slow")["outcome"] == "UNKNOWN"
        changes = server.call("admin/cancelAgentRequests", requestIds=["r4", "r1"])["requests"]
        assert [each["verdict"] for each in changes] == ["done", "finished"]
        status = server.call("agent/status", requestId="r4")
        assert status["error"]["details"]["reason"] == "cancelled"
        [clerk] = server.call("admin/listAgentQueues")["agents"]
        assert (clerk["completed"], clerk["failed"], clerk["claimed"]) == (1, 2, 0)
        assert server.call("admin/purgeAgentLedger") == {"purged": 0}

        for tool, name in (("showAgentRequest", "requestId"), ("listAgentRequests", "after")):
            error = server.call(f"admin/{tool}", **{name: "r9"})
            assert (error["code"], error["details"]["reason"]) == ("NOT_FOUND", "request_not_found")
        assert server.finish() == 0
        records = server.records_with(message="audit")
    assert [(each["eventType"], each["requestId"], each["success"]) for each in records[:4]] == [
        ("AGENT_REQUEST_REQUEUED", "r1", True),
        ("AGENT_REQUEST_REQUEUED", "r3", False),
        ("AGENT_REQUEST_CANCELLED", "r4", True),
        ("AGENT_REQUEST_CANCELLED", "r1", False),
    ]
    assert records[0]["toolName"] == "admin/requeueAgentRequests"
    assert records[0]["transport"] == "stdio" and records[0]["runId"]
    assert records[0]["metadata"] == {"reason": "it has paper"}
    assert [each["eventType"] for each in records[4:]] == ["AGENT_LEDGER_PURGED"]


@pytest.mark.rule("ADMIN-13", "ADMIN-03")
def test_tools_are_off_by_default_and_refused_by_the_default_policy() -> None:
    with serve(APP) as server:
        assert offered(server).isdisjoint(TOOLS)
        assert server.finish() == 0
    with serve(APP, {ON: "true"}) as server:
        assert offered(server) >= TOOLS
        error = server.call("admin/purgeAgentLedger")
        assert (error["code"], error["details"]["reason"]) == ("UNAUTHORIZED", "deny_all")
        assert server.finish() == 0


@pytest.mark.rule("ADMIN-13")
def test_server_without_agents_says_so() -> None:
    app = 'from foundation_rt import Server\nserver = Server("empty")'
    with serve(app, {ON: "true", MODE: "local_stdio_only"}) as server:
        error = server.call("admin/listAgentQueues")
        assert (error["code"], error["details"]["reason"]) == ("NOT_FOUND", "no_agents")
        assert server.finish() == 0


@pytest.mark.rule("ADMIN-12", "ADMIN-14")
def test_tokens_need_the_scopes_of_the_policy() -> None:
    with running_issuer() as issuer:
        lasting = {"exp": 2**33, "nbf": None}
        weak, strong = token(issuer, **lasting), token(issuer, scope="agents:admin", **lasting)
        settings = {
            "oauth.issuer": issuer.url,
            "oauth.audience": AUDIENCE,
            ON: "true",
            MODE: "scopes",
            "tools.admin_policy.scopes": "agents:admin",
        }
        with serve_http(APP, "--transport", "http", settings=settings) as server:
            message = {"type": "job", "payload": "print"}
            asked = {"targetAgentId": "clerk", "message": message, "requestId": "r1"}
            assert outcome(post(server, weak, "agent/request", **asked))["outcome"] == "FAILED"
            for tool, arguments in (
                ("admin/listAgentRequests", {}),
                ("admin/purgeAgentLedger", {}),
                ("admin/cancelAgentRequests", {"requestIds": ["r1"]}),
            ):
                refused = post(server, weak, tool, **arguments)
                assert refused.status_code == 403
                assert 'scope="agents:admin"' in refused.headers["www-authenticate"]
            # An administrator sees the requests of all principals, by the ids of the ledger.
            [request] = outcome(post(server, strong, "admin/listAgentRequests"))["requests"]
            whole_id = request["requestId"]
            assert whole_id.startswith("r1@")
            requeued = outcome(
                post(
                    server, strong, "admin/requeueAgentRequests", requestIds=[whole_id], reason="x"
                )
            )
            assert requeued["requests"][0]["verdict"] == "done"


@pytest.mark.rule("ADMIN-12")
def test_mode_scopes_refuses_clients_that_have_not_proved_who_they_are() -> None:
    settings = {
        "http.no_auth": "true",
        ON: "true",
        MODE: "scopes",
        "tools.admin_policy.scopes": "agents:admin",
    }
    with serve_http(APP, "--transport", "http", settings=settings) as server:
        refused = outcome(post(server, "none", "admin/listAgentRequests"))
        assert (refused["code"], refused["details"]["reason"]) == ("UNAUTHORIZED", "scopes")
