"""Limits of an agent in all processes: executions at a time, and starts in a window (AACP-190).

They are kept in the ledger, which decides about them when it claims.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from attrs import define, field, frozen

from ...base.exact_json import dumps, loads
from ...base.shown import Shown
from ...errors import RegistrationError
from .rules import Claimability, claim, claimability
from .types import Claim, Claiming, RequestRecord, RequestState

MAX_WORKERS = 100
_MAX_STARTS = 1_000_000
_WINDOWS_MS = {"s": 1_000, "min": 60_000, "h": 3_600_000}
_RATE = re.compile(rf"([1-9][0-9]{{0,6}})/({'|'.join(_WINDOWS_MS)})")

_LATER_MS = 1_000
"""The delay before a queue that has more than may be claimed is looked into again."""

_STEPS = 64
"""The parts of a window: so few numbers are kept of any number of starts."""


@frozen
class AgentLimits:
    """The most that an agent does in all processes together.

    Attributes:
        workers: how many requests it executes at a time; with 1 it keeps their order.
        starts: how many executions begin in any window; 0 is no limit.
        window_ms: its length.
    """

    workers: int = 1
    starts: int = 0
    window_ms: int = 0

    def __str__(self) -> str:
        """Return it as it is registered."""
        units = {each_ms: unit for unit, each_ms in _WINDOWS_MS.items()}
        rate = f", rate='{self.starts}/{units.get(self.window_ms)}'" if self.starts else ""
        return f"workers={self.workers}{rate}"


NO_LIMITS = AgentLimits()
"""Those of an agent that says nothing: one at a time, as fast as it can (AACP-04)."""


def read_limits(agent_id: str, workers: object, rate: object) -> AgentLimits:
    """Return the limits that a host names.

    Args:
        agent_id: for the error.
        workers: a number from 1 to 100.
        rate: a number of starts and a window, ``"10/s"``, ``"100/min"`` or ``"5000/h"``; or None.

    Raises:
        RegistrationError: says what to change.
    """
    if type(workers) is not int or not 1 <= workers <= MAX_WORKERS:
        raise RegistrationError(
            f"agent {agent_id!r}: workers is a number from 1 to {MAX_WORKERS}, not {workers!r:.100}"
        )
    if rate is None:
        return AgentLimits(workers)
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if found is None or int(found[1]) > _MAX_STARTS:
        raise RegistrationError(
            f"agent {agent_id!r}: rate is at most {_MAX_STARTS:,} starts in a second, minute or"
            f" hour, as in '10/s', '100/min' or '5000/h', not {rate!r:.100}"
        )
    return AgentLimits(workers, int(found[1]), _WINDOWS_MS[found[2]])


def replaced(
    limits: Mapping[str, AgentLimits], known: Mapping[str, AgentLimits]
) -> dict[str, AgentLimits]:
    """Return the limits that agents have had, of those that get others."""
    before = {each: known.get(each, NO_LIMITS) for each in limits}
    return {each: its for each, its in before.items() if its != limits[each]}


@define
class Admitted:
    """The part of a queue that may be claimed for an agent with limits.

    Attributes:
        most: the number.
        requests: which, where the order does not matter; None: the first ones, as for every agent.
        again_at_ms: when there may be more, if nothing happens before.
    """

    most: int
    requests: list[RequestRecord] | None = None
    again_at_ms: int | None = None


@define(eq=False, repr=False)
class LimitedAgent(Shown):
    """An agent with limits, as the ledger keeps it.

    Attributes:
        limits: those of the last registration.
        started: how many executions began, by the end of the part of a window in which they did.
            To count a start a little later than it was keeps every window below the limit.
    """

    limits: AgentLimits
    started: dict[int, int] = field(factory=dict)

    @classmethod
    def of(cls, workers: int, starts: int, window_ms: int, started: str | bytes) -> LimitedAgent:
        """Read what was written in columns."""
        parts = loads(started) if started else []
        return cls(AgentLimits(workers, starts, window_ms), dict(parts))

    def written(self) -> str:
        """Return `started` for a column."""
        return dumps(list(self.started.items())).decode()

    @property
    def read_ahead(self) -> int:
        """The number of requests of each priority that `admit` needs to see, from the first on.

        Of those before one that is claimed no more than `MAX_WORKERS` are not: they were given
        back.
        """
        return MAX_WORKERS + self.limits.workers

    def admit(
        self, head: Iterable[RequestRecord], most: int, owner: str, now_ms: int, time_ms: int
    ) -> Admitted:
        """Return what may be claimed.

        Args:
            head: the first requests of the queue of each priority, in the order of the queue, those
                that `owner` has claimed too.
            most: no more are claimed.
            owner: claims them.
            now_ms: the time by which leases lapse and requests expire.
            time_ms: that by the clock of the ledger, for the rate.
        """
        counting = [record for record in head if record.expires_at_ms > now_ms]
        left, delay_ms = self.starts_left(most, time_ms)
        if self.limits.workers > 1:
            requests = _any_of(counting, self.limits.workers, left, owner, now_ms)
            admitted = Admitted(len(requests), requests)
        else:
            is_executing = any(record.owner == owner for record in counting)
            admitted = Admitted(0 if is_executing else min(left, 1))
        waiting = [claimability(record, owner, now_ms) for record in counting]
        again_at_ms = [
            record.lease_until_ms or record.not_before_ms or now_ms
            for record, decision in zip(counting, waiting, strict=True)
            if decision is Claimability.STOP
        ]
        if waiting.count(Claimability.TAKE) > admitted.most:
            again_at_ms.append(now_ms + (min(delay_ms, _LATER_MS) if left < most else _LATER_MS))
        admitted.again_at_ms = min(again_at_ms, default=None)
        return admitted

    def claim(self, record: RequestRecord, claiming: Claiming) -> Claim:
        """Claim a request that was admitted; its execution begins at once."""
        made = claim(record, claiming, begins=True)
        made.workers = self.limits.workers
        return made

    def starts_left(self, most: int, time_ms: int) -> tuple[int, int]:
        """Return how many executions may begin, and in how many ms there may be more.

        Args:
            most: no more are asked for.
            time_ms: by the clock of the ledger.
        """
        starts, window_ms = self.limits.starts, self.limits.window_ms
        if not starts:
            return most, 0
        recent = self._recent(time_ms)
        left = min(most, max(0, starts - sum(recent.values())))
        # There may be too many since the limit was lowered: then it is found out again.
        return left, min(recent, default=self._rounded_up(time_ms)) + window_ms - time_ms

    def note_starts(self, count: int, time_ms: int) -> None:
        """Count executions that begin now."""
        if self.limits.starts and count:
            recent = self._recent(time_ms)
            recent[self._rounded_up(time_ms)] += count
            self.started = dict(recent)

    def _recent(self, time_ms: int) -> Counter[int]:
        """Return the starts that count; what seems to be later than now began now at the latest."""
        now_ms, recent = self._rounded_up(time_ms), Counter[int]()
        for at_ms, count in self.started.items():
            if at_ms + self.limits.window_ms > time_ms:
                recent[min(at_ms, now_ms)] += count
        return recent

    def _rounded_up(self, time_ms: int) -> int:
        step = max(1, self.limits.window_ms // _STEPS)
        return -(-time_ms // step) * step


def _any_of(
    counting: Sequence[RequestRecord], workers: int, most: int, owner: str, now_ms: int
) -> list[RequestRecord]:
    """Return requests that may be claimed where the order does not matter.

    A claim counts until its request has an outcome or expires, or it is given back; one that has
    lapsed until it is taken over.
    """
    room = workers - sum(record.state is RequestState.CLAIMED for record in counting)
    taken: list[RequestRecord] = []
    for record in counting:
        if len(taken) < most and claimability(record, owner, now_ms) is Claimability.TAKE:
            is_new = record.state is not RequestState.CLAIMED
            if room > 0 or not is_new:
                room -= is_new
                taken.append(record)
    return taken
