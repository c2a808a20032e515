"""The store of tasks and jobs in PostgreSQL: each operation one transaction."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

import orjson
import psycopg
from attrs import define, evolve, field

from .....base.database.errors import DatabaseError, DatabaseUnavailableError
from .....base.database.migrations import check_postgres, migrate_postgres, read_migrations
from .....base.database.postgres import (
    Connection,
    Listener,
    PostgresConnections,
    Query,
    Raced,
    Row,
    Transaction,
    read_url,
)
from .....errors import UsageError
from ...jobs import (
    JOB_STATUSES,
    Job,
    JobClaim,
    JobStatus,
    NewJob,
    Submission,
    lost_message,
)
from ...queries import EXACT_TOTAL, Summary, TaskPage, TaskQuery, casefold_text
from ...store import (
    Change,
    Deletion,
    JobMaintenance,
    KeyConflictError,
    QueueFullError,
    TaskQuota,
    TaskUpdate,
    TaskUsage,
    check_versions,
    ranges_of,
)
from ...tasks import STATUSES, NewTask, Task, text_bytes
from . import lists, statements
from .copying import COPY, encode_rows, read_date
from .lists import ALL_PROJECTS, CountChanges

MIGRATIONS: Final = read_migrations("foundation_rt.apps.task_server.stores", "migrations/postgres")
_APPLICATION: Final = "the task server"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_GREATEST_ID = 2**63 - 1
_STATEMENT_MS = 20_000
"""The longest statement. A search for a rare word reads every task, 400 ms for 1,000,000."""
_OPERATION_S = 8.0
"""The longest transaction, if leases are not longer."""
_LISTEN_S = 10.0
_REMOVED_AT_ONCE = 1_000

# Statements are written for an index each, and for its order. A plan that was made while a table
# was empty would scan it, and would be kept until the table is next analyzed; and without
# statistics two indexes and a sort seem better than one index that has the order.
_SETTINGS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "timezone": "UTC",
    "datestyle": "ISO",
}


def _read_url(url: str) -> dict[str, Any]:
    return read_url(url, "foundation-rt task-server")


@define(eq=False, repr=False)
class PostgresTaskStore:
    """Keeps tasks and jobs in the tables of one schema, for any number of processes.

    Args:
        url: ``postgresql://user:password@host:port/database``, or another form that libpq takes.
        schema: lower-case letters, digits and ``_``; it is made, and its tables with it.
        connections: the most that are used, beside one that listens.
        lease_ms: the lease of jobs. A process that stops in a transaction holds up others for two
            at most.
        connect_s: how long an operation waits for a connection, as while the server restarts.
        migrate: make the tables, or bring them to the newest version.
        quota: the most that a principal may store.

    Attributes:
        few: the most tasks that are gathered and sorted for a page of a list; more are walked.

    Raises:
        UsageError: the message says what to change.
    """

    _parameters: dict[str, Any] = field(alias="url", converter=_read_url)
    _schema: str = field(default="task_server", kw_only=True)
    _size: int = field(default=8, alias="connections", kw_only=True)
    _lease_ms: int = field(default=30_000, kw_only=True)
    _connect_s: float = field(default=5.0, kw_only=True)
    _migrate: bool = field(default=True, kw_only=True)
    quota: TaskQuota = field(factory=TaskQuota, kw_only=True)
    few: int = field(default=EXACT_TOTAL, init=False)
    _callbacks: list[Callable[[Change], object]] = field(factory=list, init=False)
    _connections: PostgresConnections = field(init=False)
    _listening: asyncio.Task[None] | None = field(default=None, init=False)
    _listens: asyncio.Event = field(init=False)
    _is_open: bool = field(default=False, init=False)
    # By connection, the lowest position of an unfinished job that was read through it: none is ever
    # below (TASKS-86), unless a copy of the database takes over that lacks the last transactions,
    # or a process that knows only V3 of the tables has submitted it: maintenance forgets floors.
    _floors: WeakKeyDictionary[Connection, int] = field(factory=WeakKeyDictionary, init=False)

    @_schema.validator
    def _check_schema(self, _: object, schema: str) -> None:
        if not _SCHEMA.fullmatch(schema):
            raise UsageError(
                f"{schema!r} cannot be the schema of the task server: use 1 to 63 lower-case"
                " letters, digits and _, not beginning with a digit"
            )

    @property
    def _lease_s(self) -> float:
        return max(1.0, self._lease_ms / 1000)

    async def open(self) -> None:
        """See `TaskServerStore`."""
        self._connections = PostgresConnections(
            self._parameters,
            self._schema,
            self._size,
            statement_ms=_STATEMENT_MS,
            # Longer than a stopped process keeps its locks, so that others outlast it.
            operation_s=max(_OPERATION_S, 2 * self._lease_s),
            connect_s=self._connect_s,
            settings={
                **_SETTINGS,
                "idle_in_transaction_session_timeout": str(int(self._lease_s * 1000)),
            },
        )
        self._is_open = True
        try:
            await self._prepare_tables()
            await self._listen()
        except BaseException:
            await self.close()
            raise

    async def _prepare_tables(self) -> None:
        if self._migrate:
            await migrate_postgres(self._connections, MIGRATIONS, application=_APPLICATION)
            return
        report = await check_postgres(self._connections, MIGRATIONS, application=_APPLICATION)
        if report.pending or report.differences:
            missing = [f"{name} was not applied" for name in report.pending]
            raise UsageError(
                f"the schema {self._schema} is not as this version of {_APPLICATION} needs it:"
                f" {'; '.join((*missing, *report.differences))}; run the migrations, or let the"
                " server do it"
            )

    async def close(self) -> None:
        """See `TaskServerStore`; a store that is not open stays so."""
        if not self._is_open:
            return
        self._is_open = False
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
        await self._connections.close()

    async def ping(self) -> None:
        """See `TaskServerStore`."""
        await self._connections.read(("SELECT 1", ()))

    async def _listen(self) -> None:
        """Listen to other processes; what they change from now on is told."""
        self._listens = asyncio.Event()
        listener = Listener(self._connections, f'"{self._schema}"', self._hear)
        self._listening = asyncio.create_task(listener.run())
        try:
            async with asyncio.timeout(_LISTEN_S):
                await self._listens.wait()
        except TimeoutError:
            raise DatabaseUnavailableError("PostgreSQL does not let LISTEN") from None

    def _hear(self, payload: str | None) -> None:
        """Take the notification of another process; None if some may be lost."""
        if self._listens.is_set():
            self._tell(statements.decode_change(payload))
        self._listens.set()  # by the first one, which says that from now on none is

    def on_change(self, callback: Callable[[Change], object]) -> None:
        """See `TaskServerStore`."""
        self._callbacks.append(callback)

    # -- jobs ----------------------------------------------------------------------------------

    async def submit_job(self, job: NewJob, max_pending: int) -> Submission:
        """See `TaskServerStore`.

        The payload is written before the queue is locked and counted. So submitters wait for each
        other's commits only, and one that finds the queue full has written nothing.
        """
        change = Change(jobs=(job.job_id,))

        async def work(transaction: Transaction) -> Submission:
            connection = transaction.connection
            earlier, [(unfinished, lowest)], stored = await transaction.ask(
                statements.find_submitted(job),
                statements.count_unfinished(self._floors.get(connection, 0)),
                statements.get_usage([job.principal]),
            )
            self._learn(connection, lowest)
            if earlier:
                await transaction.commit()
                return _earlier(job, *earlier[0])
            if unfinished >= max_pending:
                raise QueueFullError
            self._check_quota(stored, {job.principal: TaskUsage(job.total_tasks, job.text_bytes)})
            try:
                inserted, _, [(lowest, _)], *_ = await transaction.commit(
                    statements.insert_job(job),
                    statements.lock_queue(self._schema),
                    statements.place_job(job.job_id, max_pending, self._floors.get(connection, 0)),
                    statements.reserve(job.job_id, self.quota),
                    then=[self._notify(change)],
                )
            except psycopg.errors.DivisionByZero:
                raise QueueFullError from None
            except psycopg.errors.NumericValueOutOfRange:
                raise Raced from None  # another process has filled the quota meanwhile
            self._learn(connection, lowest)
            if not inserted:  # meanwhile another process has submitted the request key
                raise Raced
            self._tell(change)
            return Submission(statements.job_of(inserted[0]), duplicate=False)

        return await self._connections.transact(work)

    async def get_job(self, job_id: str) -> Job | None:
        """See `TaskServerStore`."""
        if not _is_uuid(job_id):
            return None
        [rows] = await self._connections.read(statements.get_job(job_id))
        return _job(rows)

    async def claim_job(self, owner: str, lease_ms: int, max_attempts: int) -> JobClaim | None:
        """See `TaskServerStore`."""

        async def work(transaction: Transaction) -> list[Row]:
            floor = self._floors.get(transaction.connection, 0)
            [(lowest,)], rows = await transaction.commit(
                statements.lowest_job(floor),
                statements.claim_job(owner, lease_ms, max_attempts, floor),
            )
            self._learn(transaction.connection, lowest)
            return rows

        rows = await self._connections.transact(work)
        if not rows:
            return None
        payload, *job = rows[0]
        claim = JobClaim(statements.job_of(job), owner, payload)
        await self._announce(Change(jobs=(claim.job.job_id,)))
        return claim

    def _learn(self, connection: Connection, lowest: int | None) -> None:
        """Note the lowest position of an unfinished job; None if there was none."""
        if lowest is not None:
            self._floors[connection] = lowest

    async def renew_job(self, claim: JobClaim, lease_ms: int) -> bool:
        """See `TaskServerStore`."""
        [renewed] = await self._write(statements.renew_job(claim, lease_ms))
        return bool(renewed)

    async def release_job(self, claim: JobClaim) -> bool:
        """See `TaskServerStore`."""
        return bool(await self._write_job(statements.release_job(claim), claim))

    async def complete_job(self, claim: JobClaim, tasks: Sequence[NewTask]) -> Job | None:
        """See `TaskServerStore`."""
        job_id = claim.job.job_id
        # The transaction finds it out as well, but then ids have been given out.
        [held] = await self._connections.read(statements.is_held(claim))
        if not held:
            return None
        data = encode_rows(tasks, job_id, claim.job.principal)
        counts = CountChanges()
        counts.add((task.project, task.status, task.due_date) for task in tasks)

        async def work(transaction: Transaction) -> Job | None:
            async with transaction.copy(COPY) as copy:
                await copy.write(data)
            try:
                [(_, *job)], [stored], *_ = await transaction.commit(
                    statements.complete_job(claim, len(tasks)),
                    statements.range_of_job(job_id),
                    *counts.queries(),
                    then=[statements.notify_completed(self._schema, job_id)],
                )
            except psycopg.errors.DivisionByZero:  # the claim is lost
                await transaction.abandon()
                return None
            self._tell(Change((stored,), (job_id,), lists=True))
            return statements.job_of(job)

        return await self._connections.transact(work)

    async def fail_job(self, claim: JobClaim, error_message: str) -> Job | None:
        """See `TaskServerStore`."""
        return _job(await self._write_job(statements.fail_job(claim, error_message), claim))

    async def _write_job(self, query: Query, claim: JobClaim) -> list[Row]:
        """Execute one statement about a claimed job, and tell of the job if it has changed."""
        [rows] = await self._write(query)
        if rows:
            await self._announce(Change(jobs=(claim.job.job_id,)))
        return rows

    async def maintain_jobs(self, max_attempts: int, keep_hours: int) -> JobMaintenance:
        """See `TaskServerStore`.

        Beside the jobs it tidies up counts of 0, and transactions of stopped processes: it ends
        those that are older than a lease, so that with one call in each lease they hold up others
        for two at most. Each part is a transaction.
        """
        self._floors.clear()
        await self._connections.end_stalled_transactions(self._lease_s)
        removed, batch = 0, _REMOVED_AT_ONCE
        while batch == _REMOVED_AT_ONCE:
            [rows] = await self._write(statements.delete_ended_jobs(keep_hours, batch))
            batch = len(rows)
            removed += batch
        # After the removal, which must not take a job that fails only now.
        failed = await self._connections.transact(
            lambda transaction: _fail_lost_jobs(transaction, max_attempts)
        )
        if failed:
            await self._announce(Change(jobs=tuple(job.job_id for job in failed)))
        await self._write(statements.DELETE_ZERO_COUNTS)
        return JobMaintenance(failed, removed)

    async def count_jobs(self) -> Mapping[JobStatus, int]:
        """See `TaskServerStore`."""
        [rows] = await self._connections.read(statements.COUNT_JOBS)
        counts = dict.fromkeys(JOB_STATUSES, 0)
        counts.update((status, number) for status, number in rows)
        return counts

    # -- tasks ---------------------------------------------------------------------------------

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """See `TaskServerStore`; the module `lists` says how a list is read."""
        where = query.where
        if where.job_id is not None and not _is_uuid(where.job_id):
            where = evolve(where, job_id=None, ids=())
        if where.ids is not None:
            where = evolve(where, ids=tuple(filter(_is_id, where.ids)))
        query = evolve(query, where=where)
        found, has_index = 0, lists.has_index(query)
        counted = None
        if where.is_counted and (query.offset or not has_index):
            [[(counted,)]] = await self._connections.read(lists.count(where))
            if query.offset and query.offset >= counted:  # behind the end: nothing is walked
                return TaskPage([], False, counted if query.count else None, False)
        if not has_index and (counted is None or counted <= self.few):
            [rows] = await self._connections.read(lists.gather(query))
            found = rows[0][0]
            if found <= self.few:
                return _page(query, rows, found)
        [rows] = await self._connections.read(lists.walk(query))
        total = rows[0][0]
        return _page(query, rows, found if total is None else total, is_exact=total is not None)

    async def get_task(self, task_id: int) -> Task | None:
        """See `TaskServerStore`."""
        if not _is_id(task_id):
            return None
        [rows] = await self._connections.read(statements.get_task(task_id))
        return Task(*rows[0]) if rows else None

    async def summarize(self, project: str | None = None) -> Summary:
        """See `TaskServerStore`."""
        [rows] = await self._connections.read(
            statements.summarize(ALL_PROJECTS if project is None else project)
        )
        now, pending, running = rows[0][:3]
        counted = [row[3:] for row in rows if row[3] is not None]
        by_status = dict.fromkeys(STATUSES, 0)
        by_status.update((status, total) for status, total, *_ in counted)
        return Summary(
            count_by_status=by_status,
            earliest_due_date=min((first for _, _, first, _, _ in counted if first), default=None),
            latest_due_date=max((last for _, _, _, last, _ in counted if last), default=None),
            overdue=sum(overdue for *_, overdue in counted),
            jobs_pending=pending,
            jobs_running=running,
            generated_at=now,
        )

    async def claim_tasks(
        self, count: int, project: str | None, worker: str, lease_seconds: int
    ) -> list[Task]:
        """See `TaskServerStore`."""

        async def work(transaction: Transaction) -> list[Task]:
            [rows] = await transaction.ask(
                statements.claim_tasks(count, project, worker, lease_seconds)
            )
            counts = CountChanges()
            tasks = []
            for before, *values in rows:
                task = Task(*values)
                counts.add([(task.project, before, task.due_date)], by=-1)
                counts.add([(task.project, task.status, task.due_date)])
                tasks.append(task)
            await self._commit(transaction, [], counts, Change(ranges_of(t.id for t in tasks)))
            return tasks

        return await self._connections.transact(work)

    async def update_tasks(self, updates: Sequence[TaskUpdate]) -> list[tuple[int, int]]:
        """See `TaskServerStore`.

        It locks the tasks by ascending id, so that two updates do not wait for each other.
        """

        async def work(transaction: Transaction) -> list[tuple[int, int]]:
            ids = [update.id for update in updates if _is_id(update.id)]
            [rows] = await transaction.ask(statements.lock_tasks(ids))
            current = {row[0]: row[1:] for row in rows}
            check_versions(updates, {task_id: version for task_id, version, *_ in rows})
            counts = CountChanges(self.quota)
            changes = [_change_of(update, current[update.id], counts) for update in updates]
            if any(change.bytes > 0 for change in counts.usage.values()):
                [stored] = await transaction.ask(statements.get_usage([*counts.usage]))
                self._check_quota(stored, counts.usage)
            statement = statements.update_tasks(orjson.dumps(changes).decode())
            try:
                await self._commit(transaction, [statement], counts, Change(ranges_of(ids)))
            except psycopg.errors.NumericValueOutOfRange:
                raise Raced from None  # another process has filled the quota meanwhile
            return [(update.id, current[update.id][0] + 1) for update in updates]

        return await self._connections.transact(work)

    async def delete_tasks(
        self, ids: Sequence[int] | None = None, job_id: str | None = None
    ) -> Deletion:
        """See `TaskServerStore`."""
        if ids is not None:
            query = statements.delete_tasks([*filter(_is_id, ids)])
        elif job_id is not None and _is_uuid(job_id):
            query = statements.delete_tasks_of(job_id)
        else:
            return Deletion(0, [])

        async def work(transaction: Transaction) -> Deletion:
            [rows] = await transaction.ask(query)
            deleted = {task_id for task_id, *_ in rows}
            counts = CountChanges()
            for _, creator, size, *counted in rows:
                counts.store(creator, -1, -size)
                counts.add([tuple(counted)], by=-1)
            change = Change(ranges_of(deleted), lists=bool(deleted))
            await self._commit(transaction, [], counts, change)
            return Deletion(len(deleted), sorted(set(ids or ()) - deleted))

        return await self._connections.transact(work)

    # -- transactions --------------------------------------------------------------------------

    def _check_quota(self, stored: Sequence[Row], changes: Mapping[str, TaskUsage]) -> None:
        """Raise `QuotaExceededError` if what principals store has grown too much."""
        before = {principal: TaskUsage(tasks, size) for principal, tasks, size in stored}
        for principal, change in changes.items():
            self.quota.check(before.get(principal, TaskUsage()), change)

    async def _write(self, query: Query) -> list[list[Row]]:
        """Execute one statement, which is a transaction by itself."""
        return await self._connections.transact(lambda transaction: transaction.commit(query))

    async def _commit(
        self,
        transaction: Transaction,
        queries: Sequence[Query],
        counts: CountChanges,
        change: Change,
    ) -> None:
        """Commit with what changes the counts, then tell every process of the change."""
        then = [self._notify(change)] if change != Change() else []
        await transaction.commit(*queries, *counts.queries(), then=then)
        self._tell(change)

    async def _announce(self, change: Change) -> None:
        """Tell every process of a change that is committed."""
        self._tell(change)
        with suppress(DatabaseError):  # a listener that has lost its connection assumes everything
            await self._connections.read(self._notify(change))

    def _notify(self, change: Change) -> Query:
        return statements.notify(self._schema, change)

    def _tell(self, change: Change) -> None:
        if change == Change():
            return
        for callback in self._callbacks:
            asyncio.get_running_loop().call_soon(callback, change)


async def _fail_lost_jobs(transaction: Transaction, max_attempts: int) -> list[Job]:
    [lost] = await transaction.ask(statements.lock_lost_jobs(max_attempts))
    counts = CountChanges()
    for *_, principal, tasks, size in lost:
        counts.store(principal, -tasks, -size)
    failed = await transaction.commit(
        *(
            statements.fail_lost_job(job_id, lost_message(attempts, has_payload))
            for job_id, attempts, has_payload, *_ in lost
        ),
        *counts.queries(),
    )
    return [statements.job_of(job) for [job] in failed[: len(lost)]]


def _earlier(job: NewJob, digest: bytes, *earlier: object) -> Submission:
    """Return the job that has the request key already.

    Raises:
        KeyConflictError: it has other tasks.
    """
    if digest != job.digest:
        raise KeyConflictError
    return Submission(statements.job_of(earlier), duplicate=True)


def _job(rows: Sequence[Row]) -> Job | None:
    return statements.job_of(rows[0]) if rows else None


def _page(query: TaskQuery, rows: Sequence[Row], total: int, *, is_exact: bool = False) -> TaskPage:
    """Return a page from the rows of `lists.walk` or `lists.gather`.

    A total that is not exact is so up to `EXACT_TOTAL`.
    """
    tasks = [Task(*row[1:]) for row in rows if row[1] is not None]
    is_lower_bound = not is_exact and total > EXACT_TOTAL
    return TaskPage(
        tasks=tasks[: query.limit],
        has_more=len(tasks) > query.limit,
        total=None if not query.count else EXACT_TOTAL if is_lower_bound else total,
        total_is_lower_bound=query.count and is_lower_bound,
    )


def _change_of(update: TaskUpdate, current: Sequence[Any], counts: CountChanges) -> dict[str, Any]:
    """Return an update as `statements.update_tasks` takes it, and count what it changes."""
    names = ("project", "status", "due_date", "title", "description")
    _, *values, creator = current
    before = dict(zip(names, values, strict=True))
    if update.members.get("due_date") is not None:
        read_date(update.members["due_date"])
    after = {**before, **{name: update.members[name] for name in names if name in update.members}}
    counts.add([(before["project"], before["status"], before["due_date"])], by=-1)
    counts.add([(after["project"], after["status"], after["due_date"])])
    for sign, each in ((-1, before), (1, after)):
        size = text_bytes(each["title"], each["description"], each["project"])
        counts.store(creator, 0, sign * size)
    return {
        **update.members,
        "id": update.id,
        "members": list(update.members),
        "lease_seconds": update.lease_seconds,
        "search_text": casefold_text(after["title"], after["description"]),
    }


def _is_id(number: int) -> bool:
    """Return whether a number can be the id of a task: larger ones are no bigint."""
    return 0 < number <= _GREATEST_ID


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
