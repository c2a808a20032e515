"""`foundation-rt openapi` as its users start it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.client import connect
from tests.lab.peers.echo_api import EchoApi, echo_api
from tests.lab.servers.process import ServerProcess, command, environment, run

DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "/v1"}],
    "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    "security": [{"token": []}],
    "paths": {
        "/pets/{id}": {"get": {"operationId": "getPet", "tags": ["pets"]}},
        "/about": {"get": {"operationId": "about"}},
        "/chips/{id}": {"get": {"operationId": "chip"}},
        "/bad": {"get": {"parameters": [{"$ref": "#/nowhere"}]}},
    },
}


@pytest.fixture(scope="module")
def api() -> Iterator[EchoApi]:
    with echo_api() as served:
        text = orjson.dumps(DOCUMENT)
        served.answers["/docs/api.json"] = (200, {"content-type": "application/json"}, text)
        yield served


@pytest.mark.rule("OAPI-09", "OAPI-41", "OAPI-30")
async def test_document_at_a_url_is_served_over_stdio(
    api: EchoApi,
) -> None:
    words = ("--header", "X-App: cli", "--exclude", "about", "--secret", "token=PETS")
    line = command("openapi", f"{api.url}/docs/api.json", *words)
    log: list[str] = []
    async with connect(line, env={"PETS": "s3", "TOKEN": "other"}, on_stderr=log.append) as client:
        assert [tool.name for tool in await client.list_tools()] == ["chip", "getPet", "health"]
        found = await client.call("getPet", {"id": "7"})
        arrived = found.wire["structuredContent"]
        assert arrived["path"] == "/v1/pets/7"
        assert arrived["headers"]["authorization"] == "Bearer s3"
        assert arrived["headers"]["x-app"] == "cli"
    assert any("operations cannot be called" in each and "GET /bad" in each for each in log)
    assert not any("s3" in each for each in log)
    (started,) = (each for each in log if "calling an API" in each)
    record = orjson.loads(started)
    assert (record["origins"], record["schemes"]) == ([api.url], ["token from PETS"])


@pytest.mark.rule("OAPI-26", "OAPI-41", "OAPI-28")
async def test_secret_of_each_client_is_passed_on(api: EchoApi) -> None:
    words = ("--secret-header", "token: X-Pets-Token", "--secret", "token=PETS")
    line = command("openapi", f"{api.url}/docs/api.json", *words)
    served = [*line, "--http", "127.0.0.1:0", "--no-auth"]
    with ServerProcess(served, {**environment(), "PETS": "fallback"}) as server:
        url = server.record(message="serving over HTTP")["url"]
        for headers, expected in (
            ({"X-Pets-Token": "ann-s3"}, "Bearer ann-s3"),
            ({"x-pets-token": "bob-s3"}, "Bearer bob-s3"),
            ({}, "Bearer fallback"),
        ):
            async with connect(url, headers=headers) as client:
                found = await client.call("getPet", {"id": "7"})
            sent = found.wire["structuredContent"]["headers"]
            assert sent["authorization"] == expected
            assert "x-pets-token" not in sent
        assert "-s3" not in server.stderr


@pytest.mark.rule("OAPI-41", "OAPI-09", "OAPI-49")
def test_list_shows_tools_resources_secrets_and_what_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_bytes(orjson.dumps(DOCUMENT))
    base = ("--base-url", "http://localhost")
    ended = run(
        *("openapi", str(file), *base, "--secret", "token=PETS"),
        *("--resource", "about", "--resource", "chip", "--list"),
    )
    assert ended.returncode == 0 and ended.stdout.splitlines() == [
        "getPet  GET /pets/{id}",
        "api://about  GET /about",
        "api://chips/{id}  GET /chips/{id}",
        "left out: GET /bad: '#/nowhere' leads nowhere",
        "origin: http://localhost:80",
        "secret: token from PETS (not set)",
        "1 tools, 2 resources, 1 left out",
    ]


@pytest.mark.rule("OAPI-41", "OAPI-30", "OAPI-01")
def test_wrong_command_lines_say_what_to_change(api: EchoApi, tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_bytes(orjson.dumps(DOCUMENT))
    base = ("--base-url", "http://localhost")
    elsewhere = tmp_path / "elsewhere.json"
    named = {**DOCUMENT, "servers": [{"url": "https://api.example.com/v1"}]}
    elsewhere.write_bytes(orjson.dumps(named))
    api.answers["/moved"] = (302, {"location": f"{api.url}/docs/api.json"}, b"")
    api.answers["/circle"] = (302, {"location": f"{api.url}/circle"}, b"")
    api.answers["/none"] = (404, {}, b"")
    moved = api.url.replace("127.0.0.1", "localhost") + "/moved"
    old = tmp_path / "old.json"
    old.write_text('{"swagger": "2.0"}')
    for words, code, text in (
        ((), 2, "needs FILE|URL"),
        ((str(file), "--header", "x"), 2, "NAME: VALUE"),
        ((str(file), "--header", "X-Team: a"), 1, "base URL"),
        ((f"{api.url}/none",), 1, f"{api.url}/none answered 404"),
        ((f"{api.url}/circle",), 1, f"{api.url}/circle cannot be fetched: it redirects in a"),
        ((str(file), "--secret-header", "x"), 2, "SCHEME: NAME"),
        ((str(file), "--secret", "token"), 2, "SCHEME=VARIABLE"),
        ((str(file), "--secret", "token=FRT_NO_SUCH", *base), 1, "no such variable"),
        ((str(elsewhere), "--secret", "token=HOME"), 1, "is at https://api.example.com:443, and"),
        ((str(file), "--secret", "token=HOME", "--secret", "token=PATH"), 2, "'token' twice"),
        ((str(file), "--secret-header", "token: X", "--secret-header", "token: Y"), 2, "twice"),
        ((moved, "--secret", "token=HOME"), 1, f"redirects to {api.url} for the document"),
        (
            (str(file), "--secret-header", "key: X", *base),
            1,
            "no such security scheme: it has token",
        ),
        ((str(file),), 1, "base URL"),
        ((str(old),), 1, "swagger2openapi"),
        ((f"{api.url}/v1/x",), 1, "is no OpenAPI document"),
        (("http://127.0.0.1:9/x?key=s3",), 1, "http://127.0.0.1:9/x cannot be fetched"),
    ):
        ended = run("openapi", *words)
        assert (ended.returncode, text in ended.stderr) == (code, True), ended.stderr
        assert "s3" not in ended.stderr
    assert "--base-url" in run("openapi", "--help").stdout
