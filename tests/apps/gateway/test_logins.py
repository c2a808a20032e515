"""Servers that a person logs in to: whose login the gateway uses, and what it shows until then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foundation_rt.apps.coordinator import for_many, shared_logins
from foundation_rt.apps.coordinator.servers import NOT_SHARED
from foundation_rt.apps.gateway.source import file_source
from foundation_rt.client import connect
from foundation_rt.client.auth.descriptions import OAuth
from foundation_rt.client.auth.stores import FileTokenStore
from tests.apps.gateway.test_faults import write
from tests.apps.gateway.test_through import status_of
from tests.lab.login.oauth_world import log_in, running_world
from tests.lab.servers.http_server import serve_gateway
from tests.lab.waiting import until


@pytest.mark.rule("GATE-61", "MCPJSON-18", "CAUTH-35")
async def test_server_needs_a_login_until_somebody_has_logged_in(tmp_path: Path) -> None:
    home = {"XDG_DATA_HOME": str(tmp_path)}
    store = FileTokenStore(tmp_path / "foundation-rt" / "tokens")
    with running_world() as world:
        file = tmp_path / "mcp.json"
        write(file, it={"url": world.url, "oauth": {}})
        with serve_gateway(str(file), env=home) as gateway:
            sent = {"Authorization": "Bearer token-of-a-client"}
            async with connect(gateway.url, require=(), headers=sent) as client:
                status = await until(
                    lambda: status_of(client, "it"),
                    "it is no longer starting",
                    lambda found: found["state"] != "starting",
                )
                assert status["state"] == "needs login"
                command = f"Run: foundation-rt login {world.url}"
                assert status["reason"] == f"Not logged in to {world.url[7:-4]}. {command}"
                async with connect(world.url, auth=OAuth(login=log_in, store=store)) as person:
                    await person.call("echo")
                write(file, it={"url": world.url, "oauth": {}, "timeoutMs": 30_000})  # at once
                await until(
                    lambda: status_of(client, "it"),
                    "it is ready",
                    lambda found: found["state"] == "ready",
                )
                assert (await client.call("it__echo")).text == "done"
        assert not [each for each in world.calls if "of-a-client" in json.dumps(each)]
        assert not [each for each in world.valid if each in gateway.process.stderr]


@pytest.mark.rule("GATE-62", "COORD-84")
def test_login_is_one_persons_unless_its_entry_says_more(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    url = "https://mcp.example.com/mcp"
    write(
        file,
        own={"url": url, "oauth": {}},
        all={"url": url, "oauth": {"shared": True}},
        open={"url": url},
    )
    source = file_source(file)
    problems = {name: plan.problem for name, plan in source.read().items()}
    assert problems == {"own": None, "all": None, "open": None}
    read = for_many(source.read)
    problems = {name: plan.problem for name, plan in read().items()}
    assert problems == {"own": NOT_SHARED, "all": None, "open": None}
    assert shared_logins(read()) == ["all"]


@pytest.mark.rule("GATE-62")
async def test_gateway_of_several_users_says_who_they_act_as(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    url = "http://127.0.0.1:9/mcp"
    write(file, all={"url": url, "oauth": {"shared": True}}, own={"url": url, "oauth": {}})
    listed = ["ann:the-key-of-ann-at-work", "bob:the-key-of-bob-at-work"]
    keys = {"FOUNDATION_RT_HTTP__API_KEYS": json.dumps(listed)}
    home = {"XDG_DATA_HOME": str(tmp_path)}
    with serve_gateway(str(file), env={**keys, **home}, options=()) as gateway:
        sent = {"X-API-Key": "the-key-of-ann-at-work"}
        async with connect(gateway.url, require=(), headers=sent) as client:
            status = await status_of(client, "own")
        assert (status["state"], status["reason"]) == ("failed", NOT_SHARED)
        said = "at server 'all' everybody acts as the person who logged in"
        assert gateway.process.record(message=said)["level"] == "warn"
