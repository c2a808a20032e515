"""Programs that act for themselves, and tokens that are bound to a key.

The suite of `make conformance` has the whole of each; here is what it does not look at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from foundation_rt.client import connect
from foundation_rt.client.auth.descriptions import (
    Authorization,
    ClientCredentials,
    EnterpriseManaged,
    WorkloadIdentity,
)
from foundation_rt.client.auth.proofs import DpopKey, client_assertion
from foundation_rt.client.errors import AuthorizationError, MCPError
from foundation_rt.errors import UsageError
from tests.lab.login.oauth_world import World

ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


async def call(world: World, auth: Authorization) -> None:
    async with connect(world.url, auth=auth, timeout=30) as client:
        assert (await client.call("echo")).text == "done"


@pytest.mark.rule("CAUTH-45")
async def test_jwt_is_read_anew_for_each_token(world: World, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("jwt-of-file\n")
    texts = iter(["jwt-1", "jwt-2"])

    async def later() -> str:
        return next(texts)

    await call(world, WorkloadIdentity("jwt-as-text"))
    await call(world, WorkloadIdentity(file, client_id="me"))
    async with connect(world.url, auth=WorkloadIdentity(later)) as client:
        for _ in range(2):
            await client.call("echo")
            world.valid.clear()
    asked = [each.form for each in world.paths("/token")]
    assert {each["grant_type"] for each in asked} == {"urn:ietf:params:oauth:grant-type:jwt-bearer"}
    found = [each["assertion"] for each in asked]
    assert found == ["jwt-as-text", "jwt-of-file", "jwt-1", "jwt-2"]
    assert [each.get("client_id") for each in asked] == [None, "me", None, None]
    assert not world.paths("/authorize")
    assert not world.paths("/register")


@pytest.mark.rule("CAUTH-45")
@pytest.mark.parametrize("error", ["invalid_grant", "invalid_scope", "unauthorized_client"])
async def test_refusal_of_a_program_is_final(world: World, error: str) -> None:
    world.on_token = lambda form: (400, {"error": error, "error_description": form["assertion"]})
    async with connect(world.url, auth=WorkloadIdentity("the-workload-jwt")) as client:
        with pytest.raises(AuthorizationError, match=error) as caught:
            await client.call("echo")
    assert "the-workload-jwt" not in str(caught.value)
    assert len(world.paths("/token")) == 1


@pytest.mark.rule("CAUTH-45", "CAUTH-22")
async def test_secret_of_a_program_goes_to_its_own_issuer(world: World) -> None:
    await call(world, ClientCredentials("me", client_secret="the-secret", issuer=world.issuer))
    [asked] = world.paths("/token")
    assert asked.form["grant_type"] == "client_credentials"
    assert asked.headers["authorization"].startswith("Basic ")
    elsewhere = ClientCredentials("me", client_secret="the-secret", issuer="https://x.example.com")
    with pytest.raises(MCPError, match="The credentials belong to https://x"):
        await call(world, elsewhere)
    assert len(world.paths("/token")) == 1


@pytest.mark.rule("CAUTH-45")
async def test_id_jag_is_for_the_server_and_its_issuer(world: World) -> None:
    def token(form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if "subject_token" in form:
            return 200, {"access_token": "the-id-jag", "issued_token_type": ID_JAG}
        return World.token(world, form)

    world.on_token = token
    # One authorization server plays both parts.
    described = EnterpriseManaged(
        world.issuer, "at-the-provider", lambda: "the-id-token", "me", client_secret="s"
    )
    await call(world, described)
    exchange, grant = (each.form for each in world.paths("/token"))
    assert (exchange["audience"], exchange["resource"]) == (world.issuer, world.url)
    assert (exchange["subject_token"], exchange["client_id"]) == ("the-id-token", "at-the-provider")
    assert grant["assertion"] == "the-id-jag"


@pytest.mark.rule("CAUTH-45")
@pytest.mark.parametrize(
    ("place", "granted", "error"),
    [
        ("/another", {}, "publishes no metadata"),
        ("", {"access_token": "x", "issued_token_type": "urn:other"}, "gave no ID-JAG"),
        ("", {"access_token": 5, "issued_token_type": ID_JAG}, "gave no ID-JAG"),
    ],
)
async def test_identity_provider_that_gives_no_id_jag_is_named(
    world: World, place: str, granted: dict[str, Any], error: str
) -> None:
    world.on_token = lambda form: (200, granted)
    described = EnterpriseManaged(f"{world.issuer}{place}", "a", "the-id-token", "me")
    with pytest.raises(AuthorizationError, match=f"E207 {world.issuer}{place} {error}"):
        await call(world, described)


def _no_jwt() -> str:
    raise ValueError("the-workload-jwt cannot be read")


def _refused() -> str:
    raise AuthorizationError("the platform refuses")


@pytest.mark.rule("CAUTH-45", "CAUTH-38")
@pytest.mark.parametrize(
    ("source", "error"),
    [
        (Path("/nowhere/jwt"), "The assertion cannot be had: FileNotFoundError"),
        (_no_jwt, "The assertion cannot be had: ValueError"),
        (_refused, "the platform refuses"),
        (" \n", "The assertion is empty"),
        (lambda: None, "The assertion is empty"),
    ],
)
async def test_jwt_that_cannot_be_had_is_an_error(world: World, source: Any, error: str) -> None:
    with pytest.raises(AuthorizationError) as caught:
        await call(world, WorkloadIdentity(source))
    assert str(caught.value).startswith(f"E207 {error}")
    assert "the-workload-jwt" not in str(caught.value)
    assert not world.paths("/token")


@pytest.mark.rule("CAUTH-24", "CAUTH-45")
async def test_program_with_a_key_signs_for_its_issuer(world: World) -> None:
    key = ECKey.generate_key("P-256")
    await call(world, ClientCredentials("me", private_key=key.as_pem(private=True).decode()))
    [asked] = world.paths("/token")
    assert asked.form["client_assertion_type"].endswith(":jwt-bearer")
    claims = jwt.decode(asked.form["client_assertion"], key, ["ES256"]).claims
    assert (claims["iss"], claims["aud"]) == ("me", world.issuer)
    assert "authorization" not in asked.headers


@pytest.mark.rule("CAUTH-01")
@pytest.mark.parametrize(
    "make",
    [
        lambda: ClientCredentials("me"),
        lambda: ClientCredentials("me", client_secret="s", private_key="p"),
        lambda: WorkloadIdentity("jwt", issuer="http://login.example.com"),
        lambda: EnterpriseManaged("idp.example.com", "a", "t", "b"),
    ],
)
def test_description_of_a_program_that_cannot_be_used_is_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


@pytest.mark.rule("CAUTH-24")
@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (ECKey.generate_key("P-256"), "ES256"),
        (ECKey.generate_key("P-384"), "ES384"),
        (RSAKey.generate_key(2048), "RS256"),
        (OKPKey.generate_key("Ed25519"), "Ed25519"),
    ],
)
def test_client_signs_with_any_key(key: Any, algorithm: str) -> None:
    pem = key.as_pem(private=True).decode()
    signed = client_assertion("me", pem, "https://login.example.com", 100.5, "id-1")
    read = jwt.decode(signed, key, [algorithm])
    assert read.claims == {
        "iss": "me",
        "sub": "me",
        "aud": "https://login.example.com",
        "iat": 100,
        "exp": 160,
        "jti": "id-1",
    }
    with pytest.raises(AuthorizationError, match="cannot be used"):
        client_assertion("me", key.as_pem(private=False).decode(), "https://x", 0, "id")


@pytest.mark.rule("CAUTH-37")
def test_proof_names_the_request_and_the_token_and_survives_a_store() -> None:
    key = DpopKey.of(DpopKey.generate().private)
    key.note_nonce("https://mcp.example.com/mcp", "n1")
    first = key.proof("POST", "https://mcp.example.com/mcp?a=b", 100.0, "token")
    second = key.proof("POST", "https://login.example.com/token", 100.0, None)
    read = jwt.decode(first, ECKey.import_key(key.private), ["ES256"])
    assert read.header["typ"] == "dpop+jwt"
    assert "d" not in read.header["jwk"]
    claims = dict(read.claims)
    other = dict(jwt.decode(second, ECKey.import_key(key.private), ["ES256"]).claims)
    assert claims.pop("jti") != other.pop("jti")
    assert claims == {
        "htm": "POST",
        "htu": "https://mcp.example.com/mcp",
        "iat": 100,
        "nonce": "n1",
        "ath": "PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A",
    }
    assert other == {"htm": "POST", "htu": "https://login.example.com/token", "iat": 100}
