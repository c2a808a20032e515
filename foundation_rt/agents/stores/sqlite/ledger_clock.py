"""The clock of a ledger in a file: it is never set, whatever happens to the clock of the machine.

All processes that have the file open are on one machine. They share a clock that counts from its
start, and the file says which time that was by the ledger. A file that comes to another machine, or
to the same one after a restart, goes on with the wall clock, but never before the last time that
was noted in it: a machine without a battery for its clock begins in 1970.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from attrs import field, frozen

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


if sys.platform == "win32":
    from ....base.windows import since_boot_ms as _since_boot_ms
else:

    def _since_boot_ms() -> int:
        # The monotonic clock of Linux stands still while the machine is suspended, this one not.
        kind = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime_ns(kind) // 1_000_000


@cache
def _boot_id() -> str:
    """Return a name of this life of the machine; empty where systems do not tell."""
    if sys.platform == "win32":
        return ""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


@frozen
class MachineClocks:
    """The clocks of a machine.

    Attributes:
        wall_ms: returns the time of the wall clock, in ms since 1970.
        since_boot_ms: returns the ms since the machine was started, by which all processes go.
        boot_id: a name of this life of the machine; empty if it has none.
    """

    wall_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)
    since_boot_ms: Callable[[], int] = field(default=_since_boot_ms)
    boot_id: str = field(factory=_boot_id)


def set_clock(connection: sqlite3.Connection, clocks: MachineClocks, alone: bool) -> None:
    """Set the clock of a file that is being opened, unless it goes by this life of the machine."""
    row = connection.execute("SELECT boot_id, origin_ms, last_ms FROM clock").fetchone()
    boot_id, origin_ms, last_ms = row or (None, 0, 0)
    if boot_id != clocks.boot_id or (alone and not boot_id):
        origin_ms = max(clocks.wall_ms(), last_ms) - clocks.since_boot_ms()
        connection.execute("DELETE FROM clock")
        connection.execute(
            "INSERT INTO clock VALUES (?, ?, ?)",
            (clocks.boot_id, origin_ms, origin_ms + clocks.since_boot_ms()),
        )


def read_clock(connection: sqlite3.Connection, clocks: MachineClocks) -> int:
    """Return the time of the ledger, in ms since 1970."""
    [origin_ms] = connection.execute("SELECT origin_ms FROM clock").fetchone()
    return int(origin_ms) + clocks.since_boot_ms()


def note_time(connection: sqlite3.Connection, now_ms: int) -> None:
    """Note a time before which the clock is never set again."""
    connection.execute("UPDATE clock SET last_ms = ? WHERE last_ms < ?", (now_ms, now_ms))
