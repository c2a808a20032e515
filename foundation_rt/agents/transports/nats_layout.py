"""The subjects of AACP in NATS."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

from ..ledger.types import Envelope

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
