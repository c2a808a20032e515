"""Opaque tokens, about which the issuer is asked."""

from __future__ import annotations

import asyncio
import json
import socket
from base64 import b64encode
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.http_sections import OauthSection
from foundation_rt.errors import UsageError
from foundation_rt.http.asgi import HttpRefusal
from foundation_rt.http.auth import introspection, jwks
from foundation_rt.http.auth.oauth import ResourceServer, make_resource_server
from foundation_rt.protocol.principal import Principal
from tests.integration.test_http_auth import APP
from tests.lab.checks.recorded_log import RecordedLogger
from tests.lab.login.issuer import AUDIENCE, NOW, Issuer, running_issuer, token
from tests.lab.peers.http_calls import call, text_of
from tests.lab.servers.http_server import serve_http

SECRET = "the secret: of 100%"
GOOD = {"active": True, "sub": "alice", "aud": AUDIENCE, "scope": "a b", "client_id": "desk"}


def levels(number: int) -> Any:
    return json.loads("[" * number + "]" * number)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as it:
        it.active["opaque"] = dict(GOOD)
        yield it


def settings(issuer: Issuer, **changes: Any) -> dict[str, Any]:
    return {
        "issuer": issuer.url,
        "audience": AUDIENCE,
        "introspection_uri": f"{issuer.url}/introspect",
        "introspection_client_id": "server",
        "introspection_client_secret": SECRET,
        **changes,
    }


def resource_server(
    issuer: Issuer, clock: ManualClock | None = None, logger: Any = None, **changes: Any
) -> ResourceServer:
    section = OauthSection(**settings(issuer, **changes))
    return make_resource_server(section, clock or ManualClock(), logger or RecordedLogger())


def run(main: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(20):
            return await main

    return asyncio.run(bounded())


def status_of(answer: Principal | HttpRefusal) -> int:
    return answer.status if isinstance(answer, HttpRefusal) else 200


@pytest.mark.rule("AUTH-40", "AUTH-41")
def test_issuer_is_asked_as_the_client(issuer: Issuer) -> None:
    answer = run(resource_server(issuer).authenticate("opaque"))
    assert answer == Principal("alice", frozenset("ab"), "desk")
    assert answer.claims["client_id"] == "desk"
    [(authorization, form)] = issuer.forms
    pair = b64encode(b"server:the+secret%3A+of+100%25").decode()
    assert authorization == f"Basic {pair}"
    assert form == {"token": "opaque", "token_type_hint": "access_token"}
    assert issuer.asked == ["/introspect"]


@pytest.mark.rule("AUTH-40")
def test_jwt_with_a_good_signature_is_asked_about_too(issuer: Issuer) -> None:
    assert status_of(run(resource_server(issuer).authenticate(token(issuer)))) == 401


@pytest.mark.rule("AUTH-41")
@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"exp": NOW + 60, "nbf": NOW, "iss": None}, 401),
        ({"exp": NOW + 60, "nbf": NOW}, 200),
        ({"active": False}, 401),
        ({"aud": "https://other.example/mcp"}, 401),
        ({"aud": None}, 401),
        ({"aud": ["https://other.example", AUDIENCE]}, 200),
        ({"sub": None}, 401),
        ({"sub": "key:alice"}, 401),
        ({"iss": "https://evil.example"}, 401),
        ({"exp": NOW - 31}, 401),
        ({"nbf": NOW + 31}, 401),
        ({"exp": 10**30}, 200),
    ],
)
def test_claims_of_the_answer_decide(issuer: Issuer, changes: Any, status: int) -> None:
    issuer.active["opaque"] |= changes
    answer = run(resource_server(issuer).authenticate("opaque"))
    assert status_of(answer) == status


@pytest.mark.rule("AUTH-42")
def test_revoked_token_is_refused_after_sixty_seconds(issuer: Issuer) -> None:
    clock = ManualClock()
    server = resource_server(issuer, clock)

    async def main() -> list[int]:
        seen = [status_of(await server.authenticate("opaque"))]
        issuer.active.clear()
        clock.advance(59)
        seen.append(status_of(await server.authenticate("opaque")))
        clock.advance(1)
        return [*seen, status_of(await server.authenticate("opaque"))]

    assert run(main()) == [200, 200, 401]
    assert len(issuer.forms) == 2


@pytest.mark.rule("AUTH-42")
def test_token_that_ends_meanwhile_is_refused(issuer: Issuer) -> None:
    clock = ManualClock()
    issuer.active["opaque"]["exp"] = NOW + 10
    server = resource_server(issuer, clock)

    async def main() -> list[int]:
        before = status_of(await server.authenticate("opaque"))
        clock.advance(40)
        return [before, status_of(await server.authenticate("opaque"))]

    assert run(main()) == [200, 401]


@pytest.mark.rule("AUTH-42")
def test_flood_of_wrong_tokens_pushes_no_good_one_out(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introspection, "MAX_KEPT", 3)
    server = resource_server(issuer)

    async def main() -> None:
        await server.authenticate("opaque")
        for number in range(10):
            assert status_of(await server.authenticate(f"wrong-{number}")) == 401
        assert status_of(await server.authenticate("wrong-9")) == 401
        assert status_of(await server.authenticate("opaque")) == 200

    run(main())
    assert len(issuer.forms) == 11
    kept = server._introspection
    assert kept is not None
    assert (len(kept._good), len(kept._wrong)) == (1, 3)
    assert b"opaque" not in kept._good


@pytest.mark.rule("AUTH-42")
def test_requests_with_one_token_share_a_question(issuer: Issuer) -> None:
    server = resource_server(issuer)

    async def main() -> Any:
        return await asyncio.gather(*(server.authenticate("opaque") for _ in range(20)))

    assert {status_of(each) for each in run(main())} == {200}
    assert len(issuer.forms) == 1


@pytest.mark.rule("AUTH-43")
@pytest.mark.parametrize(
    ("document", "status"),
    [
        (b'{"active": true, "sub": "' + b"x" * 16_384 + b'"}', 200),
        (b"<html>no</html>", 200),
        (b"[true]", 200),
        (b'{"active": true, "sub": "alice\\ud800", "aud": "%s"}' % AUDIENCE.encode(), 200),
        ({"active": True, "deep": levels(500)}, 200),
        (GOOD, 206),
        ({"active": "true", "sub": "alice", "aud": AUDIENCE}, 200),
        ({"error": "invalid_client"}, 401),
        ({}, 500),
        (b"", 302),
    ],
)
def test_issuer_without_an_answer_lets_nobody_in(
    issuer: Issuer, document: Any, status: int
) -> None:
    issuer.documents["/introspect"], issuer.statuses["/introspect"] = document, status
    logger = RecordedLogger()
    server = resource_server(issuer, logger=logger)

    async def main() -> Any:
        return [await server.authenticate("opaque") for _ in range(2)]

    for answer in run(main()):
        assert (answer.status, answer.reason) == (503, "introspection_unavailable")
        assert answer.headers == ((b"retry-after", b"1"),)
    [warning] = logger.warnings
    assert "opaque" not in str(warning)
    assert SECRET not in str(warning)
    assert "/keys" not in issuer.asked  # where the redirect leads


@pytest.mark.rule("AUTH-43")
def test_hanging_issuer_lets_nobody_in(monkeypatch: pytest.MonkeyPatch, issuer: Issuer) -> None:
    monkeypatch.setattr(introspection, "FETCH_SECONDS", 0.05)
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}/introspect"
        server = resource_server(issuer, introspection_uri=place)
        assert status_of(run(server.authenticate("opaque"))) == 503


@pytest.mark.rule("AUTH-40")
@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"introspection_client_id": None}, "introspection_client_id"),
        ({"introspection_client_secret": None}, "introspection_client_secret"),
        ({"jwks_uri": "https://as.example/keys"}, "jwks_uri"),
    ],
)
def test_incomplete_settings_are_refused(issuer: Issuer, changes: Any, key: str) -> None:
    with pytest.raises(UsageError, match=f"oauth.{key}") as refused:
        resource_server(issuer, **changes)
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(OauthSection(**settings(issuer)))


@pytest.mark.rule("AUTH-40", "AUTH-04")
def test_opaque_tokens_open_a_server_and_stay_secret(issuer: Issuer) -> None:
    given = {f"oauth.{name}": value for name, value in settings(issuer).items()}
    given["logging.level"] = "debug"
    with serve_http(APP, "--transport", "http", settings=given) as server:
        assert text_of(call(server.url, authorization="Bearer opaque")) == "alice"
        assert call(server.url, authorization="Bearer other").status_code == 401
        issuer.documents["/introspect"] = b"no JSON"
        assert call(server.url, authorization="Bearer third").status_code == 503
    log = server.process.stderr
    assert "cannot be asked about tokens" in log
    assert not [each for each in ("opaque", "Bearer", "third", SECRET) if each in log]
