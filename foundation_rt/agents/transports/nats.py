"""Envelopes over NATS, between ledgers on different machines (AACP-43).

Every envelope is published on the subject ``<prefix>.<source>.<target>``, to which the ledger of
its target has subscribed. NATS keeps nothing: the ledgers number, acknowledge and send again what
did not arrive (AACP-41). Who begins to listen, or has lost something, says so; then senders send
again what is not acknowledged, and do not wait for their policy (AACP-100).

nats-py makes the connection and makes it again. What arrives waits here, in bounded memory, until
the ledger takes it: the slower the ledger, the larger the batches that it gets.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from attrs import Attribute, define, field

from ...base.logs.logger import StructuredLogger
from ...errors import MissingExtraError, UsageError, describe_exception
from ..ledger.encoder import DecodeError, decode, encode, is_agent_id
from ..ledger.types import Envelope
from ..persistence import StoreError
from . import Deliver, OnLoss, TransportError

try:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.errors import Error as NatsError
    from nats.errors import StaleConnectionError
except ImportError:
    raise MissingExtraError("AACP over NATS", "nats") from None

from .nats_listener import RETRY_DELAY, Candidate, NatsListener, here_subject, subject_of, token_of

_SCHEMES = ("nats", "tls", "ws", "wss")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

# The most envelopes in one step of the ledger.
_BATCH: Final = 512

# What may wait for the server; further envelopes wait until it has taken them.
_MAX_UNTAKEN_BYTES: Final = 4 * 1024 * 1024

# What may wait for the ledger; further envelopes are dropped, and sent again.
_MAX_WAITING: Final = 8_192
_MAX_WAITING_BYTES: Final = 32 * 1024 * 1024

# Subjects of which it is logged that no envelope came there.
_MAX_REFUSED: Final = 100

_RECONNECT_DELAY = 0.25  # seconds
_PING_INTERVAL = 20  # seconds; two that are not answered end a connection


def _address(url: str) -> str:
    """Return host and port, without the credentials that a URL may contain.

    Raises:
        UsageError: the URL is not the address of a NATS server.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in _SCHEMES and parts.hostname:
            return f"{parts.hostname}:{parts.port or 4222}"
    except ValueError:
        pass  # not repeated below, since it may contain a secret
    raise UsageError("the URL of NATS is expected as nats://host:port")


class _Client(Client):
    """Does not wait for a server that takes nothing any more."""

    def abort(self) -> bool:
        """End the connection without sending what is buffered; False: it is a WebSocket."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is None:
            return False
        writer.transport.abort()
        return True

    async def _process_op_err(self, e: Exception) -> None:
        self.abort()  # else nats-py connects again when that server has taken everything
        await super()._process_op_err(e)


def _ignore(agent_id: str | None) -> None:
    pass


def _check_name(transport: NatsTransport, attribute: Attribute[str], name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{attribute.name}: expected 1 to 64 letters, digits, - and _")


@define(eq=False, repr=False)
class NatsTransport:
    """An `AACPTransport` over one NATS server or cluster.

    Args:
        url: ``nats://host:port`` of one server, which names the others of its cluster.
        prefix: the first token of subjects.
        timeout_ms: the longest wait for the server.
        claim_ms: the lease: the time after which another ledger may serve an agent whose process
            neither ends nor answers, and in which two ledgers with one agent find each other.
        logger: logs lost connections and what is no envelope.

    Raises:
        UsageError: the URL, or the prefix, is malformed.
    """

    url: str
    prefix: str = field(default="aacp", kw_only=True, validator=_check_name)
    timeout_ms: int = field(default=5_000, kw_only=True)
    claim_ms: int = field(default=30_000, kw_only=True)
    logger: StructuredLogger | None = field(default=None, kw_only=True)

    max_envelope_bytes: int = field(default=1024 * 1024, init=False)
    """The limit of the server while it is connected; before that, the default of servers."""

    server: str = field(init=False)
    _client: _Client | None = field(default=None, init=False)
    _is_open: bool = field(default=False, init=False)
    _own: Candidate = field(init=False)
    _inbox: str = field(default="", init=False)
    _tasks: list[asyncio.Task[None]] = field(factory=list, init=False)
    _listeners: dict[str, NatsListener] = field(factory=dict, init=False)  # by their tokens
    _on_loss: OnLoss = field(default=_ignore, init=False)
    # What has arrived, and its bytes; listeners of which something was dropped.
    _waiting: deque[tuple[NatsListener, Msg]] = field(factory=deque, init=False)
    _waiting_bytes: int = field(default=0, init=False)
    _missed: set[NatsListener] = field(factory=set, init=False)
    _news: asyncio.Event = field(factory=asyncio.Event, init=False)
    _refused: set[str] = field(factory=set, init=False)
    # The round trips that `flush` waits for: what went wrong, if anything.
    _echoes: dict[str, asyncio.Future[str]] = field(factory=dict, init=False)
    _numbers: count[int] = field(factory=count, init=False)
    _signs: set[str] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.server = _address(self.url)

    # -- the connection -----------------------------------------------------------------------

    async def open(self, deliver: Deliver, ledger_uid: str) -> None:
        """Connect. From then on a lost connection is made again, until that succeeds.

        Raises:
            TransportError: the server cannot be reached.
        """
        now_ms = time.time_ns() // 1_000_000
        self._own = Candidate(False, now_ms, ledger_uid, socket.gethostname(), os.getpid())
        await self._establish()
        self._is_open = True
        self._tasks = [asyncio.ensure_future(self._deliver_always(deliver))]
        self._on_loss(None)

    def on_loss(self, callback: OnLoss) -> None:
        """Call `callback` when a ledger begins to listen, and with every new connection."""
        self._on_loss = callback

    async def close(self) -> None:
        """Disconnect; a second call does nothing.

        A server that does not take what was sent has `timeout_ms` for that.
        """
        self._is_open = False
        try:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            await asyncio.gather(*(each.stop() for each in self._listeners.values()))
        finally:
            self._end_flushes("the transport was closed")
            self._listeners.clear()
            self._waiting.clear()
            self._missed.clear()
            self._waiting_bytes = 0
            await self._disconnect()

    async def _establish(self) -> None:
        self._client = client = await self._connect()
        try:
            self.max_envelope_bytes = client.max_payload
            self._inbox = self._inbox or client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._on_answer)
            await client.subscribe(here_subject(self.prefix), cb=self._on_here)
            await self.flush(client)
        except NatsError as error:
            await self._disconnect()
            raise self.failure(error) from None
        except BaseException:
            await self._disconnect()
            raise

    async def _connect(self) -> _Client:
        """Return a connection; the first failure ends the attempt, which nats-py would not."""
        client = _Client()
        failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        connecting = asyncio.ensure_future(
            client.connect(
                self.url,
                name=f"foundation-rt {self.prefix}",
                error_cb=partial(self._on_error, failure),
                disconnected_cb=self._on_disconnected,
                reconnected_cb=self._on_reconnected,
                closed_cb=self._on_closed,
                max_reconnect_attempts=-1,
                reconnect_time_wait=_RECONNECT_DELAY,  # type: ignore[arg-type]
                ping_interval=_PING_INTERVAL,
                # Nothing is buffered while there is no connection: it is an error at once. And
                # nats-py swallows a cancellation where it waits for a full buffer, or queue.
                pending_size=0,
                flusher_queue_size=0,
            )
        )
        reason: object = "no answer"
        try:
            await asyncio.wait(
                (connecting, failure),
                timeout=self.timeout_ms / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if failure.done():
                reason = failure.result()
            elif connecting.done():
                reason = connecting.exception()
        finally:
            failure.cancel()
            if reason is not None:
                connecting.cancel()
                await asyncio.wait((connecting,))
                await client.close()
        if reason is not None:
            raise TransportError(f"NATS at {self.server} cannot be reached: {reason}")
        return client

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        closing = asyncio.ensure_future(client.close())
        await asyncio.wait((closing,), timeout=self.timeout_ms / 1000)
        # nats-py waits until the server has taken everything.
        if not closing.done() and not client.abort():
            closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)

    async def _revive(self) -> None:
        """Connect again after nats-py has given up.

        It does so when the server has sent an error other than the loss of the connection, such as
        that the client reads too slowly.
        """
        while True:
            try:
                await self._establish()
                break
            except TransportError as error:
                self.warn("nats: cannot connect again", {"error": str(error)})
                await asyncio.sleep(RETRY_DELAY)
        await self._on_reconnected()

    def connected(self) -> Client:
        """Return the connection.

        Raises:
            TransportError: there is none now.
        """
        client = self._client
        if client is None or not client.is_connected:
            raise TransportError(f"there is no connection to NATS at {self.server}")
        return client

    @property
    def is_connected(self) -> bool:
        """Return whether there is a connection now."""
        return self._client is not None and self._client.is_connected

    async def flush(self, client: Client) -> None:
        """Return when the server has taken everything that was published and subscribed.

        The flush of nats-py may overtake that: its PING does not wait for what is still buffered.

        Raises:
            TransportError: it does not answer.
            nats.errors.Error: the connection is lost.
        """
        token = f"=flush{next(self._numbers)}"  # of no agent
        echo = self._echoes[token] = asyncio.get_running_loop().create_future()
        try:
            await client.publish(f"{self._inbox}.{token}", b"")
            async with asyncio.timeout(self.timeout_ms / 1000):
                problem = await echo
        except TimeoutError:
            problem = "no answer in time"
        finally:
            del self._echoes[token]
        if problem:
            raise TransportError(f"NATS at {self.server}: {problem}")

    def failure(self, error: Exception) -> TransportError:
        """Return what an error of nats-py is to the ledger."""
        return TransportError(f"NATS at {self.server}: {str(error) or type(error).__name__}")

    def _end_flushes(self, problem: str) -> None:
        for echo in self._echoes.values():
            if not echo.done():
                echo.set_result(problem)

    async def _on_error(self, failure: asyncio.Future[Exception], error: Exception) -> None:
        if not failure.done():
            failure.set_result(error)
        elif self.logger is not None:
            # A lost connection is logged elsewhere, once; this may be a missing permission.
            level = "debug" if isinstance(error, (OSError, StaleConnectionError)) else "warn"
            self.logger.log(level, "nats: error", {"server": self.server, "error": str(error)})

    async def _on_disconnected(self) -> None:
        self._end_flushes("the connection was lost")
        for listener in self._listeners.values():
            listener.lapse()
        if self._client is not None:
            self.warn("nats: connection lost", {})

    async def _on_reconnected(self) -> None:
        if self._client is not None:
            self.max_envelope_bytes = self._client.max_payload
        for listener in self._listeners.values():
            listener.lapse()
        self._on_loss(None)
        if self.logger is not None:
            self.logger.info("nats: connected again", {"server": self.server})

    async def _on_closed(self) -> None:
        if self._is_open and self._client is not None:  # else this transport closes it
            self._client = None
            self._tasks[1:] = [asyncio.ensure_future(self._revive())]

    def warn(self, message: str, fields: dict[str, Any]) -> None:
        """Log something at WARN, if there is a logger."""
        if self.logger is not None:
            self.logger.warn(message, {"server": self.server, **fields})

    # -- sending ------------------------------------------------------------------------------

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        """Publish envelopes; return when the server has taken them (AACP-77).

        Raises:
            TransportError: some of them may not have been sent.
        """
        too_large = 0
        try:
            for envelope in envelopes:
                data = encode(envelope)
                if len(data) > self.max_envelope_bytes:
                    too_large += 1
                    continue
                if (client := self.connected()).pending_data_size >= _MAX_UNTAKEN_BYTES:
                    await self.flush(client)
                await client.publish(subject_of(self.prefix, envelope), data)
            await self.flush(self.connected())
        except NatsError as error:
            raise self.failure(error) from None
        if too_large:
            raise TransportError(
                f"{too_large} envelopes have more than the {self.max_envelope_bytes} bytes"
                f" that NATS at {self.server} takes"
            )

    # -- listening ----------------------------------------------------------------------------

    async def listen(self, agent_id: str) -> None:
        """Deliver the envelopes for an agent from now on.

        After every later failure of NATS this is tried again, until `unlisten`.

        Raises:
            AgentServedElsewhereError: another ledger serves it.
            TransportError: the transport is not open, or the server does not answer.
        """
        if not self._is_open:
            raise TransportError("the transport is not open")
        token = token_of(agent_id)
        if token in self._listeners:
            return
        listener = NatsListener(self, agent_id, self._own, self._inbox)
        self._listeners[token] = listener
        try:
            await listener.start()
        except BaseException:
            if self._listeners.get(token) is listener:
                del self._listeners[token]
            await listener.stop()
            raise

    async def unlisten(self, agent_id: str) -> None:
        """Deliver nothing more to an agent; another ledger may serve it."""
        listener = self._listeners.pop(token_of(agent_id), None)
        if listener is not None:
            await listener.stop()

    async def _on_answer(self, message: Msg) -> None:
        token = message.subject.rpartition(".")[2]
        if (echo := self._echoes.get(token)) is not None:
            if not echo.done():
                echo.set_result("")
            return
        listener = self._listeners.get(token)
        stream = _read(message.data).get("stream")
        if isinstance(stream, str):
            self._notice_jetstream(f"the stream {stream[:255]!r} stores envelopes")
        elif listener is not None:
            listener.answered(message)

    def _notice_jetstream(self, sign: str) -> None:
        """Log once what shows that peers still use JetStream (AACP-79)."""
        if sign in self._signs or len(self._signs) >= _MAX_REFUSED or self.logger is None:
            return
        self._signs.add(sign)
        self.logger.error(
            f"nats: {sign}: peers of an earlier state of foundation-rt use JetStream, and do not"
            " see which agents are served here. Upgrade them all; then delete their stream (nats"
            f" stream rm) and the bucket {self.prefix}-claims (nats kv rm)",
            {"server": self.server},
        )

    async def _on_here(self, message: Msg) -> None:
        """Have what an agent did not acknowledge sent again, since its ledger listens anew."""
        fields = _read(message.data)
        agent_id, ledger = fields.get("agent"), fields.get("ledger")
        if not is_agent_id(agent_id) or ledger == self._own.ledger:
            return
        # NATS authorizes senders by permissions on subjects, so the subject is what counts.
        if message.subject == here_subject(self.prefix, token_of(agent_id)):
            self._on_loss(agent_id)

    # -- delivering ---------------------------------------------------------------------------

    async def take(self, listener: NatsListener, message: Msg) -> None:
        """Keep a message for the ledger, unless too much waits already or the lease is over."""
        if not listener.holds():
            return
        if len(self._waiting) >= _MAX_WAITING or self._waiting_bytes >= _MAX_WAITING_BYTES:
            self._missed.add(listener)
            return
        if message.headers:  # ours have none; they may be as large as the data
            source = message.subject.split(".")[1]
            self._notice_jetstream(f"agent {source!r} sends for a stream")
            message.headers = None
        self._waiting.append((listener, message))
        self._waiting_bytes += len(message.data)
        self._news.set()

    async def _deliver_always(self, deliver: Deliver) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                size = min(len(self._waiting), _BATCH)
                await self._deliver(deliver, [self._waiting.popleft() for _ in range(size)])
            if self._missed:
                await self._announce_missed()

    async def _deliver(self, deliver: Deliver, batch: Sequence[tuple[NatsListener, Msg]]) -> None:
        """Enter envelopes in the ledger. What it does not take is sent again."""
        self._waiting_bytes -= sum(len(message.data) for _, message in batch)
        envelopes = [
            envelope
            for listener, message in batch
            if listener.holds() and (envelope := self._envelope_in(message)) is not None
        ]
        # What was sent again comes late: sorted, it does not make the ledger hold the others.
        envelopes.sort(key=lambda each: each.seq)
        try:
            await deliver(envelopes)
            return
        except StoreError as error:
            fields: dict[str, Any] = {"error": str(error)}
        except Exception as error:
            fields = {"error": describe_exception(error)}
        self.warn("nats: not in the ledger, is sent again", fields)
        self._missed.update(listener for listener, _ in batch)

    def _envelope_in(self, message: Msg) -> Envelope | None:
        """Return the envelope in a message; log that there is none, once for each subject."""
        try:
            envelope = decode(message.data)
            # NATS authorizes senders by permissions on subjects, so the subject is what counts.
            if subject_of(self.prefix, envelope) == message.subject:
                return envelope
            problem = "/sourceAgentId: expected the agents that its subject names"
        except DecodeError as error:
            problem = str(error)
        if message.subject not in self._refused and len(self._refused) < _MAX_REFUSED:
            self._refused.add(message.subject)
            self.warn("nats: no envelope", {"subject": message.subject, "error": problem})
        return None

    async def _announce_missed(self) -> None:
        """Have what was dropped sent again, a moment after there is room for it."""
        await asyncio.sleep(RETRY_DELAY)
        missed, self._missed = self._missed, set()
        for listener in missed:
            try:
                await listener.announce()
            except (NatsError, TransportError):
                return  # every new connection is announced


def _read(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a message; empty if there is none: anybody may write there."""
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}
