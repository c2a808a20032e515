"""Listening for one agent over NATS, as the only ledger that does (AACP-101 to AACP-103).

A listener asks who serves its agent. It subscribes if the server says that nobody has subscribed to
the question, or if a process of the same ledger answers. It asks again three times in a lease: of
two ledgers that began together, or were cut off from each other, one hears the other and yields.

The round trip of that question is its lease as well. A process that was stopped, or has lost its
connection, takes nothing before it has asked anew.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson
from attrs import asdict, evolve, field, frozen
from attrs.validators import instance_of, max_len
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from ...errors import describe_exception
from ..ledger.types import Envelope
from . import AgentServedElsewhereError, TransportError

if TYPE_CHECKING:
    from .nats import NatsTransport

MAX_TOKEN_LENGTH: Final = 128
"""The longest token of an agent in a subject; two fit in the 4,096 bytes of a line of NATS."""

_HERE = "=here"  # no agent has this token


@lru_cache(maxsize=4_096)  # two for every envelope, at 7 us: 7 % of its processor time
def token_of(agent_id: str) -> str:
    """Return an agent id as one token of a subject; different ids have different tokens.

    Letters, digits, ``-`` and ``_`` stand for themselves, every other byte of UTF-8 is ``=`` and
    two hexadecimal digits. An id whose token exceeds `MAX_TOKEN_LENGTH` is ``==`` and a digest.
    """
    quoted = quote(agent_id, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(quoted) <= MAX_TOKEN_LENGTH:
        return quoted.replace("%", "=")
    return f"=={blake2b(agent_id.encode(), digest_size=32).hexdigest()}"


def subject_of(prefix: str, envelope: Envelope) -> str:
    """Return the subject of an envelope."""
    source, target = token_of(envelope.source_agent_id), token_of(envelope.target_agent_id)
    return f"{prefix}.{source}.{target}"


def here_subject(prefix: str, token: str = "*") -> str:
    """Return the subject on which a ledger says that it listens for an agent; by default, all."""
    return f"{prefix}.{token}.{_HERE}"


def who_subject(prefix: str, token: str) -> str:
    """Return the subject on which ledgers ask who serves an agent.

    It is none of ``<prefix>.>``: a stream that captures these would keep the server from answering
    that nobody does.
    """
    return f"{prefix}-who.{token}"


RETRY_DELAY: Final = 1
"""The delay in seconds after which a failed step of the server, or of the ledger, is repeated."""

CLAIM_RETRY_DELAY: Final = 5
"""The same for an agent that another ledger serves."""

_RENEWALS = 3  # in one lease
_ANSWER_SECONDS = 1.0

_text: Any = (instance_of(str), max_len(255))


@frozen
class Candidate:
    """A process that serves an agent, or asks who does, as it presents itself to others.

    Attributes:
        holds: it serves the agent; else it would like to.
        since: when its transport was opened, in ms since 1970.
        ledger: the unique name of its ledger.
    """

    holds: bool = field(validator=instance_of(bool))
    since: int = field(validator=instance_of(int))
    ledger: str = field(validator=_text)
    host: str = field(validator=_text)
    pid: int = field(validator=instance_of(int))

    def precedes(self, other: Candidate) -> bool:
        """Return whether the ledger of the other one has to yield."""
        return (not self.holds, self.since, self.ledger) < (
            not other.holds,
            other.since,
            other.ledger,
        )


def read_candidate(data: bytes) -> Candidate | None:
    """Return the candidate in a message; None if there is none: anybody may write there."""
    try:
        fields = orjson.loads(data)
        return Candidate(
            *(fields.get(each) for each in ("holds", "since", "ledger", "host", "pid"))
        )
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError, RecursionError):
        return None


class NatsListener:
    """Subscribes to the envelopes for one agent while this ledger serves it.

    Args:
        transport: has the connection and the logger, and takes the envelopes.
        agent_id: of the agent.
        own: what this process says about itself.
        inbox: the beginning of the subject of answers; it ends with the agent's token.
    """

    def __init__(self, transport: NatsTransport, agent_id: str, own: Candidate, inbox: str) -> None:
        self.agent_id = agent_id
        self._transport = transport
        self._own = own
        self._token = token_of(agent_id)
        self._lease = transport.claim_ms / 1000  # seconds
        self._who = who_subject(transport.prefix, self._token)
        self._inbox = f"{inbox}.{self._token}"
        self._subscriptions: list[Subscription] = []
        self._answer: asyncio.Future[Candidate] | None = None
        # By the clock of the loop: until then no other ledger begins to serve the agent.
        self._until = -inf
        self._elder: Candidate | None = None
        self._refusal = ""
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- for the transport --------------------------------------------------------------------

    async def start(self) -> None:
        """Serve the agent, if no other ledger does, and go on until `stop`.

        Raises:
            AgentServedElsewhereError: another ledger serves it.
            TransportError: it is not known who does.
        """
        started = asyncio.get_running_loop().create_future()
        self._task = task = asyncio.ensure_future(self._run(started))
        await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            return
        if task.cancelled():
            raise TransportError(f"listening for {self.agent_id!r} was ended")
        try:
            task.result()
        except NatsError as error:
            raise self._transport.failure(error) from None

    async def _run(self, started: asyncio.Future[None]) -> None:
        await self._take()
        started.set_result(None)
        await self._keep()

    async def stop(self) -> None:
        """Take nothing more; another ledger may serve the agent from now on."""
        self._until = -inf
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._leave()

    def holds(self) -> bool:
        """Return whether this ledger surely serves the agent."""
        return asyncio.get_running_loop().time() < self._until

    def lapse(self) -> None:
        """Take nothing before the server has said anew that no other ledger serves the agent."""
        self._until = -inf
        self._news.set()

    async def announce(self) -> None:
        """Have what was not acknowledged sent again in the next round (AACP-100).

        A stream that stores envelopes answers, as it does to everybody who publishes (AACP-79).
        """
        fields = {"agent": self.agent_id, "ledger": self._own.ledger}
        subject = here_subject(self._transport.prefix, self._token)
        await self._transport.connected().publish(subject, orjson.dumps(fields), self._inbox)

    def answered(self, message: Msg) -> None:
        """Take an answer to the question who serves the agent."""
        if not message.data and message.headers:  # the server: nobody has subscribed to it
            answer: Candidate | None = self._own
        else:
            answer = read_candidate(message.data)
        if answer is None:
            return
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
        self._meet(answer)

    # -- who serves the agent -----------------------------------------------------------------

    async def _take(self) -> None:
        """Begin to serve the agent, unless another ledger does.

        One that has subscribed and does not answer, since it is stopped or cut off, has a lease.
        """
        await self._leave()
        time = asyncio.get_running_loop().time
        began = asked = time()
        answer = None
        while answer is None and (left := began + self._lease - time()) > 0:
            asked = time()
            answer = await self._ask(min(left, _ANSWER_SECONDS))
        if answer is not None and answer.ledger != self._own.ledger:
            raise self._served_elsewhere(answer)
        transport = self._transport
        subscribe = partial(transport.connected().subscribe, queue=self._own.ledger)
        envelopes, take = f"{transport.prefix}.*.{self._token}", partial(transport.take, self)
        # Each message comes to one process of every ledger.
        self._subscriptions.append(await subscribe(envelopes, cb=take))
        self._subscriptions.append(await subscribe(self._who, cb=self._on_question))
        self._until = asked + self._lease
        await self._renew()
        if answer is None:
            what = {"agentId": self.agent_id, "subject": self._who}
            transport.warn("nats: somebody is subscribed there and does not answer", what)
        await self.announce()

    async def _ask(self, seconds: float) -> Candidate | None:
        """Return who serves the agent, this process if nobody does; None: there is no answer."""
        self._answer = asyncio.get_running_loop().create_future()
        await self._say(self._transport.connected(), self._who, holds=False)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._answer
        return None

    async def _renew(self) -> None:
        """Ask again; the answer of the server is a new lease, and another ledger's its end."""
        client, began = self._transport.connected(), asyncio.get_running_loop().time()
        await self._say(client, self._who, holds=True)
        await self._transport.flush(client)
        await self._yield_to_elder()
        self._until = began + self._lease

    async def _say(self, client: Client, subject: str, *, holds: bool, reply: bool = True) -> None:
        data = orjson.dumps(asdict(evolve(self._own, holds=holds)))
        await client.publish(subject, data, self._inbox if reply else "")

    async def _on_question(self, message: Msg) -> None:
        asker = read_candidate(message.data)
        if asker is None or not message.reply or not self.holds():
            return
        self._meet(asker)
        if self.holds() and not (asker.holds and asker.ledger == self._own.ledger):
            with suppress(NatsError, TransportError):  # the connection is lost, or the subject bad
                client = self._transport.connected()
                await self._say(client, message.reply, holds=True, reply=False)

    def _meet(self, other: Candidate) -> None:
        """Yield to another ledger that served the agent before."""
        own = evolve(self._own, holds=True)
        if self.holds() and other.ledger != own.ledger and other.precedes(own):
            self._elder = other
            self.lapse()

    def _served_elsewhere(self, other: Candidate) -> AgentServedElsewhereError:
        transport = self._transport
        return AgentServedElsewhereError(
            f"agent {self.agent_id!r} is served by another ledger over NATS at {transport.server}:"
            f" ledger {other.ledger!r}, process {other.pid} on {other.host!r}; this is ledger"
            f" {self._own.ledger!r}. Two would each take the agent's messages. Stop that process,"
            " or have both use one ledger in PostgreSQL (aacp.store), or give this one another id"
            " (aacp.name, if it is the name of a coordinator)"
        )

    # -- as long as it listens ----------------------------------------------------------------

    async def _keep(self) -> None:
        """Renew the lease; serve the agent again as soon as that is possible."""
        pause = self._lease / _RENEWALS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()
            self._news.clear()
            pause = self._lease / _RENEWALS
            try:
                await self._go_on()
            except AgentServedElsewhereError as error:
                self._refuse(str(error))
                pause = CLAIM_RETRY_DELAY
            except (NatsError, TransportError) as error:
                what = {"agentId": self.agent_id, "error": str(error)}
                self._transport.warn("nats: not listening", what)
                pause = min(pause, RETRY_DELAY)
            except Exception as error:  # of nats-py: a lease must not lapse for a bug
                why = {"agentId": self.agent_id, "error": describe_exception(error)}
                self._transport.warn("nats: listening failed", why)
                pause = min(pause, RETRY_DELAY)

    async def _go_on(self) -> None:
        await self._yield_to_elder()
        if self.holds():
            await self._renew()
        elif self._transport.is_connected:  # else it is said when it is
            await self._take()
            self._refusal = ""

    async def _yield_to_elder(self) -> None:
        elder, self._elder = self._elder, None
        if elder is not None:
            await self._leave()
            raise self._served_elsewhere(elder)

    def _refuse(self, refusal: str) -> None:
        """Log who serves the agent, once."""
        logger = self._transport.logger
        if logger is not None and refusal != self._refusal:
            what = {"agentId": self.agent_id, "error": refusal}
            logger.error("nats: an agent is served by another ledger: nothing is taken", what)
        self._refusal = refusal

    async def _leave(self) -> None:
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            with suppress(NatsError):
                await subscription.unsubscribe()
