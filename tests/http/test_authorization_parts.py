"""The parts of the authorization server: settings, descriptions of clients, logins over time."""

from __future__ import annotations

import asyncio
import re
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import httpx2
import orjson
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import Server
from foundation_rt.base.clock import ManualClock, SystemClock
from foundation_rt.base.config.http_sections import AuthorizationSection
from foundation_rt.base.http_client import network
from foundation_rt.base.http_client.values import is_public
from foundation_rt.client.auth.exchanges import AuthExchanges
from foundation_rt.client.auth.grants import challenge_of
from foundation_rt.errors import UsageError
from foundation_rt.http.app import HttpApplication
from foundation_rt.http.authorization_server import clients
from foundation_rt.http.authorization_server.clients import (
    ClientError,
    Clients,
    is_allowed,
    public_network,
)
from foundation_rt.http.authorization_server.identity import (
    IdentityProvider,
    IdentityTokens,
    ProviderError,
)
from foundation_rt.http.authorization_server.logins import GrantRefused, Login, Logins
from foundation_rt.http.authorization_server.providers import PROVIDERS, Identity, read_person
from foundation_rt.http.authorization_server.store import (
    LoginStore,
    MemoryStore,
    StoreUnavailable,
    make_store,
)
from foundation_rt.http.seal import Seal
from tests.lab.checks.recorded_log import RecordedLogger
from tests.lab.login.client import CALLBACK, VERIFIER, transaction_of
from tests.lab.login.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProviderFake,
    running_provider,
)
from tests.lab.login.oauth_world import parameters_of, where_it_leads
from tests.lab.peers.scripted_http import self_signed
from tests.lab.places.services import need_redis
from tests.lab.servers import fork_server
from tests.lab.waiting import until

STATE_KEY = "5e" * 32
RIGHT: dict[str, Any] = {
    "url": "https://mcp.example.com",
    "provider": "google",
    "client_id": "id",
    "client_secret": "the secret",
    "allow": ("*",),
}


def application(
    more: dict[str, Any] | None = None, path: str | None = None, **changes: Any
) -> HttpApplication:
    section = {name: each for name, each in {**RIGHT, **changes}.items() if each is not None}
    config = {"security": {"state_key": STATE_KEY}, "authorization": section, **(more or {})}
    return Server("guarded", config={**config, "logging": {"level": "error"}}).asgi_app(path)


# -- settings


@pytest.mark.rule("AUTHZ-03")
@pytest.mark.parametrize(
    ("changes", "more", "key"),
    [
        ({"provider": None}, {}, "authorization.provider"),
        ({"url": None}, {"http": {"api_keys": ["k" * 16]}}, "authorization.url"),
        ({"client_id": None}, {}, "authorization.client_id"),
        ({"client_secret": None}, {}, "authorization.client_secret"),
        ({"client_key_file": "/nowhere"}, {}, "authorization.client_key_file"),
        ({"client_secret": None, "client_key_file": "/x"}, {}, "authorization.client_key_file"),
        ({"allow": ()}, {}, "authorization.allow"),
        ({"provider": "oidc"}, {}, "authorization.provider_url"),
        ({"provider": "oauth"}, {}, "authorization.provider_url"),
        ({"provider": "entra"}, {}, "authorization.tenant"),
        (
            {"provider": "oidc", "provider_url": "https://i.example", "allow": ("org:x",)},
            {},
            "authorization.allow",
        ),
        ({"store": "sqlite://x"}, {}, "authorization.store"),
        ({}, {"security": {}}, "security.state_key"),
        ({}, {"oauth": {"issuer": "https://i.example"}}, "oauth.issuer"),
        ({}, {"http": {"no_auth": True}}, "http.no_auth"),
    ],
)
def test_start_is_refused_and_the_key_named(
    changes: dict[str, Any], more: dict[str, Any], key: str
) -> None:
    with pytest.raises(UsageError, match=key) as refused:
        application(more, **changes)
    assert "the secret" not in str(refused.value)


@pytest.mark.rule("AUTHZ-03")
@pytest.mark.parametrize("url", ["http://mcp.example.com", "http://10.0.0.1:8000", "ftp://x"])
def test_url_is_https_or_of_this_machine(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        AuthorizationSection(url=url)


@pytest.mark.rule("AUTHZ-04")
def test_workers_are_refused_with_logins_in_memory(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("from foundation_rt import Server\nserver = Server('x')\n")
    given = {f"FOUNDATION_RT_AUTHORIZATION__{key.upper()}": each for key, each in RIGHT.items()}
    given |= {"FOUNDATION_RT_AUTHORIZATION__ALLOW": "*"}
    line = [sys.executable, "-m", "foundation_rt", "serve", str(app), "--workers", "2"]
    line += ["--http", "127.0.0.1:0"]
    for key, named in ((None, b"security.state_key"), (STATE_KEY, b"authorization.store")):
        keyed = {} if key is None else {"FOUNDATION_RT_SECURITY__STATE_KEY": key}
        from tests.lab.servers.http_server import free_port

        line[-1] = f"127.0.0.1:{free_port()}"
        from tests.lab.servers.process import environment

        env = {**environment(), **given, **keyed}
        done = fork_server.run(line, env=env, capture_output=True, timeout=60)
        assert done.returncode != 0
        assert named in done.stderr


@pytest.mark.rule("AUTHZ-01")
def test_server_without_the_section_imports_nothing_of_it() -> None:
    code = (
        "import sys; from foundation_rt import Server; s = Server('x', config={'http':"
        " {'no_auth': True}}); s.asgi_app(); print(*sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert b"foundation_rt.http.app" in printed.stdout
    for name in (b"http.authorization_server", b"foundation_rt.client", b"http.seal", b"joserfc"):
        assert name not in printed.stdout


@pytest.mark.rule("AUTHZ-02")
def test_page_of_the_application_at_its_path_is_refused() -> None:
    server = Server("x", config={"security": {"state_key": STATE_KEY}, "authorization": RIGHT})
    server.http_get("/oauth/token")(lambda principal: "mine")
    with pytest.raises(UsageError, match="/oauth/token"):
        server.asgi_app()


async def asked(app: HttpApplication, url: str, **given: Any) -> httpx2.Response:
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport) as client:
        return await client.get(url, **given)


@pytest.mark.rule("AUTHZ-07", "AUTHZ-02", "AUTHZ-17")
async def test_public_url_names_issuer_audience_and_host() -> None:
    app = application(url="https://mcp.example.com/base", path="/tools")
    await app.start()
    try:
        place = "https://mcp.example.com/.well-known/"
        resource = (await asked(app, f"{place}oauth-protected-resource")).json()
        assert resource["resource"] == "https://mcp.example.com/base/tools"
        assert resource["authorization_servers"] == ["https://mcp.example.com/base"]
        for path in ("oauth-authorization-server", "oauth-authorization-server/base"):
            metadata = (await asked(app, f"{place}{path}")).json()
            assert metadata["token_endpoint"] == "https://mcp.example.com/base/oauth/token"
        other = await asked(app, "https://evil.example/oauth/keys")
        assert other.status_code == 421
        client = await registered(app)
        page = await asked(app, "https://mcp.example.com/oauth/authorize", params=client)
        [cookie] = page.headers.get_list("set-cookie")
        assert cookie.startswith("__Host-login=")
        assert cookie.endswith("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure")
        assert 'action="/base/oauth/consent"' in page.text
    finally:
        await app.stop(5)


async def registered(app: HttpApplication) -> dict[str, str]:
    """Register a client; return the parameters with which it asks."""
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport) as client:
        body = {"redirect_uris": [CALLBACK]}
        answer = await client.post("https://mcp.example.com/oauth/register", json=body)
    return {
        "client_id": answer.json()["client_id"],
        "response_type": "code",
        "redirect_uri": CALLBACK,
        "code_challenge": challenge_of(VERIFIER),
        "code_challenge_method": "S256",
    }


@pytest.mark.rule("AUTHZ-10")
async def test_ten_thousand_registrations_keep_nothing() -> None:
    found = fresh_clients()
    document = {"redirect_uris": [CALLBACK], "client_name": "Desk"}
    first = found.register(document)
    sizes = []
    import tracemalloc

    tracemalloc.start()
    try:
        for _ in range(2):
            for _ in range(5_000):
                found.register(document)
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 100_000
    assert await found.find(first.client_id) == first


@pytest.mark.rule("AUTHZ-12")
async def test_registration_loses_what_the_operator_takes_away() -> None:
    uri = "https://chat.example/back"
    before, after = fresh_clients(uri), fresh_clients()
    client_id = before.register({"redirect_uris": [uri]}).client_id
    assert (await before.find(client_id)).allows(uri)
    assert not (await after.find(client_id)).allows(uri)


_PIECES = (
    *("127.0.0.1", "localhost", "[::1]", "evil.example", ":80", ":", "@", "http://"),
    *("/", "//", "?", "#", "\\", ".", ";", "%2e", "%00", "a", " ", "\t", "[", "]", "::1"),
)


@pytest.mark.rule("AUTHZ-11")
@given(st.lists(st.sampled_from(_PIECES), max_size=5).map(lambda each: "http://" + "".join(each)))
def test_allowed_uri_leads_to_this_machine(uri: str) -> None:
    if is_allowed(uri, ("loopback",)):
        assert re.match(r"http://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]*)?([/?]|$)", uri)


@pytest.mark.rule("AUTHZ-10")
def test_id_that_was_changed_anywhere_is_unknown() -> None:
    found = fresh_clients()
    known = found.register({"redirect_uris": [CALLBACK]}).client_id
    other = "B" if known[-1] == "A" else "A"
    changed = (
        f"{known[:9]}!{known[9:]}",
        f"{known}<>",
        f"{known}=",
        f" {known}",
        known[:-1] + other,
    )
    assert [found.registered(each) for each in changed] == [None] * 5
    assert found.registered(known) is not None


@pytest.mark.rule("AUTHZ-02", "AUTH-22")
async def test_form_that_is_larger_than_any_request_is_refused() -> None:
    app = application({"http": {"max_body_bytes": 1024}})
    await app.start()
    try:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as client:
            place = "https://mcp.example.com/oauth/token"
            assert (await client.post(place, content=b"x" * 1025)).status_code == 413
    finally:
        await app.stop(5)


# -- browsers


@pytest.mark.rule("AUTHZ-18")
async def test_cookies_of_others_neither_break_nor_choose_ours() -> None:
    app = application()
    await app.start()
    try:
        asking, place = await registered(app), "https://mcp.example.com/oauth/authorize"
        mine = "b" * 43
        bad = ('"a\\015\\012x: y"', "short", "x" * 4000, "\u00e9" * 43)
        for cookie, kept in (
            (f'other={{"a": "b"}}; __Host-login={mine}', True),
            *((f"__Host-login={each}", False) for each in bad),
        ):
            sent = {"cookie": cookie.encode("latin-1")}
            page = await asked(app, place, params=asking, headers=sent)
            [given] = page.headers.get_list("set-cookie")
            assert page.status_code == 200
            assert re.match("__Host-login=[A-Za-z0-9_-]{43}; Path=/; ", given)
            assert (mine in given) is kept
    finally:
        await app.stop(5)


# -- descriptions of clients


def fresh_clients(*allowed: str) -> Clients:
    seal = Seal(STATE_KEY, b"clients")
    exchanges = AuthExchanges(5.0, 5.0, 65_536, public_network())
    return Clients(seal, (*allowed, "loopback"), exchanges, ManualClock().monotonic)


@pytest.mark.rule("AUTHZ-15")
@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::1", False),
        ("ff02::1", False),
        ("::127.0.0.1", False),
        ("fec0::1", False),
        ("64:ff9b:1::7f00:1", False),
    ],
)
def test_address_of_the_public_network(address: str, public: bool) -> None:
    assert is_public(address) is public


class Described:
    """A server over TLS that describes clients; its answer is what the test says."""

    def __init__(self) -> None:
        self.answer = b""
        self.asked = 0
        self.port = 0

    def describe(self, url: str | None = None, **more: Any) -> str:
        url = url or f"https://127.0.0.1:{self.port}/client.json"
        body = orjson.dumps({"client_id": url, "redirect_uris": [CALLBACK], **more})
        self.reply(200, body)
        return url

    def reply(self, status: int, body: bytes, *headers: str) -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *headers]
        self.answer = "\r\n".join([*lines, "", ""]).encode() + body

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        writer.close()


@asynccontextmanager
async def describing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Described]:
    tls = self_signed(folder)
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "authority.pem"))
    it = Described()
    server = await asyncio.start_server(it.take, "127.0.0.1", 0, ssl=tls)
    it.port = server.sockets[0].getsockname()[1]
    async with server:
        yield it


@pytest.mark.rule("AUTHZ-15")
async def test_description_at_a_private_address_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with describing(tmp_path, monkeypatch) as it:
        for host in ("127.0.0.1", "localhost", "127.1", "0x7f000001", "[::ffff:127.0.0.1]"):
            with pytest.raises(ClientError):
                await fresh_clients().find(f"https://{host}:{it.port}/client.json")
        assert it.asked == 0


@pytest.mark.rule("AUTHZ-15")
async def test_description_is_fetched_from_the_address_that_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name has another address the second time it is looked up."""
    looked_up: list[str] = []

    async def lookup(host: str, port: int, threads: object) -> list[str]:
        looked_up.append(host)
        return ["93.184.216.34", "127.0.0.1"] if len(looked_up) == 1 else ["127.0.0.1"]

    monkeypatch.setattr(network, "addresses_of", lookup)
    async with describing(tmp_path, monkeypatch) as it:
        with pytest.raises(ClientError):  # one of the two is not public
            await fresh_clients().find(f"https://rebound.example:{it.port}/client.json")
        assert (looked_up, it.asked) == (["rebound.example"], 0)


@pytest.mark.rule("AUTHZ-15")
async def test_slow_names_of_clients_hinder_no_other_lookup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow, go, real = [], threading.Event(), socket.getaddrinfo

    def getaddrinfo(host: str, *args: Any, **named: Any) -> Any:
        if host.endswith(".slow.example"):
            slow.append(host)
            go.wait(60)
            raise OSError
        return real(host, *args, **named)

    monkeypatch.setattr(network, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    found, loop = fresh_clients(), asyncio.get_running_loop()
    finds = [
        asyncio.ensure_future(found.find(f"https://{number}.slow.example/a")) for number in range(8)
    ]
    try:
        with ThreadPoolExecutor(1) as few:
            loop.set_default_executor(few)
            await until(lambda: len(slow) >= 8, "eight look-ups are under way")
            assert await loop.getaddrinfo("127.0.0.1", 80)
    finally:
        go.set()
    results = await asyncio.gather(*finds, return_exceptions=True)
    assert all(isinstance(each, ClientError) for each in results)


@pytest.mark.rule("AUTHZ-10", "AUTHZ-13", "AUTHZ-15")
async def test_client_describes_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "is_public", lambda address: True)
    async with describing(tmp_path, monkeypatch) as it:
        found = fresh_clients()
        url = it.describe(client_name="Desk")
        client = await found.find(url)
        assert (client.client_id, client.name, client.redirect_uris) == (url, "Desk", (CALLBACK,))
        assert await found.find(url) is client
        assert it.asked == 1
        bad = (
            lambda: it.describe("https://evil.example/client.json"),
            lambda: it.describe(token_endpoint_auth_method="private_key_jwt"),
            lambda: it.describe(redirect_uris=["https://evil.example/back"]),
            lambda: it.describe(redirect_uris=None),
            lambda: it.describe(more="x" * 65_536),
            lambda: it.reply(200, b"<html>"),
            lambda: it.reply(404, b"{}"),
            lambda: it.reply(302, b"", f"location: {url}2"),
        )
        for number, prepare in enumerate(bad):
            prepare()
            before = it.asked
            with pytest.raises(ClientError):
                await fresh_clients().find(url)
            assert it.asked == before + 1, number


@pytest.mark.rule("AUTHZ-12")
async def test_client_that_takes_its_address_back_gets_no_redirect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "is_public", lambda address: True)
    monkeypatch.setattr(clients, "_MAX_AGE", 0.0)
    app, base = application(), "https://mcp.example.com/oauth"
    await app.start()
    transport = httpx2.ASGITransport(app)
    try:
        async with (
            describing(tmp_path, monkeypatch) as it,
            httpx2.AsyncClient(transport=transport) as browser,
        ):
            asking = {**await registered(app), "client_id": it.describe()}
            page = await browser.get(f"{base}/authorize", params=asking)
            form = {"transaction": transaction_of(page), "answer": "no"}
            assert (await browser.post(f"{base}/consent", data=form)).status_code == 303
            it.describe(redirect_uris=["http://127.0.0.1:7777/other"])
            refused = await browser.post(f"{base}/consent", data=form)
            assert (refused.status_code, refused.headers.get("location")) == (400, None)
    finally:
        await app.stop(5)


@pytest.mark.rule("AUTHZ-10")
@pytest.mark.parametrize(
    "url",
    [
        "https://client.example",
        "https://client.example/",
        "https://client.example/a?b",
        "https://client.example/a/../b",
        "https://client.example/a/%2E./b",
        "https://client.example/a/.",
        "https://client.example/a#b",
        "https://user@client.example/a",
        "https:///a",
        "https://client.example:0/a",
        "https://client.example/" + "a" * 2048,
    ],
)
async def test_id_that_is_no_description_is_refused(url: str) -> None:
    with pytest.raises(ClientError, match="is no https URL"):
        await fresh_clients().find(url)


# -- people


@pytest.mark.rule("AUTHZ-05", "AUTHZ-06")
@pytest.mark.parametrize(
    ("provider", "claims", "allow", "allowed"),
    [
        ("oidc", {"email": "Ann@X.org", "email_verified": True}, "ann@x.org", True),
        ("oidc", {"email": "Ann@X.org", "email_verified": True}, "@x.ORG", True),
        ("oidc", {"email": "ann@x.org", "email_verified": "false"}, "ann@x.org", False),
        ("oidc", {"email": "ann@x.org"}, "ann@x.org", False),
        ("oidc", {"email": "ann@sub.x.org", "email_verified": True}, "@x.org", False),
        # What folds to the same text is another domain.
        ("oidc", {"email": "ann@stra\u00dfe.de", "email_verified": True}, "@strasse.de", False),
        ("oidc", {"email": "\u212aim@x.org", "email_verified": True}, "kim@x.org", False),
        ("oidc", {"email": "ann@evil.org\n@x.org", "email_verified": True}, "@x.org", False),
        ("oidc", {}, "sub:1", True),
        ("oidc", {}, "sub:11", False),
        ("oidc", {}, "*", True),
        ("entra", {"email": "ann@x.org", "email_verified": True}, "@x.org", False),
        ("entra", {"email": "ann@x.org", "xms_edov": True}, "@x.org", True),
        ("entra", {"tid": "T"}, "org:t", True),
        ("google", {"hd": "x.org"}, "org:x.org", True),
        ("google", {"email": "ann@x.org", "email_verified": True}, "org:x.org", False),
        ("github", {"organizations": ["Acme"], "id": 1}, "org:acme", True),
    ],
)
def test_who_is_allowed(provider: str, claims: dict[str, Any], allow: str, allowed: bool) -> None:
    person = read_person({"sub": "1", **claims}, PROVIDERS[provider])
    assert person is not None
    assert person.is_among((allow,)) is allowed


@pytest.mark.rule("AUTHZ-05")
def test_entra_needs_no_url() -> None:
    tenant = "0f" * 4 + "-0f0f-0f0f-0f0f-" + "0f" * 6
    made = application(provider="entra", tenant=tenant)._login
    assert made._provider.issuer == f"https://login.microsoftonline.com/{tenant}/v2.0"  # type: ignore[union-attr, attr-defined]


# -- the provider


@pytest.fixture(scope="module")
def shared() -> Iterator[IdentityProviderFake]:
    with running_provider() as it:
        yield it


@pytest.fixture
def at(shared: IdentityProviderFake) -> IdentityProviderFake:
    shared.reset()
    return shared


def identity(at: IdentityProviderFake, **changes: Any) -> IdentityProvider:
    """Return the provider as a server sees it that knows nothing of it yet."""
    given = {"provider": "oidc", "provider_url": at.url, "client_id": CLIENT_ID, "allow": ("*",)}
    settings = AuthorizationSection(**{**given, "client_secret": CLIENT_SECRET, **changes})
    exchanges: Any = AuthExchanges(5.0, 5.0, 65_536)
    logger: Any = RecordedLogger()
    return IdentityProvider(settings, CALLBACK, exchanges, SystemClock(), logger)


async def entered(provider: IdentityProvider) -> tuple[Identity, IdentityTokens]:
    """Log in at the provider, and come back."""
    page = await provider.page("the-state", "the-nonce", VERIFIER)
    back = await asyncio.to_thread(where_it_leads, page)
    return await provider.enter(parameters_of(back), "the-nonce", VERIFIER)


@pytest.mark.rule("AUTHZ-23")
@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"authorization_endpoint": None}, "the provider has no page to log in at"),
        ({"issuer": "https://evil.example"}, "the provider cannot be used"),
        ({"token_endpoint": "http://evil.example/token"}, "the provider cannot be used"),
        ({"userinfo_endpoint": "http://evil.example/me"}, "the provider cannot be used"),
        ({"jwks_uri": "http://evil.example/keys"}, "the provider cannot be used"),
        ({"jwks_uri": None}, "the provider gives no ID token that can be verified"),
    ],
)
async def test_provider_that_describes_itself_wrongly_lets_nobody_in(
    at: IdentityProviderFake, metadata: dict[str, Any], error: str
) -> None:
    at.metadata = metadata
    with pytest.raises(ProviderError, match=f"^{error}$") as refused:
        await entered(identity(at))
    assert refused.value.code == "server_error"


@pytest.mark.rule("AUTHZ-29")
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"provider_url": "http://127.0.0.1:1"}, "the provider does not answer"),
        ({}, "the provider does not describe itself"),
    ],
)
async def test_provider_that_is_not_there_is_asked_again_later(
    at: IdentityProviderFake, changes: dict[str, Any], error: str
) -> None:
    at.is_down = True
    with pytest.raises(ProviderError, match=error) as refused:
        await entered(identity(at, **changes))
    assert refused.value.code == "temporarily_unavailable"


@pytest.mark.rule("AUTHZ-23")
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"access_token": 5}, "the provider gives no token that can be used"),
        ({"id_token": "a.b.c"}, "the ID token of the provider is not good"),
        ({"id_token": "x" * 20_000}, "the provider gives no ID token that can be verified"),
        ({}, "the ID token of the provider is not good"),
    ],
)
async def test_token_of_the_provider_that_is_not_good_lets_nobody_in(
    at: IdentityProviderFake, answer: dict[str, Any], error: str
) -> None:
    at.down["/token"] = (200, orjson.dumps({"access_token": "t", **answer}))
    with pytest.raises(ProviderError, match=f"^{error}$"):
        await entered(identity(at))


@pytest.mark.rule("AUTHZ-23", "AUTHZ-06")
@pytest.mark.parametrize(
    ("metadata", "sub", "email"),
    [
        ({}, "person-1", "boss@x.org"),
        ({}, "person-2", None),  # the other endpoint speaks of somebody else
        ({"userinfo_endpoint": None}, "person-1", None),
    ],
)
async def test_address_of_another_person_is_nobodys(
    at: IdentityProviderFake, metadata: dict[str, Any], sub: str, email: str | None
) -> None:
    at.metadata, at.id_token = metadata, {"email": None}
    more = {"sub": sub, "email": "boss@x.org", "email_verified": True}
    at.down["/userinfo"] = (200, orjson.dumps(more))
    person, _ = await entered(identity(at))
    assert (person.subject, person.email) == ("person-1", email)


@pytest.mark.rule("AUTHZ-29")
async def test_person_is_who_the_provider_says_at_each_refresh(at: IdentityProviderFake) -> None:
    provider = identity(at)
    person, tokens = await entered(provider)
    at.claims["name"] = "Ann Smith"
    again, tokens = await provider.renew(person, tokens)
    assert (person.name, again.name) == ("Ann", "Ann Smith")
    at.down["/token"] = (200, b'{"access_token": "next"}')  # without an ID token
    same, kept = await provider.renew(again, tokens)
    assert same == again
    assert (kept.access_token, kept.refresh_token) == ("next", tokens.refresh_token)
    at.down.clear()
    at.claims["sub"] = "person-2"
    with pytest.raises(ProviderError, match="names another person") as refused:
        await provider.renew(again, kept)
    assert refused.value.is_over


@pytest.mark.rule("AUTHZ-05")
async def test_scopes_and_parameters_of_the_settings_are_asked_for(
    at: IdentityProviderFake,
) -> None:
    asked = ("openid", "groups")
    at.metadata = {"authorization_endpoint": f"{at.url}/authorize?tenant=a"}
    provider = identity(at, provider_scopes=asked, provider_parameters=("prompt=login",))
    found = parameters_of(await provider.page("s", "n", VERIFIER))
    assert (found["scope"], found["prompt"], found["tenant"]) == ("openid groups", "login", "a")


@pytest.mark.rule("AUTHZ-05", "AUTHZ-06")
@pytest.mark.parametrize(
    ("allow", "answer", "asked", "organizations"),
    [
        ("*", (200, b"[]"), 0, 0),
        ("org:acme", (403, b"{}"), 1, 0),  # the person has not granted it
        ("org:acme", (200, orjson.dumps([{"login": "club"}] * 100)), 5, 500),
    ],
)
async def test_organizations_of_github_are_asked_for_where_they_count(
    at: IdentityProviderFake,
    allow: str,
    answer: tuple[int, bytes],
    asked: int,
    organizations: int,
) -> None:
    at.down["/api/v3/user/orgs"] = answer
    person, _ = await entered(identity(at, provider="github", allow=(allow,)))
    assert (person.subject, len(person.organizations)) == ("7", organizations)
    assert len(at.paths("/api/v3/user/orgs")) == asked


@pytest.mark.rule("AUTHZ-18", "AUTHZ-29")
@pytest.mark.parametrize(
    ("seconds", "status", "said"), [(600, 503, "Try again"), (-1, 400, "Begin the login again")]
)
async def test_consent_that_cannot_go_on_shows_a_page(
    monkeypatch: pytest.MonkeyPatch, seconds: int, status: int, said: str
) -> None:
    """The provider is not there; or the form was shown too long ago."""
    monkeypatch.setattr(f"{clients.__package__}.server._TRANSACTION_SECONDS", seconds)
    app = application(provider="oidc", provider_url="http://127.0.0.1:1")
    await app.start()
    try:
        base, transport = "https://mcp.example.com/oauth", httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport) as browser:
            page = await browser.get(f"{base}/authorize", params=await registered(app))
            sent = {"cookie": page.headers["set-cookie"].partition(";")[0]}
            form = {"transaction": transaction_of(page), "answer": "yes"}
            refused = await browser.post(f"{base}/consent", data=form, headers=sent)
            assert (refused.status_code, said in refused.text) == (status, True)
            assert "location" not in refused.headers
    finally:
        await app.stop(5)


@pytest.mark.rule("AUTHZ-34")
@pytest.mark.parametrize("lacks", ["sid", "login", "store", "provider"])
async def test_handler_gets_no_token_of_the_provider_where_none_can_be_had(lacks: str) -> None:
    app = application(provider="oidc", provider_url="http://127.0.0.1:1", keep_provider_tokens=True)
    made: Any = app._login
    await app.start()
    try:
        code = await made._logins.begin(evolve(LOGIN, provider=IdentityTokens("a", 1.0, "r")))
        _, answer = await made._logins.redeem(code, "client", CALLBACK, VERIFIER)
        principal = await made.resource_server.verify(answer["access_token"])
        key = principal.claims["sid"]
        if lacks in ("sid", "login"):
            claims = {} if lacks == "sid" else {"sid": "another"}
            principal = evolve(principal, claims=claims)
        elif lacks == "store":
            made._logins._store = AwayStore()
        assert await made._provider_token(principal) is None
        assert await made._logins.is_alive(key)
    finally:
        await app.stop(5)


@pytest.mark.rule("AUTHZ-30")
async def test_file_of_logins_swaps_what_is_there_and_says_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "logins.db"
    store = make_store(f"sqlite:{path}")
    await store.start()
    try:
        assert await store.swap("key", None, "one", 10_000)
        assert not await store.swap("key", None, "two", 10_000)
        assert await store.get("key") == "one"
        with closing(sqlite3.connect(path)) as another:
            another.execute("DROP TABLE logins")
        for work in (store.get("key"), store.swap("key", "one", "two", 1), store.delete("key")):
            with pytest.raises(StoreUnavailable):
                await work
    finally:
        await store.close()


# -- logins over time

LOGIN = Login("client", CALLBACK, challenge_of(VERIFIER), ("read",), Identity("1"), None, "")


class Provider:
    """Renews tokens, as the test says."""

    def __init__(self) -> None:
        self.problem: ProviderError | None = None
        self.given: list[str | None] = []
        self.go = asyncio.Event()
        self.go.set()

    @property
    def asked(self) -> int:
        return len(self.given)

    async def renew(
        self, person: Identity, tokens: IdentityTokens
    ) -> tuple[Identity, IdentityTokens]:
        self.given.append(tokens.refresh_token)
        await self.go.wait()
        if self.problem is not None:
            raise self.problem
        return person, IdentityTokens(f"access-{self.asked}", None, f"refresh-{self.asked}")


def logins(
    clock: ManualClock, provider: Provider, store: LoginStore | None = None, **changes: Any
) -> Logins:
    settings = AuthorizationSection(allow=("*",), **changes)
    kept = store or MemoryStore(clock.monotonic)
    numbers = iter(range(1000))
    seal = Seal(STATE_KEY, b"logins")
    return Logins(
        settings, kept, seal, clock, lambda login, key: f"t-{next(numbers)}", provider.renew
    )


async def begun(found: Logins, tokens: IdentityTokens | None = None) -> dict[str, Any]:
    code = await found.begin(evolve(LOGIN, provider=tokens))
    _, answer = await found.redeem(code, "client", CALLBACK, VERIFIER)
    return answer


@pytest.mark.rule("AUTHZ-25")
async def test_code_counts_for_a_minute() -> None:
    clock = ManualClock()
    found = logins(clock, Provider())
    code = await found.begin(LOGIN)
    clock.advance(60)
    with pytest.raises(GrantRefused, match="CODE_REFUSED"):
        await found.redeem(code, "client", CALLBACK, VERIFIER)


class SlowStore(MemoryStore):
    """A store that serves others before it swaps a value, as a database does."""

    async def swap(self, key: str, old: str | None, new: str, ttl_ms: int) -> bool:
        await asyncio.sleep(0)
        return await super().swap(key, old, new, ttl_ms)


@pytest.mark.rule("AUTHZ-25")
@pytest.mark.parametrize("kind", [MemoryStore, SlowStore])
async def test_of_many_uses_of_a_code_at_once_one_counts(kind: type[MemoryStore]) -> None:
    found = logins(ManualClock(), Provider(), kind(ManualClock().monotonic))
    code = await found.begin(LOGIN)
    tries = (found.redeem(code, "client", CALLBACK, VERIFIER) for _ in range(10))
    results = await asyncio.gather(*tries, return_exceptions=True)
    good = [each for each in results if not isinstance(each, BaseException)]
    assert len(good) == 1
    with pytest.raises(GrantRefused):  # the others have ended what came of it
        await found.refresh(good[0][1]["refresh_token"], "client")


@pytest.mark.rule("AUTHZ-28")
@pytest.mark.parametrize(("seconds", "same"), [(29, True), (30, False)])
async def test_repeat_gets_the_same_answer_for_thirty_seconds(seconds: int, same: bool) -> None:
    clock = ManualClock()
    found = logins(clock, Provider())
    first = (await begun(found))["refresh_token"]
    _, answer = await found.refresh(first, "client")
    clock.advance(seconds)
    if same:
        assert (await found.refresh(first, "client"))[1] == answer
        assert (await found.refresh(answer["refresh_token"], "client"))[1] != answer
        return
    with pytest.raises(GrantRefused, match="REFRESH_TOKEN_REUSED"):
        await found.refresh(first, "client")
    with pytest.raises(GrantRefused, match="REFRESH_TOKEN_REFUSED"):
        await found.refresh(answer["refresh_token"], "client")


@pytest.mark.rule("AUTHZ-28", "AUTHZ-29")
@pytest.mark.parametrize("kind", [MemoryStore, SlowStore])
async def test_refreshes_at_once_ask_the_provider_once(kind: type[MemoryStore]) -> None:
    provider = Provider()
    store = kind(ManualClock().monotonic)
    workers = [logins(ManualClock(), provider, store) for _ in range(2)]
    token = (await begun(workers[0], IdentityTokens("a", None, "r")))["refresh_token"]
    tries = (each.refresh(token, "client") for each in workers * 3)
    answers = [answer for _, answer in await asyncio.gather(*tries)]
    assert all(answer == answers[0] for answer in answers)
    assert provider.asked == 1


@pytest.mark.rule("AUTHZ-28")
async def test_refreshes_at_once_get_one_answer_where_there_is_no_provider_to_ask() -> None:
    found = logins(ManualClock(), Provider(), SlowStore(ManualClock().monotonic))
    token = (await begun(found))["refresh_token"]
    answers = await asyncio.gather(*(found.refresh(token, "client") for _ in range(3)))
    assert [answer for _, answer in answers] == [answers[0][1]] * 3


@pytest.mark.rule("AUTHZ-29")
@pytest.mark.virtual_time
async def test_provider_that_is_slow_is_left_and_asked_anew() -> None:
    provider = Provider()
    found = logins(ManualClock(), provider)
    token = (await begun(found, IdentityTokens("a", None, "r")))["refresh_token"]
    provider.go.clear()
    tries = [asyncio.ensure_future(found.refresh(token, "client")) for _ in range(2)]
    done, waiting = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
    [ended] = done
    assert isinstance(ended.exception(), ProviderError)
    provider.go.set()
    [last] = await asyncio.gather(*waiting)
    assert last[1]["refresh_token"] != token
    assert provider.given == ["r", "r"]


@pytest.mark.rule("AUTHZ-29")
async def test_refresh_goes_on_when_its_caller_leaves() -> None:
    provider = Provider()
    found = logins(ManualClock(), provider)
    token = (await begun(found, IdentityTokens("a", None, "r")))["refresh_token"]
    provider.go.clear()
    leaving = asyncio.ensure_future(found.refresh(token, "client"))
    await until(lambda: provider.asked, "the provider is asked")
    leaving.cancel()
    provider.go.set()
    _, answer = await found.refresh(token, "client")
    assert provider.asked == 1
    assert (await found.refresh(answer["refresh_token"], "client"))[1] != answer


@pytest.mark.rule("AUTHZ-29")
@pytest.mark.parametrize("is_over", [True, False])
async def test_provider_that_refuses_ends_the_login(is_over: bool) -> None:
    provider = Provider()
    found = logins(ManualClock(), provider)
    token = (await begun(found, IdentityTokens("a", None, "r")))["refresh_token"]
    provider.problem = ProviderError("no", is_over=is_over)
    with pytest.raises(GrantRefused if is_over else ProviderError):
        await found.refresh(token, "client")
    provider.problem = None
    if is_over:
        with pytest.raises(GrantRefused):
            await found.refresh(token, "client")
    else:
        assert (await found.refresh(token, "client"))[1]["refresh_token"] != token


@pytest.mark.rule("AUTHZ-29")
async def test_new_token_of_the_provider_is_kept_when_it_says_no_more() -> None:
    """The old one counts no more: to use it again would end the login at the provider."""
    provider = Provider()
    found = logins(ManualClock(), provider, keep_provider_tokens=True)
    token = (await begun(found, IdentityTokens("a", None, "r")))["refresh_token"]
    provider.problem = ProviderError("no")
    provider.problem.tokens = IdentityTokens("b", None, "new")
    with pytest.raises(ProviderError):
        await found.refresh(token, "client")
    provider.problem = None
    assert (await found.refresh(token, "client"))[1]["refresh_token"] != token
    assert provider.given == ["r", "new"]


@pytest.mark.rule("AUTHZ-34")
async def test_refresh_for_a_handler_goes_on_when_it_is_cancelled() -> None:
    clock, provider = ManualClock(), Provider()
    store = MemoryStore(clock.monotonic)
    found = logins(clock, provider, store, keep_provider_tokens=True)
    await begun(found, IdentityTokens("a", clock.now().timestamp(), "r"))
    [key] = store._values
    provider.go.clear()
    leaving = asyncio.ensure_future(found.provider_token(key))
    await until(lambda: provider.asked, "the provider is asked")
    leaving.cancel()
    provider.go.set()
    assert await found.provider_token(key) == "access-1"
    assert provider.given == ["r"]
    with pytest.raises(GrantRefused, match="LOGIN_GONE"):
        await found.provider_token("another")


@pytest.mark.rule("AUTHZ-30")
async def test_login_of_another_server_is_none_here() -> None:
    """Two servers with one store and one key: their people and audiences differ."""
    one, other = (application(url=f"https://{name}.example.com")._login for name in ("a", "b"))
    there: Any = other
    here: Any = one
    there._logins._store = here._logins._store
    code = await here._logins.begin(LOGIN)
    with pytest.raises(GrantRefused):
        await there._logins.redeem(code, "client", CALLBACK, VERIFIER)
    assert await here._logins.redeem(code, "client", CALLBACK, VERIFIER)


@pytest.mark.rule("AUTHZ-34")
@pytest.mark.parametrize("keeps", [True, False])
async def test_token_of_the_provider_is_refreshed_before_its_end(keeps: bool) -> None:
    clock, provider = ManualClock(), Provider()
    store = SlowStore(clock.monotonic)
    found = logins(clock, provider, store, keep_provider_tokens=keeps)
    ends = clock.now().timestamp() + 120
    await begun(found, IdentityTokens("first", ends, "r"))
    [key] = store._values
    seen = [await found.provider_token(key)]
    clock.advance(60)
    many = await asyncio.gather(*(found.provider_token(key) for _ in range(5)))
    seen += [*dict.fromkeys(many)]
    assert seen == (["first", "access-1"] if keeps else [None, None])
    assert provider.asked == (1 if keeps else 0)


@pytest.mark.rule("AUTHZ-33")
async def test_ended_login_is_known_within_ten_seconds() -> None:
    clock = ManualClock()
    store = MemoryStore(clock.monotonic)
    here, there = (logins(clock, Provider(), store) for _ in range(2))
    await begun(here)
    [key] = store._values
    assert await here.is_alive(key)
    await there.revoke(key)
    clock.advance(10)
    assert not await here.is_alive(key)


@pytest.mark.rule("AUTHZ-30")
async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from foundation_rt.http.authorization_server import store as module

    monkeypatch.setattr(module, "MAX_LOGINS", 3)
    store = MemoryStore()
    for number in range(10):
        assert await store.swap(str(number), None, "x", 1000)
    assert [*store._values] == ["7", "8", "9"]
    assert not await store.swap("9", None, "y", 1000)
    assert not await store.swap("9", "other", "y", 1000)


@pytest.mark.rule("AUTHZ-30")
async def test_logins_outlast_codes_that_nobody_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from foundation_rt.http.authorization_server import store as module

    monkeypatch.setattr(module, "MAX_LOGINS", 3)
    clock = ManualClock()
    store = MemoryStore(clock.monotonic)
    await store.swap("login", None, "x", 1_000_000)
    for number in range(10):
        await store.swap(str(number), None, "x", 1000)
        clock.advance(1)
    assert await store.get("login") == "x"


@pytest.mark.rule("AUTHZ-25")
async def test_swap_that_redis_gets_twice_is_the_same_one() -> None:
    """A client sends it again if there was no answer: a code would seem to be used twice."""
    store, key = make_store(need_redis()), token_urlsafe(16)
    await store.start()
    try:
        for old, new in ((None, "one"), (None, "one"), ("one", "two"), ("one", "two")):
            assert await store.swap(key, old, new, 10_000)
        assert not await store.swap(key, "one", "three", 10_000)
        assert await store.get(key) == "two"
    finally:
        await store.delete(key)
        await store.close()


class AwayStore(MemoryStore):
    """A store that does not answer."""

    async def get(self, key: str) -> str | None:
        raise StoreUnavailable("away")


@pytest.mark.rule("AUTHZ-30")
async def test_store_that_does_not_answer_lets_nobody_in() -> None:
    app = application()
    made: Any = app._login
    await app.start()
    try:
        code = await made._logins.begin(LOGIN)
        _, answer = await made._logins.redeem(code, "client", CALLBACK, VERIFIER)
        made._logins._store = AwayStore()
        head = {"authorization": f"Bearer {answer['access_token']}"}
        refused = await asked(app, "https://mcp.example.com/mcp", headers=head)
        assert refused.status_code == 503
        client = (await registered(app))["client_id"]
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport) as sender:
            form = {"client_id": client, "grant_type": "refresh_token", "refresh_token": "a.b"}
            token = await sender.post("https://mcp.example.com/oauth/token", data=form)
            form |= {"token": answer["access_token"]}
            revoked = await sender.post("https://mcp.example.com/oauth/revoke", data=form)
        for each in (token, revoked):
            assert (each.status_code, each.json()["error"]) == (503, "temporarily_unavailable")
    finally:
        await app.stop(5)
