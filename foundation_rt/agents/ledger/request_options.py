"""Options of one request or event: when it begins, before which others, how it is tried again.

They are kept beside the message and travel with it. Its identity (AACP-12) does not include them:
the same request that is sent again with other options is a duplicate, and the first ones hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from attrs import frozen

from ...base.backoff import exponential_delay
from ...errors import ErrorCode, StructuredError

MAX_DELAY_MS = 2**31 - 1
"""About 25 days, as for every setting in milliseconds (CONF-01)."""

MAX_PRIORITY = 9
"""Priorities are few: a claimer looks into each lower one for work of other processes."""

MAX_ATTEMPTS = 1_000

_MAX_FINAL = 100

NEVER_RIGHT = (ErrorCode.INVALID_ARGUMENT, ErrorCode.NOT_FOUND, ErrorCode.UNAUTHORIZED)
"""The errors that another attempt does not mend."""


def check_backoff(base_delay_ms: float, max_delay_ms: float, jitter: float) -> None:
    """Raise `ValueError`, which names the value, unless a backoff may have these."""
    if not 0 < base_delay_ms <= max_delay_ms <= MAX_DELAY_MS:  # so that NaN is refused too
        raise ValueError(
            "base_delay_ms must be above 0, and max_delay_ms not below it"
            f" and at most {MAX_DELAY_MS}"
        )
    if not (_is_number(jitter) and 0 <= jitter <= 1):
        raise ValueError("jitter must be from 0 to 1")


def jittered_ms(delay_ms: float, jitter: float, chance: float) -> int:
    """Return a delay less its random share, in whole ms (at least 1)."""
    return max(1, int(delay_ms * (1 - jitter * chance)))


@frozen
class ExecutionRetries:
    """The policy by which one request is executed again when its handler fails (AACP-124).

    Attributes:
        attempts: the most executions, from 1 to 1,000.
        base_delay_ms: the delay after the first execution.
        max_delay_ms: the longest delay; at most 2,147,483,647.
        multiplier: the factor by which the delay grows, from 1 to 1,000.
        jitter: the random share of a delay, from 0 to 1.
        final: codes of errors, or reasons in their `details`, after which it is not tried again.

    Raises:
        ValueError: names the value that is not allowed.
    """

    attempts: int = 5
    base_delay_ms: int = 1_000
    max_delay_ms: int = 3_600_000
    multiplier: float = 2.0
    jitter: float = 0.5
    final: Sequence[str] = NEVER_RIGHT

    def __attrs_post_init__(self) -> None:
        if not (_is_int(self.attempts) and 1 <= self.attempts <= MAX_ATTEMPTS):
            raise ValueError(f"attempts must be an integer from 1 to {MAX_ATTEMPTS:,}")
        if not (_is_int(self.base_delay_ms) and _is_int(self.max_delay_ms)):
            raise ValueError("base_delay_ms and max_delay_ms must be integers")
        if not (_is_number(self.multiplier) and 1 <= self.multiplier <= 1_000):
            raise ValueError("multiplier must be from 1 to 1,000")
        check_backoff(self.base_delay_ms, self.max_delay_ms, self.jitter)
        if not (
            isinstance(self.final, list | tuple)
            and len(self.final) <= _MAX_FINAL
            and all(isinstance(each, str) and len(each) <= 100 for each in self.final)
        ):
            raise ValueError(
                f"final must be at most {_MAX_FINAL} codes or reasons of up to 100 characters"
            )

    def delay_ms(self, executions: int, chance: float) -> int:
        """Return the delay after so many executions (at least 1), in whole ms (at least 1).

        Args:
            executions: how often it was executed.
            chance: a random number from 0 (included) to 1 (excluded).
        """
        delay = exponential_delay(
            executions, self.base_delay_ms, self.max_delay_ms, self.multiplier
        )
        return jittered_ms(delay, self.jitter, chance)

    def should_execute_again(self, executions: int, error: StructuredError) -> bool:
        """Return whether a request that failed is executed again."""
        reason = error.details.get("reason") if isinstance(error.details, dict) else None
        is_final = any(str(each) in (str(error.code), reason) for each in self.final)
        return executions < self.attempts and not is_final

    def to_json(self) -> bytes:
        """Return it as it is kept."""
        return orjson.dumps(self._to_wire())

    def _to_wire(self) -> dict[str, Any]:
        values = (getattr(self, name) for name in _MEMBERS.values())
        wire = dict(zip(_MEMBERS, values, strict=True))
        return {**wire, "final": [str(each) for each in self.final]}

    @classmethod
    def from_json(cls, data: bytes) -> ExecutionRetries:
        """Read what `to_json` has written.

        Raises:
            ValueError: says what is wrong.
        """
        wire = orjson.loads(data)
        if not (isinstance(wire, dict) and wire.keys() == _MEMBERS.keys()):
            raise ValueError(f"retry must be an object with {', '.join(_MEMBERS)}")
        return cls(**{_MEMBERS[name]: value for name, value in wire.items()})


_MEMBERS = {
    "attempts": "attempts",
    "baseDelayMs": "base_delay_ms",
    "maxDelayMs": "max_delay_ms",
    "multiplier": "multiplier",
    "jitter": "jitter",
    "final": "final",
}


@frozen
class RequestOptions:
    """The options of one request or event.

    Attributes:
        not_before_ms: it is not executed earlier; in ms since 1970 (AACP-120).
        priority: from 0 to 9 (AACP-122).
        retry: JSON of its `ExecutionRetries`; None: the policy of the coordinator.
    """

    not_before_ms: int | None = None
    priority: int = 0
    retry: bytes | None = None

    def to_json(self) -> bytes:
        """Return them as they are kept beside a message, and travel in an envelope."""
        wire: dict[str, Any] = {}
        if self.not_before_ms is not None:
            wire["notBeforeMs"] = self.not_before_ms
        if self.priority:
            wire["priority"] = self.priority
        if self.retry is not None:
            wire["retry"] = orjson.Fragment(self.retry)
        return orjson.dumps(wire)

    @classmethod
    def from_json(cls, data: bytes | None) -> RequestOptions:
        """Read what `to_json` has written; None: no options.

        Raises:
            ValueError: says what is wrong.
        """
        wire = {} if data is None else orjson.loads(data)
        if not (isinstance(wire, dict) and wire.keys() <= {"notBeforeMs", "priority", "retry"}):
            raise ValueError("options must be an object of notBeforeMs, priority and retry")
        not_before_ms, priority = wire.get("notBeforeMs", 0), wire.get("priority", 0)
        if not (_is_int(not_before_ms) and 0 <= not_before_ms < 2**62):
            raise ValueError("notBeforeMs must be a number of ms since 1970")
        if not is_priority(priority):
            raise ValueError(f"priority must be an integer from 0 to {MAX_PRIORITY}")
        retry = None
        if "retry" in wire:
            retry = ExecutionRetries.from_json(orjson.dumps(wire["retry"])).to_json()
        return cls(wire.get("notBeforeMs"), priority, retry)


NO_OPTIONS = RequestOptions()


def begin_of(options: RequestOptions | None, now_ms: int) -> int:
    """Return when a message that is made now may be executed: its lifetime counts from then."""
    return now_ms if options is None else max(now_ms, options.not_before_ms or 0)


def is_priority(value: object) -> bool:
    """Return whether a value is a priority."""
    return _is_int(value) and 0 <= value <= MAX_PRIORITY  # type: ignore[operator]


def _is_int(value: object) -> bool:
    return type(value) is int


def _is_number(value: object) -> bool:
    return type(value) in (int, float)
