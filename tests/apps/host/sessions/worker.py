"""A process with sessions, for tests that kill it. It reads commands and writes what is shown.

    python -m tests.apps.host.sessions.worker DSN [SCHEMA [LEASE]]

Each line is JSON. Commands: `["create"]`, `["connect", ID, AFTER, TAB]`,
`["submit", ID, TEXT, NAME]`, `["close"]`. Lines from it: `["ready"]`, `["created", ID]`,
`["shown", TAB, FRAME]`, `["submitted", NAME]`. A line is written before anything else happens: what
was read was shown.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import orjson

from foundation_rt.apps.host.app import open_store
from foundation_rt.apps.host.sessions.session import ChatSession
from foundation_rt.apps.host.sessions.sessions import ChatSessions
from foundation_rt.apps.host.sessions.store import ChatStore, SessionSettings
from tests.apps.host.sessions.fake_orchestrator import FakeOrchestrator
from tests.apps.host.sessions.support import OWNER

LIMITS = SessionSettings(max_messages=1_000)


def say(*line: Any) -> None:
    os.write(1, orjson.dumps(line) + b"\n")


async def follow(session: ChatSession, after: int | None, tab: int) -> None:
    async for message in session.connect(after):
        say("shown", tab, message.to_json())


async def obey(sessions: ChatSessions, name: str, *arguments: Any) -> None:
    if name == "create":
        say("created", (await sessions.create(OWNER)).id)
        return
    session = await sessions.find(arguments[0], OWNER)
    assert session is not None
    if name == "connect":
        await follow(session, *arguments[1:])
    elif name == "submit":
        await session.submit(*arguments[1:])
        say("submitted", arguments[2])


def store_of(dsn: str, schema: str | None) -> ChatStore:
    if schema is None:
        return open_store(dsn, LIMITS)
    from foundation_rt.apps.host.sessions.postgres import PostgresChatStore

    return PostgresChatStore(dsn, LIMITS, schema=schema)


async def main(dsn: str, schema: str | None = None, lease_s: str = "") -> None:
    if lease_s:
        from foundation_rt.apps.host.sessions import postgres_workers

        postgres_workers.LEASE_S, postgres_workers.RENEW_S = float(lease_s), float(lease_s) / 6
    sessions = ChatSessions(store_of(dsn, schema), LIMITS)
    sessions.run_turns_with(FakeOrchestrator(sessions))
    await sessions.start()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    say("ready")
    tasks = set()
    while (line := await reader.readline()) and (command := orjson.loads(line))[0] != "close":
        task = asyncio.create_task(obey(sessions, *command))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await sessions.close(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
