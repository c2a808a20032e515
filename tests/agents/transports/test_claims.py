"""An agent is served by one ledger over NATS; a second one is refused by name (AACP-101).

Leases are short, or so long that nothing in a test can have waited for their end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.agents import (
    AgentCoordinatorV2,
    AgentServedElsewhereError,
    PostgresAACPPersistenceAdapter,
)
from foundation_rt.agents.messages import AgentMessage
from foundation_rt.agents.transports import nats_listener
from foundation_rt.agents.transports.nats_listener import NatsListener
from tests.agents.transports.support import World, world
from tests.lab.checks.recorded_log import RecordedLog
from tests.lab.places.services import postgres_schema
from tests.lab.servers import fork_server

SHORT_MS = 600


async def request(asker: AgentCoordinatorV2, number: int) -> Any:
    return await asker.send_request("clerk", AgentMessage("work", number), timeout_ms=60_000)


async def refused(starting: Coroutine[Any, Any, None]) -> str:
    """Return why a coordinator is refused."""
    with pytest.raises(AgentServedElsewhereError) as caught:
        await starting
    return str(caught.value)


@pytest.mark.rule("AACP-101")
async def test_second_ledger_is_refused_by_name_before_it_takes_anything(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, stack):
        asker = await stack.enter_async_context(here.coordinator("asker", agents=()))
        first = await stack.enter_async_context(here.coordinator("first"))
        second = here.coordinator("second")
        asked = [asyncio.create_task(request(asker, number)) for number in range(300)]
        message = await refused(second.start())
        assert "agent 'clerk' is served by another ledger" in message
        assert first.store is not None
        assert f"ledger {first.store.uid!r}, process {os.getpid()} on" in message
        assert "one ledger in PostgreSQL (aacp.store)" in message
        assert await asyncio.gather(*asked) == [*range(300)]
    assert here.executions == dict.fromkeys(range(300), 1)
    assert here.by == {"first": 300}


YIELDED = "nats: an agent is served by another ledger: nothing is taken"


@pytest.mark.rule("AACP-101", "AACP-103")
async def test_of_two_that_start_in_the_same_moment_one_yields(tmp_path: Path) -> None:
    agents = tuple(f"agent-{number}" for number in range(10))
    async with world(tmp_path) as (here, _):
        for _round in range(5):
            logs = [RecordedLog(), RecordedLog()]
            both = [
                here.coordinator(name, agents=agents, log=log)
                for name, log in zip(("first", "second"), logs, strict=True)
            ]
            ends = await asyncio.gather(*(each.start() for each in both), return_exceptions=True)
            if ends == [None, None]:
                saying = [asyncio.ensure_future(log.says(YIELDED, len(agents))) for log in logs]
                _, others = await asyncio.wait(saying, return_when=asyncio.FIRST_COMPLETED)
                assert sum(len(log.said(YIELDED)) for log in logs) == len(agents)
                for task in others:
                    task.cancel()
            else:
                assert [type(end) for end in ends if end is not None] == [AgentServedElsewhereError]
            for each in both:
                await each.stop()


@pytest.mark.rule("AACP-101")
async def test_ledgers_with_one_name_are_refused_as_well(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, stack):
        await stack.enter_async_context(here.coordinator("first", "shop", agents=()))
        message = await refused(here.coordinator("second", "shop", agents=()).start())
        assert "agent 'shop' is served by another ledger" in message
        assert "aacp.name" in message


@pytest.mark.rule("AACP-102")
async def test_agents_of_a_process_that_was_killed_are_free_at_once(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, stack):
        asker = await stack.enter_async_context(here.coordinator("asker", agents=()))
        process = start_killable(here)
        await refused(here.coordinator("other").start())
        process.kill()
        process.wait()
        await stack.enter_async_context(here.coordinator("other"))
        assert await request(asker, 1) == 1


@pytest.mark.rule("AACP-103")
async def test_ledgers_that_were_cut_off_from_each_other_find_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_listener, "CLAIM_RETRY_DELAY", 0.05)

    async def is_cut_off(
        self: nats_listener.NatsListener, seconds: float
    ) -> nats_listener.Candidate:
        return self._own

    async with world(tmp_path, SHORT_MS) as (here, stack):
        log, silent = RecordedLog(), RecordedLog()
        asker = await stack.enter_async_context(here.coordinator("asker", agents=()))
        elder = here.coordinator("elder", log=silent)
        await stack.enter_async_context(elder)
        with monkeypatch.context() as patched:
            patched.setattr(NatsListener, "_ask", is_cut_off)
            patched.setattr(NatsListener, "_meet", lambda self, other: None)
            await stack.enter_async_context(here.coordinator("younger", log=log))
        await log.says(YIELDED)
        [record] = log.said(YIELDED)
        assert record["level"] == "error"
        assert f"process {os.getpid()} on" in record["error"]
        assert await asyncio.gather(*(request(asker, n) for n in range(20))) == [*range(20)]
        assert here.by == {"elder": 20}
        assert silent.said(YIELDED) == []
        await elder.stop()
        assert await request(asker, 20) == 20
        assert here.by == {"elder": 20, "younger": 1}


@pytest.mark.rule("AACP-103")
async def test_agent_registered_later_is_taken_when_the_other_ledger_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foundation_rt.agents.ledger.runner._REFUSAL_RETRY_SECONDS", 0.05)
    async with world(tmp_path) as (here, stack):
        log = RecordedLog()
        asker = await stack.enter_async_context(here.coordinator("asker", agents=()))
        first = await stack.enter_async_context(here.coordinator("first"))
        second = await stack.enter_async_context(here.coordinator("second", agents=(), log=log))
        second.register_agent("clerk", here.coordinator("second")._agents["clerk"].handler)
        await log.says("an agent is served by another ledger")
        assert log.said("an agent is served by another ledger")[0]["level"] == "error"
        assert await request(asker, 1) == 1
        await first.stop()
        assert await request(asker, 2) == 2
    assert here.by == {"first": 1, "second": 1}


@pytest.mark.rule("AACP-101", "AACP-102")
async def test_processes_of_one_ledger_share_its_claims(tmp_path: Path) -> None:
    with postgres_schema() as (url, schema):
        async with world(tmp_path, SHORT_MS) as (here, stack):

            def shared(process: str) -> AgentCoordinatorV2:
                store = PostgresAACPPersistenceAdapter(url, schema=schema)
                return here.coordinator(process, "shop", store=store)

            asker = await stack.enter_async_context(here.coordinator("asker", agents=()))
            await stack.enter_async_context(shared("one"))
            async with shared("two"):
                assert await request(asker, 1) == 1
            # The end of one gives nothing back that the other needs.
            await refused(here.coordinator("stranger").start())
            assert await request(asker, 2) == 2


@pytest.mark.rule("AACP-101")
async def test_server_that_was_killed_gives_no_agent_to_another_ledger(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, stack):
        log = RecordedLog()
        asker = await stack.enter_async_context(here.coordinator("asker", agents=()))
        await stack.enter_async_context(here.coordinator("first", log=log))
        here.server.kill()
        here.server.start()
        assert await request(asker, 1) == 1
        await refused(here.coordinator("second").start())


@pytest.mark.rule("AACP-102")
async def test_process_that_was_frozen_takes_nothing_after_its_claim(tmp_path: Path) -> None:
    async with world(tmp_path, SHORT_MS) as (here, stack):
        asker = await stack.enter_async_context(here.coordinator("asker", agents=()))
        process = start_killable(here)
        process.send_signal(signal.SIGSTOP)
        try:
            await stack.enter_async_context(here.coordinator("other"))
            asked = [asyncio.create_task(request(asker, number)) for number in range(50)]
            process.send_signal(signal.SIGCONT)
            assert await asyncio.gather(*asked) == [*range(50)]
        finally:
            process.kill()
            process.wait()
    assert here.executions == dict.fromkeys(range(50), 1)


_KILLABLE = """
import asyncio, sys
from foundation_rt.agents import AgentCoordinatorV2, NatsTransport, SqliteAACPPersistenceAdapter

async def main(url, path, claim_ms):
    coordinator = AgentCoordinatorV2(
        store=SqliteAACPPersistenceAdapter(path),
        transport=NatsTransport(url, claim_ms=claim_ms),
        name="killable",
    )
    async def answer(message, context):
        return "from the process"
    coordinator.register_agent("clerk", answer)
    async with coordinator:
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def start_killable(here: World) -> subprocess.Popen[bytes]:
    """Start a process that serves the agent on a file of its own; return when it does."""
    arguments = [here.server.url, str(here.folder / "killable.db"), str(here.claim_ms)]
    process = fork_server.Popen(
        [sys.executable, "-c", _KILLABLE, *arguments], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
    return process
