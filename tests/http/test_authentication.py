"""API keys: accepted and refused requests, and settings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.http_sections import HttpSection, OauthSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.errors import UsageError
from foundation_rt.http.asgi import HttpRefusal
from foundation_rt.http.auth.authentication import (
    Authenticator,
    make_authenticator,
    read_api_keys,
)
from foundation_rt.http.headers import RequestHead
from foundation_rt.protocol.principal import Principal
from tests.lab.checks.recorded_log import RecordedLogger

ALICES, NAMELESS = "a" * 32, "n" * 32
KEYS = (f"alice:{ALICES}", NAMELESS)


def authenticator(
    logger: Any = None, *, oauth: OauthSection | None = None, **http: Any
) -> Authenticator:
    config = ServerConfig(http=HttpSection(**http), oauth=oauth or OauthSection())
    return make_authenticator(config, ManualClock(), logger or RecordedLogger())


def ask(by: Authenticator, **fields: str) -> Principal | HttpRefusal | None:
    return asyncio.run(by.authenticate(RequestHead(**fields)))


@pytest.mark.rule("AUTH-01")
def test_server_without_any_authentication_setting_does_not_start() -> None:
    with pytest.raises(UsageError) as refusal:
        authenticator()
    for way_out in ("http.api_keys", "oauth.issuer", "--no-auth"):
        assert way_out in str(refusal.value)


@pytest.mark.rule("AUTH-01")
@pytest.mark.parametrize(
    "settings",
    [{"api_keys": KEYS}, {"oauth": OauthSection(issuer="https://a.example")}],
)
def test_no_auth_excludes_keys_and_issuer(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"http\.no_auth"):
        authenticator(no_auth=True, **settings)


@pytest.mark.rule("AUTH-01")
def test_no_auth_is_logged_and_requests_have_no_principal() -> None:
    logger = RecordedLogger()
    everybody = authenticator(logger, no_auth=True)
    assert len(logger.warnings) == 1
    assert ask(everybody) is None
    assert ask(everybody, authorization="Bearer whatever", api_key="x") is None
    assert everybody.check_scopes(None, frozenset(("admin",))) is None


@pytest.mark.rule("AUTH-02")
def test_unnamed_key_has_stable_subject() -> None:
    one = ask(authenticator(api_keys=KEYS), api_key=NAMELESS)
    other = ask(authenticator(api_keys=KEYS[::-1]), api_key=NAMELESS)
    assert one == other
    assert isinstance(one, Principal)
    assert one.subject.startswith("key:")
    assert len(one.subject) == len("key:") + 12
    assert NAMELESS[:4] not in one.subject


@pytest.mark.rule("AUTH-02")
@pytest.mark.parametrize(
    "entries",
    [
        (ALICES, ALICES),
        (f"alice:{ALICES}", f"bob:{ALICES}"),
        (f"alice:{ALICES}", f"alice:{NAMELESS}"),
    ],
)
def test_duplicate_key_or_name_is_refused(entries: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="twice") as refusal:
        read_api_keys(entries)
    assert ALICES not in str(refusal.value)


@pytest.mark.rule("AUTH-02", "AUTH-13")
def test_key_has_every_scope() -> None:
    principal = ask(authenticator(api_keys=KEYS), api_key=ALICES)
    assert isinstance(principal, Principal)
    assert not principal.lacks(("tools:call", "admin"))
    assert Principal("x", frozenset(("*",))).lacks(("admin",)) == {"admin"}
    assert authenticator(api_keys=KEYS).check_scopes(principal, frozenset(("admin",))) is None


@pytest.mark.rule("AUTH-03")
@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=50))
def test_random_text_is_not_a_key(text: str) -> None:
    assert read_api_keys(KEYS).find(text) is None


@pytest.mark.rule("AUTH-03")
def test_all_keys_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    from foundation_rt.http.auth import authentication

    compared: list[tuple[bytes, bytes]] = []
    genuine = authentication.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return genuine(one, other)

    monkeypatch.setattr(authentication, "compare_digest", compare)
    keys = read_api_keys([f"{number:032}" for number in range(10)])
    for key in (f"{0:032}", f"{9:032}", "none of them"):
        compared.clear()
        keys.find(key)
        assert len(compared) == 10
        assert {len(text) for pair in compared for text in pair} == {32}
