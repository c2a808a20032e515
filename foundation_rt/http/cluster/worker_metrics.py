"""The metrics of all workers of a host as one (OPS-27).

    GET /metrics ─► any worker ─┬─ its own
                                ├─ each other one, over its Unix socket
                                └─ of those that do not answer: what they have said last

Counting costs a call nothing here: each process counts for itself, and the numbers meet when they
are read. A worker writes its counters to a file of the group's folder before it shows them, and the
next worker at its place goes on from there; so a sum that was shown never falls.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from contextlib import suppress
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, evolve, field

from ...features.instruments import WORKER_LABEL, Durations, Family
from ...features.metrics import rendered
from .request_routing import encode_request

if TYPE_CHECKING:
    from ...features.metrics import Metrics
    from ..request import HttpRequest
    from .worker_group import WorkerGroup

_SUFFIX = ".metrics"
_ANSWER_SECONDS = 2.0


@define(eq=False, repr=False)
class WorkerMetrics:
    """The metrics of this worker and of the others; belongs to one event loop.

    Args:
        metrics: of this worker.
        group: knows the other workers of this host.
        folder: of the group.
    """

    _metrics: Metrics
    _group: WorkerGroup
    _folder: Path
    _inherited: list[Family] = field(init=False)
    _lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._inherited = _read_file(self._path_of(self._group.name.slot))

    def _path_of(self, slot: int) -> Path:
        return self._folder / f"{slot}{_SUFFIX}"

    async def read(self, request: HttpRequest) -> tuple[str, bytes]:
        """Return the content type and the sum; for another worker, the metrics of this one."""
        own = await self.save()
        if self._group.is_private(request.scope):
            return "application/json", _encode(own)
        question = encode_request(request, b"")
        found = [*self._folder.glob("*.sock"), *self._folder.glob(f"*{_SUFFIX}")]
        others = {int(each.stem) for each in found} - {self._group.name.slot}
        answers = await asyncio.gather(*(self._ask(each, question) for each in sorted(others)))
        return await asyncio.to_thread(lambda: rendered(_total([own, *answers])))

    async def save(self) -> list[Family]:
        """Return the metrics of this worker and its predecessors; keep their counters."""
        async with self._lock:  # an earlier reading must not replace a later one
            found = await self._metrics.families()
            slot = self._group.name.slot
            own = _total([[_labelled(each, str(slot)) for each in found], self._inherited])
            await asyncio.to_thread(_write_file, self._path_of(slot), own)
            return own

    async def _ask(self, slot: int, question: bytes) -> list[Family]:
        """Return the metrics of another worker; of one that does not answer, its last counters."""
        answer = await self._group.ask(slot, question, _ANSWER_SECONDS)
        return _read_file(self._path_of(slot)) if answer is None else _decode(answer)


def _total(found: Iterable[list[Family]]) -> list[Family]:
    """Return the sums of the series that are equal but for their value."""
    families: dict[str, Family] = {}
    sums: dict[str, dict[tuple[str, ...], Any]] = {}
    for each in (one for of_worker in found for one in of_worker):
        first = families.setdefault(each.name, each)
        if (each.kind, each.labels) != (first.kind, first.labels):
            continue  # of another version of the program
        series = sums.setdefault(each.name, {})
        for values, value in each.series:
            series[values] = _added(series[values], value) if values in series else value
    return [evolve(each, series=[*sums[name].items()]) for name, each in families.items()]


def _added(left: Any, right: Any) -> Any:
    if not isinstance(left, Durations):
        return left + right
    total = left.copy()
    if left.bounds == right.bounds:
        total.counts = [*map(add, left.counts, right.counts)]
        total.total_seconds += right.total_seconds
    return total


def _labelled(family: Family, number: str) -> Family:
    """Return a metric with the label of the worker if it is a gauge: no sum has a meaning there."""
    if family.kind != "gauge":
        return family
    series = [((*values, number), value) for values, value in family.series]
    return evolve(family, labels=(*family.labels, WORKER_LABEL), series=series)


# -- as bytes --------------------------------------------------------------------------------------


def _encode(families: Iterable[Family]) -> bytes:
    return orjson.dumps(
        [
            [each.kind, each.name, each.description, each.labels, [*map(_plain, each.series)]]
            for each in families
        ]
    )


def _plain(series: tuple[tuple[str, ...], Any]) -> Any:
    values, value = series
    if isinstance(value, Durations):
        return values, [value.bounds, value.counts, value.total_seconds]
    return values, value if math.isfinite(value) else str(value)


def _decode(data: bytes) -> list[Family]:
    return [
        Family(kind, name, description, tuple(labels), [*map(_read, series)])
        for kind, name, description, labels, series in orjson.loads(data)
    ]


def _read(series: Any) -> tuple[tuple[str, ...], Any]:
    values, value = series
    if not isinstance(value, list):
        return tuple(values), float(value)
    bounds, counts, total_seconds = value
    durations = Durations(tuple(bounds))
    durations.counts, durations.total_seconds = counts, total_seconds
    return tuple(values), durations


def _read_file(path: Path) -> list[Family]:
    try:
        return _decode(path.read_bytes())
    except FileNotFoundError:
        return []


def _write_file(path: Path, families: Iterable[Family]) -> None:
    """Write the counters: a gauge of a worker that has ended says nothing."""
    partial = path.with_suffix(".part")
    with suppress(OSError):  # the disk is full, or the group has ended
        partial.write_bytes(_encode(each for each in families if each.kind != "gauge"))
        partial.replace(path)
