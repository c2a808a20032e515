"""Subscriptions: the cost of an event, and the limits of what is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.settings import ResourcesSection, ServerConfig
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.base.principal_shares import LimitReached
from foundation_rt.features.subscriptions.subscriptions import (
    MAX_TOPICS,
    Publish,
    Subscriptions,
    subscribers_of,
)
from foundation_rt.kernel.session import Session
from foundation_rt.protocol.principal import Principal, identity_of


def make_session(number: int, principal: Principal | None = None) -> Session:
    logger = StructuredLogger(MemorySink(), ManualClock(), "info")
    return Session("c", "http", logger, principal, id=number)


def subscribers_gone(session: Session) -> None:
    for part in session.parts.values():
        part.close()


def reached(effects: Iterable[Publish]) -> list[int]:
    """Return the sessions that are notified."""
    return [each.session_id for each in effects]


def page_done(subscriptions: Subscriptions, sessions: list[Session], name: str) -> list[bytes]:
    """Take the notifications that the page of an elicitation is done."""
    found = [*subscriptions.publish(("elicitation", name), "m", {"elicitationId": name})]
    by_id = {each.id: each for each in sessions}
    for each in found:
        subscribers = subscribers_of(by_id[each.session_id])
        subscriptions.remove(subscribers[each.subscription_id], each.topic)
    return [each.line for each in found]


@pytest.mark.rule("SUB-06")
def test_event_reaches_the_subscribers_of_its_topic_alone() -> None:
    subscriptions = Subscriptions()
    for number in range(10_000):
        subscriber = subscriptions.subscribe(make_session(number), 1)
        subscriptions.add(subscriber, ("resource", f"x:{number}"))
    assert reached(subscriptions.publish(("resource", "x:77"), "m", {})) == [77]


@pytest.mark.rule("SUB-06")
def test_notifications_are_encoded_one_at_a_time() -> None:
    subscriptions = Subscriptions()
    for number in range(3):
        topics = [("resource", "x:1")]
        subscriptions.subscribe(make_session(number), number, topics=topics)
    published = subscriptions.publish(("resource", "x:1"), "m", {})
    assert not isinstance(published, list)
    assert sorted(reached(published)) == [0, 1, 2]


@pytest.mark.rule("ASK-18")
def test_session_keeps_its_last_pages() -> None:
    subscriptions, session = Subscriptions(), make_session(1)
    for number in range(MAX_TOPICS + 5):
        subscriptions.follow_elicitation(session, f"page-{number}")
    assert page_done(subscriptions, [session], "page-4") == []
    assert len(page_done(subscriptions, [session], "page-5")) == 1
    # Each kind has a limit of its own.
    assert subscriptions.add(subscribers_of(session)[None], ("resource", "x:y"))


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
def test_each_subscriber_is_notified_of_its_topics_whoever_comes_and_goes(
    history: list[tuple[str, int, str]],
) -> None:
    """Against a model: a set of topics for each subscriber."""
    subscriptions = Subscriptions()
    sessions = [make_session(number) for number in range(3)]
    model: list[set[str]] = [set(), set(), set()]
    for step, number, name in history:
        topic = ("resource", name)
        if step == "publish":
            expected = [each for each, topics in enumerate(model) if name in topics]
            assert sorted(reached(subscriptions.publish(topic, "m", {}))) == expected
            continue
        subscriber = subscriptions.subscribe(sessions[number], 1)
        if step == "add":
            assert subscriptions.add(subscriber, topic)
            model[number].add(name)
        elif step == "remove":
            subscriptions.remove(subscriber, topic)
            model[number].discard(name)
        else:
            subscriptions.end(subscriber)
            model[number].clear()
    for session in sessions:
        subscribers_gone(session)
    assert subscriptions._by_topic == {}
    assert subscriptions._open == set()


# -- how many there may be -----------------------------------------------------------------------

ALICE, BOB = Principal("key:alice"), Principal("key:bob")
KEYS = ("alice:" + "a" * 16, "bob:" + "b" * 16)


def bounded(most: int) -> Subscriptions:
    resources = ResourcesSection(max_subscriptions=most)
    return Subscriptions(ServerConfig(http=HttpSection(api_keys=KEYS), resources=resources))


@pytest.mark.rule("RES-13", "RES-23")
def test_one_principal_has_no_more_subscriptions_than_its_share() -> None:
    subscriptions = bounded(8)
    one, other = make_session(1, ALICE), make_session(2, ALICE)
    subscriptions.subscribe(one, 1, topics=[("list", "tools")])
    with pytest.raises(LimitReached) as refused:
        subscriptions.subscribe(other, 1, topics=[("resource", "x:1")])
    assert refused.value.details == {
        "reason": "principal_share",
        "maxSubscriptions": 8,
        "share": 2,
    }
    assert subscribers_of(other) == {}
    subscriptions.add(subscriptions.subscribe(other), ("resource", "x:1"))
    with pytest.raises(LimitReached):
        subscriptions.add(subscriptions.subscribe(one), ("resource", "x:2"))
    subscriptions.subscribe(make_session(3, BOB), 1)
    subscribers_gone(one)
    assert subscriptions.quota.used() == {identity_of(ALICE): 1, identity_of(BOB): 1}


@pytest.mark.rule("RES-18", "RES-23")
def test_all_clients_together_have_no_more_subscriptions_than_the_limit() -> None:
    subscriptions = bounded(3)
    for number in range(3):
        subscriptions.subscribe(make_session(number), number)
    with pytest.raises(LimitReached) as refused:
        subscriptions.subscribe(make_session(4), 4)
    assert refused.value.details == {"reason": "subscription_limit", "maxSubscriptions": 3}


@pytest.mark.rule("ASK-18", "RES-23")
def test_the_oldest_page_gives_way_where_there_is_no_room_for_one_more() -> None:
    subscriptions = bounded(8)
    one = make_session(1, ALICE)
    for number in range(5):
        subscriptions.follow_elicitation(one, f"page-{number}")
    without = make_session(2, ALICE)
    subscriptions.follow_elicitation(without, "not followed")
    pages = ("page-2", "page-3", "page-4", "not followed")
    lines = [line for page in pages for line in page_done(subscriptions, [one, without], page)]
    assert [b"page-3" in line or b"page-4" in line for line in lines] == [True, True]
    subscribers_gone(without)
    assert subscriptions.quota.used() == {}


histories = st.lists(
    st.tuples(
        st.sampled_from(["subscribe", "add", "remove", "end", "page", "completed", "forget"]),
        st.integers(0, 3),
        st.integers(1, 2),
        st.sampled_from(["a", "b", "c"]),
    ),
    max_size=40,
)


@pytest.mark.rule("RES-18")
@given(histories)
def test_the_quota_counts_the_topics_of_all_subscribers(
    history: list[tuple[str, int, int, str]],
) -> None:
    subscriptions = bounded(12)
    owners = (ALICE, ALICE, BOB, None)
    sessions = [make_session(number, owner) for number, owner in enumerate(owners)]
    for step, who, number, name in history:
        one, topic = sessions[who], ("resource", name)
        try:
            if step == "subscribe":
                subscriptions.subscribe(one, number, topics=[topic, topic, ("list", "tools")])
            elif step == "add":
                subscriptions.add(subscriptions.subscribe(one), topic)
            elif step == "remove":
                subscriptions.remove(subscriptions.subscribe(one), topic)
            elif step == "end" and number in subscribers_of(one):
                subscriber = subscribers_of(one)[number]
                subscriptions.end(subscriber)
                subscriptions.end(subscriber)
            elif step == "page":
                subscriptions.follow_elicitation(one, name)
            elif step == "completed":
                page_done(subscriptions, sessions, name)
            elif step == "forget":
                subscribers_gone(one)
        except LimitReached:
            pass
        held: Counter[str | None] = Counter()
        for subscriber in subscriptions._open:
            topics = [kind for kind, names in subscriber.topics.items() for _ in names]
            held[subscriber.identity] += len(topics) - topics.count("list")
            held[subscriber.identity] += subscriber.subscription_id is not None
        assert subscriptions.quota.used() == {each: n for each, n in held.items() if n}
        assert sum(held.values()) <= 12
        assert max(held[identity_of(ALICE)], held[identity_of(BOB)]) <= 3
    for session_left in {each.session for each in subscriptions._open}:
        subscribers_gone(session_left)
    assert subscriptions.quota.used() == {}
