"""Announcements between the workers of a host: each once, in order, bounded."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.subscriptions.publisher import Announcement
from foundation_rt.http.cluster import worker_events
from foundation_rt.http.cluster.session_seal import IdSeal
from foundation_rt.http.cluster.worker_events import WorkerEvents
from tests.lab.waiting import until

KEY = "5a" * 32


class Group:
    """Workers that share a folder, and what each has heard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sink = MemorySink()
        self.published: list[str] = []
        self.redis = asyncio.Event()  # set while it answers
        self.redis.set()
        self.heard: list[list[Announcement]] = []
        self.workers: list[WorkerEvents] = []

    def add(self, key: str = KEY) -> WorkerEvents:
        logger = StructuredLogger(self.sink, ManualClock(), "info")
        slot = len(self.workers)
        worker = WorkerEvents(IdSeal(key), self.folder, slot, self.publish, logger)
        heard: list[Announcement] = []
        worker.start(heard.append)
        self.workers.append(worker)
        self.heard.append(heard)
        return worker

    async def publish(self, message: str) -> bool:
        await self.redis.wait()
        self.published.append(message)
        return True

    def drops(self) -> int:
        return sum("dropped" in str(each["message"]) for each in self.sink.lines)


@asynccontextmanager
async def group() -> AsyncIterator[Group]:
    with tempfile.TemporaryDirectory() as folder:
        made = Group(Path(folder))
        try:
            yield made
        finally:
            for each in made.workers:
                await each.close()


def of(name: object) -> Announcement:
    return ("resource", f"note://{name}", None, None)


@pytest.mark.rule("SUB-18")
async def test_announcements_of_a_turn_go_to_all_others_once_and_in_order() -> None:
    async with group() as made:
        first, _, _ = made.add(), made.add(), made.add(key="6b" * 32)
        session: Announcement = ("list", "tools", "key", None)
        for each in (of(1), session, of(1), of(2)):
            first.announce(each)
        thread = threading.Thread(target=first.announce, args=[of(3)])
        thread.start()
        thread.join()
        await until(lambda: len(made.heard[1]) >= 4, "four announcements come")
        assert made.heard == [[], [of(1), session, of(2), of(3)], []]
        [message] = made.published
        assert "note" not in message
        made.workers[1].receive(message)
        made.workers[1].receive("ä" + message)
        assert len(made.heard[1]) == 8


@pytest.mark.rule("SUB-19")
async def test_worker_that_does_not_receive_holds_up_no_other_and_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_events, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(worker_events, "MAX_PENDING", 500)
    async with group() as made:
        first, slow, _ = made.add(), made.add(), made.add()
        loop = asyncio.get_running_loop()
        assert slow._socket is not None
        loop.remove_reader(slow._socket)
        number = 0
        while not made.drops():
            first.announce(of(number))
            number += 1
            await asyncio.sleep(0)
        first.announce(("resource", "x" * 100_000, None, None))
        await until(lambda: len(made.heard[2]) >= number, "all announcements come")
        assert made.heard[2] == [of(each) for each in range(number)]
        loop.add_reader(slow._socket, slow._receive_all, slow._socket)
        await until(lambda: len(made.heard[1]) >= 500, "what is kept comes")
        assert made.heard[1][:500] == [of(each) for each in range(500)]
        assert made.drops() == 1


@pytest.mark.rule("SUB-19")
async def test_announcements_that_come_while_redis_is_slow_go_together_and_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_events, "MAX_PENDING", 500)
    async with group() as made:
        first, second = made.add(), made.add()
        for slow, drops in ((400, 0), (600, 1)):
            made.redis.clear(), made.published.clear(), made.heard[1].clear()
            for number in range(slow + 1):
                first.announce(of(number))
                await asyncio.sleep(0)
            made.redis.set()
            await until(lambda: first._publishing is None, "nothing is being published")
            made.heard[1].clear()
            for message in made.published:
                second.receive(message)
            expected = min(slow, 500) + 1  # one was on its way
            assert made.heard[1] == [of(number) for number in range(expected)]
            assert len(made.published) <= 3
            assert made.drops() == drops


async def test_announcements_of_another_version_are_left_out() -> None:
    async with group() as made:
        first = made.add()
        content = b'[["gone", "a"], ["resource", "note://1", null, null]]'
        first.receive(IdSeal(KEY).seal_events(content).decode())
        assert made.heard[0] == [of(1)]


@pytest.mark.rule("SUB-19")
async def test_worker_that_has_gone_is_waited_for_by_nobody() -> None:
    async with group() as made:
        first, second = made.add(), made.add()
        assert second._socket is not None
        asyncio.get_running_loop().remove_reader(second._socket)
        second._socket.close()  # its path is left, as of one that was killed
        first.announce(of(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert first._unsent == {} and made.drops() == 0
        await first.close()
        first.announce(of(2))
        second._socket = None
