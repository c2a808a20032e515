"""Tokens of an authorization server, which is a real one as far as its keys are concerned."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import socket
import threading
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import OctKey

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.http_sections import HttpSection, OauthSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.http_client import network
from foundation_rt.errors import UsageError
from foundation_rt.http.asgi import HttpRefusal
from foundation_rt.http.auth import jwks
from foundation_rt.http.auth.authentication import make_authenticator
from foundation_rt.http.auth.jwks import KeySource
from foundation_rt.http.auth.oauth import ResourceServer, make_resource_server
from foundation_rt.http.headers import RequestHead
from foundation_rt.protocol.principal import Principal
from tests.lab.checks.recorded_log import RecordedLogger
from tests.lab.login.issuer import (
    AUDIENCE,
    EC,
    ED,
    NOW,
    OTHER_RSA,
    RSA,
    Issuer,
    running_issuer,
    token,
)
from tests.lab.peers.trickle import TRICKLES, trickling


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as it:
        yield it


def resource_server(
    issuer: Issuer, clock: ManualClock | None = None, logger: Any = None, **changes: Any
) -> ResourceServer:
    settings = {"issuer": issuer.url, "audience": AUDIENCE, "jwks_uri": f"{issuer.url}/keys"}
    settings |= {"algorithms": ("RS256", "ES256", "Ed25519"), **changes}
    return make_resource_server(
        OauthSection(**settings), clock or ManualClock(), logger or RecordedLogger()
    )


def run(main: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(20):
            return await main

    return asyncio.run(bounded())


async def refreshed(server: ResourceServer) -> None:
    """Wait until keys that are fetched behind have come."""
    await asyncio.gather(*server._keys._refreshing)


def enter(server: ResourceServer, text: str) -> Principal | str:
    """Return the principal, or the message of a refusal with 401."""
    answer = run(server.authenticate(text))
    if isinstance(answer, Principal):
        return answer
    assert isinstance(answer, HttpRefusal)
    assert answer.status == 401
    assert answer.headers[0][1].startswith(b'Bearer error="invalid_token", ')
    assert len(text) < 20 or text[-20:] not in answer.message
    return answer.message


@pytest.mark.rule("AUTH-07", "AUTH-09", "AUTH-11")
@pytest.mark.parametrize("key", [RSA, EC, ED], ids=["RSA", "EC", "Ed25519"])
def test_request_with_token_is_accepted(issuer: Issuer, key: Any) -> None:
    text = token(issuer, key, scope="a b", client_id="desk")
    expected = Principal("alice", frozenset("ab"), "desk")
    assert enter(resource_server(issuer), text) == expected


@pytest.mark.rule("AUTH-11")
@pytest.mark.parametrize(
    ("claims", "scopes", "client"),
    [
        ({}, [], None),
        ({"scp": ["a", "b", 5, ""]}, ["a", "b"], None),
        ({"scp": "a b"}, ["a", "b"], None),
        ({"scope": "a  b", "scp": "c", "azp": "desk"}, ["a", "b"], "desk"),
        ({"scope": 5, "client_id": 5}, [], None),
    ],
)
def test_principal_of_token(
    issuer: Issuer, claims: Any, scopes: list[str], client: str | None
) -> None:
    expected = Principal("alice", frozenset(scopes), client)
    assert enter(resource_server(issuer), token(issuer, **claims)) == expected


@pytest.mark.rule("AUTH-37")
def test_claims_of_token(issuer: Issuer) -> None:
    principal = enter(resource_server(issuer), token(issuer, tenant={"id": 5}))
    assert isinstance(principal, Principal)
    assert principal.claims["tenant"] == {"id": 5}
    assert principal.claims["sub"] == "alice"


@pytest.mark.rule("AUTH-08", "AUTH-11")
@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://evil.example"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "https://other.example/mcp"}, "another server"),
        ({"aud": "https://mcp.example.com/mcp/more"}, "another server"),
        ({"aud": "https://mcp.example.com"}, "another server"),
        ({"aud": None}, "another server"),
        ({"aud": [5, {}]}, "another server"),
        ({"aud": []}, "another server"),
        ({"exp": None}, "how long"),
        ({"exp": "tomorrow"}, "how long"),
        ({"exp": True}, "how long"),
        ({"exp": NOW - 30}, "expired"),
        ({"exp": 0}, "expired"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"nbf": "now"}, "how long"),
        ({"sub": None}, "whose"),
        ({"sub": ""}, "whose"),
        ({"sub": 5}, "whose"),
        ({"sub": "x" * 257}, "whose"),
        ({"sub": "key:alice"}, "API keys"),
    ],
)
def test_required_claims(issuer: Issuer, claims: Any, why: str) -> None:
    refusal = enter(resource_server(issuer), token(issuer, **claims))
    assert why in str(refusal)


@pytest.mark.rule("AUTH-08")
@pytest.mark.parametrize(
    "claims",
    [
        {"aud": [AUDIENCE, "https://other.example"]},
        {"aud": f"{AUDIENCE}/"},
        {"exp": NOW - 29},
        {"exp": NOW + 0.5},
        {"nbf": NOW + 30},
        {"nbf": None},
    ],
)
def test_optional_claims(issuer: Issuer, claims: Any) -> None:
    assert isinstance(enter(resource_server(issuer), token(issuer, **claims)), Principal)


@pytest.mark.rule("AUTH-07")
@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ({"typ": "JWT"}, True),
        ({"typ": "at+jwt"}, True),
        ({"typ": "application/AT+JWT"}, True),
        ({"typ": "logout+jwt"}, False),
        ({"typ": "dpop+jwt"}, False),
        ({"alg": "RS512"}, False),
    ],
)
def test_token_types(issuer: Issuer, header: Any, accepted: bool) -> None:
    answer = enter(resource_server(issuer), token(issuer, header=header))
    assert isinstance(answer, Principal) is accepted


def crafted(header: Any, payload: Any, signature: bytes = b"") -> str:
    from joserfc.util import urlsafe_b64encode

    parts = (json.dumps(header).encode(), json.dumps(payload).encode(), signature)
    return b".".join(map(urlsafe_b64encode, parts)).decode()


@pytest.mark.rule("AUTH-07")
def test_self_signed_token_is_refused(issuer: Issuer) -> None:
    server = resource_server(issuer)
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "alice", "exp": NOW + 60}
    # Signed with the public key as if it were a secret: joserfc itself refuses to do that.
    signing_input = crafted({"alg": "HS256", "kid": "rsa"}, claims).removesuffix(".")
    digest = hmac.digest(RSA.as_pem(private=False), signing_input.encode(), "sha256")
    confused = crafted({"alg": "HS256", "kid": "rsa"}, claims, digest)
    own = jwt.encode({"alg": "RS256", "kid": "rsa"}, claims, OTHER_RSA, ["RS256"])
    right = token(issuer)
    head, body, signature = right.split(".")
    forged = [
        crafted({"alg": "none"}, claims),
        crafted({"alg": "none", "kid": "rsa"}, claims),
        crafted({"alg": "RS256", "kid": "rsa"}, claims),
        crafted({"alg": "RS256", "kid": "rsa"}, claims, b"x" * 256),
        crafted({"alg": "RS256", "kid": "rsa", "jwk": OTHER_RSA.as_dict(False)}, claims),
        crafted({"alg": "RS256", "kid": "rsa", "crit": ["exp"], "exp": 1}, claims),
        crafted({"alg": ["RS256"], "kid": "rsa"}, claims),
        crafted({"alg": "RS256", "kid": ["rsa"]}, claims),
        crafted({"alg": "RS256", "kid": "rsa", "cty": 5}, claims),
        crafted([], claims),
        confused,
        own,
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}..{signature}",
        f"{head}.{token(issuer, sub='bob').split('.')[1]}.{signature}",
        f"{right}.{signature}",
        f"{right}.x.y",
        "x" * 20_000,
        "",
        "....",
        "\x00.\x00.\x00",
    ]
    for text in forged:
        assert isinstance(enter(server, text), str), text
    assert isinstance(enter(server, right), Principal)


@pytest.mark.rule("AUTH-07")
def test_signed_payload_without_claims_is_refused(issuer: Issuer) -> None:
    from joserfc import jws

    server = resource_server(issuer)
    for payload in (b"[]", b"not json", b"", b"5"):
        text = jws.serialize_compact({"alg": "RS256", "kid": "rsa"}, payload, RSA, ["RS256"])
        assert "no claims" in str(enter(server, text))


@pytest.mark.rule("AUTH-07")
@given(st.text(max_size=200))
def test_random_text_is_not_a_token(text: str) -> None:
    keys = KeySource("https://nowhere.example", None, ManualClock(), RecordedLogger())  # type: ignore[arg-type]
    settings = OauthSection(issuer="https://nowhere.example", audience=AUDIENCE)
    answer = asyncio.run(ResourceServer(settings, keys, ManualClock()).authenticate(text))
    assert isinstance(answer, HttpRefusal)
    assert answer.status == 401


# Where keys come from


def fetched(issuer: str, jwks_uri: str | None) -> Any:
    return run(jwks.fetch_keys(jwks.issuer_network(), issuer, jwks_uri))


@pytest.mark.rule("AUTH-09")
@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", "/.well-known/oauth-authorization-server"),
        ("", "/.well-known/openid-configuration"),
        ("/tenant", "/.well-known/oauth-authorization-server/tenant"),
        ("/tenant", "/tenant/.well-known/openid-configuration"),
        ("/tenant/", "/tenant/.well-known/openid-configuration"),
    ],
)
def test_metadata_of_issuer_names_jwks_uri(issuer: Issuer, path: str, place: str) -> None:
    name = issuer.url + path
    issuer.documents = {place: {"issuer": name, "jwks_uri": f"{issuer.url}/keys"}}
    issuer.publish(RSA)
    assert fetched(name, None) == issuer.documents["/keys"]["keys"]


@pytest.mark.rule("AUTH-09")
@pytest.mark.parametrize(
    "metadata",
    [
        {},
        [],
        {"issuer": "https://evil.example", "jwks_uri": "https://evil.example"},
        {"issuer": "SELF"},
        {"issuer": "SELF", "jwks_uri": 5},
        {"issuer": "SELF", "jwks_uri": None},
        {"issuer": "SELF", "jwks_uri": "file:///etc/passwd"},
        {"issuer": "SELF", "jwks_uri": "http://evil.example/keys"},
        None,
    ],
)
def test_foreign_metadata_is_ignored(issuer: Issuer, metadata: Any) -> None:
    if isinstance(metadata, dict) and metadata.get("issuer") == "SELF":
        metadata["issuer"] = issuer.url
    issuer.documents = {}
    if metadata is not None:
        issuer.documents["/.well-known/oauth-authorization-server"] = metadata
    with pytest.raises(ValueError, match=r"issuer|https"):
        fetched(issuer.url, None)
    assert "/keys" not in issuer.asked


@pytest.mark.rule("AUTH-29")
@pytest.mark.parametrize(
    "document",
    [b"x" * (jwks.MAX_DOCUMENT_BYTES + 1), b"[" * 100_000, b"not json", b"\xff"],
    ids=["long", "deep", "text", "bytes"],
)
def test_answer_without_keys(issuer: Issuer, document: bytes) -> None:
    issuer.documents["/keys"] = document
    with pytest.raises(ValueError):
        fetched(issuer.url, f"{issuer.url}/keys")


@pytest.mark.rule("AUTH-29")
def test_size_of_answer_is_bounded(issuer: Issuer) -> None:
    keys = json.dumps(issuer.documents["/keys"]).encode()
    issuer.documents["/keys"] = keys.ljust(jwks.MAX_DOCUMENT_BYTES)
    assert fetched(issuer.url, f"{issuer.url}/keys")
    issuer.documents["/keys"] = keys.ljust(jwks.MAX_DOCUMENT_BYTES + 1)
    with pytest.raises(ValueError):
        fetched(issuer.url, f"{issuer.url}/keys")


@pytest.mark.rule("AUTH-29")
def test_redirects_are_not_followed(issuer: Issuer) -> None:
    issuer.statuses["/elsewhere"] = 302
    with pytest.raises(OSError):
        fetched(issuer.url, f"{issuer.url}/elsewhere")
    assert issuer.asked == ["/elsewhere"]


@pytest.mark.rule("AUTH-29")
@pytest.mark.parametrize("kind", TRICKLES)
def test_trickling_answer_times_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.5)
    with trickling(kind) as place, pytest.raises(OSError):
        fetched(place, f"{place}/keys")


@pytest.mark.rule("AUTH-30")
def test_unusable_keys_are_ignored(issuer: Issuer) -> None:
    public = RSA.as_dict(False)
    useless: list[Any] = [
        OctKey.generate_key(256).as_dict(),
        {"kty": "AKP", "kid": "rsa"},
        {"kid": "rsa"},
        {"kty": ["RSA"], "kid": "rsa"},
        {"kty": "RSA", "kid": "rsa"},
        {"kty": "RSA", "kid": "rsa", "n": "A" * 400, "e": "AQAB"},
        {"kty": "RSA", "kid": "rsa", "n": public["n"][:171], "e": "AQAB"},
        {**public, "use": "enc"},
        {**public, "alg": "PS256"},
        {"kty": "EC", "kid": "rsa", "crv": "P-256", "x": "?", "y": "?"},
    ]
    issuer.documents["/keys"] = {"keys": [*useless, 5, None]}
    assert "key" in str(enter(resource_server(issuer), token(issuer)))
    issuer.documents["/keys"] = {"keys": [*useless, public]}
    assert isinstance(enter(resource_server(issuer), token(issuer)), Principal)


NO_SETS = [{}, [], {"keys": 5}, {"keys": {}}, 5, b"not json"]


@pytest.mark.rule("AUTH-30")
@pytest.mark.parametrize("document", NO_SETS)
def test_answer_that_is_no_key_set(issuer: Issuer, document: Any) -> None:
    issuer.documents["/keys"] = document
    with pytest.raises(ValueError):
        fetched(issuer.url, f"{issuer.url}/keys")


@pytest.mark.rule("AUTH-29", "AUTH-10")
@pytest.mark.parametrize(
    "answer",
    [
        b"xxxx yyyy\r\n\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{}",
        b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"keys":[]}',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 101 + b"\r\n{}",
    ],
    ids=["no http", "nothing", "cut short", "cut short json", "no chunk", "long line", "fields"],
)
def test_issuer_with_invalid_http_has_no_keys(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_once() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        logger = RecordedLogger()
        keys = KeySource(url, f"{url}/keys", ManualClock(), logger)  # type: ignore[arg-type]
        with pytest.raises(jwks.KeysUnavailable):
            run(keys.find("a", "RS256"))
        thread.join()
        assert len(logger.warnings) == 1


@pytest.mark.rule("AUTH-30")
def test_token_without_key_id(issuer: Issuer) -> None:
    text = token(issuer, header={"kid": None})
    assert isinstance(enter(resource_server(issuer), text), Principal)
    issuer.publish(RSA, OTHER_RSA)
    assert "key" in str(enter(resource_server(issuer), text))


@pytest.mark.rule("AUTH-10")
async def test_keys_are_fetched_once_and_after_an_hour(issuer: Issuer) -> None:
    clock = ManualClock()
    server = resource_server(issuer, clock)
    text = token(issuer, exp=NOW + 10**6)
    for _ in range(3):
        assert isinstance(await server.authenticate(text), Principal)
    assert issuer.asked == ["/keys"]
    clock.advance(3599)
    assert isinstance(await server.authenticate(text), Principal)
    assert len(issuer.asked) == 1
    issuer.publish(OTHER_RSA)
    clock.advance(1)
    assert isinstance(await server.authenticate(text), Principal)  # the new are not waited for
    await refreshed(server)
    assert isinstance(await server.authenticate(text), HttpRefusal)
    assert len(issuer.asked) == 2


@pytest.mark.rule("AUTH-31")
async def test_new_key_is_found_and_unknown_key_is_rarely_fetched(issuer: Issuer) -> None:
    clock = ManualClock()
    server = resource_server(issuer, clock)
    assert isinstance(await server.authenticate(token(issuer)), Principal)
    issuer.publish(RSA, OTHER_RSA)
    new = token(issuer, OTHER_RSA)
    for _ in range(5):
        assert isinstance(await server.authenticate(new), HttpRefusal)
    assert len(issuer.asked) == 1
    clock.advance(30)
    assert isinstance(await server.authenticate(new), Principal)
    assert isinstance(await server.authenticate(token(issuer)), Principal)
    assert len(issuer.asked) == 2


@pytest.mark.rule("AUTH-31")
async def test_concurrent_requests_share_one_fetch(issuer: Issuer) -> None:
    server = resource_server(issuer)
    text = token(issuer)
    answers = await asyncio.gather(*(server.authenticate(text) for _ in range(20)))
    assert all(isinstance(answer, Principal) for answer in answers)
    assert issuer.asked == ["/keys"]


@pytest.mark.rule("AUTH-10")
@pytest.mark.parametrize("answer", [500, *NO_SETS])
async def test_keys_are_kept_while_issuer_is_unreachable(issuer: Issuer, answer: Any) -> None:
    clock, logger = ManualClock(), RecordedLogger()
    server = resource_server(issuer, clock, logger)
    text = token(issuer, exp=NOW + 10**6)
    assert isinstance(await server.authenticate(text), Principal)
    issuer.documents["/keys"] = answer
    issuer.statuses["/keys"] = 500 if answer == 500 else 200
    clock.advance(4000)
    for _ in range(3):
        assert isinstance(await server.authenticate(text), Principal)
        await refreshed(server)
    assert len(issuer.asked) == 2
    assert len(logger.warnings) == 1


@pytest.mark.rule("AUTH-33")
async def test_without_keys_tokens_get_503(issuer: Issuer) -> None:
    clock = ManualClock()
    issuer.statuses["/keys"] = 500
    server = resource_server(issuer, clock)
    for _ in range(3):
        answer = await server.authenticate(token(issuer))
        assert isinstance(answer, HttpRefusal)
        assert (answer.status, answer.headers) == (503, ((b"retry-after", b"1"),))
    assert len(issuer.asked) == 1
    issuer.statuses.clear()
    clock.advance(1)
    assert isinstance(await server.authenticate(token(issuer)), Principal)
    assert len(issuer.asked) == 2


@pytest.mark.rule("AUTH-32", "AUTH-33")
async def test_failed_fetch_is_retried_with_backoff(issuer: Issuer) -> None:
    clock = ManualClock()
    issuer.statuses["/keys"] = 500
    server = resource_server(issuer, clock)
    for failures, pause in enumerate((1, 2, 4, 8, 16, 30, 30), 1):
        for _ in range(2):
            answer = await server.authenticate(token(issuer))
            assert isinstance(answer, HttpRefusal)
            assert answer.headers == ((b"retry-after", b"%d" % pause),)
            assert len(issuer.asked) == failures
        clock.advance(pause - 0.5)
        assert isinstance(await server.authenticate(token(issuer)), HttpRefusal)
        assert len(issuer.asked) == failures
        clock.advance(0.5)
    issuer.statuses.clear()
    assert isinstance(await server.authenticate(token(issuer, exp=NOW + 999)), Principal)


@pytest.mark.rule("AUTH-32")
async def test_name_whose_look_up_hangs_occupies_one_thread(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, asked = threading.Event(), list[str]()

    def hang(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        over.wait(20)
        return [(2, 1, 6, "", ("127.0.0.1", 80))]

    clock = ManualClock()
    server = resource_server(issuer, clock, jwks_uri=issuer.url.replace("127.0.0.1", "localhost"))
    text = token(issuer, exp=NOW + 10**6)
    monkeypatch.setattr(network, "getaddrinfo", hang)
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.05)
    for _ in range(3):
        answer = await server.authenticate(text)
        assert isinstance(answer, HttpRefusal)
        assert answer.status == 503
        clock.advance(30)
    assert asked == ["localhost"]
    over.set()


@pytest.mark.rule("AUTH-32")
def test_unreachable_issuer() -> None:
    keys = KeySource("http://127.0.0.1:1", None, ManualClock(), RecordedLogger())  # type: ignore[arg-type]
    with pytest.raises(jwks.KeysUnavailable):
        run(keys.find("a", "RS256"))


# What clients are told


@pytest.mark.rule("AUTH-06", "AUTH-28")
@pytest.mark.parametrize(
    ("audience", "paths"),
    [
        (
            AUDIENCE,
            ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"),
        ),
        ("https://mcp.example.com", ("/.well-known/oauth-protected-resource",)),
        ("https://mcp.example.com/", ("/.well-known/oauth-protected-resource",)),
    ],
)
def test_protected_resource_metadata(issuer: Issuer, audience: str, paths: tuple[str, ...]) -> None:
    server = resource_server(issuer, audience=audience, scopes=("mcp", "read"))
    assert server.metadata_paths == paths
    assert json.loads(server.metadata) == {
        "resource": audience.rstrip("/"),
        "authorization_servers": [issuer.url],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["mcp", "read"],
    }
    assert "scopes_supported" not in json.loads(resource_server(issuer).metadata)


@pytest.mark.rule("AUTH-06")
@pytest.mark.parametrize(
    "settings",
    [
        OauthSection(issuer="https://a.example"),
        OauthSection(audience=AUDIENCE),
        OauthSection(issuer="https://a.example", audience=AUDIENCE, algorithms=()),
    ],
)
def test_incomplete_oauth_settings_are_refused(settings: OauthSection) -> None:
    config = ServerConfig(oauth=settings, http=HttpSection(api_keys=("k" * 32,)))
    with pytest.raises(UsageError, match=r"oauth\."):
        make_authenticator(config, ManualClock(), RecordedLogger())  # type: ignore[arg-type]


METADATA = 'resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp"'


@pytest.mark.rule("AUTH-05")
def test_refusal_without_token_names_metadata(issuer: Issuer) -> None:
    server = resource_server(issuer, scopes=("mcp", "read"))
    refusal = server.unauthorized()
    challenge = f'Bearer {METADATA}, scope="mcp read"'
    assert (refusal.status, refusal.headers) == (401, ((b"www-authenticate", challenge.encode()),))
    plain = resource_server(issuer).unauthorized()
    assert plain.headers == ((b"www-authenticate", f"Bearer {METADATA}".encode()),)


@pytest.mark.rule("AUTH-12", "AUTH-13")
def test_missing_scopes_are_named(issuer: Issuer) -> None:
    server = resource_server(issuer, scopes=("mcp",))
    without = run(server.authenticate(token(issuer, scope="other")))
    assert isinstance(without, HttpRefusal)
    assert without.status == 403
    challenge = f'Bearer error="insufficient_scope", {METADATA}, scope="mcp"'
    assert without.headers == ((b"www-authenticate", challenge.encode()),)
    principal = enter(server, token(issuer, scope="mcp"))
    assert isinstance(principal, Principal)
    assert server.forbidden((), principal) is None
    for_tool = server.forbidden(("files:write",), principal)
    assert for_tool is not None
    assert for_tool.status == 403
    assert re.search(rb'scope="mcp files:write"$', for_tool.headers[0][1])


@pytest.mark.rule("AUTH-03", "AUTH-05", "AUTH-12", "AUTH-13")
async def test_keys_and_tokens_together(issuer: Issuer) -> None:
    config = ServerConfig(
        http=HttpSection(api_keys=("k" * 32,)),
        oauth=OauthSection(
            issuer=issuer.url, audience=AUDIENCE, jwks_uri=f"{issuer.url}/keys", scopes=("mcp",)
        ),
    )
    authenticator = make_authenticator(config, ManualClock(), RecordedLogger())  # type: ignore[arg-type]

    async def ask(**fields: str) -> Any:
        return await authenticator.authenticate(RequestHead(**fields))

    key = await ask(authorization="Bearer " + "k" * 32)
    assert key.subject.startswith("key:")
    alice = await ask(authorization=f"Bearer {token(issuer, scope='mcp')}")
    assert alice.subject == "alice"
    needed = frozenset(("admin",))
    assert authenticator.check_scopes(key, needed) is None
    assert authenticator.check_scopes(alice, frozenset()) is None
    assert authenticator.check_scopes(alice, needed).status == 403
    for fields in ({}, {"api_key": "wrong"}, {"authorization": "Bearer wrong"}):
        refusal = await ask(**fields)
        assert refusal.status == 401
        assert METADATA.encode() in refusal.headers[0][1]
        assert (b"invalid_token" in refusal.headers[0][1]) is bool(fields)
