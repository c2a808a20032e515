"""Readiness checks: functions of an application that say whether it can work (HEALTH-02)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..errors import RegistrationError
from .probes import Probe

if TYPE_CHECKING:
    from ..base.clock import Clock
    from ..base.logs.logger import StructuredLogger

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
OK = "ok"


@define(eq=False, repr=False)
class ReadinessChecks:
    """The checks of one server, by name; made by `Server.readiness_check`."""

    _probes: dict[str, Probe] = field(factory=dict, init=False)

    def add(self, name: str, function: Callable[[], Any], timeout_ms: int) -> None:
        """Add a check.

        Raises:
            RegistrationError: the name is taken, or is none.
            UsageError: `function` or `timeout_ms` cannot be used; see `Probe`.
        """
        given: object = name
        if not isinstance(given, str) or _NAME.fullmatch(given) is None:
            raise RegistrationError(f"readiness check {name!r}: a name is like `database`")
        if name in self._probes:
            raise RegistrationError(f"readiness check {name!r} exists already")
        self._probes[name] = Probe(f"readiness check {name!r}", function, timeout_ms, _accept)

    def attach(self, clock: Clock, logger: StructuredLogger) -> None:
        """Measure the age of results by `clock`; log failures and recoveries to `logger`."""
        for probe in self._probes.values():
            probe.attach(clock, logger)

    async def results(self) -> dict[str, str]:
        """Return the result of each check: "ok", "failed" or "timeout"."""
        import asyncio

        answers = await asyncio.gather(*(probe.ask() for probe in self._probes.values()))
        return {
            name: answer.problem or OK for name, answer in zip(self._probes, answers, strict=True)
        }


def _accept(value: Any) -> None:
    """Take what a check returned.

    Raises:
        ValueError: the check has failed.
    """
    if value is not None and value is not True:
        raise ValueError("it returned neither None nor True")
