"""Run every measurement, print a table, and fail if the service level is not kept.

    python -m bench [--shortest] [--peers] [--save] [SECTION]...

Sections: calls, instructions, flat, http, client, aacp, tasks, gateway, host.

Every figure stands beside the floor that was measured in turn with it, round by round; a ratio is
the median of the rounds' ratios. Absolute times on a shared machine are noise. With `--shortest`
every section runs once and as little as it can: what it prints says that it works, and no more.
With `--peers` the gateway is measured beside proxies of PyPI too, which are installed first.

At the end stands which ratios and instructions have moved since `baseline.toml` was saved, which
`--save` does. The exit code is 1 only if `sla.toml` is not kept.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import orjson
import tomli

from bench.processes import (
    FLOOR,
    Server,
    Target,
    cold_start,
    pipelined,
    runtime,
    sequential,
)
from bench.report import head, note, row, save, say, say_moved
from bench.sizes import FULL, SHORTEST, Sizes

_HERE = Path(__file__).resolve().parent

_TARGETS = [
    FLOOR,
    runtime("inline, no coroutines", "inline_noop", "inline_app.py"),
    runtime("inline", "inline_noop"),
    runtime("async def", "async_noop"),
    runtime("def, in a thread", "thread_noop"),
]


_SECTIONS = ("calls", "instructions", "flat", "http", "client", "aacp", "tasks", "gateway", "host")


def main(arguments: Sequence[str]) -> int:
    """Measure these sections, or all; return 1 if a no-op call over stdio breaks the SLA at p95."""
    sizes = SHORTEST if "--shortest" in arguments else FULL
    sections = [each for each in arguments if each not in ("--shortest", "--peers", "--save")]
    if unknown := set(sections) - set(_SECTIONS):
        say(f"no section {', '.join(sorted(unknown))}: there are {', '.join(_SECTIONS)}")
        return 2
    # An installed package has its bytecode; a checkout may not, and would be compiled every time.
    compileall.compile_dir(_HERE.parent / "foundation_rt", quiet=2)
    say("foundation-rt bench: ratios are to the floor of the same run\n")
    status = 0
    if "calls" in (sections or _SECTIONS):
        status = _report_calls(sizes)
    if "instructions" in (sections or _SECTIONS):
        from bench import instructions

        instructions.report(sizes)
    if "flat" in (sections or _SECTIONS):
        from bench import flat

        flat.report(sizes)
    if "http" in (sections or _SECTIONS):
        from bench import over_http

        over_http.report(sizes)
    if "client" in (sections or _SECTIONS):
        from bench import over_client

        over_client.report(sizes)
    if "aacp" in (sections or _SECTIONS):
        from bench import aacp

        aacp.report(sizes)
    if "tasks" in (sections or _SECTIONS):
        from bench import task_server

        task_server.report(sizes)
    if "gateway" in (sections or _SECTIONS):
        from bench import gateway

        gateway.report(sizes, with_peers="--peers" in arguments)
    if "host" in (sections or _SECTIONS):
        from bench import host

        host.report(sizes)
    say_moved()
    if "--save" in arguments:
        save()
    return status


def _report_calls(sizes: Sizes) -> int:
    """Measure calls in process and over stdio; return the exit status."""
    _report_in_process(sizes)
    servers = [Server.spawn(target) for target in _TARGETS]
    for server in servers:
        server.initialize()
        sequential(server, sizes.warm_up)
    worst = _report_sequential(servers, sizes)
    _report_pipelined(servers, sizes)
    _report_memory(servers)
    for server in servers:
        server.stop()
    _report_cold_start([FLOOR, _TARGETS[1], _TARGETS[2]], sizes.starts)
    return _judge(worst)


def _report_in_process(sizes: Sizes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        # In a worker of pytest-xdist, as in the suite, pytest-benchmark would measure nothing.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        subprocess.run(
            [
                sys.executable,
                *("-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"),
                *("--benchmark-json", str(report), "--benchmark-disable-gc"),
                *(str(_HERE / f"test_{name}.py") for name in ("in_process", "hot_functions")),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=_HERE.parent,
            env={**environment, "BENCH_IN_PROCESS": "{} {}".format(*sizes.in_process)},
        )
        benchmarks = orjson.loads(report.read_bytes())["benchmarks"]
    seconds = {each["name"]: each["stats"]["data"] for each in benchmarks}
    floor, ours = seconds["test_floor"], seconds["test_runtime"]
    head("in process, bytes to bytes", "us")
    row("floor: straight line", floor, 1e6, None)
    row("inline", ours, 1e6, median(ours) / median(floor))
    _report_hot_functions(seconds, median(floor))


def _report_hot_functions(seconds: dict[str, list[float]], floor: float) -> None:
    say(f"\n{'hot functions':32}{'p50 us':>12}{'ratio':>12}")
    for test, each in seconds.items():
        if test not in ("test_floor", "test_runtime"):
            name, ratio = test.removeprefix("test_"), median(each) / floor
            say(f"  {name:30}{ratio * floor * 1e6:12.2f}{ratio:12.3f}")
            note("hot functions", name, ratio)


def _report_sequential(servers: list[Server], sizes: Sizes) -> float:
    count, calls = sizes.sequential
    rounds: dict[str, list[list[float]]] = {server.target.name: [] for server in servers}
    for _ in range(count):
        for server in servers:
            rounds[server.target.name].append(sequential(server, calls))
    head("stdio, one call after another", "us")
    worst = 0.0
    for name, each in rounds.items():
        pairs = zip(each, rounds[FLOOR.name], strict=True)
        ratio = median(median(mine) / median(floor) for mine, floor in pairs)
        pooled = [seconds for one in each for seconds in one]
        p95 = row(name, pooled, 1e6, None if name == FLOOR.name else ratio)
        worst = max(worst, p95)
    return worst


def _report_pipelined(servers: list[Server], sizes: Sizes) -> None:
    count, calls = sizes.pipelined
    rates: dict[str, list[float]] = {server.target.name: [] for server in servers}
    for _ in range(count):
        for server in servers:
            rates[server.target.name].append(pipelined(server, calls))
    title = "stdio, 8 calls in flight"
    say(f"\n{title:32}{'calls/s':>12}{'ratio':>24}")
    for name, each in rates.items():
        ratio = median(a / b for a, b in zip(each, rates[FLOOR.name], strict=True))
        shown = "" if name == FLOOR.name else f"{ratio:.2f}"
        say(f"  {name:30}{median(each):12.0f}{shown:>24}")
        note(title, name, ratio)


def _report_memory(servers: list[Server]) -> None:
    floor = servers[0].resident_mb()
    title = "resident memory"
    say(f"\n{title:32}{'MB':>12}{'ratio':>24}")
    for server in servers:
        used = server.resident_mb()
        shown = "" if server is servers[0] else f"{used / floor:.2f}"
        say(f"  {server.target.name:30}{used:12.1f}{shown:>24}")
        note(title, server.target.name, used / floor)


def _report_cold_start(targets: list[Target], starts: int) -> None:
    seconds: dict[str, list[float]] = {target.name: [] for target in targets}
    for _ in range(starts):
        for target in targets:
            seconds[target.name].append(cold_start(target))
    head("cold start, spawn to initialize", "ms")
    for name, each in seconds.items():
        ratio = median(a / b for a, b in zip(each, seconds[FLOOR.name], strict=True))
        row(name, each, 1e3, None if name == FLOOR.name else ratio)


def _judge(worst_p95: float) -> int:
    allowed_ms = tomli.loads((_HERE / "sla.toml").read_text())["p95_ms"]
    kept = worst_p95 * 1000 <= allowed_ms
    verdict = "kept" if kept else "BROKEN"
    say(
        f"\nSLA: p95 of a no-op call over stdio {worst_p95 * 1000:.3f} ms,"
        f" allowed {allowed_ms} ms: {verdict}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
