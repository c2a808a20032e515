"""Timers, loops and threads: the three surroundings the engine runs in."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.timers import TimerQueue
from foundation_rt.features.embedding import Background, HostLoop, TimerThread
from foundation_rt.kernel.engine.loop_monitor import LoopMonitor
from tests.lab.clock.virtual_loop import VirtualLoop

PATIENCE = 60.0


# -- a queue of timers -----------------------------------------------------------------------------


@pytest.mark.rule("TIME-01")
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 20)),
            st.tuples(st.just("cancel"), st.integers(0, 40)),
            st.tuples(st.just("pop"), st.integers(0, 20)),
        ),
        max_size=60,
    )
)
def test_queue_yields_due_timers_in_order_without_cancelled_ones(
    steps: list[tuple[str, int]],
) -> None:
    queue = TimerQueue()
    timers: list[Any] = []
    waiting: list[tuple[int, int]] = []  # due, number
    fired: list[int] = []
    for what, value in steps:
        if what == "add":
            number = len(timers)
            waiting.append((value, number))
            timers.append(queue.add(value, partial(fired.append, number)))
        elif what == "cancel" and value < len(timers):
            timers[value].cancel()
            timers[value].cancel()  # harmless
            waiting = [each for each in waiting if each[1] != value]
        elif what == "pop":
            due = sorted(each for each in waiting if each[0] <= value)
            waiting = [each for each in waiting if each[0] > value]
            for callback in queue.pop_due(value):
                callback()
            assert fired == [number for _, number in due]
            fired.clear()
        assert queue.next_due() == min((due for due, _ in waiting), default=None)


@pytest.mark.rule("TIME-01")
def test_cancelled_timers_do_not_accumulate() -> None:
    """Thousands of calls a second, each with a deadline that is far off and soon cancelled."""
    queue = TimerQueue()
    kept = queue.add(10_000.0, lambda: None)
    for number in range(10_000):
        queue.add(30.0 + number, lambda: None).cancel()
        assert len(queue._heap) <= 256
    assert queue.next_due() == 10_000.0
    kept.cancel()
    assert queue.next_due() is None


# -- the loop of a host ----------------------------------------------------------------------------


@pytest.mark.rule("EMBED-02")
async def test_on_a_hosts_loop_timers_tasks_and_returns_happen_on_it(clock: ManualClock) -> None:
    host = HostLoop(asyncio.get_running_loop())
    happened: list[tuple[str, float]] = []
    tasks: list[asyncio.Task[None]] = []

    def note(what: str) -> None:
        assert asyncio.get_running_loop() is host.loop
        happened.append((what, clock.monotonic()))

    async def work() -> None:
        note("task")

    taken_back = host.call_later(1.0, lambda: note("never"))
    host.call_later(2.0, lambda: note("timer"))
    taken_back.cancel()
    host.start_task(work(), tasks.append)
    thread = threading.Thread(target=lambda: host.return_to_host(lambda: note("returned")))
    thread.start()
    thread.join(PATIENCE)
    host.call_in_loop(lambda: note("called"))
    await asyncio.sleep(3)
    [task] = tasks
    assert task.done()
    assert sorted(happened) == [("called", 0), ("returned", 0), ("task", 0), ("timer", 2.0)]


@pytest.mark.rule("EMBED-02")
def test_callback_to_a_closed_loop_is_dropped() -> None:
    """What can only be done on the host's loop is done nowhere else."""
    loop = asyncio.new_event_loop()
    loop.close()
    HostLoop(loop).return_to_host(lambda: pytest.fail("there is no loop to do this on"))


@pytest.mark.rule("RES-20")
def test_host_loop_is_probed_ten_times_a_second_while_it_is_used() -> None:
    clock = ManualClock()
    loop = VirtualLoop(clock)
    wanted = True
    probes: list[float] = []

    class Counting(LoopMonitor):
        def end_turn(self, now: float) -> None:
            probes.append(clock.monotonic())

    HostLoop(loop).probe(Counting(), lambda: wanted)
    loop.run_until_complete(asyncio.sleep(1.05))
    assert probes == [pytest.approx(0.1 * number, abs=1e-4) for number in range(1, 11)]
    wanted = False
    loop.run_until_complete(asyncio.sleep(1.0))
    assert len(probes) == 11
    loop.close()


# -- a host without a loop -------------------------------------------------------------------------


def background() -> tuple[Background, SimpleQueue[tuple[str, BaseException | None]]]:
    errors: SimpleQueue[tuple[str, BaseException | None]] = SimpleQueue()
    return Background(lambda message, error: errors.put((message, error))), errors


@pytest.mark.rule("EMBED-03")
def test_without_a_loop_a_worker_returns_in_place() -> None:
    scheduler, _ = background()
    returned: list[threading.Thread] = []
    scheduler.return_to_host(lambda: returned.append(threading.current_thread()))
    assert returned == [threading.current_thread()]


@pytest.mark.rule("EMBED-03", "ERR-05")
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_task_that_tries_to_end_the_process_does_not_end_the_loop_thread(
    error: type[BaseException],
) -> None:
    scheduler, errors = background()

    async def leave() -> None:
        raise error

    scheduler.start_task(leave(), lambda task: None)
    _, reported = errors.get(timeout=PATIENCE)
    assert isinstance(reported, error)
    alive: SimpleQueue[bool] = SimpleQueue()
    scheduler.call_in_loop(lambda: alive.put(True))
    assert alive.get(timeout=PATIENCE)


@pytest.mark.rule("EMBED-03", "TIME-01")
def test_timer_that_is_due_earlier_is_not_kept_waiting_by_one_that_is_due_later() -> None:
    timers = TimerThread()
    fired: SimpleQueue[str] = SimpleQueue()
    late = timers.call_later(3600.0, lambda: fired.put("late"))
    timers.call_later(0.01, lambda: fired.put("second"))
    timers.call_later(0.001, lambda: fired.put("first"))
    assert [fired.get(timeout=PATIENCE), fired.get(timeout=PATIENCE)] == ["first", "second"]
    late.cancel()
    assert fired.empty()


@pytest.mark.rule("EMBED-03")
def test_timers_can_be_added_from_many_threads_and_each_fires_once() -> None:
    timers = TimerThread()
    fired: SimpleQueue[int] = SimpleQueue()

    def add(first: int) -> None:
        for number in range(first, 400, 4):
            timers.call_later((number % 7) / 2000, partial(fired.put, number))

    threads = [threading.Thread(target=add, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(fired.get(timeout=PATIENCE) for _ in range(400)) == list(range(400))
    assert fired.empty()
