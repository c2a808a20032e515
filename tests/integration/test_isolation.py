"""What standard input and output may be, and who else gets to use them."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import socket
import stat
import sys
import tty
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.lab.servers.process import ServerProcess, command, decode, environment, run, serve

APP = '''
import os, subprocess, sys, threading, time
from foundation_rt import Server, ToolContext

server = Server("isolated")

FIND_OPEN_FILES = """
import json, os
found = {}
for name in os.listdir("/proc/self/fd"):
    try:
        status = os.fstat(int(name))
    except OSError:
        continue
    found[name] = [status.st_dev, status.st_ino]
print(json.dumps(found))
"""


@server.tool(inline=True)
def echo(text: str) -> str:
    print("printed", text)
    return text


@server.tool
def open_files_of_child() -> str:
    """Device and inode of every file that a child is born with."""
    words = [sys.executable, "-S", "-c", FIND_OPEN_FILES]
    return subprocess.check_output(words, close_fds=False).decode()


@server.tool
def leave_child() -> int:
    """A child that goes on when the server has gone, with all it has inherited."""
    leave_child.kept = subprocess.Popen(["sleep", "3600"], close_fds=False)
    return leave_child.kept.pid


@server.tool
def complain(text: str) -> str:
    print("printed", text, file=sys.stderr)
    return text


@server.tool(inline=True)
def quiet() -> str:
    return "no word"


def chatter():
    while True:
        print("still here", flush=True)
        time.sleep(0.001)


@server.tool
def chatter_in_worker():
    chatter()


@server.tool
def chatter_in_thread():
    threading.Thread(target=chatter, daemon=False).start()


@server.tool(inline=True)
def own_files() -> list[str]:
    """Where descriptors 0, 1 and 2 lead."""
    return [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
'''

HANDSHAKE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}\n'
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)
CALL = (
    b'{"jsonrpc":"2.0","id":2,"method":"tools/call",'
    b'"params":{"name":"echo","arguments":{"text":"hello"}}}\n'
)

Ends = tuple[int, int | None]


def make_socket() -> Ends:
    theirs, ours = socket.socketpair()
    return theirs.detach(), ours.detach()


def make_terminal() -> Ends:
    master, slave = pty.openpty()
    tty.setraw(slave)  # what is sent arrives as it is; a hang-up is its end
    return slave, master


def make_pipe_in() -> Ends:
    return os.pipe()


def make_pipe_out() -> Ends:
    reader, writer = os.pipe()
    return writer, reader


def converse(server: ServerProcess) -> None:
    """One conversation, to a clean end."""
    server.handshake()
    for number in range(20):
        assert server.call("echo", text=f"text {number}") == f"text {number}"
    large = "x" * 300_000
    assert server.call("echo", text=large) == large
    assert server.finish() == 0
    assert "printed text 7\n" in server.stderr
    assert "Traceback" not in server.stderr


@pytest.mark.rule("PROC-02", "PROC-01")
@pytest.mark.parametrize(
    ("make_input", "make_output"),
    [
        (make_pipe_in, make_pipe_out),
        (make_socket, make_socket),
        (make_terminal, make_terminal),
        (make_pipe_in, make_terminal),
        (make_terminal, make_socket),
    ],
)
def test_every_kind_of_input_and_output_serves(
    make_input: Callable[[], Ends], make_output: Callable[[], Ends]
) -> None:
    with serve(APP, handshake=False, stdin=make_input(), stdout=make_output()) as server:
        converse(server)


@pytest.mark.rule("PROC-02")
def test_one_socket_serves_for_both() -> None:
    theirs, ours = make_socket()
    assert ours is not None
    stdin, stdout = (theirs, ours), (os.dup(theirs), ours)
    with serve(APP, handshake=False, stdin=stdin, stdout=stdout) as server:
        server.handshake()
        assert server.call("echo", text="hello") == "hello"
        end = socket.socket(fileno=os.dup(ours))
        end.shutdown(socket.SHUT_WR)
        end.close()
        assert server.wait() == 0


@pytest.mark.rule("PROC-02")
def test_a_person_can_type_into_it() -> None:
    # A terminal as it is by default: it echoes, waits for whole lines, and ends with control-D.
    master, slave = pty.openpty()
    with serve(APP, handshake=False, stdin=(slave, master)) as server:
        server.handshake()
        assert server.call("echo", text="hello") == "hello"
        server.write(b"\x04")
        assert server.wait() == 0


@pytest.mark.rule("PROC-02", "PROC-03")
def test_a_terminal_that_is_hung_up_has_ended() -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    with serve(
        APP, handshake=False, stdin=(slave, master), stdout=(os.dup(slave), master)
    ) as server:
        server.handshake()
        assert server.call("echo", text="hello") == "hello"
        server.output = None
        server.close_input()
        assert server.wait() == 0


@pytest.mark.rule("PROC-02", "PROC-03")
def test_files_serve(tmp_path: Path) -> None:
    conversation, answers, log = (tmp_path / name for name in ("in", "out", "err"))
    conversation.write_bytes(HANDSHAKE + CALL * 3 + CALL.rstrip())
    with (
        conversation.open("rb") as theirs_in,
        answers.open("ab") as theirs_out,
        log.open("ab") as theirs_err,
        serve(
            APP,
            handshake=False,
            stdin=(os.dup(theirs_in.fileno()), None),
            stdout=(os.dup(theirs_out.fileno()), None),
            stderr=(os.dup(theirs_err.fileno()), None),
        ) as server,
    ):
        assert server.wait() == 0
    lines = [orjson.loads(line) for line in answers.read_bytes().splitlines()]
    assert [line["id"] for line in lines] == [1, 2, 2, 2, 2]
    assert [decode(line) for line in lines[1:]] == ["hello"] * 4
    assert log.read_text().count("tool call completed") == 4
    assert log.read_text().count("printed hello") == 4


@pytest.mark.rule("PROC-02", "PROC-03")
def test_the_null_device_is_an_empty_input() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    with serve(APP, handshake=False, stdin=(null, None)) as server:
        assert server.wait() == 0
        assert server.messages == []
        assert server.stderr == ""


@pytest.mark.rule("PROC-02", "PROC-03")
@pytest.mark.parametrize("closing", ["<&-", ">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_without_an_input_or_an_output_there_is_nothing_to_serve(closing: str) -> None:
    wrapper = ["sh", "-c", f'exec "$@" {closing}', "sh"]
    with serve(APP, handshake=False, wrapper=wrapper) as server:
        assert server.wait() == 0
        assert server.messages == []
        assert server.stderr == ""


@pytest.mark.rule("PROC-01", "PROC-07")
def test_without_stderr_it_serves_all_the_same() -> None:
    wrapper = ["sh", "-c", 'exec "$@" 2>&-', "sh"]
    with serve(APP, wrapper=wrapper) as server:
        assert server.call("echo", text="hello") == "hello"
        assert server.call("own_files") == ["/dev/null"] * 3
        assert server.finish() == 0
        assert server.stderr == ""


@pytest.mark.rule("PROC-01", "PROC-07")
def test_a_log_whose_reader_has_gone_is_no_reason_to_stop() -> None:
    with serve(APP) as server:
        server.close_log()
        for _ in range(100):
            assert server.call("quiet") == "no word"
        assert server.finish() == 0


@pytest.mark.rule("PROC-01", "PROC-03", "PROC-04")
@pytest.mark.parametrize("tool", ["echo", "complain"])
def test_what_nobody_would_read_is_neither_printed_to_the_client_nor_an_error(tool: str) -> None:
    # Printing fails, as it does in any program whose reader has gone, and the text stays buffered.
    with serve(APP) as server:
        server.close_log()
        assert server.call(tool, text="hello")["code"] == "INTERNAL"
        assert server.call("quiet") == "no word"
        assert server.finish() == 0
        assert len(server.messages) == 3


@pytest.mark.rule("PROC-01", "PROC-03")
@pytest.mark.parametrize("tool", ["chatter_in_worker", "chatter_in_thread"])
def test_what_goes_on_printing_is_not_printed_to_the_client_at_the_end(tool: str) -> None:
    settings = {"server.eof_grace_ms": 50, "server.shutdown_timeout_ms": 300}
    with serve(APP, settings) as server:
        server.start(tool)
        server.wait_until(lambda: "still here" in server.stderr, "the chatter")
        assert server.finish() == 0
        assert "still here" not in str(server.messages)


@pytest.mark.rule("PROC-01")
@pytest.mark.parametrize("make", [make_socket, make_terminal, None])
def test_no_flag_of_a_shared_descriptor_is_changed(make: Callable[[], Ends] | None) -> None:
    stdin = make() if make else make_pipe_in()
    stdout = make() if make else make_pipe_out()
    stderr = make_pipe_out()
    # The same open files as the server's: what it does to their flags shows here.
    shared = [os.dup(each[0]) for each in (stdin, stdout, stderr)]

    def flags() -> list[int]:
        return [fcntl.fcntl(each, fcntl.F_GETFL) for each in shared]

    try:
        before = flags()
        with serve(APP, stdin=stdin, stdout=stdout, stderr=stderr) as server:
            server.call("echo", text="x" * 300_000)
            server.call("open_files_of_child")
            assert flags() == before
            # Our copies keep its output and its log open, but not its input.
            assert not any(each & os.O_NONBLOCK for each in before)
            server.signal(signal.SIGTERM)
            assert server.wait() == 143
            assert flags() == before
    finally:
        for each in shared:
            os.close(each)


@pytest.mark.rule("PROC-01")
def test_a_child_does_not_inherit_the_protocol() -> None:
    stdin, stdout = make_pipe_in(), make_pipe_out()
    protocol = [[status.st_dev, status.st_ino] for status in map(os.fstat, (stdin[0], stdout[0]))]
    with serve(APP, stdin=stdin, stdout=stdout) as server:
        files = server.call("open_files_of_child")
        assert "2" in files
        assert not [number for number, file in files.items() if file in protocol]
        assert server.finish() == 0


@pytest.mark.rule("PROC-01", "PROC-03")
def test_a_child_that_stays_does_not_keep_the_conversation_open() -> None:
    with serve(APP) as server:
        child = server.call("leave_child")
        try:
            server.close_input()
            assert server.wait() == 0
            assert server.output is None  # it was read to its end, which is there
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.rule("PROC-01")
def test_handlers_find_an_empty_input_and_the_log_for_an_output() -> None:
    stderr = make_pipe_out()
    log = os.fstat(stderr[0])
    with serve(APP, stderr=stderr) as server:
        files = server.call("own_files")
        assert files == ["/dev/null", f"pipe:[{log.st_ino}]", f"pipe:[{log.st_ino}]"]
        assert stat.S_ISFIFO(log.st_mode)
        assert server.finish() == 0


NOISY = """
import os, subprocess, sys
from foundation_rt import Server

print("buffered")
if __name__ != "__main__":
    os.write(1, b"written\\n")
    subprocess.run(["echo", "of a child"])
    assert sys.stdin.read() == ""
server = Server("noisy")



@server.tool(inline=True)
def quiet() -> str:
    return "quiet"


if __name__ == "__main__":
    server.run()
"""


@pytest.mark.rule("PROC-17")
@pytest.mark.parametrize(
    "start",
    [command("serve"), [sys.executable], [sys.executable, "-m", "foundation_rt.cli.dev_program"]],
    ids=["serve", "run", "dev"],
)
def test_what_a_program_prints_before_it_serves_does_not_reach_the_client(
    start: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "noisy.py"
    file.write_text(NOISY)
    with ServerProcess([*start, str(file)], environment()) as server:
        server.handshake()
        assert server.call("quiet") == "quiet"
        assert server.finish() == 0
        printed = ["buffered"] if len(start) == 1 else ["written", "of a child", "buffered"]
        assert all(text in server.stderr for text in printed)


@pytest.mark.rule("PROC-17")
def test_program_that_cannot_be_loaded_has_printed_to_stderr(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("print('loading')\n1 / 0\n")
    done = run("serve", str(tmp_path / "broken.py"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "loading" in done.stderr and "ZeroDivisionError" in done.stderr
