"""The layout of AACP in NATS: names of subjects and consumers, and settings of the stream.

One stream has the subjects ``<prefix>.<source>.<target>``. It is a work queue: acknowledged
messages are deleted, messages for agents without a listener wait, and the server ensures that no
two consumers share a message.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote

import orjson
from attrs import Attribute, field, frozen
from nats.aio.client import Client
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, BadRequestError, NotFoundError

from ...errors import UsageError
from ..ledger.types import Envelope
from .nats_listener import MAX_ACK_PENDING

MAX_TOKEN_LENGTH: Final = 128
"""The longest token of an agent in a subject.

Two of them fit in the 4,096 bytes that the server accepts for a line, and one in the 255 bytes that
it accepts for the name of a consumer.
"""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

# The time in seconds for which the server remembers message ids: longer than any attempt takes, and
# short, since it keeps them in memory.
_DUPLICATE_WINDOW = 30


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


def covers(pattern: str, subject: str) -> bool:
    """Return whether a stream's subject matches all that `subject`, with its wildcards, matches."""
    tokens, others = pattern.split("."), subject.split(".")
    if tokens[-1] == ">" and len(tokens) <= len(others):
        tokens, others = tokens[:-1], others[: len(tokens) - 1]
    return len(tokens) == len(others) and all(
        token in ("*", other) for token, other in zip(tokens, others, strict=True)
    )


def _check_name(layout: NatsLayout, attribute: Attribute[str], name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{attribute.name}: expected 1 to 64 letters, digits, - and _")


@frozen(repr=False)
class StoredStream:
    """A stream as it is now.

    Attributes:
        created: when it was made, by the server's clock: a stream that was lost and made again has
            another.
        last_seq: the number of the last message that it took.
    """

    created: str
    last_seq: int

    @property
    def created_ms(self) -> int:
        """The same in ms since 1970."""
        return int(datetime.fromisoformat(self.created).timestamp() * 1000)


@frozen(eq=False, repr=False)
class NatsLayout:
    """The stream and the consumers of one prefix.

    Args:
        stream, prefix: 1 to 64 letters, digits, ``-`` and ``_``.
        max_age_ms: the lifetime of undelivered envelopes, in a stream that is made here.
        ack_wait_ms: the time after which a consumer delivers unacknowledged envelopes again.
        timeout_ms: the longest wait for the server.
        claim_ms: the time after which the claim of a ledger that died ends.

    Raises:
        UsageError: a name is malformed.
    """

    stream: str = field(validator=_check_name)
    prefix: str = field(validator=_check_name)
    max_age_ms: int
    ack_wait_ms: int
    timeout_ms: int
    claim_ms: int

    @property
    def subjects(self) -> str:
        """All subjects, as one pattern."""
        return f"{self.prefix}.*.*"

    def subject_of(self, envelope: Envelope) -> str:
        """Return the subject of an envelope."""
        source, target = token_of(envelope.source_agent_id), token_of(envelope.target_agent_id)
        return f"{self.prefix}.{source}.{target}"

    @property
    def claims(self) -> str:
        """The name of the bucket that says which ledger serves an agent."""
        return f"{self.prefix}-claims"

    def consumer_of(self, agent_id: str) -> str:
        """Return the name of the consumer of an agent."""
        return f"{self.prefix}-{token_of(agent_id)}"

    async def ensure_stream(self, client: Client) -> StoredStream:
        """Make the stream if it is missing; return what the server says of it.

        Raises:
            nats.errors.Error: the server refuses.
            UsageError: the existing stream, or a new one, cannot be used.
        """
        try:
            info = await self._info(client)
        except NotFoundError:
            await self._make_stream(client)
            info = await self._info(client)
        self._check(StreamConfig.from_response(info["config"]))
        return StoredStream(info["created"], info["state"]["last_seq"])

    async def _info(self, client: Client) -> dict[str, Any]:
        """Return what the server says of the stream; nats-py drops when it was made."""
        subject = f"$JS.API.STREAM.INFO.{self.stream}"
        answer = await client.request(subject, timeout=self.timeout_ms / 1000)
        info: dict[str, Any] = orjson.loads(answer.data)
        if "error" in info:
            raise APIError.from_error(info["error"])
        return info

    async def _make_stream(self, client: Client) -> None:
        streams = client.jetstream(timeout=self.timeout_ms / 1000)
        try:
            await streams.add_stream(self._stream_config())
        except BadRequestError as error:
            raise UsageError(
                f"NATS refuses to make the stream {self.stream} for"
                f" {self.subjects}: {error.description}"
            ) from None

    async def ensure_consumer(self, client: Client, agent_id: str) -> None:
        """Make the consumer of an agent, or give an existing one these settings.

        Raises:
            nats.errors.Error: the server refuses.
        """
        config = ConsumerConfig(
            durable_name=self.consumer_of(agent_id),
            filter_subject=f"{self.prefix}.*.{token_of(agent_id)}",
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self.ack_wait_ms / 1000,
            max_ack_pending=MAX_ACK_PENDING,
        )
        streams = client.jetstream(timeout=self.timeout_ms / 1000)
        await streams.add_consumer(self.stream, config)

    def _stream_config(self) -> StreamConfig:
        return StreamConfig(
            name=self.stream,
            subjects=[self.subjects],
            retention=RetentionPolicy.WORK_QUEUE,
            storage=StorageType.FILE,
            # At a limit of the operator the stream keeps its messages and refuses new ones.
            discard=DiscardPolicy.NEW,
            max_age=self.max_age_ms / 1000,
            duplicate_window=min(_DUPLICATE_WINDOW, self.max_age_ms / 1000),
        )

    def _check(self, config: StreamConfig) -> None:
        wrong = []
        if not any(covers(each, self.subjects) for each in config.subjects or ()):
            wrong.append(f"add {self.subjects} to its subjects")
        if config.retention != RetentionPolicy.WORK_QUEUE:
            wrong.append("make it again with the retention workqueue")
        if config.no_ack:
            wrong.append("have it acknowledge what is published (no_ack off)")
        if wrong:
            raise UsageError(
                f"the stream {self.stream} of NATS cannot carry AACP: {'; '.join(wrong)};"
                " or name another stream"
            )
