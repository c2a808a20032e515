"""The authorization server, in a process of its own, with a provider and a browser."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from tests.integration.test_http_auth import call, text_of
from tests.lab.login.client import CALLBACK, VERIFIER, LoginClient, said, transaction_of
from tests.lab.login.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProviderFake,
    running_provider,
)
from tests.lab.login.issuer import EC
from tests.lab.login.server import STATE_KEY, serving
from tests.lab.places.services import need_redis
from tests.lab.servers.process import PATIENCE, ServerProcess


@pytest.fixture(scope="module")
def shared() -> Iterator[IdentityProviderFake]:
    with running_provider() as it:
        yield it


@pytest.fixture(scope="module")
def running(
    shared: IdentityProviderFake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LoginClient, ServerProcess]]:
    with serving(tmp_path_factory.mktemp("authorization"), shared) as it:
        yield it


@pytest.fixture
def provider(shared: IdentityProviderFake) -> IdentityProviderFake:
    shared.reset()
    return shared


@pytest.fixture
def client(
    running: tuple[LoginClient, ServerProcess], provider: IdentityProviderFake
) -> LoginClient:
    made = LoginClient(running[0].url)
    assert made.register().status_code == 201
    return made


def bearer(tokens: dict[str, Any]) -> str:
    return f"Bearer {tokens['access_token']}"


def status_of(client: LoginClient, tokens: dict[str, Any]) -> int:
    return call(f"{client.url}/mcp", authorization=bearer(tokens)).status_code


@pytest.mark.rule("AUTHZ-01", "AUTHZ-02", "AUTHZ-25")
def test_person_logs_in(client: LoginClient, provider: IdentityProviderFake) -> None:
    refused = call(f"{client.url}/mcp")
    assert refused.status_code == 401
    place = refused.headers["www-authenticate"].split('resource_metadata="')[1].split('"')[0]
    resource = httpx2.get(place).json()
    assert resource["authorization_servers"] == [client.url]
    metadata = httpx2.get(f"{client.url}/.well-known/oauth-authorization-server").json()
    assert metadata["issuer"] == client.url
    back = client.log_in(scope="read write", resource=resource["resource"])
    assert back.status_code == 303
    assert back.headers["location"].startswith(f"{CALLBACK}?")
    assert {**said(back), "code": ""} == {"code": "", "state": "the-state", "iss": client.url}
    answer = client.redeem(back, resource=resource["resource"])
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    tokens = answer.json()
    assert (tokens["token_type"], tokens["scope"]) == ("Bearer", "read write")
    claims = json.loads(text_of(call(f"{client.url}/mcp", authorization=bearer(tokens))))
    assert claims["subject"] == "person-1"
    assert claims["email"] == "ann@x.org"
    assert claims["aud"] == resource["resource"]
    keys = KeySet.import_key_set(httpx2.get(metadata["jwks_uri"]).json())
    assert jwt.decode(tokens["access_token"], keys, ["ES256"]).claims["sub"] == "person-1"
    assert "d" not in keys.keys[0].as_dict()
    assert text_of(call(f"{client.url}/mcp", "change", authorization=bearer(tokens))) == "changed"
    again = client.refresh(tokens)
    assert again.json()["access_token"] != tokens["access_token"]
    assert len(provider.used) == 1


# -- clients


@pytest.mark.rule("AUTHZ-10", "AUTHZ-13")
def test_registration_is_sealed_in_the_id(client: LoginClient) -> None:
    answer = client.register(CALLBACK, token_endpoint_auth_method="client_secret_basic").json()
    assert answer["token_endpoint_auth_method"] == "none"
    assert "client_secret" not in answer
    assert answer["redirect_uris"] == [CALLBACK]
    assert "Desk" not in answer["client_id"]


@pytest.mark.rule("AUTHZ-10")
def test_unknown_client_gets_401_and_a_page(client: LoginClient) -> None:
    changed = client.client_id[:-3] + ("AAA" if client.client_id[-3:] != "AAA" else "BBB")
    for unknown in ("", "somebody", changed, "x" * 5000):
        client.client_id = unknown
        refused = client.token(grant_type="refresh_token", refresh_token="a.b")
        assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")
        page = client.authorize()
        assert page.status_code == 400
        assert "location" not in page.headers


BAD_URIS = (
    "http://evil.example/back",
    "https://evil.example/back",
    "http://127.0.0.1.evil.example/back",
    "http://127.0.0.1@evil.example/back",
    "http://evil.example\\@127.0.0.1/back",
    "http://127.0.0.1:7777/back#fragment",
    "http://localhost.evil.example/",
    "javascript:alert(1)",
    "data:text/html,x",
    "desk://back",
    "//127.0.0.1/back",
    "http://127.0.0.1:7777/back\r\nX: y",
    "http://0.0.0.0/back",
    "http://[::1].evil.example/back",
    "http://[::1]evil.example/back",
    "http://127.0.0.1:80@evil.example/back",
    "http://127.0.0.1;evil.example/back",
    "",
)


@pytest.mark.rule("AUTHZ-11", "AUTHZ-12")
@pytest.mark.parametrize("uri", BAD_URIS)
def test_foreign_redirect_uri_is_never_followed(client: LoginClient, uri: str) -> None:
    known = client.client_id
    refused = client.register(uri)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_redirect_uri")
    client.client_id = known
    page = client.authorize(redirect_uri=uri)
    assert page.status_code == 400
    assert "location" not in page.headers
    # Of several, only those that are allowed are kept.
    assert client.register(CALLBACK, uri).json()["redirect_uris"] == [CALLBACK]


@pytest.mark.rule("AUTHZ-11", "AUTHZ-12")
@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1:7777/other",
        "http://127.0.0.1:7777/back/",
        "http://127.0.0.1:7777/back?x=1",
        "http://127.0.0.1:7777/back?",
        "http://localhost:7777/back",
        "http://[::1]:7777/back",
    ],
)
def test_redirect_uri_that_was_not_registered_is_refused(client: LoginClient, uri: str) -> None:
    assert client.authorize(redirect_uri=uri).status_code == 400


@pytest.mark.rule("AUTHZ-11")
def test_program_of_this_machine_may_have_any_port(client: LoginClient) -> None:
    uri = "http://127.0.0.1:1234/back"
    back = client.log_in(redirect_uri=uri)
    assert back.headers["location"].startswith(f"{uri}?")
    assert client.redeem(back, redirect_uri=CALLBACK).json()["error"] == "invalid_grant"
    assert client.redeem(back, redirect_uri=uri).status_code == 200


@pytest.mark.rule("AUTHZ-14")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"redirect_uris": []}',
        b'{"redirect_uris": "http://127.0.0.1/"}',
        json.dumps({"redirect_uris": [CALLBACK] * 11}).encode(),
        json.dumps({"redirect_uris": [CALLBACK + "x" * 3000]}).encode(),
        json.dumps({"redirect_uris": [f"{CALLBACK}{n}{'x' * 300}" for n in range(10)]}).encode(),
        json.dumps({"redirect_uris": [CALLBACK], "more": "x" * 16_384}).encode(),
        b"[" * 20_000,
    ],
)
def test_bad_registration_is_refused(client: LoginClient, body: bytes) -> None:
    refused = httpx2.post(f"{client.url}/oauth/register", content=body)
    assert refused.status_code == 400
    assert refused.json()["error"] in ("invalid_client_metadata", "invalid_redirect_uri")


# -- consent


@pytest.mark.rule("AUTHZ-16", "AUTHZ-17")
def test_consent_names_everything_and_cannot_be_framed(client: LoginClient) -> None:
    client.register(CALLBACK, client_name='<script>alert("x")</script>\u202egpj')
    page = client.authorize(scope="read write")
    assert page.status_code == 200
    assert "guarded" in page.text
    assert "not verified" in page.text
    assert "127.0.0.1:7777" in page.text
    assert "read, write" in page.text
    assert "<script" not in page.text
    assert "\u202e" not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script" not in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["cache-control"] == "no-store"
    [cookie] = page.headers.get_list("set-cookie")
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie


@pytest.mark.rule("AUTHZ-16")
def test_consent_is_asked_for_every_time(
    client: LoginClient, provider: IdentityProviderFake
) -> None:
    client.log_in()
    provider.asked.clear()
    again = client.authorize()
    assert (again.status_code, provider.asked) == (200, [])
    assert "location" not in again.headers


@pytest.mark.rule("AUTHZ-18")
def test_form_of_another_browser_counts_for_nothing(
    client: LoginClient, provider: IdentityProviderFake
) -> None:
    page = client.authorize()
    attacker = LoginClient(client.url, client_id=client.client_id)
    for browser in (LoginClient(client.url).browser, attacker.browser):
        if browser is attacker.browser:
            attacker.authorize()  # it has a cookie of its own
        form = {"transaction": transaction_of(page), "answer": "yes"}
        refused = browser.post(f"{client.url}/oauth/consent", data=form)
        assert refused.status_code == 400
        assert "location" not in refused.headers
    for form in ({}, {"answer": "yes"}, {"transaction": "x" * 50, "answer": "yes"}):
        assert client.browser.post(f"{client.url}/oauth/consent", data=form).status_code == 400
    assert provider.paths("/authorize") == []


@pytest.mark.rule("AUTHZ-18")
@pytest.mark.parametrize("cookie", ["login=chosen", 'login="a; Domain=x"', "login=\u00e4", "login"])
def test_cookie_that_is_none_of_ours_is_replaced(client: LoginClient, cookie: str) -> None:
    place = client.authorize().url
    page = httpx2.get(place, headers={"cookie": cookie.encode()})
    [given] = page.headers.get_list("set-cookie")
    assert len(given.partition("=")[2].partition(";")[0]) == 43


@pytest.mark.rule("AUTHZ-18")
def test_form_from_another_site_is_refused(client: LoginClient) -> None:
    page = client.authorize()
    form = {"transaction": transaction_of(page), "answer": "yes"}
    for origin in ("https://evil.example", "null"):
        refused = client.browser.post(
            f"{client.url}/oauth/consent", data=form, headers={"origin": origin}
        )
        assert refused.status_code == 403
    answer = client.browser.post(
        f"{client.url}/oauth/consent", data=form, headers={"origin": client.url}
    )
    assert answer.status_code == 303


@pytest.mark.rule("AUTHZ-21", "AUTHZ-12")
def test_cancel_sends_back_without_asking_the_provider(
    client: LoginClient, provider: IdentityProviderFake
) -> None:
    back = client.answer(client.authorize(), "no")
    assert back.headers["location"].startswith(f"{CALLBACK}?")
    assert said(back) == {"error": "access_denied", "state": "the-state", "iss": client.url}
    assert provider.paths("/authorize") == []


# -- the provider, and back


@pytest.mark.rule("AUTHZ-19")
def test_login_of_another_browser_is_refused(client: LoginClient) -> None:
    """The attacker agrees, and sends the victim to the provider's page (GHSA-rww4-4w9c-7733)."""
    at_provider = client.answer(client.authorize())
    victim = LoginClient(client.url, client_id=client.client_id)
    for _ in range(2):
        refused = victim.come_back(at_provider)
        assert refused.status_code == 400
        assert "location" not in refused.headers
        victim.answer(victim.authorize())  # has agreed to something itself
    assert client.come_back(at_provider).status_code == 303


@pytest.mark.rule("AUTHZ-19")
def test_answer_of_another_transaction_is_refused(client: LoginClient) -> None:
    first, second = (client.answer(client.authorize(state=each)) for each in ("one", "two"))
    page = httpx2.get(first.headers["location"])
    back = page.headers["location"]
    other = said(second)["state"]
    assert client.browser.get(back.replace(said(first)["state"], other)).status_code == 303
    assert client.browser.get(back.replace(said(first)["state"], "x" * 22)).status_code == 400
    doubled = client.browser.get(f"{back}&state={said(first)['state']}")
    assert doubled.status_code == 400


@pytest.mark.rule("AUTHZ-19")
def test_answer_counts_once(client: LoginClient) -> None:
    at_provider = client.answer(client.authorize())
    page = httpx2.get(at_provider.headers["location"])
    assert client.browser.get(page.headers["location"]).status_code == 303
    assert client.browser.get(page.headers["location"]).status_code == 400


@pytest.mark.rule("AUTHZ-23")
@pytest.mark.parametrize(
    ("answer", "id_token", "error"),
    [
        ({"iss": "https://evil.example"}, {}, "server_error"),
        ({"error": "access_denied", "code": None}, {}, "access_denied"),
        ({"code": "another"}, {}, "server_error"),
        ({"code": None}, {}, "server_error"),
        ({}, {"iss": "https://evil.example"}, "server_error"),
        ({}, {"aud": "another-client"}, "server_error"),
        ({}, {"aud": [CLIENT_ID, "another"], "azp": "another"}, "server_error"),
        ({}, {"nonce": "another"}, "server_error"),
        ({}, {"nonce": None}, "server_error"),
        ({}, {"exp": 1}, "server_error"),
        ({}, {"exp": None}, "server_error"),
        ({}, {"sub": None}, "server_error"),
        ({}, {"sub": "key:alice"}, "server_error"),
    ],
)
def test_bad_word_of_the_provider_lets_nobody_in(
    client: LoginClient,
    provider: IdentityProviderFake,
    answer: dict[str, Any],
    id_token: dict[str, Any],
    error: str,
) -> None:
    provider.answer, provider.id_token = answer, id_token
    back = client.log_in()
    assert said(back) == {"error": error, "state": "the-state", "iss": client.url}


@pytest.mark.rule("AUTHZ-23")
def test_code_of_the_provider_is_used_with_pkce(
    client: LoginClient, provider: IdentityProviderFake
) -> None:
    client.log_in()
    [asked] = provider.paths("/authorize")
    assert asked.form["code_challenge_method"] == "S256"
    assert "resource" not in asked.form
    assert asked.form["nonce"]
    [token] = provider.paths("/token")
    assert token.form["code_verifier"] != VERIFIER


@pytest.mark.rule("AUTHZ-06", "AUTHZ-21")
@pytest.mark.parametrize(
    "claims",
    [
        {"email": "ann@evil.org"},
        {"email": "ann@x.org.evil.org"},
        {"email_verified": False},
        {"email_verified": None},
        {"email": "x.org"},
    ],
)
def test_person_who_is_not_allowed_sees_a_page(
    client: LoginClient, provider: IdentityProviderFake, claims: dict[str, Any]
) -> None:
    provider.claims |= claims
    page = client.log_in()
    assert page.status_code == 403
    assert "may not use this server" in page.text
    assert "location" not in page.headers


@pytest.mark.rule("AUTHZ-29")
def test_provider_that_is_down_shows_a_page(
    client: LoginClient, provider: IdentityProviderFake
) -> None:
    at_provider = client.answer(client.authorize())
    page = httpx2.get(at_provider.headers["location"])
    provider.is_down = True
    back = client.browser.get(page.headers["location"])
    assert said(back)["error"] == "temporarily_unavailable"


# -- what is asked


@pytest.mark.rule("AUTHZ-20")
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": None}, "unsupported_response_type"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"prompt": "none"}, "interaction_required"),
        ({"scope": " ".join(map(str, range(51)))}, "invalid_scope"),
        ({"scope": "\u00e4"}, "invalid_scope"),
    ],
)
def test_bad_request_is_told_to_the_client(
    client: LoginClient, provider: IdentityProviderFake, changes: dict[str, Any], error: str
) -> None:
    back = client.authorize(**changes)
    assert back.headers["location"].startswith(f"{CALLBACK}?")
    told = said(back)
    assert (told["error"], told["state"], told["iss"]) == (error, "the-state", client.url)
    assert provider.asked == []


@pytest.mark.rule("AUTHZ-20")
def test_parameter_that_comes_twice_gets_a_page(client: LoginClient) -> None:
    query = urlencode({"client_id": client.client_id, "redirect_uri": CALLBACK})
    place = f"{client.url}/oauth/authorize?{query}&redirect_uri=https://evil.example"
    assert client.browser.get(place).status_code == 400
    assert client.authorize(state="x" * 1025).status_code == 400
    page = client.authorize(scope=" ".join(f"{'x' * 60}{number}" for number in range(50)))
    assert (page.status_code, "the request is too long" in page.text) == (400, True)


@pytest.mark.rule("AUTHZ-20")
@pytest.mark.parametrize(
    "body",
    [
        b"grant_type=\xff",
        b"grant_type=refresh_token&grant_type=refresh_token",
        b"&".join(b"p%d=" % number for number in range(51)),
        b"grant_type=" + b"x" * 20_000,
    ],
)
def test_form_that_cannot_be_read_is_refused(client: LoginClient, body: bytes) -> None:
    for path, error in (("token", '"invalid_request"'), ("consent", "the request cannot be read")):
        refused = httpx2.post(f"{client.url}/oauth/{path}", content=body)
        assert (refused.status_code, error in refused.text) == (400, True)


@pytest.mark.rule("AUTHZ-02")
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/oauth/authorize"), ("GET", "/oauth/token"), ("GET", "/oauth/consent")],
)
def test_other_methods_are_refused(client: LoginClient, method: str, path: str) -> None:
    assert httpx2.request(method, f"{client.url}{path}").status_code == 405


# -- tokens


@pytest.mark.rule("AUTHZ-25", "AUTHZ-33")
def test_second_use_of_a_code_ends_what_came_of_the_first(client: LoginClient) -> None:
    back = client.log_in()
    tokens = client.redeem(back).json()
    assert status_of(client, tokens) == 200
    assert client.redeem(back).json()["error"] == "invalid_grant"
    assert client.refresh(tokens).json()["error"] == "invalid_grant"
    assert status_of(client, tokens) == 401


@pytest.mark.rule("AUTHZ-25")
def test_code_counts_for_its_client_and_verifier(client: LoginClient) -> None:
    back = client.log_in()
    other = LoginClient(client.url)
    other.register(CALLBACK, client_name="Other")
    attempts = (
        other.redeem(back),
        client.redeem(back, code_verifier="w" * 43),
        client.redeem(back, code_verifier=None),
        client.redeem(back, redirect_uri="http://127.0.0.1:7777/other"),
        client.redeem(back, code=said(back)["code"][:-1]),
        client.redeem(back, code="x.y"),
    )
    for attempt in attempts:
        assert (attempt.status_code, attempt.json()["error"]) == (400, "invalid_grant")
    wrong = client.redeem(back, resource="https://other.example/mcp")
    assert wrong.json()["error"] == "invalid_target"
    assert client.token(grant_type="password").json()["error"] == "unsupported_grant_type"
    assert client.redeem(back).status_code == 200


@pytest.mark.rule("AUTHZ-28")
def test_refresh_token_that_comes_again_gets_the_same_answer(client: LoginClient) -> None:
    tokens = client.redeem(client.log_in()).json()
    first, second = client.refresh(tokens).json(), client.refresh(tokens).json()
    assert first == second
    third = client.refresh(first).json()
    assert third["refresh_token"] not in (first["refresh_token"], tokens["refresh_token"])
    assert client.refresh(tokens).json()["error"] == "invalid_grant"  # older than the last
    for each in (first, third):
        assert client.refresh(each).json()["error"] == "invalid_grant"
    assert status_of(client, third) == 401


@pytest.mark.rule("AUTHZ-36")
def test_refresh_gives_fewer_scopes_and_never_more(client: LoginClient) -> None:
    tokens = client.redeem(client.log_in(scope="read write")).json()
    refused = client.refresh(tokens, scope="read admin")
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_scope")
    for asked, given in (("read", "read"), ("", "read write"), ("write read", "write read")):
        tokens = client.refresh(tokens, scope=asked).json()
        assert tokens["scope"] == given
        claims = text_of(call(f"{client.url}/mcp", authorization=bearer(tokens)))
        assert json.loads(claims)["scope"] == given


@pytest.mark.rule("AUTHZ-28")
def test_refresh_token_of_another_client_is_refused(client: LoginClient) -> None:
    tokens = client.redeem(client.log_in()).json()
    other = LoginClient(client.url)
    other.register(CALLBACK, client_name="Other")
    assert other.refresh(tokens).json()["error"] == "invalid_grant"
    assert client.refresh(tokens).status_code == 200


@pytest.mark.rule("AUTHZ-29")
def test_person_who_has_left_is_out(client: LoginClient, provider: IdentityProviderFake) -> None:
    tokens = client.redeem(client.log_in()).json()
    provider.is_down = True
    assert client.refresh(tokens).status_code == 503
    provider.is_down = False
    tokens = client.refresh(tokens).json()
    provider.has_left = True
    assert client.refresh(tokens).json()["error"] == "invalid_grant"
    assert status_of(client, tokens) == 401


@pytest.mark.rule("AUTHZ-29")
@pytest.mark.parametrize("answer", [(503, b"down"), (200, b"<html>")])
def test_login_survives_a_provider_that_is_half_down(
    client: LoginClient, provider: IdentityProviderFake, answer: tuple[int, bytes]
) -> None:
    """It gives a token, and does not say whose: the fake ends a login whose old token is reused."""
    tokens = client.redeem(client.log_in()).json()
    provider.id_token = {"email": None}  # so the person is asked for at another endpoint
    provider.down["/userinfo"] = answer
    assert client.refresh(tokens).status_code == 503
    provider.down.clear()
    assert client.refresh(tokens).status_code == 200


@pytest.mark.rule("AUTHZ-29")
@pytest.mark.parametrize(
    ("error", "is_over"),
    [("interaction_required", True), ("bad_refresh_token", True), ("invalid_client", False)],
)
def test_login_ends_with_what_ends_it_at_the_provider(
    client: LoginClient, provider: IdentityProviderFake, error: str, is_over: bool
) -> None:
    tokens = client.redeem(client.log_in()).json()
    provider.down["/token"] = (400, json.dumps({"error": error}).encode())
    assert client.refresh(tokens).status_code == (400 if is_over else 503)
    provider.down.clear()
    assert client.refresh(tokens).status_code == (400 if is_over else 200)


@pytest.mark.rule("AUTHZ-29", "AUTHZ-06")
def test_person_who_is_not_allowed_any_more_is_out(
    client: LoginClient, provider: IdentityProviderFake
) -> None:
    tokens = client.redeem(client.log_in()).json()
    provider.claims["email"] = "ann@elsewhere.org"
    assert client.refresh(tokens).json()["error"] == "invalid_grant"


@pytest.mark.rule("AUTHZ-31", "AUTHZ-33")
@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
def test_client_ends_its_login(client: LoginClient, kind: str) -> None:
    tokens = client.redeem(client.log_in()).json()
    place = f"{client.url}/oauth/revoke"
    for form in ({"token": tokens[kind], "client_id": "another"}, {"token": "x"}, {}):
        assert httpx2.post(place, data=form).status_code == 200
    unsigned = {"token": "a.b.c", "client_id": client.client_id}
    assert httpx2.post(place, data=unsigned).status_code == 200
    assert status_of(client, tokens) == 200
    form = {"token": tokens[kind], "client_id": client.client_id}
    assert httpx2.post(place, data=form).status_code == 200
    assert status_of(client, tokens) == 401
    assert client.refresh(tokens).json()["error"] == "invalid_grant"


@pytest.mark.rule("AUTHZ-26")
def test_token_of_the_provider_opens_nothing(
    client: LoginClient, provider: IdentityProviderFake
) -> None:
    answer = client.redeem(client.log_in())
    assert "provider" not in answer.text
    for token in provider.valid:
        refused = call(f"{client.url}/mcp", authorization=f"Bearer {token}")
        assert refused.status_code == 401
    assert text_of(call(f"{client.url}/mcp", "upstream", authorization=bearer(answer.json()))) == (
        "None"
    )


# -- other servers


@pytest.mark.rule("AUTHZ-35", "AUTH-04")
def test_every_step_is_audited_and_no_secret_is_logged(
    tmp_path: Path, provider: IdentityProviderFake
) -> None:
    with serving(tmp_path, provider, keep_provider_tokens="true") as (client, process):
        client.register()
        client.answer(client.authorize(), "no")
        back = client.log_in()
        tokens = client.redeem(back).json()
        renewed = client.refresh(tokens).json()
        status_of(client, tokens)
        provider.answer = {"code": "another-code-of-the-provider"}
        client.log_in()
        again = client.redeem(back)
        process.record(eventType="CODE_REUSED")
        provider.answer, provider.lifetime = {}, 30
        left = client.redeem(client.log_in()).json()
        provider.has_left = True
        assert text_of(call(f"{client.url}/mcp", "upstream", authorization=bearer(left))) == "None"
        process.record(eventType="PROVIDER_LOGIN_OVER")
        wanted = (
            *("CLIENT_REGISTERED", "AUTHORIZATION_REQUESTED", "CONSENT_GIVEN", "CONSENT_DENIED"),
            *("LOGIN_COMPLETED", "LOGIN_FAILED", "TOKEN_ISSUED", "TOKEN_REFRESHED"),
        )
        for event in wanted:
            assert process.records_with(eventType=event), event
        secrets = [tokens["access_token"], tokens["refresh_token"], renewed["refresh_token"]]
        secrets += [said(back)["code"], CLIENT_SECRET, STATE_KEY, VERIFIER]
        secrets += [*provider.valid, *provider.used, "another-code-of-the-provider"]
        for secret in secrets:
            assert secret not in process.stderr
            assert secret not in again.text


@pytest.mark.rule("AUTHZ-35")
def test_every_refusal_is_audited(tmp_path: Path, provider: IdentityProviderFake) -> None:
    with serving(tmp_path, provider) as (client, process):
        client.register("https://evil.example/back")
        client.token(grant_type="refresh_token", refresh_token="a.b")  # of no client
        client.register()
        client.authorize(redirect_uri="https://evil.example/back")
        back = client.log_in()
        client.redeem(back, code_verifier="x" * 43)
        tokens = client.redeem(back).json()
        client.token(grant_type="refresh_token", refresh_token="a.b")
        first = client.refresh(tokens).json()
        second = client.refresh(first).json()
        client.refresh(tokens)
        left = client.redeem(client.log_in()).json()
        form = {"token": left["refresh_token"], "client_id": client.client_id}
        httpx2.post(f"{client.url}/oauth/revoke", data=form, timeout=PATIENCE)
        provider.claims |= {"email": "ann@evil.org"}
        client.log_in()
        for event in (
            *("CLIENT_REFUSED", "TOKEN_REFUSED", "AUTHORIZATION_REFUSED", "CODE_REFUSED"),
            *("REFRESH_TOKEN_REFUSED", "REFRESH_TOKEN_REUSED", "TOKEN_REVOKED", "LOGIN_REFUSED"),
        ):
            process.record(eventType=event)
        for each in (tokens, first, second, left):
            assert each["access_token"] not in process.stderr
            assert each["refresh_token"] not in process.stderr
        assert said(back)["code"] not in process.stderr


@pytest.mark.rule("AUTHZ-34", "AUTHZ-30", "AUTHZ-25")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_workers_share_codes_tokens_and_those_of_the_provider(
    tmp_path: Path, provider: IdentityProviderFake, kind: str
) -> None:
    store = f"sqlite:{tmp_path / 'logins.db'}" if kind == "sqlite" else need_redis()
    provider.lifetime = 30
    given = {"keep_provider_tokens": "true", "access_ttl_ms": "60000", "refresh_ttl_ms": "60000"}
    with serving(tmp_path, provider, "--workers", "2", store=store, **given) as (client, process):
        process.wait_until(
            lambda: len(process.records_with(message="serving over HTTP")) == 2, "all serve"
        )
        client.register()
        tokens = client.redeem(client.log_in()).json()
        seen = set()
        for _ in range(6):  # each on a connection of its own: the system chooses the worker
            answer = call(f"{client.url}/mcp", "upstream", authorization=bearer(tokens))
            seen.add(text_of(answer))
            tokens = client.refresh(tokens).json()
        assert seen <= provider.valid
        assert len(provider.used) == len(set(provider.used)) >= 6
        if kind == "sqlite":
            content = b"".join(each.read_bytes() for each in tmp_path.glob("logins.db*"))
            held = (
                tokens["access_token"],
                tokens["refresh_token"],
                *provider.valid,
                *provider.used,
            )
            for secret in (*held, "ann@x.org"):
                assert secret.encode() not in content


@pytest.mark.rule("AUTHZ-25", "AUTHZ-28", "AUTHZ-30")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_killed_server_loses_no_login_and_no_code_counts_twice(
    tmp_path: Path, provider: IdentityProviderFake, kind: str
) -> None:
    store = f"sqlite:{tmp_path / 'logins.db'}" if kind == "sqlite" else need_redis()
    given = {"store": store, "refresh_ttl_ms": "60000"}
    provider.gives_refresh = False  # one that rotates may be used up, and its successor not come
    with serving(tmp_path, provider, **given) as (client, _):
        client.register()
        tokens = client.redeem(client.log_in()).json()
    port = int(client.url.rpartition(":")[2])
    for is_begun in (False, True):
        with serving(tmp_path, provider, port=port, **given) as (_, process):
            back = client.log_in()
            with ThreadPoolExecutor() as threads:
                refreshed = threads.submit(answer_of, partial(client.refresh, tokens))
                redeemed = threads.submit(answer_of, partial(client.redeem, back))
                if is_begun:
                    process.wait_until(lambda: has_stored(process), "one of both is stored")
                process.signal(signal.SIGKILL)
        with serving(tmp_path, provider, port=port, **given) as (_, process):
            again = client.redeem(back)
            if redeemed.result() is None:
                assert again.status_code == 200 or again.json()["error"] == "invalid_grant"
            else:
                assert again.json()["error"] == "invalid_grant"
            assert client.redeem(back).json()["error"] == "invalid_grant"
            renewed = client.refresh(tokens).json()
            assert refreshed.result() in (None, renewed)
            assert status_of(client, renewed) == 200
            tokens = renewed


def has_stored(process: ServerProcess) -> bool:
    """Return whether a server has stored new tokens, of a code or of a refresh."""
    events = ("TOKEN_ISSUED", "TOKEN_REFRESHED")
    return any(process.records_with(eventType=event) for event in events)


def answer_of(request: Callable[[], httpx2.Response]) -> dict[str, Any] | None:
    """Return what a server answers; None if it is killed before."""
    try:
        answer = request()
    except httpx2.TransportError:
        return None
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.rule("AUTHZ-25", "AUTHZ-28", "AUTHZ-30")
def test_code_and_tokens_count_at_another_process(
    tmp_path: Path, provider: IdentityProviderFake
) -> None:
    given = {"store": f"sqlite:{tmp_path / 'logins.db'}"}
    with (
        serving(tmp_path, provider, **given) as (here, _),
        serving(tmp_path, provider, url=here.url, **given) as (there, _),
    ):
        here.register()
        there.client_id = here.client_id
        back = here.log_in()
        resource = f"{here.url}/mcp"
        tokens = there.redeem(back, resource=resource).json()
        assert status_of(here, tokens) == 200
        renewed = here.refresh(tokens).json()
        assert there.refresh(tokens).json() == renewed
        assert here.redeem(back).json()["error"] == "invalid_grant"
        assert there.refresh(renewed).json()["error"] == "invalid_grant"
        assert status_of(there, renewed) == 401


@pytest.mark.rule("AUTHZ-05", "AUTHZ-06", "AUTHZ-34")
def test_person_logs_in_with_github(tmp_path: Path, provider: IdentityProviderFake) -> None:
    provider.gives_refresh = False
    given = {"provider": "github", "allow": "org:acme", "keep_provider_tokens": "true"}
    with serving(tmp_path, provider, **given) as (client, _):
        client.register()
        tokens = client.redeem(client.log_in()).json()
        claims = json.loads(text_of(call(f"{client.url}/mcp", authorization=bearer(tokens))))
        assert (claims["subject"], claims["email"]) == ("7", "ann@x.org")
        [asked] = provider.paths("/login/oauth/authorize")
        assert asked.form["scope"] == "read:user user:email read:org"
        answer = call(f"{client.url}/mcp", "upstream", authorization=bearer(tokens))
        assert text_of(answer) in provider.valid
        assert client.refresh(tokens).status_code == 200


@pytest.mark.rule("AUTHZ-05", "AUTHZ-03")
def test_person_logs_in_with_oauth_alone_and_the_server_signs(
    tmp_path: Path, provider: IdentityProviderFake
) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(EC.as_pem(private=True))
    given = {"provider": "oauth", "client_secret": None, "client_key_file": str(key)}
    with serving(tmp_path, provider, **given) as (client, _):
        client.register()
        tokens = client.redeem(client.log_in()).json()
        assert status_of(client, tokens) == 200
        [asked] = provider.paths("/token")
        assert "nonce" not in provider.paths("/authorize")[0].form
        assert asked.form["client_assertion"].count(".") == 2
        assert "client_secret" not in asked.form
        assert "authorization" not in asked.headers
