"""The page of an application: its token, its cookie, and the origin of its requests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import PageAccess, Server, UsageError
from tests.support.asgi import Visit, visit

TOKEN = "t" * 43
KEY = "0123456789abcdef-key"
HOST = {"host": "127.0.0.1:3000"}
COOKIE = "foundation_rt_page_3000"


def make_server(**http: Any) -> Server:
    server = Server("test", config={"http": http, "logging": {"level": "error"}})

    async def show(scope: Any, receive: Any, send: Any) -> None:
        principal = scope["foundation_rt.principal"]
        subject = b"nobody" if principal is None else principal.subject.encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": subject})

    server.http_app(show, public=("/open", "/files/"), page_access=PageAccess(TOKEN))
    return server


async def get(app: Any, path: str = "/", method: str = "GET", **more: Any) -> Visit:
    headers = {**HOST, **more.pop("headers", {})}
    return await visit(app, method, path, headers, **more).finish()


async def cookie_of(app: Any, token: str = TOKEN) -> str:
    found = await get(app, query=f"token={token}")
    assert found.status == 303
    return found.headers["set-cookie"].partition(";")[0]


@pytest.mark.rule("HTTP-43")
async def test_token_becomes_cookie_and_redirect_without_it() -> None:
    app = make_server().asgi_app()
    found = await get(app, "/chat", query=f"a=1&token={TOKEN}&b=%C3%A9")
    assert (found.status, found.headers["location"]) == (303, "/chat?a=1&b=%C3%A9")
    words = found.headers["set-cookie"].split("; ")
    assert words[0].startswith(f"{COOKIE}=") and TOKEN not in words[0]
    assert {"Path=/", "HttpOnly", "SameSite=Strict"} < {*words}
    cookie = {"cookie": f"other=1; {words[0]}"}
    assert (await get(app, headers=cookie)).body == b"key:page"
    # Another start of the same server knows the cookie.
    assert (await get(make_server().asgi_app(), headers=cookie)).body == b"key:page"


@pytest.mark.rule("HTTP-43")
async def test_location_stays_on_the_host() -> None:
    app = make_server().asgi_app()
    for path in ("//evil.example/", "/\\evil.example", "///x"):
        location = (await get(app, path, query=f"token={TOKEN}")).headers["location"]
        assert location.startswith("/") and location[1] not in "/\\"


@pytest.mark.rule("HTTP-43")
async def test_wrong_token_and_missing_cookie_get_401_without_token() -> None:
    app = make_server().asgi_app()
    for query in ("token=" + "x" * 43, "token=", "token=%00"):
        found = await get(app, query=query)
        assert found.status == 401 and "set-cookie" not in found.headers
    found = await get(app)
    assert found.status == 401 and b"URL" in found.body and TOKEN.encode() not in found.body
    assert (await get(app, headers={"cookie": f"{COOKIE}={TOKEN}"})).status == 401
    assert (await get(app, headers={"cookie": f"{COOKIE}=\xff"})).status in (400, 401)


@pytest.mark.rule("HTTP-43")
async def test_api_key_in_place_of_token_logs_in_its_own_principal() -> None:
    app = make_server(api_keys=(f"alice:{KEY}",)).asgi_app()
    alice, page = await cookie_of(app, KEY), await cookie_of(app)
    assert (await get(app, headers={"cookie": alice})).body == b"key:alice"
    assert (await get(app, headers={"cookie": page})).body == b"key:page"
    # A key in a header decides, whatever the cookie says; the token is one of the keys.
    headers = {"cookie": alice, "x-api-key": TOKEN}
    assert (await get(app, headers=headers)).body == b"key:page"
    assert (await get(app, headers={"cookie": alice, "x-api-key": "wrong"})).status == 401


@pytest.mark.rule("HTTP-44")
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 200),
        ("GET", {"sec-fetch-site": "same-origin"}, 200),
        ("GET", {"sec-fetch-site": "same-site"}, 403),
        ("GET", {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"}, 200),
        ("GET", {"origin": "http://127.0.0.1:4000"}, 403),
        ("DELETE", {}, 403),
        ("DELETE", {"origin": "http://127.0.0.1:3000"}, 200),
        ("DELETE", {"origin": "HTTPS://127.0.0.1:3000"}, 200),
        ("DELETE", {"sec-fetch-site": "same-origin"}, 200),
        ("DELETE", {"sec-fetch-site": "none"}, 403),
        ("POST", {"origin": "http://127.0.0.1:4000"}, 403),
        ("POST", {"origin": "http://localhost:3000"}, 403),
        ("POST", {"origin": "https://chat.example"}, 200),
        ("POST", {"origin": "null"}, 403),
    ],
)
async def test_cookie_counts_for_requests_of_the_page(
    method: str, headers: dict[str, str], status: int
) -> None:
    app = make_server(allowed_origins=("https://chat.example",)).asgi_app()
    cookie = await cookie_of(app)
    found = await get(app, "/", method, headers={"cookie": cookie, **headers})
    assert found.status == status


@pytest.mark.rule("HTTP-44", "HTTP-47", "AUTH-01")
async def test_endpoint_takes_token_as_key_and_no_cookie() -> None:
    app = make_server().asgi_app()
    cookie = await cookie_of(app)
    assert (await get(app, "/mcp", "POST", headers={"cookie": cookie})).status == 401
    found = await get(app, "/mcp", "POST", headers={"x-api-key": TOKEN}, body=b"{")
    assert found.status == 400  # it was read


@pytest.mark.rule("HTTP-46")
async def test_public_paths_need_no_credential_but_a_host_and_origin() -> None:
    app = make_server().asgi_app()
    for path in ("/open", "/files/a/b"):
        assert (await get(app, path)).body == b"nobody"
        assert (await get(app, path, headers={"origin": "http://evil.example"})).status == 403
        assert (await get(app, path, headers={"host": "evil.example"})).status == 421
    for path in ("/open/", "/opening", "/files"):
        assert (await get(app, path)).status == 401
    cookie = {"cookie": await cookie_of(app)}
    assert (await get(app, "/open", headers=cookie)).body == b"key:page"


@pytest.mark.rule("HTTP-47")
async def test_without_authentication_there_is_no_token() -> None:
    app = make_server(no_auth=True).asgi_app()
    assert (await get(app, query=f"token={TOKEN}")).body == b"nobody"


@pytest.mark.rule("HTTP-45")
def test_token_of_user_survives_and_is_readable_by_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    first = PageAccess.of_user().token
    file = tmp_path / "data" / "foundation-rt" / "page-token"
    assert PageAccess.of_user().token == first
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["page-token"]
    file.chmod(0o644)
    second = PageAccess.of_user().token
    assert second != first and file.stat().st_mode & 0o777 == 0o600
    file.write_text("short")
    assert PageAccess.of_user().token not in (first, second)
    secret = tmp_path / "secret"
    secret.write_text("s" * 43)
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(UsageError, match="XDG_DATA_HOME"):
        PageAccess.of_user()
    assert PageAccess.of_user("ab" * 32).token == PageAccess.of_user("ab" * 32).token
    assert os.listdir(file.parent) == ["page-token"]


def test_token_is_not_shown() -> None:
    assert TOKEN not in repr(PageAccess(TOKEN))
    assert PageAccess(TOKEN).url("http://h/") == f"http://h/?token={TOKEN}"
    with pytest.raises(UsageError, match="32 to 128"):
        PageAccess("short")
