"""The place where the main thread waits: for descriptors, timers, other threads and asyncio."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from foundation_rt.kernel.stdio.reactor import GONE, READABLE, Reactor
from tests.lab.servers.process import environment

PATIENCE = 60.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        with suppress(OSError):  # some tests close one
            os.close(descriptor)


@pytest.fixture
def reactor(pipe: tuple[int, int]) -> Iterator[Reactor]:
    """Yield a reactor that is closed before the pipe that it may watch."""
    made = Reactor()
    yield made
    made.close(1.0)
    asyncio.set_event_loop(None)


def run(reactor: Reactor) -> None:
    """Run it until somebody stops it; not for ever."""
    stuck: list[bool] = []

    def give_up() -> None:
        stuck.append(True)
        reactor.stop()

    timer = reactor.call_later(PATIENCE, give_up)
    reactor.run()
    timer.cancel()
    assert not stuck, "nobody stopped it"


# Every behaviour holds before there is an asyncio loop, and after.
@pytest.fixture(params=["plain", "with a loop"])
def either(reactor: Reactor, request: pytest.FixtureRequest) -> Reactor:
    if request.param == "with a loop":
        reactor.prepare_loop()
    return reactor


@pytest.mark.rule("PROC-05")
def test_event_is_passed_to_its_handler(either: Reactor, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    seen: list[bytes] = []

    def read(events: int) -> None:
        assert events & READABLE
        seen.append(os.read(reader, 100))
        if len(seen) == 2:
            either.stop()
        else:
            os.write(writer, b"second")

    either.watch(reader, READABLE, read)
    os.write(writer, b"first")
    run(either)
    assert seen == [b"first", b"second"]


@pytest.mark.rule("PROC-03")
def test_hang_up_is_reported_without_requested_events(
    either: Reactor, pipe: tuple[int, int]
) -> None:
    reader, writer = pipe
    seen: list[int] = []

    def gone(events: int) -> None:
        seen.append(events)
        either.unwatch(writer)
        either.stop()

    either.watch(writer, 0, gone)
    os.close(reader)
    run(either)
    assert len(seen) == 1
    assert seen[0] & GONE


@pytest.mark.rule("PROC-05")
def test_descriptor_unwatched_during_turn_is_not_served(either: Reactor) -> None:
    pipes = [os.pipe(), os.pipe()]
    served: list[int] = []

    def serve_one(number: int) -> Callable[[int], None]:
        def serve(events: int) -> None:
            served.append(number)
            for reader, _ in pipes:
                either.unwatch(reader)
            either.unwatch(999)  # never watched
            either.stop()

        return serve

    for number, (reader, writer) in enumerate(pipes):
        os.write(writer, b"x")
        either.watch(reader, READABLE, serve_one(number))
    run(either)
    assert len(served) == 1
    for descriptor in (each for pair in pipes for each in pair):
        os.close(descriptor)


@pytest.mark.rule("TIME-02")
def test_timers_run_in_order(either: Reactor) -> None:
    order: list[str] = []
    either.call_later(0.03, lambda: (order.append("last"), either.stop()))
    either.call_later(0.02, lambda: order.append("second"))
    either.call_later(0.01, lambda: order.append("first")).cancel()
    either.call_later(0, lambda: either.call_later(0, lambda: order.append("nested")))
    either.call_later(0.01, lambda: order.append("first"))
    run(either)
    assert order == ["nested", "first", "second", "last"]


@pytest.mark.rule("PROC-06")
def test_other_threads_can_wake_and_stop(either: Reactor) -> None:
    woken = threading.Event()
    wakes: list[str] = []

    def on_wake() -> None:
        wakes.append(threading.current_thread().name)
        woken.set()

    def from_outside() -> None:
        for _ in range(1000):
            either.wake()  # many at once count as one, at least
        assert woken.wait(PATIENCE)
        either.stop()

    either.on_wake = on_wake
    thread = threading.Thread(target=from_outside)
    thread.start()
    run(either)
    thread.join(PATIENCE)
    assert set(wakes) == {threading.current_thread().name}


@pytest.mark.rule("PROC-06")
def test_reactor_stopped_before_run_takes_no_turn(either: Reactor) -> None:
    either.stop()
    run(either)


@pytest.mark.rule("RES-10")
def test_each_turn_calls_on_turn_and_is_measured(either: Reactor) -> None:
    during: list[float | None] = []
    either.on_turn = lambda: during.append(either.monitor.turn_started)
    either.call_later(0.01, either.stop)
    run(either)
    assert during
    assert None not in during


@pytest.mark.rule("CALL-12")
def test_coroutines_and_handlers_share_one_thread(reactor: Reactor, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    order: list[str] = []
    arrived: asyncio.Event

    async def converse() -> None:
        nonlocal arrived
        arrived = asyncio.Event()
        await asyncio.sleep(0.01)  # asyncio's timers
        order.append("slept")
        os.write(writer, b"x")
        await arrived.wait()  # a descriptor of the reactor's
        order.append("arrived")
        ours, theirs = await asyncio.to_thread(lambda: ("to", "thread"))
        assert (ours, theirs) == ("to", "thread")
        process = await asyncio.create_subprocess_exec("true")  # asyncio's descriptors
        assert await process.wait() == 0
        order.append("done")
        reactor.stop()

    def on_readable(events: int) -> None:
        os.read(reader, 1)
        arrived.set()

    reactor.watch(reader, READABLE, on_readable)
    # It is made in a turn, as it is when a request arrives.
    reactor.call_later(0, lambda: reactor.start_task(converse(), lambda task: None))
    run(reactor)
    assert order == ["slept", "arrived", "done"]


@pytest.mark.rule("CALL-12", "TIME-02")
def test_started_is_called_after_first_step_of_task(reactor: Reactor) -> None:
    order: list[str] = []

    async def at_once() -> None:
        order.append("at once")

    async def later() -> None:
        order.append("later, first go")
        await asyncio.sleep(0.01)
        order.append("later")
        reactor.stop()

    def started(task: asyncio.Task[None]) -> None:
        order.append(f"started, {'done' if task.done() else 'not done'}")

    def start() -> None:
        reactor.start_task(at_once(), started)
        reactor.start_task(later(), started)

    reactor.prepare_loop()
    reactor.call_later(0, start)  # in a turn of the loop, as a call that arrives
    run(reactor)
    assert order == [
        *("at once", "later, first go", "started, done", "started, not done"),
        "later",
    ]


@pytest.mark.rule("CALL-12")
def test_each_task_has_its_own_context(reactor: Reactor) -> None:
    from contextvars import ContextVar

    variable: ContextVar[int] = ContextVar("variable", default=0)
    seen: list[int] = []

    async def look(number: int) -> None:
        seen.append(variable.get())
        variable.set(number)
        await asyncio.sleep(0)
        assert variable.get() == number
        if number == 3:
            reactor.stop()

    for number in (1, 2, 3):
        reactor.start_task(look(number), lambda task: None)
    run(reactor)
    assert seen == [0, 0, 0]
    assert variable.get() == 0


@pytest.mark.rule("TIME-04")
def test_other_threads_can_call_into_the_loop(reactor: Reactor) -> None:
    reactor.prepare_loop()
    called: list[str] = []

    def inside() -> None:
        called.append(threading.current_thread().name)
        reactor.stop()

    thread = threading.Thread(target=lambda: reactor.call_in_loop(inside))
    thread.start()
    run(reactor)
    thread.join(PATIENCE)
    assert called == [threading.current_thread().name]
    reactor.return_to_host(lambda: called.append("in place"))
    assert called[1:] == ["in place"]


@pytest.mark.rule("ERR-05", "ERR-06")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_task_that_raises_system_exit_does_not_end_process(
    reactor: Reactor, error: BaseException
) -> None:
    reported: list[BaseException | None] = []
    reactor.on_error = lambda message, error: reported.append(error)

    async def leave() -> None:
        raise error

    async def wait_for_it() -> None:
        with pytest.raises(type(error)):
            await asyncio.create_task(leave())
        reactor.stop()

    reactor.start_task(wait_for_it(), lambda task: None)
    run(reactor)
    assert error in reported


@pytest.mark.rule("ERR-05")
def test_unretrieved_exception_is_reported(reactor: Reactor) -> None:
    reported: list[tuple[str, BaseException | None]] = []
    reactor.on_error = lambda message, error: reported.append((message, error))

    async def fail() -> None:
        raise ValueError("unheard")

    async def forget() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(0)
        del task
        gc.collect()
        reactor.stop()

    reactor.start_task(forget(), lambda task: None)
    run(reactor)
    [(message, error)] = reported
    assert "never retrieved" in message
    assert isinstance(error, ValueError)


@pytest.mark.rule("PROC-06")
def test_closing_cancels_tasks_within_grace() -> None:
    reactor = Reactor()
    ended: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("tidied up")

    async def refuse() -> None:
        for _ in range(3):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("refused")

    async def generate() -> None:
        async def numbers():
            try:
                yield 1
                yield 2
            finally:
                ended.append("generator closed")

        generator = numbers()
        await anext(generator)
        generate.kept = generator  # type: ignore[attr-defined]

    reactor.start_task(tidy(), lambda task: None)
    reactor.start_task(refuse(), lambda task: None)
    reactor.start_task(generate(), lambda task: None)
    reactor.call_later(0.01, reactor.stop)
    run(reactor)
    loop = reactor.prepare_loop()
    refusing = [each for each in asyncio.all_tasks(loop) if each.get_coro().__name__ == "refuse"]
    reactor.close(0.01)
    assert loop.is_closed()
    assert sorted(ended) == ["generator closed", "refused", "tidied up"]
    for task in refusing:  # nobody will run it any more; asyncio would complain of that
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.get_coro().close()
    asyncio.set_event_loop(None)


@pytest.mark.rule("PROC-06")
def test_closing_closes_every_descriptor() -> None:
    def open_descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = open_descriptors()
    for with_loop in (False, True):
        reactor = Reactor()
        if with_loop:
            reactor.prepare_loop()
        reactor.call_later(0, reactor.stop)
        run(reactor)
        reactor.close(1.0)
    asyncio.set_event_loop(None)
    assert open_descriptors() == before


@pytest.mark.rule("PROC-08")
def test_asyncio_is_not_imported_without_coroutine() -> None:
    script = (
        "import sys\n"
        "from foundation_rt.kernel.stdio.reactor import Reactor\n"
        "reactor = Reactor()\n"
        "reactor.call_later(0, reactor.stop)\n"
        "reactor.run()\n"
        "reactor.close(1)\n"
        "assert 'asyncio' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], env=environment(), check=True, timeout=PATIENCE)
