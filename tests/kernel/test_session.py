"""The lifecycle of a connection, cell by cell."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.kernel.session import TRANSITIONS, Session, SessionEvent, State
from tests.lab.servers.core import connection_id, make_core

STARTING, INITIALIZING, RUNNING, CLOSED = State

# Spelled out, not read from the code: every cell of the table in spec/lifecycle.md.
EXPECTED = {
    (STARTING, SessionEvent.INITIALIZE): INITIALIZING,
    (STARTING, SessionEvent.INITIALIZED): None,
    (STARTING, SessionEvent.CLOSE): CLOSED,
    (INITIALIZING, SessionEvent.INITIALIZE): None,
    (INITIALIZING, SessionEvent.INITIALIZED): RUNNING,
    (INITIALIZING, SessionEvent.CLOSE): CLOSED,
    (RUNNING, SessionEvent.INITIALIZE): None,
    (RUNNING, SessionEvent.INITIALIZED): None,
    (RUNNING, SessionEvent.CLOSE): CLOSED,
    (CLOSED, SessionEvent.INITIALIZE): None,
    (CLOSED, SessionEvent.INITIALIZED): None,
    (CLOSED, SessionEvent.CLOSE): None,
}


def session_in(state: State) -> Session:
    session = make_core().session
    session.state = state
    return session


@pytest.mark.rule("LIFE-01")
def test_every_cell_is_spelled_out_here() -> None:
    assert EXPECTED.keys() == set(product(State, SessionEvent))
    assert {key: state for key, state in EXPECTED.items() if state is not None} == TRANSITIONS


@pytest.mark.rule("LIFE-01")
@pytest.mark.parametrize(("state", "event"), EXPECTED)
def test_event_moves_the_state_as_its_cell_says(state: State, event: SessionEvent) -> None:
    session = session_in(state)
    expected = EXPECTED[state, event]
    assert session.advance(event) is (expected is not None)
    assert session.state is (expected or state)


@pytest.mark.rule("LIFE-01")
@given(st.lists(st.sampled_from(SessionEvent), max_size=10))
def test_whatever_happens_states_only_go_forward_and_closed_is_the_end(
    events: list[SessionEvent],
) -> None:
    session = session_in(STARTING)
    order = list(State)
    for event in events:
        before = session.state
        session.advance(event)
        assert order.index(session.state) >= order.index(before)
    assert (session.state is CLOSED) == (SessionEvent.CLOSE in events)


@pytest.mark.rule("LIFE-07")
def test_session_starts_with_an_id_of_its_own_that_is_in_every_line_it_logs() -> None:
    core = make_core()
    first, second = core.session, core.open_session("http")
    assert first.state is second.state is STARTING
    assert first.peer is None
    assert first.in_flight == {}
    assert (first.transport_type, second.transport_type) == ("memory", "http")
    assert first.connection_correlation_id == connection_id(1)
    assert second.connection_correlation_id == connection_id(2)
    first.logger.info("one")
    second.logger.child({"runId": "r"}).warn("two")
    assert [line["connectionCorrelationId"] for line in core.sink.lines] == [
        connection_id(1),
        connection_id(2),
    ]
