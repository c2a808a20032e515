"""Envelopes over NATS JetStream, between ledgers on different machines (AACP-43).

Every envelope is published on the subject ``<prefix>.<source>.<target>`` of one stream, which keeps
it until the ledger of its target has it. A durable pull consumer for each target delivers
envelopes; they are acknowledged to the server after `deliver` has returned, never before. The
stream is a work queue: acknowledged messages are deleted, and messages for agents without a
listener wait.

The ledgers keep AACP's promises, not the stream. So the transport repeats and remembers nothing: an
envelope that could not be sent is a `TransportError`, one that could not be taken is delivered
again, and the receiving ledger handles envelopes that come twice, late or out of order (AACP-41).
``Nats-Msg-Id`` is the message id of an attempt; it keeps the server from storing one attempt twice,
and does not deduplicate messages.

nats-py makes the connection, reconnects, and manages streams. The transport publishes and pulls
plain messages in batches: one future for the acknowledgements of a batch, and one round trip for a
batch of acknowledgements. With everything on a machine of two cores and envelopes of 300 bytes, it
sends 4,400, 32,000 and 39,000 a second, one, 50 or 500 at a time (`publish_async` of nats-py:
3,800, 23,000 and 26,000), and delivers 27,000 (its `fetch`: 18,000 with plain acknowledgements,
9,500 with an `ack_sync` for each).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Final
from urllib.parse import urlsplit

import orjson
from attrs import define, field

from ...errors import MissingExtraError, UsageError
from ...logs.logger import StructuredLogger
from ..ledger.encoder import encode
from ..ledger.types import Envelope
from . import Deliver, OnLoss, TransportError

try:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.errors import Error as NatsError
    from nats.errors import StaleConnectionError
except ImportError:
    raise MissingExtraError("AACP over NATS", "nats") from None

from .nats_claims import NatsClaims
from .nats_layout import NatsLayout
from .nats_listener import RETRY_DELAY, NatsListener

DEFAULT_MAX_AGE_MS: Final = 24 * 60 * 60 * 1000
"""The default lifetime of records: an older envelope has expired."""

_SCHEMES = ("nats", "tls", "ws", "wss")

_ID_HEADER = "Nats-Msg-Id"
# The server also counts the lines of the header, with a message id of 36 bytes.
_HEADER_BYTES = len(f"NATS/1.0\r\n{_ID_HEADER}: \r\n\r\n") + 36

# The most envelopes that are on their way to the server at one time, and the most bytes of them, so
# that large envelopes do not fill the memory.
_WINDOW = 512
_WINDOW_BYTES = 4 * 1024 * 1024

# How far the clock of the server may be behind those of ledgers (AACP-33).
_MAX_SKEW_MS = 10_000

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


def _ignore(before_ms: int | None) -> None:
    pass


# -- the transport ------------------------------------------------------------------------------


@define(eq=False, repr=False)
class NatsTransport:
    """An `AACPTransport` over one NATS server or cluster.

    The stream is made when it is missing. An existing stream is used if it is a work queue, has the
    subjects and acknowledges; its operator decides about its limits, replicas and storage.

    Args:
        url: ``nats://host:port`` of one server, which names the others of its cluster.
        stream: the stream's name.
        prefix: the first token of subjects and the beginning of the consumers' names.
        max_age_ms: the time after which a stream that is made here deletes undelivered envelopes.
        ack_wait_ms: the time after which envelopes of a process that died are delivered again.
        timeout_ms: the longest wait for the server, to connect and to acknowledge a batch.
        claim_ms: the time after which another ledger may serve an agent whose ledger died.
        logger: logs lost connections and malformed envelopes.

    Raises:
        UsageError: the URL, or a name, is malformed.
    """

    durability = (
        "The ledgers carry the promises: what NATS loses is sent again until the ledger of its"
        " target has it. A stream in files survives the end of the server's process. The server"
        " calls fsync only every `sync_interval`, 2 minutes by default, so the end of its machine"
        " can take up to that much of what it has acknowledged. Its configuration"
        " `jetstream { sync_interval: always }` (nats-server 2.10 or later), or replicas on other"
        " machines, prevent that."
    )

    keeps = True

    url: str
    stream: str = field(default="AACP", kw_only=True)
    prefix: str = field(default="aacp", kw_only=True)
    max_age_ms: int = field(default=DEFAULT_MAX_AGE_MS, kw_only=True)
    ack_wait_ms: int = field(default=10_000, kw_only=True)
    timeout_ms: int = field(default=5_000, kw_only=True)
    claim_ms: int = field(default=30_000, kw_only=True)
    logger: StructuredLogger | None = field(default=None, kw_only=True)

    max_envelope_bytes: int = field(default=1024 * 1024 - _HEADER_BYTES, init=False)
    """The limit of the server while it is connected; before that, the default of servers."""

    layout: NatsLayout = field(init=False)

    _server: str = field(init=False)
    _client: Client | None = field(default=None, init=False)
    _deliver: Deliver | None = field(default=None, init=False)
    _claims: NatsClaims | None = field(default=None, init=False)
    _revival: asyncio.Task[None] | None = field(default=None, init=False)
    _listeners: dict[str, NatsListener] = field(factory=dict, init=False)
    _on_loss: OnLoss = field(default=_ignore, init=False)
    # When the stream was made, and the last number that it has given out, as far as is known; how
    # often that was found to be another stream, or an earlier state.
    _created: str = field(default="", init=False)
    _last_seq: int = field(default=0, init=False)
    _losses: int = field(default=0, init=False)
    # The subject on which the server answers, and the batches that wait for answers.
    _inbox: str = field(default="", init=False)
    _answers: dict[str, Answers] = field(factory=dict, init=False)
    _numbers: count[int] = field(factory=count, init=False)

    def __attrs_post_init__(self) -> None:
        self._server = _address(self.url)
        self.layout = NatsLayout(
            self.stream,
            self.prefix,
            self.max_age_ms,
            self.ack_wait_ms,
            self.timeout_ms,
            self.claim_ms,
        )

    # -- the connection -----------------------------------------------------------------------

    async def open(self, deliver: Deliver, ledger_uid: str) -> None:
        """Connect, and make the stream if it is missing.

        From then on a lost connection is made again, until that succeeds.

        Raises:
            TransportError: the server cannot be reached, or has no JetStream.
            UsageError: the existing stream cannot be used; the message says what to change.
        """
        await self._establish()
        self._deliver = deliver
        self._claims = NatsClaims(
            self.layout, self.connected, self._server, ledger_uid, self._on_claim_lost, self.logger
        )

    def on_loss(self, callback: OnLoss) -> None:
        """Call `callback` when the stream is another one, or ends earlier, than before."""
        self._on_loss = callback

    async def close(self) -> None:
        """Finish the current deliveries and disconnect; a second call does nothing."""
        self._deliver = None
        try:
            if self._revival is not None:
                self._revival.cancel()
                await asyncio.wait((self._revival,))
            await asyncio.gather(*(self._stop_listening(each) for each in [*self._listeners]))
        finally:
            try:
                if self._claims is not None:
                    await self._claims.close()
            finally:
                self._end_waiting("the transport was closed")
                await self._disconnect()

    async def _establish(self) -> None:
        self._client = client = await self._connect()
        try:
            self._learn_limits(client)
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._on_answer)
            await self.ensure_stream(client)
        except NatsError as error:
            await self._disconnect()
            raise TransportError(f"NATS at {self._server}: {error}") from None
        except BaseException:
            await self._disconnect()
            raise

    async def _connect(self) -> Client:
        """Return a connection; the first failure ends the attempt, which nats-py would not."""
        client = Client()
        failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        connecting = asyncio.ensure_future(
            client.connect(
                self.url,
                name=f"foundation-rt {self.stream}",
                error_cb=partial(self._on_error, failure),
                disconnected_cb=self._on_disconnected,
                reconnected_cb=self._on_reconnected,
                closed_cb=self._on_closed,
                max_reconnect_attempts=-1,
                reconnect_time_wait=_RECONNECT_DELAY,  # type: ignore[arg-type]
                ping_interval=_PING_INTERVAL,
                # Nothing is buffered while there is no connection: it is an error at once. And
                # nats-py swallows a cancellation where it waits for a full buffer.
                pending_size=0,
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
            raise TransportError(f"NATS at {self._server} cannot be reached: {reason}")
        return client

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _revive(self) -> None:
        """Connect again after nats-py has given up.

        It does so when the server has sent an error other than the loss of the connection, such as
        that the client reads too slowly.
        """
        while True:
            try:
                await self._establish()
                break
            except (TransportError, UsageError) as error:
                self._warn("nats: cannot connect again", {"error": str(error)})
                await asyncio.sleep(RETRY_DELAY)
        for listener in self._listeners.values():
            listener.reconnected(subscribed=False)
        self._log_connected()

    def connected(self) -> Client:
        """Return the connection.

        Raises:
            TransportError: there is none now.
        """
        client = self._client
        if client is None or not client.is_connected:
            raise TransportError(f"there is no connection to NATS at {self._server}")
        return client

    def _learn_limits(self, client: Client) -> None:
        self.max_envelope_bytes = client.max_payload - _HEADER_BYTES

    async def _on_error(self, failure: asyncio.Future[Exception], error: Exception) -> None:
        if not failure.done():
            failure.set_result(error)
        elif self.logger is not None:
            # A lost connection is logged elsewhere, once; this may be a missing permission.
            level = "debug" if isinstance(error, (OSError, StaleConnectionError)) else "warn"
            self.logger.log(level, "nats: error", {"server": self._server, "error": str(error)})

    async def _on_disconnected(self) -> None:
        self._end_waiting("the connection was lost")
        if self._client is not None:
            self._warn("nats: connection lost", {})

    async def _on_reconnected(self) -> None:
        if self._client is not None:
            self._learn_limits(self._client)
        for listener in self._listeners.values():
            listener.reconnected(subscribed=True)
        self._log_connected()

    async def _on_closed(self) -> None:
        if self._deliver is None or self._client is None:
            return  # this transport closes it
        self._client = None
        if self._revival is None or self._revival.done():
            self._revival = asyncio.get_running_loop().create_task(self._revive())

    async def ensure_stream(self, client: Client) -> None:
        """Make the stream if it is missing; report what it has lost (AACP-100, AACP-101).

        Raises:
            nats.errors.Error: the server refuses.
            UsageError: the existing stream, or a new one, cannot be used.
        """
        losses, last_seq = self._losses, self._last_seq
        stream = await self.layout.ensure_stream(client)
        if losses != self._losses:
            return  # another listener has reported it meanwhile
        known, self._created = self._created, stream.created
        if not known:
            # What was sent to an earlier stream, before this process began.
            self._on_loss(stream.created_ms + _MAX_SKEW_MS)
        elif stream.created != known or stream.last_seq < last_seq:
            self._losses += 1
            self._last_seq = stream.last_seq
            fields = {"stream": self.stream}
            self._warn("nats: the stream has lost messages; they are sent again", fields)
            self._on_loss(None)

    def _log_connected(self) -> None:
        if self.logger is not None:
            self.logger.info("nats: connected again", {"server": self._server})

    def _warn(self, message: str, fields: dict[str, str]) -> None:
        if self.logger is not None:
            self.logger.warn(message, {"server": self._server, **fields})

    # -- sending ------------------------------------------------------------------------------

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        """Publish, and wait until the stream has stored everything but bare acknowledgements.

        The next acknowledgement repeats a lost one, and the server's confirmation would cost as
        much as the envelope: 68,000 of them are sent in a second without it, and 33,000 with it.

        Raises:
            TransportError: some of them may not have been sent.
        """
        too_large = 0
        window: list[tuple[Envelope, bytes]] = []
        size = 0
        for envelope in envelopes:
            data = encode(envelope)
            if len(data) > self.max_envelope_bytes:
                too_large += 1
                continue
            window.append((envelope, data))
            size += len(data)
            if len(window) == _WINDOW or size >= _WINDOW_BYTES:
                await self._publish(window)
                window, size = [], 0
        await self._publish(window)
        if too_large:
            raise TransportError(
                f"{too_large} envelopes have more than the {self.max_envelope_bytes} bytes"
                f" that NATS at {self._server} takes"
            )

    async def _publish(self, window: Sequence[tuple[Envelope, bytes]]) -> None:
        client = self.connected()
        wanted = sum(envelope.seq > 0 for envelope, _ in window)
        try:
            with self.expecting(wanted) as (inbox, answers):
                for envelope, data in window:
                    subject = self.layout.subject_of(envelope)
                    reply = inbox if envelope.seq else ""
                    await client.publish(subject, data, reply, {_ID_HEADER: envelope.message_id})
                problem = await answers.wait(self.timeout_ms / 1000)
            if problem == _NO_STREAM:  # the next attempt will find it
                await self.ensure_stream(client)
        except (NatsError, UsageError) as error:
            problem = str(error)
        if problem:
            raise TransportError(f"NATS at {self._server}: {problem}")

    @contextmanager
    def expecting(self, wanted: int) -> Iterator[tuple[str, Answers]]:
        """Open an inbox for a number of answers of the server, until the block ends."""
        inbox = f"{self._inbox}.{next(self._numbers)}"
        answers = self._answers[inbox] = Answers(wanted)
        try:
            yield inbox, answers
        finally:
            del self._answers[inbox]

    async def _on_answer(self, message: Msg) -> None:
        answers = self._answers.get(message.subject)
        if answers is not None:
            refusal, seq = _answer_in(message)
            self._last_seq = max(self._last_seq, seq)
            answers.take(refusal)

    def _end_waiting(self, problem: str) -> None:
        for answers in self._answers.values():
            answers.finish(problem)

    # -- listening ----------------------------------------------------------------------------

    async def listen(self, agent_id: str) -> None:
        """Claim an agent and deliver its envelopes; return before the first of them.

        After every later failure of NATS this is tried again, until `unlisten`.

        Raises:
            AgentServedElsewhereError: another ledger serves it.
            TransportError: the transport is not open, or the server does not answer.
        """
        deliver, claims = self._deliver, self._claims
        if deliver is None or claims is None:
            raise TransportError("the transport is not open")
        if agent_id in self._listeners:
            return
        try:
            await claims.take(agent_id)
        except NatsError as error:
            raise TransportError(f"NATS at {self._server}: {error}") from None
        if self._deliver is deliver and agent_id not in self._listeners:
            self._listeners[agent_id] = NatsListener(self, claims, agent_id, deliver)

    async def unlisten(self, agent_id: str) -> None:
        """Finish the current deliveries to an agent; other envelopes wait in the stream.

        From then on another ledger may serve it.
        """
        await self._stop_listening(agent_id)
        if self._claims is not None:
            await self._claims.give_back(agent_id)

    async def _stop_listening(self, agent_id: str) -> None:
        listener = self._listeners.pop(agent_id, None)
        if listener is not None:
            await listener.stop()

    def _on_claim_lost(self, agent_id: str) -> None:
        listener = self._listeners.get(agent_id)
        if listener is not None:
            listener.claim_again()


# -- answers of the server ----------------------------------------------------------------------

_NO_STREAM = "nothing takes it"


def _answer_in(message: Msg) -> tuple[str, int]:
    """Return the reason of a refusal, else empty and the number that the stream has given out."""
    if not message.data:
        return (_NO_STREAM if message.headers else ""), 0
    answer = orjson.loads(message.data)
    error = answer.get("error")
    return (str(error.get("description", "refused")) if error else ""), answer.get("seq", 0)


class Answers:
    """The answers to a batch: one future for all, where nats-py has one for each."""

    __slots__ = ("_done", "_left")

    def __init__(self, left: int) -> None:
        self._left = left
        self._done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if not left:
            self.finish("")

    def take(self, refusal: str) -> None:
        """Count one answer; the first refusal ends the wait."""
        self._left -= 1
        if refusal or not self._left:
            self.finish(refusal)

    def finish(self, problem: str) -> None:
        """End the wait, unless it has ended."""
        if not self._done.done():
            self._done.set_result(problem)

    async def wait(self, timeout: float) -> str:
        """Return what failed, after at most `timeout` seconds; empty when nothing did."""
        try:
            async with asyncio.timeout(timeout):
                return await self._done
        except TimeoutError:
            return "not acknowledged in time"
