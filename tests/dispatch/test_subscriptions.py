"""What an event costs, and what is kept of those who listen."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.clock import ManualClock
from foundation_rt.dispatch.effects import Notify
from foundation_rt.dispatch.session import Session
from foundation_rt.dispatch.subscriptions import MAX_TOPICS, Listening, Subscriptions
from foundation_rt.logs.logger import MemorySink, StructuredLogger


class Host:
    """Stands for a connection; remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Notify] = []

    def tell_listening(self, listening: Listening, message: Notify) -> None:
        self.told.append(message)


def session(host: Host) -> tuple[Session, list[int]]:
    """A session of `host`, and how often somebody looked at it."""
    looked: list[int] = []
    made = Session("c", "http", StructuredLogger(MemorySink(), ManualClock(), "info"))

    def connection() -> Any:
        looked.append(1)
        return host

    made.connection = connection
    return made, looked


@pytest.mark.rule("SUB-06")
def test_an_event_touches_those_who_listen_to_it_and_nobody_else() -> None:
    subscriptions, host = Subscriptions(), Host()
    crowd = []
    for number in range(10_000):
        one, looked = session(host)
        subscriptions.add(subscriptions.listen(one, 1), ("resource", f"x:{number}"))
        crowd.append(looked)
    for looked in crowd:
        looked.clear()
    subscriptions.resource_updated("x:77")
    assert len(host.told) == 1
    assert [number for number, looked in enumerate(crowd) if looked] == [77]


@pytest.mark.rule("ASK-18")
def test_the_last_pages_of_a_connection_are_known() -> None:
    subscriptions, host = Subscriptions(), Host()
    one, _ = session(host)
    for number in range(MAX_TOPICS + 5):
        subscriptions.follow_elicitation(one, f"page-{number}")
    subscriptions.elicitation_completed("page-4")
    assert host.told == []
    subscriptions.elicitation_completed("page-5")
    assert len(host.told) == 1
    assert subscriptions.add(one.listening[None], ("resource", "x:y"))  # they count by kind


@pytest.mark.rule("SUB-06")
def test_a_connection_is_watched_once_however_often_its_client_comes_to_listen() -> None:
    subscriptions, host = Subscriptions(), Host()
    one, _ = session(host)
    before = len(weakref.finalize._registry)  # type: ignore[attr-defined]
    for number in range(50):
        subscriptions.end(subscriptions.listen(one, number))
    assert len(weakref.finalize._registry) == before + 1  # type: ignore[attr-defined]
    subscriptions.add(subscriptions.listen(one, 50), ("resource", "x:y"))
    one.connection = lambda: None
    del host
    gc.collect()
    assert subscriptions._by_topic == {}


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "end", "publish"]),
        st.integers(0, 2),
        st.sampled_from("abc"),
    ),
    max_size=40,
)


@pytest.mark.rule("SUB-02")
@given(steps)
def test_whoever_comes_and_goes_each_is_told_what_it_listens_to(
    history: list[tuple[str, int, str]],
) -> None:
    """Against a model: a set of topics for each listener."""
    subscriptions = Subscriptions()
    hosts = [Host() for _ in range(3)]
    sessions = [session(host)[0] for host in hosts]
    model: list[set[str]] = [set(), set(), set()]
    for step, who, name in history:
        topic = ("resource", name)
        if step == "publish":
            subscriptions.publish(topic, "m", {})
            for host, topics in zip(hosts, model, strict=True):
                assert len(host.told) == (name in topics)
                host.told.clear()
            continue
        listening = subscriptions.listen(sessions[who], 1)
        if step == "add":
            assert subscriptions.add(listening, topic)
            model[who].add(name)
        elif step == "remove":
            subscriptions.remove(listening, topic)
            model[who].discard(name)
        else:
            subscriptions.end(listening)
            model[who].clear()
    for one in sessions:
        subscriptions.forget(one)
    assert subscriptions._by_topic == {}
    assert subscriptions._open == set()
