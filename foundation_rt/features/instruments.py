"""The metrics of an application: counters, gauges and histograms beside those of the runtime.

An application makes them with `Server.metrics`, whether metrics are on or not. Where they are off,
an instrument does nothing, and the client library of Prometheus is not imported. Where they are on,
it counts as `Metrics` does: a few additions under a lock, from any thread; only reading them costs
more. Each instrument has at most `MAX_SERIES` series (OPS-32).
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from attrs import define, field, frozen

from ..base.clock import Clock, SystemClock
from ..errors import RegistrationError, UsageError
from .probes import Probe

if TYPE_CHECKING:
    from ..base.logs.logger import StructuredLogger

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Upper bounds in seconds; the largest is above any deadline that a person would wait for."""

CALLBACK_TIMEOUT_MS = 750
"""The longest time that the callback of a gauge may take, by default."""

MAX_SERIES = 1000
"""Most series of one instrument: combinations of the values of its labels."""

WORKER_LABEL = "worker"
"""The label of gauges for the number of their worker, if there are several (OPS-27)."""

OTHER = "other"
"""The value of a label without series of its own."""

_MAX_VALUE_CHARACTERS = 128
_MAX_LABELS = 8
_MAX_BUCKETS = 64

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,127}", re.ASCII)
_RESERVED_PREFIX = "foundation_rt_"
_SUFFIXES = ("_bucket", "_count", "_sum", "_created", "_total")
"""The endings that the text format adds to names; a name that has one could mean two things."""

LabelValues = tuple[str, ...]

Record = Callable[[float, dict[str, str]], None]
"""Records a value, with its labels, elsewhere too."""

Kind = Literal["counter", "gauge", "histogram"]

Made = TypeVar("Made", bound="Instrument")


@define(eq=False, repr=False)
class Durations:
    """A histogram: one count for each bucket, and one for what is above the last bound.

    Args:
        bounds: the upper bounds of the buckets, in seconds.
    """

    bounds: tuple[float, ...] = BUCKETS
    counts: list[int] = field(init=False)
    total_seconds: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total_seconds += seconds

    def copy(self) -> Durations:
        """Return the durations counted so far."""
        copied = Durations(self.bounds)
        copied.counts, copied.total_seconds = [*self.counts], self.total_seconds
        return copied


@frozen(eq=False, repr=False)
class Family:
    """The series of one metric, as they are read.

    Attributes:
        kind: of the metric.
        name: as Prometheus shows it.
        description: shown beside it.
        labels: the names of its labels.
        series: the values of the labels, and the value: `Durations` of a histogram.
    """

    kind: Kind
    name: str
    description: str
    labels: LabelValues
    series: Iterable[tuple[LabelValues, Any]]


class MetricSource(Protocol):
    """A part of the runtime that has metrics of its own.

    Attributes:
        probe: is asked when the metrics are read.
    """

    probe: Probe

    def families(self, reading: Any) -> Iterable[Family]:
        """Return the metrics, given what the probe has answered; None if it has not."""


@define(eq=False, repr=False)
class Instrument:
    """A metric with one series for each combination of the values of its labels.

    Attributes:
        name: of the metric, as Prometheus shows it.
        description: shown beside it.
        labels: the names of its labels.
        record: is given each value, too; None where metrics go to `/metrics` alone.
    """

    kind: ClassVar[Kind]
    probe: ClassVar[Probe | None] = None
    """Asks the callback of a gauge that has one."""

    _owner: Instruments
    name: str
    description: str
    labels: LabelValues
    _series: dict[LabelValues, Any] = field(factory=dict, init=False)
    record: Record | None = field(default=None, init=False)

    def labelled(self, values: LabelValues) -> dict[str, str]:
        """Return the values of the labels by their names."""
        return dict(zip(self.labels, values, strict=True))

    def _note(self, values: LabelValues, number: float) -> None:
        if self.record is not None:
            self.record(number, self.labelled(values))

    def snapshot(self) -> list[tuple[LabelValues, Any]]:
        """Return the values of the labels and the value of every series."""
        with self._owner.lock:
            return [*self._series.items()]

    def _values(self, labels: Mapping[str, object]) -> LabelValues:
        """Return the values of the labels, in the order in which they were declared."""
        try:
            values = tuple(labels[name] for name in self.labels)
        except KeyError:
            values = None
        if values is None or len(labels) != len(self.labels):
            needed = ", ".join(self.labels) or "none"
            raise UsageError(f"metric {self.name}: its labels are: {needed}")
        if values in self._series:
            return values  # type: ignore[return-value] # a key is text
        return tuple(map(_label_value, values))

    def _bounded(self, values: LabelValues) -> LabelValues:
        """Return the series that counts these values (OPS-32); called under the lock."""
        if values in self._series or len(self._series) < MAX_SERIES:
            return values
        return (OTHER,) * len(values)


@define(eq=False, repr=False)
class Counter(Instrument):
    """Counts what happens; see `Instruments.counter`."""

    kind = "counter"

    def add(self, amount: float = 1, /, **labels: object) -> None:
        """Add `amount`, which is not negative, to the series of these labels; from any thread.

        Raises:
            UsageError: the labels are not those of the counter, or the amount is no such number.
        """
        if not self._owner.is_on:
            return
        values, number = self._values(labels), _number(self.name, amount)
        if not 0 <= number < math.inf:
            raise UsageError(f"metric {self.name}: a counter counts up, not by {amount!r}")
        with self._owner.lock:
            values = self._bounded(values)
            self._series[values] = self._series.get(values, 0) + number
        self._note(values, number)


@define(eq=False, repr=False)
class Gauge(Instrument):
    """Shows a value that rises and falls; see `Instruments.gauge`."""

    kind = "gauge"

    probe: Probe | None = field(default=None, init=False)  # type: ignore[misc]

    def set(self, value: float, /, **labels: object) -> None:
        """Show `value` in the series of these labels; from any thread.

        Beyond the bound of its series a gauge has no further ones (OPS-32).

        Raises:
            UsageError: the labels are not those of the gauge, `value` is no number, or the gauge
                has a callback.
        """
        if not self._owner.is_on:
            return
        if self.probe is not None:
            raise UsageError(f"metric {self.name}: its callback sets it")
        values, number = self._values(labels), _number(self.name, value)
        with self._owner.lock:
            if self._bounded(values) != values:
                return
            self._series[values] = number
        self._note(values, number)

    def accept(self, found: object) -> list[tuple[LabelValues, float]]:
        """Return the series of what the callback returned.

        Raises:
            UsageError: it is neither a number nor, with labels, a mapping to numbers.
        """
        if not self.labels:
            return [((), _number(self.name, found))]
        if not isinstance(found, Mapping):
            raise UsageError(f"metric {self.name}: its callback returns a mapping")
        series = []
        for key, value in [*found.items()][:MAX_SERIES]:
            values = key if isinstance(key, tuple) else (key,)
            if len(values) != len(self.labels):
                raise UsageError(f"metric {self.name}: {key!r} has not one value for each label")
            series.append((tuple(map(_label_value, values)), _number(self.name, value)))
        return series


@define(eq=False, repr=False)
class Histogram(Instrument):
    """Counts durations by their length; see `Instruments.histogram`."""

    kind = "histogram"

    bounds: tuple[float, ...] = BUCKETS

    def observe(self, seconds: float, /, **labels: object) -> None:
        """Count a duration in the series of these labels; from any thread.

        Raises:
            UsageError: the labels are not those of the histogram, or `seconds` is no duration.
        """
        if not self._owner.is_on:
            return
        values, number = self._values(labels), _number(self.name, seconds)
        if not 0 <= number < math.inf:
            raise UsageError(f"metric {self.name}: {seconds!r} is no duration in seconds")
        with self._owner.lock:
            values = self._bounded(values)
            durations = self._series.get(values)
            if durations is None:
                durations = self._series[values] = Durations(self.bounds)
            durations.add(number)
        self._note(values, number)

    def snapshot(self) -> list[tuple[LabelValues, Any]]:
        """Return the values of the labels and the durations of every series."""
        with self._owner.lock:
            return [(values, each.copy()) for values, each in self._series.items()]


@define(eq=False, repr=False)
class Instruments:
    """The metrics of one application; `Server.metrics` is one.

    Attributes:
        is_on: whether anything is counted: by a setting of `telemetry`, from the start of the
            server on.
        mirror: makes each instrument elsewhere, too; set before the start.
    """

    is_on: bool = field(default=False, init=False)
    mirror: Callable[[Instrument], Record | None] | None = field(default=None, init=False)
    lock: threading.Lock = field(factory=threading.Lock, init=False)
    _made: dict[str, Instrument] = field(factory=dict, init=False)
    _clock: Clock = field(factory=SystemClock, init=False)
    _logger: StructuredLogger | None = field(default=None, init=False)

    def start(self, clock: Clock, logger: StructuredLogger) -> None:
        """Count from now on; `logger` gets the failures of callbacks."""
        if not self.is_on:
            this = weakref.ref(self)

            def renew_lock() -> None:
                # Another thread may have held it at the fork.
                if (instruments := this()) is not None:
                    instruments.lock = threading.Lock()

            if sys.platform != "win32":
                os.register_at_fork(after_in_child=renew_lock)
        self.is_on, self._clock, self._logger = True, clock, logger
        for each in self.all():
            if each.probe is not None:
                each.probe.attach(clock, logger)
            if self.mirror is not None and each.record is None:
                each.record = self.mirror(each)

    def counter(self, name: str, description: str, *, labels: Sequence[str] = ()) -> Counter:
        """Return a new counter.

        Args:
            name: ends in `_total`: "mcp_tasks_inserted_total".
            description: of what is counted.
            labels: the names of its labels; their values should be few (OPS-32).

        Raises:
            RegistrationError: the name or the labels cannot be used, or are used already.
        """
        if not str(name).endswith("_total"):
            raise RegistrationError(f"metric {name!r}: the name of a counter ends in _total")
        counter = Counter(self, *self._checked(name, description, labels))
        return self._add(name.removesuffix("_total"), counter)

    def gauge(
        self,
        name: str,
        description: str,
        *,
        labels: Sequence[str] = (),
        read: Callable[[], Any] | None = None,
        timeout_ms: int = CALLBACK_TIMEOUT_MS,
    ) -> Gauge:
        """Return a new gauge, whose value is set, or returned by a callback when it is read.

        Args:
            name: such as "mcp_jobs".
            description: of the value.
            labels: the names of its labels.
            read: a function, which may block, or a coroutine function. It returns a number; with
                labels, a mapping from the values of the labels (one as it is, several as a tuple)
                to numbers. While it fails or takes too long, the gauge is not shown (OPS-33).
            timeout_ms: how long `read` is waited for.

        Raises:
            RegistrationError: as of `counter`.
            UsageError: `read` is no function, or the time is not between 1 ms and a minute.
        """
        if WORKER_LABEL in labels:
            raise RegistrationError(f"metric {name!r}: the label worker is that of the process")
        gauge = Gauge(self, *self._checked(name, description, labels))
        if read is not None:
            gauge.probe = Probe(f"the callback of metric {name}", read, timeout_ms, gauge.accept)
            gauge.probe.attach(self._clock, self._logger)
        return self._add(name, gauge)

    def histogram(
        self,
        name: str,
        description: str,
        *,
        labels: Sequence[str] = (),
        buckets: Iterable[float] = BUCKETS,
    ) -> Histogram:
        """Return a new histogram of durations.

        Args:
            name: ends in `_seconds`: "mcp_job_seconds".
            description: of what takes that long.
            labels: the names of its labels.
            buckets: the upper bounds in seconds, rising.

        Raises:
            RegistrationError: as of `counter`, or the bounds do not rise.
        """
        if not str(name).endswith("_seconds"):
            raise RegistrationError(f"metric {name!r}: the name of a histogram ends in _seconds")
        if "le" in labels:
            raise RegistrationError(f"metric {name!r}: the label le is that of the buckets")
        bounds = tuple(float(each) for each in buckets)
        rising = [*bounds] == sorted({*bounds})
        if not (
            rising and 0 < len(bounds) <= _MAX_BUCKETS and bounds[0] > 0 and bounds[-1] < math.inf
        ):
            raise RegistrationError(
                f"metric {name!r}: the bounds of its 1 to {_MAX_BUCKETS} buckets rise, in seconds"
            )
        return self._add(name, Histogram(self, *self._checked(name, description, labels), bounds))

    def all(self) -> list[Instrument]:
        """Return every instrument, in the order in which they were made."""
        with self.lock:
            return [*self._made.values()]

    def _checked(
        self, name: str, description: str, labels: Sequence[str]
    ) -> tuple[str, str, LabelValues]:
        """Return the facts about an instrument.

        Raises:
            RegistrationError: names the problem.
        """
        if not _is_name(name):
            raise RegistrationError(f"metric {name!r}: a name has letters, digits and _")
        if name.startswith(_RESERVED_PREFIX):
            raise RegistrationError(f"metric {name!r}: {_RESERVED_PREFIX} is for the runtime")
        given: object = labels
        if isinstance(given, str) or not all(map(_is_name, labels)):
            raise RegistrationError(f"metric {name!r}: labels is a list of names of labels")
        if len(set(labels)) != len(labels) or len(labels) > _MAX_LABELS:
            raise RegistrationError(f"metric {name!r}: up to {_MAX_LABELS} labels, no name twice")
        return name, _text(description), tuple(labels)

    def _add(self, family: str, instrument: Made) -> Made:
        if family.endswith(_SUFFIXES):
            raise RegistrationError(
                f"metric {instrument.name!r}: {', '.join(_SUFFIXES)} end the names of samples"
            )
        with self.lock:
            if family in self._made:
                raise RegistrationError(f"metric {instrument.name!r} exists already")
            self._made[family] = instrument
        if self.is_on and self.mirror is not None:
            instrument.record = self.mirror(instrument)
        return instrument


def _is_name(name: object) -> bool:
    """Return whether a metric or a label can have this name; two underscores are Prometheus'."""
    is_name = isinstance(name, str) and _NAME.fullmatch(name) is not None
    return is_name and not str(name).startswith("__")


def _label_value(value: object) -> str:
    return _text(str(value))[:_MAX_VALUE_CHARACTERS]


def _text(text: str) -> str:
    """Return `text` as UTF-8 can write it."""
    return text.encode("utf-8", "replace").decode()


def _number(name: str, value: Any) -> float:
    """Return `value` as a float.

    Raises:
        UsageError: it is none.
    """
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"metric {name}: {value!r} is no number") from None
