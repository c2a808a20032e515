"""A real server over HTTP with an issuer: what a token may do with agents that need scopes."""

from __future__ import annotations

from typing import Any

import httpx2
import orjson
import pytest

from tests.lab.login.issuer import AUDIENCE, running_issuer, token
from tests.lab.peers.http_calls import call, text_of
from tests.lab.servers.http_server import HttpServerProcess, serve_http

PATIENCE = 60.0

APP = """
from foundation_rt import AgentContext, AgentMessage, Server

server = Server("office", version="1.0.0")


async def answer(message: AgentMessage, context: AgentContext) -> str:
    if message.type == "forward":
        return await server.agents.send_message("vault", AgentMessage("note"))
    context.state["asked"] = True
    return context.agent_id


server.agents.register_agent("clerk", answer)
server.agents.register_agent("vault", answer, scopes=["vault:open"])
"""


def post(server: HttpServerProcess, bearer: str, tool: str, **arguments: Any) -> httpx2.Response:
    return call(server.url, tool, arguments, authorization=f"Bearer {bearer}")


def outcome(answer: httpx2.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return orjson.loads(text_of(answer))


@pytest.mark.rule("AUTH-34", "AUTH-27", "AGENT-21", "AGENT-22")
def test_a_token_without_the_scopes_of_an_agent_cannot_use_it() -> None:
    message = {"type": "note"}
    with running_issuer() as issuer:
        lasting = {"exp": 2**33, "nbf": None}
        weak = token(issuer, **lasting)
        strong = token(issuer, scope="vault:open", **lasting)
        settings = {"oauth.issuer": issuer.url, "oauth.audience": AUDIENCE}
        with serve_http(APP, "--transport", "http", settings=settings) as server:
            for tool, arguments in (
                ("agent/sendMessage", {"targetAgentId": "vault", "message": message}),
                (
                    "agent/request",
                    {"targetAgentId": "vault", "message": message, "requestId": "r1"},
                ),
                ("agent/getState", {"agentId": "vault"}),
            ):
                refused = post(server, weak, tool, **arguments)
                assert refused.status_code == 403
                challenge = refused.headers["www-authenticate"]
                assert 'error="insufficient_scope"' in challenge
                assert 'scope="vault:open"' in challenge
                assert "code" not in outcome(post(server, strong, tool, **arguments))

            # Only the ledger knows the agent of an id: no status can refuse it.
            status = outcome(post(server, weak, "agent/status", requestId="r1"))
            assert status["code"] == "UNAUTHORIZED"
            lacking = {"reason": "insufficient_scope", "scopes": ["vault:open"]}
            assert status["details"] == lacking
            assert (
                outcome(post(server, strong, "agent/status", requestId="r1"))["result"] == "vault"
            )

            assert outcome(post(server, weak, "agent/list"))["agentIds"] == ["clerk"]
            assert outcome(post(server, strong, "agent/list"))["agentIds"] == ["clerk", "vault"]

            # What an agent sends to another needs no scopes.
            forward = {"targetAgentId": "clerk", "message": {"type": "forward"}}
            assert outcome(post(server, weak, "agent/sendMessage", **forward)) == "vault"
