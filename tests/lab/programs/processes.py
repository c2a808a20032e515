"""Processes of this machine, by their ids: on Linux from /proc, on Windows from its API."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator

if sys.platform == "win32":
    from tests.lab.programs.windows_processes import children, has_ended, started
else:

    def children(pid: int) -> frozenset[int]:
        """Return the processes that a process has started and that are there, zombies too."""
        return frozenset(each for each, fields in _all() if int(fields[1]) == pid)

    def has_ended(pid: int, seconds: float) -> bool:
        """Return whether a process ends within this time; a zombie has ended."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([descriptor], [], [], seconds)[0])
        finally:
            os.close(descriptor)

    def started(pid: int) -> str | None:
        """Return when a process was started, which makes its id unique.

        None: it has ended, or is a zombie of another process.
        """
        fields = _fields(pid)
        if fields is None or (fields[0] == "Z" and int(fields[1]) != os.getpid()):
            return None
        return fields[19]


def state(pid: int) -> str:
    """Return the letter of /proc for what a process does; nothing if there is none."""
    fields = _fields(pid)
    return "" if fields is None else fields[0]


def living(group: int) -> set[int]:
    """Return the processes of a group that are no zombies."""
    return {pid for pid, fields in _all() if int(fields[2]) == group and fields[0] not in "ZX"}


def descriptors(pid: int) -> list[str]:
    """Return what the open descriptors of a process lead to."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:  # it was closed meanwhile
            continue
    return found


def peak_memory(pid: int) -> int:
    """Return the most resident memory that a process has had, in bytes."""
    with open(f"/proc/{pid}/status") as status:
        [line] = [each for each in status if each.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _all() -> Iterator[tuple[int, list[str]]]:
    for name in os.listdir("/proc"):
        if name.isdecimal() and (fields := _fields(int(name))) is not None:
            yield int(name), fields


def _fields(pid: int) -> list[str] | None:
    """Return what /proc says of a process: state, parent, group and so on; None: it has gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
