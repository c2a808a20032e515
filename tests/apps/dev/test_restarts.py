"""A program is replaced while clients stay: real processes, real files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from foundation_rt.client import HttpServer, connect
from tests.apps.gateway.test_faults import error_in, write
from tests.lab.login.oauth_world import running_world
from tests.lab.servers.dev_front import DevFront, dev_front
from tests.lab.servers.process import PATIENCE
from tests.lab.waiting import until

OLD, NEW = "2025-11-25", "2026-07-28"

SHOP = '''
from foundation_rt import Server

server = Server("shop", version="1.0.0")


@server.tool
def order(item: str) -> str:
    """Order something."""
    return f"ordered {item}"
'''

MORE = '''

@server.tool
def refund(item: str) -> str:
    """Give the money back."""
    return f"refunded {item}"
'''


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.py"
    path.write_text(SHOP)
    return path


@pytest.fixture
def front(tools: Path) -> Iterator[DevFront]:
    with dev_front(tools.parent, "tools.py") as found:
        found.reader.wait_for("restart", first=True)
        yield found


def target(front: DevFront) -> HttpServer:
    return HttpServer(front.url, headers=front.headers)


@pytest.mark.rule("DEV-01", "DEV-15")
@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_client_stays_and_hears_of_new_tools(
    front: DevFront, tools: Path, revision: str
) -> None:
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with connect(
        target(front), revision=revision, on_list_changed=changes.put_nowait
    ) as client:
        assert (await client.call("order", {"item": "tea"})).text == "ordered tea"
        restart = await asyncio.to_thread(
            front.next_restart, lambda: tools.write_text(SHOP + MORE), first=False
        )
        assert await asyncio.wait_for(changes.get(), 30) == "tools"
        assert {each.name for each in await client.list_tools()} == {"health", "order", "refund"}
        assert (await client.call("refund", {"item": "tea"})).text == "refunded tea"
    assert restart["outcome"] == "running"
    assert restart["because"] == ["tools.py"]
    assert restart["tools"] == {"added": ["refund"], "removed": [], "changed": []}
    assert front.server()["restarts"] == 1


@pytest.mark.rule("DEV-01")
async def test_second_restart_in_a_row_is_heard_of_as_the_first(
    front: DevFront, tools: Path
) -> None:
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with connect(target(front), revision=OLD, on_list_changed=changes.put_nowait) as client:
        await client.list_tools()
        for name in ("repay", "rebate", "reward"):
            text = SHOP + MORE.replace("def refund", f"def {name}")
            save = partial(tools.write_text, text)
            await asyncio.to_thread(front.next_restart, save, first=False)
            params = {"name": name, "arguments": {"item": "tea"}}
            result = await client.request("tools/call", params)
            assert result["content"][0]["text"] == "refunded tea"
            assert await asyncio.wait_for(changes.get(), PATIENCE) == "tools"


@pytest.mark.rule("DEV-10", "DEV-16")
async def test_syntax_error_is_shown_and_the_lists_stay_until_the_next_save(
    front: DevFront, tools: Path
) -> None:
    changes: list[str] = []
    async with connect(target(front), revision=OLD, on_list_changed=changes.append) as client:
        assert (await client.call("order", {"item": "tea"})).text == "ordered tea"
        broken = SHOP + "\ndef broken(:\n    pass\n"
        failed = await asyncio.to_thread(
            front.next_restart, lambda: tools.write_text(broken), first=False
        )
        assert failed["outcome"] == "failed"
        error = failed["error"]
        assert error["file"] == str(tools)
        assert error["line"] == broken.splitlines().index("def broken(:") + 1
        assert error["source"].strip() == "def broken(:"
        assert error["message"].startswith("SyntaxError: ")
        state = await asyncio.to_thread(front.server)
        assert (state["state"], state["error"]["line"]) == ("failed", error["line"])
        assert {each.name for each in await client.list_tools()} == {"health", "order"}
        refused = await client.request("tools/call", {"name": "order", "arguments": {"item": "x"}})
        assert refused["isError"] is True
        said = refused["content"][0]["text"]
        assert f"cannot run until it is changed. tools.py, line {error['line']}: Syntax" in said
        again = await asyncio.to_thread(
            front.next_restart, lambda: tools.write_text(SHOP), first=False
        )
        assert again["outcome"] == "running"
        assert (await client.call("order", {"item": "milk"})).text == "ordered milk"
        assert changes == []
    lines = front.printed
    assert f"{tools}:{error['line']}" in lines
    assert "It is started again when a file changes." in lines


@pytest.mark.rule("DEV-12")
def test_burst_of_changes_is_one_restart(front: DevFront, tools: Path) -> None:
    def write_many() -> None:
        for number in range(200):
            (tools.parent / f"part{number % 10}.py").write_text("x = 1\n" * number)

    restart = front.next_restart(write_many, first=False)
    assert restart["outcome"] == "running"
    assert len(restart["because"]) > 1
    assert front.server()["restarts"] < 10


@pytest.mark.rule("DEV-10", "DEV-13")
def test_deleted_file_is_named_and_comes_back(front: DevFront, tools: Path) -> None:
    failed = front.next_restart(tools.unlink, first=False)
    assert failed["outcome"] == "failed"
    assert failed["error"]["message"] == "there is no file tools.py"
    again = front.next_restart(lambda: tools.write_text(SHOP), first=False)
    assert again["outcome"] == "running"
    assert again["because"] == ["tools.py"]


@pytest.mark.rule("DEV-10")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import sys; sys.exit(3)", "it called sys.exit(3) while it was loaded"),
        ("raise RuntimeError('no shop')", "RuntimeError: no shop"),
        ("import os; os._exit(7)", "the program ended with exit code 7"),
        ("server.tool(print)(3)", "tools.py"),
        ("del server", "holds no foundation_rt.Server"),
    ],
)
def test_program_that_cannot_be_loaded_says_why(tmp_path: Path, line: str, message: str) -> None:
    tools = tmp_path / "tools.py"
    tools.write_text(f"{SHOP}\n{line}\n")
    with dev_front(tmp_path, "tools.py") as front:
        failed = front.reader.wait_for("restart", first=True)
        assert failed["outcome"] == "failed"
        assert message in f"{failed['error']['message']} {failed['error']['file']}"
        assert front.next_restart(lambda: tools.write_text(SHOP))["outcome"] == "running"


WAITS = """
import os, time
from pathlib import Path
while not Path("go").exists():
    time.sleep(0.02)


@server.tool
def die() -> None:
    os._exit(9)
"""


@pytest.mark.rule("DEV-16", "DEV-17")
async def test_slow_start_is_told_and_an_early_end_is_counted_from_the_handshake(
    tmp_path: Path,
) -> None:
    (tmp_path / "tools.py").write_text(SHOP + WAITS)
    with dev_front(tmp_path, "tools.py") as front:
        await asyncio.to_thread(front.reader.wait_for, "log", level="warn")  # 5 s after its start
        (tmp_path / "go").touch()
        started = await asyncio.to_thread(front.reader.wait_for, "restart", first=True)
        assert started["outcome"] == "running"
        async with connect(target(front), revision=OLD) as client:
            await client.request("tools/call", {"name": "die", "arguments": {}})
        failed = await asyncio.to_thread(front.reader.wait_for, "restart", outcome="failed")
        assert failed["error"]["message"] == "the program ended with exit code 9"
        assert front.server()["state"] == "failed"


@pytest.mark.rule("DEV-17")
def test_program_that_hangs_at_its_start_is_replaced(tmp_path: Path) -> None:
    tools = tmp_path / "tools.py"
    tools.write_text(SHOP + "\nimport time\ntime.sleep(1000)\n")
    with dev_front(tmp_path, "tools.py") as front:
        slow = front.reader.wait_for("log", level="warn")
        assert "after 5 s the program has not answered initialize" in slow["message"]
        assert front.server()["state"] == "starting"
        assert front.next_restart(lambda: tools.write_text(SHOP))["outcome"] == "running"


@pytest.mark.rule("DEV-17")
def test_server_that_wants_a_login_says_how(tmp_path: Path) -> None:
    with running_world() as world:
        write(tmp_path / "mcp.json", it={"url": world.url, "oauth": {}})
        with dev_front(tmp_path, "mcp.json", env={"XDG_DATA_HOME": str(tmp_path)}) as front:
            assert front.reader.wait_for("restart", first=True)["outcome"] == "needs login"
            server = front.server()
            front.wait_for_line("it needs a login")
            front.wait_for_line("The page has a button for it.")
    assert server["state"] == "needs login"
    assert f"Run: foundation-rt login {world.url}" in server["error"]["message"]


@pytest.mark.rule("DEV-16", "DEV-23")
def test_flood_on_stderr_is_read_and_bounded(tmp_path: Path) -> None:
    tools = tmp_path / "tools.py"
    flood = "\nimport sys\nfor n in range(10_000): print('x' * 200, file=sys.stderr)\n"
    tools.write_text(SHOP + flood)
    with dev_front(tmp_path, "tools.py") as front:
        assert front.reader.wait_for("restart", first=True)["outcome"] == "running"
        late = front.read_events()
        late.wait_for("log")
        late.close()
        assert len(late.of("log")) <= 2_100


CALLS = """
import asyncio, os
from pathlib import Path
from foundation_rt import Server

server = Server("calls")


@server.tool
async def wait(until: str) -> str:
    Path(until + ".runs").touch()
    while not Path(until).exists():
        await asyncio.sleep(0.02)
    return "done"


@server.tool
def die() -> None:
    os._exit(9)


@server.tool
def pid() -> int:
    return os.getpid()
"""


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[tuple[DevFront, Path]]:
    path = tmp_path / "calls.py"
    path.write_text(CALLS)
    with dev_front(tmp_path, "calls.py") as found:
        found.reader.wait_for("restart", first=True)
        yield found, path


@pytest.mark.rule("DEV-14")
@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_running_call_ends_before_the_program_does(
    calls: tuple[DevFront, Path], revision: str
) -> None:
    front, path = calls
    end = path.with_name("until")
    async with connect(target(front), revision=revision) as client:
        before = (await client.call("pid")).value()
        running = asyncio.create_task(client.call("wait", {"until": str(end)}))
        await until(Path(f"{end}.runs").exists, "the call runs")
        path.write_text(CALLS + "\n")
        await asyncio.to_thread(front.wait_for_state, "restarting")
        later = asyncio.create_task(client.call("pid"))
        end.touch()
        assert (await running).text == "done"
        assert (await later).value() != before


@pytest.mark.rule("DEV-14")
async def test_call_that_runs_too_long_gets_an_error_that_says_why(
    calls: tuple[DevFront, Path],
) -> None:
    front, path = calls
    end = path.with_name("never")
    async with connect(target(front), revision=OLD) as client:
        params = {"name": "wait", "arguments": {"until": str(end)}}
        running = asyncio.create_task(client.request("tools/call", params))
        await until(Path(f"{end}.runs").exists, "the call runs")
        restart = await asyncio.to_thread(
            front.next_restart, lambda: path.write_text(CALLS + "\n"), first=False
        )
        assert restart["outcome"] == "running"
        result = await running
        error = error_in(result)
        assert "was restarted while the call ran, since calls.py changed" in str(result["content"])
        assert error["mayHaveRun"] is True


@pytest.mark.rule("DEV-16")
async def test_program_that_ends_soon_waits_for_a_change(calls: tuple[DevFront, Path]) -> None:
    front, path = calls
    async with connect(target(front), revision=OLD) as client:
        error = error_in(await client.request("tools/call", {"name": "die", "arguments": {}}))
        assert error["mayHaveRun"] is True
        failed = await asyncio.to_thread(front.reader.wait_for, "restart", outcome="failed")
        assert failed["because"] == []
        assert "9" in failed["error"]["message"]
        await asyncio.to_thread(
            front.next_restart, lambda: path.write_text(CALLS + "\n"), outcome="running"
        )
        assert isinstance((await client.call("pid")).value(), int)


@pytest.mark.rule("DEV-11", "DEV-13")
def test_imported_module_elsewhere_is_watched(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    prices = elsewhere / "prices.py"
    prices.write_text("TEA = 1\n")
    work = tmp_path / "work"
    work.mkdir()
    (work / "tools.py").write_text("import prices\n" + SHOP)
    env = {"PYTHONPATH": str(elsewhere)}
    with dev_front(work, "tools.py", env=env) as front:
        front.reader.wait_for("restart", first=True)
        front.reader.wait_for("state", lambda each: each["servers"][0]["watched"] >= 2)
        restart = front.next_restart(lambda: prices.write_text("TEA = 22\n"), first=False)
        assert restart["because"] == [str(prices)]
        assert front.server()["restarts"] == 1
