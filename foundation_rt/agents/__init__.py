"""Agents: handlers with a state of their own that take messages one at a time.

`local` runs them in one process. `ledger` is AACP (spec/aacp.md): durable messages between agents
that are executed once and whose outcomes are recorded. `stores` keep its ledgers, `transports`
carry its envelopes between processes.

The public names are here; each is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .ledger.coordinator import AgentCoordinatorV2 as AgentCoordinatorV2
    from .ledger.encoder import DecodeError as DecodeError
    from .ledger.encoder import decode as decode
    from .ledger.encoder import encode as encode
    from .ledger.errors import OutcomeUnknownError as OutcomeUnknownError
    from .ledger.errors import RequestConflictError as RequestConflictError
    from .ledger.errors import RequestFailedError as RequestFailedError
    from .ledger.request_options import ExecutionRetries as ExecutionRetries
    from .ledger.retransmitter import RetransmissionPolicy as RetransmissionPolicy
    from .ledger.schedules import Schedule as Schedule
    from .ledger.sending import BatchOptions as BatchOptions
    from .ledger.sending import MessageOptions as MessageOptions
    from .ledger.status import MessageStatus as MessageStatus
    from .ledger.types import Envelope as Envelope
    from .ledger.types import MessageRecord as MessageRecord
    from .ledger.types import MessageType as MessageType
    from .ledger.types import Outcome as Outcome
    from .ledger.types import RequestRecord as RequestRecord
    from .local import AgentCoordinator as AgentCoordinator
    from .messages import AgentContext as AgentContext
    from .messages import AgentMessage as AgentMessage
    from .persistence import AACPPersistenceAdapter as AACPPersistenceAdapter
    from .persistence import StoreError as StoreError
    from .stores.memory import InMemoryAACPPersistenceAdapter as InMemoryAACPPersistenceAdapter
    from .stores.postgres import PostgresAACPPersistenceAdapter as PostgresAACPPersistenceAdapter
    from .stores.sqlite import SqliteAACPPersistenceAdapter as SqliteAACPPersistenceAdapter
    from .transports import AACPTransport as AACPTransport
    from .transports import AgentServedElsewhereError as AgentServedElsewhereError
    from .transports import TransportError as TransportError
    from .transports.nats import NatsTransport as NatsTransport

_HOMES = {
    "AgentCoordinator": "local",
    "AgentContext": "messages",
    "AgentMessage": "messages",
    "AACPPersistenceAdapter": "persistence",
    "AACPTransport": "transports",
    "AgentServedElsewhereError": "transports",
    "AgentCoordinatorV2": "ledger.coordinator",
    "BatchOptions": "ledger.sending",
    "DecodeError": "ledger.encoder",
    "Envelope": "ledger.types",
    "ExecutionRetries": "ledger.request_options",
    "InMemoryAACPPersistenceAdapter": "stores.memory",
    "MessageOptions": "ledger.sending",
    "MessageRecord": "ledger.types",
    "MessageStatus": "ledger.status",
    "MessageType": "ledger.types",
    "NatsTransport": "transports.nats",
    "Outcome": "ledger.types",
    "OutcomeUnknownError": "ledger.errors",
    "PostgresAACPPersistenceAdapter": "stores.postgres",
    "RequestConflictError": "ledger.errors",
    "RequestFailedError": "ledger.errors",
    "RequestRecord": "ledger.types",
    "RetransmissionPolicy": "ledger.retransmitter",
    "Schedule": "ledger.schedules",
    "SqliteAACPPersistenceAdapter": "stores.sqlite",
    "StoreError": "persistence",
    "TransportError": "transports",
    "decode": "ledger.encoder",
    "encode": "ledger.encoder",
}

_OF_EXTRAS = {"NatsTransport", "PostgresAACPPersistenceAdapter"}

# `import *` imports every name in it: those that need an extra are imported by name.
__all__ = [name for name in _HOMES if name not in _OF_EXTRAS]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
