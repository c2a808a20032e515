"""Announcements between the workers of a host: each once, in order, bounded."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.errors import UsageError
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
        self.fails = False
        self.heard: list[list[Announcement]] = []
        self.workers: list[WorkerEvents] = []

    def add(self, key: str = KEY, *, alone: bool = False) -> WorkerEvents:
        logger = StructuredLogger(self.sink, ManualClock(), "info")
        slot, folder = len(self.workers), None if alone else self.folder
        worker = WorkerEvents(IdSeal(key), folder, slot, self.publish, logger)
        heard: list[Announcement] = []
        worker.start(heard.append)
        self.workers.append(worker)
        self.heard.append(heard)
        return worker

    async def publish(self, message: str) -> bool:
        await self.redis.wait()
        self.published.append(message)
        return not self.fails

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


@pytest.mark.rule("SUB-20")
async def test_worker_that_is_alone_on_its_host_publishes_until_redis_fails() -> None:
    async with group() as made:
        first, _ = made.add(alone=True), made.add()
        assert first.descriptors == []
        texts = [("resource", f"{number}{'x' * 20_000}", None, None) for number in range(3)]
        for made.fails, messages in ((False, 3), (True, 1)):
            made.published.clear()
            for each in texts:
                first.announce(each)
            await until(lambda: made.published and first._publishing is None, "all is published")
            assert len(made.published) == messages
        assert made.heard == [[], []]
        made.workers[1].receive(made.published[0])
        assert made.heard[1] == texts[:1]


@pytest.mark.rule("SUB-19")
async def test_announcements_of_one_turn_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_events, "MAX_PENDING", 3)
    monkeypatch.setattr(worker_events, "_MOST_AT_ONCE", 1)
    monkeypatch.setattr(worker_events, "_MESSAGE_BYTES", 40)  # so each is a message of its own
    async with group() as made:
        first, _ = made.add(), made.add()
        for number in range(5):
            first.announce(of(number))
        await until(lambda: len(made.heard[1]) >= 3, "three announcements come")
        assert made.heard[1] == [of(number) for number in range(3)]
        assert made.drops() == 1


@pytest.mark.rule("SUB-19")
async def test_worker_that_closes_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_events, "_CLOSE_SECONDS", 0.0)
    async with group() as made:
        first, slow = made.add(), made.add()
        assert slow._socket is not None
        asyncio.get_running_loop().remove_reader(slow._socket)
        made.redis.clear()
        number = 0
        while first._retry is None:
            first.announce(of(number))
            number += 1
            await asyncio.sleep(0)
        publishing = first._publishing
        await first.close()
        assert publishing is not None
        await asyncio.wait([publishing])
        assert publishing.cancelled() and made.published == []


@pytest.mark.rule("SUB-19")
async def test_worker_leaves_no_path_whether_or_not_it_began() -> None:
    logger = StructuredLogger(MemorySink(), ManualClock(), "info")
    async with group() as made:
        made.add()
        for begins in (False, True):
            worker = WorkerEvents(IdSeal(KEY), made.folder, 7, None, logger)
            assert len([*made.folder.iterdir()]) == 2
            if begins:
                worker.start(lambda announcement: None)
                worker.announce(of(1))
                await until(lambda: made.heard[0], "the announcement comes")
            await worker.close()
            assert len([*made.folder.iterdir()]) == 1
        assert made.published == []


def test_folder_that_is_too_deep_for_a_socket_is_named(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 120)
    with pytest.raises(UsageError, match=f"cannot listen at {path}: .*; set TMPDIR to a folder"):
        worker_events.bound_at(path, socket.SOCK_STREAM)


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
