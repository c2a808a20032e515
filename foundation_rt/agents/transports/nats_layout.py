"""How AACP lies in NATS: the names of subjects and consumers, and the settings of the stream.

One stream has the subjects ``<prefix>.<source>.<target>``. It is a work queue: what is acknowledged
is gone, what nobody listens for yet waits, and the server sees to it that no two consumers have a
message in common.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

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
from nats.js.errors import BadRequestError, NotFoundError

from ...errors import UsageError
from ..ledger.types import Envelope
from .nats_listener import MAX_ACK_PENDING

MAX_TOKEN_LENGTH: Final = 128
"""Of an agent in a subject: two of them fit in the 4,096 bytes that the server takes for a line,
and one in the 255 that it takes for the name of a consumer."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

# Seconds for which the server knows message ids: longer than any attempt takes, and short since it
# keeps them in memory.
_DUPLICATE_WINDOW = 30


def token_of(agent_id: str) -> str:
    """The agent id as one token of a subject; different ids have different tokens.

    Letters, digits, ``-`` and ``_`` stand for themselves, every other byte of UTF-8 is ``=`` and
    two hexadecimal digits. What would be longer than `MAX_TOKEN_LENGTH` is ``==`` and a digest.
    """
    quoted = quote(agent_id, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(quoted) <= MAX_TOKEN_LENGTH:
        return quoted.replace("%", "=")
    return f"=={blake2b(agent_id.encode(), digest_size=32).hexdigest()}"


def covers(pattern: str, subject: str) -> bool:
    """Whether a subject of a stream takes everything that `subject`, with its wildcards, takes."""
    tokens, others = pattern.split("."), subject.split(".")
    if tokens[-1] == ">" and len(tokens) <= len(others):
        tokens, others = tokens[:-1], others[: len(tokens) - 1]
    return len(tokens) == len(others) and all(
        token in ("*", other) for token, other in zip(tokens, others, strict=True)
    )


def _check_name(layout: NatsLayout, attribute: Attribute[str], name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{attribute.name}: expected 1 to 64 letters, digits, - and _")


@frozen(eq=False, repr=False)
class NatsLayout:
    """The stream and the consumers of one prefix.

    Args:
        stream, prefix: 1 to 64 letters, digits, ``-`` and ``_``.
        max_age_ms: of what nobody took, in a stream that is made here.
        ack_wait_ms: after which a consumer hands out again what was not acknowledged.
        timeout_ms: how long the server is waited for.

    Raises:
        UsageError: a name is none.
    """

    stream: str = field(validator=_check_name)
    prefix: str = field(validator=_check_name)
    max_age_ms: int
    ack_wait_ms: int
    timeout_ms: int

    @property
    def subjects(self) -> str:
        """All of them, as one pattern."""
        return f"{self.prefix}.*.*"

    def subject_of(self, envelope: Envelope) -> str:
        """Where an envelope is published."""
        source, target = token_of(envelope.source_agent_id), token_of(envelope.target_agent_id)
        return f"{self.prefix}.{source}.{target}"

    def consumer_of(self, agent_id: str) -> str:
        """The name of the consumer that has the envelopes for this agent."""
        return f"{self.prefix}-{token_of(agent_id)}"

    async def ensure_stream(self, client: Client) -> None:
        """Make the stream if it is missing.

        Raises:
            nats.errors.Error: the server does not do it.
            UsageError: the stream that is there, or would be, will not do.
        """
        streams = client.jetstream(timeout=self.timeout_ms / 1000)
        try:
            info = await streams.stream_info(self.stream)
        except NotFoundError:
            try:
                info = await streams.add_stream(self._stream_config())
            except BadRequestError as error:
                raise UsageError(
                    f"NATS refuses to make the stream {self.stream} for"
                    f" {self.subjects}: {error.description}"
                ) from None
        self._check(info.config)

    async def ensure_consumer(self, client: Client, agent_id: str) -> None:
        """Make the consumer of an agent if it is missing; give it these settings if it is not.

        Raises:
            nats.errors.Error: the server does not do it.
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
            # At a limit that its operator sets, what is there stays, and the sender is told.
            discard=DiscardPolicy.NEW,
            max_age=self.max_age_ms / 1000,
            duplicate_window=min(_DUPLICATE_WINDOW, self.max_age_ms / 1000),
        )

    def _check(self, config: StreamConfig) -> None:
        wrong = []
        if not any(covers(each, self.subjects) for each in config.subjects or ()):
            wrong.append(f"add {self.subjects} to its subjects")
        if config.retention != RetentionPolicy.WORK_QUEUE:
            wrong.append("make it anew with the retention workqueue")
        if config.no_ack:
            wrong.append("have it acknowledge what is published (no_ack off)")
        if wrong:
            raise UsageError(
                f"the stream {self.stream} of NATS will not do for AACP: {'; '.join(wrong)};"
                " or name another stream"
            )
