"""What can be developed: files of servers, command lines, URLs, nothing at all; and its end."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt import PageAccess
from foundation_rt.apps.coordinator.servers import Source
from foundation_rt.apps.dev.file_watch import WatchedFiles
from foundation_rt.apps.dev.front import DevTarget, create_front
from foundation_rt.client import HttpServer, connect
from tests.lab.programs import processes
from tests.lab.servers.dev_front import DevFront, dev_front
from tests.lab.servers.http_server import serve_http
from tests.lab.servers.process import PATIENCE, command, run

APP = """
from foundation_rt import Server

server = Server("{name}")


@server.tool
def {tool}() -> str:
    return "{name}"
"""

SECRET = "correct-horse-battery-staple"
OLD = "2025-11-25"


def app(folder: Path, name: str, tool: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(APP.format(name=name, tool=tool))
    return path


def entry(path: Path, **members: Any) -> dict[str, Any]:
    words = command("serve", str(path))
    env = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "SHOP_PASSWORD": SECRET}
    return {"command": words[0], "args": words[1:], "env": env, **members}


def target(front: DevFront) -> HttpServer:
    return HttpServer(front.url, headers=front.headers)


def everything(front: DevFront) -> str:
    """Return all that the front has shown to anybody."""
    events = orjson.dumps(front.reader.events).decode()
    state = orjson.dumps(front.json("/dev/state")).decode()
    return "\n".join((events, state, front.printed, front.log.read_text()))


@pytest.mark.rule("DEV-02", "DEV-05")
async def test_servers_of_a_file_with_a_broken_one(tmp_path: Path) -> None:
    tea = app(tmp_path, "tea", "brew")
    servers = {
        "tea": entry(tea),
        "milk": entry(app(tmp_path, "milk", "pour")),
        "broken": {"command": "there-is-no-such-program", "env": {"API_KEY": SECRET}},
    }
    file = tmp_path / "mcp.json"
    file.write_bytes(orjson.dumps({"mcpServers": servers}))
    with dev_front(tmp_path, "mcp.json") as front:
        for server in ("tea", "milk"):
            found = front.reader.wait_for("restart", server=server, first=True)
            assert found["outcome"] == "running"
        broken = front.reader.wait_for("restart", server="broken")
        assert broken["outcome"] == "failed"
        assert "there-is-no-such-program" in broken["error"]["message"]
        state = front.json("/dev/state")
        assert (state["kind"], state["prefix"]) == ("file", True)
        assert {each["id"]: each["state"] for each in state["servers"]} == {
            "tea": "running",
            "milk": "running",
            "broken": "failed",
        }
        changed = asyncio.Event()

        def note(_: str) -> None:
            changed.set()

        async with connect(target(front), revision=OLD, on_list_changed=note) as client:
            names = {each.name for each in await client.list_tools()}
            assert {"tea__brew", "milk__pour"} <= names
            assert (await client.call("tea__brew")).text == "tea"
            tea.write_text(APP.format(name="tea", tool="steep"))
            async with asyncio.timeout(PATIENCE):
                await changed.wait()
            assert (await client.call("tea__steep")).text == "tea"
        # A file of servers that cannot be read stops no restart.
        file.write_text("{")
        again = front.next_restart(
            lambda: tea.write_text(APP.format(name="tea", tool="brew")), server="tea"
        )
        assert (again["outcome"], again["tools"]["added"]) == ("running", ["brew"])
        # An entry that is mended is tried again, a new one is started, one that goes away ends.
        servers = {"tea": servers["tea"], "broken": servers["milk"], "late": servers["milk"]}
        file.write_bytes(orjson.dumps({"mcpServers": servers}))
        front.reader.wait_for("restart", server="late", outcome="running")
        mended = front.reader.wait_for("restart", server="broken", outcome="running")
        assert mended["because"] == ["its entry"]
        assert front.server("broken")["state"] == "running"
        assert "milk" not in {each["id"] for each in front.json("/dev/state")["servers"]}
        assert SECRET not in everything(front)


@pytest.mark.rule("DEV-02", "DEV-11")
async def test_command_line_is_restarted_when_a_file_that_it_names_changes(tmp_path: Path) -> None:
    path = app(tmp_path, "tea", "brew")
    with dev_front(tmp_path, shlex.join(command("serve", str(path)))) as front:
        front.reader.wait_for("restart", first=True)
        assert front.json("/dev/state")["kind"] == "command"
        restart = front.next_restart(
            lambda: path.write_text(APP.format(name="tea", tool="steep")), first=False
        )
        assert restart["tools"]["added"] == ["steep"]
        async with connect(target(front), revision=OLD) as client:
            assert (await client.call("steep")).text == "tea"


@pytest.mark.rule("DEV-10")
def test_traceback_of_a_command_is_read(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text("x = 1\nraise ValueError('no shop')\n")
    with dev_front(tmp_path, f"{sys.executable} other.py") as front:
        failed = front.reader.wait_for("restart", first=True)
        assert failed["outcome"] == "failed"
        assert failed["error"]["message"] == "ValueError: no shop"
        assert failed["error"]["file"].endswith("other.py")
        assert failed["error"]["line"] == 2


@pytest.mark.rule("DEV-02", "DEV-05")
async def test_url_of_an_entry_with_credentials(tmp_path: Path) -> None:
    path = app(tmp_path, "tea", "brew")
    with serve_http(path) as tea:
        servers = {"tea": {"url": tea.url, "headers": {"Authorization": f"Bearer {SECRET}"}}}
        (tmp_path / "mcp.json").write_bytes(orjson.dumps({"mcpServers": servers}))
        with dev_front(tmp_path, "tea") as front:
            assert front.reader.wait_for("restart", first=True)["outcome"] == "running"
            state = front.json("/dev/state")
            assert (state["kind"], state["servers"][0]["transport"]) == ("url", "http")
            async with connect(target(front), revision=OLD) as client:
                assert (await client.call("brew")).text == "tea"
            front.reader.wait_for("call", phase="end", name="brew")
            assert SECRET not in everything(front)


@pytest.mark.rule("DEV-05")
def test_credentials_in_a_url_are_not_shown(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp?token={SECRET}"
    with dev_front(tmp_path, url) as front:
        failed = front.reader.wait_for("restart", first=True)
        assert failed["outcome"] == "failed"
        assert SECRET not in everything(front)


@pytest.mark.rule("DEV-02")
async def test_without_a_target_demo_tools_are_served(tmp_path: Path) -> None:
    with dev_front(tmp_path) as front:
        assert front.reader.wait_for("restart", first=True)["outcome"] == "running"
        assert front.json("/dev/state")["target"] == "demo tools"
        async with connect(target(front), revision=OLD) as client:
            assert len(await client.list_tools()) > 1
            assert not await client.list_resources()


@pytest.mark.rule("DEV-03")
def test_port_that_is_asked_for_has_to_be_free(tmp_path: Path) -> None:
    app(tmp_path, "tea", "brew")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("dev", "tea.py", "--port", port, cwd=tmp_path)
    assert done.returncode == 1
    assert port in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.rule("DEV-03")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tea.py", "--port", "many"], "--port is a number from 0 to 65535"),
        (["tea.py", "--port", "70000"], "--port is a number from 0 to 65535"),
        (["tea.py", "--watch", "nowhere"], "--watch: there is no"),
        (["mcp.json", "--config", "x.toml"], "--config goes with an APP"),
        (["mcp.json", "--", "x"], "-- goes with an APP"),
        (["tea.py", "milk.py"], "milk.py"),
        (["absent.py"], "there is no file"),
        (["absent.json"], "absent.json"),
    ],
)
def test_wrong_command_lines(tmp_path: Path, words: list[str], message: str) -> None:
    app(tmp_path, "tea", "brew")
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    done = run("dev", *words, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.rule("DEV-11")
def test_option_watch_adds_files_and_folders(tmp_path: Path) -> None:
    work, data = tmp_path / "work", tmp_path / "data"
    work.mkdir()
    data.mkdir()
    app(work, "tea", "brew")
    prices = tmp_path / "prices.csv"
    prices.write_text("1")
    with dev_front(work, "tea.py", "--watch", str(prices), "--watch", str(data)) as front:
        front.reader.wait_for("restart", first=True)
        assert front.next_restart(lambda: prices.write_text("22"), first=False)["because"] == [
            str(prices)
        ]
        made = data / "new.py"
        assert front.next_restart(lambda: made.write_text("x"), first=False)["because"] == [
            str(made)
        ]


@pytest.mark.rule("DEV-06")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left(tmp_path: Path, number: signal.Signals) -> None:
    app(tmp_path, "tea", "brew")
    with dev_front(tmp_path, "tea.py") as front:
        front.reader.wait_for("restart", first=True)
        pid = front.server()["pid"]
        front.wait_for_line("running")
        before = front.printed
        ended = front.end(number)
        assert ended == (-number if number is signal.SIGKILL else 128 + number)
        assert processes.has_ended(pid, PATIENCE if number is signal.SIGKILL else 0)
        assert front.printed == before
        assert "Traceback" not in front.log.read_text()


@pytest.mark.rule("DEV-23")
def test_problem_that_the_coordinator_has_is_told_once(tmp_path: Path) -> None:
    source = Source(dict, (), "dev mcp.json")
    developed = DevTarget("mcp.json", "file", source, lambda *_: WatchedFiles())
    front = create_front(developed, {"port": 0}, PageAccess("x" * 32))

    def told(message: str, logger: str) -> int:
        record = {"level": "warn", "message": message, "logger": logger}
        last = front.journal.last
        front.take_log(orjson.dumps(record) + b"\n")
        return len(front.journal.after(last))

    coordinator = "foundation_rt.coordinator"
    assert [told("tea is not ready", coordinator) for _ in range(3)] == [1, 0, 0]
    assert told("milk is not ready", coordinator) == 1
    assert [told("tea is not ready", "other") for _ in range(2)] == [1, 1]
    for number in range(200):
        assert told(f"server {number}", coordinator) == 1
    assert told("tea is not ready", coordinator) == 1  # the memory of it is bounded
