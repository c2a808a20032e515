"""Logins that a page of the host begins: who may, and for whom they count."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.apps.coordinator import Coordinator, ServerState, plans_of
from foundation_rt.apps.coordinator.servers import NOT_SHARED
from foundation_rt.apps.web_page.logins import NOBODY, PageLogins
from foundation_rt.apps.web_page.requests import PageRequestError
from foundation_rt.client import HttpServer, MemoryTokenStore, OAuth
from tests.apps.coordinator.test_servers import until_state
from tests.lab.host.process import HostProcess, host_process
from tests.lab.login.oauth_world import World, running_world, where_it_leads
from tests.lab.servers.process import PATIENCE
from tests.lab.waiting import block_until

KEY = "the-key-of-ann-at-work"


def send(
    host: HostProcess, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", host.port, timeout=PATIENCE)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def wait_for_login(host: HostProcess, key: str) -> dict[str, Any]:
    """Return the servers, when one of them waits for a login."""
    _, status = block_until(
        lambda: send(host, "GET", "/api/status", **{"X-API-Key": key}),
        "a server waits for a login",
        lambda answer: "needs login" in {each["state"] for each in answer[1]["servers"]},
    )
    return {each["id"]: each for each in status["servers"]}


@pytest.mark.rule("HOST-66")
def test_login_is_begun_by_the_page_alone(tmp_path: Path) -> None:
    body = json.dumps({"server": "desk"}).encode()
    with running_world() as world:
        servers = {"desk": {"url": world.url, "oauth": {}}}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        home = {"XDG_DATA_HOME": str(tmp_path)}
        words = ("--servers", "mcp.json", "--model", "rules")
        with host_process(tmp_path, *words, env=home) as host:
            own = {"X-API-Key": host.token}
            wait_for_login(host, own["X-API-Key"])
            asked = len(world.asked)
            for status, headers, sent in (
                (401, {}, body),
                (403, {**own, "Origin": "https://evil.example"}, body),
                (400, own, b"server=desk"),
                (400, own, b'{"server": ["desk"]}'),
                (400, own, b'{"server": "' + b"x" * 20_000 + b'"}'),
                (404, own, b'{"server": "other"}'),
                (404, own, b'{"server": "desk", "address": "http://127.0.0.1/callback?code=a"}'),
            ):
                assert send(host, "POST", "/api/login", sent, **headers)[0] == status
            assert send(host, "GET", "/api/login", **own)[0] == 405
            assert len(world.asked) == asked
            status, said = send(host, "POST", "/api/login", body, **own)
            assert status == 200
            assert said["login"]["page"].startswith(f"{world.issuer}/authorize?")
            # Whoever asks again is at the same login.
            assert send(host, "POST", "/api/login", body, **own) == (200, said)
            assert len(world.paths("/register")) == 1


@pytest.mark.rule("HOST-67", "COORD-84")
@pytest.mark.parametrize("others", [(), ("bob:the-key-of-bob-at-work",)])
def test_host_of_several_users_lets_nobody_act_as_another(
    tmp_path: Path, others: tuple[str, ...]
) -> None:
    with running_world() as world:
        servers = {
            "own": {"url": world.url, "oauth": {}},
            "all": {"url": world.url, "oauth": {"shared": True}},
        }
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        keys = json.dumps([f"ann:{KEY}", *others])  # and the key of the page
        variables = {"XDG_DATA_HOME": str(tmp_path), "FOUNDATION_RT_HTTP__API_KEYS": keys}
        words = ("--servers", "mcp.json", "--model", "rules")
        with host_process(tmp_path, *words, env=variables) as host:
            found = wait_for_login(host, KEY)
            assert (found["own"]["state"], found["own"]["reason"]) == ("failed", NOT_SHARED)
            assert found["all"]["state"] == "needs login"
            assert found["all"]["login"] is None
            body = json.dumps({"server": "all"}).encode()
            assert send(host, "POST", "/api/login", body, **{"X-API-Key": KEY})[0] == 404
            said = "at server 'all' everybody acts as the person who logged in"
            host.process.wait_until(lambda: said in host.process.stderr, said)


@pytest.mark.rule("HOST-68")
async def test_login_is_over_when_its_server_is_another_one() -> None:
    store = MemoryTokenStore()
    with running_world() as first, running_world() as second:

        def at(world: World) -> HttpServer:
            return HttpServer(world.url, auth=OAuth(store=store))

        listed = {"it": at(first)}
        async with Coordinator.from_plans(lambda: plans_of(listed)) as servers:
            logins = PageLogins(servers)

            async def ask(**more: str) -> dict[str, Any]:
                return await logins.answer({"server": "it", **more})

            await until_state(servers, "it", ServerState.NEEDS_LOGIN)
            before = (await ask())["login"]["page"]
            listed["it"] = at(second)
            await servers.reload()
            await until_state(servers, "it", ServerState.NEEDS_LOGIN)
            assert logins.state("it") == {"page": None, "problem": None}
            with pytest.raises(PageRequestError, match=NOBODY):
                await ask(address=where_it_leads(before))
            assert first.paths("/token") == []
            assert (await ask())["login"]["page"].startswith(second.issuer)
            listed.clear()
            await servers.reload()
            assert logins.state("it") is None
            with pytest.raises(PageRequestError, match=NOBODY):
                await ask()
            await logins.close()
