"""Ways to log in: in a browser of this machine, by pasting, by a code for another device."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import nullcontext
from itertools import pairwise
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.client import connect
from foundation_rt.client.auth.descriptions import ClientCredentials, LoginRequest, OAuth
from foundation_rt.client.auth.exchanges import AuthResponse
from foundation_rt.client.auth.flows import Flows
from foundation_rt.client.auth.grants import Challenge
from foundation_rt.client.auth.logins import browser_login, device_login, log_in, paste_login
from foundation_rt.client.auth.stores import MemoryTokenStore
from foundation_rt.client.errors import AuthorizationError, ConnectionLostError
from foundation_rt.client.targets import HttpServer
from foundation_rt.errors import UsageError
from tests.lab.clock.virtual_loop import run_virtual
from tests.lab.login.oauth_world import World, where_it_leads


def read(url: str, posted: bytes | None = None) -> tuple[int, str]:
    try:
        with urlopen(url, posted, timeout=20) as page:
            return page.status, page.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@pytest.mark.rule("CAUTH-50")
async def test_browser_comes_back_and_its_process_is_not_waited_for(world: World) -> None:
    seen: list[tuple[int, str]] = []
    closed = threading.Event()

    def browse(url: str) -> None:
        back = where_it_leads(url)
        seen.append(read(back.replace("state=", "state=x")))
        seen.append(read(back.split("?")[0]))
        seen.append(read(back.replace("/callback", "/other")))
        with pytest.raises(OSError):
            read(back, b"")
        with pytest.raises(OSError):
            read(f"{back}&filler={'x' * 20_000}")
        seen.append(read(back))
        closed.wait(60)  # it stays open

    try:
        async with connect(
            world.url, auth=OAuth(login=browser_login(browse)), timeout=60
        ) as client:
            assert (await client.call("echo")).text == "done"
    finally:
        closed.set()
    assert [status for status, _ in seen] == [400, 400, 400, 200]
    assert "You can close this page" in seen[-1][1]


@pytest.mark.rule("CAUTH-50")
async def test_connections_without_a_request_delay_no_login(world: World) -> None:
    idle: list[socket.socket] = []

    def browse(url: str) -> None:
        back = where_it_leads(url)
        port = urlsplit(back).port
        idle.extend(socket.create_connection(("127.0.0.1", port), 60) for _ in range(40))
        read(back)

    auth = OAuth(login=browser_login(browse))
    async with connect(world.url, auth=auth, timeout=60) as client:
        assert (await client.call("echo")).text == "done"
    assert [await asyncio.to_thread(each.recv, 1) for each in idle] == [b""] * 40
    for each in idle:
        each.close()


@pytest.mark.rule("CAUTH-50")
async def test_port_that_is_taken_is_named() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    request = LoginRequest(
        "https://x/?state=a", f"http://127.0.0.1:{port}/callback", "https://x", "c"
    )
    async with server:
        with pytest.raises(AuthorizationError, match=f"cannot come back to 127.0.0.1:{port}"):
            await browser_login(lambda _: None)(request)


@pytest.mark.rule("CAUTH-51")
async def test_address_that_is_pasted_is_the_answer(world: World) -> None:
    shown: list[str] = []

    def paste() -> str:
        [page] = [each for each in shown[0].split() if each.startswith("http")]
        return f"  {where_it_leads(page)}\n"

    login = paste_login(shown.append, paste)
    async with connect(world.url, auth=OAuth(login=login)) as client:
        assert (await client.call("echo")).text == "done"
    nothing = connect(world.url, auth=OAuth(login=paste_login(shown.append, lambda: "\n")))
    async with nothing as client:
        with pytest.raises(AuthorizationError, match="No address was pasted"):
            await client.call("echo")


@pytest.mark.rule("CAUTH-51")
@pytest.mark.parametrize("error", [OSError, ValueError])
async def test_input_that_cannot_be_read_ends_the_login(error: type[Exception]) -> None:
    def read() -> str:
        raise error

    request = LoginRequest("https://x/?state=a", "http://127.0.0.1/", "https://x", "c")
    with pytest.raises(AuthorizationError, match="No address was pasted"):
        await paste_login(lambda _: None, read)(request)


@pytest.mark.rule("CAUTH-53")
@pytest.mark.parametrize("auth", [None, ClientCredentials("me", client_secret="s")])
async def test_nobody_logs_in_where_no_person_can(auth: Any) -> None:
    with pytest.raises(UsageError, match="a server over HTTP whose auth is an OAuth"):
        await log_in(HttpServer("https://mcp.example.com/mcp", auth=auth), device_login())


@pytest.mark.rule("CAUTH-52", "CAUTH-10")
@pytest.mark.parametrize(
    ("endpoint", "page", "error"),
    [
        (None, {}, "has no login for devices"),
        ("/device", {"device_code": "d"}, "named no page for the device"),
        ("/device", {"verification_uri": "https://x.org/"}, "named no page for the device"),
        ("/device", {"device_code": "d", "verification_uri": "http://x.org/"}, "named no page"),
    ],
)
async def test_device_without_a_page_is_not_admitted(
    world: World, endpoint: str | None, page: dict[str, str], error: str
) -> None:
    place = endpoint and world.issuer + endpoint
    world.server = {"device_authorization_endpoint": place}
    world.answers["/device"] = (200, json.dumps(page).encode())
    shown: list[str] = []
    async with connect(world.url, auth=OAuth(login=device_login(shown.append))) as client:
        with pytest.raises(AuthorizationError, match=f"{world.issuer} {error}"):
            await client.call("echo")
    assert not shown
    assert not world.paths("/token")


@pytest.mark.rule("CAUTH-52")
async def test_device_is_admitted_when_the_person_has_agreed(world: World) -> None:
    shown: list[str] = []
    answers = iter(["authorization_pending", "authorization_pending", None])
    token = World.token

    def poll(form: dict[str, str]) -> tuple[int, dict[str, object]]:
        assert form["device_code"] == "device-code-1"
        error = next(answers)
        return token(world, form) if error is None else (400, {"error": error})

    world.on_token = poll
    described = OAuth(login=device_login(shown.append), scopes=["a", "b"])
    async with connect(world.url, auth=described) as client:
        assert (await client.call("echo")).text == "done"
    assert world.paths("/device")[0].form["scope"] == "a b"
    assert shown == [f"Open {world.issuer}/enter and enter ABCD-EFGH\n"]
    assert b"device_code" in world.paths("/register")[0].body
    world.on_token = lambda form: (400, {"error": "access_denied"})
    async with connect(world.url, auth=OAuth(login=device_login(shown.append))) as client:
        with pytest.raises(AuthorizationError, match="access_denied"):
            await client.call("echo")


@pytest.mark.rule("CAUTH-52")
def test_device_is_asked_about_more_slowly_when_the_server_wants_it_or_does_not_answer() -> None:
    issuer, times = "https://login.example.com", list[float]()
    answers = ["authorization_pending", "slow_down", None, None, "authorization_pending", ""]

    class Net:
        async def get(self, url: str) -> AuthResponse:
            said = {"resource": "https://mcp.example.com/mcp", "authorization_servers": [issuer]}
            named = ("device_authorization_endpoint", "registration_endpoint", "token_endpoint")
            described = {"issuer": issuer, **{each: f"{issuer}/{each}" for each in named}}
            return AuthResponse(200, {}, described if url.startswith(issuer) else said)

        async def post(self, url: str, body: object, headers: object) -> AuthResponse:
            if url.endswith("registration_endpoint"):
                return AuthResponse(201, {}, {"client_id": "c"})
            if url.endswith("device_authorization_endpoint"):
                page = {"device_code": "d", "verification_uri": f"{issuer}/enter", "interval": 2}
                return AuthResponse(200, {}, page)
            times.append(asyncio.get_running_loop().time())
            said = answers[len(times) - 1]
            if said is None:
                raise ConnectionLostError("no answer within 30 s", may_have_run=False)
            if said:
                return AuthResponse(400, {}, {"error": said})
            return AuthResponse(200, {}, {"access_token": "t", "token_type": "Bearer"})

    async def main(clock: ManualClock) -> None:
        described = OAuth(login=device_login(lambda _: None))
        store = MemoryTokenStore()
        url = "https://mcp.example.com/mcp"
        flows = Flows(url, described, store, Net(), lambda: 0.0, nullcontext)
        await flows.obtain(Challenge("bearer", {}), ())

    run_virtual(main)
    gaps = [round(after - before) for before, after in pairwise(times)]
    assert gaps == [2, 7, 14, 28, 28]
