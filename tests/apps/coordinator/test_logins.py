"""Servers that a person logs in to: their state, the login, and the end of one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from foundation_rt.apps.coordinator import (
    Coordinator,
    ServerState,
    ToolExecutionError,
    plans_of,
    with_logins,
)
from foundation_rt.client import (
    AuthorizationError,
    HttpServer,
    LoginRequest,
    MemoryTokenStore,
    OAuth,
)
from foundation_rt.errors import UsageError
from tests.apps.coordinator.test_servers import until_state
from tests.lab.login.oauth_world import World, log_in, running_world
from tests.lab.waiting import until


@pytest.fixture
def world() -> Iterator[World]:
    with running_world() as found:
        yield found


@pytest.mark.rule("COORD-83", "COORD-10")
async def test_server_is_ready_when_somebody_has_logged_in_and_wants_it_again(
    world: World,
) -> None:
    store = MemoryTokenStore()
    target = HttpServer(world.url, auth=OAuth(store=store))
    async with Coordinator({"it": target, "own": {"command": "x", "disabled": True}}) as servers:
        server, other = servers.server("it"), servers.server("own")
        assert server is not None and other is not None
        assert servers.states["it"].state is ServerState.NEEDS_LOGIN
        assert server.wants_login and not other.wants_login
        with pytest.raises(UsageError, match="nobody logs in to server 'own'"):
            await other.log_in(log_in)
        world.callback = {"error": "access_denied", "code": None}
        with pytest.raises(AuthorizationError, match="access_denied"):
            await server.log_in(log_in)
        assert server.wants_login
        world.callback = {}
        await server.log_in(log_in)
        status = servers.states["it"]
        assert (status.state, status.last_error) == (ServerState.READY, None)
        assert (await servers.call("it:echo")).text == "done"
        # Its login has ended at the authorization server.
        world.valid.clear()
        world.refreshable.clear()
        with pytest.raises(ToolExecutionError):
            await servers.call("it:echo")
        await until_state(servers, "it", ServerState.NEEDS_LOGIN)
        assert "Run: foundation-rt login" in str(servers.states["it"].reason)
        assert [tool.definition.name for tool in servers.tools] == ["echo"]
        await server.log_in(log_in)
        assert (await servers.call("it:echo")).text == "done"


@pytest.mark.rule("COORD-83")
async def test_call_that_lacks_a_scope_alone_leaves_the_server_ready(world: World) -> None:
    target = HttpServer(world.url, auth=OAuth(store=MemoryTokenStore()))
    world.scopes_needed = {"tools/call": "write"}
    async with Coordinator({"it": target}) as servers:
        server = servers.server("it")
        assert server is not None
        await server.log_in(log_in)
        asked = len(world.calls)
        with pytest.raises(ToolExecutionError):
            await servers.call("it:echo")
        await until(lambda: len(world.calls) >= asked + 2, "the call, and the list once more")
        assert servers.states["it"].state is ServerState.READY


@pytest.mark.rule("COORD-85")
def test_login_of_one_person_needs_no_member_of_the_entry() -> None:
    url = "https://mcp.example.com/mcp"
    listed: dict[str, Any] = {
        "plain": {"url": url},
        "named": {"url": url, "oauth": {"scopes": ["read"]}},
        "key": {"url": url, "headers": {"authorization": "Bearer of-mine"}},
        "passed": {"url": url, "headersFrom": {"X-Key": "X-Key"}},
        "user": {"url": "https://ann:secret@mcp.example.com/mcp"},
        "clear": {"url": "http://mcp.example.com/mcp"},
        "child": {"command": "x"},
        "off": {"url": url, "disabled": True},
    }
    read = partial(plans_of, listed)
    plans = with_logins(read)()
    takers = {server for server, plan in plans.items() if plan.login_target is not None}
    assert takers == {"plain", "named"}
    before = read()
    assert {server for server, plan in plans.items() if plan != before[server]} == {"plain"}


@pytest.mark.rule("COORD-83")
async def test_attempt_under_way_does_not_hide_a_login(world: World) -> None:
    target = HttpServer(world.url, auth=OAuth(store=MemoryTokenStore()))
    async with Coordinator({"it": target}) as servers:
        server = servers.server("it")
        assert server is not None

        async def late(request: LoginRequest) -> str:
            for _ in range(3):  # attempts that have no token
                with pytest.raises(AuthorizationError):
                    await server.ready()
            return await log_in(request)

        await server.log_in(late)
        assert servers.states["it"].state is ServerState.READY
