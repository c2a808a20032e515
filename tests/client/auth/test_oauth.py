"""A person logs in, and the client calls: over HTTP, against a server that wants tokens."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest

from foundation_rt.client import Client, connect
from foundation_rt.client.auth.authorizer import Authorizer
from foundation_rt.client.auth.descriptions import (
    ClientCredentials,
    LoginRequest,
    OAuth,
    StoreKey,
)
from foundation_rt.client.auth.discovery import OAuthClient
from foundation_rt.client.auth.exchanges import AuthExchanges, AuthResponse
from foundation_rt.client.auth.stores import FileTokenStore, MemoryTokenStore
from foundation_rt.client.errors import AuthorizationError, ConnectionLostError, MCPError
from foundation_rt.client.resilience.deadline import Deadline, DeadlineTimer
from foundation_rt.client.resilience.retries import RetryPolicy
from foundation_rt.client.session.handshake import Handshake, HandshakeRequest
from foundation_rt.client.session.session import negotiate
from foundation_rt.client.targets import HttpServer
from foundation_rt.errors import UsageError
from tests.lab.login.oauth_world import World, log_in
from tests.lab.peers.trickle import TRICKLES, trickling
from tests.lab.programs.program import run_source
from tests.lab.waiting import until

ONCE = RetryPolicy(max_attempts=1)


def client_of(world: World, **described: Any) -> Client:
    described.setdefault("login", log_in)
    return connect(world.url, auth=OAuth(**described), timeout=30)


async def call(world: World, **described: Any) -> None:
    """Call, with a client of its own."""
    async with client_of(world, **described) as client:
        assert (await client.call("echo")).text == "done"


async def logged_in(world: World) -> MemoryTokenStore:
    """Return the store of a client that has called after a login."""
    store = MemoryTokenStore()
    await call(world, store=store)
    return store


async def error_of(world: World, **described: Any) -> MCPError:
    """Return the error of a call that needs a login; nothing is called twice for it."""
    async with client_of(world, **described) as client:
        with pytest.raises(MCPError) as caught:
            await client.call("echo")
    return caught.value


async def grant_of(store: MemoryTokenStore, world: World) -> dict[str, Any]:
    found = await store.load(StoreKey(world.url))
    assert found is not None
    return dict(found)


async def expire(store: MemoryTokenStore, world: World, seconds: float = -1.0) -> None:
    """Let the stored token end in so many seconds."""
    entry = await grant_of(store, world)
    ends = {"expires_at": time.time() + seconds, "refresh_at": time.time() + seconds - 60}
    await store.save(StoreKey(world.url), {**entry, **ends})


# -- descriptions


@pytest.mark.rule("CAUTH-01")
@pytest.mark.parametrize(
    "given",
    [
        {"scopes": "a b"},
        {"client_id": "me"},
        {"client_secret": "hidden"},
        {"client_id": "me", "issuer": "http://login.example.com"},
        {"client_id": "me", "issuer": "https://x", "client_secret": "a", "private_key": "b"},
        {"client_metadata_url": "http://me.example.com/client.json"},
        {"client_metadata_url": "https://me.example.com"},
        {"redirect_uri": "http://me.example.com/callback"},
        {"redirect_uri": "http://[::1"},
        {"login_timeout": 0},
    ],
)
def test_description_that_cannot_be_used_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        OAuth(**given)
    assert "hidden" not in str(caught.value)


@pytest.mark.rule("CAUTH-01")
def test_description_shows_no_secret() -> None:
    described = OAuth(client_id="me", client_secret="hidden", issuer="https://login.example.com")
    client = OAuthClient("me", secret="hidden", private_key="hidden")
    answer = AuthResponse(200, {}, {"access_token": "hidden"})
    authorizer = Authorizer("https://mcp.example.com/mcp", described)
    authorizer._secrets.append("hidden")
    assert "hidden" not in f"{described} {client} {answer} {authorizer}"


@pytest.mark.rule("CAUTH-02")
@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://mcp.example.com/mcp", {}),
        ("https://ann:pw@mcp.example.com/mcp", {}),
        ("https://mcp.example.com/mcp", {"authorization": "Bearer x"}),
    ],
)
def test_description_goes_with_https_and_alone(url: str, headers: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        HttpServer(url, headers=headers, auth=OAuth())
    with pytest.raises(UsageError, match="auth goes with a URL"):
        connect("some-server", auth=OAuth())


# -- a login


@pytest.mark.rule("CAUTH-20", "CAUTH-27", "CAUTH-35", "CAUTH-41")
async def test_person_logs_in_once_and_calls_go_on(world: World) -> None:
    asked: list[LoginRequest] = []

    async def login(request: LoginRequest) -> str:
        asked.append(request)
        return await log_in(request)

    described = OAuth(login=login, scopes=["extra"])
    for _ in range(2):  # the description keeps the token
        async with connect(world.url, auth=described) as client:
            assert (await client.call("echo")).text == "done"
    [request] = asked
    assert (request.issuer, request.scopes) == (world.issuer, ("extra",))
    assert "authorization" not in world.calls[0]
    [bearer] = {each["authorization"] for each in world.calls[1:]}
    assert bearer.startswith("Bearer access-token-")
    [registered] = world.paths("/register")
    assert b'"application_type":"native"' in registered.body
    assert b'["authorization_code","refresh_token"]' in registered.body
    [asked_token] = world.paths("/token")
    assert asked_token.form["resource"] == world.url
    assert all("authorization" not in each.headers for each in world.asked)


@pytest.mark.rule("CAUTH-34")
async def test_one_login_serves_all_calls_that_wait(world: World) -> None:
    async with client_of(world) as client:
        await asyncio.gather(*(client.call("echo") for _ in range(20)))
        assert len(world.paths("/authorize")) == 1
        world.valid.clear()
        await asyncio.gather(*(client.call("echo") for _ in range(20)))
    assert len(world.paths("/authorize")) == 1
    assert [each.form["grant_type"] for each in world.paths("/token")] == [
        "authorization_code",
        "refresh_token",
    ]


@pytest.mark.rule("CAUTH-34")
async def test_login_ends_when_nobody_waits_for_it(world: World) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def login(request: LoginRequest) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with client_of(world, login=login) as client:
        call = asyncio.create_task(client.call("echo"))
        await began.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await ended.wait()


@pytest.mark.rule("CAUTH-36")
async def test_deadlines_stand_still_while_a_person_logs_in(world: World) -> None:
    still: list[bool] = []

    async def login(request: LoginRequest) -> str:
        still.append(client.watch.is_paused)
        return await log_in(request)

    client = client_of(world, login=login)
    async with client:
        await client.call("echo")
        still.append(client.watch.is_paused)
    assert still == [True, False]


@pytest.mark.rule("CAUTH-36")
@pytest.mark.virtual_time
async def test_time_of_a_pause_is_added_to_each_deadline() -> None:
    loop, watch = asyncio.get_running_loop(), DeadlineTimer()
    ends: dict[str, float] = {}

    async def work(name: str, begin: float, seconds: float) -> None:
        await asyncio.sleep(begin)
        with suppress(TimeoutError):
            async with Deadline(loop.time() + seconds, watch=watch):
                await asyncio.sleep(1000)
        ends[name] = loop.time() - start

    async def pause() -> None:
        for begin in (5.0, 1.0):
            await asyncio.sleep(begin)
            watch.pause()
            watch.pause()  # two persons are asked at once
            await asyncio.sleep(60.0)
            watch.resume()
            await asyncio.sleep(40.0)
            watch.resume()

    start = loop.time()
    works = [work("before", 0.0, 10.0), work("over", 0.0, 4.0), work("within", 55.0, 10.0)]
    await asyncio.gather(pause(), *works)
    # The second pause begins at 106 s, when the first deadline has 4 s left, the last one 9 s.
    assert not watch.is_paused
    assert ends == pytest.approx({"over": 4.0, "before": 210.0, "within": 215.0})


@pytest.mark.rule("CAUTH-36")
@pytest.mark.virtual_time
async def test_server_is_not_probed_again_while_a_person_logs_in() -> None:
    watch, said = DeadlineTimer(), list[str]()

    async def say(opening: HandshakeRequest) -> dict[str, Any]:
        said.append(opening.method)
        watch.pause()
        await asyncio.sleep(200.0)
        watch.resume()
        return {"supportedVersions": ["2026-07-28"], "capabilities": {}}

    handshake = Handshake({"name": "c", "version": "1"}, lambda _: {})
    assert (await negotiate(handshake, say, 5.0, watch)).revision.name == "2026-07-28"
    assert said == ["server/discover"]


@pytest.mark.rule("CAUTH-27", "CAUTH-28")
async def test_nobody_is_asked_without_a_login(world: World) -> None:
    error = await error_of(world, login=None)
    host = world.url.split("/")[2]
    assert str(error) == f"E207 Not logged in to {host}. Run: foundation-rt login {world.url}"
    assert isinstance(error, AuthorizationError)
    assert not error.retryable
    assert not world.asked
    assert len(world.calls) == 1


@pytest.mark.rule("CAUTH-23", "CAUTH-27")
async def test_login_that_nobody_completes_is_over_and_its_client_is_discarded(
    world: World,
) -> None:
    store = MemoryTokenStore()

    async def login(request: LoginRequest) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    error = await error_of(world, login=login, login_timeout=0.05, store=store)
    assert str(error) == (
        "E207 Nobody completed the login within 0.05 s. Run it again, or use --no-browser."
    )
    assert await store.load(StoreKey("", world.issuer)) is None
    known = {"client_id": "me", "issuer": world.issuer}
    again = await error_of(world, login=login, login_timeout=0.05, **known)
    assert str(again) == str(error)


@pytest.mark.rule("CAUTH-23")
async def test_client_of_a_cancelled_login_is_discarded(world: World) -> None:
    store, began = MemoryTokenStore(), asyncio.Event()

    async def login(request: LoginRequest) -> str:
        assert await store.load(StoreKey("", world.issuer)) is not None
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    authorizer = Authorizer(world.url, OAuth(login=login, store=store))
    task = asyncio.create_task(authorizer.login())
    await began.wait()
    task.cancel()
    await asyncio.wait([task])
    await authorizer.settled()
    assert await store.load(StoreKey("", world.issuer)) is None


@pytest.mark.rule("CAUTH-34")
async def test_nobody_is_asked_for_a_caller_who_has_gone(world: World) -> None:
    asked: list[LoginRequest] = []

    async def login(request: LoginRequest) -> str:
        asked.append(request)
        return await log_in(request)

    authorizer = Authorizer(world.url, OAuth(login=login))
    with world.lock:  # the authorization server does not answer yet
        task = asyncio.create_task(authorizer.login())
        await until(lambda: authorizer.flows is not None, "a login has begun")
        task.cancel()
        await asyncio.wait([task])
    await authorizer.settled()
    assert not asked
    assert await authorizer.stored() is None


@pytest.mark.rule("CAUTH-34")
async def test_request_that_may_ask_a_person_waits_for_none_that_may_not(world: World) -> None:
    authorizer = Authorizer(world.url, OAuth(login=log_in))
    challenge = {"www-authenticate": "Bearer"}
    turns = [authorizer.turn(may_login) for may_login in (False, True)]
    for turn in turns:
        assert await authorizer.headers(turn, "POST", world.url.encode()) == []
    ended = await asyncio.gather(
        *(authorizer.refused(turn, 401, challenge) for turn in turns), return_exceptions=True
    )
    assert isinstance(ended[0], AuthorizationError)
    assert ended[1] is True


@pytest.mark.rule("CAUTH-28")
async def test_person_is_asked_when_a_refreshed_token_is_refused(world: World) -> None:
    def token(form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        answer = world.token(form)
        if form["grant_type"] == "refresh_token":
            world.valid.clear()
        return answer

    async with client_of(world) as client:
        await client.call("echo")
        world.valid.clear()
        world.on_token = token
        assert (await client.call("echo")).text == "done"
    assert len(world.paths("/authorize")) == 2
    assert len(world.paths("/token")) == 3


@pytest.mark.rule("CAUTH-42")
async def test_store_that_cannot_be_used_is_named(world: World, tmp_path: Any) -> None:
    store = FileTokenStore(tmp_path)
    await store.save(StoreKey(world.url), {})
    [path] = tmp_path.glob("*.json")
    path.chmod(0o644)
    error = await error_of(world, store=store)
    assert (error.code, "can be read by others" in str(error)) == ("E207", True)


@pytest.mark.rule("CAUTH-11")
@pytest.mark.parametrize("host", ["a..b", "a" * 64, "[v1.x]"])
async def test_host_that_cannot_be_is_not_there(host: str) -> None:
    with pytest.raises(ConnectionLostError, match="there is no connection to"):
        await AuthExchanges().get(f"https://{host}/")


@pytest.mark.rule("CAUTH-11", "AUTHZ-15")
@pytest.mark.parametrize("kind", TRICKLES)
def test_trickling_answer_is_none(kind: str) -> None:
    exchanges = AuthExchanges(metadata_timeout=0.5)
    with trickling(kind) as place, pytest.raises(ConnectionLostError, match="did not answer"):
        asyncio.run(exchanges.get(f"{place}/metadata"))


@pytest.mark.rule("CAUTH-21", "CAUTH-23")
async def test_registered_client_is_used_until_its_server_has_forgotten_it(world: World) -> None:
    store = MemoryTokenStore()
    for _ in range(2):
        await call(world, store=store)
        await store.delete(StoreKey(world.url))
    assert len(world.paths("/register")) == 1
    world.answers["/token"] = (401, b'{"error": "invalid_client"}')
    assert "invalid_client" in str(await error_of(world, store=store))
    del world.answers["/token"]
    await call(world, store=store)
    assert len(world.paths("/register")) == 2


@pytest.mark.rule("CAUTH-21")
async def test_another_client_is_registered_if_the_port_is_taken(world: World) -> None:
    store = await logged_in(world)
    await store.delete(StoreKey(world.url))
    entry = await store.load(StoreKey("", world.issuer))
    assert entry is not None
    port = int(entry["redirect_uri"].split(":")[2].split("/")[0])
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
    async with taken, client_of(world, store=store) as client:
        await client.call("echo")
    assert len(world.paths("/register")) == 2


@pytest.mark.rule("CAUTH-22")
async def test_client_of_a_description_is_not_used_elsewhere(world: World) -> None:
    ours = "https://login.example.com"
    error = await error_of(world, client_id="me", client_secret="hidden-secret", issuer=ours)
    assert f"The credentials belong to {ours}; " in str(error)
    assert f" now uses {world.issuer}. Log in with new ones." in str(error)
    assert not world.asked


@pytest.mark.rule("CAUTH-20")
async def test_clients_of_a_description_are_not_registered(world: World) -> None:
    await call(world, client_id="me", issuer=world.issuer)
    url = "https://me.example.com/client.json"
    assert world.server is not None
    world.server["client_id_metadata_document_supported"] = True
    await call(world, client_metadata_url=url)
    assert [each.form["client_id"] for each in world.paths("/authorize")] == ["me", url]
    assert not world.paths("/register")
    world.server["registration_endpoint"] = None
    error = await error_of(world)
    assert str(error) == (
        f"E207 {world.issuer} registers no clients. Pass --client-id, from its administrator."
    )


@pytest.mark.rule("CAUTH-19")
async def test_server_of_the_oldest_revision_is_its_own_authorization_server(world: World) -> None:
    world.resource = None
    asked: list[str] = []

    async def login(request: LoginRequest) -> str:
        asked.append(request.url)
        raise ValueError("no browser here")

    # The server of this test has no such endpoints; it is enough to see which it is asked for.
    error = await error_of(world, login=login, client_id="me", issuer=world.url[: -len("/mcp")])
    assert asked[0].startswith(f"{world.url[: -len('/mcp')]}/authorize?")
    assert "The login failed: ValueError" in str(error)
    assert "no browser here" not in str(error)


@pytest.mark.rule("CAUTH-11", "CAUTH-16")
@pytest.mark.parametrize(
    ("path", "answer", "code"),
    [
        ("/.well-known/oauth-authorization-server", (200, b"{" + b" " * 70_000 + b"}"), "E207"),
        ("/.well-known/oauth-authorization-server", (200, b"<html>"), "E207"),
        ("/.well-known/oauth-authorization-server", (302, b""), "E207"),
        ("/.well-known/oauth-authorization-server", (503, b""), "E201"),
        ("/register", (400, b'{"error": "invalid_redirect_uri"}'), "E207"),
        ("/register", (503, b""), "E201"),
        ("/token", (200, b"<html>"), "E207"),
        ("/token", (200, b'{"access_token": 5}'), "E207"),
        ("/token", (502, b""), "E201"),
    ],
)
async def test_answers_that_cannot_be_used_end_the_login(
    world: World, path: str, answer: tuple[int, bytes], code: str
) -> None:
    world.answers[path] = answer
    async with connect(world.url, auth=OAuth(login=log_in), retries=ONCE) as client:
        with pytest.raises(MCPError) as caught:
            await client.call("echo")
    assert caught.value.code == code
    assert not caught.value.may_have_run


@pytest.mark.rule("CAUTH-13", "CAUTH-16", "CAUTH-18")
@pytest.mark.parametrize(
    ("of_resource", "of_server", "of_challenge", "error"),
    [
        ({"authorization_servers": []}, {}, {}, "{host} names no authorization server"),
        (None, {}, {"resource_metadata": "{url}/none"}, "{host} names resource metadata that is"),
        ({}, {"token_endpoint": None}, {}, "{issuer} names no token_endpoint"),
        ({}, {"authorization_endpoint": None}, {}, "{issuer} has no page to log in at"),
    ],
)
async def test_metadata_that_lacks_what_a_login_needs_ends_it(
    world: World,
    of_resource: dict[str, Any] | None,
    of_server: dict[str, Any],
    of_challenge: dict[str, str],
    error: str,
) -> None:
    known = {"host": world.url.split("/")[2], "url": world.url, "issuer": world.issuer}
    world.resource, world.server = of_resource, of_server
    world.challenge = {name: value.format(**known) for name, value in of_challenge.items()}
    assert f"E207 {error.format(**known)}" in str(await error_of(world))
    assert not world.paths("/authorize")


@pytest.mark.rule("CAUTH-37", "CAUTH-31")
async def test_bound_token_goes_with_proofs_that_have_the_latest_nonce(world: World) -> None:
    world.nonces, store = ("issuer-1", "server-1"), MemoryTokenStore()
    async with client_of(world, store=store) as client:
        await client.call("echo")
        world.nonces = ("issuer-2", "server-2")
        sent = len(world.calls)
        await client.call("echo")
        assert len(world.calls) == sent + 2  # once more, for the nonce
        await client.call("echo")
        assert len(world.calls) == sent + 3
    token = (await grant_of(store, world))["access_token"]
    await expire(store, world)
    await call(world, store=store, login=None)
    assert len(world.paths("/authorize")) == 1
    assert {each["authorization"].split()[0] for each in world.calls[1:]} == {"DPoP"}
    assert len({each["key"] for each in world.proofs}) == 1  # also after the refresh
    assert len({each["jti"] for each in world.proofs}) == len(world.proofs)
    digest = urlsafe_b64encode(sha256(token.encode()).digest()).rstrip(b"=").decode()
    of_token = [each for each in world.proofs if each.get("ath") == digest]
    assert {each["htu"] for each in of_token} == {world.url}
    assert {each.get("nonce") for each in of_token} == {None, "server-1", "server-2"}
    of_issuer = [each.get("nonce") for each in world.proofs if "ath" not in each]
    assert of_issuer == [None, "issuer-1", None, "issuer-2"]


@pytest.mark.rule("CAUTH-37")
async def test_server_that_wants_another_nonce_each_time_is_asked_once_more(world: World) -> None:
    world.nonces = ("issuer", "server")
    async with client_of(world) as client:
        await client.call("echo")
        sent, world.is_content = len(world.calls), False
        with pytest.raises(MCPError) as caught:
            await client.call("echo")
    assert caught.value.code == "E207"
    assert len(world.calls) == sent + 2
    assert "(HTTP status 400): use_dpop_nonce" in str(await error_of(world))
    assert len(world.paths("/token")) == 2 + 2


@pytest.mark.rule("CAUTH-28", "CAUTH-34")
async def test_request_that_was_refused_takes_the_token_that_came_since(world: World) -> None:
    authorizer = Authorizer(world.url, OAuth(login=log_in))
    turns = [authorizer.turn(True) for _ in range(2)]
    for turn in turns:
        assert await authorizer.headers(turn, "POST", world.url.encode()) == []
    assert [await authorizer.refused(turn, 401, {}) for turn in turns] == [True, True]
    assert len(world.paths("/authorize")) == 1
    assert not await authorizer.refused(turns[0], 403, {"www-authenticate": "Bearer"})
    assert not await authorizer.refused(turns[0], 500, {})
    assert len(world.paths("/token")) == 1


@pytest.mark.rule("CAUTH-26", "CAUTH-28")
async def test_more_scopes_are_asked_for_at_most_twice(world: World) -> None:
    world.challenge["scope"] = "basic"
    world.scopes_needed["tools/call"] = "write"
    async with client_of(world) as client:
        await client.list_tools()
        assert (await client.call("echo")).text == "done"
        asked = [each.form["scope"] for each in world.paths("/authorize")]
        assert asked == ["basic", "basic write"]
        assert all(each.form["grant_type"] != "refresh_token" for each in world.paths("/token"))
        world.scopes_needed["tools/call"] = "admin"
        world.granted = "basic"
        with pytest.raises(MCPError) as caught:
            await client.call("echo")
    assert caught.value.code == "E207"
    assert len(world.paths("/authorize")) == 4


# -- refreshes


@pytest.mark.rule("CAUTH-30", "CAUTH-31")
async def test_token_is_refreshed_before_it_ends(world: World) -> None:
    store = MemoryTokenStore()
    world.challenge["scope"] = "a b"
    await call(world, store=store)
    await expire(store, world, seconds=30)
    refused = len(world.calls)
    await call(world, store=store, login=None)
    assert "authorization" in world.calls[refused]
    last = world.paths("/token")[-1].form
    assert last["grant_type"] == "refresh_token"
    assert (last["scope"], last["resource"]) == ("a b", world.url)


@pytest.mark.rule("CAUTH-30")
async def test_token_that_cannot_be_refreshed_is_used_until_it_ends(world: World) -> None:
    store = await logged_in(world)
    world.refreshable.clear()
    await expire(store, world, seconds=30)
    async with client_of(world, store=store, login=None) as client:
        for _ in range(2):
            assert (await client.call("echo")).text == "done"
    assert len(world.paths("/token")) == 2


@pytest.mark.rule("CAUTH-30", "CAUTH-45")
async def test_program_gets_a_new_token_before_its_token_ends(world: World) -> None:
    now = [1000.0]
    described = ClientCredentials("me", client_secret="the-secret")
    authorizer = Authorizer(world.url, described, lambda: now[0])
    await authorizer.login()
    seen = []
    for now[0] in (4539.0, 4540.0):  # s: the token ends at 4,600 s
        seen += await authorizer.headers(authorizer.turn(False), "POST", world.url.encode())
    assert [value for _, value in seen] == [b"Bearer access-token-1", b"Bearer access-token-2"]


@pytest.mark.rule("CAUTH-23", "CAUTH-33")
@pytest.mark.parametrize("since", [None, {"client_id": "registered-since"}])
async def test_client_that_a_refresh_finds_forgotten_is_discarded(
    world: World, since: dict[str, str] | None
) -> None:
    store = await logged_in(world)
    await expire(store, world)
    if since is not None:
        await store.save(StoreKey("", world.issuer), since)
    world.answers["/token"] = (401, b'{"error": "invalid_client"}')
    assert "Not logged in" in str(await error_of(world, store=store, login=None))
    assert await store.load(StoreKey("", world.issuer)) == since
    assert await store.load(StoreKey(world.url)) is None


@pytest.mark.rule("CAUTH-21")
@pytest.mark.parametrize(
    ("changes", "described", "registered"),
    [
        ({}, {}, 1),
        ({"expires_at": 1}, {}, 2),  # its secret has ended
        ({"client_id": 5}, {}, 2),
        ({"redirect_uri": "http://127.0.0.1:7123/back"}, {"redirect_uri": "http://localhost/"}, 2),
        ({"redirect_uri": "http://127.0.0.1/x"}, {"redirect_uri": "http://127.0.0.1/x"}, 1),
    ],
)
async def test_kept_client_is_used_again_where_it_fits(
    world: World, changes: dict[str, Any], described: dict[str, Any], registered: int
) -> None:
    store = await logged_in(world)
    await store.delete(StoreKey(world.url))
    key = StoreKey("", world.issuer)
    await store.save(key, {**(await store.load(key) or {}), **changes})
    await call(world, store=store, **described)
    assert len(world.paths("/register")) == registered


@pytest.mark.rule("CLI-102")
@pytest.mark.parametrize(
    ("endpoint", "refresh_token", "asked"),
    [
        ("{issuer}/revoke", "r", ("r", "refresh_token")),
        ("{issuer}/revoke", None, ("a", "access_token")),
        ("http://127.0.0.1:1/revoke", "r", None),
        (None, "r", None),
    ],
)
async def test_logout_says_whether_the_token_was_revoked(
    world: World, endpoint: str | None, refresh_token: str | None, asked: tuple[str, str] | None
) -> None:
    store = await logged_in(world)
    place = endpoint and endpoint.format(issuer=world.issuer)
    changes = {"access_token": "a", "refresh_token": refresh_token, "revocation_endpoint": place}
    await store.save(StoreKey(world.url), {**await grant_of(store, world), **changes})
    ended = await Authorizer(world.url, OAuth(store=store)).logout()
    assert ended == (True, asked is not None)
    forms = [each.form for each in world.paths("/revoke")]
    assert [(each["token"], each["token_type_hint"]) for each in forms] == [asked] * len(forms)
    assert await store.load(StoreKey(world.url)) is None


@pytest.mark.rule("CAUTH-53")
async def test_server_that_fails_is_no_server_without_a_login(world: World) -> None:
    world.answers["/mcp"] = (503, b"")
    with pytest.raises(ConnectionLostError, match="answered with HTTP status 503"):
        await Authorizer(f"{world.issuer}/mcp", OAuth()).challenged()


@pytest.mark.rule("CAUTH-30", "CAUTH-33")
@pytest.mark.parametrize("status", [500, 503, 429])
async def test_failing_authorization_server_costs_no_login(world: World, status: int) -> None:
    store = await logged_in(world)
    world.answers["/token"] = (status, b'{"error": "invalid_grant"}')
    await expire(store, world, seconds=30)
    async with client_of(world, store=store, login=None) as client:
        for _ in range(3):
            await client.call("echo")  # the token is still good
    assert len(world.paths("/token")) == 2
    await expire(store, world)
    async with connect(world.url, auth=OAuth(store=store), retries=ONCE) as client:
        with pytest.raises(ConnectionLostError):
            await client.call("echo")
    del world.answers["/token"]
    await call(world, store=store, login=None)


@pytest.mark.rule("CAUTH-33")
async def test_refresh_token_that_is_refused_is_deleted_unless_it_was_replaced(
    world: World,
) -> None:
    store = await logged_in(world)
    await expire(store, world)
    world.refreshable.clear()
    error = await error_of(world, store=store, login=None)
    assert "Not logged in" in str(error)
    assert await store.load(StoreKey(world.url)) is None


@pytest.mark.rule("CAUTH-33")
async def test_entry_that_was_replaced_meanwhile_is_kept(world: World) -> None:
    store = await logged_in(world)
    await expire(store, world)
    entry = await grant_of(store, world)

    class Replacing(MemoryTokenStore):
        """A store that somebody writes to without its lock."""

        loads = 0

        async def load(self, key: StoreKey) -> Any:
            self.loads += key.resource == world.url
            return {**entry, "refresh_token": "newer"} if self.loads > 2 else entry

        async def delete(self, key: StoreKey) -> None:
            raise AssertionError("the newer entry was deleted")

    world.refreshable.clear()
    assert "Not logged in" in str(await error_of(world, store=Replacing(), login=None))


@pytest.mark.rule("CAUTH-34")
async def test_refresh_goes_on_when_its_caller_has_gone(world: World) -> None:
    store = MemoryTokenStore()
    async with client_of(world, store=store) as client:
        await client.call("echo")
        await expire(store, world)
    before = await grant_of(store, world)
    with world.lock:  # the authorization server does not answer yet
        client = client_of(world, store=store, login=None)
        call = asyncio.create_task(client.call("echo"))
        await until(lambda: client_is_refreshing(client), "the client refreshes")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await client.close()
    assert (await grant_of(store, world))["refresh_token"] != before["refresh_token"]


def client_is_refreshing(client: Client) -> bool:
    transport: Any = client._link.transport
    return transport is not None and transport.authorizer._is_sent


# -- secrets


@pytest.mark.rule("CAUTH-38")
async def test_secrets_are_in_no_log_and_no_error(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = MemoryTokenStore()
    said: list[str] = []
    async with client_of(world, store=store) as client:
        await client.call("echo")
        grant = await grant_of(store, world)
        world.scopes_needed["tools/call"] = "no"  # the refusal repeats the token
        world.answers["/token"] = (400, b'{"error": "invalid_request"}')
        with pytest.raises(MCPError) as caught:
            await client.call("echo")
        said.append(repr(caught.value) + str(caught.value))
    for path in ("/token", "/register"):
        world.answers = {path: (400, b'{"error": "invalid_grant", "error_description": "x"}')}
        said.append(str(await error_of(world)))
    assert said[-1].endswith(": invalid_grant: x. Pass --client-id, from its administrator.")
    codes = [each.form["code"] for each in world.paths("/token") if "code" in each.form]
    secrets = [grant["access_token"], grant["refresh_token"], *codes]
    secrets += [each.form["code_verifier"] for each in world.paths("/token") if each.form]
    everything = "\n".join([*said, caplog.text])
    assert not [each for each in secrets if each in everything]


@pytest.mark.rule("CAUTH-38")
async def test_code_that_a_refusal_repeats_is_masked(world: World) -> None:
    world.callback["code"] = "code-of-another-login"
    error = await error_of(world)
    assert "invalid_grant: ***" in str(error)


# -- imports

_PROBE = """
import asyncio, sys
from foundation_rt.client import connect
from foundation_rt.client.auth.descriptions import OAuth
from foundation_rt.client.auth.stores import FileTokenStore
from pathlib import Path

async def main(url, folder):
    auth = OAuth(store=FileTokenStore(Path(folder))) if folder else None
    async with connect(url, auth=auth) as client:
        await client.call("echo")
    print(*sorted(each for each in sys.modules if "client.auth" in each or "joserfc" in each))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.rule("CAUTH-03")
async def test_stored_token_needs_none_of_the_modules_that_get_one(
    world: World, tmp_path: Any
) -> None:
    store = FileTokenStore(tmp_path)
    await call(world, store=store)
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", _PROBE, world.url, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    loaded = {each.removeprefix("foundation_rt.client.auth.") for each in ran.stdout.split()}
    assert loaded, ran.stderr
    assert not loaded & {"flows", "exchanges", "logins", "proofs", "discovery", "clients"}
    assert not {each for each in loaded if each.startswith("joserfc")}


@pytest.mark.rule("CAUTH-03")
def test_client_without_a_description_imports_nothing_of_it() -> None:
    code = (
        "import sys; from foundation_rt.client import connect;"
        "connect('https://mcp.example.com/mcp', headers={'Authorization': 'Bearer x'});"
        "import foundation_rt.client.transports.http;"
        "print([each for each in sys.modules if 'client.auth' in each])"
    )
    ran = run_source(code)
    assert ran.stdout == "[]\n"


@pytest.mark.rule("CAUTH-30")
async def test_token_of_a_short_life_is_not_refreshed_for_every_request(world: World) -> None:
    world.token_lifetime = 40
    async with client_of(world) as client:
        for _ in range(3):
            await client.call("echo")
    assert len(world.paths("/token")) == 1


# -- peculiarities of big servers

METHODS = {
    "code_challenge_methods_supported": ["plain", "S256"],
    "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
}
BIG_SERVERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    # No registration; a client with a secret; tokens without an end; scopes with commas.
    "GitHub": (
        {"registration_endpoint": None, "authorization_response_iss_parameter_supported": None},
        {"client_id": "Iv1.0123", "client_secret": "secret-of-the-app", "scopes": ("repo", "gist")},
        "",
    ),
    # It takes descriptions of clients too, and its server refuses their tokens.
    "Linear": ({**METHODS, "client_id_metadata_document_supported": True}, {}, ""),
    "Notion": (METHODS, {}, ""),
    # The server of one project calls itself by the path of all.
    "Sentry": ({**METHODS, "revocation_endpoint": None}, {}, "/an-organization/a-project"),
    # Its page is at another host than its issuer.
    "Atlassian": (
        {**METHODS, "authorization_endpoint": "http://localhost:{port}/authorize"},
        {},
        "",
    ),
}


@pytest.mark.rule("CAUTH-20", "CAUTH-14", "CAUTH-31")
@pytest.mark.parametrize("name", BIG_SERVERS)
async def test_person_logs_in_and_stays_at_a_server_like(world: World, name: str) -> None:
    members, described, path = BIG_SERVERS[name]
    port = world.issuer.rpartition(":")[2]
    world.server = {
        key: value.format(port=port) if isinstance(value, str) else value
        for key, value in members.items()
    }
    if name == "GitHub":
        described = {**described, "issuer": world.issuer}
        world.granted, world.token_lifetime, world.callback = "repo,gist", None, {"iss": None}
    store, url = MemoryTokenStore(), f"{world.url}{path}"
    auth = OAuth(login=log_in, store=store, **described)
    async with connect(url, auth=auth) as client:
        assert (await client.call("echo")).text == "done"
    [registered] = world.paths("/register") or [None]
    assert (registered is None) == (name == "GitHub")
    [key] = [each for each in store._entries if each.resource]
    entry = dict(store._entries[key])
    await store.save(key, {**entry, "expires_at": 1.0, "refresh_at": 1.0})
    async with connect(url, auth=OAuth(store=store, **described)) as client:
        assert (await client.call("echo")).text == "done"
    after = store._entries[key]
    assert after["refresh_token"] not in (None, entry["refresh_token"])
    assert after["scopes"] == (["repo", "gist"] if name == "GitHub" else [])


@pytest.mark.rule("CAUTH-31", "CAUTH-33")
async def test_github_reports_errors_with_200_and_separates_scopes_by_commas(world: World) -> None:
    store = MemoryTokenStore()
    world.granted, world.token_lifetime = "repo,read:org", None
    await call(world, store=store, scopes=["repo", "read:org"])
    grant = await grant_of(store, world)
    assert (grant["scopes"], grant["expires_at"]) == (["repo", "read:org"], None)
    world.valid.clear()
    world.answers["/token"] = (200, b'{"error": "bad_refresh_token"}')
    assert "Not logged in" in str(await error_of(world, store=store, login=None))
    assert await store.load(StoreKey(world.url)) is None
    world.answers["/token"] = (200, b'{"error": "bad_verification_code"}')
    assert "bad_verification_code" in str(await error_of(world, store=store))


@pytest.mark.rule("CAUTH-31")
async def test_refresh_token_that_does_not_rotate_stays(world: World) -> None:
    store = await logged_in(world)
    before = await grant_of(store, world)
    await expire(store, world)
    world.answers["/token"] = (200, b'{"access_token": "next-token", "expires_in": "60"}')
    world.valid["next-token"] = ""
    await call(world, store=store, login=None)
    after = await grant_of(store, world)
    assert (after["access_token"], after["token_type"]) == ("next-token", "Bearer")
    assert after["refresh_token"] == before["refresh_token"]
