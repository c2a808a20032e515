"""Servers that nobody here wrote are killed and come back: what our client makes of it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from foundation_rt.client import (
    BreakerSettings,
    CircuitOpenError,
    CircuitState,
    Client,
    ConnectionLostError,
    MCPError,
    RetryPolicy,
    StdioServer,
    connect,
)
from tests.interop import servers
from tests.lab.servers.process import PATIENCE

pytestmark = pytest.mark.usefixtures("nothing_left")

OFFICIAL = {"official-python": servers.python, "official-typescript": servers.typescript}
CALLERS = 20

everybody = pytest.mark.parametrize("command", OFFICIAL.values(), ids=OFFICIAL)
in_its_mode = pytest.mark.parametrize(
    ("command", "revision"),
    [(servers.python, "2025-11-25"), (servers.typescript, "2026-07-28")],
    ids=["official-python-2025-11-25", "official-typescript-2026-07-28"],
)
"""Which program it is and which mode it speaks do not depend on each other: each of both once."""

Command = Callable[[], list[str]]
Test = Callable[[Client], Awaitable[None]]


def _run(target: Any, test: Test, **options: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE), connect(target, **options) as client:
            await test(client)

    asyncio.run(bounded())


def _stdio(command: Command) -> StdioServer:
    words = command()
    return StdioServer(words[0], [*words[1:], "stdio"])


async def _process(client: Client) -> int:
    """Return the process that answers; this may be asked any number of times."""
    return int((await client.call("process_id", idempotent=True)).text)


async def _processes(client: Client) -> set[int]:
    """Return the processes that answer many callers at once."""
    return {*await asyncio.gather(*(_process(client) for _ in range(CALLERS)))}


async def _as_soon_as_may_be(client: Client) -> int:
    """Return the process that answers, once the circuit is not open any more."""
    while True:
        try:
            return await _process(client)
        except CircuitOpenError as refused:
            await asyncio.sleep(refused.retry_after or 0)


@pytest.mark.rule("CLIENT-07", "CLIENT-28")
@in_its_mode
def test_a_killed_child_is_started_again_once(command: Command, revision: str) -> None:
    async def test(client: Client) -> None:
        first = await _process(client)
        os.kill(first, signal.SIGKILL)
        [second] = await _processes(client)
        assert second != first

    _run(_stdio(command), test, revision=revision)


@pytest.mark.rule("CLIENT-28", "RETRY-10")
@in_its_mode
def test_what_may_have_run_is_not_repeated(command: Command, revision: str) -> None:
    async def test(client: Client) -> None:
        first = await _process(client)
        running = asyncio.create_task(client.call("wait"))
        assert (await client.call("waiting")).text == "it waits"
        os.kill(first, signal.SIGKILL)
        with pytest.raises(ConnectionLostError) as lost:
            await running
        assert lost.value.code == "E201"
        assert lost.value.may_have_run
        assert await _process(client) != first

    _run(_stdio(command), test, revision=revision)


@pytest.mark.rule("CLIENT-28", "RETRY-10")
@everybody
def test_what_may_run_twice_is_repeated(command: Command) -> None:
    async def test(client: Client) -> None:
        first = await _process(client)
        waiting = asyncio.create_task(client.call("waiting", idempotent=True))
        await _process(client)
        os.kill(first, signal.SIGKILL)
        assert await _process(client) != first
        running = asyncio.create_task(client.call("wait"))
        assert (await waiting).text == "it waits"
        running.cancel()

    _run(_stdio(command), test)


@pytest.mark.rule("CLIENT-54")
@everybody
def test_a_subscription_outlives_the_server(command: Command) -> None:
    async def test(client: Client) -> None:
        async with client.subscribe("note://today") as changes:
            os.kill(await _process(client), signal.SIGKILL)
            # What has changed meanwhile nobody knows.
            assert await anext(changes) == "note://today"
            await client.call("touch", {"uri": "note://today"})
            assert await anext(changes) == "note://today"

    _run(_stdio(command), test, require=("tools", "resources.subscribe"))


@pytest.mark.rule("CLIENT-49", "CHTTP-18")
@in_its_mode
def test_over_http_a_restarted_server_is_spoken_to_anew(command: Command, revision: str) -> None:
    with servers.listening(command()) as first:

        async def test(client: Client) -> None:
            assert await _processes(client) == {first.process.pid}
            first.kill()
            with servers.listening(command(), first.port) as second:
                assert await _processes(client) == {second.process.pid}
                assert (await client.call("add", {"a": 2, "b": 3})).structured == {"total": 5}

        _run(first.url, test, revision=revision)


@pytest.mark.rule("CERR-11")
def test_a_server_that_has_another_word_for_an_expired_session() -> None:
    # npm's server-everything answers 400, where the specification has 404.
    with servers.everything_over("streamableHttp", "/mcp") as first:

        async def test(client: Client) -> None:
            await client.call("echo", {"message": "one"})
            first.kill()
            with servers.everything_over("streamableHttp", "/mcp", first.port):
                assert (await client.call("echo", {"message": "two"})).text == "Echo: two"

        _run(first.url, test)


@pytest.mark.rule("BREAK-02", "BREAK-10", "CHTTP-15")
@everybody
def test_a_server_that_is_gone_is_left_in_peace_until_it_is_back(command: Command) -> None:
    with servers.listening(command()) as first:

        async def test(client: Client) -> None:
            await _process(client)
            first.kill()
            for _ in range(2):
                with pytest.raises(MCPError) as gone:
                    await _process(client)
                assert (gone.value.code, gone.value.may_have_run) == ("E201", False)
            assert client.circuit_state is CircuitState.OPEN
            with pytest.raises(CircuitOpenError) as refused:
                await _process(client)
            assert refused.value.code == "E201"
            with servers.listening(command(), first.port) as second:
                assert await _as_soon_as_may_be(client) == second.process.pid
            assert client.circuit_state is CircuitState.CLOSED

        breaker = BreakerSettings(failure_threshold=2, reset_timeout_ms=1_000)
        _run(first.url, test, breaker=breaker, retries=RetryPolicy(max_attempts=1))
