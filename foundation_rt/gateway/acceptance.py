"""`foundation-rt gateway accept`: record the definitions of servers as they are now (GATE-32)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from ..coordinator import Coordinator, ServerPlan, ServerState
from ..errors import UsageError
from .definition_lock import DefinitionLock, read_lock, write_lock
from .source import Source, marked_plans
from .upstreams import KINDS

START_WAIT_MS = 60_000


def accept(source: Source, path: Path, servers: Sequence[str] | None) -> str:
    """Record the definitions of servers in a lock file; return what was done, for people.

    Args:
        source: of the servers.
        path: of the lock file; it is made if it is not there.
        servers: the ids of those to record; None: all.

    Raises:
        UsageError: a server is not known or not ready, or a file cannot be read or written.
    """
    lock = read_lock(path)
    lines = asyncio.run(_record(source, lock, servers))
    write_lock(path, lock)
    return "".join(lines)


def _plans(source: Source, servers: Sequence[str] | None) -> dict[str, ServerPlan]:
    """Return the plans of the servers to record; of no other, which might be slow to start."""
    plans = marked_plans(source, os.environ)
    for server in servers or ():
        if server not in plans:
            raise UsageError(f"there is no server {server!r}: {', '.join(plans)}")
    return {server: plan for server, plan in plans.items() if servers is None or server in servers}


async def _record(source: Source, lock: DefinitionLock, servers: Sequence[str] | None) -> list[str]:
    lines = []
    async with Coordinator.from_plans(
        lambda: _plans(source, servers),
        start_wait_ms=START_WAIT_MS,
        lists=KINDS,
        guidance=False,
    ) as coordinator:
        states = coordinator.states
        for server_id in states if servers is None else servers:
            status = states[server_id]
            if status.state is ServerState.DISABLED and servers is None:
                continue
            if status.state is not ServerState.READY:
                hint = "; accept others with --server NAME" if servers is None else ""
                raise UsageError(f"server {server_id!r} is {status.state}: {status.reason}{hint}")
            lists = {
                kind: [entry for owner, entry in coordinator.listed(kind) if owner == server_id]
                for kind in KINDS
            }
            lock.record(server_id, {kind: listed for kind, listed in lists.items() if listed})
            count = sum(map(len, lists.values()))
            lines.append(f"{server_id}: {count} definitions recorded\n")
    return lines
