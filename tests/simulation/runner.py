"""Runs many seeds, on all cores, and says what came of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

from attrs import define, field

from .faults import Fault
from .simulator import Simulator
from .trace import digest, render

_SEEDS_AT_ONCE = 25
_TOLD_EVENTS = 120


@define
class Failure:
    """A seed for which something did not hold, and what."""

    seed: int
    why: str


@define
class Report:
    """What came of some seeds.

    Attributes:
        seconds: of processor time.
        strikes: how often each fault struck.
        struck: in how many seeds it did.
    """

    seeds: int = 0
    seconds: float = 0.0
    strikes: Counter[Fault] = field(factory=Counter)
    struck: Counter[Fault] = field(factory=Counter)
    failures: list[Failure] = field(factory=list)

    def add(self, other: Report) -> None:
        """Take what came of other seeds into account."""
        self.seeds += other.seeds
        self.seconds += other.seconds
        self.strikes.update(other.strikes)
        self.struck.update(other.struck)
        self.failures += other.failures


def run_all(seeds: range, jobs: int, requests: int | None = None) -> Report:
    """Run seeds in so many processes.

    Args:
        requests: so many in each, instead of as many as the seed says.
    """
    report = Report()
    batches = [
        seeds[start : start + _SEEDS_AT_ONCE] for start in range(0, len(seeds), _SEEDS_AT_ONCE)
    ]
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(run_some, batches, [requests] * len(batches)):
            report.add(part)
    return report


def run_some(seeds: Iterable[int], requests: int | None = None) -> Report:
    """Run seeds, one after another, in this process."""
    report = Report()
    began = time.process_time()
    for seed in seeds:
        simulator = Simulator(seed, requests)
        try:
            simulator.run()
        except Exception as error:
            report.failures.append(Failure(seed, f"{type(error).__name__}: {error}"))
        report.seeds += 1
        report.strikes.update(simulator.dice.counts)
        report.struck.update(simulator.dice.counts.keys())
    report.seconds = time.process_time() - began
    return report


def digest_of(seed: int) -> str:
    """Return the digest of the trace of a seed."""
    simulator = Simulator(seed, traced=True)
    simulator.run()
    return digest(simulator.trace)


def tell(seed: int, requests: int | None = None, events: int = _TOLD_EVENTS) -> str:
    """Run one seed and tell its story: what it stands for, what happened last, what did not hold.

    Args:
        events: so many at most.
    """
    simulator = Simulator(seed, requests, traced=True)
    try:
        simulator.run()
        end = "all that must hold held"
    except Exception as error:
        end = f"{type(error).__name__}: {error}"
    story = render(simulator.trace)
    left_out = len(story) - events
    return "\n".join(
        [
            simulator.scenario.describe(),
            *([f"... {left_out} events before ..."] if left_out > 0 else []),
            *story[-events:],
            f"seed {seed}: {end}",
            f"replay it with: make simulate SEED={seed}"
            + (f" REQUESTS={requests}" if requests is not None else ""),
        ]
    )


def table(report: Report) -> str:
    """How often each fault struck."""
    lines = [f"{'fault':<36}{'strikes':>9}{'in seeds':>10}"]
    lines += [
        f"{fault.value:<36}{report.strikes[fault]:>9}{report.struck[fault]:>10}" for fault in Fault
    ]
    return "\n".join(lines)
