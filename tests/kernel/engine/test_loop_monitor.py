"""The p99 delay of a loop, told from its busy turns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.features.embedding import HostLoopMonitor
from foundation_rt.kernel.engine.loop_monitor import WINDOW_SECONDS, LoopMonitor


def watched(*turns: tuple[float, float]) -> LoopMonitor:
    monitor = LoopMonitor()
    for begin, end in turns:
        monitor.begin_turn(begin)
        monitor.end_turn(end)
    return monitor


def chance_of_waiting_longer(delay_seconds: float, turns: list[tuple[float, float]]) -> float:
    """For an event that arrives at a random moment of the window [0, 10]."""
    longer = sum(max(0.0, (end - begin) - delay_seconds) for begin, end in turns)
    return longer / WINDOW_SECONDS


BACK_TO_BACK = [(number / 1250, (number + 1) / 1250) for number in range(12_500)]
P99: dict[str, tuple[list[tuple[float, float]], float]] = {
    "idle": ([], 0.0),
    "an empty turn": ([(0.0, 0.0)], 0.0),
    "blocked for less than a hundredth of the time": ([(0.0, 0.099)], 0.0),
    # An event waits longer than 0.9 s if it comes in the first 0.1 s of the turn: 1 % of 10 s.
    "one long turn": ([(3.0, 4.0)], 900.0),
    "two equal turns": ([(1.0, 1.5), (2.0, 2.5)], 450.0),
    "shorter turns do not lower it": ([(1.0, 1.002), (3.0, 4.0), (5.0, 5.2)], 900.0),
    "turns under a millisecond do not count": (BACK_TO_BACK, 0.0),
}


@pytest.mark.rule("RES-10", "RES-20")
@pytest.mark.parametrize(("turns", "p99_ms"), P99.values(), ids=P99)
def test_p99_of_turns(turns: list[tuple[float, float]], p99_ms: float) -> None:
    assert watched(*turns).p99_ms(10.0) == (pytest.approx(p99_ms) if p99_ms else 0.0)


@pytest.mark.rule("RES-10")
def test_the_turn_under_way_counts() -> None:
    monitor = LoopMonitor()
    monitor.begin_turn(5.0)
    assert monitor.turn_started == 5.0
    assert monitor.p99_ms(7.0) == pytest.approx(1900.0)
    monitor.end_turn(7.0)
    assert monitor.turn_started is None
    assert monitor.p99_ms(7.0) == pytest.approx(1900.0)


@pytest.mark.rule("RES-10")
def test_turns_older_than_ten_seconds_do_not_count() -> None:
    monitor = watched((0.0, 2.0))
    assert monitor.p99_ms(10.0) == pytest.approx(1900.0)
    assert monitor.p99_ms(11.0) == pytest.approx(900.0)
    assert monitor.p99_ms(12.0) == 0.0
    assert monitor.p99_ms(100.0) == 0.0


@pytest.mark.rule("RES-10")
def test_end_of_a_turn_without_a_begin_is_ignored() -> None:
    monitor = LoopMonitor()
    monitor.end_turn(5.0)
    assert monitor.p99_ms(5.0) == 0.0


turn_lists = st.lists(
    st.tuples(st.floats(0, 0.5), st.floats(0.0011, 1.5)), min_size=1, max_size=12
).map(lambda pairs: _laid_out(pairs))


def _laid_out(pairs: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Pauses and lengths as turns one after the other, as many as fit into the window."""
    turns, now = [], 0.0
    for pause, length in pairs:
        begin, end = now + pause, now + pause + length
        if end > WINDOW_SECONDS:
            break
        turns.append((begin, end))
        now = end
    return turns


@pytest.mark.rule("RES-10")
@given(turn_lists)
def test_p99_is_exceeded_with_a_probability_of_one_percent(
    turns: list[tuple[float, float]],
) -> None:
    delay_seconds = watched(*turns).p99_ms(WINDOW_SECONDS) / 1000
    chance = chance_of_waiting_longer(delay_seconds, turns)
    assert chance == pytest.approx(0.01) if delay_seconds else chance <= 0.01 + 1e-9


@pytest.mark.rule("RES-10")
@given(st.lists(st.floats(0, 3), max_size=200))
def test_the_delay_is_never_longer_than_the_longest_turn(lengths: list[float]) -> None:
    monitor, now = LoopMonitor(), 0.0
    for length in lengths:
        monitor.begin_turn(now)
        now += length
        monitor.end_turn(now)
        assert 0.0 <= monitor.p99_ms(now) <= 1000 * max(lengths) + 1e-6


class Host:
    """A host whose probe is run by hand: as long as it is wanted, it goes on."""

    def __init__(self) -> None:
        self.probes: list[Callable[[], bool]] = []

    def probe(self, monitor: LoopMonitor, wanted: Callable[[], bool]) -> None:
        self.probes.append(wanted)

    def probe_all(self) -> int:
        """Let every probe come round once; return how many go on."""
        self.probes = [wanted for wanted in self.probes if wanted()]
        return len(self.probes)


class LoopPeer:
    closed = False


@pytest.mark.rule("RES-20")
def test_host_loop_has_one_probe_while_any_connection_is_open() -> None:
    host = Host()
    monitor = HostLoopMonitor(host)  # type: ignore[arg-type]
    first, second, third = LoopPeer(), LoopPeer(), LoopPeer()
    monitor.watch(first)  # type: ignore[arg-type]
    monitor.watch(second)  # type: ignore[arg-type]
    assert host.probe_all() == 1
    first.closed = True
    assert host.probe_all() == 1
    second.closed = True
    assert host.probe_all() == 0
    monitor.watch(third)  # type: ignore[arg-type]
    assert host.probe_all() == 1


@pytest.mark.rule("RES-20")
def test_new_user_before_the_last_one_closed_shares_the_probe() -> None:
    host = Host()
    monitor = HostLoopMonitor(host)  # type: ignore[arg-type]
    first, second = LoopPeer(), LoopPeer()
    monitor.watch(first)  # type: ignore[arg-type]
    first.closed = True
    monitor.watch(second)  # type: ignore[arg-type]
    assert host.probe_all() == 1
    second.closed = True
    assert host.probe_all() == 0
