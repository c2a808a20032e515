"""Giving memory that is free back to the system (PROC-18)."""

from __future__ import annotations

import sys

_STEP = 8 * 1024 * 1024
_SMALL = 24 * 1024 * 1024
"""About what a small server has resident, in bytes."""


def give_back(level: int) -> int:
    """Give free memory back to the system if 8 MiB more are resident than after the last time.

    After a large message glibc keeps blocks of that size: 20 MB after one of 8 MB. It would not
    with a fixed threshold of mmap, but each large message would take 1.3 times the CPU time.

    Args:
        level: what this function returned the last time; 0 the first time.

    Returns:
        The resident memory in bytes after it was given back; `level` if nothing was to do, as
        without glibc. Never raises.
    """
    try:
        if sys.platform != "linux" or _resident() <= max(level, _SMALL) + _STEP:
            return level
        import ctypes  # 2 ms, which most processes never need

        ctypes.CDLL(None).malloc_trim(0)
        return _resident()
    except (OSError, ImportError, AttributeError):  # no /proc, no ctypes, no glibc
        return sys.maxsize


def _resident() -> int:
    import resource
    from pathlib import Path

    return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
