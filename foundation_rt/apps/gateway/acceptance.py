"""`foundation-rt gateway accept`: record the definitions of servers as they are now (GATE-32)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import define, field

from ...client import MCPError
from ...errors import UsageError
from ..coordinator import Coordinator, ServerConnections, ServerPlan, ServerState, ServerStatus
from ..coordinator.servers import Source
from .definition_lock import KINDS as LOCKED
from .definition_lock import DefinitionLock, Lists, read_lock, write_lock
from .server_routes import KINDS, LISTS
from .source import client_headers, marked_plans


@define(eq=False)
class Acceptance:
    """The result of accepting.

    Attributes:
        recorded: a sentence for each server that was recorded.
        missing: a sentence for each that was not: why, and what to do.
    """

    recorded: list[str] = field(factory=list)
    missing: list[str] = field(factory=list)


def accept(
    source: Source,
    path: Path,
    servers: Sequence[str] | None,
    headers: Mapping[str, str],
    wait_ms: int,
) -> Acceptance:
    """Record the definitions of those servers that answer in time (GATE-51).

    Args:
        source: of the servers.
        path: of the lock file; it is made if it is not there.
        servers: the ids of those to record, each of which has its `connectTimeoutMs`; None: all.
        headers: of a client, for servers with `headersFrom` (GATE-52).
        wait_ms: the time for all servers.

    Raises:
        UsageError: a server is not known, no server takes one of the headers, or a file cannot be
            read or written.
    """
    lock = read_lock(path) or DefinitionLock()
    plans = _plans(source, servers)
    given = {name.lower(): value for name, value in headers.items()}
    for name in given.keys() - client_headers(plans):
        raise UsageError(f"no server takes the header {name!r}: `headersFrom` names those it takes")
    if servers is not None:
        wait_ms = max(plan.settings.connect_timeout_ms for plan in plans.values())
    result = asyncio.run(_record(plans, lock, given, wait_ms / 1000))
    if result.recorded:
        write_lock(path, lock)
    return result


def _plans(source: Source, servers: Sequence[str] | None) -> dict[str, ServerPlan]:
    """Return the plans of the servers to record; of no other, which might be slow to start."""
    plans = marked_plans(source, os.environ)
    for server in servers or ():
        if server not in plans:
            raise UsageError(f"there is no server {server!r}: {', '.join(plans)}")
    return {server: plan for server, plan in plans.items() if servers is None or server in servers}


async def _record(
    plans: dict[str, ServerPlan], lock: DefinitionLock, headers: Mapping[str, str], wait: float
) -> Acceptance:
    coordinator = Coordinator.from_plans(
        lambda: plans, start_wait_ms=wait * 1000, lists=LISTS, guidance=True
    )
    result = Acceptance()
    try:
        coordinator.start()
        found = (coordinator.server(server) for server in plans)
        takers = [each for each in found if each is not None and each.headers_of(headers)]
        reading = asyncio.gather(*(_own_lists(each, headers, wait) for each in takers))
        await coordinator.initialize()
        for server, own in zip(takers, await reading, strict=True):
            if isinstance(own, str):
                result.missing.append(f"server {server.server_id!r}: {own}")
            else:
                lock.add(server.server_id, own)
                _note(result, server.server_id, own)
        taken = {each.server_id for each in takers}
        for server_id, status in coordinator.states.items():
            if server_id not in taken and status.state is not ServerState.DISABLED:
                _record_shared(coordinator, status, plans[server_id], lock, result, wait)
    finally:
        await coordinator.close()
    return result


def _record_shared(
    coordinator: Coordinator,
    status: ServerStatus,
    plan: ServerPlan,
    lock: DefinitionLock,
    result: Acceptance,
    wait: float,
) -> None:
    """Record what a server lists for all clients."""
    server_id = status.server_id
    if status.state is not ServerState.READY:
        why = status.reason or f"not ready within {wait:g} s"
        if status.needs_credential:
            names = " and ".join(plan.settings.headers_from.values())
            why += f"; give the header of a client: --header '{names}: VALUE'"
        result.missing.append(f"server {server_id!r} is {status.state}: {why}")
        return
    server = coordinator.server(server_id)
    assert server is not None
    lists = {kind: server.definitions(kind) for kind in LOCKED}
    lock.record(server_id, lists)
    _note(result, server_id, lists)


async def _own_lists(
    server: ServerConnections, headers: Mapping[str, str], wait: float
) -> Lists | str:
    """Return the lists of a server for a client with these headers, or why there are none."""
    try:
        async with asyncio.timeout(wait):
            listed = await asyncio.gather(
                *(server.list_own(kind, client_headers=headers) for kind in KINDS)
            )
    except TimeoutError:
        return f"not ready within {wait:g} s"
    except MCPError as error:
        return error.message
    return dict(zip(KINDS, listed, strict=True))


def _note(result: Acceptance, server_id: str, lists: Lists) -> None:
    count = sum(len([*listed]) for listed in lists.values())
    result.recorded.append(f"{server_id}: {count} definitions recorded")
