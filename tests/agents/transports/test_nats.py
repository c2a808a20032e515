"""NATS as the transport: against the server of this machine, and against one that is killed.

Ledgers are fakes that record what they are given, fail, or wait. Every prefix is the test's own.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg

from foundation_rt.agents.ledger.encoder import encode, is_agent_id
from foundation_rt.agents.ledger.types import Envelope, MessageType
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.transports import TransportError, nats
from foundation_rt.agents.transports.nats import NatsTransport
from foundation_rt.agents.transports.nats_listener import (
    MAX_TOKEN_LENGTH,
    Candidate,
    here_subject,
    read_candidate,
    token_of,
    who_subject,
)
from foundation_rt.errors import MissingExtraError, UsageError
from tests.lab.checks.recorded_log import RecordedLog
from tests.lab.places.processes import ServiceProcess, nats_server
from tests.lab.places.services import NATS_URL, need_nats, unique_name
from tests.lab.waiting import Changing

LEDGER = uuid4().hex
"""The unique name of the ledger that the fakes stand for, all together."""


@pytest.fixture
def _nats() -> None:
    need_nats()


requires_nats = pytest.mark.usefixtures("_nats")


# -- what the tests need ------------------------------------------------------------------------


def event(seq: int, source: str = "a", target: str = "b", **changes: Any) -> Envelope:
    envelope = Envelope(
        str(uuid4()), None, source, target, seq, None, MessageType.EVENT, 1_700_000_000_000, b"1"
    )
    for name, value in changes.items():
        setattr(envelope, name, value)
    return envelope


class RecordingLedger(Changing):
    """Takes what is delivered, as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[Envelope]] = []
        self.failures: list[Exception] = []
        self.open = asyncio.Event()
        self.open.set()
        self.asked = 0

    async def deliver(self, envelopes: Sequence[Envelope]) -> None:
        self.asked += 1
        self.has_changed()
        await self.open.wait()
        if self.failures:
            self.open.clear()  # what is delivered again waits for the test
            raise self.failures.pop(0)
        self.batches.append(list(envelopes))
        self.has_changed()

    @property
    def seqs(self) -> list[int]:
        return [envelope.seq for batch in self.batches for envelope in batch]

    async def has(self, *seqs: int) -> None:
        await self.until(lambda: set(seqs) <= set(self.seqs))


class Losses(Changing):
    """Notes for which agents envelopes may be lost, as a sender's ledger hears it."""

    def __init__(self, transport: NatsTransport) -> None:
        super().__init__()
        self.agents: list[str | None] = []
        transport.on_loss(self._note)

    def _note(self, agent_id: str | None) -> None:
        self.agents.append(agent_id)
        self.has_changed()

    async def has(self, agent_id: str | None, times: int = 1) -> None:
        await self.until(lambda: self.agents.count(agent_id) >= times)


class Rig:
    """Transports of one prefix, and a client of the test itself."""

    def __init__(self, url: str, client: Client) -> None:
        self.url = url
        self.client = client
        self.prefix = unique_name("aacp")
        self.transports: list[NatsTransport] = []
        self.log = RecordedLog()

    async def opened(
        self, ledger: RecordingLedger | None = None, uid: str = LEDGER, **options: Any
    ) -> NatsTransport:
        defaults = {"prefix": self.prefix, "logger": self.log.logger(), "timeout_ms": 60_000}
        options = defaults | options
        transport = NatsTransport(self.url, **options)
        self.transports.append(transport)
        await transport.open((ledger or RecordingLedger()).deliver, uid)
        return transport

    async def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        await self.client.publish(subject, data, reply)
        await self.client.flush()


@asynccontextmanager
async def rig(url: str = NATS_URL) -> AsyncIterator[Rig]:
    client = Client()
    await client.connect(url)
    here = Rig(url, client)
    try:
        yield here
    finally:
        for transport in here.transports:
            await transport.close()
        await client.close()


@asynccontextmanager
async def own_rig(folder: Path, *options: str) -> AsyncIterator[tuple[Rig, ServiceProcess]]:
    """Yield a rig with a server of its own."""
    with nats_server(folder, *options) as server:
        async with rig(server.url) as here:
            yield here, server


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


@pytest.mark.rule("AACP-101")
@given(st.binary() | st.just(b'{"holds": true, "since": 1, "ledger": "x", "host": 1, "pid": 1}'))
def test_what_is_no_claim_is_none(data: bytes) -> None:
    assert read_candidate(data) is None


@pytest.mark.rule("AACP-101")
def test_nested_claim_is_none() -> None:
    assert read_candidate(b'{"holds": %s%s}' % (b"[" * 1_000, b"]" * 1_000)) is None


@pytest.mark.rule("AACP-103")
@given(st.lists(st.builds(Candidate, st.booleans(), st.integers(0, 2), st.sampled_from("ab"),
                          st.just("h"), st.just(1)), min_size=2, max_size=2))  # fmt: skip
def test_of_two_ledgers_one_yields(claims: list[Candidate]) -> None:
    one, other = claims
    assert one.ledger == other.ledger or one.precedes(other) != other.precedes(one)


# -- what can be told without a server ----------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "nats://", "http://u:secret@h", "nats://u:secret@h:port", "nats://u:secret@[h"]
)
def test_malformed_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="nats://host:port") as caught:
        NatsTransport(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", "ä", "a" * 65])
def test_prefix_that_nats_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="prefix: expected"):
        NatsTransport("nats://h", prefix=name)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    monkeypatch.delitem(sys.modules, "foundation_rt.agents.transports.nats")
    with pytest.raises(MissingExtraError, match=r"foundation-rt\[nats\]"):
        __import__("foundation_rt.agents.transports.nats")


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
async def test_envelopes_arrive_as_they_were_sent_and_in_the_order_of_numbers() -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        receiver, sender = await here.opened(ledger), await here.opened()
        await receiver.listen("b")
        ledger.open.clear()
        sent = [event(seq, payload=b'{"n":%d}' % seq) for seq in range(1, 1201)]
        await sender.send(sent[:1])
        await ledger.until(lambda: ledger.asked == 1)
        await sender.send(sent[:0:-1])
        ledger.open.set()
        await ledger.has(*range(1, 1201))
        assert sorted(chain(*ledger.batches), key=lambda each: each.seq) == sent
        assert all(batch == sorted(batch, key=lambda each: each.seq) for batch in ledger.batches)


@requires_nats
@pytest.mark.rule("AACP-43")
async def test_each_envelope_comes_to_one_process_of_a_ledger() -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        for _ in range(3):
            await (await here.opened(ledger)).listen("b")
        await here.transports[0].send([event(seq) for seq in range(1, 301)])
        await ledger.has(*range(1, 301))
        assert sorted(ledger.seqs) == [*range(1, 301)]


@requires_nats
@pytest.mark.rule("AACP-76", "AACP-100")
async def test_nothing_waits_and_who_listens_says_so() -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        sender = await here.opened(uid="another")
        losses = Losses(sender)
        receiver = await here.opened(ledger)
        await sender.send([event(1)])
        await receiver.listen("b.c")
        await losses.has("b.c")
        await receiver.listen("b")
        await losses.has("b")
        await sender.send([event(2)])
        await ledger.has(2)
        await receiver.unlisten("b")
        await sender.send([event(3)])
        assert ledger.seqs == [2]
        assert losses.agents == ["b.c", "b"]


@requires_nats
@pytest.mark.rule("AACP-102")
async def test_subscriber_that_does_not_answer_is_named() -> None:
    async with rig() as here:
        transport = await here.opened(claim_ms=1_000)
        await transport.listen("b")
        heard = asyncio.Event()

        async def hear(message: Msg) -> None:
            heard.set()

        await here.client.subscribe(f"{here.prefix}-who.>", cb=hear)
        await here.client.publish(who_subject(here.prefix, "x"))
        await heard.wait()
        await transport.listen("c")
        [warning] = here.log.said("nats: somebody is subscribed there and does not answer")
        assert (warning["agentId"], warning["subject"]) == ("c", f"{here.prefix}-who.c")


@requires_nats
async def test_too_large_envelope_does_not_affect_others() -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        transport = await here.opened(ledger)
        await transport.listen("b")
        limit = transport.max_envelope_bytes
        assert limit == here.client.max_payload
        room = limit - len(encode(event(1, payload=b'""')))
        fits = event(1, payload=b'"%s"' % (b"x" * room))
        beyond = event(2, payload=b'"%s"' % (b"x" * (room + 1)))
        with pytest.raises(TransportError, match=f"1 envelopes have more than the {limit}"):
            await transport.send([fits, beyond, event(3)])
        await transport.send([event(seq, payload=fits.payload) for seq in range(4, 10)])
        await ledger.has(1, *range(3, 10))
        assert 2 not in ledger.seqs


# -- what is dropped ----------------------------------------------------------------------------


@requires_nats
@pytest.mark.rule("AACP-77")
@pytest.mark.parametrize("failure", [StoreError("the disk is full"), RuntimeError("a bug")])
async def test_envelope_refused_by_the_ledger_is_asked_for_again(failure: Exception) -> None:
    async with rig() as here:
        ledger = RecordingLedger()
        ledger.failures = [failure]
        receiver, sender = await here.opened(ledger), await here.opened(uid="another")
        losses = Losses(sender)
        await receiver.listen("b")
        await sender.send([event(1)])
        await losses.has("b", 2)
        assert len(here.log.said("nats: not in the ledger, is sent again")) == 1
        ledger.open.set()
        await sender.send([event(1)])
        await ledger.has(1)


@requires_nats
@pytest.mark.rule("AACP-77")
@pytest.mark.parametrize(("limit", "most"), [("_MAX_WAITING", 10), ("_MAX_WAITING_BYTES", 3_000)])
async def test_what_waits_for_the_ledger_is_bounded(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(nats, limit, most)
    async with rig() as here:
        ledger = RecordingLedger()
        ledger.open.clear()
        receiver, sender = await here.opened(ledger), await here.opened(uid="another")
        losses = Losses(sender)
        await receiver.listen("b")
        await sender.send([event(1)])
        await ledger.until(lambda: ledger.asked == 1)
        await here.client.publish(f"{here.prefix}.a.b", b"1", headers={"a": "x" * 5_000})
        await here.client.flush()
        await sender.send([event(seq) for seq in range(2, 1001)])
        await receiver.listen("c")  # by then the others have come
        assert not any(message.headers for _, message in receiver._waiting)
        ledger.open.set()
        await losses.has("b", 2)
        assert 1 < len(ledger.seqs) < 20
        await sender.send([event(2_000)])
        await ledger.has(2_000)


@requires_nats
@pytest.mark.rule("AACP-78")
async def test_junk_is_dropped_and_logged_once_for_each_subject(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nats, "_MAX_REFUSED", 2)
    async with rig() as here:
        ledger = RecordingLedger()
        transport = await here.opened(ledger)
        losses = Losses(transport)
        await transport.listen("b")
        for source in ("a", "a", "x", "y"):
            await here.publish(f"{here.prefix}.{source}.b", b"sesame")
            # One agent speaks for another: its subject says who it is.
            await here.publish(f"{here.prefix}.{source}.b", encode(event(1, source="c")))
        for data in (b"sesame", b"[]", b"{}", b'{"agent": 1}', b'{"agent": "c"}'):
            await here.publish(here_subject(here.prefix, "b"), data)
            await here.publish(who_subject(here.prefix, "b"), data, "nowhere")
            await here.publish(f"{transport._inbox}.b", data)
        for no_id in ("evil\0", "x" * 257):
            subject = here_subject(here.prefix, token_of(no_id))
            await here.publish(subject, orjson.dumps({"agent": no_id}))
        await here.publish(f"{here.prefix}.a.b", encode(event(2)))
        await ledger.has(2)
        assert (ledger.seqs, losses.agents) == ([2], [])
        refusals = here.log.said("nats: no envelope")
        assert [each["subject"][-3:] for each in refusals] == ["a.b", "x.b"]
        assert "sesame" not in str(here.log.records)


@requires_nats
@pytest.mark.rule("AACP-79")
async def test_peers_and_streams_of_jetstream_are_named_once() -> None:
    async with rig() as here:
        streams = here.client.jetstream()
        await streams.add_stream(name=here.prefix, subjects=[f"{here.prefix}.*.*"])
        try:
            ledger = RecordingLedger()
            transport = await here.opened(ledger)
            await transport.listen("b")
            await transport.listen("c")
            for seq in (1, 2):
                subject, headers = f"{here.prefix}.old.b", {"Nats-Msg-Id": "1"}
                await here.client.publish(subject, encode(event(seq, "old")), headers=headers)
            await ledger.has(1, 2)
            errors = [each["message"] for each in here.log.records if each["level"] == "error"]
            [message, peer] = errors
            assert f"the stream {here.prefix!r} stores envelopes" in message
            assert "agent 'old' sends for a stream" in peer
            assert f"the bucket {here.prefix}-claims (nats kv rm)" in message
        finally:
            await streams.delete_stream(here.prefix)


# -- lost connections ---------------------------------------------------------------------------


@pytest.mark.rule("AACP-100")
async def test_connection_that_comes_back_delivers_and_says_that_much_may_be_lost(
    tmp_path: Path,
) -> None:
    async with own_rig(tmp_path) as (here, server):
        ledger = RecordingLedger()
        receiver, sender = await here.opened(ledger), await here.opened(uid="another")
        losses = Losses(sender)
        await receiver.listen("b")
        await losses.has("b")
        for killed in range(1, 3):
            server.kill()
            await here.log.says("nats: connection lost", 2 * killed)
            with pytest.raises(TransportError, match="no connection"):
                await sender.send([event(1)])
            with pytest.raises(TransportError, match="no connection"):
                await receiver.listen("c")
            server.start()
            await losses.has(None, killed)
            while killed not in ledger.seqs:
                await sender.send([event(killed)])
                await asyncio.sleep(0.01)
        server.kill()
        await here.log.says("nats: connection lost", 6)
        await receiver.unlisten("b")
        await receiver.close()


@pytest.mark.rule("AACP-77")
async def test_frozen_server_fills_no_memory_and_keeps_no_close_waiting(tmp_path: Path) -> None:
    async with own_rig(tmp_path) as (here, server):
        transport = await here.opened()
        await transport.listen("b")
        transport.timeout_ms = 100
        client, tasks = transport.connected(), asyncio.all_tasks()
        server.freeze()
        many = [event(seq, payload=b'"%s"' % (b"x" * 500_000)) for seq in range(100)]
        for _ in range(10):
            with pytest.raises(TransportError, match="no answer in time"):
                await transport.send(many)
        assert client.pending_data_size < 6_000_000
        await transport.close()
        assert client.is_closed
        assert asyncio.all_tasks() < tasks


@pytest.mark.rule("AACP-100")
async def test_connection_to_a_frozen_server_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nats, "_PING_INTERVAL", 0.1)
    async with own_rig(tmp_path) as (here, server):
        transport = await here.opened()
        transport.timeout_ms = 100
        losses = Losses(transport)
        many = [event(seq, payload=b'"%s"' % (b"x" * 500_000)) for seq in range(100)]
        server.freeze()
        while transport.is_connected:
            with pytest.raises(TransportError):
                await transport.send(many)
        await here.log.says("nats: connection lost")
        server.kill()
        transport.timeout_ms = 60_000
        server.start()
        await losses.has(None)


async def test_connection_given_up_by_nats_py_is_made_again(tmp_path: Path) -> None:
    async with own_rig(tmp_path) as (here, server):
        ledger = RecordingLedger()
        transport = await here.opened(ledger)
        losses = Losses(transport)
        await transport.listen("b")
        # What the server says to a client that reads too slowly, and the like.
        client = transport.connected()
        await client._process_err("'Slow Consumer'")
        await losses.has(None)
        assert transport.connected() is not client
        # And while the server is not there either.
        client = transport.connected()
        server.kill()
        await here.log.says("nats: connection lost", 2)
        await client.close()
        await here.log.says("nats: cannot connect again")
        server.start()
        await losses.has(None, 2)
        while not ledger.seqs:
            await transport.send([event(3)])
            await asyncio.sleep(0.01)


@pytest.mark.rule("AACP-78")
async def test_server_authorizes_connections_and_senders(tmp_path: Path) -> None:
    users = """authorization { users = [{user: u, password: sesame, permissions: {
        publish: {allow: ["aacp.a.*", "aacp.b.*", "aacp-who.b", "_INBOX.>"]}
        subscribe: {allow: ["aacp.*.b", "aacp-who.b", "aacp.*.=here", "_INBOX.>"]}
    }}]}"""
    (tmp_path / "config").write_text(users)
    with nats_server(tmp_path, "-c", str(tmp_path / "config")) as server:
        log, ledger = RecordedLog(), RecordingLedger()
        url = server.url.replace("//", "//u:simsim@")
        with pytest.raises(TransportError, match="Authorization Violation") as caught:
            await NatsTransport(url).open(ledger.deliver, LEDGER)
        assert "simsim" not in str(caught.value)
        url = server.url.replace("//", "//u:sesame@")
        transport = NatsTransport(url, logger=log.logger())
        await transport.open(ledger.deliver, LEDGER)
        await transport.listen("b")
        await transport.send([event(1, source="x"), event(2)])
        await ledger.has(2)
        assert ledger.seqs == [2]
        [record] = log.said("nats: error")
        assert "permissions violation" in record["error"]
        assert record["level"] == "warn"
        assert "sesame" not in str(log.records)
        await transport.close()


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
        beginning = asyncio.create_task(transport.listen("d"))
        await asyncio.sleep(0)
        await transport.unlisten("d")
        with pytest.raises(TransportError, match="listening for 'd' was ended"):
            await beginning
        await transport.listen("b")
        await transport.send([event(1), event(1, target="c")])
        await ledger.until(lambda: len(ledger.seqs) == 2)
        await asyncio.gather(transport.close(), transport.unlisten("c"))
        await transport.close()
        with pytest.raises(TransportError, match="no connection"):
            await transport.send([event(2)])
        await transport.open(ledger.deliver, LEDGER)  # it may be opened again
        await transport.listen("b")
        await transport.send([event(2)])
        await ledger.has(2)
