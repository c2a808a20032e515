"""The resources of the task server, and the consequences of a commit.

All tasks, one task and the figures are resources. A commit leads to notifications of them, the end
of waits for jobs and log messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.database.errors import DatabaseError
from ...errors import ErrorCode, ToolError
from ...features.completions.registry import Completion
from .services import READ_SCOPE
from .store import Change
from .tools.lists import summary_to_wire
from .validation import MAX_ID

if TYPE_CHECKING:
    from ...features.session_log import SessionLog
    from ...server import Server
    from .jobs import Job
    from .services import Services
    from .store import TaskServerStore


INTERVAL_S = 0.1
"""The shortest time between two notifications of one resource."""

MAX_RANGES = 1_000
"""Most ranges of changed tasks that are kept apart; with more, every task counts as changed."""

MAX_FOLLOWED = 10_000
"""Most jobs whose end is logged to a session; of more, the oldest are left out."""

_POLL_S = 1.0


@define(eq=False)
class ResourceNotifier:
    """Notifies subscribers of changed resources, ten times a second at most.

    Args:
        server: has the subscribers.
    """

    _server: Server
    _pending: Change | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _next_s: float = field(default=0.0, init=False)

    def note(self, change: Change) -> None:
        """Notify subscribers of a committed change: now, or together with others a little later."""
        self._pending = change if self._pending is None else merge(self._pending, change)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._next_s, loop.time()), self._flush)

    def close(self) -> None:
        """Send what is pending, and no more after that."""
        if self._timer is not None:
            self._timer.cancel()
            self._flush()

    def _flush(self) -> None:
        change, self._pending, self._timer = self._pending, None, None
        self._next_s = asyncio.get_running_loop().time() + INTERVAL_S
        if change is None:
            return
        if change.lists or change.everything:
            self._server.list_changed("resources", all_workers=False)  # each follows the store
        for uri in self._server.subscribed_resources():
            if is_changed(uri, change):
                self._server.resource_updated(uri, all_workers=False)


def is_changed(uri: str, change: Change) -> bool:
    """Return whether a resource of the task server has changed."""
    if uri == STATISTICS:
        return True
    if uri == ALL_TASKS:
        return change.everything or change.lists or bool(change.tasks)
    number = uri.removeprefix(TASK_PREFIX)
    if number == uri or not (number.isascii() and number.isdecimal()):
        return False
    # Longer numbers than any id are no task, and may be too long to be read.
    is_id = len(number) <= 19
    return change.everything or (
        is_id and any(first <= int(number) <= last for first, last in change.tasks)
    )


def merge(first: Change, second: Change) -> Change:
    """Return the change that both make together."""
    everything = first.everything or second.everything
    tasks = () if everything else join_ranges((*first.tasks, *second.tasks))
    return Change(
        tasks if len(tasks) <= MAX_RANGES else (),
        tuple(dict.fromkeys((*first.jobs, *second.jobs))),
        everything or len(tasks) > MAX_RANGES,
        first.lists or second.lists,
    )


def join_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the same numbers as `ranges`, in as few ranges as possible, ascending."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


@define(eq=False)
class JobWaiters:
    """Callers that wait for the end of a job, in any process.

    Args:
        store: has the jobs.
    """

    _store: TaskServerStore
    _waiting: dict[str, set[asyncio.Event]] = field(factory=dict, init=False)

    def note(self, change: Change) -> None:
        """Wake those who wait for a job that has changed."""
        ids = [*self._waiting] if change.everything else change.jobs
        for job_id in ids:
            for event in self._waiting.get(job_id, ()):
                event.set()

    async def wait(
        self, job_id: str, timeout: float, on_status: Callable[[Job], object]
    ) -> Job | None:
        """Return the job when it has ended, or as it is after `timeout` seconds.

        Args:
            job_id: of a job; None is returned if there is none of this id.
            timeout: 0 returns at once.
            on_status: is given the job at first, and whenever it may have changed.

        Raises:
            DatabaseError: as `TaskServerStore.get_job` does.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        changed = asyncio.Event()
        self._waiting.setdefault(job_id, set()).add(changed)
        try:
            while True:
                changed.clear()
                job = await self._store.get_job(job_id)
                left = deadline - loop.time()
                if job is None or job.is_ended or left <= 0:
                    return job
                on_status(job)
                # A notification may be lost with its connection.
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _POLL_S)):
                        await changed.wait()
        finally:
            self._waiting[job_id].discard(changed)
            if not self._waiting[job_id]:
                del self._waiting[job_id]


@define(eq=False)
class JobLogs:
    """Logs the beginning and the end of jobs to the sessions that have submitted them.

    Args:
        store: has the jobs.
    """

    _store: TaskServerStore
    _followed: dict[str, SessionLog] = field(factory=dict, init=False)
    _changed: set[str] = field(factory=set, init=False)
    _reading: asyncio.Task[None] | None = field(default=None, init=False)

    def follow(self, job: Job, log: SessionLog) -> None:
        """Log that a job begins, and its end when it comes."""
        log.log(
            "info", {**_progress(job, 0), "message": f"{job.total_tasks} tasks accepted"}, "jobs"
        )
        while len(self._followed) >= MAX_FOLLOWED:
            del self._followed[next(iter(self._followed))]
        self._followed[job.job_id] = log
        self.note(Change(jobs=(job.job_id,)))  # it may have ended already

    def note(self, change: Change) -> None:
        """Look at the jobs that have changed, in the background."""
        self._changed |= self._followed.keys() & (
            self._followed.keys() if change.everything else change.jobs
        )
        if self._changed and self._reading is None:
            self._reading = asyncio.create_task(self._read())

    async def close(self) -> None:
        """Look no more."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _read(self) -> None:
        try:
            while self._changed:
                job_id = self._changed.pop()
                job = await self._store.get_job(job_id)
                if job is None or job.is_ended:
                    log = self._followed.pop(job_id, None)
                    if log is not None and job is not None:
                        log.log(*_ending(job))
        except DatabaseError:
            self._changed.clear()  # a message is no reason to ask a database that is away again
        finally:
            self._reading = None


def _ending(job: Job) -> tuple[str, dict[str, object], str]:
    """Return the level, the data and the logger of the last message of a job."""
    if job.status == "FAILED":
        return "error", {**_progress(job, 0), "message": job.error_message}, "jobs"
    message = f"{job.processed_tasks} tasks stored"
    return "info", {**_progress(job, 100), "message": message}, "jobs"


def _progress(job: Job, percent: int) -> dict[str, object]:
    return {"jobId": job.job_id, "status": job.status, "progressPercent": percent}


ALL_TASKS = "task://all"
STATISTICS = "db://stats"
TASK_PREFIX = "task://"
ONE_TASK = "task://{id}"

_COMPLETIONS = 100


def register_resources(services: Services) -> None:
    """Register the resources, and the completion of the ids of tasks (TASKS-36)."""
    server, most = services.server, services.settings.resource_max_tasks
    options: Any = {"mime_type": "application/json", "scopes": (READ_SCOPE,)}
    first = f"The first {most} tasks by id, as an array."

    @server.resource(ALL_TASKS, name="all-tasks", title="All tasks", description=first, **options)
    async def all_tasks() -> list[dict[str, Any]]:
        from .queries import TaskFilter, TaskQuery

        page = await services.store.list_tasks(TaskQuery(TaskFilter(), limit=most, count=False))
        return [task.to_wire() for task in page.tasks]

    @server.resource(STATISTICS, name="statistics", title="Statistics", **options)
    async def statistics() -> dict[str, Any]:
        """The number of tasks by status, their due dates, and the unfinished jobs."""  # noqa: D401
        return summary_to_wire(await services.store.summarize())

    @server.resource(ONE_TASK, name="task", title="One task", **options)
    async def task(id: str) -> dict[str, Any]:
        """A task by its id."""  # noqa: D401
        number = _read_id(id)
        found = await services.store.get_task(number) if number <= MAX_ID else None
        if found is None:
            raise ToolError(ErrorCode.NOT_FOUND, "There is no such task.")
        return found.to_wire()

    @server.completion(ONE_TASK, "id")
    async def complete(begun: str) -> Completion:
        return await _complete_id(services, begun)


def _read_id(text: str) -> int:
    """Return the id in a URI; longer numbers than any id are one that no task has.

    Raises:
        ToolError: INVALID_ARGUMENT, which a client sees as -32602.
    """
    if not (text.isascii() and text.isdecimal()) or text != (text.lstrip("0") or "0"):
        details = {"reason": "invalid_id"}
        raise ToolError(ErrorCode.INVALID_ARGUMENT, "The id of a task is a number.", details)
    return int(text) if len(text) <= len(str(MAX_ID)) else MAX_ID + 1


async def _complete_id(services: Services, begun: str) -> Completion:
    """Return the first ids that begin so; without a beginning, the first ids of all."""
    from .queries import TaskFilter, TaskQuery

    where = TaskFilter()
    if begun:
        if not (begun.isascii() and begun.isdecimal()) or begun.startswith("0"):
            return Completion([], 0)
        number = int(begun[: len(str(MAX_ID))])
        within = [number, *range(number * 10, number * 10 + 10)]
        where = TaskFilter(ids=tuple(each for each in within if each <= MAX_ID))
    page = await services.store.list_tasks(TaskQuery(where, limit=_COMPLETIONS, count=False))
    return Completion([str(task.id) for task in page.tasks], has_more=page.has_more or None)
