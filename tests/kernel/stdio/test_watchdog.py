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

from foundation_rt.base import free_memory
from foundation_rt.kernel.engine.loop_monitor import LoopMonitor
from foundation_rt.kernel.stdio.watchdog import Watchdog
from tests.lab.waiting import PATIENCE, block_until

LONG_AGO = -3600.0
AN_HOUR = 3600.0


@define(eq=False)
class WatchdogHarness:
    """A watchdog, the descriptor it watches, and its calls."""

    watchdog: Watchdog
    monitor: LoopMonitor
    peer: int
    client: int
    blocked: Queue[float] = field(factory=Queue)
    ended: Queue[int] = field(factory=Queue)
    woken: threading.Event = field(factory=threading.Event)

    def block(self, seconds_ago: float = -LONG_AGO) -> None:
        """Begin a turn in the past, which lasts."""
        self.monitor.begin_turn(time.monotonic() - seconds_ago)
        self.watchdog.look()

    def hang_up(self) -> None:
        """Close the client's end."""
        os.close(self.client)
        self.client = -1

    def signal(self, *numbers: int) -> None:
        """Write what the interpreter writes when signals arrive."""
        os.write(self.watchdog.signal_descriptor, bytes(numbers))

    def exit_code(self) -> int:
        """Wait until it ends the process."""
        return self.ended.get(timeout=PATIENCE)


def make(hang_up_budget: float = 0.0, signal_budget: float = AN_HOUR) -> WatchdogHarness:
    peer, client = os.pipe()
    monitor = LoopMonitor()
    harness: WatchdogHarness
    watchdog = Watchdog(
        peer,
        monitor,
        hang_up_budget=hang_up_budget,
        signal_budget=signal_budget,
        on_blocked=lambda seconds: harness.blocked.put(seconds),
        on_signal=lambda: harness.woken.set(),
        end_process=lambda code: harness.ended.put(code),
    )
    harness = WatchdogHarness(watchdog, monitor, peer, client)
    watchdog.start()
    return harness


@pytest.fixture
def harnesses() -> Iterator[list[WatchdogHarness]]:
    """Stop and close the harnesses that a test adds."""
    made: list[WatchdogHarness] = []
    yield made
    for harness in made:
        harness.watchdog.stop()
        for descriptor in {harness.peer, harness.client} - {-1}:
            os.close(descriptor)


@pytest.mark.rule("TIME-09")
def test_blocked_turn_is_reported_once(harnesses: list[WatchdogHarness]) -> None:
    harness = make()
    harnesses.append(harness)
    harness.block()
    assert harness.blocked.get(timeout=PATIENCE) >= 3600
    harness.watchdog.look()
    harness.monitor.end_turn(time.monotonic())
    harness.block(7200)
    assert harness.blocked.get(timeout=PATIENCE) >= 7200
    assert harness.blocked.empty()
    assert harness.ended.empty()


@pytest.mark.rule("PROC-06")
def test_hang_up_during_turn_ends_process(harnesses: list[WatchdogHarness]) -> None:
    harness = make(hang_up_budget=0.05)
    harnesses.append(harness)
    harness.block()
    harness.hang_up()
    assert harness.exit_code() == 0


@pytest.mark.rule("PROC-06")
def test_hang_up_before_turn_ends_process(harnesses: list[WatchdogHarness]) -> None:
    harness = make(hang_up_budget=0.05)
    harnesses.append(harness)
    harness.hang_up()
    harness.block()
    assert harness.exit_code() == 0


@pytest.mark.rule("PROC-14", "PROC-06")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_process_after_budget(
    harnesses: list[WatchdogHarness], number: signal.Signals, code: int
) -> None:
    harness = make(signal_budget=0.05)
    harnesses.append(harness)
    harness.signal(number)
    assert harness.exit_code() == code
    assert harness.woken.is_set()


@pytest.mark.rule("PROC-14")
@pytest.mark.parametrize("at_once", [True, False])
def test_second_signal_ends_process_at_once(
    harnesses: list[WatchdogHarness], at_once: bool
) -> None:
    harness = make()
    harnesses.append(harness)
    if at_once:
        harness.signal(signal.SIGTERM, signal.SIGTERM)
    else:
        harness.signal(signal.SIGTERM)
        assert harness.woken.wait(PATIENCE)
        harness.block()  # what it reports after it has looked at its limit
        harness.blocked.get(timeout=PATIENCE)
        assert harness.ended.empty()
        harness.signal(signal.SIGTERM)
    assert harness.exit_code() == 143


@pytest.mark.rule("PROC-04")
def test_other_signals_end_nothing_and_wake_the_main_thread(
    harnesses: list[WatchdogHarness],
) -> None:
    harness = make(signal_budget=0.0)
    harnesses.append(harness)
    harness.signal(signal.SIGUSR1, signal.SIGCHLD, signal.SIGALRM)
    # It has read them when it tells of a turn that it was told of afterwards.
    harness.block()
    harness.blocked.get(timeout=PATIENCE)
    assert harness.woken.is_set()  # where Python calls the handlers that tools have set
    assert harness.ended.empty()


@pytest.mark.rule("PROC-06")
@pytest.mark.parametrize("code", [0, 130])
def test_limit_ends_process(harnesses: list[WatchdogHarness], code: int) -> None:
    harness = make()
    harnesses.append(harness)
    harness.watchdog.limit(0.05, code)
    assert harness.exit_code() == code


@pytest.mark.rule("PROC-04", "PROC-06")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_changes_exit_code_of_limit(
    harnesses: list[WatchdogHarness], number: signal.Signals
) -> None:
    harness = make()
    harnesses.append(harness)
    harness.watchdog.limit(1.0, 0)
    harness.signal(number)
    assert harness.woken.wait(PATIENCE)
    assert harness.exit_code() == 128 + number


@pytest.mark.rule("PROC-06")
def test_stopped_watchdog_does_not_end_process() -> None:
    harness = make(hang_up_budget=0.0, signal_budget=0.0)
    harness.watchdog.limit(AN_HOUR, 1)
    harness.watchdog.stop()
    harness.hang_up()
    os.close(harness.peer)
    assert harness.ended.empty()
    assert "foundation-rt-watchdog" not in [each.name for each in threading.enumerate()]


@pytest.mark.rule("PROC-06")
def test_idle_watchdog_sleeps_and_can_be_woken(harnesses: list[WatchdogHarness]) -> None:
    harness = make()
    harnesses.append(harness)
    wait_until_asleep(harness)
    harness.block()
    assert not harness.watchdog.asleep
    harness.blocked.get(timeout=PATIENCE)


@pytest.mark.rule("PROC-04", "PROC-06", "HTTP-22")
@pytest.mark.parametrize("by", ["signal", "limit"])
def test_sleeping_watchdog_still_ends_process(harnesses: list[WatchdogHarness], by: str) -> None:
    harness = make(signal_budget=0.05)
    harnesses.append(harness)
    wait_until_asleep(harness)
    if by == "signal":
        harness.signal(signal.SIGTERM)
    else:
        harness.watchdog.limit(0.05, 143)
    assert harness.exit_code() == 143


@pytest.mark.rule("PROC-18")
def test_watchdog_that_falls_asleep_gives_memory_back(
    harnesses: list[WatchdogHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    levels: Queue[int] = Queue()
    monkeypatch.setattr(free_memory, "give_back", lambda level: levels.put(level) or 7)
    harness = make()
    harnesses.append(harness)
    assert levels.get(timeout=PATIENCE) == 0
    harness.watchdog.look()
    assert levels.get(timeout=PATIENCE) == 7


def wait_until_asleep(harness: WatchdogHarness) -> None:
    block_until(lambda: harness.watchdog.asleep, "two looks without a turn")


# -- when it looks, by a clock of the test's -----------------------------------------------------

NOW = 1000.0


def unstarted(hang_up_budget: float = 0.3) -> Watchdog:
    """Return a watchdog without its thread."""
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
def test_next_check_is_when_turn_has_lasted_a_second(age: float) -> None:
    watchdog = unstarted()
    watchdog.monitor.begin_turn(NOW - age)
    assert watchdog.pause(NOW) == pytest.approx(1.0 - age)


@pytest.mark.rule("PROC-06")
def test_next_check_is_when_turn_has_used_hang_up_budget() -> None:
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
def test_after_hang_up_checks_precede_end_of_budget() -> None:
    watchdog = unstarted(hang_up_budget=0.3)
    watchdog.note_hang_up(NOW)
    pause = watchdog.pause(NOW)
    assert pause is not None and pause < 0.3


@pytest.mark.rule("PROC-06")
def test_limit_counts_from_hang_up_hidden_by_turn(
    harnesses: list[WatchdogHarness],
) -> None:
    harness = make(hang_up_budget=AN_HOUR)
    harnesses.append(harness)
    begun = time.monotonic()
    harness.monitor.begin_turn(begun)
    harness.watchdog.note_hang_up(begun + 0.25)
    harness.monitor.begin_turn(begun + 2)  # the next one notices
    assert harness.watchdog.limit(2 * AN_HOUR, 0) == begun + 0.25 + AN_HOUR


@pytest.mark.rule("PROC-06", "PROC-05")
def test_limit_counts_from_now_after_many_turns_since_hang_up(
    harnesses: list[WatchdogHarness],
) -> None:
    harness = make(hang_up_budget=1.0)
    harnesses.append(harness)
    harness.watchdog.note_hang_up(time.monotonic() - AN_HOUR)
    for _ in range(3):
        harness.monitor.begin_turn(time.monotonic())
        harness.monitor.end_turn(time.monotonic())
    before = time.monotonic()
    assert harness.watchdog.limit(AN_HOUR, 0) >= before + AN_HOUR


@pytest.mark.rule("PROC-06")
def test_limit_is_never_postponed() -> None:
    harness = make()
    first = harness.watchdog.limit(AN_HOUR, 0)
    assert harness.watchdog.limit(2 * AN_HOUR, 0) == first
    harness.watchdog.stop()
    for descriptor in (harness.peer, harness.client):
        os.close(descriptor)
