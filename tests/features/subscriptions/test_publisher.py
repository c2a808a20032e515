"""The publisher: from a session's id to its connection, as long as that exists."""

from __future__ import annotations

import gc

import pytest

from foundation_rt.features.subscriptions.feature import publisher_of as publisher_of_engine
from foundation_rt.features.subscriptions.publisher import Publisher
from foundation_rt.features.subscriptions.subscriptions import Publish
from tests.lab.clock.fake_scheduler import FakeScheduler
from tests.lab.servers.fixture import LIST_CHANGED, ServerFixture, ServerPeer


def publisher_of(rig: ServerFixture) -> Publisher:
    return publisher_of_engine(rig.server.runtime.engine)


def subscribed(rig: ServerFixture, *uris: str) -> ServerPeer:
    """Return a peer that is subscribed to resources."""
    peer = rig.connect()
    for uri in uris:
        if rig.server.features.resources.resources.get(uri) is None:
            rig.server.resource(uri)(lambda: "")
        peer.answer(peer.ask("resources/subscribe", {"uri": uri}))
    peer.take()
    return peer


@pytest.mark.rule("SUB-02")
def test_notification_for_an_unknown_session_is_dropped() -> None:
    rig = ServerFixture()
    publisher_of(rig).publish([Publish(77, None, ("resource", "x:1"), b"{}")])


@pytest.mark.rule("SUB-02")
def test_notification_of_a_topic_that_was_unsubscribed_is_dropped() -> None:
    rig = ServerFixture()
    peer = subscribed(rig, "note://1")
    late = [*publisher_of(rig).subscriptions.publish(("resource", "note://1"), "m", {})]
    peer.answer(peer.ask("resources/unsubscribe", {"uri": "note://1"}))
    peer.take()
    publisher_of(rig).publish(late)
    assert peer.received == []


@pytest.mark.rule("LIFE-07", "SUB-02")
def test_servers_that_share_a_publisher_give_their_sessions_different_ids() -> None:
    first = ServerFixture()
    second = ServerFixture(publisher=publisher_of(first))
    peer, other = subscribed(first, "note://1"), subscribed(second, "note://2")
    assert peer.connection.session.id != other.connection.session.id
    first.server.resource_updated("note://2")
    assert peer.received == []
    assert [each["params"] for each in other.take()] == [{"uri": "note://2"}]


@pytest.mark.rule("SUB-06")
def test_nothing_is_kept_of_a_connection_that_its_host_has_dropped() -> None:
    rig = ServerFixture()
    peer = subscribed(rig, "note://1")
    publisher = publisher_of(rig)
    assert publisher.directory._connections.keys() == {peer.connection.session.id}
    del peer
    gc.collect()
    assert publisher.directory._connections == {}
    assert publisher.subscriptions._by_topic == {}


@pytest.mark.rule("LIFE-10", "VIS-07")
def test_changes_of_a_list_that_follow_one_another_are_announced_together() -> None:
    rig = ServerFixture()
    scheduler = FakeScheduler(rig.clock)
    peer = ServerPeer()
    connection = rig.server.runtime.connect(
        lambda message: peer.receive(message.line), "memory", scheduler
    )
    peer.connection = connection
    peer.shake_hands()
    peer.take()
    for number in range(200):
        rig.server.resource(f"note://{number}", scopes=["notes"])(lambda: "")
        publisher_of(rig).lists.list_changed("tools")
    assert peer.take() == [LIST_CHANGED] * 2
    scheduler.advance(0.04)
    assert peer.received == []
    scheduler.advance(0.02)
    assert peer.take() == [LIST_CHANGED]
    publisher_of(rig).lists.list_changed("tools")  # 10 ms after those that were held
    assert peer.received == []
    scheduler.advance(0.05)
    assert peer.take() == [LIST_CHANGED]
    scheduler.advance(1)
    assert peer.received == scheduler.timers == []
    scheduler.close()
