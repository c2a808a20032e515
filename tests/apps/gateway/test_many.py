"""Many servers and many calls at once, and many rounds: nothing is mixed up, nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.client import Client, connect
from tests.apps.gateway.test_faults import APP, HANGS, entry, error_in, until_listed, write
from tests.apps.gateway.test_through import OLD, speaking, status_of
from tests.lab.programs.processes import children, descriptors, living
from tests.lab.servers.http_server import serve_gateway, serve_http
from tests.lab.servers.process import ServerProcess
from tests.lab.sizes import size
from tests.lab.waiting import until

QUICK = str(Path(__file__).parents[2] / "lab" / "apps" / "quick_server.sh")
GOOD = [f"s{number}" for number in range(4)]


@pytest.mark.rule("GATE-04", "COORD-11", "COORD-51")
async def test_seven_servers_of_which_three_are_of_no_use(tmp_path: Path) -> None:
    servers: dict[str, Any] = {name: entry(name) for name in GOOD}
    servers["dead"] = entry("dead", command="/bin/false")
    servers["gone"] = {"command": "no-such-program"}
    servers["hanging"] = {"command": sys.executable, "args": ["-c", HANGS]}
    file = write(tmp_path / "mcp.json", **servers)
    env = {"FOUNDATION_RT_GATEWAY__START_WAIT_MS": "3000", **speaking(OLD)}
    with serve_gateway(file, env=env) as gateway:
        anns, bobs = asyncio.Queue[str](), asyncio.Queue[str]()
        async with (
            connect(gateway.url, revision=OLD, on_list_changed=anns.put_nowait) as ann,
            connect(gateway.url, revision=OLD, on_list_changed=bobs.put_nowait) as bob,
        ):
            for who, news in ((ann, anns), (bob, bobs)):  # their processes start at their own pace
                await until_listed(
                    who, news, lambda names: {each.partition("__")[0] for each in names} == {*GOOD}
                )
            counts = await asyncio.gather(_count_everywhere(ann, "a"), _count_everywhere(bob, "b"))
            for name in GOOD:
                assert counts[0][name].isdisjoint(counts[1][name])
            for name in ("dead", "gone"):
                called = {"name": f"{name}__echo", "arguments": {"text": "x"}}
                refused = await ann.request("tools/call", called)
                assert refused["isError"]
                assert (await status_of(ann, name))["state"] == "failed"
            assert (await status_of(ann, "hanging"))["state"] == "starting"


async def _count_everywhere(client: Client, mine: str) -> dict[str, set[int]]:
    """Make 500 calls of all servers, interleaved; return the processes that answered, by server."""
    calls = [(GOOD[number % len(GOOD)], f"{mine}{number}") for number in range(500)]
    found = await asyncio.gather(
        *(client.call(f"{server}__count", {"mine": text}) for server, text in calls)
    )
    seen: dict[str, list[Any]] = {name: [] for name in GOOD}
    for (server, text), each in zip(calls, found, strict=True):
        value: Any = each.value()
        assert value[0] == text
        seen[server].append(value)
    for values in seen.values():
        assert sorted(value[2] for value in values) == [*range(1, len(values) + 1)]
    return {server: {value[1] for value in values} for server, values in seen.items()}


@pytest.mark.rule("COORD-73", "COORD-74")
async def test_sessions_of_one_principal_leave_room_for_others(tmp_path: Path) -> None:
    keys = '["ann:ann-key-0123456789", "bob:bob-key-0123456789"]'
    with serve_http(Path(APP)) as server:
        file = write(tmp_path / "mcp.json", one={"url": server.url, "timeoutMs": 5000})
        env = {"FOUNDATION_RT_HTTP__API_KEYS": keys, **speaking(OLD)}
        with serve_gateway(file, env=env, options=()) as gateway:
            async with AsyncExitStack() as stack:
                for who in (*["ann"] * 20, "bob"):
                    headers = {"Authorization": f"Bearer {who}-key-0123456789"}
                    client = connect(gateway.url, revision=OLD, headers=headers)
                    await stack.enter_async_context(client)
                    assert (await client.call("one__echo", {"text": who})).text == f"app: {who}"
                assert (await status_of(client, "one"))["sessions"] <= 6


@pytest.mark.rule("COORD-29", "COORD-52")
async def test_rounds_of_connect_call_and_kill_leave_nothing_in_the_gateway(tmp_path: Path) -> None:
    quick = {"command": "/bin/sh", "args": [QUICK]}
    file = write(tmp_path / "mcp.json", one=quick)
    with serve_gateway(file, env=speaking(OLD)) as gateway:

        async def one_round() -> None:
            async with connect(gateway.url, revision=OLD, require=()) as client:
                process = int((await client.call("one__pid")).text)
                assert int((await client.call("one__pid")).text) == process
                hang = {"name": "one__pid", "arguments": {"hang": True}}
                hanging = asyncio.ensure_future(client.request("tools/call", hang))
                await until(
                    lambda: status_of(client, "one"),
                    "the call runs",
                    lambda found: found["running"],
                )
                os.kill(process, signal.SIGKILL)
                assert error_in(await hanging)["mayHaveRun"]

        for _ in range(5):  # what is made once does not count
            await one_round()
        before = await _quiet(gateway.process)
        for _ in range(size(20, 300)):
            await one_round()
        await until(
            lambda: _quiet(gateway.process), "nothing is left", lambda found: found <= before
        )


async def _quiet(process: ServerProcess) -> int:
    """Return how many descriptors a gateway has, once it has no child: its server is flapping."""
    pid = process.process.pid
    await until(lambda: not children(pid), "the gateway has no child")
    return len(descriptors(pid))


@pytest.mark.rule("CHILD-21")
async def test_killed_gateways_leave_no_server(tmp_path: Path) -> None:
    """One after the other, each with servers that are being started or have just been."""
    file = write(tmp_path / "mcp.json", one=entry("one"), two=entry("two"))
    groups: list[Any] = []
    for _ in range(size(2, 10)):
        with serve_gateway(file, env=speaking(OLD)) as gateway:
            async with connect(gateway.url, revision=OLD) as client:
                groups += [(await client.call(f"{each}__pid")).value() for each in ("one", "two")]
                gateway.process.signal(signal.SIGKILL)
                await asyncio.to_thread(gateway.process.wait)
    await until(lambda: not any(living(group) for group in groups), "no process is left")
