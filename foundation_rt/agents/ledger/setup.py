"""Stores, transports and nodes as the configuration names and sets them."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ...base.config.feature_sections import DEFAULT_AACP_NAME
from ...base.config.types import POSTGRES_SCHEMES
from ...errors import MissingExtraError, UsageError
from .encoder import is_agent_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...base.config.feature_sections import AacpSection
    from ...base.config.settings import ServerConfig
    from ...base.logs.logger import StructuredLogger
    from ..persistence import AACPPersistenceAdapter
    from ..stores.memory_usage import MemoryLimits, Usage
    from ..transports import AACPTransport
    from .node import Node
    from .retransmitter import RetransmissionPolicy


_ANY_PRINCIPAL = ""
"""All principals have the same share."""


def check_settings(settings: AacpSection) -> None:
    """Refuse settings that cannot work, as far as that can be known without trying.

    No store or transport is imported.

    Raises:
        UsageError: says what to change; no password is repeated.
        MissingExtraError: names the extra that is needed.
    """
    if not is_agent_id(settings.name):
        raise UsageError(
            "aacp.name must be a printable string of 1 to 256 characters without white space at its"
            f" ends, not {settings.name!r}"
        )
    store, transport = settings.store, settings.transport
    scheme, _, rest = store.partition(":")
    if scheme == "sqlite":
        _check_file(rest)
    elif scheme in POSTGRES_SCHEMES:
        _check_extra("psycopg", "postgres", "a ledger in PostgreSQL")
        _check_url(store, "aacp.store")
    if transport != "none":
        _check_extra("nats", "nats", "the transport over NATS")
        _check_url(transport, "aacp.transport")
        _check_identity(settings)


def _check_identity(settings: AacpSection) -> None:
    """Require a durable ledger and a name of its own: other ledgers keep numbers for both."""
    if settings.store == "memory":
        raise UsageError(
            "aacp.transport needs a ledger that outlives the process: set aacp.store to sqlite:PATH"
            " or postgresql://..."
        )
    if settings.name == DEFAULT_AACP_NAME:
        raise UsageError(
            f"aacp.transport needs an aacp.name that no other ledger has: not {settings.name!r},"
            " which is everybody's default"
        )


def _check_file(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 - pathlib is slow to load
    if path.startswith(":") or os.path.isdir(path):  # noqa: PTH112
        raise UsageError(f"aacp.store: {path} is no file: name one, as in sqlite:/var/lib/x.db")
    if not os.path.isdir(folder):  # noqa: PTH112
        raise UsageError(f"aacp.store: there is no folder {folder}: make it, or name another")


def _check_extra(module: str, extra: str, what: str) -> None:
    if find_spec(module) is None:
        raise MissingExtraError(what, extra)


def _check_url(url: str, setting: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UsageError(f"{setting}: the URL is not valid: its port must be a number") from None
    if not parts.hostname and not parts.query:
        raise UsageError(f"{setting}: the URL names no host: {parts.scheme}://host:port")


def make_store(
    settings: AacpSection, logger: StructuredLogger, shares: ServerConfig | None
) -> AACPPersistenceAdapter:
    """Return the ledger that `aacp.store` names; not opened yet.

    Args:
        settings: the `aacp` section of the configuration.
        logger: for the store.
        shares: gives how much of a ledger in memory one principal may use; None: all.

    Raises:
        MissingExtraError: names the extra it needs.
    """
    scheme, _, rest = settings.store.partition(":")
    if scheme == "sqlite":
        from ..stores.sqlite import SqliteAACPPersistenceAdapter

        return SqliteAACPPersistenceAdapter(rest)
    if scheme in POSTGRES_SCHEMES:
        from ..stores.postgres import PostgresAACPPersistenceAdapter

        return PostgresAACPPersistenceAdapter(
            settings.store, lease_ms=settings.lease_ms, logger=logger
        )
    from ..stores.memory import InMemoryAACPPersistenceAdapter

    limits = make_limits(settings.max_memory_records, settings.max_memory_bytes, shares)
    return InMemoryAACPPersistenceAdapter(limits=limits)


def make_limits(records: int, size: int, shares: ServerConfig | None) -> MemoryLimits:
    """Return limits in which a principal has the share that `shares` says; None: all."""
    from ..stores.memory_usage import MemoryLimits

    most = (records, size)
    share = most if shares is None else (shares.share_of(each, _ANY_PRINCIPAL) for each in most)
    return MemoryLimits(*most, *share)


def make_transport(address: str, logger: StructuredLogger) -> AACPTransport | None:
    """Return the transport that `aacp.transport` names, if any; not opened yet.

    Raises:
        MissingExtraError: names the extra it needs.
    """
    if address == "none":
        return None
    from ..transports.nats import NatsTransport

    return NatsTransport(address, logger=logger)


def make_node(
    settings: AacpSection,
    name: str,
    new_id: Callable[[], str],
    policy: RetransmissionPolicy | None,
    store: AACPPersistenceAdapter,
    transport: AACPTransport | None,
    *,
    notices: bool,
    backlog: Usage,
) -> Node:
    """Return a node for a store and a transport.

    Args:
        settings: the `aacp` section of the configuration.
        name: that of the coordinator; its claims are in the name of this life of it.
        new_id: returns a new id with every call.
        policy: when messages are sent, and requests executed, again; by default one that suits the
            transport.
        store: its ledger.
        transport: its way to other ledgers, if any.
        notices: whether there are hooks.
        backlog: counts what waits to be entered in the ledger.
    """
    from random import random

    from .node import Node
    from .operations import NodeSettings
    from .retransmitter import PATIENT_POLICY, RetransmissionPolicy, Retransmitter

    node_settings = NodeSettings(
        owner=f"{name}/{new_id()}",
        lease_ms=settings.lease_ms,
        ttl_ms=settings.default_ttl_ms,
        has_transport=transport is not None,
        shared=store.shared,
        takes_submissions=store.takes_submissions,
        max_clock_off_ms=settings.lease_ms // 3 if store.compares_clocks else None,
    )
    retransmitter = sending = Retransmitter(policy or RetransmissionPolicy(), random)
    if policy is None and transport is not None:
        sending = Retransmitter(PATIENT_POLICY, random)
    return Node(
        node_settings, new_id, retransmitter, sending=sending, notices=notices, backlog=backlog
    )
