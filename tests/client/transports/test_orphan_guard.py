"""The guard of child processes: what becomes of them when their client is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from foundation_rt.client.transports.orphan_guard import _SCRIPT, orphan_guard
from foundation_rt.client.transports.process import ChildProcess
from tests.lab.checks.leaks import ResourceSnapshot
from tests.lab.programs.processes import living
from tests.lab.servers.process import ServerProcess, command, environment
from tests.lab.sizes import size
from tests.lab.waiting import until

STUBBORN = """
import os, signal, sys
for each in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
    signal.signal(each, signal.SIG_IGN)
child = os.fork()
if child:
    print(os.getpid(), flush=True)
if sys.argv[1:] == ["frozen"]:
    os.kill(os.getpid(), signal.SIGSTOP)
while True:
    signal.pause()
"""
"""It and its child ignore all they can: signals, the end of their input, time."""

CLIENT = """
import asyncio, sys
from foundation_rt.client.transports.process import ChildProcess

async def main():
    children = []
    for words in ((), ("frozen",)):
        output = asyncio.Queue()
        child = ChildProcess(output.put_nowait, lambda data: None, lambda: None, 1.0)
        await child.start((sys.executable, "-I", "-S", "-c", sys.argv[1], *words), {}, None)
        print((await output.get()).decode(), end="", flush=True)
        children.append(child)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def _idle() -> ChildProcess:
    return ChildProcess(lambda data: None, lambda data: None, lambda: None, 5.0)


async def _all_vanish(groups: list[int]) -> None:
    await until(lambda: not any(living(group) for group in groups), "the groups vanish")


@pytest.mark.rule("CHILD-21")
async def test_groups_of_a_killed_client_end_whatever_they_ignore() -> None:
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, STUBBORN), stdout=asyncio.subprocess.PIPE
    )
    assert client.stdout is not None
    lines = [await client.stdout.readline() for _ in range(2)]
    leaders = [int(line) for line in lines]
    assert [len(living(leader)) for leader in leaders] == [2, 2]
    client.kill()
    await client.wait()
    await _all_vanish(leaders)


@pytest.mark.rule("CHILD-21")
async def test_servers_of_a_killed_gateway_end_whatever_they_ignore(tmp_path: Path) -> None:
    noted, program = tmp_path / "pids", tmp_path / "stubborn.py"
    program.write_text(STUBBORN.replace("flush=True", f"file=open({str(noted)!r}, 'a', 1)"))
    servers = {
        name: {"command": sys.executable, "args": [str(program), *words]}
        for name, words in (("deaf", []), ("ice", ["frozen"]))
    }
    file = tmp_path / "mcp.json"
    file.write_bytes(orjson.dumps({"mcpServers": servers}))
    with ServerProcess(command("gateway", str(file)), environment()) as gateway:
        await until(lambda: noted.exists() and len(noted.read_text().split()) >= 2, "both run")
        leaders = [int(word) for word in noted.read_text().split()]
        gateway.signal(signal.SIGKILL)
        gateway.wait()
    await _all_vanish(leaders)


@pytest.mark.rule("CHILD-21")
@pytest.mark.skipif(sys.platform != "linux", reason="there the environment is not shown")
async def test_child_of_a_client_killed_before_it_knew_its_pid_ends(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    killed = "import os; ChildProcess.connection_made = lambda *_: os.kill(os.getpid(), 9)\n"
    program = CLIENT.replace("async def main", f"{killed}async def main")
    stubborn = STUBBORN.replace("flush=True", f"file=open({str(noted)!r}, 'a', 1)")
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stubborn)
    assert await client.wait() == -signal.SIGKILL
    await until(lambda: noted.exists() and noted.read_text().endswith("\n"), "the server runs")
    await _all_vanish([int(noted.read_text())])


@pytest.mark.rule("CHILD-21")
def test_guard_terminates_after_1_s_and_kills_after_3(tmp_path: Path) -> None:
    """In the guard's own time: what it sleeps is noted instead."""
    noted = tmp_path / "noted"
    shims = (
        f'sleep() {{ echo "$1" >> {noted}; }}\n'
        f'kill() {{ echo "$2" >> {noted}; command kill "$@"; }}\n'
    )
    words = (sys.executable, "-I", "-S", "-c", STUBBORN)
    with subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE) as stubborn:
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        guarded = f"+ {stubborn.pid}\n".encode()
        subprocess.run(["/bin/sh", "-c", shims + _SCRIPT], input=guarded, check=True)
        assert stubborn.wait() == -signal.SIGKILL
    seconds, sent = 0.0, dict[str, float]()
    for line in noted.read_text().split():
        if line.isalpha():
            sent[line] = round(seconds, 1)
        elif line != "0":  # kill -s 0
            seconds += float(line)
    assert sent == {"TERM": 1.0, "KILL": 3.0}


@pytest.mark.rule("CHILD-22")
async def test_guard_lives_as_long_as_there_are_children() -> None:
    before = ResourceSnapshot.now()
    first, second = _idle(), _idle()
    for child in (first, second):
        await child.start(("/bin/cat",), {}, None)
    shell = orphan_guard._shell
    assert shell is not None
    await first.end()
    assert orphan_guard._shell is shell
    assert shell.poll() is None
    await second.end()
    ResourceSnapshot.now().must_equal(before)


@pytest.mark.rule("CHILD-22")
async def test_guard_that_was_killed_is_replaced() -> None:
    before = ResourceSnapshot.now()
    first, second = _idle(), _idle()
    await first.start(("/bin/cat",), {}, None)
    shell = orphan_guard._shell
    assert shell is not None
    os.kill(shell.pid, signal.SIGKILL)
    os.waitid(os.P_PID, shell.pid, os.WEXITED | os.WNOWAIT)
    await second.start(("/bin/cat",), {}, None)
    assert orphan_guard._shell not in (None, shell)
    await first.end()
    await second.end()
    ResourceSnapshot.now().must_equal(before)


@pytest.mark.rule("CHILD-22")
async def test_forked_copy_of_the_client_does_not_keep_the_children_alive() -> None:
    child = _idle()
    await child.start(("/bin/cat",), {}, None)
    pipe = orphan_guard._pipe
    copy = os.fork()
    if not copy:
        os._exit(os.path.exists(f"/proc/self/fd/{pipe}"))
    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 0
    await child.end()
    assert child.exit_code == 0


@pytest.mark.rule("CHILD-23")
async def test_children_go_unguarded_where_there_is_no_shell(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("foundation_rt.client.transports.orphan_guard._SHELL", "/no/shell")
    monkeypatch.setattr(orphan_guard, "_is_unavailable", False)
    before = ResourceSnapshot.now()
    for _ in range(2):
        child = _idle()
        await child.start(("/bin/cat",), {}, None)
        await child.end()
        assert child.exit_code == 0
    ResourceSnapshot.now().must_equal(before)
    assert [each.message for each in caplog.records] == [
        "servers outlive this process if it is killed: /no/shell: "
        "[Errno 2] No such file or directory: '/no/shell'"
    ]


@pytest.mark.rule("CHILD-12", "CHILD-22")
async def test_children_that_were_killed_leave_nothing() -> None:
    """One other child keeps the guard, which forgets each of them."""
    before = ResourceSnapshot.now()
    kept = _idle()
    await kept.start(("/bin/cat",), {}, None)
    for _ in range(size(200, 1_000)):
        child = _idle()
        await child.start(("/bin/cat",), {}, None)
        assert child._transport is not None
        os.killpg(child._transport.get_pid(), signal.SIGKILL)
        await child.end()
    assert len(orphan_guard._groups) == 1
    await kept.end()
    ResourceSnapshot.now().must_equal(before)
