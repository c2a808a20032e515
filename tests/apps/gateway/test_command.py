"""`foundation-rt gateway` as its users start it: files, targets, headers, status."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import orjson
import pytest

from foundation_rt.client import connect
from tests.apps.gateway.test_faults import APP, entry, names_of, write
from tests.apps.gateway.test_through import APP as APP_COMMAND
from tests.apps.gateway.test_through import OLD, Answers, status_of
from tests.lab.servers import fork_server
from tests.lab.servers.http_server import serve_gateway, serve_http
from tests.lab.servers.process import PATIENCE, command, environment

SECRET = "correct-horse-battery-staple"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"


def run_in(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end in a folder that is the home as well."""
    return fork_server.run(
        command(*words),
        cwd=folder,
        env={**environment(), "HOME": str(folder), **env},
        capture_output=True,
        text=True,
        input="",
        timeout=PATIENCE,
    )


@pytest.mark.rule("GATE-06")
def test_without_any_file_the_places_are_named(tmp_path: Path) -> None:
    ended = run_in(tmp_path, "gateway")
    assert ended.returncode == 2
    assert ".cursor/mcp.json" in ended.stderr
    assert '{"mcpServers":' in ended.stderr
    assert "--demo" in ended.stderr


@pytest.mark.rule("GATE-06")
@pytest.mark.parametrize("text", ["{", '{"mcpServers": []}', '{"mcpServers": {"a": {}, "a": {}}}'])
def test_unusable_file_stops_the_start(file: Path, text: str) -> None:
    file.write_text(text)
    ended = run_in(file.parent, "gateway", str(file))
    assert ended.returncode == 1
    assert str(file) in ended.stderr


@pytest.mark.rule("GATE-32")
def test_accepting_one_server_starts_no_other(file: Path) -> None:
    write(file, one=entry("one"), other={"command": "touch", "args": [f"{file}.started"]})
    lock = file.parent / "mcp.lock"
    words = ("gateway", "accept", str(file), "--lock", str(lock), "--server")
    assert run_in(file.parent, *words, "one").returncode == 0
    assert [*orjson.loads(lock.read_bytes())["servers"]] == ["one"]
    assert not Path(f"{file}.started").exists()
    unknown = run_in(file.parent, *words, "two")
    assert unknown.returncode == 1
    assert "there is no server 'two': one, other" in unknown.stderr


@pytest.mark.rule("GATE-51")
def test_accepting_all_records_what_answers_and_names_the_rest(file: Path) -> None:
    hanging = {"command": "sleep", "args": ["600"]}
    write(file, one=entry("one"), hanging=hanging, dead={"command": "false"})
    lock = file.parent / "mcp.lock"
    words = ("gateway", "accept", str(file), "--lock", str(lock))
    ended = run_in(file.parent, *words, FOUNDATION_RT_GATEWAY__START_WAIT_MS="8000")
    assert ended.returncode == 3
    assert [*orjson.loads(lock.read_bytes())["servers"]] == ["one"]
    assert "one: " in ended.stdout
    assert "server 'hanging' is starting: not ready within 8 s" in ended.stderr
    assert "server 'dead' is failed" in ended.stderr
    write(file, hanging={**hanging, "connectTimeoutMs": 200})
    assert run_in(file.parent, *words, "--server", "hanging").returncode == 3


@pytest.mark.rule("GATE-17")
def test_file_without_servers_is_a_warning(file: Path) -> None:
    file.write_text('{"mcpServer": {"notes": {"command": "notes"}}}')
    ended = run_in(file.parent, "gateway", str(file))
    assert ended.returncode == 0
    assert f"no server is listed in {file}" in ended.stderr


@pytest.mark.rule("GATE-06")
def test_files_of_the_usual_places_are_merged(tmp_path: Path) -> None:
    write(tmp_path / "mcp.json", one=entry("first"))
    write(tmp_path / ".mcp.json", one=entry("second"), two=entry("two"))
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "mcp.json").write_text("{")
    elsewhere = tmp_path / "elsewhere"  # `call` reads the files of its own folder
    elsewhere.mkdir()
    served = shlex.join(command("gateway", "--trust"))
    state = f"XDG_STATE_HOME={tmp_path / 'state'}"
    gateway = shlex.join(["sh", "-c", f"cd {tmp_path} && exec env {state} {served}"])
    for tool, expected in (("one__echo", "first: x"), ("two__echo", "two: x")):
        ended = run_in(elsewhere, "call", gateway, tool, "text=x", "--json")
        assert expected in ended.stdout, ended.stderr


@pytest.mark.rule("GATE-07")
async def test_gateway_in_itself_serves_nothing_and_says_why(file: Path, tmp_path: Path) -> None:
    words = ["-P", "-m", "foundation_rt", "gateway", str(file)]
    hidden = tmp_path / "start.sh"
    hidden.write_text(f"exec {sys.executable} -m foundation_rt gateway {file}\n")
    write(
        file,
        itself={"command": sys.executable, "args": words},
        windows={"command": "foundation-rt.exe", "args": ["gateway", str(file)]},
        hidden={"command": "/bin/sh", "args": [str(hidden)]},
        one=entry("one"),
    )
    with serve_gateway(str(file)) as gateway:
        async with connect(gateway.url, revision=OLD) as client:
            assert (await client.call("one__chain")).text not in ('""', None)
            for name in "itself", "windows":
                found = await status_of(client, name)
                assert (found["state"], found["reason"]) == ("failed", "this gateway itself")
            own = {name for name in await names_of(client) if not name.startswith("one__")}
            assert own <= {"hidden__health"}
            read = {"uri": "hidden+gateway://status"}
            inner = await client.request("resources/read", read)
            assert "started by itself" in inner["contents"][0]["text"]


@pytest.mark.rule("GATE-08")
async def test_one_target_over_both_transports(tmp_path: Path) -> None:
    with serve_http(Path(APP)) as server, serve_gateway(APP_COMMAND) as over_http:
        over_stdio = " ".join(command("gateway", server.url))
        async with connect(over_http.url) as one, connect(over_stdio) as other:
            for client in (one, other):
                assert (await client.call("echo", {"text": "x"})).text == "app: x"
                prompt = await client.request(
                    "prompts/get", {"name": "greet", "arguments": {"name": "ann"}}
                )
                assert prompt["messages"][0]["content"]["text"] == "app greets ann"


async def test_demo_needs_nothing() -> None:
    over_stdio = " ".join(command("gateway", "--demo"))
    async with connect(over_stdio) as client:
        assert (await client.call("demo__echo", {"message": "x"})).value() == {"message": "x"}


@pytest.mark.rule("GATE-43")
@pytest.mark.parametrize("name", ["authorization", "X-Api-Key"])
def test_own_credentials_are_no_source(file: Path, name: str) -> None:
    write(file, one={"url": "http://127.0.0.1:9/mcp", "headersFrom": {"Authorization": name}})
    keys = {"FOUNDATION_RT_HTTP__API_KEYS": '["ann:ann-key-0123456789"]'}
    ended = run_in(file.parent, "gateway", str(file), "--http", "127.0.0.1:0", **keys)
    assert ended.returncode == 1
    assert f"{name.lower()} carries credentials" in ended.stderr


@pytest.mark.rule("GATE-30")
async def test_search_stands_for_all_tools(file: Path) -> None:
    write(file, one=entry("one"), two=entry("two"))
    with serve_gateway(str(file), "--expose", "search") as gateway:
        async with connect(gateway.url, handlers=Answers()) as client:
            assert await names_of(client) == {"search_tools", "describe_tool", "call_tool"}
            found = await client.call("search_tools", {"query": "session count"})
            assert "one__count" in str(found.value())
            described = await client.call("describe_tool", {"name": "two__echo"})
            assert "Return a text." in str(described.value())
            called = await client.call(
                "call_tool", {"name": "two__echo", "arguments": {"text": "x"}}
            )
            assert called.text == "two: x"
            asked = await client.call("call_tool", {"name": "two__ask", "arguments": {}})
            assert asked.value() == {"name": "Ann"}


@pytest.mark.rule("GATE-40")
async def test_operators_see_the_servers(file: Path) -> None:
    write(file, one=entry("one"), dead=entry("dead", command="/bin/false"))
    with serve_gateway(str(file)) as gateway:
        async with connect(gateway.url) as client:
            assert (await client.call("one__echo", {"text": "x"})).text == "one: x"
        words = command("gateway", "status", gateway.url)
        shown = await asyncio.to_thread(
            subprocess.run, words, env=environment(), capture_output=True, text=True
        )
        assert shown.returncode == 0, shown.stderr
        lines = {line.split()[0]: line.split() for line in shown.stdout.splitlines() if line}
        assert lines["one"][1] == "ready"
        assert lines["dead"][1] == "failed"
        root = gateway.url.removesuffix("/mcp")

        def read(path: str) -> bytes:
            with urllib.request.urlopen(root + path) as answer:
                return bytes(answer.read())

        page = orjson.loads(await asyncio.to_thread(read, "/status"))
        assert [each["id"] for each in page["servers"]] == ["one", "dead"]
        assert page["servers"][0]["calls"] == 1
        assert await asyncio.to_thread(read, "/readyz") == b'{"status":"ok"}'


@pytest.mark.rule("GATE-03")
async def test_uri_of_two_servers_is_read_from_either(file: Path) -> None:
    write(file, one=entry("one"), two=entry("two"))
    with serve_gateway(str(file)) as gateway:
        async with connect(gateway.url) as client:

            async def read(uri: str) -> tuple[str, str]:
                [content] = (await client.request("resources/read", {"uri": uri}))["contents"]
                return content["uri"], content["text"]

            assert await read("note://shared") == ("note://shared", "one")
            assert await read("two+note://shared") == ("two+note://shared", "two")
            assert await read("note://two") == ("note://two", "two")
