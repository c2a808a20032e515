"""The limits of a process: slots for running calls, payload sizes, and health.

A limit rejects at once; nothing queues (RES-01). Only `acquire_slot`, for hosts that run their own
work in the same process, waits. Everything is process-wide and safe to use from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import orjson

from ..base.config.settings import ServerConfig
from ..base.exact_json import dumps
from ..base.jsonschema.compilation import ValidationIssue, ValidationResult
from ..protocol.principal import identity_of

if TYPE_CHECKING:
    from ..base.principal_shares import Limit, Quota
    from ..errors import ToolError
    from ..protocol.principal import Principal
    from .telemetry import ResourceTelemetry

HealthStatus = Literal["healthy", "degraded", "unhealthy"]

# Thresholds of spec/resources.md, RES-08.
_DEGRADED_LOAD = 0.8
_DEGRADED_DELAY_MS = 100.0
_UNHEALTHY_DELAY_MS = 500.0
_UNHEALTHY_REJECTIONS = 3

RETRY_HINT = "Retry with exponential backoff and jitter: about 100 ms, doubled up to 10 s."
"""The advice that the log gives with a RESOURCE_EXHAUSTED rejection (RES-07)."""


class Slot:
    """The right to run one call; `release()` gives it back, once."""

    __slots__ = ("_give_back",)

    def __init__(self, give_back: Callable[[], object]) -> None:
        self._give_back: Callable[[], object] | None = give_back

    def release(self) -> None:
        """Give the slot back; a second time does nothing (RES-03)."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


def _no_delay() -> float:
    return 0.0


class ResourceManager:
    """Counts, bounds and reports what calls use.

    Args:
        config: limits are read from `resources` and `tools`.
        memory_usage: returns resident memory in bytes; by default that of the process.
        event_loop_delay: returns the p99 event-loop delay in ms; 0 where no loop is watched.
    """

    def __init__(
        self,
        config: ServerConfig,
        memory_usage: Callable[[], int] | None = None,
        event_loop_delay: Callable[[], float] = _no_delay,
    ) -> None:
        self.config = config
        self.memory_usage = memory_usage
        self.event_loop_delay = event_loop_delay
        self._max = config.resources.max_concurrent_executions
        self._free: list[None] = [None] * self._max
        self._consecutive_rejections = self._waiting = 0
        self._freed = threading.Condition()
        self._shares: Quota | None = None
        if config.has_shares():
            from ..base.principal_shares import Quota

            self._shares = Quota(config, self._limit())

    @property
    def concurrent_executions(self) -> int:
        """Return the number of slots in use."""
        return self._max - len(self._free)

    def try_acquire_slot(self) -> Slot | None:
        """Return a slot, or at once None if all are in use (RES-01)."""
        try:
            self._free.pop()  # atomic; a lock here and in `_give_back` would cost a call 0.5 us
        except IndexError:
            return None
        except BaseException:  # thrown in by another thread, once the slot was taken (ERR-07)
            self._give_back()
            raise
        return Slot(self._give_back)

    def take_slot(self, principal: Principal | None) -> Slot:
        """Return a slot for a call of `principal`, at once (RES-01, RES-14).

        Raises:
            ToolError: RESOURCE_EXHAUSTED: all slots are in use, or the principal's share of them.
        """
        shares = self._shares
        identity = None if shares is None else identity_of(principal)
        if shares is not None and identity is not None:
            shares.take(identity)
            if self.try_acquire_slot() is not None:
                return Slot(partial(self._give_back_share, shares, identity))
            shares.give_back(identity)
        elif (slot := self.try_acquire_slot()) is not None:
            return slot
        raise self.no_slot()

    def shares_used(self) -> dict[str | None, int]:
        """Return how many slots each principal uses; empty where no shares apply (RES-14)."""
        return {} if self._shares is None else self._shares.used()

    def no_slot(self) -> ToolError:
        """Return the refusal of a call while all slots are in use (CALL-07)."""
        return self._limit().used_up()

    def _limit(self) -> Limit:
        from ..base.principal_shares import Limit

        return Limit(self._max, "execution slots", "maxConcurrentExecutions", "concurrency_limit")

    def acquire_slot(self, timeout: float | None = None) -> Slot | None:
        """Wait for a slot; for hosts that share the process, never for `tools/call` (RES-02).

        Args:
            timeout: seconds to wait at most; None waits without end.

        Returns:
            The slot, or None when the time ran out.
        """
        with self._freed:
            self._waiting += 1
            try:
                return self._freed.wait_for(self.try_acquire_slot, timeout)
            finally:
                self._waiting -= 1

    def _give_back(self) -> None:
        self._free.append(None)
        # A thread that waits has counted itself before it looked for a slot: none is missed.
        if self._waiting:
            with self._freed:
                self._freed.notify()

    def _give_back_share(self, shares: Quota, identity: str) -> None:
        shares.give_back(identity)
        self._give_back()

    def payload_size(self, payload: Any) -> int:
        """Return the size of `payload` as JSON in UTF-8, in bytes (RES-04).

        Raises:
            TypeError: it cannot be written as JSON, or is nested deeper than orjson writes.
        """
        try:
            return len(orjson.dumps(payload))
        except TypeError:
            return len(dumps(payload))  # it may hold an integer beyond 64 bits

    def validate_payload_size(self, payload: Any) -> ValidationResult:
        """Return the result of the check against `tools.max_payload_bytes` (RES-04)."""
        limit = self.config.tools.max_payload_bytes
        try:
            size = self.payload_size(payload)
        except TypeError:
            return ValidationResult(False, (ValidationIssue("", "must be JSON-serializable"),))
        if size > limit:
            issue = ValidationIssue("", f"must be at most {limit} bytes as JSON; it is {size}")
            return ValidationResult(False, (issue,))
        return ValidationResult(True)

    def record_rejection(self) -> None:
        """Count one more refusal with RESOURCE_EXHAUSTED in a row (RES-06)."""
        self._consecutive_rejections += 1

    def record_completion(self) -> None:
        """Reset the count of refusals in a row: a call has ended in another way (RES-06)."""
        self._consecutive_rejections = 0

    def get_telemetry(self) -> ResourceTelemetry:
        """Return a reading of the process."""
        from .telemetry import ResourceTelemetry, resident_memory_bytes

        return ResourceTelemetry(
            (self.memory_usage or resident_memory_bytes)(),
            round(self.event_loop_delay(), 3),
            self.concurrent_executions,
            self._max,
        )

    def is_approaching_limits(self) -> bool:
        """Return whether more than 80 % of the slots are in use (RES-05)."""
        return self.concurrent_executions > _DEGRADED_LOAD * self._max

    def get_health_status(self) -> HealthStatus:
        """Return the status by the thresholds of RES-08."""
        delay = self.event_loop_delay()
        if (
            self.concurrent_executions >= self._max
            or delay > _UNHEALTHY_DELAY_MS
            or self._consecutive_rejections >= _UNHEALTHY_REJECTIONS
        ):
            return "unhealthy"
        if self.is_approaching_limits() or delay > _DEGRADED_DELAY_MS:
            return "degraded"
        return "healthy"
