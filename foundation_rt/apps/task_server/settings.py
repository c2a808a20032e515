"""The section `task_server` of the configuration."""

from __future__ import annotations

from attrs import frozen

from ...base.config.sections import (
    POSTGRES_SCHEMES,
    AbsolutePath,
    Integer,
    Settings,
    StoreUrl,
    byte_count,
    flag,
    milliseconds,
    setting,
)

SECTION = "task_server"

DEFAULT_DATABASE = "default"
"""A SQLite file of the user; see `app.default_database`."""


@frozen(eq=False, repr=False)
class TaskServerSettings(Settings):
    """The task server: its database, its jobs and its limits."""

    database: str = setting(
        DEFAULT_DATABASE,
        StoreUrl((DEFAULT_DATABASE,), ("sqlite", *POSTGRES_SCHEMES)),
        "The database: `default` (a SQLite file of the user), `sqlite:PATH` or `postgresql://...`.",
    )
    migrate: bool = flag(True, "Create and migrate the tables at the start.")
    read_only: bool = flag(
        False, "Offer only the tools that change nothing, and carry out no jobs."
    )
    file_root: str | None = setting(
        None,
        AbsolutePath(optional=True),
        "Folder of the files that `mcp-tasks-from-file` may read.",
    )
    max_file_bytes: int = byte_count(64 * 1024 * 1024, "Largest file of tasks.")
    # With every member, 15,000 tasks are more than the validator checks at once.
    max_batch: int = setting(5_000, Integer(1, 10_000), "Most tasks of one job.")
    job_workers: int = setting(
        2, Integer(1, 64), "Jobs that a process carries out at once; on SQLite it is one."
    )
    max_pending_jobs: int = setting(
        100, Integer(1, 1_000_000), "Most unfinished jobs, of all processes."
    )
    max_tasks_per_key: int = setting(
        1_000_000,
        Integer(1, 2**63 - 1),
        "Most tasks that one key, or one user, stores; local users are one.",
    )
    max_bytes_per_key: int = byte_count(
        1024 * 1024 * 1024, "Most bytes of their titles, descriptions and projects, in UTF-8."
    )
    lease_ms: int = milliseconds(
        30_000, "How long a process may be silent before its job is taken over.", minimum=1_000
    )
    max_attempts: int = setting(3, Integer(1, 100), "Attempts of a job before it has failed.")
    job_keep_hours: int = setting(
        720, Integer(1, 87_600, "hours"), "How long a job is kept after its end."
    )
    resource_max_tasks: int = setting(
        1_000, Integer(1, 100_000), "Most tasks of the resource `task://all`."
    )
    max_answer_bytes: int = byte_count(
        65_536, "Size at which a list of tasks ends, as JSON in UTF-8.", minimum=4_096
    )
