"""`python -m tests.simulation`, that is `make simulate`: run seeds, or tell the story of one.

Exits with 1 if a seed fails; the first one that does is told.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import orjson

from .faults import Fault
from .runner import Report, digest_of, run_all, table, tell

_ALL_EVENTS = 1_000_000


def main() -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first (default 0)")
    parser.add_argument("--seed", type=int, help="only this one, and tell its whole story")
    parser.add_argument("--requests", type=int, help="so many in each, whatever the seed says")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--digests", action="store_true", help="print the digest of each trace")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    if asked.seed is not None:
        print(tell(asked.seed, asked.requests, _ALL_EVENTS))
        return 0
    if asked.digests:
        print("\n".join(map(digest_of, seeds)))
        return 0
    began = time.perf_counter()
    report = run_all(seeds, asked.jobs, asked.requests)
    elapsed = time.perf_counter() - began
    if asked.json:
        print(_as_json(report))
    else:
        _print(report, elapsed, asked.requests)
    return 1 if report.failures else 0


def _as_json(report: Report) -> str:
    return orjson.dumps(
        {
            "seeds": report.seeds,
            "strikes": {fault.value: report.strikes[fault] for fault in Fault},
            "failures": [[each.seed, each.why] for each in report.failures],
        }
    ).decode()


def _print(report: Report, elapsed: float, requests: int | None) -> None:
    if report.failures:
        print(tell(report.failures[0].seed, requests))
    print(table(report))
    rate = report.seeds / report.seconds
    print(f"{report.seeds} seeds in {elapsed:.1f} s, {rate:.0f} per second and core")
    for failure in report.failures:
        print(f"seed {failure.seed} failed: {failure.why}")


if __name__ == "__main__":
    sys.exit(main())
