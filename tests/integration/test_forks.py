"""Children that handlers fork: they never speak for the server, and end with their handler."""

from __future__ import annotations

import os
import signal

import pytest

from tests.lab.peers.raw_http import RawClient
from tests.lab.servers.http_server import serve_http
from tests.lab.servers.process import serve

APP = '''
import asyncio, gc, multiprocessing, os, signal, sys, threading
from foundation_rt import Server, ToolContext

server = Server("forking")
HOW = {"return": lambda: "from the child", "exit": lambda: sys.exit(7), "raise": lambda: 1 / 0}


def fork(how, context):
    """Fork; the parent waits for the child and returns how it ended."""
    context.logger.info("before")
    if (pid := os.fork()) == 0:
        context.logger.info("in the child")
        return HOW[how]()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@server.tool
def in_thread(how: str, context: ToolContext):
    return fork(how, context)


@server.tool
async def in_task(how: str, context: ToolContext):
    return fork(how, context)


@server.tool(inline=True)
def in_place(how: str, context: ToolContext):
    return fork(how, context)


@server.tool
async def await_in_child():
    if (pid := os.fork()) == 0:
        await asyncio.sleep(0)
        return "from the child"
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@server.tool
async def fork_in_executor():
    pid = await asyncio.to_thread(os.fork)
    return os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1])


@server.tool
def fork_while_locked():
    """Fork while another thread has the lock of the connection."""
    from foundation_rt import Connection

    connection = next(each for each in gc.get_objects() if isinstance(each, Connection))
    locked, forked = threading.Event(), threading.Event()

    def hold():
        with connection.lock:
            locked.set()
            forked.wait()

    threading.Thread(target=hold).start()
    locked.wait()
    if (pid := os.fork()) == 0:
        return "from the child"
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        forked.set()


@server.tool
def leave_child() -> int:
    """A child that lives on, as a daemon would."""
    if (pid := os.fork()) == 0:
        while True:
            signal.pause()
    return pid


def double(value):
    return 2 * value


@server.tool
async def use_processes(method: str) -> list:
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        return pool.map(double, [1, 2, 3])


@server.tool
def end_child() -> int:
    process = multiprocessing.get_context("fork").Process(target=threading.Event().wait)
    process.start()
    process.terminate()
    process.join()
    return process.exitcode


@server.tool
async def greet() -> str:
    return "hello"
'''

CODES = {"return": 0, "exit": 7, "raise": 1}


@pytest.mark.rule("PROC-15", "CALL-15", "LOG-25")
@pytest.mark.parametrize("tool", ["in_thread", "in_task", "in_place"])
def test_forked_child_ends_with_its_handler_and_answers_nothing(tool: str) -> None:
    with serve(APP) as server:
        calls = {how: server.start(tool, how=how) for how in CODES}
        assert {how: server.outcome(call) for how, call in calls.items()} == CODES
        assert server.call("greet") == "hello"
        assert server.finish() == 0
        assert [len(server.answers(call)) for call in calls.values()] == [1] * 3
        # The log that waited when a child was forked is written by the parent alone.
        for message in ("before", "in the child", "tool call completed"):
            count = len(server.records_with(message=message))
            assert count == (4 if message == "tool call completed" else 3), message
        assert "ZeroDivisionError" in server.stderr


@pytest.mark.rule("PROC-15")
def test_child_whose_coroutine_suspends_ends_and_the_parent_goes_on() -> None:
    with serve(APP) as server:
        assert server.call("await_in_child") == 1
        assert server.call("greet") == "hello"
        assert server.finish() == 0


@pytest.mark.rule("PROC-16")
def test_child_forked_in_an_executor_ends_with_the_function_there() -> None:
    with serve(APP) as server:
        assert server.call("fork_in_executor") == 1
        assert server.call("greet") == "hello"
        assert server.finish() == 0


@pytest.mark.rule("PROC-15")
def test_child_ends_though_another_thread_held_a_lock_at_the_fork() -> None:
    with serve(APP) as server:
        assert server.call("fork_while_locked") == 0
        assert server.finish() == 0


@pytest.mark.rule("PROC-12", "PROC-03")
def test_child_that_lives_on_holds_no_pipe_and_takes_its_own_signals() -> None:
    with serve(APP) as server:
        pid = server.call("leave_child")
        try:
            assert server.finish() == 0
            assert server.output is None  # its end was read: nobody holds it any more
        finally:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.rule("PROC-12", "PROC-04")
def test_signal_of_a_child_is_not_its_parents() -> None:
    with serve(APP) as server:
        pid = server.call("leave_child")
        os.kill(pid, signal.SIGTERM)
        assert server.call("end_child") == -signal.SIGTERM
        assert server.call("greet") == "hello"
        assert server.finish() == 0


@pytest.mark.rule("PROC-12", "CLI-02")
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_multiprocessing_works_in_handlers(method: str) -> None:
    with serve(APP) as server:
        assert server.call("use_processes", method=method) == [2, 4, 6]
        assert server.finish() == 0


@pytest.mark.rule("PROC-12", "HTTP-22")
@pytest.mark.parametrize("tool", ["in_thread", "in_task", "in_place"])
def test_forked_child_says_nothing_over_http(tool: str) -> None:
    with serve_http(APP) as server, RawClient(server.url) as client:
        for how, code in CODES.items():
            answer = client.fetch(client.call(tool, how=how))
            assert answer.json["result"]["content"][0]["text"] == str(code)
        with RawClient(server.url) as other:
            assert b"hello" in other.fetch(other.call("greet")).body


@pytest.mark.rule("PROC-12", "HTTP-22")
def test_child_that_lives_on_holds_no_connection_and_no_port() -> None:
    pid = 0
    try:
        with serve_http(APP) as server, RawClient(server.url) as client:
            answer = client.fetch(client.call("leave_child"))
            pid = int(answer.json["result"]["content"][0]["text"])
            server.process.signal(signal.SIGTERM)
            assert server.process.wait() == 143
            assert client.is_ended()
            with pytest.raises(ConnectionRefusedError):
                RawClient(server.url)
    finally:
        os.kill(pid, signal.SIGKILL)
