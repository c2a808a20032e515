"""Stores and transports by their addresses in the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..logs import StructuredLogger
    from .persistence import AACPPersistenceAdapter
    from .transports import AACPTransport


def make_store(address: str, logger: StructuredLogger) -> AACPPersistenceAdapter:
    """The ledger that `aacp.store` names; not opened yet.

    Raises:
        MissingExtraError: names the extra it needs.
    """
    scheme, _, rest = address.partition(":")
    if scheme == "sqlite":
        from .stores.sqlite import SqliteAACPPersistenceAdapter

        return SqliteAACPPersistenceAdapter(rest, logger=logger)
    if scheme == "postgresql":
        from .stores.postgres import PostgresAACPPersistenceAdapter

        return PostgresAACPPersistenceAdapter(address, logger=logger)
    from .stores.memory import InMemoryAACPPersistenceAdapter

    return InMemoryAACPPersistenceAdapter()


def make_transport(address: str, logger: StructuredLogger) -> AACPTransport | None:
    """The transport that `aacp.transport` names, if it names one; not opened yet.

    Raises:
        MissingExtraError: names the extra it needs.
    """
    if address == "none":
        return None
    from .transports.nats import NatsTransport

    return NatsTransport(address, logger=logger)
