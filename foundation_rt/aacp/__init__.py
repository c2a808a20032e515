"""AACP: messages between agents that are not lost, not run twice, and not guessed about.

What is promised stands in spec/aacp.md. The core is pure: `types`, `encoder`, `session_manager`,
`ledger`, `ownership`, `retransmitter`. `node` decides what is done when, `driver` does it,
`coordinator` is what a host holds; `stores` keep ledgers, `transports` carry envelopes between
them.

The names that a host needs are here, each imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .coordinator import AgentCoordinatorV2 as AgentCoordinatorV2
    from .encoder import DecodeError as DecodeError
    from .encoder import decode as decode
    from .encoder import encode as encode
    from .errors import OutcomeUnknownError as OutcomeUnknownError
    from .errors import RequestConflictError as RequestConflictError
    from .errors import RequestFailedError as RequestFailedError
    from .persistence import AACPPersistenceAdapter as AACPPersistenceAdapter
    from .persistence import StoreError as StoreError
    from .retransmitter import RetryPolicy as RetryPolicy
    from .status import MessageStatus as MessageStatus
    from .stores.memory import InMemoryAACPPersistenceAdapter as InMemoryAACPPersistenceAdapter
    from .stores.postgres import PostgresAACPPersistenceAdapter as PostgresAACPPersistenceAdapter
    from .stores.sqlite import SqliteAACPPersistenceAdapter as SqliteAACPPersistenceAdapter
    from .transports import AACPTransport as AACPTransport
    from .transports import TransportError as TransportError
    from .transports.nats import NatsTransport as NatsTransport
    from .types import Envelope as Envelope
    from .types import MessageRecord as MessageRecord
    from .types import MessageType as MessageType
    from .types import Outcome as Outcome
    from .types import RequestRecord as RequestRecord

_HOMES = {
    "AACPPersistenceAdapter": "persistence",
    "AACPTransport": "transports",
    "AgentCoordinatorV2": "coordinator",
    "DecodeError": "encoder",
    "Envelope": "types",
    "InMemoryAACPPersistenceAdapter": "stores.memory",
    "MessageRecord": "types",
    "MessageStatus": "status",
    "MessageType": "types",
    "NatsTransport": "transports.nats",
    "Outcome": "types",
    "OutcomeUnknownError": "errors",
    "PostgresAACPPersistenceAdapter": "stores.postgres",
    "RequestConflictError": "errors",
    "RequestFailedError": "errors",
    "RequestRecord": "types",
    "RetryPolicy": "retransmitter",
    "SqliteAACPPersistenceAdapter": "stores.sqlite",
    "StoreError": "persistence",
    "TransportError": "transports",
    "decode": "encoder",
    "encode": "encoder",
}

_OF_EXTRAS = {"NatsTransport", "PostgresAACPPersistenceAdapter"}

# `import *` imports every name in it: what needs an extra is imported by name.
__all__ = [name for name in _HOMES if name not in _OF_EXTRAS]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
