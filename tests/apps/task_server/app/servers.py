"""Task servers for tests: in this process, on a file of its own, or in processes of their own."""

from __future__ import annotations

import signal
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from attrs import frozen

from foundation_rt import Server
from foundation_rt.apps.task_server.app import create_task_server
from foundation_rt.apps.task_server.stores.sqlite import SqliteTaskStore
from foundation_rt.client import Client, connect
from tests.apps.task_server.stores.places import new_folder
from tests.lab.servers.http_server import free_port
from tests.lab.servers.process import ServerProcess, command, environment

TASK = {
    "title": "Write the release notes",
    "description": "For all who use it",
    "status": "IN_PROGRESS",
    "dueDate": "2026-12-01",
    "project": "website",
    "priority": "HIGH",
}

STORES = ("sqlite", "postgresql")
"""The parameters of the fixture `database`."""

Way = Callable[[Any], AbstractAsyncContextManager[Client]]
"""Opens a client of a task server on a database."""


@frozen
class Database:
    """An empty database for task servers."""

    url: str

    def command(self, *words: str) -> list[str]:
        """Return the command line of a task server, or of one of its commands."""
        first = [] if not words or words[0].startswith("--") else [words[0]]
        rest = words[len(first) :]
        return command("task-server", *first, "--database", self.url, *rest)


class FileStore(SqliteTaskStore):
    """A store in a file of its own, which goes with it."""

    def __init__(self) -> None:
        folder = new_folder()
        weakref.finalize(self, folder.cleanup)
        super().__init__(Path(folder.name) / "tasks.db")


def task_server(
    store: FileStore | None = None, *, over_http: bool = False, **settings: Any
) -> Server:
    """Return a task server on an empty store, with these settings of the section."""
    with patch("foundation_rt.apps.task_server.app.make_store", return_value=store or FileStore()):
        return create_task_server({"task_server": settings}, over_http=over_http)


async def stored(client: Any, *tasks: dict[str, Any]) -> str:
    """Store tasks, wait for that, and return the id of their job."""
    answer = await client.call("mcp-tasks", tasks=list(tasks), waitMs=25_000)
    assert answer["status"] == "COMPLETED", answer
    job_id: str = answer["jobId"]
    return job_id


@asynccontextmanager
async def over_stdio(database: Database) -> AsyncIterator[Client]:
    """Yield a client of a task server that it has started."""
    async with connect(database.command()) as client:
        yield client


@contextmanager
def serving(
    database: Database, *words: str, settings: dict[str, object] | None = None
) -> Iterator[tuple[str, ServerProcess]]:
    """Yield the URL of a task server over HTTP, and its process."""
    port = free_port() if "--workers" in words else 0
    words = ("--http", f"127.0.0.1:{port}", *(words or ("--no-auth",)))
    with ServerProcess(database.command(*words), environment(settings)) as process:
        yield str(process.record(message="serving over HTTP")["url"]), process
        if process.exit_code is None:
            process.signal(signal.SIGTERM)
            assert process.wait() == 128 + signal.SIGTERM


@asynccontextmanager
async def over_http(database: Database) -> AsyncIterator[Client]:
    """Yield a client of a task server over HTTP."""
    with serving(database) as (url, _):
        async with connect(url) as client:
            yield client


WAYS: dict[str, Way] = {"stdio": over_stdio, "http": over_http}


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool; return its answer.

    Raises:
        ToolCallError: the tool failed.
    """
    value: dict[str, Any] = (await client.call(tool, arguments)).value()
    return value
