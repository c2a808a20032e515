"""Schedules as programs declare them (AACP-141)."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from ...errors import UsageError
from .cron import cron_recurrence
from .encoder import is_agent_id
from .schedules import (
    MAX_NAME,
    MissedRuns,
    Schedule,
    default_name,
    is_same,
    is_schedule_name,
)

_NOW_MS = 1_700_000_000_000
"""Any time: an expression without a run in 50 years has none."""


def declared_schedule(
    expression: str,
    target_agent_id: str,
    payload: bytes,
    timezone: str,
    name: str | None,
    missed: str,
    ttl_ms: int,
    *,
    known: Mapping[str, Schedule],
) -> Schedule:
    """Return a schedule that has not begun yet.

    Args:
        expression, target_agent_id, timezone, missed: as a program gives them.
        payload: JSON.
        name: as a program gives it; None for one that is made.
        ttl_ms: the lifetime of its requests.
        known: those that this program has declared before.

    Raises:
        UsageError: something is not valid; says what to change.
    """
    if not is_agent_id(target_agent_id):
        raise UsageError("every: the target must be the id of an agent")
    if missed not in set(MissedRuns):
        raise UsageError(f"every: missed is one of {', '.join(MissedRuns)}, not {missed!r}")
    recurrence = cron_recurrence(expression, timezone)
    if next(recurrence.after(_NOW_MS), None) is None:
        raise UsageError(f"every: {expression!r} has no time in the next 50 years")
    if name is not None and not is_schedule_name(name):
        raise UsageError(
            f"every: a name is 1 to {MAX_NAME} letters, digits and . _ : -, the first a letter or a"
            " digit"
        )
    schedule = Schedule(
        name or _name_of(target_agent_id, expression),
        expression,
        timezone,
        target_agent_id,
        payload,
        MissedRuns(missed),
        ttl_ms,
        0,
    )
    before = known.get(schedule.name)
    if name is None and before is not None and not is_same(before, schedule):
        raise UsageError(
            f"every: this program has another schedule of {target_agent_id!r} with this expression:"
            " give one of them a name, with name="
        )
    return schedule


def _name_of(target_agent_id: str, expression: str) -> str:
    """Return a name made of an agent and an expression; a digest of what does not fit."""
    name = default_name(target_agent_id, expression)
    if name is None:
        digest = blake2b(f"{target_agent_id}\0{expression}".encode(), digest_size=8)
        name = f"schedule-{digest.hexdigest()}"
    return name
