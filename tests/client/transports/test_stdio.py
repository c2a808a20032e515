"""A channel to a child process: what it tells, what it takes, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.client.errors import ConnectionLostError, MCPError
from foundation_rt.client.targets import StdioServer
from foundation_rt.client.transports.orphan_guard import VARIABLE
from foundation_rt.client.transports.stdio import ChildProcessTransport
from foundation_rt.errors import UsageError
from foundation_rt.protocol.framing import LineTooLong
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.checks.leaks import ResourceSnapshot
from tests.lab.peers.recording_receiver import (
    LONG,
    SHORT,
    RecordingReceiver,
    opened,
    python,
    run,
    say,
)
from tests.lab.programs.processes import living, state
from tests.lab.sizes import size
from tests.lab.waiting import settle, until

ECHO = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line), sys.stdout.flush()"


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Any:
    """Return what makes the loop of the test."""
    return request.param


both_loops = pytest.mark.usefixtures("loop_factory")


def number(told: RecordingReceiver) -> int:
    """Return the first line of the server: its process id."""
    assert isinstance(told.lines[0], bytes)
    return int(told.lines[0])


# -- what is started


@pytest.mark.rule("CHILD-01")
@pytest.mark.parametrize(
    "wrong",
    [
        {"command": ""},
        {"command": None},
        {"command": "a\0b"},
        {"command": "a", "args": "-b -c"},
        {"command": "a", "args": [1]},
        {"command": "a", "args": ["\0"]},
        {"command": "a", "env": {"": "x"}},
        {"command": "a", "env": {"A=B": "x"}},
        {"command": "a", "env": {"A": 1}},
        {"command": "a", "env": {"A": "\0"}},
        {"command": "a", "shutdown_grace": -1},
        {"command": "a", "shutdown_grace": float("nan")},
        {"command": "a", "shutdown_grace": float("inf")},
        {"command": "a", "shutdown_grace": None},
    ],
)
def test_invalid_command_is_refused_in_the_description(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        StdioServer(**wrong)


@pytest.mark.rule("CHILD-01")
def test_a_command_line_is_split_as_a_shell_would_and_nothing_more() -> None:
    server = StdioServer.from_command_line("uvx 'some server' --path=$HOME *.py")
    assert server.command == "uvx"
    assert server.args == ("some server", "--path=$HOME", "*.py")


@pytest.mark.rule("CHILD-01")
@pytest.mark.parametrize("text", ["", "  ", "uvx 'some", "''"])
def test_a_command_line_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        StdioServer.from_command_line(text)


@pytest.mark.rule("CHILD-01")
async def test_a_server_leads_a_session_of_its_own_in_its_directory(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getsid(0) == os.getpid(), os.getcwd(), sys.argv[1])"

    transport, told = await opened(python(code, "$HOME; *", cwd=tmp_path))
    assert await told.count(1) == [f"True {tmp_path} $HOME; *".encode()]
    await transport.close()


@pytest.mark.rule("CHILD-02")
async def test_environment_is_a_few_inherited_variables_and_the_given_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name in (
        "PATH",
        "HOME",
        "LC_TIME",
        "XDG_DATA_HOME",
        "HTTPS_PROXY",
        "no_proxy",
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
        "API_TOKEN",
        "LD_PRELOAD_X",
        "PYTHONPATH",
    ):
        monkeypatch.setenv(name, f"our {name}")
    # LC_CTYPE is of Python, the other one of the guard of children (CHILD-21).
    ours = ("LC_CTYPE", VARIABLE)
    code = f"import os; print(sorted(each for each in os.environ.items() if each[0] not in {ours}))"

    transport, told = await opened(python(code, env={"HOME": "theirs", "OWN": "1"}))
    [line] = await told.count(1)
    expected = {"PATH": "our PATH", "HOME": "theirs", "LC_TIME": "our LC_TIME", "OWN": "1"}
    for name in (
        "XDG_DATA_HOME",
        "HTTPS_PROXY",
        "no_proxy",
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
    ):
        expected[name] = f"our {name}"
    assert line == str(sorted(expected.items())).encode()
    await transport.close()


@pytest.mark.rule("CHILD-03")
@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("uvx some-server", "uvx some-server"),
        ("/usr/bin/python server.py --token s3cret", "python server.py"),
        ("npx -y @scope/server s3cret", "npx @scope/server"),
        ("python -m package s3cret", "python package"),
        ("server --token s3cret", "server"),
        ("server -t s3cret", "server"),
        ("env TOKEN=s3cret server", "env"),
        ("server postgres://user:s3cret@host/db", "server"),
        ("server " + "x" * 100, "server " + "x" * 70 + "..."),
    ],
)
def test_description_of_a_command_has_no_secrets(line: str, shown: str) -> None:
    server = StdioServer.from_command_line(line)
    assert ChildProcessTransport(server).description == server.description == shown
    assert "s3cret" not in repr(server)


@pytest.mark.rule("CHILD-03")
def test_the_repr_of_a_server_shows_no_variables() -> None:
    assert "s3cret" not in repr(StdioServer("a", env={"TOKEN": "s3cret"}))


# -- what cannot be started


def script(folder: Path, text: str, mode: int) -> str:
    path = folder / "script"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@both_loops
@pytest.mark.rule("CHILD-04")
@pytest.mark.parametrize(
    ("case", "reason", "remedy"),
    [
        ("name", "there is no program no-such-program on the PATH", "Install it"),
        ("path", "there is no file ", "Correct the path"),
        ("backslashes", r"there is no program 'C:\tools\new'", r"write \\ for each backslash"),
        ("interpreter", "the interpreter in the first line of ", "Install it"),
        ("mode", " is not executable", "Make it so"),
        ("cwd", "there is no directory ", "Correct cwd"),
    ],
)
async def test_failed_start_says_what_to_correct(
    tmp_path: Path, case: str, reason: str, remedy: str
) -> None:
    servers = {
        "name": lambda: StdioServer("no-such-program"),
        "path": lambda: StdioServer(str(tmp_path / "nowhere")),
        "backslashes": lambda: StdioServer("C:\tools\new"),
        "interpreter": lambda: StdioServer(script(tmp_path, "#!/no/such/program\n", 0o755)),
        "mode": lambda: StdioServer(script(tmp_path, "#!/bin/sh\n", 0o644)),
        "cwd": lambda: python("pass", cwd=tmp_path / "nowhere"),
    }

    transport = ChildProcessTransport(servers[case]())
    with pytest.raises(ConnectionLostError) as caught:
        await transport.open(RecordingReceiver())
    assert reason in caught.value.message
    assert transport.stderr_tail() == caught.value.message
    assert remedy in caught.value.suggested_action
    assert not caught.value.may_have_run
    say(transport, b"{}")
    await transport.drained()
    await transport.close()


@both_loops
@pytest.mark.rule("CHILD-04")
async def test_a_server_that_is_being_started_does_not_run_yet() -> None:
    transport = ChildProcessTransport(python("pass"))
    opening = asyncio.create_task(transport.open(RecordingReceiver()))
    await asyncio.sleep(0)
    assert transport.stderr_tail() == f"{transport.description} has not been started"
    await opening
    assert transport.stderr_tail() != f"{transport.description} has not been started"
    await transport.close()


@pytest.mark.rule("CHILD-04")
async def test_file_that_is_no_program_is_reported(tmp_path: Path) -> None:
    transport = ChildProcessTransport(StdioServer(script(tmp_path, "no first line", 0o755)))
    with pytest.raises(ConnectionLostError, match="is no program") as caught:
        await transport.open(RecordingReceiver())
    assert "name that in its first line" in caught.value.suggested_action


@pytest.mark.rule("CHILD-04")
async def test_other_start_errors_repeat_the_system_message() -> None:
    with pytest.raises(ConnectionLostError, match="Argument list too long"):
        await ChildProcessTransport(python("pass", "x" * 1_000_000)).open(RecordingReceiver())


# -- lines


@both_loops
@pytest.mark.rule("CHILD-05", "CHILD-06")
async def test_lines_come_and_go_in_order() -> None:
    lines = [b"%d " % number + b"x" * (number * number % 100_000) for number in range(400)]

    transport, told = await opened(python(ECHO))
    transport.negotiated(REVISIONS["2025-11-25"])
    for line in lines:
        await transport.drained()
        say(transport, line)
    assert await told.count(len(lines)) == lines
    await transport.close()
    assert told.errors == []


@pytest.mark.rule("CHILD-05")
@settings(max_examples=20)
@given(st.lists(st.binary(min_size=1).map(lambda each: b"." + each.replace(b"\n", b" ") + b".")))
def test_any_bytes_make_a_line(lines: list[bytes]) -> None:
    async def main() -> None:
        transport, told = await opened(StdioServer("cat"))
        for line in lines:
            say(transport, line)
        assert await told.count(len(lines)) == lines
        await transport.close()

    run(main())


@pytest.mark.rule("CHILD-05")
async def test_a_line_that_is_too_long_stands_in_its_place() -> None:
    transport, told = await opened(
        python("print('a'); print('b' * 50); print('c')"), max_message_bytes=10
    )
    assert await told.count(3) == [b"a", LineTooLong(10), b"c"]
    await transport.close()


@pytest.mark.rule("CHILD-05")
async def test_nothing_is_delivered_after_close() -> None:
    code = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\nprint('late')"

    transport, told = await opened(python(code))
    await told.count(1)
    await transport.close()
    assert told.lines == [b"ready"]
    assert told.errors == []
    assert transport.stderr_tail().endswith("ended with exit code 0")


# -- a server that does not read

DEAF = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print(os.getpid(), flush=True)
signal.sigwait([signal.SIGUSR1])
for line in sys.stdin.buffer: print(len(line), flush=True)
"""


@both_loops
@pytest.mark.rule("CHILD-06")
async def test_sender_waits_until_the_server_reads() -> None:
    transport, told = await opened(python(DEAF, shutdown_grace=SHORT))
    await told.count(1)
    assert not transport.is_congested
    await transport.drained()
    say(transport, b"x" * 1_000_000)
    assert transport.is_congested
    waiting = [asyncio.ensure_future(transport.drained()) for _ in range(3)]
    say(transport, b"y")
    done, _ = await asyncio.wait(waiting, timeout=0)
    assert not done
    os.kill(number(told), signal.SIGUSR1)
    await asyncio.gather(*waiting)
    assert not transport.is_congested
    assert (await told.count(3))[1:] == [b"1000001", b"2"]
    await transport.close()


@pytest.mark.rule("CHILD-06")
async def test_waiting_sender_continues_when_the_transport_ends() -> None:
    transport, told = await opened(python(DEAF, shutdown_grace=SHORT))
    await told.count(1)
    say(transport, b"x" * 1_000_000)
    waiting = asyncio.ensure_future(transport.drained())
    await transport.close()
    await waiting
    assert not transport.is_congested
    for _ in range(10):
        say(transport, b"nobody hears it")


@pytest.mark.rule("CHILD-07")
async def test_server_that_never_reads_loses_the_transport() -> None:
    transport, told = await opened(python(DEAF, shutdown_grace=SHORT), max_message_bytes=200_000)
    await told.count(1)
    say(transport, b"x" * 1_000_000)  # one message may be of any size
    assert not told.errors
    for _ in range(100):
        say(transport, b"y" * 100_000)
    assert not told.errors  # not while it is being sent to
    error = await told.end()
    assert "does not read" in error.message
    assert error.may_have_run
    await transport.close()


@both_loops
@pytest.mark.rule("CHILD-24")
async def test_flood_of_lines_leaves_the_event_loop_its_turns() -> None:
    code = """
import sys
sys.stdin.readline()  # a flood before the handshake is another one (CHILD-25)
sys.stdout.write("".join(f"{at}\\n" for at in range(20_000)))
sys.stdout.flush()
sys.stdin.read()
"""
    transport, told = await opened(python(code))
    transport.negotiated(REVISIONS["2025-11-25"])
    say(transport, b"negotiated")
    at_once = known = 0
    while known < 20_000:
        await asyncio.sleep(0)
        known, before = len(told.lines), known
        at_once = max(at_once, known - before)
    assert at_once <= 64
    assert told.lines == [str(at).encode() for at in range(20_000)]
    await transport.close()


@both_loops
@pytest.mark.rule("CHILD-25")
@pytest.mark.parametrize("line", ["noise\\n", "\\n", "x"])
async def test_flood_before_the_handshake_ends_the_server(line: str) -> None:
    code = f"import sys\nwhile True: sys.stdout.write('{line}' * 50_000)"
    transport, told = await opened(python(code, shutdown_grace=SHORT))
    error = await told.end()
    assert "more than 10,000 lines, or 4 MiB, to its stdout before it answered" in error.message
    assert not error.may_have_run
    assert not error.retryable
    assert len(told.lines) <= 10_000
    await transport.close()


# -- stderr


@pytest.mark.rule("CHILD-08")
def test_stderr_is_read_and_offered_line_by_line() -> None:
    code = """
import sys
sys.stderr.write("x" * 3_000_000 + "\\nhere\\n\\nunended")
sys.stderr.flush()
print("went on", flush=True)
sys.stdin.read()
"""
    offered: list[str] = []

    async def main() -> None:
        transport, told = await opened(python(code), on_stderr=offered.append)
        await told.count(1)
        await transport.close()
        assert transport.stderr.endswith("xx\nhere\n\nunended")
        assert len(transport.stderr) == 65_536

    run(main())
    assert offered == ["[a line of more than 65536 bytes]", "here"]


@pytest.mark.rule("CHILD-08")
def test_a_last_line_of_stderr_without_newline_is_offered_too() -> None:
    offered: list[str] = []

    async def main() -> None:
        code = "import sys; sys.stderr.write('one\\ntwo')"
        transport, told = await opened(python(code), on_stderr=offered.append)
        await told.end()
        await transport.close()

    run(main())
    assert offered == ["one", "two"]


@pytest.mark.rule("CHILD-08")
def test_a_callback_that_raises_is_called_no_more(caplog: pytest.LogCaptureFixture) -> None:
    offered: list[str] = []

    def on_stderr(line: str) -> None:
        offered.append(line)
        raise ValueError("of the callback")

    async def main() -> None:
        code = "import sys; sys.stderr.write('one\\ntwo\\n'); print('out')"
        transport, told = await opened(python(code), on_stderr=on_stderr)
        await told.end()
        assert told.lines == [b"out"]
        await transport.close()
        assert transport.stderr == "one\ntwo\n"

    with caplog.at_level(logging.WARNING, "foundation_rt.client"):
        run(main())
    assert offered == ["one"]
    assert [each.message for each in caplog.records] == ["on_stderr raised: it is called no more"]


# -- a server that ends


@both_loops
@pytest.mark.rule("CHILD-09")
@pytest.mark.parametrize(
    ("code", "fate"),
    [
        ("pass", "ended with exit code 0"),
        ("import os; os._exit(77)", "ended with exit code 77"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("import os; os.kill(os.getpid(), 11)", "was ended by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 40)", "was ended by signal 40"),
    ],
)
async def test_end_of_a_server_is_reported(code: str, fate: str) -> None:
    transport, told = await opened(python(code))
    error = await told.end()
    assert isinstance(error, ConnectionLostError)
    assert error.message == f"the server {transport.description} {fate}"
    assert not error.may_have_run  # nothing was sent
    assert transport.stderr_tail() == f"{transport.description} {fate}"
    say(transport, b"{}")
    await transport.drained()
    await transport.close()
    assert len(told.errors) == 1


@both_loops
@pytest.mark.rule("CHILD-05", "CHILD-08", "CHILD-09")
async def test_end_is_reported_after_all_output() -> None:
    code = """
import sys
sys.stdin.readline()
for number in range(20_000): print(number, "x" * 50)
sys.stdout.write("half a line")
sys.stdout.flush()
sys.stderr.write("before\\n" * 1_000 + "\\x1b[31mwhat went wrong\\x1b[0m\\n")
sys.exit(3)
"""

    transport, told = await opened(python(code))
    transport.negotiated(REVISIONS["2025-11-25"])
    say(transport, b"{}")  # before the answer to `initialize`, so much is refused
    error = await told.end()
    assert [int(line.split()[0]) for line in told.lines[:-1]] == [*range(20_000)]
    assert told.lines[-1] == b"half a line"
    assert "ended with exit code 3; the last lines of its stderr:\nbefore\n" in error.message
    assert error.message.endswith("before\nwhat went wrong\n")
    assert len(error.message) < 2_300
    assert transport.stderr_tail().endswith("what went wrong\n")
    await transport.close()


# Starts a process that holds all pipes, says its id and ends; or stays.
PARENT = """
import os, signal, subprocess, sys
kind, stays = sys.argv[1:]
code = {"mild": "pass", "stubborn": "signal.signal(signal.SIGTERM, signal.SIG_IGN)"}[kind]
code = f"import signal; {code}; print('here', flush=True); signal.pause()"
other = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])
print(os.getpid(), flush=True)
if stays == "stays":
    sys.stdin.read()
else:
    os.read(0, 1)
    sys.stderr.write("gone\\n")
"""


async def family(
    kind: str, stays: str, grace: float
) -> tuple[ChildProcessTransport, RecordingReceiver, int]:
    """Run a server that has started another process."""
    transport, told = await opened(python(PARENT, kind, stays, shutdown_grace=grace))
    lines = await told.count(2)
    [leader] = [int(line) for line in lines if isinstance(line, bytes) and line != b"here"]
    assert len(living(leader)) == 2
    return transport, told, leader


@both_loops
@pytest.mark.rule("CHILD-09", "CHILD-11", "CHILD-12")
@pytest.mark.parametrize("kind", ["mild", "stubborn"])
async def test_end_is_reported_while_another_process_holds_the_pipes(kind: str) -> None:
    transport, told, leader = await family(kind, "goes", SHORT)
    say(transport, b"go")
    error = await told.end()
    assert "ended with exit code 0" in error.message
    await transport.close()
    assert not living(leader)


@pytest.mark.rule("CHILD-10")
@pytest.mark.parametrize(("pipe", "name"), [(0, "input"), (1, "output")])
async def test_a_server_that_closes_a_pipe_is_of_no_use(pipe: int, name: str) -> None:
    code = f"""
import os, signal
print(os.getpid(), flush=True)
os.close({pipe})
while True: signal.pause()
"""

    transport, told = await opened(python(code, shutdown_grace=SHORT))
    error = await told.end()
    assert error.message == f"the server {transport.description} has closed its {name}"
    await transport.close()
    assert not state(number(told))


# -- close


@both_loops
@pytest.mark.rule("CHILD-11", "CHILD-12")
async def test_a_server_may_end_by_itself_after_everything_that_was_sent() -> None:
    code = """
import os, sys
print(os.getpid(), flush=True)
read = sys.stdin.read()
sys.stderr.write(f"{len(read)}")
"""

    transport, told = await opened(python(code))
    await told.count(1)
    say(transport, b"x" * 1_000_000)
    await transport.close()
    assert transport.stderr == "1000001"
    assert "exit code 0" in transport.stderr_tail()
    assert not state(number(told))


HEEDLESS = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print(os.getpid(), flush=True)
signal.sigwait([signal.SIGTERM])
sys.stderr.write("terminated\\n")
if sys.argv[1] == "mild": sys.exit(5)
while True: signal.pause()
"""


@both_loops
@pytest.mark.rule("CHILD-08", "CHILD-11", "CHILD-12")
async def test_one_that_does_not_is_terminated() -> None:
    transport, told = await opened(python(HEEDLESS, "mild", shutdown_grace=1.0))
    await told.count(1)
    await transport.close()
    assert transport.stderr == "terminated\n"
    assert "ended with exit code 5" in transport.stderr_tail()
    assert not state(number(told))
    assert told.errors == []


@both_loops
@pytest.mark.rule("CHILD-11", "CHILD-12")
async def test_and_then_killed() -> None:
    transport, told = await opened(python(HEEDLESS, "stubborn", shutdown_grace=SHORT))
    await told.count(1)
    await transport.close()
    assert "was ended by SIGKILL" in transport.stderr_tail()
    assert not state(number(told))
    assert told.errors == []


@both_loops
@pytest.mark.rule("CHILD-12")
async def test_a_process_that_left_the_group_holds_nothing_up() -> None:
    """It made a session of its own, to outlive us; it has all pipes, and reads none."""
    code = """
import os, signal, subprocess, sys
code = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
subprocess.Popen([sys.executable, "-I", "-S", "-c", code], start_new_session=True)
signal.pause()
"""

    before = ResourceSnapshot.now().descriptors
    transport, told = await opened(python(code, shutdown_grace=SHORT))
    await told.count(1)
    try:
        say(transport, b"x" * 1_000_000)
        await transport.close()
        join_watchers()
        assert not {each for each in ResourceSnapshot.now().descriptors - before if "pipe:" in each}
        assert living(number(told))
    finally:
        os.kill(number(told), signal.SIGKILL)


@pytest.mark.rule("CHILD-12")
async def test_close_may_be_called_often_and_at_once() -> None:
    transport, told = await opened(python(HEEDLESS, "mild", shutdown_grace=SHORT))
    await told.count(1)
    await asyncio.gather(*(transport.close() for _ in range(5)))
    await transport.close()
    assert not state(number(told))


@pytest.mark.rule("CHILD-12")
async def test_closed_transport_cannot_be_opened() -> None:
    transport = ChildProcessTransport(python("pass"))
    say(transport, b"{}")
    assert transport.stderr_tail() == ""
    await transport.close()
    with pytest.raises(MCPError, match="opened once"):
        await transport.open(RecordingReceiver())


@both_loops
@pytest.mark.rule("CHILD-18")
async def test_a_close_that_is_cancelled_kills_at_once() -> None:
    transport, _, leader = await family("stubborn", "goes", LONG)
    closing = asyncio.ensure_future(transport.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert not state(leader)
    assert not living(leader)
    await transport.close()


@pytest.mark.rule("CHILD-18")
def test_the_end_of_the_loop_kills_at_once(loop_factory: Any) -> None:
    leaders: list[int] = []

    async def keep() -> None:
        transport, _, leader = await family("stubborn", "goes", LONG)
        leaders.append(leader)
        try:
            await asyncio.Event().wait()
        finally:
            await transport.close()

    async def main() -> None:
        tasks.append(asyncio.ensure_future(keep()))
        await until(lambda: leaders, "the child runs")
        tasks[0].cancel()
        await asyncio.sleep(0)

    tasks: list[asyncio.Future[None]] = []
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
        assert not tasks[0].done()
    assert tasks[0].cancelled()
    assert not state(leaders[0])
    assert not living(leaders[0])


@both_loops
@pytest.mark.rule("CHILD-12", "CHILD-18")
@pytest.mark.parametrize("steps", range(6))
async def test_close_ends_an_open_that_is_under_way(steps: int) -> None:
    before = ResourceSnapshot.now().children
    transport = ChildProcessTransport(python("import sys; sys.stdin.read()"))
    opening = asyncio.ensure_future(transport.open(RecordingReceiver()))
    await settle(steps)
    was_open = opening.done()
    await transport.close()
    await asyncio.wait([opening])
    assert was_open == (opening.exception() is None)
    assert isinstance(opening.exception(), ConnectionLostError | None)
    assert ResourceSnapshot.now().children == before


@both_loops
@pytest.mark.rule("CHILD-18")
@pytest.mark.parametrize("steps", range(6))
async def test_an_open_that_is_cancelled_leaves_nothing(steps: int) -> None:
    before = ResourceSnapshot.now().children
    transport = ChildProcessTransport(python("import signal; signal.pause()"))
    opening = asyncio.ensure_future(transport.open(RecordingReceiver()))
    await settle(steps)
    if opening.cancel():
        await asyncio.wait([opening])
        assert opening.cancelled()
        assert ResourceSnapshot.now().children == before
    # Either way: a close that is cancelled before it could do anything.
    closing = asyncio.ensure_future(transport.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert ResourceSnapshot.now().children == before


# -- nothing is left


ENDINGS = {
    "at its end": (ECHO, True),
    "by itself": ("print('first')", True),
    "killed": ("import os; print('first', flush=True); os.kill(os.getpid(), 9)", True),
    "not read": ("print('first', flush=True)\nimport signal; signal.pause()", False),
    "at once": (ECHO, False),
}


async def one_round(ending: str) -> None:
    code, waits = ENDINGS[ending]
    transport, told = await opened(python(code, shutdown_grace=SHORT))
    say(transport, b"first")
    if waits:
        await told.count(1)
    await transport.close()


def join_watchers() -> None:
    """Join the threads in which asyncio waits for children."""
    for thread in threading.enumerate():
        if thread.name.startswith("asyncio-waitpid"):
            thread.join()


@both_loops
@pytest.mark.rule("CHILD-12")
async def test_rounds_leave_nothing_behind() -> None:
    await one_round("at its end")
    join_watchers()
    before = ResourceSnapshot.now()
    with pytest.raises(ConnectionLostError):
        await ChildProcessTransport(StdioServer("no-such-program")).open(RecordingReceiver())
    for count in range(size(2 * len(ENDINGS), 50)):
        await one_round([*ENDINGS][count % len(ENDINGS)])
    join_watchers()
    ResourceSnapshot.now().must_equal(before)


FIRST_PROCESS = """
import asyncio, ctypes, os, sys
from foundation_rt.client.transports.stdio import ChildProcessTransport
from tests.lab.checks.leaks import ResourceSnapshot
from tests.client.transports.test_stdio import family

PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0

async def main():
    for kind in ("mild", "stubborn"):
        for stays in ("goes", "stays"):
            channel, _, leader = await family(kind, stays, 0.1)
            await channel.close()
            assert not ResourceSnapshot.now().children, (kind, stays)

asyncio.run(main())
"""


@pytest.mark.rule("CHILD-19")
def test_orphans_are_reaped_where_they_become_our_children() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", FIRST_PROCESS], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
