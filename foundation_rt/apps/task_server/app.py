"""The task server, put together: a `Server` with its tools, resources, prompts and lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ...base.config.sections import POSTGRES_SCHEMES
from ...base.database.errors import DatabaseError
from ...base.files import make_private_folder, user_folder
from ...errors import UsageError
from ...server import Server
from .changes import register_resources
from .observation import Observation
from .prompts import register_prompts
from .services import Services
from .settings import DEFAULT_DATABASE, SECTION, TaskServerSettings
from .tools import register_tools

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from .jobs import JobStatus
    from .store import Change, TaskServerStore

NAME = "foundation-rt-tasks"
TITLE = "Task server"
INSTRUCTIONS = """\
This server keeps tasks that agents and people share. Create many with one call of mcp-tasks (give \
a requestKey, so that the call can be repeated safely), find them with mcp-tasks-list, and work \
them off with mcp-tasks-claim and mcp-tasks-update: no two workers get the same task. mcp-help \
explains every tool, with an example."""

ASYNC_BATCH = {"asyncBatch": {"name": "asyncBatch", "version": "1.0.0"}}
"""The experimental capability: `mcp-tasks` returns the id of a job, not the stored tasks."""

_MIB = 1024 * 1024

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "tools": {"max_payload_bytes": 16 * _MIB},
    "transport": {"max_line_bytes": 20 * _MIB},
    "http": {"max_body_bytes": 20 * _MIB},
    "resources": {"max_concurrent_executions": 200},
    "audit": {"enabled": True},
}
"""Settings of the runtime that differ from its own defaults (TASKS-06)."""

HTTP_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "telemetry": {"metrics": True},
    "rate_limit": {
        "per_tool": 100,
        "tools": ("mcp-tasks-from-file=10", "mcp-job-status=600"),
    },
}
"""Settings of the runtime where clients come over HTTP (TASKS-06)."""

_STOP_SHARE = 0.25
"""The share of the time for the shutdown in which jobs may still be completed."""


def create_task_server(
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    over_http: bool = False,
) -> Server:
    """Return a task server, not started yet.

    Args:
        overrides: settings by section that win over every other source, as of a command line.
        config: a configuration file, .toml or .json.
        over_http: clients come over HTTP: calls are counted and limited.

    Raises:
        ConfigError: lists every problem of the configuration.
        UsageError: the configuration does not fit a task server; says why.
    """
    server = make_server(overrides, config=config, over_http=over_http)
    loaded = server.load_config()
    settings = loaded.section(TaskServerSettings)
    if not loaded.tools.check_formats:
        raise UsageError(
            "tools.check_formats is off: the task server needs it, as it stores dates that are real"
        )
    services = Services(server, settings, Observation(server))
    if loaded.telemetry.metrics:
        from .observation import TaskServerMetrics

        async def count_jobs() -> Mapping[JobStatus, int]:
            return await services.store.count_jobs()

        services.observation.metrics = TaskServerMetrics(server, count_jobs)
    services.translate_database_errors()
    register_tools(services)
    register_resources(services)
    register_prompts(services)
    _add_lifespan(services, partial(make_store, settings))
    return server


def make_server(
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    over_http: bool = False,
) -> Server:
    """Return the server without its tools: for its configuration. See `create_task_server`."""
    server = Server(
        NAME,
        title=TITLE,
        instructions=INSTRUCTIONS,
        config={**DEFAULTS, **(HTTP_DEFAULTS if over_http else {})},
        sections={SECTION: TaskServerSettings},
        experimental=ASYNC_BATCH,
    )
    if config is not None:
        server.configure(config)
    for section, settings in (overrides or {}).items():
        server.override(section, **settings)
    return server


def make_store(settings: TaskServerSettings) -> TaskServerStore:
    """Return the store of the configured database, not opened yet.

    Raises:
        UsageError: the extra `postgres` is missing, or the address is wrong.
    """
    from .store import TaskQuota

    database = settings.database
    quota = TaskQuota(settings.max_tasks_per_key, settings.max_bytes_per_key)
    if not is_sqlite(settings):
        from .stores.postgres import PostgresTaskStore

        return PostgresTaskStore(
            database, lease_ms=settings.lease_ms, migrate=settings.migrate, quota=quota
        )
    from .stores.sqlite import SqliteTaskStore

    path = default_database() if database == DEFAULT_DATABASE else _file_of(database)
    return SqliteTaskStore(path, migrate=settings.migrate, quota=quota)


def _file_of(database: str) -> str:
    """Return the path in the address of a SQLite file.

    Raises:
        UsageError: it names no file.
    """
    path = database.removeprefix("sqlite:")
    if path == ":memory:":
        raise UsageError("tasks are kept in a file: use sqlite:PATH, not sqlite::memory:")
    return path


async def open_store(store: TaskServerStore) -> None:
    """Open a store.

    Raises:
        UsageError: its database cannot be used, or is another's; says why.
    """
    try:
        await store.open()
    except DatabaseError as error:
        raise UsageError(f"the database cannot be used: {error}") from None


async def check_tables(settings: TaskServerSettings) -> None:
    """Compare the tables of the configured database with what they should be; write nothing.

    Raises:
        UsageError: lists how they differ, or why the database cannot be used.
    """
    if is_sqlite(settings):
        from .stores.sqlite import tables

        database = settings.database
        is_default = database == DEFAULT_DATABASE
        tables.verify(str(_default_path()) if is_default else _file_of(database))
        return
    store = make_store(evolve(settings, migrate=False))
    await open_store(store)
    await store.close()


def _default_path() -> Path:
    return user_folder("data") / "foundation-rt" / "tasks.db"


def default_database() -> str:
    """Return the path of the user's own database; its folder is made if it is not there."""
    path = _default_path()
    folder = path.parent
    try:
        make_private_folder(folder)
    except OSError as error:
        raise UsageError(
            f"the folder {folder} cannot be made ({error.strerror}): set XDG_DATA_HOME, or name a"
            " database with --database sqlite:PATH"
        ) from None
    return str(path)


def _add_lifespan(services: Services, make_store: Callable[[], TaskServerStore]) -> None:
    """Add what the server does as long as it serves.

    A client need not wait for the database to be told what the server is. Its next request waits;
    and if the database cannot be opened, the process ends instead.
    """

    @services.server.lifespan(after_initialize=True)
    async def task_server(server: Server) -> AsyncIterator[None]:
        from .changes import JobLogs, JobWaiters, ResourceNotifier

        notifier = ResourceNotifier(server)

        def note(change: Change) -> None:
            services.waiters.note(change)
            services.logs.note(change)
            notifier.note(change)
            if change.jobs:
                services.wake_workers()

        services.store = store = make_store()
        services.waiters, services.logs = JobWaiters(store), JobLogs(store)
        await open_store(store)
        try:
            store.on_change(note)
            _start_workers(services)
            services.observation.started()
            yield
            services.observation.stopping()
        finally:
            if services.workers is not None:
                budget_ms = server.runtime.config.server.shutdown_timeout_ms
                await services.workers.stop(budget_ms * _STOP_SHARE / 1000)
            notifier.close()
            await services.logs.close()
            await store.close()

    @services.server.readiness_check("database")
    async def ping() -> None:
        await services.store.ping()


def _start_workers(services: Services) -> None:
    settings = services.settings
    if settings.read_only:
        return
    from .worker import JobWorkers

    services.workers = JobWorkers(
        services.store,
        services.observation,
        1 if is_sqlite(settings) else settings.job_workers,
        settings.lease_ms,
        settings.max_attempts,
        settings.job_keep_hours,
    )
    services.workers.start()


def is_sqlite(settings: TaskServerSettings) -> bool:
    """Return whether the database is a SQLite file, which has one writer at a time."""
    return settings.database.partition(":")[0] not in POSTGRES_SCHEMES
