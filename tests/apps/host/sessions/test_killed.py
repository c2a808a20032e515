"""Real processes that are killed at any point: what was shown is there, and nothing runs twice."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from attrs import define, field

from foundation_rt.apps.host.sessions.connection import decode_frame
from tests.apps.host.sessions.support import Page
from tests.lab.places.services import postgres_schema
from tests.lab.servers import fork_server
from tests.lab.sizes import size

ROOT = Path(__file__).parents[4]
KILLS = size(4, 40)
TURNS = ("say:abcdefghi call:a:b", "part:klmnop open:a:b", "call:a:b say:x say:longer-text")


@define
class Worker:
    """A process of `worker`, and pages that it shows chats to."""

    process: asyncio.subprocess.Process
    pages: list[Page] = field(factory=list)

    def tell(self, *command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(orjson.dumps(command) + b"\n")

    async def read(self) -> list[Any] | None:
        """Take a line in; None: the process has ended."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line.endswith(b"\n"):
            return None
        words: list[Any] = orjson.loads(line)
        if words[0] == "shown":
            self.pages[words[1]].show(decode_frame(orjson.dumps(words[2])))
        return words

    async def read_until(self, *ends: str) -> list[Any]:
        async with asyncio.timeout(60):
            while (words := await self.read()) is not None:
                shown = self.pages[words[1]].seen[-1] if words[0] == "shown" else words[0]
                if shown in ends:
                    return words
        raise AssertionError("the worker has ended")

    async def kill(self) -> None:
        """Kill it, and read what it has still written."""
        self.process.kill()
        while await self.read() is not None:
            pass
        await self.process.wait()

    async def create(self) -> str:
        self.tell("create")
        session_id: str = (await self.read_until("created"))[1]
        return session_id

    def connect(self, session_id: str, page: Page) -> None:
        self.pages.append(page)
        self.tell("connect", session_id, page.seq, len(self.pages) - 1)


@asynccontextmanager
async def worker(place: tuple[str, ...]) -> AsyncIterator[Worker]:
    """Run a worker; it is killed in the end."""
    with fork_server.forking():
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.apps.host.sessions.worker",
            *place,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**24,
        )
    peer = Worker(process)
    try:
        await peer.read_until("ready")
        yield peer
    finally:
        if process.returncode is None:
            await peer.kill()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    if request.param == "sqlite":
        yield (f"sqlite:{tmp_path / 'chats.db'}",)
    else:
        with postgres_schema() as place:
            yield place


@pytest.mark.rule("CHAT-07", "CHAT-18", "CHAT-19", "CHAT-21")
async def test_chats_are_whole_after_a_kill_at_any_point(place: tuple[str, ...]) -> None:
    dice = random.Random(5)
    async with worker(place) as peer:
        session_id = await peer.create()
    page, sent = Page(), 0
    for _ in range(KILLS):
        async with worker(place) as peer:
            peer.connect(session_id, page)
            for _ in range(2):
                peer.tell("submit", session_id, dice.choice(TURNS), f"m{sent}")
                sent += 1
            for _ in range(dice.randrange(1, 25)):
                if page.seen[-1:] == ["status"] and "processing" in dict(page.calls.values()):
                    break  # it may be the call that never ends
                await peer.read()
            await peer.kill()
        shown = dict(page.texts), dict(page.calls)
        async with worker(place) as peer:
            fresh = Page()
            peer.connect(session_id, fresh)
            await peer.read_until("history")
            for name, text in shown[0].items():
                assert fresh.texts[name].startswith(text)
            assert fresh.calls.keys() >= shown[1].keys()
            for name, (state, is_error) in shown[1].items():
                if state == "complete":
                    assert fresh.calls[name] == (state, is_error)


@pytest.mark.rule("CHAT-21")
async def test_turn_of_a_killed_process_is_interrupted_and_never_run_again(
    place: tuple[str, ...],
) -> None:
    page = Page()
    async with worker(place) as peer:
        session_id = await peer.create()
        peer.connect(session_id, page)
        peer.tell("submit", session_id, "part:shown open:a:b", "m1")
        await peer.read_until("status")
        peer.tell("submit", session_id, "say:after", "m2")
        await peer.read_until("submitted")
        await peer.kill()
    async with worker(place) as peer:
        peer.connect(session_id, page)
        # The message that waited is answered now, behind the turn that was interrupted.
        await peer.read_until("finished")
        fresh = Page()
        peer.connect(session_id, fresh)
        await peer.read_until("history")
    assert page.seen.count("interrupted") == 1
    assert page.seen.count("user") == 2
    assert list(page.calls.values()) == [("complete", True)]
    assert fresh.chat() == page.chat()


@pytest.mark.rule("CHAT-22")
async def test_turns_of_one_of_two_killed_workers_end_at_the_other() -> None:
    with postgres_schema() as place:
        async with worker(place) as dies, worker(place) as lives:
            session_id = await dies.create()
            page, other = Page(), Page()
            dies.connect(session_id, page)
            lives.connect(session_id, other)
            await lives.read_until("history")
            dies.tell("submit", session_id, "part:shown open:a:b", "m1")
            await lives.read_until("status")
            await dies.kill()
            async with asyncio.timeout(15):
                await lives.read_until("interrupted")
            lives.connect(session_id, page)  # a page of the dead one comes back here
            await lives.read_until("interrupted")
            assert page.chat() == other.chat()
            assert page.histories == other.histories == 1
            lives.tell("submit", session_id, "say:on", "m2")
            await lives.read_until("finished")


@contextmanager
def locked_chats(url: str, schema: str) -> Iterator[None]:
    """Keep all chats locked as a worker does that was stopped in a transaction."""
    import psycopg

    connection = psycopg.connect(url, application_name="foundation-rt host")
    try:
        connection.execute(f"SELECT FROM {schema}.chat FOR UPDATE".encode())
        yield
    finally:
        connection.close()


@pytest.mark.rule("CHAT-22")
@pytest.mark.parametrize("in_transaction", [False, True])
async def test_worker_that_was_stopped_for_longer_than_its_lease_shows_what_is_stored(
    in_transaction: bool,
) -> None:
    with postgres_schema() as place, ExitStack() as locks:
        async with worker((*place, "4")) as stops, worker((*place, "4")) as lives:
            session_id = await stops.create()
            page, other = Page(), Page()
            stops.connect(session_id, page)
            lives.connect(session_id, other)
            await lives.read_until("history")
            stops.tell("submit", session_id, "part:shown wait say:never", "m1")
            await stops.read_until("text")
            await lives.read_until("text")
            stops.process.send_signal(signal.SIGSTOP)
            if in_transaction:
                locks.enter_context(locked_chats(*place))
            await lives.read_until("interrupted")
            lives.tell("submit", session_id, "say:on", "m2")
            await lives.read_until("finished")
            stops.process.send_signal(signal.SIGCONT)
            while page.seq != other.seq:
                await stops.read()
            assert page.chat() == other.chat()
            stops.tell("submit", session_id, "say:again", "m3")
            await lives.read_until("finished")
            await stops.read_until("finished")
            assert page.chat() == other.chat()
