"""Calls that wait for jobs, on every store."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from foundation_rt import SessionLog
from foundation_rt.apps.task_server import changes
from foundation_rt.apps.task_server.changes import JobLogs, JobWaiters
from foundation_rt.apps.task_server.jobs import Job
from tests.apps.task_server.stores.places import Make
from tests.apps.task_server.stores.support import claim, opened, submit, tasks, tasks_of
from tests.lab.waiting import PATIENCE


@pytest.mark.rule("TASKS-57")
@pytest.mark.parametrize("notified", [True, False])
async def test_waiting_ends_with_the_job_of_another_process(
    make: Make, make_other: Make, notified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not notified:  # as if the notifications had been lost
        monkeypatch.setattr(changes, "_POLL_S", 0.01)
    async with opened(make) as one, opened(make_other) as other:
        waiters = JobWaiters(one)
        if notified:
            one.on_change(waiters.note)
        job_id = (await submit(one)).job.job_id
        seen: list[Job] = []
        looked = asyncio.Event()

        def see(job: Job) -> None:
            seen.append(job)
            looked.set()

        waiting = asyncio.create_task(waiters.wait(job_id, PATIENCE, see))
        await looked.wait()
        claimed = await claim(other)
        await other.complete_job(claimed, tasks_of(claimed))
        job = await waiting
        assert job is not None
        assert job.status == "COMPLETED"
        assert seen[0].status == "PENDING"
        assert not any(each.is_ended for each in seen)


@pytest.mark.rule("TASKS-57")
async def test_waiting_without_time_looks_once(make: Make) -> None:
    async with opened(make) as store:
        waiters = JobWaiters(store)
        job_id = (await submit(store)).job.job_id
        job = await waiters.wait(job_id, 0, pytest.fail)
        assert job is not None
        assert job.status == "PENDING"
        assert await waiters.wait("00000000-0000-4000-8000-00000000ffff", 1, pytest.fail) is None
        waiting = asyncio.create_task(waiters.wait(job_id, PATIENCE, lambda job: None))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not waiters._waiting


class Session:
    """Keeps the log messages that a session is sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.arrived = asyncio.Event()

    def send(self, session_id: int, level: str, line: bytes) -> None:
        self.messages.append(orjson.loads(line)["params"])
        if len(self.messages) == 2:
            self.arrived.set()


@pytest.mark.rule("TASKS-59")
@pytest.mark.parametrize("ended_before", [True, False])
@pytest.mark.parametrize("fails", [True, False])
async def test_session_is_sent_the_begin_and_the_end_of_its_job(
    make: Make, ended_before: bool, fails: bool
) -> None:
    async with opened(make) as store:
        logs, session = JobLogs(store), Session()
        store.on_change(logs.note)
        job = (await submit(store, tasks=tasks(3))).job
        if not ended_before:
            logs.follow(job, SessionLog(session.send, 1))
        claimed = await claim(store)
        if fails:
            await store.fail_job(claimed, "It cannot be stored.")
        else:
            await store.complete_job(claimed, tasks_of(claimed))
        if ended_before:
            logs.follow(job, SessionLog(session.send, 1))
        async with asyncio.timeout(PATIENCE):
            await session.arrived.wait()
        await logs.close()
        status = "FAILED" if fails else "COMPLETED"
        message = "It cannot be stored." if fails else "3 tasks stored"
        shown = [
            (
                each["level"],
                *(each["data"][name] for name in ("status", "progressPercent", "message")),
            )
            for each in session.messages
        ]
        assert shown == [
            ("info", "PENDING", 0, "3 tasks accepted"),
            ("error" if fails else "info", status, 0 if fails else 100, message),
        ]
