"""A coordinator of real processes: kills, hangs, reloads; nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import Server
from foundation_rt.apps.coordinator import (
    Coordinator,
    ServerState,
    ToolCallRequest,
    ToolExecutionError,
    ToolNotFoundError,
    plans_of,
)
from foundation_rt.client import MCPError
from foundation_rt.errors import UsageError
from tests.lab.checks.leaks import ResourceSnapshot
from tests.lab.servers.http_server import free_port, serve_http
from tests.lab.sizes import size
from tests.lab.waiting import until

pytestmark = pytest.mark.usefixtures("forked")

ROOT = Path(__file__).parents[3]
QUICK = str(ROOT / "tests" / "lab" / "apps" / "quick_server.sh")
APP = str(ROOT / "tests" / "lab" / "apps" / "coordinated_app.py")


def entry(*words: str, **members: Any) -> dict[str, Any]:
    env = {"PYTHONPATH": str(ROOT)}
    return {"command": sys.executable, "args": [APP, *words], "env": env, **members}


def write(path: Path, **servers: Any) -> Path:
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"mcpServers": servers}))
    new.replace(path)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"


async def pid(servers: Coordinator, server: str) -> int:
    value = (await servers.call(f"{server}:pid")).value()
    assert isinstance(value, int)
    return value


async def until_state(servers: Coordinator, server: str, state: ServerState) -> None:
    await until(lambda: servers.states[server].state, f"it is {state}", lambda its: its is state)


@pytest.mark.rule("COORD-08", "COORD-09", "COORD-10", "COORD-16")
async def test_servers_of_a_file_start_and_bad_ones_say_why(file: Path) -> None:
    write(
        file,
        notes=entry("notes"),
        files=entry("files", disabledTools=["die*"], id="files"),
        dead=entry(command="/bin/false"),
        missing=entry(command="no-such-program"),
        off=entry("off", disabled=True, env={"A": "${NOT_SET}"}),
        **{"a:b": entry("a"), "unset": entry("a", env={"A": "${NOT_SET}"})},
        zero=entry("zero", timeoutMs=0),
        other=entry("other", id="another"),
    )
    before = ResourceSnapshot.now()
    async with Coordinator.from_file(file) as servers:
        states = {name: status.state.value for name, status in servers.states.items()}
        assert states == {
            "notes": "ready",
            "files": "ready",
            "dead": "failed",
            "missing": "failed",
            "off": "disabled",
            "a:b": "failed",
            "unset": "failed",
            "zero": "failed",
            "other": "failed",
        }
        reasons = {name: status.reason or "" for name, status in servers.states.items()}
        assert "exit code 1" in reasons["dead"]
        assert "no-such-program" in reasons["missing"]
        assert "an id has no colon" in reasons["a:b"]
        assert "NOT_SET; it is not set" in reasons["unset"]
        assert '"timeoutMs" should be a whole number' in reasons["zero"]
        assert "\"id\" should be 'other'" in reasons["other"]
        assert (await servers.call("only_files")).value() == "files"
        with pytest.raises(ToolNotFoundError):
            await servers.call("files:die")
        with pytest.raises(ToolNotFoundError):
            await servers.call("off:echo")
        with pytest.raises(ToolExecutionError) as unusable:
            await servers.call("zero:echo")
        assert isinstance(unusable.value.cause, MCPError)
        assert "timeoutMs" in unusable.value.cause.message
    ResourceSnapshot.now().must_equal(before)


@pytest.mark.rule("COORD-68")
async def test_log_says_why_a_server_does_not_start(caplog: pytest.LogCaptureFixture) -> None:
    code = "import sys; print('the token is missing', file=sys.stderr); sys.exit(3)"
    plans = {"dead": entry(command=sys.executable, args=["-c", code])}
    async with Coordinator(plans) as servers:
        status = servers.states["dead"]
        assert status.reason == status.last_error
        assert (status.reason or "").endswith("ended with exit code 3")
        server = servers.server("dead")
        assert server is not None
        assert server.connections == 0
    said = [each.getMessage() for each in caplog.records if each.name.endswith("coordinator")]
    assert "the token is missing" in said[0]


@pytest.mark.rule("COORD-08")
@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"servers": []}', '{"mcpServers": {"a": {}, "a": {}}}']
)
async def test_unreadable_file_stops_the_start(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match=r"mcp\.json"):
        async with Coordinator.from_file(file):
            pass


@pytest.mark.rule("COORD-12", "COORD-24")
async def test_killed_server_fails_its_call_and_no_other(tmp_path: Path) -> None:
    changed = list[str]()
    plans = {"notes": entry("notes"), "files": entry("files")}
    async with Coordinator(plans, on_list_changed=changed.append) as servers:
        held = asyncio.create_task(
            servers.call("files:wait", request_id="held"),
        )
        with pytest.raises(ToolExecutionError) as raised:
            await servers.call("notes:die")
        assert isinstance(raised.value.cause, MCPError)
        assert (raised.value.cause.code, raised.value.cause.may_have_run) == ("E201", True)
        assert (await servers.call("notes:echo", {"text": "on"})).value() == "notes: on"
        path = str(tmp_path / "once")
        assert (await servers.call("notes:die_once", {"path": path})).value() == "alive"
        first = await pid(servers, "notes")
        os.kill(first, 9)
        await until_state(servers, "notes", ServerState.LOST)
        await until_state(servers, "notes", ServerState.READY)  # by itself
        assert await pid(servers, "notes") != first
        assert not held.done()
        assert servers.abort("held")
        with pytest.raises(ToolExecutionError):
            await held
        assert changed == []


@pytest.mark.rule("COORD-15")
async def test_http_server_that_restarts_gets_one_new_session_however_many_wait() -> None:
    changed = list[str]()
    port = free_port()
    words = ("--no-auth", "--http", f"127.0.0.1:{port}")
    plans = {"web": f"http://127.0.0.1:{port}/mcp"}
    options: Any = {"revision": "2025-11-25"}
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(serve_http(Path(APP), *words))
        async with Coordinator(
            plans, on_list_changed=changed.append, connections=options
        ) as servers:
            before = await pid(servers, "web")
            first.close()
            again = second.enter_context(serve_http(Path(APP), *words))
            found = await asyncio.gather(*(pid(servers, "web") for _ in range(20)))
            assert set(found) == {again.process.pid}
            assert before not in found
            assert changed == []


@pytest.mark.rule("COORD-40", "COORD-41", "COORD-42")
async def test_guidance_is_that_of_the_server_or_made_of_its_tools(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plans = {"a": entry("a", "guide"), "b": entry("b", "badguide"), "c": entry("c")}
    with caplog.at_level("WARNING", "foundation_rt.coordinator"):
        async with Coordinator(plans) as servers:
            assert servers.description_prompt("a") == "Echo with care."
            for server in ("b", "c"):
                text = servers.description_prompt(server)
                assert text is not None
                assert text.startswith(f"Guidance for Server {server}:\nAvailable tools:\n- die:")
            assert servers.description_prompt("d") is servers.guidance("d") is None
            assert (servers.guidance("a"), servers.guidance("c")) == ("Echo with care.", None)
    warned = [each.getMessage() for each in caplog.records]
    assert len(warned) == 1
    assert "'tool-descriptions' prompt missing/invalid for server b." in warned[0]


@pytest.mark.rule("COORD-24")
async def test_reading_call_that_kills_its_server_is_sent_twice(tmp_path: Path) -> None:
    notes = tmp_path / "calls"
    async with Coordinator({"a": entry("a")}) as servers:
        with pytest.raises(ToolExecutionError):
            await servers.call("a:die_reading", {"path": str(notes)})
        server = servers.server("a")
        assert server is not None
        with pytest.raises(MCPError):
            call = {"name": "die_reading", "arguments": {"path": f"{notes}2"}}
            await server.request("tools/call", call)
    for each in (notes, tmp_path / "calls2"):
        assert each.read_text().splitlines() == ["called"] * 2


@pytest.mark.rule("COORD-75")
async def test_what_is_not_admitted_is_listed_and_cannot_be_used() -> None:
    refused = {"echo", "tool-descriptions"}

    def admits(server: str, kind: str, definition: Mapping[str, Any]) -> bool:
        return server != "a" or definition["name"] not in refused

    plans = {"a": entry("a", "guide"), "b": entry("b")}
    async with Coordinator(plans, admits=admits) as servers:
        assert servers.resolve("echo") == "b:echo"
        assert "a:echo" not in {each.qualified_name for each in servers.tools}
        assert servers.entry_of_outside("a__echo") is None
        with pytest.raises(ToolNotFoundError):
            await servers.call("a:echo", {"text": "x"})
        guidance = servers.description_prompt("a")
        assert guidance is not None
        assert guidance.startswith("Guidance for Server a:\n") and "- echo:" not in guidance
        assert ("a", "echo") in {(each, tool["name"]) for each, tool in servers.listed("tools")}
        refused.clear()
        await servers.reload()
        assert servers.description_prompt("a") == "Echo with care."
        assert (await servers.call("a:echo", {"text": "x"})).text


@pytest.mark.rule("COORD-06")
async def test_name_that_another_servers_id_makes_ambiguous_is_that_servers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def named(name: str, text: str) -> Server:
        server = Server(text)
        server.tool(name=name)(lambda: text)
        return server

    plans = {"a": named("b__x", "of a"), "a__b": named("x", "of a__b")}
    with caplog.at_level("WARNING", "foundation_rt.coordinator"):
        async with Coordinator(plans) as servers:
            found = servers.entry_of_outside("a__b__x")
            assert found is not None and found.qualified_name == "a__b:x"
            other = servers.entry("a:b__x")
            assert other is not None and other.outside_name.startswith("a__b__x_")
            assert servers.entry_of_outside(other.outside_name) is not None
    [warned] = [each for each in caplog.messages if "a__b" in each]
    assert "'b__x' of server 'a'" in warned


@pytest.mark.rule("COORD-43")
async def test_reload_leaves_unchanged_servers_alone_and_lets_calls_end(file: Path) -> None:
    changed = list[str]()
    write(file, kept=entry("kept"), gone=entry("gone"), new=entry("old"))
    before = ResourceSnapshot.now()
    async with Coordinator.from_file(file, on_list_changed=changed.append) as servers:
        kept, gone = await pid(servers, "kept"), await pid(servers, "gone")
        running = asyncio.create_task(servers.call("gone:wait", request_id="r"))
        await until(lambda: servers.states["gone"].running != 0, "the call runs")
        write(file, new=entry("new"), kept=entry("kept"), more=entry("more"))
        await servers.reload()
        assert list(servers.states) == ["new", "kept", "more"]
        await until_state(servers, "more", ServerState.READY)
        await until_state(servers, "new", ServerState.READY)
        assert await pid(servers, "kept") == kept
        assert (await servers.call("only_new")).value() == "new"
        with pytest.raises(ToolNotFoundError):
            await servers.call("gone:pid")
        os.kill(gone, 0)  # it lives as long as its call
        assert servers.abort("r")
        with pytest.raises(ToolExecutionError):
            await running
        await until(lambda: not servers._servers._leaving, "the server has left")
        with pytest.raises(ProcessLookupError):
            os.kill(gone, 0)
        assert set(changed) == {"tools", "guidance"}  # the first read of it counts (COORD-81)
        for text in ("{", '{"servers": []}'):
            file.write_text(text)
            with pytest.raises(UsageError, match=r"mcp\.json"):
                await servers.reload()
            assert await pid(servers, "kept") == kept
    ResourceSnapshot.now().must_equal(before)


@pytest.mark.rule("COORD-44")
async def test_file_that_changes_is_read_again(file: Path) -> None:
    write(file, a=entry("a"))
    async with Coordinator.from_file(file, watch=True) as servers:
        file.write_text("{")
        await asyncio.sleep(0)
        write(file, a=entry("a"), b=entry("b"))
        await until(lambda: "b" in servers.states, "the file is read again")
        await until_state(servers, "b", ServerState.READY)
        assert (await servers.call("only_b")).value() == "b"


@pytest.mark.rule("COORD-29")
async def test_rounds_of_connect_call_and_kill_leave_nothing() -> None:
    quick = {"command": "/bin/sh", "args": [QUICK]}
    hang = ToolCallRequest("notes:pid", {"hang": True})

    async def one_round() -> None:
        connections: Any = {"revision": "2025-11-25"}
        async with Coordinator({"notes": quick}, connections=connections) as servers:
            waiting = asyncio.gather(*(servers.execute(hang) for _ in range(3)))
            os.kill(await pid(servers, "notes"), signal.SIGKILL)
            assert all(response.error is not None for response in await waiting)

    await one_round()  # what is imported or cached once does not count
    before = ResourceSnapshot.now()
    for _ in range(size(20, 1_000)):
        await one_round()
    ResourceSnapshot.now().must_equal(before)


@pytest.mark.rule("COORD-29")
async def test_closing_during_the_start_leaves_no_process() -> None:
    plans = {str(number): entry("a") for number in range(6)}
    plans["hang"] = entry(command="/bin/sleep", args=["100"])
    before = ResourceSnapshot.now()
    for wait in (0.0, 0.05, 0.2):
        servers = Coordinator(plans)
        servers.start()
        await asyncio.sleep(wait)
        await servers.close()
        await servers.close()
        with pytest.raises(UsageError, match="make another one"):
            servers.start()
    ResourceSnapshot.now().must_equal(before)


@pytest.mark.rule("COORD-29")
async def test_closing_right_after_a_server_was_removed_leaves_no_process() -> None:
    before = ResourceSnapshot.now()
    async with Coordinator({"gone": entry("gone")}) as servers:
        await pid(servers, "gone")
        await servers.reload({})
    ResourceSnapshot.now().must_equal(before)


@pytest.mark.rule("COORD-72")
@pytest.mark.parametrize(("kept_ms", "listed"), [(0, []), (3_600_000, ["one:echo"])])
async def test_lists_of_a_server_that_is_gone_stay_as_long_as_the_option_says(
    file: Path, kept_ms: float, listed: list[str]
) -> None:
    listing = Coordinator.from_file(write(file, one=entry("one")), listed_after_loss_ms=kept_ms)
    async with listing as servers:

        def names() -> list[str]:
            return [
                each.qualified_name for each in servers.tools if each.qualified_name == "one:echo"
            ]

        await servers.call("one:echo", {"text": "x"})
        assert names() == ["one:echo"]
        write(file, one={"command": "there-is-no-such-program"})
        await servers.reload()
        await until_state(servers, "one", ServerState.FAILED)
        await until(lambda: names() == listed, "the lists are as wanted")


@pytest.mark.rule("COORD-79")
def test_identity_has_the_folder_that_a_command_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def identity(**members: Any) -> str:
        return of({"command": "python", "args": ["server.py"], **members})

    def of(listed: Any) -> str:
        return plans_of({"one": listed})["one"].identity

    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    before = [identity(), identity(cwd="other"), of("python server.py")]
    assert identity(cwd=str(tmp_path)) == before[0]
    assert identity(cwd=str(tmp_path / "other")) == before[1]
    at = of("http://127.0.0.1:9/mcp")
    monkeypatch.chdir(tmp_path / "other")
    assert identity() == before[1] != before[0]
    assert of("python server.py") != before[2]
    assert of("http://127.0.0.1:9/mcp") == at
