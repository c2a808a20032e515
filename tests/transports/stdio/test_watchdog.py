"""The thread beside the main thread: whom it names, and when it ends the process.

`end_process` does not return in a real process; here it tells, and the thread goes on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from queue import Queue

import pytest
from attrs import define, field

from foundation_rt.engine.loop_monitor import LoopMonitor
from foundation_rt.transports.stdio.watchdog import Watchdog

PATIENCE = 20.0
LONG_AGO = -3600.0
AN_HOUR = 3600.0


@define(eq=False)
class Bench:
    """A watchdog, the descriptor it watches, and what it tells."""

    watchdog: Watchdog
    monitor: LoopMonitor
    peer: int
    client: int
    blocked: Queue[float] = field(factory=Queue)
    ended: Queue[int] = field(factory=Queue)
    woken: threading.Event = field(factory=threading.Event)

    def block(self, seconds_ago: float = -LONG_AGO) -> None:
        """A turn began so long ago, and lasts."""
        self.monitor.begin_turn(time.monotonic() - seconds_ago)
        self.watchdog.look()

    def hang_up(self) -> None:
        """The client goes."""
        os.close(self.client)
        self.client = -1

    def signal(self, *numbers: int) -> None:
        """What the interpreter writes when signals arrive."""
        os.write(self.watchdog.signal_descriptor, bytes(numbers))

    def exit_code(self) -> int:
        """Wait until it ends the process."""
        return self.ended.get(timeout=PATIENCE)


def make(hang_up_budget: float = 0.0, signal_budget: float = AN_HOUR) -> Bench:
    peer, client = os.pipe()
    monitor = LoopMonitor()
    bench: Bench
    watchdog = Watchdog(
        peer,
        monitor,
        hang_up_budget=hang_up_budget,
        signal_budget=signal_budget,
        on_blocked=lambda seconds: bench.blocked.put(seconds),
        on_signal=lambda: bench.woken.set(),
        end_process=lambda code: bench.ended.put(code),
    )
    bench = Bench(watchdog, monitor, peer, client)
    watchdog.start()
    return bench


@pytest.fixture
def benches() -> Iterator[list[Bench]]:
    """Whatever is put here is stopped and closed."""
    made: list[Bench] = []
    yield made
    for bench in made:
        bench.watchdog.stop()
        for descriptor in {bench.peer, bench.client} - {-1}:
            os.close(descriptor)


@pytest.mark.rule("TIME-09")
def test_a_turn_that_lasts_is_told_once(benches: list[Bench]) -> None:
    bench = make()
    benches.append(bench)
    bench.block()
    assert bench.blocked.get(timeout=PATIENCE) >= 3600
    bench.watchdog.look()
    bench.monitor.end_turn(time.monotonic())
    bench.block(7200)
    assert bench.blocked.get(timeout=PATIENCE) >= 7200
    assert bench.blocked.empty()
    assert bench.ended.empty()


@pytest.mark.rule("PROC-06")
def test_a_client_that_hangs_up_while_a_turn_lasts_ends_the_process(benches: list[Bench]) -> None:
    bench = make(hang_up_budget=0.05)
    benches.append(bench)
    bench.block()
    bench.hang_up()
    assert bench.exit_code() == 0


@pytest.mark.rule("PROC-06")
def test_a_client_that_hung_up_before_the_turn_began_ends_it_too(benches: list[Bench]) -> None:
    bench = make(hang_up_budget=0.05)
    benches.append(bench)
    bench.hang_up()
    bench.block()
    assert bench.exit_code() == 0


@pytest.mark.rule("PROC-14", "PROC-06")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_process_when_its_budget_is_spent(
    benches: list[Bench], number: signal.Signals, code: int
) -> None:
    bench = make(signal_budget=0.05)
    benches.append(bench)
    bench.signal(number)
    assert bench.exit_code() == code
    assert bench.woken.is_set()


@pytest.mark.rule("PROC-14")
@pytest.mark.parametrize("at_once", [True, False])
def test_a_second_signal_ends_it_at_once(benches: list[Bench], at_once: bool) -> None:
    bench = make()
    benches.append(bench)
    if at_once:
        bench.signal(signal.SIGTERM, signal.SIGTERM)
    else:
        bench.signal(signal.SIGTERM)
        assert bench.woken.wait(PATIENCE)
        bench.signal(signal.SIGTERM)
    assert bench.exit_code() == 143


@pytest.mark.rule("PROC-04")
def test_other_signals_are_not_its_business(benches: list[Bench]) -> None:
    bench = make(signal_budget=0.0)
    benches.append(bench)
    bench.signal(signal.SIGUSR1, signal.SIGCHLD, signal.SIGALRM)
    # It has read them when it tells of a turn that it was told of afterwards.
    bench.block()
    bench.blocked.get(timeout=PATIENCE)
    assert bench.ended.empty()


@pytest.mark.rule("PROC-06")
@pytest.mark.parametrize("code", [0, 130])
def test_a_limit_ends_the_process(benches: list[Bench], code: int) -> None:
    bench = make()
    benches.append(bench)
    bench.watchdog.limit(0.05, code)
    assert bench.exit_code() == code


@pytest.mark.rule("PROC-04", "PROC-06")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_changes_the_code_with_which_a_limit_ends_it(
    benches: list[Bench], number: signal.Signals
) -> None:
    bench = make()
    benches.append(bench)
    bench.watchdog.limit(1.0, 0)
    bench.signal(number)
    assert bench.woken.wait(PATIENCE)
    assert bench.exit_code() == 128 + number


@pytest.mark.rule("PROC-06")
def test_stopped_in_time_it_ends_nothing() -> None:
    bench = make(hang_up_budget=0.0, signal_budget=0.0)
    bench.watchdog.limit(AN_HOUR, 1)
    bench.watchdog.stop()
    bench.hang_up()
    os.close(bench.peer)
    assert bench.ended.empty()
    assert "foundation-rt-watchdog" not in [each.name for each in threading.enumerate()]


@pytest.mark.rule("PROC-06")
def test_it_sleeps_while_nothing_happens_and_wakes_when_told(benches: list[Bench]) -> None:
    bench = make()
    benches.append(bench)
    wait_until_asleep(bench)
    bench.block()
    assert not bench.watchdog.asleep
    bench.blocked.get(timeout=PATIENCE)


@pytest.mark.rule("PROC-04", "PROC-06", "HTTP-22")
@pytest.mark.parametrize("by", ["signal", "limit"])
def test_asleep_it_still_ends_the_process(benches: list[Bench], by: str) -> None:
    bench = make(signal_budget=0.05)
    benches.append(bench)
    wait_until_asleep(bench)
    if by == "signal":
        bench.signal(signal.SIGTERM)
    else:
        bench.watchdog.limit(0.05, 143)
    assert bench.exit_code() == 143


def wait_until_asleep(bench: Bench) -> None:
    """It is once it has seen two looks without a turn."""
    deadline = time.monotonic() + PATIENCE
    while not bench.watchdog.asleep:
        assert time.monotonic() < deadline
        os.sched_yield()


# -- when it looks, by a clock of the test's -------------------------------------------------------

NOW = 1000.0


def unstarted(hang_up_budget: float = 0.3) -> Watchdog:
    """A watchdog without its thread."""
    nothing = lambda *_: None  # noqa: E731
    return Watchdog(
        None,
        LoopMonitor(),
        hang_up_budget=hang_up_budget,
        signal_budget=AN_HOUR,
        on_blocked=nothing,
        on_signal=nothing,
        end_process=nothing,
    )


@pytest.mark.rule("TIME-09")
@pytest.mark.parametrize("age", [0.0, 0.4, 0.99])
def test_it_looks_again_when_the_present_turn_has_lasted_a_second(age: float) -> None:
    watchdog = unstarted()
    watchdog.monitor.begin_turn(NOW - age)
    assert watchdog.pause(NOW) == pytest.approx(1.0 - age)


@pytest.mark.rule("PROC-06")
def test_it_looks_when_a_turn_that_lasts_has_spent_the_budget_of_a_hang_up() -> None:
    watchdog = unstarted(hang_up_budget=0.3)
    watchdog.monitor.begin_turn(NOW - 0.5)
    watchdog.note_hang_up(NOW)
    seen = []
    now = NOW
    while now < NOW + 0.3:  # whatever the steps are, the last of them ends with the budget
        pause = watchdog.pause(now)
        assert pause is not None and pause > 0
        now += pause
        seen.append(now)
    assert seen[-1] == pytest.approx(NOW + 0.3)


@pytest.mark.rule("PROC-06")
def test_after_a_hang_up_it_looks_before_a_turn_can_have_spent_the_budget() -> None:
    watchdog = unstarted(hang_up_budget=0.3)
    watchdog.note_hang_up(NOW)
    pause = watchdog.pause(NOW)
    assert pause is not None and pause < 0.3


@pytest.mark.rule("PROC-06")
def test_the_time_to_end_counts_from_a_hang_up_that_a_turn_kept_from_being_noticed(
    benches: list[Bench],
) -> None:
    bench = make(hang_up_budget=AN_HOUR)
    benches.append(bench)
    begun = time.monotonic()
    bench.monitor.begin_turn(begun)
    bench.watchdog.note_hang_up(begun + 0.25)
    bench.monitor.begin_turn(begun + 2)  # the next one notices
    assert bench.watchdog.limit(2 * AN_HOUR, 0) == begun + 0.25 + AN_HOUR


@pytest.mark.rule("PROC-06", "PROC-05")
def test_the_time_to_end_counts_anew_where_many_turns_were_taken_since_the_hang_up(
    benches: list[Bench],
) -> None:
    bench = make(hang_up_budget=1.0)
    benches.append(bench)
    bench.watchdog.note_hang_up(time.monotonic() - AN_HOUR)
    for _ in range(3):
        bench.monitor.begin_turn(time.monotonic())
        bench.monitor.end_turn(time.monotonic())
    before = time.monotonic()
    assert bench.watchdog.limit(AN_HOUR, 0) >= before + AN_HOUR


@pytest.mark.rule("PROC-06")
def test_a_limit_is_never_put_off() -> None:
    bench = make()
    first = bench.watchdog.limit(AN_HOUR, 0)
    assert bench.watchdog.limit(2 * AN_HOUR, 0) == first
    bench.watchdog.stop()
    for descriptor in (bench.peer, bench.client):
        os.close(descriptor)
