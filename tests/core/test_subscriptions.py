"""What an event costs, and what is kept of those who listen."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.clock import ManualClock
from foundation_rt.config.settings import HttpSection, ResourcesSection, ServerConfig
from foundation_rt.core.effects import Notify
from foundation_rt.core.session import Session
from foundation_rt.core.subscriptions import MAX_TOPICS, Subscriber, Subscriptions
from foundation_rt.logs.logger import MemorySink, StructuredLogger
from foundation_rt.protocol.principal import Principal, identity_of
from foundation_rt.shares import LimitReached


class Host:
    """Stands for a connection; remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Notify] = []

    def tell_listening(self, listening: Subscriber, message: Notify) -> None:
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


# -- how many there may be -----------------------------------------------------------------------

ALICE, BOB = Principal("key:alice"), Principal("key:bob")
KEYS = ("alice:" + "a" * 16, "bob:" + "b" * 16)


def bounded(most: int) -> Subscriptions:
    resources = ResourcesSection(max_subscriptions=most)
    return Subscriptions(ServerConfig(http=HttpSection(api_keys=KEYS), resources=resources))


def session_of(principal: Principal | None, host: Host | None = None) -> Session:
    made, _ = session(host or Host())
    made.principal = principal
    return made


@pytest.mark.rule("RES-13", "RES-23")
def test_one_principal_has_no_more_subscriptions_than_its_share() -> None:
    subscriptions = bounded(8)
    one, other = session_of(ALICE), session_of(ALICE)
    subscriptions.listen(one, 1, topics=[("list", "tools")])
    with pytest.raises(LimitReached) as refused:
        subscriptions.listen(other, 1, topics=[("resource", "x:1")])
    assert refused.value.details == {
        "reason": "principal_share",
        "maxSubscriptions": 8,
        "share": 2,
    }
    assert other.listening == {}
    subscriptions.add(subscriptions.listen(other), ("resource", "x:1"))
    with pytest.raises(LimitReached):
        subscriptions.add(subscriptions.listen(one), ("resource", "x:2"))
    subscriptions.listen(session_of(BOB), 1)
    subscriptions.forget(one)
    assert subscriptions.quota.used() == {identity_of(ALICE): 1, identity_of(BOB): 1}


@pytest.mark.rule("RES-18", "RES-23")
def test_all_clients_together_have_no_more_subscriptions_than_the_limit() -> None:
    subscriptions = bounded(3)
    for number in range(3):
        subscriptions.listen(session_of(None), number)
    with pytest.raises(LimitReached) as refused:
        subscriptions.listen(session_of(None), 4)
    assert refused.value.details == {"reason": "subscription_limit", "maxSubscriptions": 3}


@pytest.mark.rule("ASK-18", "RES-23")
def test_the_oldest_page_gives_way_where_there_is_no_room_for_one_more() -> None:
    subscriptions, host = bounded(8), Host()
    one = session_of(ALICE, host)
    for number in range(5):
        subscriptions.follow_elicitation(one, f"page-{number}")
    without = session_of(ALICE, host)
    subscriptions.follow_elicitation(without, "not followed")
    for page in ("page-2", "page-3", "page-4", "not followed"):
        subscriptions.elicitation_completed(page)
    assert [b"page-3" in each.line or b"page-4" in each.line for each in host.told] == [True, True]
    assert subscriptions.quota.used() == {}


histories = st.lists(
    st.tuples(
        st.sampled_from(["listen", "add", "remove", "end", "page", "completed", "forget", "drop"]),
        st.integers(0, 3),
        st.integers(1, 2),
        st.sampled_from(["a", "b", "c"]),
    ),
    max_size=40,
)


@pytest.mark.rule("RES-18")
@given(histories)
def test_what_is_counted_is_what_is_listened_to(
    history: list[tuple[str, int, int, str]],
) -> None:
    subscriptions = bounded(12)
    hosts = [Host() for _ in range(4)]
    owners = (ALICE, ALICE, BOB, None)
    sessions = [session_of(owner, host) for owner, host in zip(owners, hosts, strict=True)]
    for step, who, number, name in history:
        one, topic = sessions[who], ("resource", name)
        try:
            if step == "listen":
                subscriptions.listen(one, number, topics=[topic, topic, ("list", "tools")])
            elif step == "add":
                subscriptions.add(subscriptions.listen(one), topic)
            elif step == "remove":
                subscriptions.remove(subscriptions.listen(one), topic)
            elif step == "end" and number in one.listening:
                listening = one.listening[number]
                subscriptions.end(listening)
                subscriptions.end(listening)
            elif step == "page":
                subscriptions.follow_elicitation(one, name)
            elif step == "completed":
                subscriptions.elicitation_completed(name)
            elif step == "forget":
                subscriptions.forget(one)
            elif step == "drop":
                # A host drops its connection without closing it.
                one.connection = lambda: None
                hosts[who] = Host()
                sessions[who] = session_of(owners[who], hosts[who])
                gc.collect(0)
        except LimitReached:
            pass
        held: Counter[str | None] = Counter()
        for listening in subscriptions._open:
            topics = [kind for kind, names in listening.topics.items() for _ in names]
            held[listening.identity] += len(topics) - topics.count("list")
            held[listening.identity] += listening.subscription_id is not None
        assert subscriptions.quota.used() == {each: n for each, n in held.items() if n}
        assert sum(held.values()) <= 12
        assert max(held[identity_of(ALICE)], held[identity_of(BOB)]) <= 3
    for session_left in {each.session for each in subscriptions._open}:
        subscriptions.forget(session_left)
    assert subscriptions.quota.used() == {}
