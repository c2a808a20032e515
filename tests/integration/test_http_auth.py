"""Keys, tokens, hosts and limits before a real server; and that none of them is in its log."""

from __future__ import annotations

import json
import signal
from typing import Any

import httpx2
import pytest

from tests.lab.login.issuer import running_issuer, token
from tests.lab.peers.http_calls import PATIENCE, call, text_of
from tests.lab.places.services import need_redis, unique_name
from tests.lab.servers.http_server import serve_http

KEY, OTHER_KEY = "4f2a9c" * 6, "b81d07" * 6

APP = """
from foundation_rt import Server, ToolContext

server = Server("guarded")


@server.tool
def who(ctx: ToolContext) -> str:
    return ctx.principal.subject if ctx.principal else "anybody"


@server.tool
def may(ctx: ToolContext) -> list[str]:
    return sorted(ctx.principal.scopes)


@server.tool(scopes=("write",))
def change() -> str:
    return "changed"
"""


@pytest.mark.rule("AUTH-01")
def test_a_server_for_everybody_warns() -> None:
    with serve_http(APP) as server:
        assert text_of(call(server.url)) == "anybody"
        warning = server.process.record(level="warn")
        assert "without authentication" in warning["message"]


@pytest.mark.rule("AUTH-02", "AUTH-03", "AUTH-04", "AUTH-05")
def test_keys_open_a_server_and_stay_secret() -> None:
    settings = {"http.api_keys": f"alice:{KEY},{OTHER_KEY}", "logging.level": "debug"}
    with serve_http(APP, "--transport", "http", settings=settings) as server:
        assert text_of(call(server.url, **{"x-api-key": KEY})) == "key:alice"
        assert text_of(call(server.url, authorization=f"Bearer {KEY}")) == "key:alice"
        assert text_of(call(server.url, **{"x-api-key": OTHER_KEY})).startswith("key:")
        assert text_of(call(server.url, "change", **{"x-api-key": KEY})) == "changed"
        for headers in ({}, {"x-api-key": KEY[:-1]}, {"authorization": f"Basic {KEY}"}):
            refused = call(server.url, **headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Bearer")
        assert call(f"{server.url}?key={KEY}").status_code == 401
        evil = call(server.url, **{"x-api-key": KEY, "host": "evil.example.com"})
        assert evil.status_code == 421
        page = call(server.url, **{"x-api-key": KEY, "origin": "https://evil.example.com"})
        assert page.status_code == 403
        assert page.headers["x-content-type-options"] == "nosniff"
        server.process.signal(signal.SIGTERM)
        server.process.wait()
        assert KEY[:-1] not in server.process.stderr
        assert OTHER_KEY not in server.process.stderr


@pytest.mark.rule("AUTH-06", "AUTH-07", "AUTH-12")
def test_tokens_open_a_server() -> None:
    audience = "https://mcp.example.com/mcp"
    with running_issuer() as issuer:
        settings = {"oauth.issuer": issuer.url, "oauth.audience": audience}
        with serve_http(APP, "--transport", "http", settings=settings) as server:
            origin = server.url.removesuffix("/mcp")
            for path in ("/mcp", ""):
                found = httpx2.get(
                    f"{origin}/.well-known/oauth-protected-resource{path}", timeout=PATIENCE
                )
                assert found.json()["authorization_servers"] == [issuer.url]
            now_and_later = {"exp": 2**33, "nbf": None}
            bearer = f"Bearer {token(issuer, **now_and_later)}"
            assert text_of(call(server.url, authorization=bearer)) == "alice"
            assert call(server.url, "change", authorization=bearer).status_code == 403
            writer = f"Bearer {token(issuer, scope='write', **now_and_later)}"
            assert text_of(call(server.url, "change", authorization=writer)) == "changed"
            expired = f"Bearer {token(issuer)}"
            assert call(server.url, authorization=expired).status_code == 401


@pytest.mark.rule("AUTH-13")
def test_a_session_may_what_the_token_of_the_very_request_may() -> None:
    audience = "https://mcp.example.com/mcp"
    with running_issuer() as issuer:
        settings = {"oauth.issuer": issuer.url, "oauth.audience": audience}
        with serve_http(APP, "--transport", "http", settings=settings) as server:
            head = {"accept": "application/json, text/event-stream"}
            params = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "tests", "version": "1"},
            }

            def post(scope: str, message: dict[str, Any]) -> httpx2.Response:
                bearer = token(issuer, scope=scope, exp=2**33, nbf=None)
                headers = head | {"authorization": f"Bearer {bearer}"}
                body = {"jsonrpc": "2.0", **message}
                return httpx2.post(
                    server.url, json=body, headers=headers, timeout=PATIENCE, verify=False
                )

            opened = post("read write", {"id": 0, "method": "initialize", "params": params})
            head["mcp-session-id"] = opened.headers["mcp-session-id"]
            head["mcp-protocol-version"] = "2025-11-25"
            post("read write", {"method": "notifications/initialized"})
            for scope in ("read write", "read", "other", "write"):
                answer = post(scope, {"id": 1, "method": "tools/call", "params": {"name": "may"}})
                assert text_of(answer) == json.dumps(sorted(scope.split()), separators=(",", ":"))


@pytest.mark.rule("RATE-06", "RATE-07")
@pytest.mark.parametrize("store", ["memory", "redis"])
def test_sessions_and_calls_that_are_not_valid_count(store: str) -> None:
    alice = unique_name("alice")
    settings = {
        "http.api_keys": f"{alice}:{KEY},{unique_name('bob')}:{OTHER_KEY}",
        "rate_limit.per_key": 3,
        "rate_limit.window_ms": 120_000,
        "rate_limit.store": need_redis() if store == "redis" else store,
    }
    with serve_http(APP, "--transport", "http", settings=settings) as server:
        assert initialize(server.url, KEY).status_code == 200
        head = {"x-api-key": KEY}
        assert "NOT_FOUND" in call(server.url, "none", **head).text
        assert "INVALID_ARGUMENT" in call(server.url, arguments={"no": 1}, **head).text
        refused = initialize(server.url, KEY)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 40
        data = refused.json()["error"]["data"]
        assert (data["reason"], data["limit"]) == ("rate_limit", "client")
        assert 1 <= data["retryAfterMs"] <= 40_000
        assert "mcp-session-id" not in refused.headers
        # The transport of 2024-11-05 opens a session with a GET.
        stream = httpx2.get(
            server.url.replace("/mcp", "/sse"), headers=head, timeout=PATIENCE, verify=False
        )
        assert stream.status_code == 429
        limited = call(server.url, arguments={"no": 1}, **head)
        assert "RESOURCE_EXHAUSTED" in limited.text
        assert initialize(server.url, OTHER_KEY).status_code == 200


def initialize(url: str, key: str) -> httpx2.Response:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests"}}
    head = {"accept": "application/json, text/event-stream", "x-api-key": key}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    return httpx2.post(url, json=message, headers=head, timeout=PATIENCE, verify=False)
