"""The keys of sessions, and the callbacks for their ends and their roots."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from foundation_rt import RegistrationError, Server, ToolContext, ToolDefinition, UsageError
from foundation_rt.base.logs.logger import StructuredLogger
from foundation_rt.features.session_callbacks import SessionEnds
from foundation_rt.protocol.principal import Principal
from tests.lab.servers.asgi import META
from tests.lab.servers.engine import EngineHarness, HeldHandler
from tests.lab.servers.fixture import LIST_CHANGED, ServerFixture, ServerPeer

PATIENCE = 60.0
ANYTHING = {"type": "object"}
KEY = re.compile(r"[0-9a-f]{64}")


class Harness:
    """A server whose handlers tell the keys of their sessions.

    Attributes:
        ended: the keys that callbacks were called with.
        go: lets `wait` return.
    """

    def __init__(self) -> None:
        self.rig = ServerFixture()
        self.ended: list[str] = []
        self.go = threading.Event()
        self.entered = threading.Event()
        self.contexts: list[ToolContext] = []
        self.rig.server.on_session_end(self.ended.append)
        self.rig.server.register(ToolDefinition("key", "", ANYTHING), self.key, inline=True)
        self.rig.server.register(ToolDefinition("wait", "", ANYTHING), self.wait)

    def key(self, arguments: dict[str, Any], context: ToolContext) -> str | None:
        self.contexts.append(context)
        return context.session_key

    def wait(self, arguments: dict[str, Any], context: ToolContext) -> None:
        self.contexts.append(context)
        self.entered.set()
        assert self.go.wait(PATIENCE)

    def key_of(self, peer: ServerPeer) -> str:
        key = peer.outcome(peer.start("key"))
        assert isinstance(key, str)
        return key


@pytest.mark.rule("LIFE-16")
def test_key_is_that_of_the_session_and_of_no_other() -> None:
    harness = Harness()
    first, second = harness.rig.connect(), harness.rig.connect()
    keys = [harness.key_of(each) for each in (first, first, second)]
    assert keys[0] == keys[1] != keys[2]
    assert all(KEY.fullmatch(each) for each in keys)
    assert harness.contexts[0].client.name == "tests"
    assert keys[0] not in repr(first.connection.session)


@pytest.mark.rule("LIFE-17")
def test_stateless_call_beside_a_session_has_no_key() -> None:
    harness = Harness()
    peer = harness.rig.connect("stdio")
    assert harness.key_of(peer)
    asked = peer.ask("tools/call", {"name": "key", "arguments": {}, "_meta": META})
    assert peer.outcome(asked) is None
    peer.connection.close()
    assert len(harness.ended) == 1


@pytest.mark.rule("LIFE-18")
def test_callback_gets_the_key_of_each_session_once() -> None:
    harness = Harness()
    peers = [harness.rig.connect() for _ in range(3)]
    keys = [harness.key_of(each) for each in peers[:2]]  # nothing knows the third
    for peer in (*peers, *peers):
        peer.connection.close()
    assert harness.ended == keys
    assert harness.rig.server.runtime.directory._ids_by_key == {}


@pytest.mark.rule("LIFE-17", "LIFE-18")
def test_end_is_reported_after_the_last_handler_of_the_session() -> None:
    harness = Harness()
    peer, other = harness.rig.connect(), harness.rig.connect()
    key = harness.key_of(peer)
    peer.start("wait")
    assert harness.entered.wait(PATIENCE)
    harness.key_of(other)
    peer.connection.close()
    assert harness.contexts[1].abort_signal.aborted
    assert harness.contexts[1].session_key == key
    assert harness.ended == []
    harness.go.set()
    assert harness.rig.server.runtime.engine.wait_idle(PATIENCE)
    assert harness.ended == [key]


@pytest.mark.rule("LIFE-17")
def test_session_that_has_ended_gets_no_key() -> None:
    harness = Harness()
    peer = harness.rig.connect()
    peer.start("wait")
    assert harness.entered.wait(PATIENCE)
    peer.connection.close()
    assert harness.contexts[0].session_key is None
    harness.go.set()
    assert harness.rig.server.runtime.engine.wait_idle(PATIENCE)
    assert harness.ended == []


@pytest.mark.rule("LIFE-18")
def test_key_of_a_handler_that_is_given_up_is_reported() -> None:
    harness = Harness()
    peer = harness.rig.connect()
    key = harness.key_of(peer)
    peer.start("wait")
    assert harness.entered.wait(PATIENCE)
    peer.connection.close("shutdown")
    harness.rig.server.runtime.engine.give_up()
    assert harness.ended == [key]
    harness.go.set()


@pytest.mark.rule("LIFE-19")
def test_callback_that_raises_is_logged_and_the_others_are_called() -> None:
    harness = Harness()

    @harness.rig.server.on_session_end
    def broken(key: str) -> None:
        raise OSError("disk full")

    ended: list[tuple[str, bool]] = []

    @harness.rig.server.on_session_end
    def last(key: str) -> None:
        taken = peer.connection.lock.acquire(blocking=False)
        ended.append((key, taken))

    peer = harness.rig.connect()
    key = harness.key_of(peer)
    closing = threading.Thread(target=peer.connection.close)
    closing.start()
    closing.join(PATIENCE)
    assert (harness.ended, ended) == ([key], [(key, True)])
    [line] = harness.rig.logged("callback for the end of a session failed")
    assert line["error"]["message"] == "disk full"
    assert key not in str(harness.rig.sink.lines)


@pytest.mark.rule("LIFE-19")
def test_callback_is_a_plain_function_of_a_key_before_the_start() -> None:
    server = Server()

    async def coroutine(key: str) -> None: ...

    for wrong in (coroutine, lambda: None, None):
        with pytest.raises(RegistrationError, match=r"\(key\)"):
            server.on_session_end(wrong)  # type: ignore[type-var]
    _ = server.runtime
    with pytest.raises(UsageError):
        server.on_session_end(print)


@pytest.mark.rule("ASK-47", "LIFE-19")
def test_changed_roots_are_reported_with_the_key_that_a_handler_has_read() -> None:
    harness = Harness()
    changed: list[str] = []
    server = harness.rig.server

    @server.on_roots_changed
    def broken(key: str) -> None:
        raise OSError("no such client")

    server.on_roots_changed(changed.append)
    first, second = harness.rig.connect(), harness.rig.connect()
    for peer in (first, second):
        peer.notify("notifications/roots/list_changed")
    key = harness.key_of(first)
    for peer in (first, second):
        peer.notify("notifications/roots/list_changed", {"_meta": {}})
    assert changed == [key]
    [line] = harness.rig.logged("callback for changed roots failed")
    assert key not in str(line)
    first.connection.close()
    first.notify("notifications/roots/list_changed")
    assert (changed, harness.ended) == ([key], [key])
    with pytest.raises(UsageError):
        server.on_roots_changed(print)


@pytest.mark.rule("SUB-15", "LIFE-16")
def test_list_of_one_session_is_notified_to_its_client_alone() -> None:
    harness = Harness()
    first, second = harness.rig.connect(), harness.rig.connect()
    key = harness.key_of(first)
    for peer in (first, second):
        peer.take()
    server = harness.rig.server
    server.list_changed("tools", session_key=key)
    assert (first.take(), second.take()) == ([LIST_CHANGED], [])
    server.list_changed("prompts", session_key=key)  # a list that the client was not offered
    server.list_changed("tools", session_key="0" * 64)
    first.connection.close()
    server.list_changed("tools", session_key=key)
    assert (first.take(), second.take()) == ([], [])


@pytest.mark.rule("SUB-15")
def test_list_of_one_principal_is_notified_to_its_sessions_and_subscribers() -> None:
    harness = Harness()
    ann, later, ben = Principal("ann"), Principal("ann", frozenset(("x",))), Principal("ben")
    sessions: dict[str, ServerPeer] = {}
    for name, principal in {"ann": ann, "later": later, "ben": ben, "nobody": None}.items():
        peer = sessions[name] = harness.rig.connect()
        peer.connection.session.principal = principal
        listen = {"notifications": {"toolsListChanged": True}, "_meta": META}
        peer.ask("subscriptions/listen", listen, id=f"listen-{name}")
        peer.take()
    harness.rig.server.list_changed("tools", principal=ann)
    took = {name: [each["method"] for each in peer.take()] for name, peer in sessions.items()}
    twice = ["notifications/tools/list_changed"] * 2
    assert took == {"ann": twice, "later": twice, "ben": [], "nobody": []}
    harness.rig.clock.advance(1)
    harness.rig.server.list_changed("tools")
    assert all(len(peer.take()) == 2 for peer in sessions.values())
    with pytest.raises(UsageError, match="not of both"):
        harness.rig.server.list_changed("tools", session_key="a", principal=ann)


@pytest.mark.rule("SUB-16")
def test_resource_of_one_principal_is_notified_to_its_sessions() -> None:
    harness = Harness()
    harness.rig.server.resource("note://1", inline=True)(lambda: "one")
    ann, ben = Principal("ann"), Principal("ben")
    sessions: dict[str, ServerPeer] = {}
    for name, principal in {"ann": ann, "ben": ben, "nobody": None}.items():
        peer = sessions[name] = harness.rig.connect()
        peer.connection.session.principal = principal
        peer.ask("resources/subscribe", {"uri": "note://1"}, id=1)
        peer.take()
    harness.rig.server.resource_updated("note://1", principal=ann)
    assert {name: len(peer.take()) for name, peer in sessions.items()} == {
        "ann": 1,
        "ben": 0,
        "nobody": 0,
    }


class Histories(RuleBasedStateMachine):
    """Any order of calls, ends of handlers and ends of sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []
        self.bench = EngineHarness(default_timeout_ms=10**6)
        ends = SessionEnds((self.ended.append,), self.logger)
        self.bench.engine.ended = (ends.session_ended,)
        self.running: list[tuple[ServerPeer, HeldHandler]] = []
        self.peers: list[ServerPeer] = []
        self.keys: dict[ServerPeer, str] = {}
        self.closed: set[ServerPeer] = set()

    @property
    def logger(self) -> StructuredLogger:
        return self.bench.rig.server.runtime.logger

    @rule()
    def connect(self) -> None:
        self.peers.append(self.bench.connect())

    @rule(data=st.data(), reads=st.booleans())
    def call(self, data: st.DataObject, reads: bool) -> None:
        living = [each for each in self.peers if each not in self.closed]
        if not living or len(self.running) >= 8:
            return
        peer, held = data.draw(st.sampled_from(living)), HeldHandler()
        held.stubborn = True
        self.bench.rig.server.unregister("held")
        self.bench.tool(held)
        peer.start("held")
        self.bench.scheduler.settle()
        self.running.append((peer, held))
        if reads:
            self.read(peer, held)

    def read(self, peer: ServerPeer, held: HeldHandler) -> None:
        key = held.context.session_key
        assert key == self.keys.get(peer, key)
        assert key is not None or peer in self.closed
        if key is not None:
            self.keys[peer] = key

    @rule(data=st.data())
    def read_later(self, data: st.DataObject) -> None:
        if self.running:
            self.read(*data.draw(st.sampled_from(self.running)))

    @rule(data=st.data())
    def end_handler(self, data: st.DataObject) -> None:
        if self.running:
            _, held = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
            held.end()
            self.bench.scheduler.settle()

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        if self.peers:
            peer = data.draw(st.sampled_from(self.peers))
            peer.connection.close()
            self.bench.scheduler.settle()
            self.closed.add(peer)

    @invariant()
    def exactly_the_sessions_that_are_over_were_reported(self) -> None:
        busy = {peer for peer, _ in self.running}
        over = [self.keys[peer] for peer in self.closed - busy if peer in self.keys]
        assert sorted(self.ended) == sorted(over)

    def teardown(self) -> None:
        try:
            for _, held in self.running:
                held.end()
            self.bench.scheduler.settle()
        finally:
            self.bench.__exit__()


TestHistories = pytest.mark.rule("LIFE-16", "LIFE-17", "LIFE-18")(Histories.TestCase)
