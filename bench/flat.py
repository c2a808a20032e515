"""Whether a call costs the same beside many tools, beside many calls, and after many calls.

`python -m bench.flat TOOLS IN_FLIGHT` is the server. Two of them are called in turn: the CPU time
of a call is that of the server's process. Up to 4 MB of the memory after many calls is the buffer
of the log, from a moment in which its file was slow. Linux only.
"""

from __future__ import annotations

import sys
import time
from statistics import median

from attrs import define

from bench.instructions import FEW_TOOLS, make_server
from bench.processes import Server, Target, pipelined, sequential
from bench.report import note, say
from bench.sizes import Sizes


@define
class _Pair:
    """What is compared: a server in the small case, and one in the large."""

    name: str
    small: Server
    large: Server


def report(sizes: Sizes) -> None:
    """Print CPU time and memory in the small and in the large case."""
    if sys.platform != "linux":
        say("\nflat: Linux only, which tells the CPU time of other processes")
        return
    tools, in_flight, calls = sizes.flat
    few, many = _spawn(FEW_TOOLS), _spawn(tools)
    one, busy = _spawn(FEW_TOOLS, in_flight), _spawn(FEW_TOOLS, in_flight)
    new, old = _spawn(FEW_TOOLS), _spawn(FEW_TOOLS)
    servers = (few, many, one, busy, new, old)
    for server in servers:
        sequential(server, sizes.warm_up)
    for server, count in ((one, 1), (busy, in_flight)):
        server.target.tool = "wait"
        for _ in range(count):
            server.send()
        server.target.tool = "tool_5"
    pipelined(new, sizes.warm_up)
    pipelined(old, calls)
    title = "stdio, one call"
    say(f"\n{title:32}{'CPU us':>12}{'ratio':>10}{'MB':>10}{'ratio':>10}")
    for pair in (
        _Pair(f"{tools:,} tools", few, many),
        _Pair(f"{in_flight:,} in flight", one, busy),
        _Pair(f"after {calls:,} calls", new, old),
    ):
        _report_pair(title, pair, sizes)
    for server in servers:
        server.stop()


def _report_pair(title: str, pair: _Pair, sizes: Sizes) -> None:
    rounds, calls = sizes.sequential
    seconds = [(_cpu(pair.small, calls), _cpu(pair.large, calls)) for _ in range(rounds)]
    small, large = (median(each) * 1e6 for each in zip(*seconds, strict=True))
    ratio = median(many / few for few, many in seconds)
    least, most = pair.small.resident_mb(), pair.large.resident_mb()
    say(f"  {'as small as can be':30}{small:12.1f}{'':10}{least:10.1f}")
    say(f"  {pair.name:30}{large:12.1f}{ratio:10.2f}{most:10.1f}{most / least:10.2f}")
    note(title, pair.name, ratio)
    note(title, f"{pair.name}, memory", most / least)


def _spawn(tools: int, in_flight: int = 1) -> Server:
    arguments = ["-m", "bench.flat", str(tools), str(in_flight)]
    server = Server.spawn(Target(f"{tools} tools", arguments, "tool_5"))
    server.initialize()
    return server


def _cpu(server: Server, calls: int) -> float:
    """Return the CPU time of the server for one of `calls` calls, in s."""
    clock = ~server.process.pid << 3 | 2  # as clock_getcpuclockid(3) has it
    before = time.clock_gettime(clock)
    sequential(server, calls)
    return (time.clock_gettime(clock) - before) / calls


if __name__ == "__main__":
    make_server(*map(int, sys.argv[1:])).run()
