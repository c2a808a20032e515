"""Listening to NATS: fetching one agent's envelopes, entering them in the ledger, acknowledging.

One request for a batch is outstanding at a time. The next one is sent before the last part of a
batch is delivered, so that the server fills one batch while the ledger writes the other. Envelopes
that arrive meanwhile are delivered together: the slower the ledger, the larger its batches.

A failure never ends the listener: it makes the stream, the consumer and the subscription again
where they are missing, until it is stopped. Envelopes that were not acknowledged are delivered
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

import orjson
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from ...errors import UsageError, describe_exception
from ..ledger.encoder import DecodeError, decode
from ..ledger.types import Envelope
from ..persistence import StoreError
from . import AgentServedElsewhereError, Deliver, TransportError

if TYPE_CHECKING:
    from .nats import NatsTransport
    from .nats_claims import NatsClaims

RETRY_DELAY: Final = 1
"""The delay in seconds after which a failed step of the server, or of the ledger, is repeated."""

CLAIM_RETRY_DELAY: Final = 5
"""The same for an agent that another ledger serves."""

# The most envelopes in one request, and their bytes, so that large ones do not fill the memory.
# Requests that are not filled lapse at the server and, in case it forgets them, here.
_BATCH = 512
_BATCH_BYTES = 32 * 1024 * 1024
_LIFETIME = 30  # seconds
_GRACE = 5  # seconds

# The time in seconds in which the server finishes sending.
_DRAIN_TIMEOUT = 1

# At most two batches, and the envelopes that wait to be delivered again.
MAX_ACK_PENDING: Final = 4 * _BATCH

_EXPIRED = "408"


class _Trouble(Exception):
    """The server ended a fetch for a reason that another fetch does not remove."""


class NatsListener:
    """Fetches the envelopes for one agent, delivers them, and acknowledges them.

    Its task may be cancelled while it waits, and not while it delivers: then it is asked to stop.

    Args:
        transport: has the connection, the stream's layout and the logger.
        claims: says whether the agent is served by this ledger.
        agent_id: of the agent, which is claimed.
        deliver: enters envelopes in the ledger.
    """

    def __init__(
        self, transport: NatsTransport, claims: NatsClaims, agent_id: str, deliver: Deliver
    ) -> None:
        self._transport = transport
        self._claims = claims
        self._deliver = deliver
        self._agent_id = agent_id
        self._consumer = transport.layout.consumer_of(agent_id)
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._numbers = count()
        # The outstanding request: how many envelopes are missing, and when it lapses.
        self._request = ""
        self._wanted = 0
        self._deadline = 0.0
        # Whether the agent was claimed on this connection; who was found to serve it instead.
        self._is_claimed = True
        self._refusal = ""
        # Whether stream, consumer and subscription are there; if not, the reason of the server.
        self._ready = False
        self._trouble = ""
        self._messages: list[Msg] = []
        self._news = asyncio.Event()
        self._busy = False
        self._stopping = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Finish the current delivery, give the rest back to the server, end the task."""
        self._stopping = True
        self._news.set()
        if not self._busy:
            self._task.cancel()
        try:
            await asyncio.wait((self._task,))
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        await self._give_back()

    def reconnected(self, *, subscribed: bool) -> None:
        """Continue on a new connection, to a server that does not know the outstanding request.

        Args:
            subscribed: the server knows the subscriptions of the connection before.
        """
        if not subscribed:
            self._subscription = None
        self.claim_again()

    def claim_again(self) -> None:
        """Take nothing more before it is known that this ledger serves the agent."""
        self._ready = self._is_claimed = False
        self._news.set()

    async def _run(self) -> None:
        while not self._stopping:
            try:
                await self._set_up()
                while self._ready and not self._stopping:
                    await self._turn()
                continue
            except AgentServedElsewhereError as error:
                self._refuse(str(error))
                # What is still outstanding would keep messages from the other ledger.
                await self._give_back()
                if not self._stopping:
                    await asyncio.sleep(CLAIM_RETRY_DELAY)
                continue
            except (NatsError, TransportError, UsageError, _Trouble) as error:
                self._warn("nats: not fetching", {"error": str(error)})
            except Exception as error:  # of nats-py
                self._fail("nats: fetching failed", error)
            if not self._stopping:
                await self._pause()

    async def _pause(self) -> None:
        """Wait a little, or until there is a connection again."""
        try:
            self._transport.connected()
        except TransportError:
            self._news.clear()
            await self._news.wait()
        else:
            await asyncio.sleep(RETRY_DELAY)

    def _refuse(self, refusal: str) -> None:
        """Log who serves the agent, once."""
        logger = self._transport.logger
        if logger is not None and refusal != self._refusal:
            what = {"agentId": self._agent_id, "error": refusal}
            logger.error("nats: an agent is served by another ledger: nothing is taken", what)
        self._refusal = refusal

    async def _set_up(self) -> None:
        """Make the stream, the consumer and the subscription, where they are missing."""
        self._ready = True
        client = self._transport.connected()
        if not self._is_claimed:
            await self._claims.take(self._agent_id)
            self._is_claimed, self._refusal = True, ""
        await self._transport.ensure_stream(client)
        await self._transport.layout.ensure_consumer(client, self._agent_id)
        if self._subscription is None:
            self._inbox = client.new_inbox()
            self._subscription = await client.subscribe(f"{self._inbox}.*", cb=self._on_message)
        self._wanted, self._trouble = 0, ""

    async def _turn(self) -> None:
        """Wait for messages, and deliver them."""
        if not self._messages:
            await self._pull()
            try:
                async with asyncio.timeout_at(self._deadline):
                    await self._news.wait()
            except TimeoutError:  # the server ignores requests to a consumer that is gone
                self._ready = False
        self._news.clear()
        messages, self._messages = self._messages, []
        if messages:
            self._busy = True
            try:
                if self._claims.holds(self._agent_id):
                    with suppress(NatsError, TransportError):  # the next turn raises it
                        await self._pull()
                    await self._deliver_all(messages)
                else:  # this process, or its connection, was stopped for long
                    self.claim_again()
                    self._messages[:0] = messages
                    await self._give_back()
            finally:
                self._busy = False
        if self._trouble:
            raise _Trouble(self._trouble)

    # -- fetching -----------------------------------------------------------------------------

    async def _pull(self) -> None:
        """Request a batch, unless one is outstanding."""
        if self._wanted > 0 or self._stopping or self._trouble or not self._ready:
            return
        client = self._transport.connected()
        request = {
            "batch": _BATCH,
            "max_bytes": max(_BATCH_BYTES, client.max_payload),
            "expires": _LIFETIME * 1_000_000_000,
        }
        self._wanted = _BATCH
        self._deadline = asyncio.get_running_loop().time() + _LIFETIME + _GRACE
        self._request = f"{self._inbox}.{next(self._numbers)}"
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._transport.stream}.{self._consumer}"
        await client.publish(subject, orjson.dumps(request), self._request)

    async def _on_message(self, message: Msg) -> None:
        if message.reply:
            self._messages.append(message)
            self._wanted -= 1
        elif message.subject == self._request:  # else it is about an earlier request
            self._take_status(message.headers or {})
        self._news.set()

    def _take_status(self, headers: dict[str, str]) -> None:
        """Note that the server has ended the outstanding request before it was filled."""
        self._wanted = 0
        status, description = headers.get("Status", ""), headers.get("Description", "")
        if status != _EXPIRED and "MaxBytes" not in description:
            self._trouble = f"the server says {status} {description}".rstrip()

    # -- delivering ---------------------------------------------------------------------------

    async def _deliver_all(self, messages: Sequence[Msg]) -> None:
        """Deliver well-formed envelopes; then, and only then, acknowledge them."""
        taken, refused = self._read(messages)
        await self._answer(refused, b"+TERM")
        if not taken:
            return
        # Redelivered envelopes come late: sorted, they do not make the ledger hold the others.
        envelopes = sorted((envelope for envelope, _ in taken), key=lambda each: each.seq)
        try:
            await self._deliver(envelopes)
        except StoreError as error:
            self._warn("nats: not in the ledger, is delivered again", {"error": str(error)})
        except Exception as error:
            self._fail("nats: delivery failed, is delivered again", error)
        else:
            await self._acknowledge([message for _, message in taken])
            return
        delay = b'-NAK {"delay": %d}' % (RETRY_DELAY * 1_000_000_000)
        await self._answer((message for _, message in taken), delay)

    def _read(self, messages: Sequence[Msg]) -> tuple[list[tuple[Envelope, Msg]], list[Msg]]:
        """Return the envelopes in messages, and the messages without one, to be discarded."""
        taken: list[tuple[Envelope, Msg]] = []
        refused = []
        for message in messages:
            try:
                taken.append((self._envelope_in(message), message))
            except DecodeError as error:
                refused.append(message)
                self._warn("nats: no envelope", {"subject": message.subject, "error": str(error)})
        return taken, refused

    def _envelope_in(self, message: Msg) -> Envelope:
        envelope = decode(message.data)
        # NATS authorizes senders by permissions on subjects, so the subject is what counts.
        if self._transport.layout.subject_of(envelope) != message.subject:
            raise DecodeError("/sourceAgentId", "the agents that its subject names")
        return envelope

    async def _acknowledge(self, messages: Sequence[Msg]) -> None:
        """Acknowledge all; wait for the confirmation of the last, as the server keeps the order.

        When that fails they are delivered again, which does no harm.
        """
        try:
            client = self._transport.connected()
            with self._transport.expecting(1) as (inbox, answers):
                for message in messages[:-1]:
                    await client.publish(message.reply, b"+ACK")
                await client.publish(messages[-1].reply, b"+ACK", inbox)
                problem = await answers.wait(self._transport.timeout_ms / 1000)
        except (NatsError, TransportError) as error:
            problem = str(error)
        if problem:
            self._warn("nats: not acknowledged, is delivered again", {"error": problem})

    async def _answer(self, messages: Iterable[Msg], word: bytes) -> None:
        """Send a reply to messages; when it is lost, they are delivered again."""
        try:
            for message in messages:
                await self._transport.connected().publish(message.reply, word)
        except (NatsError, TransportError) as error:
            self._warn("nats: not answered, is delivered again", {"error": str(error)})

    async def _give_back(self) -> None:
        """End the subscription, and let the server deliver its messages again, elsewhere."""
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            self._transport.connected()
            async with asyncio.timeout(_DRAIN_TIMEOUT):
                await subscription.drain()  # type: ignore[no-untyped-call]
        except (NatsError, TransportError, TimeoutError):
            with suppress(NatsError):
                await subscription.unsubscribe()
        messages, self._messages = self._messages, []
        await self._answer(messages, b"-NAK")

    def _fail(self, message: str, error: Exception) -> None:
        """Log an unexpected error; the messages under way are delivered again."""
        logger = self._transport.logger
        if logger is not None:
            logger.error(message, {"agentId": self._agent_id, "error": describe_exception(error)})

    def _warn(self, message: str, fields: dict[str, str]) -> None:
        if self._transport.logger is not None:
            self._transport.logger.warn(message, {"agentId": self._agent_id, **fields})
