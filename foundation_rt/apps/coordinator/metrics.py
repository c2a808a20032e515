"""Reliability and performance of one tool, as its calls are recorded (COORD-30). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

if TYPE_CHECKING:
    from datetime import datetime

ALPHA = 0.2
"""The weight of the latest call in the average of response times."""


@define
class Reliability:
    """The successes and failures of a tool.

    Attributes:
        success_count: never falls.
        failure_count: never falls; it is not the count of the circuit.
        last_failure: None before the first.
    """

    success_count: int = 0
    failure_count: int = 0
    last_failure: datetime | None = None


@define
class Performance:
    """The use of a tool, and the time it takes to answer.

    Attributes:
        avg_response_time_ms: exponential moving average of successes; 0 before the first.
        call_count: successes and failures.
        last_used: None before the first call.
    """

    avg_response_time_ms: float = 0.0
    call_count: int = 0
    last_used: datetime | None = None


@define
class ToolMetrics:
    """The record of the calls of one tool; it outlives connections and lists."""

    reliability: Reliability
    performance: Performance

    @classmethod
    def new(cls) -> ToolMetrics:
        """Return the record of a tool that was not called yet."""
        return cls(Reliability(), Performance())

    def record_success(self, now: datetime, duration_ms: float) -> None:
        """Record a call that succeeded."""
        self._used(now)
        reliability, performance = self.reliability, self.performance
        is_first = reliability.success_count == 0
        reliability.success_count += 1
        average = duration_ms if is_first else performance.avg_response_time_ms
        performance.avg_response_time_ms = ALPHA * duration_ms + (1 - ALPHA) * average

    def record_failure(self, now: datetime) -> None:
        """Record a call that failed, also by `isError`."""
        self._used(now)
        self.reliability.failure_count += 1
        self.reliability.last_failure = now

    def _used(self, now: datetime) -> None:
        self.performance.call_count += 1
        self.performance.last_used = now
