"""NATS as the transport: against the server of this machine, and against one that is killed.

Ledgers are fakes that record what they are given, fail, or wait. Every stream is the test's own and
is deleted at its end.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.js.api import RetentionPolicy

from foundation_rt.agents.ledger.encoder import encode, is_agent_id
from foundation_rt.agents.ledger.types import Envelope, MessageType
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.transports import TransportError, nats_listener
from foundation_rt.agents.transports.nats import NatsTransport
from foundation_rt.agents.transports.nats_layout import MAX_TOKEN_LENGTH, covers, token_of
from foundation_rt.errors import MissingExtraError, UsageError
from tests.support.nats_server import need_nats_server, own_nats_server
from tests.support.recorded_log import RecordedLog
from tests.support.services import NATS_URL, need_nats

LEDGER = uuid4().hex
"""The unique name of the ledger that the fakes stand for, all together."""

PATIENCE = 30.0
"""Seconds after which something that should have happened counts as hanging."""


@pytest.fixture
def _nats() -> None:
    need_nats()


@pytest.fixture
def _nats_server() -> None:
    need_nats_server()


requires_nats = pytest.mark.usefixtures("_nats")
requires_nats_server = pytest.mark.usefixtures("_nats_server")


# -- what the tests need ------------------------------------------------------------------------


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test to its end; nothing of it may be left running."""

    async def watched() -> None:
        async with asyncio.timeout(PATIENCE):
            await main
        left = asyncio.all_tasks() - {asyncio.current_task()}
        # A task of nats-py that was cancelled when its connection was closed may need a turn.
        if left:
            _, left = await asyncio.wait(left, timeout=1)
        assert not left

    asyncio.run(watched())


def event(seq: int, source: str = "a", target: str = "b", **changes: Any) -> Envelope:
    envelope = Envelope(
        str(uuid4()), None, source, target, seq, None, MessageType.EVENT, 1_700_000_000_000, b"1"
    )
    for name, value in changes.items():
        setattr(envelope, name, value)
    return envelope


def bare_ack(ack: int) -> Envelope:
    return event(0, ack=ack, ack_incarnation=1, low_watermark=0, payload=b"null")


class RecordingLedger:
    """Takes what is delivered, as it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[Envelope]] = []
        self.failures: list[Exception] = []
        self.open = asyncio.Event()
        self.open.set()
        self.asked = 0
        self._news = asyncio.Condition()

    async def deliver(self, envelopes: Sequence[Envelope]) -> None:
        async with self._news:
            self.asked += 1
            self._news.notify_all()
        await self.open.wait()
        if self.failures:
            self.open.clear()  # what is delivered again waits for the test
            raise self.failures.pop(0)
        async with self._news:
            self.batches.append(list(envelopes))
            self._news.notify_all()

    @property
    def seqs(self) -> list[int]:
        return [envelope.seq for batch in self.batches for envelope in batch]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with self._news:
            await self._news.wait_for(holds)

    async def has(self, *seqs: int) -> None:
        await self.until(lambda: set(seqs) <= set(self.seqs))


@asynccontextmanager
async def admin(url: str) -> AsyncIterator[Client]:
    """Connect for the test itself, to read and change the server."""
    client = Client()
    await client.connect(url)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def opened(url: str, ledger: RecordingLedger, **options: Any) -> AsyncIterator[NatsTransport]:
    """Yield an open transport, which is closed at the end."""
    transport = NatsTransport(url, **options)
    await transport.open(ledger.deliver, LEDGER)
    try:
        yield transport
    finally:
        await transport.close()


class Rig:
    """One stream, and the transports that share it."""

    def __init__(self, url: str, client: Client) -> None:
        self.url = url
        self.client = client
        self.streams = client.jetstream()
        self.name = f"T{uuid4().hex}"
        self.transports: list[NatsTransport] = []

    def transport(self, **options: Any) -> NatsTransport:
        """One that is not open yet."""
        options = {"stream": self.name, "prefix": self.name, **options}
        self.transports.append(NatsTransport(self.url, **options))
        return self.transports[-1]

    async def opened(self, ledger: RecordingLedger | None = None, **options: Any) -> NatsTransport:
        transport = self.transport(**options)
        await transport.open((ledger or RecordingLedger()).deliver, LEDGER)
        return transport

    async def stored(self) -> int:
        """How many envelopes the stream has."""
        return (await self.streams.stream_info(self.name)).state.messages


@asynccontextmanager
async def rig(url: str = NATS_URL) -> AsyncIterator[Rig]:
    async with admin(url) as client:
        here = Rig(url, client)
        try:
            yield here
        finally:
            for transport in here.transports:
                await transport.close()
            for info in await here.streams.streams_info():
                if here.name in str(info.config.name):  # the stream, and the bucket of claims
                    await here.streams.delete_stream(str(info.config.name))


agent_ids = st.text(min_size=1, max_size=256).filter(is_agent_id)


# -- names --------------------------------------------------------------------------------------


@pytest.mark.rule("AACP-75")
@given(agent_ids)
def test_token_is_one_token_of_bounded_length_and_says_its_agent(agent_id: str) -> None:
    token = token_of(agent_id)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", token)
    assert len(token) <= MAX_TOKEN_LENGTH
    if not token.startswith("=="):
        assert unquote(token.replace("=", "%")) == agent_id


@pytest.mark.rule("AACP-43", "AACP-75")
@given(agent_ids, agent_ids)
def test_two_agents_have_two_tokens(one: str, other: str) -> None:
    assert (token_of(one) == token_of(other)) == (one == other)


@pytest.mark.parametrize(
    ("agent_id", "token"),
    [
        ("Agent_7-b", "Agent_7-b"),
        ("a.b", "a=2Eb"),
        ("a*", "a=2A"),
        (">", "=3E"),
        ("a b~", "a=20b=7E"),
        ("a=2Eb", "a=3D2Eb"),
        ("é", "=C3=A9"),
        ("a" * 128, "a" * 128),
    ],
)
def test_tokens_are_readable(agent_id: str, token: str) -> None:
    assert token_of(agent_id) == token


def test_long_names_are_digests() -> None:
    tokens = {token_of("a" * 129), token_of("a" * 130), token_of("é" * 128), token_of("é" * 127)}
    assert len(tokens) == 4
    assert all(re.fullmatch(r"==[0-9a-f]{64}", token) for token in tokens)


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ("p.*.*", True),
        ("p.>", True),
        (">", True),
        ("*.*.*", True),
        ("*.*.>", True),
        ("p.*.b", False),
        ("p.*", False),
        ("p.*.*.*", False),
        ("p.*.*.>", False),
        ("q.>", False),
    ],
)
def test_which_subjects_cover_those_of_aacp(pattern: str, covered: bool) -> None:
    assert covers(pattern, "p.*.*") is covered


# -- what can be told without a server ----------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "nats://", "http://u:secret@h", "nats://u:secret@h:port", "nats://u:secret@[h"]
)
def test_malformed_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="nats://host:port") as caught:
        NatsTransport(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", "ä", "a" * 65])
@pytest.mark.parametrize("which", ["stream", "prefix"])
def test_names_that_nats_does_not_take_are_refused(which: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"{which}: expected"):
        NatsTransport("nats://h", **{which: name})  # type: ignore[arg-type]


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    monkeypatch.delitem(sys.modules, "foundation_rt.agents.transports.nats")
    with pytest.raises(MissingExtraError, match=r"foundation-rt\[nats\]"):
        __import__("foundation_rt.agents.transports.nats")


@pytest.mark.rule("AACP-79")
def test_durability_names_the_sync_interval() -> None:
    assert "sync_interval" in NatsTransport.durability
    assert "2 minutes" in NatsTransport.durability
    assert "sync_interval: always" in NatsTransport.durability


async def test_unreachable_server_is_named_without_credentials() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        transport = NatsTransport(f"nats://user:secret@127.0.0.1:{port}")
        with pytest.raises(TransportError, match=f"127.0.0.1:{port}") as caught:
            await transport.open(RecordingLedger().deliver, LEDGER)
        assert "secret" not in str(caught.value)
        assert "user" not in str(caught.value)
        await transport.close()


async def test_wait_for_a_silent_server_is_bounded() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        transport = NatsTransport(f"nats://127.0.0.1:{port}", timeout_ms=100)
        with pytest.raises(TransportError, match="no answer"):
            await transport.open(RecordingLedger().deliver, LEDGER)


async def test_operations_before_open_and_after_close_raise() -> None:
    transport = NatsTransport("nats://127.0.0.1:1")
    with pytest.raises(TransportError, match="no connection to NATS at 127"):
        await transport.send([event(1)])
    with pytest.raises(TransportError, match="not open"):
        await transport.listen("b")
    await transport.unlisten("b")
    await transport.close()
    await transport.close()


# -- carrying -----------------------------------------------------------------------------------


@requires_nats
@pytest.mark.rule("AACP-41", "AACP-43")
async def test_envelopes_arrive_as_they_were_sent_and_leave_the_stream() -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        receiver = await here.opened(ledger)
        sender = await here.opened()
        await receiver.listen("b")
        sent = [event(seq, payload=b'{"n":%d}' % seq) for seq in range(1, 1201)]
        await sender.send(sent)
        await ledger.has(*range(1, 1201))
        assert [each for batch in ledger.batches for each in batch] == sent
        await receiver.unlisten("b")
        assert await here.stored() == 0


@requires_nats
async def test_each_agent_gets_its_own_envelopes() -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        transport = await here.opened(ledger)
        targets = ["b", "B", "b.c", "*", ">", "ü", "x" * 200]
        for target in targets[:-1]:
            await transport.listen(target)
            await transport.listen(target)  # a second time does nothing
        await transport.send([event(1, "s.1", target) for target in targets])
        await ledger.until(lambda: len(ledger.seqs) == len(targets) - 1)
        got = [each.target_agent_id for batch in ledger.batches for each in batch]
        assert sorted(got) == sorted(targets[:-1])
        await transport.listen(targets[-1])
        await ledger.until(lambda: len(ledger.seqs) == len(targets))


@requires_nats
@pytest.mark.rule("AACP-76")
async def test_envelope_without_a_listener_waits() -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        transport = await here.opened(ledger)
        await transport.send([event(1)])
        await transport.listen("b")
        await ledger.has(1)
        await transport.unlisten("b")
        await transport.send([event(2)])
        assert (ledger.seqs, await here.stored()) == ([1], 1)
        await transport.listen("b")
        await ledger.has(2)
        assert ledger.seqs == [1, 2]


@requires_nats
async def test_waiting_envelopes_are_delivered_in_the_order_of_numbers() -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        transport = await here.opened(ledger)
        await transport.send([event(3), event(1), bare_ack(7), event(2)])
        ledger.open.clear()
        await transport.listen("b")
        await ledger.until(lambda: ledger.asked == 1)
        ledger.open.set()
        await ledger.has(0, 1, 2, 3)
        assert all(
            [each.seq for each in batch] == sorted(each.seq for each in batch)
            for batch in ledger.batches
        )


@requires_nats
@pytest.mark.rule("AACP-43")
async def test_message_id_deduplicates_attempts_not_messages() -> None:
    async with rig() as here:
        transport = await here.opened()
        attempt = event(1)
        await transport.send([attempt])
        await transport.send([attempt])
        assert await here.stored() == 1
        await transport.send([event(1)])
        assert await here.stored() == 2


@requires_nats
async def test_bare_acknowledgements_are_sent_and_not_waited_for() -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        transport = await here.opened(ledger)
        await transport.listen("b")
        await transport.send([bare_ack(3)])
        await ledger.has(0)
        assert ledger.batches[0][0].ack == 3
        await transport.send([])


@requires_nats
async def test_too_large_envelope_does_not_affect_others() -> None:
    async with rig() as here:
        transport = await here.opened()
        limit = transport.max_envelope_bytes
        assert 0 < limit < here.client.max_payload
        room = limit - len(encode(event(1, payload=b'""')))
        fits = event(1, payload=b'"%s"' % (b"x" * room))
        assert len(encode(fits)) == limit
        beyond = event(2, payload=b'"%s"' % (b"x" * (room + 1)))
        with pytest.raises(TransportError, match=f"1 envelopes have more than the {limit}"):
            await transport.send([fits, beyond, event(3)])
        assert await here.stored() == 2
        await transport.send([event(seq, payload=fits.payload) for seq in range(4, 10)])
        assert await here.stored() == 8


# -- acknowledging ------------------------------------------------------------------------------


@requires_nats
@pytest.mark.rule("AACP-41", "AACP-77")
async def test_nothing_is_acknowledged_before_it_is_in_the_ledger() -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        ledger.open.clear()
        transport = await here.opened(ledger)
        await transport.send([event(1), event(2)])
        await transport.listen("b")
        await ledger.until(lambda: ledger.asked == 1)
        assert await here.stored() == 2
        ledger.open.set()
        await ledger.has(1, 2)
        await transport.unlisten("b")
        assert await here.stored() == 0


@requires_nats
@pytest.mark.rule("AACP-41", "AACP-77")
@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (StoreError("the disk is full"), "nats: not in the ledger, is delivered again"),
        (RuntimeError("a bug"), "nats: delivery failed, is delivered again"),
    ],
)
async def test_envelope_refused_by_the_ledger_is_delivered_again(
    failure: Exception, said: str
) -> None:
    async with rig() as here:
        ledger, log = RecordingLedger(), RecordedLog()
        ledger.failures = [failure]
        transport = await here.opened(ledger, logger=log.logger())
        await transport.send([event(1), event(2)])
        await transport.listen("b")
        await log.says(said)
        assert await here.stored() == 2
        ledger.open.set()
        await ledger.has(1, 2)
        await transport.unlisten("b")
        assert await here.stored() == 0


@requires_nats
@pytest.mark.rule("AACP-77")
async def test_unacknowledged_envelope_goes_to_the_next_process() -> None:
    async with rig() as here:
        stuck, ledger = RecordingLedger(), RecordingLedger()
        stuck.open.clear()
        first = await here.opened(stuck, ack_wait_ms=1000)
        await first.send([event(1)])
        await first.listen("b")
        await stuck.until(lambda: stuck.asked == 1)
        second = await here.opened(ledger, ack_wait_ms=1000)
        await second.listen("b")
        await ledger.has(1)
        stuck.open.set()


@requires_nats
async def test_close_finishes_deliveries_and_returns_the_rest() -> None:
    async with rig() as here:
        ledger, other = RecordingLedger(), RecordingLedger()
        ledger.open.clear()
        transport = await here.opened(ledger)
        await transport.listen("b")
        await transport.send([event(1)])
        await ledger.until(lambda: ledger.asked == 1)
        await transport.send([event(seq) for seq in range(2, 50)])
        ending = asyncio.create_task(transport.close())
        assert not (await asyncio.wait((ending,), timeout=0))[0]
        ledger.open.set()
        await ending
        assert ledger.seqs == [1]
        # nats-server 2.9.10 forgets one of them now and then, until `ack_wait`.
        successor = await here.opened(other, ack_wait_ms=1000)
        await successor.listen("b")
        await other.has(*range(2, 50))
        assert 1 not in other.seqs


@requires_nats
async def test_cancelled_close_leaves_no_task() -> None:
    async with rig() as here:
        ledger, other = RecordingLedger(), RecordingLedger()
        ledger.open.clear()
        transport = await here.opened(ledger, ack_wait_ms=1000)
        await transport.send([event(1)])
        await transport.listen("b")
        await ledger.until(lambda: ledger.asked == 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await transport.close()
        assert ledger.seqs == []
        successor = await here.opened(other, ack_wait_ms=1000)
        await successor.listen("b")
        await other.has(1)


@requires_nats
async def test_large_envelopes_are_fetched_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as here:
        monkeypatch.setattr(nats_listener, "_BATCH_BYTES", 1)  # then it is the largest message
        ledger, log = RecordingLedger(), RecordedLog()
        transport = await here.opened(ledger, logger=log.logger())
        large = b'"%s"' % (b"x" * 600_000)
        await transport.send([event(seq, payload=large) for seq in range(1, 6)])
        await transport.listen("b")
        await ledger.has(1, 2, 3, 4, 5)
        assert not log.records
        assert len(ledger.batches) > 1


@requires_nats
@pytest.mark.rule("AACP-78")
async def test_malformed_envelope_is_logged_and_discarded() -> None:
    async with rig() as here:
        ledger, log = RecordingLedger(), RecordedLog()
        transport = await here.opened(ledger, logger=log.logger())
        subject = f"{here.name}.a.b"
        await here.streams.publish(subject, b"sesame")
        # One agent speaks for another: its subject says who it is.
        await here.streams.publish(subject, encode(event(1, source="c")))
        await transport.send([event(2)])
        await transport.listen("b")
        await ledger.has(2)
        await transport.unlisten("b")
        assert ledger.seqs == [2]
        assert await here.stored() == 0
        refusals = log.said("nats: no envelope")
        assert [each["level"] for each in refusals] == ["warn", "warn"]
        assert "the agents that its subject names" in refusals[1]["error"]
        assert "sesame" not in str(log.records)


# -- the stream ---------------------------------------------------------------------------------


@requires_nats
@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"subjects": ["{}.x"]}, r"add \w+\.\*\.\* to its subjects"),
        ({"retention": RetentionPolicy.LIMITS}, "retention workqueue"),
        ({"no_ack": True}, "no_ack off"),
    ],
)
async def test_unsuitable_stream_is_refused_with_advice(
    settings: dict[str, Any], advice: str
) -> None:
    async with rig() as here:
        usual = {"subjects": ["{}.>"], "retention": RetentionPolicy.WORK_QUEUE}
        merged: dict[str, Any] = {**usual, **settings}
        merged["subjects"] = [each.format(here.name) for each in merged["subjects"]]
        await here.streams.add_stream(name=here.name, **merged)
        with pytest.raises(UsageError, match=advice):
            await here.opened()


@requires_nats
async def test_stream_with_its_own_limits_is_used_and_its_refusals_raise() -> None:
    async with rig() as here:
        await here.streams.add_stream(
            name=here.name,
            subjects=[f"{here.name}.>"],
            retention=RetentionPolicy.WORK_QUEUE,
            discard="new",
            max_msgs=2,
        )
        transport = await here.opened()
        with pytest.raises(TransportError, match="maximum messages"):
            await transport.send([event(seq) for seq in range(1, 6)])
        assert await here.stored() == 2


@requires_nats
async def test_subjects_that_another_stream_has_are_refused() -> None:
    async with rig() as here:
        await here.opened()
        with pytest.raises(UsageError, match="overlap"):
            await here.opened(stream=f"{here.name}2")


@requires_nats
async def test_deleted_stream_is_made_again() -> None:
    async with rig() as here:
        ledger, log = RecordingLedger(), RecordedLog()
        transport = await here.opened(ledger, logger=log.logger())
        await here.streams.delete_stream(here.name)
        with pytest.raises(TransportError, match="nothing takes it"):
            await transport.send([event(1)])
        await transport.send([event(1)])
        await transport.listen("b")
        await ledger.has(1)
        await here.streams.delete_stream(here.name)
        await log.says("nats: not fetching")
        while 2 not in ledger.seqs:
            try:
                await transport.send([event(2)])
                await ledger.has(2)
            except TransportError:
                continue


@requires_nats
async def test_deleted_consumer_is_made_again() -> None:
    async with rig() as here:
        ledger, log = RecordingLedger(), RecordedLog()
        transport = await here.opened(ledger, logger=log.logger())
        await transport.listen("b")
        await transport.send([event(1)])
        await ledger.has(1)
        await here.streams.delete_consumer(here.name, f"{here.name}-b")
        await log.says("nats: not fetching")
        await transport.send([event(2)])
        await ledger.has(2)


# -- lost connections ---------------------------------------------------------------------------


@requires_nats_server
@pytest.mark.rule("AACP-41", "AACP-77", "AACP-79")
async def test_nothing_is_lost_when_the_server_is_killed_in_mid_traffic(tmp_path: Path) -> None:
    async with own_nats_server(tmp_path) as (server, stack):
        ledger, log, sender_log = RecordingLedger(), RecordedLog(), RecordedLog()
        sender = await stack.enter_async_context(
            opened(server.url, RecordingLedger(), logger=sender_log.logger())
        )
        options = {"ack_wait_ms": 1000, "logger": log.logger()}
        receiver = await stack.enter_async_context(opened(server.url, ledger, **options))
        await receiver.listen("b")
        numbers, refused, stored = count(1), list[int](), list[int]()

        async def send_some() -> None:
            seqs = [next(numbers) for _ in range(20)]
            try:
                await sender.send([event(seq) for seq in seqs])
                stored.extend(seqs)
            except TransportError:
                refused.extend(seqs)

        for killed in range(1, 4):
            for _ in range(5):
                await send_some()
            # What is being delivered now is in the ledger and cannot be acknowledged.
            asked = ledger.asked
            ledger.open.clear()
            await send_some()
            await ledger.until(lambda: ledger.asked > asked)  # noqa: B023
            traffic = asyncio.create_task(send_some())
            server.kill()
            await traffic
            with pytest.raises(TransportError):
                await sender.send([event(10_000)])
            ledger.open.set()
            server.start()
            await log.says("nats: connected again", killed)
            await sender_log.says("nats: connected again", killed)
        await ledger.has(*stored)
        assert refused
        await sender.send([event(seq) for seq in refused])
        await ledger.has(*refused)
        # What was not acknowledged has come again.
        assert len(ledger.seqs) > len(set(ledger.seqs))
        assert not log.said("nats: delivery failed, is delivered again")
        # Some that was acknowledged may stay: the server stores what its consumer has finished
        # sooner than what its stream has removed. What comes now leaves the stream as ever.
        async with admin(server.url) as client:
            streams = client.jetstream()
            left = (await streams.stream_info("AACP")).state.messages
            last = [next(numbers) for _ in range(20)]
            await sender.send([event(seq) for seq in last])
            await ledger.has(*last)
            await receiver.unlisten("b")
            assert (await streams.stream_info("AACP")).state.messages <= left


@requires_nats_server
async def test_close_without_a_server_works(tmp_path: Path) -> None:
    async with own_nats_server(tmp_path) as (server, stack):
        log = RecordedLog()
        context = opened(server.url, RecordingLedger(), logger=log.logger())
        transport = await stack.enter_async_context(context)
        await transport.listen("b")
        server.kill()
        await log.says("nats: connection lost")
        with pytest.raises(TransportError, match="no connection"):
            await transport.listen("c")
        await transport.unlisten("b")
        await transport.close()


@requires_nats_server
async def test_server_that_comes_back_empty_gets_its_stream_again(tmp_path: Path) -> None:
    async with own_nats_server(tmp_path / "one") as (server, stack):
        ledger, log = RecordingLedger(), RecordedLog()
        context = opened(server.url, ledger, logger=log.logger())
        transport = await stack.enter_async_context(context)
        await transport.listen("b")
        await transport.send([event(1)])
        await ledger.has(1)
        server.kill()
        server.directory = tmp_path / "two"
        server.start()
        await log.says("nats: connected again")
        while 2 not in ledger.seqs:
            try:
                await transport.send([event(2)])
                await ledger.has(2)
            except TransportError:
                continue


@requires_nats_server
async def test_connection_given_up_by_nats_py_is_made_again(tmp_path: Path) -> None:
    async with own_nats_server(tmp_path) as (server, stack):
        ledger, log = RecordingLedger(), RecordedLog()
        context = opened(server.url, ledger, logger=log.logger())
        transport = await stack.enter_async_context(context)
        await transport.listen("b")
        await transport.send([event(1)])
        await ledger.has(1)
        # What the server says to a client that reads too slowly, and the like.
        client = transport.connected()
        await client._process_err("'Slow Consumer'")
        await log.says("nats: connected again")
        assert transport.connected() is not client
        await transport.send([event(2)])
        await ledger.has(2)
        # And while the server is not there either.
        client = transport.connected()
        server.kill()
        await log.says("nats: connection lost", 2)
        await client.close()
        await log.says("nats: cannot connect again")
        server.start()
        await log.says("nats: connected again", 2)
        await transport.send([event(3)])
        await ledger.has(3)
        await transport.close()


@requires_nats_server
@pytest.mark.rule("AACP-78")
async def test_server_authorizes_connections_and_senders(tmp_path: Path) -> None:
    users = """authorization { users = [
        {user: u, password: sesame, permissions: {publish: {deny: "aacp.x.*"}}}
    ]}"""
    (tmp_path / "config").write_text(users)

    async with own_nats_server(tmp_path, "-c", str(tmp_path / "config")) as (server, stack):
        log = RecordedLog()
        url = server.url.replace("//", "//u:simsim@")
        with pytest.raises(TransportError, match="Authorization Violation") as caught:
            await NatsTransport(url).open(RecordingLedger().deliver, LEDGER)
        assert "simsim" not in str(caught.value)
        url = server.url.replace("//", "//u:sesame@")
        context = opened(url, RecordingLedger(), logger=log.logger(), timeout_ms=500)
        transport = await stack.enter_async_context(context)
        await transport.send([event(1)])
        with pytest.raises(TransportError, match="not acknowledged in time"):
            await transport.send([event(1, source="x")])
        assert "permissions violation" in log.said("nats: error")[0]["error"]
        assert log.said("nats: error")[0]["level"] == "warn"
        assert "sesame" not in str(log.records)


@requires_nats_server
async def test_server_without_jetstream_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("jetstream: disabled")
    async with own_nats_server(tmp_path, "-c", str(tmp_path / "config"), "-js=false") as (
        server,
        _,
    ):
        with pytest.raises(TransportError, match=f"NATS at 127.0.0.1:{server.port}"):
            await NatsTransport(server.url).open(RecordingLedger().deliver, LEDGER)


@requires_nats_server
async def test_wait_for_the_server_ends_with_the_connection(tmp_path: Path) -> None:
    async with own_nats_server(tmp_path) as (server, stack):
        context = opened(server.url, RecordingLedger(), timeout_ms=int(PATIENCE * 10_000))
        transport = await stack.enter_async_context(context)
        # A stream that acknowledges nothing keeps the sender waiting.
        async with admin(server.url) as client:
            streams = client.jetstream()
            info = await streams.stream_info("AACP")
            info.config.no_ack = True
            await streams.update_stream(info.config)
        sending = asyncio.create_task(transport.send([event(1)]))
        await asyncio.sleep(0)
        server.kill()
        with pytest.raises(TransportError, match="connection was lost"):
            await sending


@requires_nats
async def test_acknowledgement_that_does_not_come_is_an_error() -> None:
    async with rig() as here:
        transport = await here.opened(timeout_ms=300)
        info = await here.streams.stream_info(here.name)
        info.config.no_ack = True
        await here.streams.update_stream(info.config)
        with pytest.raises(TransportError, match="not acknowledged in time"):
            await transport.send([event(1)])


@requires_nats
async def test_listeners_may_come_and_go_in_any_order() -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        transport = await here.opened(ledger)
        await transport.listen("b")
        await transport.unlisten("b")
        await transport.listen("b")
        await asyncio.gather(transport.unlisten("b"), transport.listen("c"))
        await transport.unlisten("nobody")
        await transport.listen("b")
        await transport.send([event(1), event(1, target="c")])
        await ledger.until(lambda: len(ledger.seqs) == 2)
        await asyncio.gather(transport.close(), transport.unlisten("c"))
        await transport.close()
        with pytest.raises(TransportError, match="no connection"):
            await transport.send([event(2)])
        await transport.open(ledger.deliver, LEDGER)  # it may be opened again
        await transport.send([event(2)])
        await transport.listen("b")
        await ledger.has(2)
