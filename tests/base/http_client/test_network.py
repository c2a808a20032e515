"""URLs as requests have them; proxies of the environment, each with a peer that speaks for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest

from foundation_rt.base.http_client.errors import (
    ConnectError,
    ConnectTimeout,
    HttpError,
    ProxyError,
    UnsendableError,
)
from foundation_rt.base.http_client.exchange import fetch
from foundation_rt.base.http_client.network import Network, RequestUrl
from tests.lab.peers.scripted_http import self_signed

LIVENESS = 60.0
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere"

Agree = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[str]]


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://Host", ("host", 80, b"host", b"/")),
        ("https://u:p@host:443/a?b=c#d", ("host", 443, b"host", b"/a?b=c")),
        ("http://[::1]:8000/", ("::1", 8000, b"[::1]:8000", b"/")),
        ("https://b\u00fccher.example/\u00fc?\u00fc", ("xn--bcher-kva.example", 443, b"", b"")),
        ("http://h/a%20b c?d=%2F'e'", ("h", 80, b"h", b"/a%20b%20c?d=%2F'e'")),
    ],
)
def test_url_is_written_as_a_request_has_it(url: str, parts: tuple[str, int, bytes, bytes]) -> None:
    found = RequestUrl.of(url)
    assert (found.host, found.port) == parts[:2]
    if parts[2]:
        assert (found.authority, found.target) == parts[2:]
    else:
        assert (found.authority, found.target) == (found.host.encode(), b"/%C3%BC?%C3%BC")
    assert RequestUrl.of(bytes(found).decode()) == found


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:0", "http://a:x", "https://[", ""])
def test_what_is_no_url_of_http_is_refused(url: str) -> None:
    with pytest.raises(UnsendableError):
        RequestUrl.of(url)


async def connect_method(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Answer CONNECT; return the place, and the user."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    if "Basic bWU6cHchMQ==" not in head:  # me:pw!1
        writer.write(b"HTTP/1.1 407 me:pw!1\r\n\r\n")
        return ""
    writer.write(b"HTTP/1.1 200 Go on\r\nX: y\r\n\r\n")
    return head.split()[1]


async def socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Answer SOCKS 5; return the place."""
    offer = await reader.readexactly(3)
    writer.write(b"\5" + offer[2:])
    if offer == b"\5\1\2":
        if await reader.readexactly(9) != b"\1\2me\4pw!1":
            writer.write(b"\1\1")
            return ""
        writer.write(b"\1\0")
    assert await reader.readexactly(3) == b"\5\1\0"
    kind = (await reader.readexactly(1))[0]
    if kind == 3:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
    else:
        host = str(ip_address(await reader.readexactly({1: 4, 4: 16}[kind])))
    port = int.from_bytes(await reader.readexactly(2), "big")
    is_refused = host == "refused.example"
    writer.write(bytes((5, is_refused, 0, 3, 1)) + b"x\0\0")
    return "" if is_refused else f"{host}:{port}"


@asynccontextmanager
async def proxy(
    agree: Agree, tmp_path: Path, *, is_tls: bool
) -> AsyncIterator[tuple[int, list[str]]]:
    """Run a proxy that is the server as well, under TLS if it is to be."""
    places: list[str] = []
    tls = self_signed(tmp_path)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            place = await agree(reader, writer)
            if not place:
                return
            places.append(place)
            if place.endswith(":443"):
                await writer.start_tls(tls)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(REPLY)
            await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls if is_tls else None)
    try:
        async with asyncio.timeout(LIVENESS):
            yield server.sockets[0].getsockname()[1], places
    finally:
        server.close()


@pytest.mark.rule("CHTTP-11")
@pytest.mark.parametrize(
    ("scheme", "url", "place"),
    [
        ("socks5 without a user", "http://192.0.2.1/a", "192.0.2.1:80"),
        ("http", "https://127.0.0.1/a", "127.0.0.1:443"),
        ("https", "https://127.0.0.1/a", "127.0.0.1:443"),
        ("socks5", "https://127.0.0.1/a", "127.0.0.1:443"),
        ("socks5h", "http://server.example:8000/a", "server.example:8000"),
        ("socks5", "http://192.0.2.1/a", "192.0.2.1:80"),
        ("socks5", "http://[2001:db8::1]/a", "2001:db8::1:80"),
    ],
)
async def test_request_goes_through_the_proxy(
    scheme: str, url: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme, _, is_anonymous = scheme.partition(" ")
    user = "" if is_anonymous else "me:pw%211@"
    agree = socks if scheme.startswith("socks") else connect_method
    async with proxy(agree, tmp_path, is_tls=scheme == "https") as (port, places):
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        monkeypatch.setenv("all_proxy", f"{scheme}://{user}127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        answer = await fetch(Network(), url, LIVENESS, 100)
        assert (answer.status, answer.body, places) == (200, b"here", [place])


@pytest.mark.rule("CHTTP-11", "CHTTP-15")
@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.parametrize("user", ["me:wrong", "me:pw%211"])
async def test_proxy_that_refuses_is_one_without_a_request(
    scheme: str, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agree = socks if scheme == "socks5" else connect_method
    host = "refused.example" if "wrong" not in user and scheme == "socks5" else "server.example"
    if scheme == "http":
        user = "me:wrong"
    async with proxy(agree, tmp_path, is_tls=False) as (port, places):
        monkeypatch.setenv("https_proxy", f"{scheme}://{user}@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(ProxyError) as raised:
            await fetch(Network(), f"https://{host}/a", LIVENESS, 100)
        assert not raised.value.may_have_arrived
        assert "pw" not in str(raised.value)
        assert places == []


async def _leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    await reader.read(1)
    return ""


async def _admit_nobody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    writer.write(b"\5\xff")
    return ""


async def _keep_waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    await reader.read()
    return ""


@pytest.mark.rule("CHTTP-11", "CHTTP-15")
@pytest.mark.parametrize(
    ("scheme", "agree", "seconds", "error", "words"),
    [
        ("http", _leave, LIVENESS, ProxyError, "the proxy has ended the connection"),
        ("socks5", _leave, LIVENESS, ProxyError, "the proxy has ended the connection"),
        ("socks5", _admit_nobody, LIVENESS, ProxyError, "the proxy admits nobody so"),
        ("http", _keep_waiting, 0.05, ConnectTimeout, "^$"),
    ],
)
async def test_proxy_that_makes_no_tunnel_says_why(
    scheme: str,
    agree: Agree,
    seconds: float,
    error: type[HttpError],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with proxy(agree, tmp_path, is_tls=False) as (port, places):
        monkeypatch.setenv("https_proxy", f"{scheme}://127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(error, match=words) as raised:
            await fetch(Network(seconds), "https://server.example/a", LIVENESS, 100)
        assert not raised.value.may_have_arrived and places == []


@pytest.mark.rule("AUTHZ-15")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "10.0.0.1"])
async def test_network_of_public_addresses_reaches_no_other(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with pytest.raises(ConnectError, match="not public"):
        await fetch(Network(only_public=True), f"http://{host}:1/", LIVENESS, 100)
