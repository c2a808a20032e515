"""Where metadata is found, which URLs are asked, which clients and scopes are used."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext, suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.auth.descriptions import LoginRequest, OAuth
from foundation_rt.client.auth.discovery import (
    OAuthClient,
    ResourceMetadata,
    ServerMetadata,
    authenticate,
    check_challenge_method,
    choose_issuer,
    is_resource_of,
    known_client,
    read_server_metadata,
    registered_client,
    registration,
    resource_metadata_places,
    server_metadata_places,
)
from foundation_rt.client.auth.exchanges import AuthResponse
from foundation_rt.client.auth.flows import Flows
from foundation_rt.client.auth.grants import (
    Challenge,
    Grant,
    authorization_url,
    choose_challenge,
    choose_scopes,
    read_callback,
    read_challenges,
    read_grant,
)
from foundation_rt.client.auth.stores import MemoryTokenStore
from foundation_rt.client.auth.urls import may_ask
from foundation_rt.client.errors import AuthorizationError, MCPError
from tests.lab.login.oauth_world import parameters_of
from tests.lab.peers.client_vectors import cases

URL = "https://mcp.example.com/tenant/mcp"
ISSUER = "https://login.example.com/t1"
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # RFC 7636, appendix B
BACK = "http://127.0.0.1:7000/callback"
SERVER = ServerMetadata(ISSUER, f"{ISSUER}/token", f"{ISSUER}/authorize", sends_iss=True)


# -- challenges and places


@pytest.mark.rule("CAUTH-12")
def test_challenges_are_read_whatever_stands_between_them() -> None:
    header = 'Basic realm="a, b=\\"c\\"", Negotiate abc==, bearer scope="x y" ,error=invalid_token'
    assert read_challenges(header) == [
        Challenge("basic", {"realm": 'a, b="c"'}),
        Challenge("negotiate", {}),
        Challenge("bearer", {"scope": "x y", "error": "invalid_token"}),
    ]
    assert choose_challenge(header).scopes == ("x", "y")
    assert choose_challenge(f"{header}, DPoP").scheme == "dpop"
    assert choose_challenge("") == Challenge("bearer", {})
    many = [f"p{number}=v" for number in range(30)]
    assert read_challenges(f"x=1, Bearer {', '.join(many)}") == [
        Challenge("bearer", {f"p{number}": "v" for number in range(20)})
    ]
    named = [f"S{number}" for number in range(30)]
    assert [each.scheme for each in read_challenges(", ".join(named))][18:] == ["s18", "s19"]


@pytest.mark.rule("CAUTH-12")
@given(st.text(alphabet='ab ,="\\\t', max_size=40) | st.text(max_size=20))
def test_any_header_is_read_within_its_bounds(header: str) -> None:
    found = read_challenges(header * 30)
    assert len(found) <= 20
    assert all(len(each.parameters) <= 20 for each in found)


@pytest.mark.rule("CAUTH-13")
def test_resource_metadata_is_at_the_path_and_then_at_the_root() -> None:
    root = "https://mcp.example.com/.well-known/oauth-protected-resource"
    assert resource_metadata_places(URL, None) == [f"{root}/tenant/mcp", root]
    assert resource_metadata_places("https://mcp.example.com/", None) == [root]
    named = "https://elsewhere.example.com/metadata.json"
    assert resource_metadata_places(URL, named) == [named]


@pytest.mark.rule("CAUTH-16")
def test_metadata_of_an_issuer_is_asked_for_in_the_order_of_the_specification() -> None:
    origin = "https://login.example.com"
    assert server_metadata_places(ISSUER) == [
        f"{origin}/.well-known/oauth-authorization-server/t1",
        f"{origin}/.well-known/openid-configuration/t1",
        f"{origin}/t1/.well-known/openid-configuration",
    ]
    assert server_metadata_places(f"{origin}/") == [
        f"{origin}/.well-known/oauth-authorization-server",
        f"{origin}/.well-known/openid-configuration",
    ]


@pytest.mark.rule("CAUTH-10", "CAUTH-54")
@pytest.mark.parametrize("vector", cases("authorization-urls", "may_be_asked"))
def test_only_https_and_the_neighbourhood_of_the_server_are_asked(vector: dict[str, Any]) -> None:
    assert may_ask(vector["url"], vector["server"]) is vector["may_be_asked"]


@pytest.mark.rule("CAUTH-10")
def test_a_url_has_at_most_2048_characters() -> None:
    longest = f"https://a.example/{'x' * 2030}"
    assert may_ask(longest, URL)
    assert not may_ask(f"{longest}x", URL)


@pytest.mark.rule("CAUTH-14")
@pytest.mark.parametrize("vector", cases("authorization-urls", "is_of_server"))
def test_server_may_name_itself_or_a_part_of_its_path(vector: dict[str, Any]) -> None:
    assert is_resource_of(vector["resource"], vector["server"]) is vector["is_of_server"]


@pytest.mark.rule("CAUTH-15", "CAUTH-22")
def test_issuer_is_the_one_of_the_description_or_the_first() -> None:
    found = ResourceMetadata(URL, (ISSUER, "https://other.example.com"))
    assert choose_issuer(found, None, URL) == ISSUER
    assert choose_issuer(found, "https://other.example.com", URL) == "https://other.example.com"
    with pytest.raises(AuthorizationError) as caught:
        choose_issuer(found, "https://third.example.com", URL)
    assert str(caught.value) == (
        "E207 The credentials belong to https://third.example.com; mcp.example.com now uses"
        f" {ISSUER}. Log in with new ones."
    )


@pytest.mark.rule("CAUTH-16")
@pytest.mark.parametrize("named", [f"{ISSUER}/", "https://LOGIN.example.com/t1", "", None, 5])
def test_metadata_of_another_issuer_is_not_used(named: Any) -> None:
    with pytest.raises(AuthorizationError, match="as its issuer and was not used"):
        read_server_metadata({"issuer": named, "token_endpoint": f"{ISSUER}/token"}, ISSUER, URL)


@pytest.mark.rule("CAUTH-17")
@pytest.mark.parametrize("methods", [(), ("plain",), ("s256",)])
def test_no_login_begins_without_s256(methods: tuple[str, ...]) -> None:
    with pytest.raises(AuthorizationError, match="S256"):
        check_challenge_method(evolve(SERVER, challenge_methods=methods))


# -- clients and scopes


@pytest.mark.rule("CAUTH-24")
@pytest.mark.parametrize(
    ("secret", "key", "methods", "method"),
    [
        (None, None, None, "none"),
        ("s", None, None, "client_secret_basic"),
        ("s", None, ("client_secret_post", "client_secret_basic"), "client_secret_basic"),
        ("s", None, ("client_secret_post",), "client_secret_post"),
        (None, "PEM", ("client_secret_post",), "private_key_jwt"),
    ],
)
def test_client_authenticates_as_its_server_takes_it(
    secret: str | None, key: str | None, methods: tuple[str, ...] | None, method: str
) -> None:
    assert known_client("me", secret, key, evolve(SERVER, auth_methods=methods)).method == method


@pytest.mark.rule("CAUTH-24")
def test_secret_of_the_header_is_encoded_first() -> None:
    client = known_client("a b", "p:q", None, SERVER)
    assert authenticate(client) == ({}, {"authorization": "Basic YStiOnAlM0Fx"})
    posted = OAuthClient("a b", "client_secret_post", "p:q")
    assert authenticate(posted) == ({"client_id": "a b", "client_secret": "p:q"}, {})


@pytest.mark.rule("CAUTH-24")
def test_registration_says_how_its_client_authenticates() -> None:
    answer = {"client_id": "c", "client_secret": "s"}
    server = evolve(SERVER, auth_methods=("client_secret_basic",))
    assert registered_client(answer, BACK, server).method == "client_secret_basic"
    told = {**answer, "token_endpoint_auth_method": "client_secret_post"}
    assert registered_client(told, BACK, server).method == "client_secret_post"
    assert registered_client({"client_id": "c"}, BACK, server).method == "none"
    for nobody in ({}, {"client_id": 5}, {"client_id": ""}):
        with pytest.raises(AuthorizationError, match="without a name"):
            registered_client(nobody, BACK, server)


@pytest.mark.rule("CAUTH-24")
@pytest.mark.parametrize(
    ("methods", "method"),
    [
        (None, "none"),
        (("client_secret_basic", "none"), "none"),
        (("client_secret_post", "client_secret_basic"), "client_secret_basic"),
        (("client_secret_post",), "client_secret_post"),
        (("private_key_jwt",), "none"),
    ],
)
def test_registration_asks_for_a_method_of_its_server(
    methods: tuple[str, ...] | None, method: str
) -> None:
    place = f"{ISSUER}/register"
    server = evolve(SERVER, auth_methods=methods, registration_endpoint=place)
    assert registration(server, BACK, ())["token_endpoint_auth_method"] == method


@pytest.mark.rule("CAUTH-25", "CAUTH-26")
def test_scopes_are_those_of_the_challenge_and_of_the_description() -> None:
    resource = ResourceMetadata(URL, (ISSUER,), ("all",))
    offline = evolve(SERVER, scopes=("offline_access",))
    assert choose_scopes(("needed",), resource, SERVER, ("mine",)) == ("needed", "mine")
    assert choose_scopes(None, resource, SERVER, ()) == ("all",)
    assert choose_scopes(None, evolve(resource, scopes=None), SERVER, ()) == ()
    assert choose_scopes(None, resource, offline, ()) == ("all", "offline_access")
    assert choose_scopes(("more",), resource, SERVER, (), ("all",)) == ("all", "more")


# -- the browser comes back


def came_back(**parameters: str | None) -> str:
    from urllib.parse import urlencode

    right = {"code": "the-code", "state": "ours", "iss": ISSUER, **parameters}
    return f"{BACK}?{urlencode({k: v for k, v in right.items() if v is not None})}"


@pytest.mark.rule("CAUTH-18")
@pytest.mark.parametrize(
    ("iss", "sends_iss", "is_good"),
    [
        (ISSUER, True, True),
        (None, True, False),
        (ISSUER, False, True),
        (None, False, True),
        ("https://evil.example.com", True, False),
        ("https://evil.example.com", False, False),
        (f"{ISSUER}/", True, False),
        ("https://login.example.com:443/t1", False, False),
    ],
)
def test_answer_of_another_issuer_is_refused(
    iss: str | None, sends_iss: bool, is_good: bool
) -> None:
    server = evolve(SERVER, sends_iss=sends_iss)
    if is_good:
        assert read_callback(came_back(iss=iss), BACK, "ours", server) == "the-code"
        return
    with pytest.raises(AuthorizationError, match=f"not from {ISSUER}"):
        read_callback(came_back(iss=iss), BACK, "ours", server)


@pytest.mark.rule("CAUTH-18")
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (came_back(state="theirs"), "another login"),
        (came_back(state=None), "another login"),
        (came_back(code=None), "has no code"),
        (f"{came_back()}&code=other", "repeats a parameter"),
        (came_back().replace("7000", "7001"), "another address"),
        (came_back().replace("callback", "other"), "another address"),
        ("http://[", "another address"),
        ("", "another address"),
    ],
)
def test_answer_that_is_not_that_of_this_login_is_refused(url: str, reason: str) -> None:
    with pytest.raises(AuthorizationError, match=reason) as caught:
        read_callback(url, BACK, "ours", SERVER)
    assert "the-code" not in str(caught.value)


@pytest.mark.rule("CAUTH-18")
def test_text_of_a_refusal_is_shown_only_if_its_issuer_is_right() -> None:
    denied = {"code": None, "error": "access_denied", "error_description": "Ann said no"}
    with pytest.raises(AuthorizationError, match="access_denied: Ann said no"):
        read_callback(came_back(**denied), BACK, "ours", SERVER)
    for wrong in ({"iss": "https://evil.example.com"}, {"state": "theirs"}):
        with pytest.raises(AuthorizationError) as caught:
            read_callback(came_back(**denied, **wrong), BACK, "ours", SERVER)
        assert "Ann" not in str(caught.value)


@pytest.mark.rule("CAUTH-18")
def test_query_of_a_page_stays_and_repeats_no_parameter() -> None:
    given = (
        "?tenant=a%20b&state=theirs&redirect_uri=https%3A%2F%2Fevil.example.com&state=more&empty="
    )
    server = evolve(SERVER, authorization_endpoint=f"{ISSUER}/authorize{given}")
    client = known_client("me", None, None, server)
    page = authorization_url(server, client, BACK, URL, (), "ours", VERIFIER)
    found = parse_qsl(urlsplit(page).query, keep_blank_values=True)
    assert len(found) == len(dict(found))
    expected = {"tenant": "a b", "state": "ours", "redirect_uri": BACK, "empty": ""}
    assert expected.items() <= dict(found).items()


@pytest.mark.rule("CAUTH-18", "CAUTH-14")
def test_page_of_a_login_has_all_that_protects_it() -> None:
    client = known_client("me", None, None, SERVER)
    page = authorization_url(SERVER, client, BACK, URL, ("a", "b"), "ours", VERIFIER)
    assert parameters_of(page) == {
        "response_type": "code",
        "client_id": "me",
        "redirect_uri": BACK,
        "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        "code_challenge_method": "S256",
        "state": "ours",
        "resource": URL,
        "scope": "a b",
    }
    offline = authorization_url(SERVER, client, BACK, URL, ("offline_access",), "ours", VERIFIER)
    assert parameters_of(offline)["prompt"] == "consent"


@pytest.mark.rule("CAUTH-31")
@pytest.mark.parametrize(
    ("said", "expires_at"),
    [(60, 160.0), ("60", 160.0), (None, None), (True, None), (-1, None), ("x", None)],
)
def test_end_of_a_token_is_a_time(said: Any, expires_at: float | None) -> None:
    client = known_client("me", None, None, SERVER)
    answer = {"access_token": "t", "token_type": "bearer", "expires_in": said}
    grant = read_grant(answer, URL, SERVER, client, ("a",), 100.0, refresh_token="old")
    assert (grant.expires_at, grant.scopes, grant.refresh_token) == (expires_at, ("a",), "old")
    assert Grant.of_entry(grant.to_entry()) == grant
    assert Grant.of_entry({**grant.to_entry(), "scopes": 5}) is None


@pytest.mark.rule("CAUTH-31", "CAUTH-37")
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"access_token": "t\r\nX: y"}, "gave no token that a header can hold"),
        ({"token_type": "mac"}, "gave a token of a type that is not known"),
        ({"token_type": "DPoP"}, "bound a token to a key that is not ours"),
    ],
)
def test_token_that_cannot_be_used_is_refused(answer: dict[str, str], error: str) -> None:
    client = known_client("me", None, None, SERVER)
    with pytest.raises(AuthorizationError, match=f"{ISSUER} {error}"):
        read_grant({"access_token": "t", **answer}, URL, SERVER, client, (), 0.0)


# -- whatever metadata and callbacks say

HONEST, EVIL = "https://honest.example.com", "https://evil.example.com"
ORIGINS = st.sampled_from(
    [HONEST, EVIL, "http://evil.example.com", "https://10.0.0.1", f"{HONEST}/"]
)


@define(eq=False)
class Net:
    """Serves what a hostile server and `EVIL` say; `HONEST` is honest. Notes who gets what."""

    resource: dict[str, Any]
    evil: dict[str, Any]
    sent: list[tuple[str, str]] = field(factory=list)
    asked: list[str] = field(factory=list)

    async def get(self, url: str) -> AuthResponse:
        self.asked.append(url)
        if url.startswith("https://mcp."):
            return AuthResponse(200, {}, self.resource)
        if url.startswith(f"{HONEST}/"):
            return AuthResponse(200, {}, honest_metadata())
        return AuthResponse(200, {}, self.evil)

    async def post(self, url: str, body: Any, headers: Any) -> AuthResponse:
        if isinstance(body, bytes):
            return AuthResponse(201, {}, {"client_id": "c"})
        self.sent += [(value, url) for value in body.values()]
        granted = {"access_token": f"token-of-{url}", "refresh_token": f"refresh-of-{url}"}
        return AuthResponse(200, {}, granted)


def honest_metadata() -> dict[str, Any]:
    return {
        "issuer": HONEST,
        "authorization_endpoint": f"{HONEST}/authorize",
        "token_endpoint": f"{HONEST}/token",
        "registration_endpoint": f"{HONEST}/register",
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }


@pytest.mark.rule("CAUTH-18", "CAUTH-35")
@given(
    named=st.lists(ORIGINS, min_size=1, max_size=2),
    resource=st.sampled_from([URL, "https://mcp.example.com", f"{EVIL}/mcp", 5]),
    evil=st.fixed_dictionaries(
        {
            "issuer": ORIGINS,
            "authorization_endpoint": ORIGINS.map(lambda each: f"{each}/authorize"),
            "token_endpoint": ORIGINS.map(lambda each: f"{each}/token"),
            "registration_endpoint": ORIGINS.map(lambda each: f"{each}/register"),
            "revocation_endpoint": ORIGINS.map(lambda each: f"{each}/revoke"),
            "code_challenge_methods_supported": st.just(["S256"]),
            "authorization_response_iss_parameter_supported": st.booleans(),
        }
    ),
    keeps_state=st.booleans(),
    challenged=st.none() | ORIGINS.map(lambda each: f"{each}/metadata"),
    changed=st.sampled_from(["", "&iss=https://evil.example.com", "&code=another", "#code=other"]),
    place=st.sampled_from([BACK, f"{EVIL}/callback", BACK.replace("7000", "7001")]),
)
def test_no_code_reaches_another_issuer_and_no_token_another_origin(
    named: list[str],
    resource: Any,
    evil: dict[str, Any],
    keeps_state: bool,
    challenged: str | None,
    changed: str,
    place: str,
) -> None:
    net = Net({"resource": resource, "authorization_servers": named}, evil)

    async def login(request: LoginRequest) -> str:
        """Be the page of `HONEST` if that is shown; any other page sends its own code."""
        asked = parameters_of(request.url)
        is_honest = request.url.startswith(f"{HONEST}/")
        code = "code-of-honest" if is_honest else "code-of-evil"
        iss = HONEST if is_honest else evil["issuer"]
        state = asked["state"] if keeps_state else "other"
        return f"{place}?code={code}&state={state}&iss={iss}{changed}"

    async def history() -> None:
        described = OAuth(login=login, redirect_uri=BACK)
        store = MemoryTokenStore()
        flows = Flows(URL, described, store, net, time.time, nullcontext)
        parameters = {} if challenged is None else {"resource_metadata": challenged}
        grant = await flows.obtain(Challenge("bearer", parameters), ())
        assert grant.refresh_token is not None
        net.resource["authorization_servers"] = [EVIL]
        await flows.refresh(grant)
        assert [url for value, url in net.sent if value == grant.refresh_token] == [
            grant.token_endpoint
        ]
        await flows.revoke(grant)

    with suppress(MCPError):
        asyncio.run(history())
    assert {url for value, url in net.sent if value == "code-of-honest"} <= {f"{HONEST}/token"}
    for value, url in net.sent:  # no token of an honest issuer anywhere else
        assert f"-of-{HONEST}/" not in value or url.startswith(f"{HONEST}/")
    assert not [url for url in net.asked if "-of-" in url]
    assert (keeps_state and place == BACK and changed in ("", "#code=other")) or not net.sent
    assert resource in (URL, "https://mcp.example.com") or not net.sent
