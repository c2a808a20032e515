"""The commands besides serving: migrate the tables, import and export tasks."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from attrs import define, evolve, field

from ...base.database.errors import DatabaseError
from ...base.files import replacing
from ...errors import ToolError, UsageError
from .app import check_tables, make_store, open_store
from .changes import JobWaiters
from .jobs import NewJob
from .services import LOCAL, quota_message
from .settings import TaskServerSettings
from .store import QueueFullError, QuotaExceededError
from .transfer import PART_SIZE, ByteStream, TaskWriter, format_of, part_key, read_all, read_parts
from .validation import encode_payload, read_tasks
from .worker import JobWorkers

if TYPE_CHECKING:
    from ...server import Server
    from .jobs import Job
    from .store import TaskServerStore

_Result = TypeVar("_Result")

_PAUSE_S = 0.2
_WAIT_S = 3_600.0
_STOP_S = 5.0


def migrate(server: Server, *, check: bool) -> str:
    """Create or migrate the tables, or only compare them with what they should be.

    Returns:
        What was done, for people.

    Raises:
        UsageError: lists how they differ, or why the database cannot be used.
    """
    settings = evolve(server.settings(TaskServerSettings), migrate=True)

    async def run() -> str:
        if check:
            await check_tables(settings)
        else:
            async with _opened(settings):
                pass
        return "the tables are up to date"

    return _run(run)


def import_tasks(server: Server, path: str, chosen_format: str | None) -> str:
    """Store the tasks in a file, 5,000 a job; what is stored already is not stored again.

    Args:
        server: with its tools: their validator checks the tasks.
        path: of the file; ``-`` is standard input.
        chosen_format: json, jsonl or csv; by default what the name of the file says.

    Returns:
        What was done, for people.

    Raises:
        UsageError: the file or a task is not valid; says where, and what has been stored.
    """
    file_format = format_of(path, chosen_format)
    settings = server.settings(TaskServerSettings)
    size = min(PART_SIZE, settings.max_batch)
    if settings.read_only:
        raise UsageError("task_server.read_only is set: nothing can be imported")

    async def run() -> str:
        with _reading(path) as stream:
            async with _opened(settings) as store:
                importer = _Importer(server, settings, store)
                parts = read_parts(stream, file_format, size)
                async with importer.working():
                    for number in count():
                        part = await _beside(lambda: next(parts, None))
                        if part is None:
                            break
                        await importer.store(part, number)
                return importer.report()

    return _run(run)


def export_tasks(server: Server, path: str, chosen_format: str | None, stdout: ByteStream) -> str:
    """Write all tasks to a file, or to standard output; the file is there once it is whole.

    Args:
        server: has the configuration.
        path: of the file; ``-`` is standard output.
        stdout: standard output.
        chosen_format: json, jsonl or csv; by default what the name of the file says.

    Returns:
        What was done, for people.

    Raises:
        UsageError: the file cannot be written, or the database cannot be used.
    """
    file_format = format_of(path, chosen_format)
    settings = evolve(server.settings(TaskServerSettings), migrate=False)

    async def run() -> str:
        async with _opened(settings) as store:
            with _writing(path, stdout) as stream:
                writer = TaskWriter(stream, file_format)
                async for tasks in read_all(store):
                    writer.write(tasks)
                return f"{writer.close()} tasks are exported"

    return _run(run)


@define(eq=False)
class _Importer:
    """Stores the parts of a file, one after the other."""

    _server: Server
    _settings: TaskServerSettings
    _store: TaskServerStore
    _stored: int = field(default=0, init=False)
    _known: int = field(default=0, init=False)
    _waiters: JobWaiters = field(init=False)
    _workers: JobWorkers = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._waiters = JobWaiters(self._store)
        settings = self._settings
        self._workers = JobWorkers(
            self._store,
            self,
            1,
            settings.lease_ms,
            settings.max_attempts,
            settings.job_keep_hours,
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Carry out jobs meanwhile."""
        self._store.on_change(self._waiters.note)
        self._workers.start()
        try:
            yield
        finally:
            await self._workers.stop(_STOP_S)

    async def store(self, part: list[Any], number: int) -> None:
        """Store one part of the file, if it is not stored yet."""
        first = self._stored + self._known
        tool = self._server.get("mcp-tasks")
        assert tool is not None, "the server is not read-only"
        issues = tool.validate({"tasks": part})
        if issues:
            places = "".join(f"\n  {_place(each.path, first)} {each.message}" for each in issues)
            raise UsageError(f"some tasks are not valid; {self.report()}:{places}")
        payload, digest, text_bytes = encode_payload(read_tasks(part))
        job_id = str(uuid4())
        for failures in count():
            key = part_key(payload, number, failures)
            new = NewJob(job_id, LOCAL, key, digest, payload, len(part), text_bytes, job_id)
            duplicate, job = await self._submit(new)
            if not (duplicate and job.status == "FAILED"):
                break
        ended = await self._waiters.wait(job.job_id, _WAIT_S, lambda job: None)
        if ended is None or ended.status != "COMPLETED":
            problem = "the job is not done" if ended is None else ended.error_message
            raise UsageError(f"{problem}; {self.report()}")
        if duplicate:
            self._known += len(part)
        else:
            self._stored += len(part)

    async def _submit(self, new: NewJob) -> tuple[bool, Job]:
        while True:
            try:
                submission = await self._store.submit_job(new, self._settings.max_pending_jobs)
            except QueueFullError:
                await asyncio.sleep(_PAUSE_S)
            except QuotaExceededError as error:
                raise UsageError(f"{quota_message(error)} {self.report()}") from None
            else:
                self._workers.wake()
                return submission.duplicate, submission.job

    def report(self) -> str:
        """Return what was done so far, for people."""
        known = f", {self._known} had been stored before" if self._known else ""
        return f"{self._stored} tasks are stored{known}"

    # -- see `JobObserver`

    def job_started(self, job: Job) -> None:
        """Do nothing."""

    def job_ended(self, job: Job) -> None:
        """Do nothing: the importer waits for the job."""

    def database_failed(self, error: BaseException, correlation_id: str | None = None) -> None:
        """Tell the operator, as the worker tries again."""
        shown = f": {error}" if isinstance(error, DatabaseError) else ""
        sys.stderr.write(f"the database has failed ({type(error).__name__}{shown})\n")


async def _beside(function: Callable[[], _Result]) -> _Result:
    """Return the result of a function that may block, called in a thread that no exit waits for."""
    future: Future[_Result] = Future()
    future.set_running_or_notify_cancel()  # from now on nobody cancels it

    def run() -> None:
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)


def _place(pointer: str, first: int) -> str:
    """Return a pointer into one part as a place in the file: ``task 5018, title``."""
    words = pointer.split("/")[2:]
    if not words or not words[0].isdecimal():
        return pointer
    return ", ".join([f"task {first + int(words[0]) + 1}", *words[1:]])


def _run(work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    try:
        return asyncio.run(work())
    except (DatabaseError, ToolError) as error:
        raise UsageError(f"the database cannot be used: {error}") from None


@asynccontextmanager
async def _opened(settings: TaskServerSettings) -> AsyncIterator[TaskServerStore]:
    store = make_store(settings)
    await open_store(store)
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def _reading(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed")
        # Not closed: a thread may still be reading when the command is interrupted.
        yield open(os.dup(sys.stdin.fileno()), "rb")  # noqa: PTH123, SIM115
        return
    try:
        stream = Path(path).open("rb")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    with stream:
        yield stream


@contextmanager
def _writing(path: str, stdout: ByteStream) -> Iterator[ByteStream]:
    """Yield a stream whose bytes become the file at its end, or nothing does."""
    if path == "-":
        yield stdout
        return
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            # A device or a pipe: it cannot be replaced by a file, and as root it could.
            with target.open("wb") as device:
                yield device
            return
        with replacing(target.resolve()) as stream:
            yield stream
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
