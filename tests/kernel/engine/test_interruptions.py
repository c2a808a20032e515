"""Exceptions that belong to no handler: what foreign classes raise, what other threads throw in."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import orjson
import pytest

import foundation_rt
from foundation_rt import ToolContext
from foundation_rt.kernel.engine.worker_threads import WorkerPool
from foundation_rt.kernel.stdio.reactor import Reactor
from foundation_rt.protocol.jsonrpc import parse
from tests.lab.clock.interrupter import Interrupter, throw_into
from tests.lab.servers.engine import EngineHarness
from tests.lab.values.hostile_values import ENDINGS, RESULTS, Hostile, explode

PACKAGE = foundation_rt.__path__[0]
PATIENCE = 60.0


class Thrown(Exception):
    """What another thread throws into this one."""


# -- what a result, or an error, raises when it is looked at ---------------------------------------


def returning(make: Callable[[], Any]) -> Callable[[], Any]:
    return make


def raising(make: Callable[[], BaseException]) -> Callable[[], Any]:
    def fail() -> Any:
        raise make()

    return fail


ENDS = [returning(make) for make in RESULTS] + [raising(make) for make in ENDINGS]


@pytest.mark.rule("ERR-08", "CALL-09", "CALL-15")
@pytest.mark.parametrize("aborted", [False, True], ids=["waited-for", "cancelled"])
@pytest.mark.parametrize("way", ["inline", "worker", "task"])
@pytest.mark.parametrize("end", ENDS, ids=[f"end{number}" for number in range(len(ENDS))])
def test_values_that_raise_when_read_are_answered(
    end: Callable[[], Any], way: str, aborted: bool
) -> None:
    with EngineHarness() as bench:

        def function(arguments: dict[str, Any], context: ToolContext) -> Any:
            if aborted:
                bench.peer.connection.cancel(1)
            return end()

        async def coroutine(arguments: dict[str, Any], context: ToolContext) -> Any:
            return function(arguments, context)

        name = bench.tool(coroutine if way == "task" else function, inline=way == "inline")
        bench.start(name)
        if way == "worker":
            bench.workers.run()
            bench.scheduler.settle()  # one of the results is awaited
        [record] = bench.rig.records
        if aborted:
            assert bench.peer.received == []
            assert record["outcome"] == "late_completed"
        else:
            assert len(bench.peer.answers(1)) == 1
            assert record["outcome"] in (
                "tool_error",
                "success",
            )  # some can be written in spite of it
        bench.assert_over()


# -- what is thrown in by another thread -----------------------------------------------------------


def in_what_a_message_leads_to(frame: FrameType) -> bool:
    """From `Connection.handle` on; what calls it has the message, and is given the exception.

    Without the log, which takes more steps than all else: what is thrown into it costs a record.
    """
    code = frame.f_code
    return (
        code.co_filename.startswith(PACKAGE)
        and code.co_name not in ("take", "_run_in_thread")
        and "/logs/" not in code.co_filename
    )


@pytest.mark.rule("ERR-07", "CALL-15")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("way", "error"),
    [("inline", Thrown()), ("worker", Thrown()), ("task", Thrown()), ("task", KeyboardInterrupt())],
)
def test_call_interrupted_anywhere_is_answered_once_and_keeps_no_slot(
    way: str, error: BaseException
) -> None:
    with EngineHarness() as bench:

        def function(arguments: dict[str, Any], context: ToolContext) -> str:
            return "done"

        async def coroutine(arguments: dict[str, Any], context: ToolContext) -> str:
            return "done"

        name = bench.tool(coroutine if way == "task" else function, inline=way == "inline")
        for at in itertools.count():
            call = {"jsonrpc": "2.0", "id": at, "method": "tools/call", "params": {"name": name}}
            message = parse(orjson.dumps(call))
            interrupter = Interrupter(at, error, in_what_a_message_leads_to)
            try:
                with interrupter.watching():
                    bench.peer.connection.handle(message)
                    if bench.workers.waiting:
                        bench.workers.run()
                    bench.scheduler.settle()
            except (Thrown, KeyboardInterrupt):
                pass  # it was thrown at whoever feeds, too
            while bench.workers.waiting:
                bench.workers.run()
            bench.scheduler.settle()
            assert len(bench.peer.answers(at)) == 1, interrupter.place
            assert len(bench.rig.records) <= 1, interrupter.place
            bench.assert_over()
            bench.rig.sink.clear()
            if interrupter.place is None:
                assert at > 30
                break


@contextmanager
def untraced() -> Iterator[None]:
    """Stop tracing this thread.

    On Python 3.11 a traced thread, as under coverage, makes no further step while an exception
    waits for another thread that does not run.
    """
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


@pytest.mark.rule("ERR-07")
def test_worker_thread_survives_an_injected_exception_and_loses_no_work() -> None:
    reported: list[BaseException | None] = []
    pool = WorkerPool(1, lambda message, error: reported.append(error))
    idents: list[int] = []
    begun = threading.Event()
    pool.submit(lambda: (idents.append(threading.get_ident()), begun.set()))  # type: ignore
    assert begun.wait(PATIENCE)
    with untraced():
        for _ in range(10):
            # It waits for work: what is thrown arrives with the next piece of it.
            throw_into(idents[0], Thrown)
            done = threading.Event()
            pool.submit(done.set)
            assert done.wait(PATIENCE)
    assert {type(each) for each in reported} == {Thrown}


@pytest.mark.rule("ERR-08")
def test_work_that_raises_is_reported_and_its_thread_goes_on() -> None:
    reported: list[BaseException | None] = []
    pool = WorkerPool(1, lambda message, error: reported.append(error))
    pool.submit(explode)
    threads = []
    done = threading.Event()
    pool.submit(lambda: (threads.append(threading.current_thread()), done.set()))  # type: ignore
    assert done.wait(PATIENCE)
    assert threads[0].name == "foundation-rt-worker-1"
    assert [type(each) for each in reported] == [Hostile]


@pytest.mark.rule("ERR-07")
@pytest.mark.parametrize("with_loop", [False, True], ids=["reactor", "asyncio"])
def test_main_thread_survives_an_injected_exception(with_loop: bool) -> None:
    reactor = Reactor()
    reported: list[tuple[str, BaseException | None]] = []
    reactor.on_error = lambda message, error: reported.append((message, error))
    if with_loop:
        reactor.prepare_loop()
    woken: list[int] = []

    def wake() -> None:
        woken.append(len(woken))
        if len(woken) < 5:
            raise Thrown  # nobody wakes it again, but what notices that a turn was broken off
        reactor.stop()

    reactor.on_wake = wake
    reactor.wake()
    reactor.run()
    reactor.close(0)
    assert len(woken) == 5
    assert len(reported) == 4
    assert {type(error) for _, error in reported} == {Thrown}


@pytest.mark.rule("ERR-07")
def test_timers_that_were_due_run_although_one_raised() -> None:
    reactor = Reactor()
    ran: list[str] = []
    reactor.call_later(0, explode)
    reactor.call_later(0, lambda: ran.append("second"))
    reactor.call_later(0, reactor.stop)
    reactor.run()
    reactor.close(0)
    assert ran == ["second"]


@pytest.mark.rule("ERR-07")
def test_persistent_failure_is_raised() -> None:
    reactor = Reactor()
    reactor.on_turn = explode
    reactor.wake()
    with pytest.raises(Hostile):
        reactor.run()
    reactor.close(0)
