"""Snapshots of the resources of a process: descriptors, threads and children; and its tasks.

On Windows descriptors are left out: its handles have no names.

before = ResourceSnapshot.now()
...
ResourceSnapshot.now().must_equal(before)
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress

from attrs import frozen

from tests.lab.programs.processes import children

PATIENCE = 60.0
"""Seconds that a thread has to end which has nothing more to do."""


@frozen
class ResourceSnapshot:
    """The resources that this process holds at one moment.

    Attributes:
        descriptors: the number of each open one, and what it leads to; sockets and pipes are in it.
        threads: names.
        children: ids of processes, zombies too.
    """

    descriptors: frozenset[str]
    threads: frozenset[str]
    children: frozenset[int]

    @classmethod
    def now(cls) -> ResourceSnapshot:
        """Return the present snapshot; a resource that only garbage holds counts as leaked."""
        _until_reaped()
        threads = frozenset(f"{each.name} {each.ident}" for each in threading.enumerate())
        return cls(_descriptors(), threads, children(os.getpid()))

    def must_equal(self, before: ResourceSnapshot) -> None:
        """Fail, naming the resources acquired since `before`, if there are any."""
        for kind in ("descriptors", "threads", "children"):
            left = getattr(self, kind) - getattr(before, kind)
            assert not left, f"{kind} that are left: {sorted(left)}"


def tasks() -> list[str]:
    """Return the tasks of the running loop, without the current one."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return sorted(each.get_coro().__qualname__ for each in others)  # type: ignore[union-attr]


def _until_reaped() -> None:
    """Wait for the thread in which asyncio has waited for a child to end."""
    for thread in threading.enumerate():
        if thread.name.startswith("asyncio-waitpid-"):
            thread.join(PATIENCE)


def _descriptors() -> frozenset[str]:
    found: set[str] = set()
    if sys.platform == "win32":
        return frozenset(found)
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return frozenset(found)
