"""Exceptions that no handler takes: every call is answered, no thread and no slot is lost."""

from __future__ import annotations

import signal

import pytest

from tests.lab.servers.process import serve

APP = '''
import ctypes, sys, threading
import _thread
from foundation_rt import Server, ToolContext

server = Server("interrupted")


class Leaving(BaseException):
    pass


@server.tool
def greet() -> str:
    return "hello"


@server.tool
async def greet_later() -> str:
    return "hello"


# On Python 3.11 a traced thread, as under coverage, makes no further step while an exception waits
# for another thread that does not run.
sys.settrace(None)
threading.settrace(None)


def throw_into(ident):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(Leaving))


@server.tool
def throw_into_main_thread() -> str:
    throw_into(threading.main_thread().ident)
    return "thrown"


@server.tool
def throw_into_workers() -> str:
    """Into all but this one: they wait, and find out when there is work."""
    for thread in threading.enumerate():
        if "worker" in thread.name and thread is not threading.current_thread():
            throw_into(thread.ident)
    return "thrown"


barrier = threading.Barrier(3)


@server.tool
def meet() -> bool:
    barrier.wait(20)
    return True


@server.tool
def interrupt_main() -> str:
    _thread.interrupt_main()
    return "interrupted"
'''

SLOTS = {"resources.max_concurrent_executions": 3}


@pytest.mark.rule("ERR-07")
@pytest.mark.parametrize("tool", ["greet", "greet_later"])
def test_what_is_thrown_into_the_main_thread_costs_no_answer(tool: str) -> None:
    with serve(APP, SLOTS) as server:
        for _ in range(20):
            assert server.call("throw_into_main_thread") == "thrown"
            assert server.call(tool) == "hello"
        assert server.finish() == 0
        assert server.records_with(level="error")


@pytest.mark.rule("ERR-07")
def test_what_is_thrown_into_waiting_workers_costs_no_call() -> None:
    with serve(APP, SLOTS) as server:
        for _ in range(5):
            meetings = [server.start("meet") for _ in range(3)]
            assert [server.outcome(each) for each in meetings] == [True] * 3
            assert server.call("throw_into_workers") == "thrown"
        assert server.call("health")["resources"]["concurrentExecutions"] == 0
        assert server.finish() == 0


@pytest.mark.rule("PROC-04", "ERR-07")
def test_interrupting_the_main_thread_counts_as_sigint() -> None:
    with serve(APP, SLOTS) as server:
        call = server.start("interrupt_main")
        assert server.wait() == 128 + signal.SIGINT
        assert server.outcome(call) == "interrupted"
