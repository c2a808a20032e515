"""The states of one server, row by row, and in any order of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.coordinator.server_state import (
    FLAPPING_DELAY,
    LISTED_AFTER_LOSS,
    LONGEST_DELAY,
    ServerLifecycle,
    ServerState,
)

STARTING, READY, LOST, FAILED, NEEDS_LOGIN, DISABLED = ServerState


def ready(now: float = 0.0) -> ServerLifecycle:
    server = ServerLifecycle()
    server.connected(now)
    return server


@pytest.mark.rule("COORD-10")
def test_states_follow_the_table() -> None:
    server = ServerLifecycle()
    assert server.state is STARTING
    server.attempt_failed(0, "no such program", 1)
    assert (server.state, server.reason, server.attempt_at) == (FAILED, "no such program", 1)
    server.connected(1)
    assert (server.state, server.reason, server.attempt_at) == (READY, None, None)
    server.ended(70, "killed", 1)
    assert (server.state, server.reason, server.attempt_at) == (LOST, "killed", 71)
    server.attempt_failed(71, "no such program", 1)
    assert (server.state, server.reason) == (LOST, "no such program")
    server.connected(72)
    assert server.state is READY
    server.attempt_failed(73, "Run: foundation-rt login", 1, needs_login=True)
    assert (server.state, server.attempt_at) == (NEEDS_LOGIN, 74)
    server.attempt_failed(74, "no connection", 1)
    assert server.state is FAILED
    assert ServerLifecycle.disabled().state is DISABLED
    unusable = ServerLifecycle.unusable("bad id")
    assert (unusable.state, unusable.reason, unusable.attempt_at) == (FAILED, "bad id", None)


@pytest.mark.rule("COORD-12")
@pytest.mark.parametrize("draw", [0.0, 1.0])
def test_delay_doubles_from_one_second_to_a_minute(draw: float) -> None:
    server = ready()
    server.ended(100, "killed", draw)
    delays = []
    for _ in range(9):
        assert server.attempt_at is not None
        delays.append((server.attempt_at - 100) / (0.5 + 0.5 * draw))
        server.attempt_failed(100, "refused", draw)
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.rule("COORD-13")
def test_tools_stay_listed_for_30_s_after_a_loss() -> None:
    server = ready()
    server.ended(100, "killed", 0)
    server.pass_time(100 + LISTED_AFTER_LOSS - 0.1)
    assert server.is_listed
    server.pass_time(100 + LISTED_AFTER_LOSS)
    assert not server.is_listed
    server.connected(200)
    assert server.is_listed


@pytest.mark.rule("COORD-14")
def test_five_ends_in_a_minute_fail_a_server_that_is_then_tried_each_minute() -> None:
    server = ready()
    for second in (1, 2, 3, 4):
        server.ended(second, "killed", 0)
        assert server.state is LOST
        server.connected(second)
    server.ended(5, "killed", 0)
    assert server.state is FAILED
    assert server.reason == "killed; it ended 5 times in 60 s"
    assert server.attempt_at == 5 + FLAPPING_DELAY
    server.attempt_failed(65, "refused", 0)
    assert server.attempt_at == 65 + FLAPPING_DELAY
    # One that ends soon again is not trusted; one that stays for a minute is.
    server.connected(200)
    server.ended(201, "killed", 0)
    assert server.state is FAILED
    server.connected(300)
    server.ended(361, "killed", 1)
    assert (server.state, server.attempt_at) == (LOST, 362)


events = st.lists(
    st.tuples(st.floats(0, 90), st.sampled_from(["connected", "failed", "ended"]), st.floats(0, 1))
)


@pytest.mark.rule("COORD-10", "COORD-12", "COORD-13", "COORD-14")
@given(events)
def test_any_order_of_events_keeps_the_invariants(
    history: list[tuple[float, str, float]],
) -> None:
    server, now, was_ready, hidden_at = ServerLifecycle(), 0.0, False, None
    for pause, event, draw in history:
        now += pause
        server.pass_time(now)
        if event == "connected" and server.state is not READY:
            server.connected(now)
            was_ready, hidden_at = True, None
        elif event == "failed" and server.state is not READY:
            server.attempt_failed(now, "why", draw)
        elif event == "ended" and server.state is READY:
            server.ended(now, "why", draw)
            hidden_at = now + LISTED_AFTER_LOSS
        server.pass_time(now)
        assert (server.state is READY) == (server.attempt_at is None) or server.state is STARTING
        assert (server.reason is None) == (server.state in (READY, STARTING))
        assert server.state is not LOST or was_ready
        assert server.is_listed == (was_ready and (hidden_at is None or now < hidden_at))
        if server.attempt_at is not None and event != "connected":
            assert server.attempt_at <= now + LONGEST_DELAY
