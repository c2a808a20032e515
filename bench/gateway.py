"""The gateway beside its two hops, a server with as many tools, bare clients, and other proxies.

The hops of a call through the gateway are that of the load to a server of the runtime, which
answers itself, and that of our client to the server behind. Each is measured in turn with the
gateway, round by round; ratios are to the sum of both, or to the slower one. The CPU of a call is
that of the gateway, beside the server of the first hop and the client of the second: where other
processes want the same cores, that says more than the times.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import orjson
from attrs import frozen

from bench import peer_proxies
from bench.client_load import ARGUMENTS, SERVER_ENV, TOOL
from bench.over_client import APP
from bench.over_http import (
    STATELESS_META,
    STATELESS_REVISION,
    Load,
    Server,
    post,
    rpc_message,
    shake_hands,
)
from bench.processes import Server as StdioServer
from bench.processes import Target
from bench.report import head, note, percentiles, row, say
from bench.sizes import FULL, Sizes

_ROOT = Path(__file__).resolve().parent.parent
_COMMAND = " ".join([sys.executable, *APP])
_MANY_TOOLS = ["-m", "foundation_rt", "serve", str(_ROOT / "bench" / "many_tools_app.py")]
_LAST = "echo_999"
_SERVERS = 4
_FRONT = "direct HTTP, the load"
_PATIENCE = 30.0

Figures = dict[str, float]
"""The rate of one round, its p50 and p99 and the CPU of a call, in seconds."""


def report(sizes: Sizes, *, with_peers: bool) -> None:
    """Measure and print."""
    with _runtime(APP) as direct:
        _report_calls(direct, sizes)
        if with_peers:
            _report_peers(direct, sizes)
    _report_list(sizes)
    _report_start(sizes.gateway_starts)


# -- what runs -------------------------------------------------------------------------------------


@contextmanager
def _runtime(command: list[str]) -> Iterator[Server]:
    server = Server.spawn("runtime", [*command, "--no-auth", "--http"], "127.0.0.1:{}")
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def _gateway(entry: Mapping[str, Any], tool: str = TOOL) -> Iterator[Server]:
    """Yield a gateway over HTTP before one server, once it lists this tool.

    As many calls may run at the server as are made, as on its hops, which have no `maxConcurrent`.
    """
    with _servers_file({"bench": {**entry, "maxConcurrent": 2 * max(FULL.in_flight)}}) as path:
        command = ["-m", "foundation_rt", "gateway", path, "--prefix", "never", "--no-auth"]
        server = Server.spawn("gateway", [*command, "--http"], "127.0.0.1:{}")
        try:
            _await(server, tool)
            yield server
        finally:
            server.stop()


@contextmanager
def _servers_file(entries: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mcp.json")
        path.write_bytes(orjson.dumps({"mcpServers": entries}))
        yield str(path)


def _await(server: Server, tool: str) -> None:
    """Return once it lists this tool: the first list waits for the servers behind."""
    load = Load.spawn()
    try:
        load.do(**_list_job(server, tool), connections=1, seconds=0)
    finally:
        load.stop()


def _entry(command: list[str]) -> dict[str, Any]:
    return {"command": sys.executable, "args": command, "env": SERVER_ENV}


def _url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}/mcp"


def _job(server: Server, method: str, params: dict[str, Any], expect: str) -> dict[str, Any]:
    """Return a job of the load: a request of the stateless mode."""
    headers = {"MCP-Protocol-Version": STATELESS_REVISION, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    body = rpc_message(method, {**params, "_meta": STATELESS_META})
    request = post(server.port, body, headers)
    return {"job": "calls", "port": server.port, "request": request, "expect": expect}


def _call_job(server: Server) -> dict[str, Any]:
    return _job(server, "tools/call", {"name": TOOL, "arguments": ARGUMENTS}, '"isError":false')


def _list_job(server: Server, tool: str) -> dict[str, Any]:
    return _job(server, "tools/list", {}, f'"name":"{tool}"')


def _handshake_job(server: Server) -> dict[str, Any]:
    """Return the same call in the handshake mode, as other proxies speak it."""
    body = rpc_message("tools/call", {"name": TOOL, "arguments": ARGUMENTS})
    request = post(server.port, body, shake_hands(server.port))
    return {
        "job": "calls",
        "port": server.port,
        "request": request,
        "expect": '"isError":false',
    }


def _measure_server(load: Load, server: Server, job: dict[str, Any]) -> Figures:
    before = server.cpu_seconds()
    answer = load.do(**job)
    return {**answer, "cpu": (server.cpu_seconds() - before) / answer["calls"]}


def _measure_client(client: Load, in_flight: int, seconds: float) -> Figures:
    answer = client.do(in_flight=in_flight, seconds=seconds)
    cuts = percentiles(answer["took"])
    return {"rate": answer["rate"], "p50": cuts[50], "p99": cuts[99], "cpu": answer["cpu"]}


# -- calls -----------------------------------------------------------------------------------------


@frozen
class _Through:
    """The gateway before a server of one transport, and the name of the hop behind it."""

    name: str
    server: Server
    hop: str


def _report_calls(direct: Server, sizes: Sizes) -> None:
    """Print calls through the gateway beside both hops."""
    with ExitStack() as stack:
        load = Load.spawn()
        stack.callback(load.stop)
        hops = {
            "direct stdio, our client": ("stdio", _COMMAND),
            "direct HTTP, our client": ("http", _url(direct)),
        }
        clients = {
            name: Load.spawn("bench.client_load", "ours", transport, "stateless", where)
            for name, (transport, where) in hops.items()
        }
        for client in clients.values():
            stack.callback(client.stop)
        over_stdio = stack.enter_context(_gateway(_entry(APP)))
        over_http = stack.enter_context(_gateway({"url": _url(direct)}))
        through = [
            _Through("gateway, stdio behind", over_stdio, "direct stdio, our client"),
            _Through("gateway, HTTP behind", over_http, "direct HTTP, our client"),
        ]
        for number in sizes.in_flight:
            rounds: dict[str, list[Figures]] = {_FRONT: [], **{name: [] for name in clients}}
            count, seconds = sizes.gateway
            for _ in range(count):
                each = {"connections": number, "seconds": seconds}
                job = {**_call_job(direct), **each}
                rounds[_FRONT].append(_measure_server(load, direct, job))
                for name, client in clients.items():
                    rounds[name].append(_measure_client(client, number, seconds))
                for path in through:
                    job = {**_call_job(path.server), **each}
                    figures = _measure_server(load, path.server, job)
                    rounds.setdefault(path.name, []).append(figures)
            _say_calls(number, rounds, through)


def _say_calls(number: int, rounds: dict[str, list[Figures]], through: list[_Through]) -> None:
    say(
        f"\n{f'through the gateway, {number} in flight':36}{'calls/s':>9}{'p50 us':>9}{'p99 us':>9}"
        f"{'CPU us':>9}{'p50/sum':>9}{'p99/sum':>9}{'CPU/sum':>9}{'rate/slower':>13}"
    )
    hop_of = {path.name: path.hop for path in through}
    front = rounds[_FRONT]
    for name, each in rounds.items():
        line = f"  {name:34}{_plain(each)}{median(one['cpu'] for one in each) * 1e6:9.0f}"
        if name in hop_of:
            hops = [*zip(each, front, rounds[hop_of[name]], strict=True)]
            for key in ("p50", "p99", "cpu"):
                line += f"{median(mine[key] / (a[key] + b[key]) for mine, a, b in hops):8.2f}x"
            rate = median(mine["rate"] / min(a["rate"], b["rate"]) for mine, a, b in hops)
            line += f"{rate:12.2f}x"
        say(line)


def _plain(each: list[Figures]) -> str:
    rate, p50, p99 = (median(one[key] for one in each) for key in ("rate", "p50", "p99"))
    return f"{rate:9.0f}{p50 * 1e6:9.0f}{p99 * 1e6:9.0f}"


def _report_peers(direct: Server, sizes: Sizes) -> None:
    """Print what each proxy adds to a call of the same server, in the handshake mode."""
    with ExitStack() as stack:
        say("")
        servers = {
            "direct": direct,
            "gateway, stdio behind": stack.enter_context(_gateway(_entry(APP))),
            "gateway, http behind": stack.enter_context(_gateway({"url": _url(direct)})),
        }
        for peer in peer_proxies.PEERS:
            where = _url(direct) if peer.behind == "http" else _COMMAND
            proxy = stack.enter_context(peer_proxies.running(peer, where))
            if proxy is not None:
                servers[f"{peer.package}, {peer.behind} behind"] = proxy
        load = Load.spawn()
        stack.callback(load.stop)
        jobs = {name: _handshake_job(server) for name, server in servers.items()}
        count, seconds = sizes.gateway
        for number in sizes.in_flight:
            rounds: dict[str, list[Figures]] = {name: [] for name in jobs}
            for _, (name, job) in product(range(count), jobs.items()):
                rounds[name].append(load.do(**job, connections=number, seconds=seconds))
            _say_peers(number, rounds)


def _say_peers(number: int, rounds: dict[str, list[Figures]]) -> None:
    title = f"beside other proxies, {number} in flight"
    say(f"\n{title:36}{'calls/s':>9}{'p50 us':>9}{'p99 us':>9}{'added us':>10}{'to ours':>9}")
    added = {
        name: [mine["p50"] - bare["p50"] for mine, bare in zip(each, rounds["direct"], strict=True)]
        for name, each in rounds.items()
    }
    for name, each in rounds.items():
        line = f"  {name:34}{_plain(each)}"
        if name != "direct":
            ours = added[f"gateway, {name.split(', ')[1]}"]
            ratio = median(a / b for a, b in zip(added[name], ours, strict=True))
            line += f"{median(added[name]) * 1e6:10.0f}{ratio:8.1f}x"
        say(line)


# -- lists -----------------------------------------------------------------------------------------


def _report_list(sizes: Sizes) -> None:
    """Print a page of 1,000 tools of the gateway beside that of the server."""
    count, seconds = sizes.gateway
    with _runtime(_MANY_TOOLS) as direct, _gateway({"url": _url(direct)}, _LAST) as through:
        load = Load.spawn()
        rounds: dict[str, list[Figures]] = {"direct": [], "through the gateway": []}
        try:
            for _ in range(count):
                for name, server in zip(rounds, (direct, through), strict=True):
                    job = _list_job(server, _LAST)
                    rounds[name].append(load.do(**job, connections=1, seconds=seconds))
        finally:
            load.stop()
    title = "tools/list of 1,000 tools"
    say(f"\n{title:36}{'lists/s':>9}{'p50 us':>9}{'p99 us':>9}{'p50':>9}")
    for name, each in rounds.items():
        both = zip(each, rounds["direct"], strict=True)
        ratio = median(mine["p50"] / floor["p50"] for mine, floor in both)
        say(f"  {name:34}{_plain(each)}{'' if name == 'direct' else f'{ratio:8.2f}x'}")
        note(title, name, ratio)


def _report_start(starts: int) -> None:
    """Print how long it takes until four servers are listed, from the start of a process."""
    seconds: dict[str, list[float]] = {"floor: four bare clients": [], "gateway": []}
    entries = {f"server-{number}": _entry(APP) for number in range(_SERVERS)}
    with _servers_file(entries) as path:
        for _ in range(starts):
            seconds["floor: four bare clients"].append(_start_bare())
            seconds["gateway"].append(_start_gateway(path))
    head("four servers, start to tools", "ms")
    floor, ours = seconds.values()
    row("floor: four bare clients", floor, 1e3, None)
    row("gateway", ours, 1e3, median(a / b for a, b in zip(ours, floor, strict=True)))


def _start_bare() -> float:
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "bench.four_clients", *[_COMMAND] * _SERVERS],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **SERVER_ENV},
        cwd=_ROOT,
        timeout=_PATIENCE,
    )
    return time.perf_counter() - started


def _start_gateway(path: str) -> float:
    started = time.perf_counter()
    server = StdioServer.spawn(Target("gateway", ["-m", "foundation_rt", "gateway", path]))
    try:
        server.initialize()
        listed = server.ask("tools/list", {})["tools"]
        seconds = time.perf_counter() - started
    finally:
        server.stop()
    if sum(each["name"].endswith(TOOL) for each in listed) != _SERVERS:
        raise RuntimeError("the gateway does not list all servers")
    return seconds
