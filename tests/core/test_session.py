"""The lifecycle of a connection, cell by cell."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.core.session import TRANSITIONS, Event, Session, State
from tests.support.core import connection_id, make_core

STARTING, INITIALIZING, RUNNING, CLOSED = State

# Spelled out, not read from the code: every cell of the table in spec/lifecycle.md.
EXPECTED = {
    (STARTING, Event.INITIALIZE): INITIALIZING,
    (STARTING, Event.INITIALIZED): None,
    (STARTING, Event.CLOSE): CLOSED,
    (INITIALIZING, Event.INITIALIZE): None,
    (INITIALIZING, Event.INITIALIZED): RUNNING,
    (INITIALIZING, Event.CLOSE): CLOSED,
    (RUNNING, Event.INITIALIZE): None,
    (RUNNING, Event.INITIALIZED): None,
    (RUNNING, Event.CLOSE): CLOSED,
    (CLOSED, Event.INITIALIZE): None,
    (CLOSED, Event.INITIALIZED): None,
    (CLOSED, Event.CLOSE): None,
}


def session_in(state: State) -> Session:
    session = make_core().session
    session.state = state
    return session


@pytest.mark.rule("LIFE-01")
def test_every_cell_is_spelled_out_here() -> None:
    assert EXPECTED.keys() == set(product(State, Event))
    assert {key: state for key, state in EXPECTED.items() if state is not None} == TRANSITIONS


@pytest.mark.rule("LIFE-01")
@pytest.mark.parametrize(("state", "event"), EXPECTED)
def test_an_event_does_what_its_cell_says(state: State, event: Event) -> None:
    session = session_in(state)
    expected = EXPECTED[state, event]
    assert session.advance(event) is (expected is not None)
    assert session.state is (expected or state)


@pytest.mark.rule("LIFE-01")
@given(st.lists(st.sampled_from(Event), max_size=10))
def test_whatever_happens_states_only_go_forward_and_closed_is_the_end(events: list[Event]) -> None:
    session = session_in(STARTING)
    order = list(State)
    for event in events:
        before = session.state
        session.advance(event)
        assert order.index(session.state) >= order.index(before)
    assert (session.state is CLOSED) == (Event.CLOSE in events)


@pytest.mark.rule("LIFE-07")
def test_a_session_starts_with_an_id_of_its_own_that_is_in_every_line_it_logs() -> None:
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
