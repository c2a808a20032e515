"""One peer: what is fed, what is sent, and the end of it."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import orjson
import pytest

from foundation_rt import ToolContext, ToolDefinition
from foundation_rt.kernel.dispatcher import Dispatcher
from tests.lab.servers.fixture import HANDSHAKE, LIST_CHANGED, ServerFixture, ServerPeer

PATIENCE = 60.0
ANYTHING = {"type": "object"}
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def echo(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    return arguments


def rig_with_echo() -> ServerFixture:
    rig = ServerFixture()
    rig.server.register(ToolDefinition("echo", "", ANYTHING), echo, inline=True)
    return rig


# -- bytes in, lines out ---------------------------------------------------------------------------


@pytest.mark.rule("EMBED-01", "FRAME-05")
def test_at_the_end_a_last_line_without_its_newline_counts() -> None:
    peer = rig_with_echo().connect()
    peer.connection.feed(PING)
    assert peer.received == []
    peer.connection.end()
    assert [answer["id"] for answer in peer.take()] == [1]
    peer.connection.end()
    assert peer.received == []
    assert not peer.connection.closed


@pytest.mark.rule("LIFE-07", "EMBED-01")
def test_each_connection_has_a_state_and_an_id_of_its_own() -> None:
    rig = rig_with_echo()
    first, second = rig.connect(), rig.connect(handshake=False)
    assert first.answer(first.ask("ping"))["result"] == {}
    refused = second.answer(second.ask("ping"))["error"]
    assert refused["code"] == -32002
    ids = [peer.connection.session.connection_correlation_id for peer in (first, second)]
    assert ids[0] != ids[1] == refused["data"]["correlationId"]
    first.start("echo")
    assert rig.records[-1]["connectionCorrelationId"] == ids[0]


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.rule("EMBED-01", "LIFE-06")
def test_after_close_nothing_is_sent_whatever_is_fed() -> None:
    rig = rig_with_echo()
    peer = rig.connect()
    peer.connection.feed(PING)  # no newline yet
    peer.connection.close()
    assert peer.connection.closed
    peer.connection.feed(b"\n" + PING + b"\n{\n" + b"x" * 100)
    peer.start("echo")
    peer.connection.end()
    peer.connection.close("shutdown")
    assert peer.received == []
    assert rig.records == []


@pytest.mark.rule("EMBED-01", "LIFE-06")
def test_connection_that_closes_in_the_middle_of_a_piece_answers_no_further_line() -> None:
    rig = rig_with_echo()
    peer = ServerPeer()

    def receive(line: bytes) -> None:
        peer.receive(line)
        if len(peer.received) == 2:
            peer.connection.close()

    peer.connection = rig.server.connect(receive)
    peer.shake_hands()
    peer.connection.feed((PING + b"\n") * 5)
    assert len(peer.received) == 2


@pytest.mark.rule("EMBED-01")
def test_send_may_feed_what_comes_back() -> None:
    """A host that answers in place: a bridge between two connections, for one."""
    rig = rig_with_echo()
    peer = ServerPeer()

    def receive(line: bytes) -> None:
        peer.receive(line)
        if len(peer.received) < 5:
            peer.ask("ping")

    peer.connection = rig.server.connect(receive)
    peer.write({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": HANDSHAKE})
    assert [answer["id"] for answer in peer.received] == ["hello", 1, 2, 3, 4]


# -- a send that raises ----------------------------------------------------------------------------


class BrokenPeer(ServerPeer):
    """Its end of the pipe has gone: it takes `good` lines and no more."""

    def __init__(self, good: int) -> None:
        super().__init__()
        self.good = good
        self.attempts = 0

    def receive(self, line: bytes) -> None:
        self.attempts += 1
        if self.attempts > self.good:
            raise BrokenPipeError(32, "Broken pipe")
        super().receive(line)


@pytest.mark.rule("EMBED-04", "LIFE-06")
def test_send_that_raises_closes_the_connection_and_is_logged() -> None:
    rig = rig_with_echo()
    peer = BrokenPeer(good=2)
    peer.connection = rig.server.connect(peer.receive)
    peer.shake_hands()
    for _ in range(5):
        peer.ask("ping")
    assert peer.connection.closed
    assert peer.attempts == 3
    [logged] = rig.logged("send failed: connection closed")
    assert logged["level"] == "error"
    assert logged["error"]["type"] == "BrokenPipeError"
    other = rig.connect()
    assert other.answer(other.ask("ping"))["result"] == {}


@pytest.mark.rule("EMBED-04", "CALL-09", "CALL-13")
def test_reply_that_cannot_be_sent_still_ends_its_call() -> None:
    rig = rig_with_echo()
    peer = BrokenPeer(good=1)
    peer.connection = rig.server.connect(peer.receive)
    peer.shake_hands()
    peer.start("echo")
    assert peer.connection.closed
    [record] = rig.records
    assert record["outcome"] == "success"
    rig.assert_all_ended()


@pytest.mark.rule("EMBED-04", "TIME-08")
def test_peer_that_is_lost_takes_its_other_calls_with_it() -> None:
    rig = rig_with_echo()
    gate, started = threading.Event(), threading.Event()
    reasons: list[str | None] = []

    def hold(arguments: dict[str, Any], context: ToolContext) -> None:
        started.set()
        assert gate.wait(PATIENCE)
        reasons.append(context.abort_signal.reason)

    rig.server.register(ToolDefinition("hold", "", ANYTHING), hold)
    peer = BrokenPeer(good=1)
    peer.connection = rig.server.connect(peer.receive)
    peer.shake_hands()
    peer.start("hold")
    assert started.wait(PATIENCE)
    peer.ask("ping")
    assert peer.connection.closed
    gate.set()
    assert rig.server.runtime.engine.wait_idle(PATIENCE)
    assert reasons == ["disconnected"]
    assert [record["outcome"] for record in rig.records] == ["disconnected_completed"]
    assert peer.attempts == 2


@pytest.mark.rule("EMBED-04")
@pytest.mark.parametrize("told", ["progress", "log"])
def test_abort_callback_of_a_lost_peer_runs_without_the_lock(told: str) -> None:
    rig = rig_with_echo()
    free: list[bool] = []

    def look_from_elsewhere() -> None:
        free.append(peer.connection.lock.acquire(blocking=False))
        if free[-1]:
            peer.connection.lock.release()

    def aborted() -> None:
        thread = threading.Thread(target=look_from_elsewhere)
        thread.start()
        thread.join(PATIENCE)

    def tell(arguments: dict[str, Any], context: ToolContext) -> None:
        context.abort_signal.add_callback(aborted)
        if told == "progress":
            context.report_progress(1)
        else:
            context.log("error", "lost")

    rig.server.register(ToolDefinition("tell", "", ANYTHING), tell, inline=True)
    peer = BrokenPeer(good=1)
    peer.connection = rig.server.connect(peer.receive)
    peer.shake_hands()
    peer.ask("tools/call", {"name": "tell", "_meta": {"progressToken": 1}})
    assert peer.connection.closed
    assert free == [True]


# -- bugs of our own -------------------------------------------------------------------------------


@pytest.mark.rule("RPC-10")
def test_bug_is_logged_and_answered_and_the_connection_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = rig_with_echo()
    peer = rig.connect()

    def fail(*args: Any) -> Any:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(Dispatcher, "dispatch", fail)
        params = {"_meta": {"correlationId": "mine"}}
        peer.ask("ping", params, id="x")
        peer.notify("notifications/initialized")
        peer.connection.feed(b"{\n" + b"x" * 20_000_000 + b"\n")
    [answer] = peer.take()
    assert answer["id"] == "x"
    assert answer["error"] == {
        "code": -32603,
        "message": "Internal error",
        "data": {"reason": "internal_error", "correlationId": "mine"},
    }
    logged = rig.logged("internal error")
    assert len(logged) == 4
    assert {(line["level"], line["error"]["type"]) for line in logged} == {
        ("error", "ZeroDivisionError")
    }
    assert peer.answer(peer.ask("ping"))["result"] == {}


# -- threads ---------------------------------------------------------------------------------------


@pytest.mark.rule("EMBED-01", "LIFE-06")
def test_lines_are_handed_out_one_at_a_time_and_none_after_close_has_returned() -> None:
    rig = ServerFixture()
    inside = threading.Lock()
    overlaps: list[str] = []
    closed = threading.Event()
    late: list[bytes] = []
    enough = threading.Event()
    count = 0

    def send(line: bytes) -> None:
        nonlocal count
        if not inside.acquire(blocking=False):
            overlaps.append("two at a time")
            return
        if closed.is_set():
            late.append(line)
        count += 1
        if count == 150:
            enough.set()
        inside.release()

    def work(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return {"payload": "x" * 100}

    rig.server.register(ToolDefinition("work", "", ANYTHING), work)
    peer = ServerPeer()
    peer.connection = rig.server.connect(send)
    peer.shake_hands_quietly()
    stop = threading.Event()

    def feed() -> None:
        while not stop.is_set():
            peer.start("work")

    feeder = threading.Thread(target=feed)
    feeder.start()
    assert enough.wait(PATIENCE)
    peer.connection.close()
    closed.set()
    stop.set()
    feeder.join(PATIENCE)
    assert rig.server.runtime.engine.wait_idle(PATIENCE)
    assert overlaps == []
    assert late == []
    rig.assert_all_ended()


# -- other tools than before -----------------------------------------------------------------------


def register(rig: ServerFixture, name: str) -> None:
    rig.clock.advance(1)  # else it would be notified together with the change before
    rig.server.register(ToolDefinition(name, "", ANYTHING), echo, inline=True)


@pytest.mark.rule("LIFE-10", "LIFE-06")
def test_every_running_connection_is_notified_of_every_list_change() -> None:
    rig = ServerFixture()
    running, other, early, gone = (
        rig.connect(handshake=shakes_hands) for shakes_hands in (True, True, False, True)
    )
    gone.connection.close()
    register(rig, "a")
    assert running.take() == other.take() == [LIST_CHANGED]
    rig.clock.advance(1)
    rig.server.unregister("a")
    rig.server.unregister("a")
    assert running.take() == [LIST_CHANGED]
    early.shake_hands()
    register(rig, "b")
    assert running.take() == early.take() == [LIST_CHANGED]
    running.connection.close()
    register(rig, "c")
    assert running.received == gone.received == []


@pytest.mark.rule("LIFE-10")
def test_notified_client_finds_the_change_in_the_list() -> None:
    rig = ServerFixture()
    peer = ServerPeer()
    seen: list[list[str]] = []

    def send(line: bytes) -> None:
        message = orjson.loads(line)
        if message == LIST_CHANGED:
            peer.ask("tools/list", id="list")
        elif message["id"] == "list":
            seen.append([tool["name"] for tool in message["result"]["tools"]])

    peer.connection = rig.server.connect(send)
    peer.shake_hands_quietly()
    register(rig, "a")
    rig.clock.advance(1)
    rig.server.unregister("a")
    assert seen == [["a", "health"], ["health"]]


@pytest.mark.rule("LIFE-15", "EMBED-04")
def test_peer_lost_during_a_notification_does_not_stop_a_registration() -> None:
    rig = ServerFixture()
    peer, other = ServerPeer(), rig.connect()

    def send(line: bytes) -> None:
        if orjson.loads(line) == LIST_CHANGED:
            raise BrokenPipeError

    peer.connection = rig.server.connect(send)
    peer.shake_hands_quietly()
    register(rig, "a")
    assert peer.connection.closed
    assert other.take() == [LIST_CHANGED]


@pytest.mark.rule("LIFE-15")
def test_dropped_connection_is_collected() -> None:
    rig = ServerFixture()
    peer = rig.connect()
    gone = weakref.ref(peer.connection)
    del peer
    gc.collect()
    assert gone() is None
    register(rig, "a")


@pytest.mark.rule("LIFE-10", "LIFE-14", "EMBED-02")
def test_list_change_in_any_thread_is_sent_on_the_loop_of_the_host() -> None:
    async def main() -> None:
        rig = ServerFixture()
        told: asyncio.Queue[tuple[Any, int]] = asyncio.Queue()
        peer = ServerPeer()
        peer.connection = rig.server.connect(
            lambda line: told.put_nowait((orjson.loads(line), threading.get_ident()))
        )
        peer.shake_hands_quietly()
        await told.get()
        await asyncio.to_thread(register, rig, "a")
        here = threading.get_ident()
        assert await told.get() == (LIST_CHANGED, here)
        register(rig, "b")
        assert await told.get() == (LIST_CHANGED, here)
        peer.connection.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
