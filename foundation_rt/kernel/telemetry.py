"""Readings of the process, for reports of health and metrics."""

from __future__ import annotations

import sys

from attrs import define


@define
class ResourceTelemetry:
    """A reading of the process.

    Attributes:
        memory_usage_bytes: resident memory, in bytes.
        event_loop_delay_ms: p99 over the last 10 s of the time that events wait, in ms.
        concurrent_executions: the number of slots in use.
        max_concurrent_executions: the number of slots.
    """

    memory_usage_bytes: int
    event_loop_delay_ms: float
    concurrent_executions: int
    max_concurrent_executions: int

    def to_wire(self) -> dict[str, int | float]:
        """Return the camelCase object of the health report."""
        return {
            "memoryUsageBytes": self.memory_usage_bytes,
            "eventLoopDelayMs": self.event_loop_delay_ms,
            "concurrentExecutions": self.concurrent_executions,
            "maxConcurrentExecutions": self.max_concurrent_executions,
        }


def resident_memory_bytes() -> int:
    """Return the resident memory of this process, in bytes; its peak if only that is known."""
    if sys.platform == "win32":
        from ..base.windows import resident_memory_bytes as working_set

        return working_set()
    try:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 -- pathlib costs start-up
            pages = int(statm.read().split()[1])
    except (OSError, IndexError, ValueError):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024  # macOS alone reports bytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    import resource

    return pages * resource.getpagesize()
