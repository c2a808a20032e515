"""The SQL of jobs, of changes to tasks, and of notifications.

The transaction of a job locks in this order: tasks by ascending id, the job, the counts and what
principals store, each in the order of its key. The others lock some of these in the same order, or
pass over what is locked, so that no two transactions can wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from .....base.database.postgres import Query
from ...jobs import Job, JobClaim, NewJob
from ...store import Change, TaskQuota

_RFC3339 = """'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'"""

TASK_COLUMNS = (
    "t.id, title, description, status, t.due_date::text, project, priority, version, claimed_by,"
    f" to_char(claim_expires_at, {_RFC3339}), job_id::text, created_by,"
    f" to_char(created_at, {_RFC3339}), to_char(updated_at, {_RFC3339})"
)
"""The values of a `Task`, in its order, of a table `t`. Connections have UTC and ISO dates."""

JOB_COLUMNS = (
    "job_id::text, principal, status, total_tasks, processed_tasks, error_message, duration_ms,"
    f" attempts, to_char(created_at, {_RFC3339}), to_char(updated_at, {_RFC3339}),"
    f" to_char(started_at, {_RFC3339}), to_char(completed_at, {_RFC3339}), correlation_id"
)
"""The values of a `Job`, in its order."""

# The job is RUNNING: what is PENDING has no owner, and what has ended has a time. The status itself
# is what an index is of, which is read from end to end where it counts as empty.
_HELD = "job_id = %b::uuid AND completed_at IS NULL AND attempts = %b AND lease_owner = %b"
_LEASE_END = "clock_timestamp() + %b::float8 * interval '1 ms'"

# Of the ended claims and the tasks to do, as the index of what can be claimed has it.
_CLAIMABLE = """(status = 'TODO' OR claim_expires_at IS NOT NULL)
    AND (CASE WHEN status = 'TODO' THEN '-infinity'::timestamptz ELSE claim_expires_at END)
        <= statement_timestamp()"""


def job_of(row: Sequence[object]) -> Job:
    """Return the job of `JOB_COLUMNS`."""
    return Job(*row)  # type: ignore[arg-type]


# -- jobs ---------------------------------------------------------------------------------------


def find_submitted(job: NewJob) -> Query:
    """Return the job of a request key and its digest."""
    return (
        f"SELECT digest, {JOB_COLUMNS} FROM {{schema}}.batch_jobs"
        " WHERE principal = %b AND request_key = %b",
        (job.principal, job.request_key),
    )


def count_unfinished(floor: int) -> Query:
    """Return how many jobs are unfinished, and the lowest of their positions, or NULL.

    This and others read the queue from a position below which no unfinished job is.
    """
    return (
        "SELECT count(*), min(position) FROM {schema}.batch_jobs"
        " WHERE status IN ('PENDING', 'RUNNING') AND position >= %b",
        (floor,),
    )


def insert_job(job: NewJob) -> Query:
    """Insert a job unless its request key is there; returns it if it was inserted."""
    return (
        f"""INSERT INTO {{schema}}.batch_jobs (
            job_id, principal, request_key, digest, payload, total_tasks, text_bytes,
            correlation_id
        ) VALUES (%b::uuid, %b, %b, %b, %b, %b, %b, %b)
        ON CONFLICT (principal, request_key) WHERE request_key IS NOT NULL DO NOTHING
        RETURNING {JOB_COLUMNS}""",
        (
            job.job_id,
            job.principal,
            job.request_key,
            job.digest,
            job.payload,
            job.total_tasks,
            job.text_bytes,
            job.correlation_id,
        ),
    )


def lock_queue(schema: str) -> Query:
    """Let one transaction at a time count the unfinished jobs, until it has committed."""
    return (
        "SELECT pg_advisory_xact_lock(hashtextextended('foundation-rt task queue ' || %b, 0))",
        (schema,),
    )


def place_job(job_id: str, max_pending: int, floor: int) -> Query:
    """Place an inserted job at the end of the queue, which is locked; return the lowest position.

    Fails with a division by zero if this job is one too many.
    """
    return (
        """WITH placed AS (
            UPDATE {schema}.batch_jobs SET position = nextval('{schema}.batch_jobs_position')
            WHERE job_id = %b::uuid
        )
        SELECT min(position),
            1 / (count(*) <= %b OR NOT coalesce(bool_or(job_id = %b::uuid), false))::int
        FROM {schema}.batch_jobs WHERE status IN ('PENDING', 'RUNNING') AND position >= %b""",
        (job_id, max_pending, job_id, floor),
    )


def get_usage(principals: Sequence[str]) -> Query:
    """Return what these principals store: principal, tasks, bytes."""
    return (
        "SELECT principal, tasks, bytes FROM {schema}.usage WHERE principal = ANY(%b::text[])",
        (list(principals),),
    )


def reserve(job_id: str, quota: TaskQuota) -> Query:
    """Add an inserted job to what its principal stores; fail as `counts.add_usage` does."""
    return (
        """INSERT INTO {schema}.usage AS stored (principal, tasks, bytes)
        SELECT principal, total_tasks, text_bytes FROM {schema}.batch_jobs
        WHERE job_id = %b::uuid
        ON CONFLICT (principal) DO UPDATE
            SET tasks = stored.tasks + excluded.tasks, bytes = stored.bytes + excluded.bytes
        RETURNING CASE WHEN tasks <= %b AND bytes <= %b THEN 0 ELSE 2147483647 END + 1""",
        (job_id, quota.tasks, quota.bytes),
    )


def get_job(job_id: str) -> Query:
    """Return a job."""
    return (
        f"SELECT {JOB_COLUMNS} FROM {{schema}}.batch_jobs WHERE job_id = %b::uuid",
        (job_id,),
    )


def is_held(claim: JobClaim) -> Query:
    """Return a row if the claim is still the newest of a RUNNING job."""
    return (f"SELECT true FROM {{schema}}.batch_jobs WHERE {_HELD}", _claim_values(claim))


def lowest_job(floor: int) -> Query:
    """Return the lowest position of the unfinished jobs, or NULL."""
    return (
        "SELECT min(position) FROM {schema}.batch_jobs"
        " WHERE status IN ('PENDING', 'RUNNING') AND position >= %b",
        (floor,),
    )


def claim_job(owner: str, lease_ms: int, max_attempts: int, floor: int) -> Query:
    """Claim the first job in the queue that can be claimed; return it with its payload."""
    return (
        f"""UPDATE {{schema}}.batch_jobs SET status = 'RUNNING', attempts = attempts + 1,
            lease_owner = %b, lease_expires_at = {_LEASE_END}, updated_at = clock_timestamp(),
            started_at = coalesce(started_at, clock_timestamp())
        WHERE job_id = (
            SELECT job_id FROM {{schema}}.batch_jobs
            WHERE status IN ('PENDING', 'RUNNING') AND payload IS NOT NULL AND attempts < %b
                AND (status = 'PENDING' OR lease_expires_at <= clock_timestamp())
                AND position >= %b
            ORDER BY position LIMIT 1 FOR UPDATE SKIP LOCKED
        ) RETURNING payload, {JOB_COLUMNS}""",
        (owner, lease_ms, max_attempts, floor),
    )


def renew_job(claim: JobClaim, lease_ms: int) -> Query:
    """Extend a lease; returns a row if it is still held."""
    return (
        f"""UPDATE {{schema}}.batch_jobs SET lease_expires_at = {_LEASE_END}
        WHERE {_HELD} RETURNING true""",
        (lease_ms, *_claim_values(claim)),
    )


def release_job(claim: JobClaim) -> Query:
    """Make a job PENDING without this attempt; returns a row if the lease was held."""
    return (
        f"""UPDATE {{schema}}.batch_jobs SET status = 'PENDING', attempts = attempts - 1,
            lease_owner = NULL, lease_expires_at = NULL, updated_at = clock_timestamp(),
            started_at = CASE WHEN attempts > 1 THEN started_at END
        WHERE {_HELD} RETURNING true""",
        _claim_values(claim),
    )


_END = """payload = NULL, updated_at = clock_timestamp(), completed_at = clock_timestamp(),
    duration_ms = CASE WHEN started_at IS NOT NULL THEN
        greatest(0, extract(epoch FROM clock_timestamp() - started_at) * 1000)::bigint END"""


def complete_job(claim: JobClaim, processed: int) -> Query:
    """Make a job COMPLETED and return it; fail with a division by zero if the lease is lost."""
    return (
        f"""WITH done AS (
            UPDATE {{schema}}.batch_jobs SET status = 'COMPLETED', processed_tasks = %b, {_END}
            WHERE {_HELD} RETURNING *
        )
        SELECT 1 / held, {JOB_COLUMNS} FROM (SELECT count(*) AS held FROM done) AS counted
        LEFT JOIN done ON true""",
        (processed, *_claim_values(claim)),
    )


def fail_job(claim: JobClaim, error_message: str) -> Query:
    """Make a job FAILED, and take it off what its principal stores.

    Returns the job if the lease was held.
    """
    return (
        f"""WITH failed AS (
            UPDATE {{schema}}.batch_jobs SET status = 'FAILED', error_message = left(%b, 500),
                {_END} WHERE {_HELD} RETURNING *
        ), freed AS (
            UPDATE {{schema}}.usage AS u
            SET tasks = u.tasks - total_tasks, bytes = u.bytes - text_bytes
            FROM failed WHERE u.principal = failed.principal
        )
        SELECT {JOB_COLUMNS} FROM failed""",
        (error_message, *_claim_values(claim)),
    )


def lock_lost_jobs(max_attempts: int) -> Query:
    """Lock the jobs that cannot be carried out.

    Returns of each: id, attempts, whether it has a payload, principal, tasks, their bytes. What
    another transaction has locked is passed over.
    """
    return (
        """SELECT job_id::text, attempts, payload IS NOT NULL, principal, total_tasks, text_bytes
        FROM {schema}.batch_jobs
        WHERE status IN ('PENDING', 'RUNNING') AND (payload IS NULL OR (attempts >= %b
            AND (status = 'PENDING' OR lease_expires_at <= clock_timestamp())))
        ORDER BY position LIMIT 100 FOR UPDATE SKIP LOCKED""",
        (max_attempts,),
    )


def fail_lost_job(job_id: str, error_message: str) -> Query:
    """Make a locked job FAILED; returns it."""
    return (
        f"""UPDATE {{schema}}.batch_jobs SET status = 'FAILED', error_message = %b, {_END}
        WHERE job_id = %b::uuid RETURNING {JOB_COLUMNS}""",
        (error_message, job_id),
    )


def delete_ended_jobs(keep_hours: int, most: int) -> Query:
    """Delete up to so many jobs that ended long ago; returns a row for each."""
    return (
        """DELETE FROM {schema}.batch_jobs WHERE job_id IN (
            SELECT job_id FROM {schema}.batch_jobs
            WHERE status IN ('COMPLETED', 'FAILED')
                AND completed_at <= clock_timestamp() - %b::float8 * interval '1 hour'
            LIMIT %b FOR UPDATE SKIP LOCKED
        ) RETURNING true""",
        (keep_hours, most),
    )


COUNT_JOBS: Query = ("SELECT status, count(*) FROM {schema}.batch_jobs GROUP BY status", ())


def _claim_values(claim: JobClaim) -> tuple[object, ...]:
    return (claim.job.job_id, claim.job.attempts, claim.owner)


# -- tasks --------------------------------------------------------------------------------------


def range_of_job(job_id: str) -> Query:
    """Return the first and the last id of the tasks that a job has stored."""
    return ("SELECT min(id), max(id) FROM {schema}.tasks WHERE job_id = %b::uuid", (job_id,))


def get_task(task_id: int) -> Query:
    """Return a task."""
    return (f"SELECT {TASK_COLUMNS} FROM {{schema}}.tasks AS t WHERE id = %b::bigint", (task_id,))


def claim_tasks(count: int, project: str | None, worker: str, lease_seconds: int) -> Query:
    """Claim tasks; returns for each its status before, then the task.

    What another transaction has locked is passed over.
    """
    of_project = "" if project is None else "project = %b AND "
    values: tuple[object, ...] = () if project is None else (project,)
    return (
        f"""WITH chosen AS MATERIALIZED (
            SELECT id, status AS before FROM {{schema}}.tasks WHERE {of_project}{_CLAIMABLE}
            ORDER BY priority DESC, due_date, id LIMIT %b FOR UPDATE SKIP LOCKED
        ), claimed AS (
            UPDATE {{schema}}.tasks AS t SET status = 'IN_PROGRESS', version = version + 1,
                claimed_by = %b,
                claim_expires_at =
                    date_trunc('milliseconds', statement_timestamp()) + %b * interval '1 s',
                updated_at = date_trunc('milliseconds', statement_timestamp())
            FROM chosen WHERE t.id = chosen.id RETURNING chosen.before, t.*
        )
        SELECT before, {TASK_COLUMNS} FROM claimed AS t ORDER BY priority DESC, t.due_date, t.id""",
        (*values, count, worker, lease_seconds),
    )


def lock_tasks(ids: Sequence[int]) -> Query:
    """Lock tasks in the order of their ids; returns what an update needs to know of them."""
    return (
        """SELECT id, version, project, status, due_date::text, title, description, created_by
        FROM {schema}.tasks WHERE id = ANY(%b::bigint[]) ORDER BY id FOR UPDATE""",
        (list(ids),),
    )


def update_tasks(changes: str) -> Query:
    """Update tasks by a JSON array of objects, each with an id and what is to be set.

    `members` lists the columns to set, as NULL is a value of some.
    """
    return (
        """WITH clock AS MATERIALIZED (
            SELECT date_trunc('milliseconds', clock_timestamp()) AS time
        )
        UPDATE {schema}.tasks AS t SET version = t.version + 1, updated_at = clock.time,
            title = CASE WHEN members ? 'title' THEN c.title ELSE t.title END,
            description = CASE WHEN members ? 'description' THEN c.description
                ELSE t.description END,
            status = CASE WHEN members ? 'status' THEN c.status ELSE t.status END,
            due_date = CASE WHEN members ? 'due_date' THEN c.due_date ELSE t.due_date END,
            project = CASE WHEN members ? 'project' THEN c.project ELSE t.project END,
            priority = CASE WHEN members ? 'priority' THEN c.priority ELSE t.priority END,
            search_text = coalesce(c.search_text, t.search_text),
            claimed_by = CASE WHEN c.status IN ('TODO', 'DONE') THEN NULL ELSE t.claimed_by END,
            claim_expires_at = CASE WHEN c.status IN ('TODO', 'DONE') THEN NULL
                WHEN t.claimed_by IS NOT NULL AND c.lease_seconds IS NOT NULL
                THEN clock.time + c.lease_seconds * interval '1 s' ELSE t.claim_expires_at END
        FROM clock, jsonb_to_recordset(%b::jsonb) AS c (
            id bigint, members jsonb, title text, description text, status text, due_date date,
            project text, priority smallint, search_text text, lease_seconds float8
        )
        WHERE t.id = c.id""",
        (changes,),
    )


_DELETE = """WITH chosen AS MATERIALIZED (
    SELECT id FROM {schema}.tasks WHERE %s ORDER BY id FOR UPDATE
)
DELETE FROM {schema}.tasks AS t USING chosen WHERE t.id = chosen.id
RETURNING t.id, created_by,
    octet_length(title) + coalesce(octet_length(description), 0) + octet_length(project),
    project, status, due_date::text"""


def delete_tasks(ids: Sequence[int]) -> Query:
    """Delete tasks; returns of each its id, creator and bytes, and what is counted of it."""
    return (_DELETE % "id = ANY(%b::bigint[])", (list(ids),))


def delete_tasks_of(job_id: str) -> Query:
    """Delete the tasks that a job has stored, as `delete_tasks`."""
    return (_DELETE % "job_id = %b::uuid", (job_id,))


DELETE_ZERO_COUNTS: Query = (
    """WITH chosen AS MATERIALIZED (
        SELECT project, status, due_date FROM {schema}.task_counts WHERE count = 0
        LIMIT 1000 FOR UPDATE SKIP LOCKED
    )
    DELETE FROM {schema}.task_counts AS t USING chosen
    WHERE (t.project, t.status, t.due_date) = (chosen.project, chosen.status, chosen.due_date)""",
    (),
)


def summarize(project: str) -> Query:
    """Return rows of the time, the jobs, and the counts of one status; at least one row.

    The project '' is all of them. No task is read.
    """
    return (
        f"""SELECT jobs.*, counts.* FROM (
            SELECT to_char(clock_timestamp(), {_RFC3339}),
                count(*) FILTER (WHERE status = 'PENDING'),
                count(*) FILTER (WHERE status = 'RUNNING')
            FROM {{schema}}.batch_jobs WHERE status IN ('PENDING', 'RUNNING')
        ) AS jobs LEFT JOIN (
            SELECT status, sum(count)::bigint,
                (min(due_date) FILTER (WHERE count > 0 AND due_date < 'infinity'))::text,
                (max(due_date) FILTER (WHERE count > 0 AND due_date < 'infinity'))::text,
                coalesce(sum(count) FILTER (WHERE status <> 'DONE'
                    AND due_date < (now() AT TIME ZONE 'UTC')::date), 0)::bigint
            FROM {{schema}}.task_counts WHERE project = %b GROUP BY status
        ) AS counts ON true""",
        (project,),
    )


# -- what processes tell each other of their commits, by NOTIFY ----------------------------------

MOST_BYTES = 7_900
"""PostgreSQL refuses payloads of 8,000 bytes."""

EVERYTHING = Change(everything=True, lists=True)


def encode_change(change: Change) -> str:
    """Return the payload of a notification; a change that is too long becomes `EVERYTHING`."""
    members = {
        "tasks": change.tasks,
        "jobs": change.jobs,
        "lists": change.lists,
        "everything": change.everything,
    }
    payload = orjson.dumps({name: value for name, value in members.items() if value})
    return payload.decode() if len(payload) <= MOST_BYTES else encode_change(EVERYTHING)


def decode_change(payload: str | None) -> Change:
    """Return the change of a notification.

    None says that notifications may have been lost. What is not understood, as of another version,
    is `EVERYTHING` too.
    """
    try:
        members = orjson.loads(payload or "")
        return Change(
            tasks=tuple((int(first), int(last)) for first, last in members.get("tasks", ())),
            jobs=tuple(str(job_id) for job_id in members.get("jobs", ())),
            everything=bool(members.get("everything")),
            lists=bool(members.get("lists")),
        )
    except (ValueError, TypeError, AttributeError):
        return EVERYTHING


def notify(channel: str, change: Change) -> Query:
    """Return the query that tells other processes of a change, after its commit and by itself.

    Within the transaction it would keep all others that notify from committing until this one is on
    disk.
    """
    return ("SELECT pg_notify(%b, %b)", (channel, encode_change(change)))


def notify_completed(channel: str, job_id: str) -> Query:
    """Tell other processes that a job has stored its tasks, as `encode_change` would."""
    return (
        """SELECT pg_notify(%b, json_build_object('tasks', json_build_array(
            json_build_array(min(id), max(id))), 'jobs', json_build_array(%b::text), 'lists', true
        )::text) FROM {schema}.tasks WHERE job_id = %b::uuid""",
        (channel, job_id, job_id),
    )
