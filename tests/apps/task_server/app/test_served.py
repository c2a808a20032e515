"""Whole task servers, in processes of their own, over stdio and HTTP, on both stores."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from foundation_rt import TextContents
from foundation_rt.client import Client, HttpServer, ToolCallError, blocking, connect
from tests.apps.task_server.app.servers import (
    STORES,
    TASK,
    WAYS,
    Database,
    Way,
    call,
    over_stdio,
    serving,
)
from tests.lab.places.services import need_postgres, postgres_database
from tests.lab.servers.process import PATIENCE, ServerProcess, environment, run
from tests.lab.sizes import cases
from tests.lab.waiting import until

KEYS = "ann:0123456789abcdef-ann,bob:0123456789abcdef-bob"

way = pytest.mark.parametrize(
    ("way", "database"),
    [
        pytest.param(WAYS[name], store, id=f"{name}-{store}")
        for name, store in cases([*zip(WAYS, STORES, strict=True)], [*product(WAYS, STORES)])
    ],
    indirect=["database"],
)
one_store = pytest.mark.parametrize("database", cases(STORES[:1], STORES), indirect=True)
"""For what does not depend on the store."""


def batch(count: int, **members: Any) -> list[dict[str, Any]]:
    return [{"title": f"Task {number}", **members} for number in range(count)]


async def submit(client: Any, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    answer = await call(client, "mcp-tasks", tasks=tasks, waitMs=25_000)
    assert answer["status"] == "COMPLETED", answer
    return answer


async def read(client: Client, uri: str) -> Any:
    [contents] = (await client.read_resource(uri)).contents
    assert isinstance(contents, TextContents)
    return orjson.loads(contents.text)


@pytest.mark.rule("TASKS-16", "TASKS-79")
def test_wrong_database_ends_the_process_after_initialize(tmp_path: Path) -> None:
    """What the client has sent is in the pipe before the process starts."""
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    info = {"name": "tests", "version": "0"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    theirs, ours = os.pipe()
    for message in (
        {"id": 0, "method": "initialize", "params": params},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/list"},
    ):
        os.write(ours, orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")
    words = Database(f"sqlite:{file}").command()
    with ServerProcess(words, environment(), stdin=(theirs, ours)) as process:
        assert process.wait() == 1
        assert [each["id"] for each in process.messages] == [0]
        assert "is the database of another application" in process.stderr


@pytest.mark.rule("TASKS-100")
@one_store
def test_variables_of_the_seed_are_settings(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = "https://tasks.example"
    monkeypatch.setenv("MCP_CORS_ORIGINS", origin)
    monkeypatch.setenv("MCP_TRANSPORT_HTTP_SECURITY_APIKEYS", KEYS)
    monkeypatch.setenv("AUDIT_SENSITIVE_DATA_STRATEGY", "REDACT")
    with serving(database, "--transport", "http") as (url, process):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        allowed = httpx2.options(url, headers=asked, timeout=PATIENCE).headers[
            "Access-Control-Allow-Origin"
        ]
        assert allowed == origin
        assert httpx2.post(url, json={}, timeout=PATIENCE).status_code == 401
        with blocking.connect(url, headers={"X-API-Key": KEYS[4:24]}) as client:
            client.call("mcp-help", {"tool": "mcp-tasks"})
        record = process.record(eventType="TOOL_INVOCATION_START")
        assert record["metadata"] == {"arguments": {"tool": "[REDACTED]"}}
    monkeypatch.setenv("MCP_TRANSPORT_MODE", "both")
    with ServerProcess(database.command(), environment()) as process:
        assert process.wait() == 1
        assert "MCP_TRANSPORT_MODE is not read: use --transport" in process.stderr


@pytest.mark.rule("TASKS-01", "TASKS-02", "TASKS-22")
@way
async def test_batch_is_stored_listed_and_worked_off(way: Way, database: Database) -> None:
    async with way(database) as client:
        answer = await submit(client, [TASK, *batch(20, project="p")])
        page = await call(client, "mcp-tasks-list", jobId=answer["jobId"], pageSize=8)
        first = page["tasks"][0]
        found = [*page["tasks"]]
        while page["nextCursor"] is not None:
            page = await call(
                client,
                "mcp-tasks-list",
                jobId=answer["jobId"],
                pageSize=8,
                cursor=page["nextCursor"],
            )
            found += page["tasks"]
        [claimed] = (await call(client, "mcp-tasks-claim", worker="w", project="p"))["tasks"]
        change = {"id": claimed["id"], "ifVersion": claimed["version"], "status": "DONE"}
        await call(client, "mcp-tasks-update", updates=[change])
        with pytest.raises(ToolCallError, match="changed by others"):
            await call(client, "mcp-tasks-update", updates=[change])
        deleted = await call(client, "mcp-tasks-delete", ids=[found[-1]["id"], 10**9])
        summary = await call(client, "mcp-tasks-summary")

    assert [task["title"] for task in found] == [TASK["title"], *(f"Task {n}" for n in range(20))]
    assert {name: first[name] for name in TASK} == TASK
    assert (claimed["title"], claimed["claimedBy"]) == ("Task 0", "w")
    assert deleted == {"deleted": 1, "missing": [10**9]}
    assert summary["totalCount"] == 20
    assert summary["countByStatus"] == {"TODO": 18, "IN_PROGRESS": 1, "DONE": 1}


@pytest.mark.rule("TASKS-02")
async def test_two_processes_share_a_database(database: Database) -> None:
    async with over_stdio(database) as one, over_stdio(database) as other:
        async with asyncio.TaskGroup() as group:
            for client in (one, other):
                for _ in range(3):
                    group.create_task(submit(client, batch(50)))
        totals = [(await call(each, "mcp-tasks-summary"))["totalCount"] for each in (one, other)]
        claimed: list[int] = []

        async def claim(client: Any, worker: str) -> None:
            tasks = [{"id": 0}]
            while tasks:
                tasks = (await call(client, "mcp-tasks-claim", count=10, worker=worker))["tasks"]
                claimed.extend(task["id"] for task in tasks)

        async with asyncio.TaskGroup() as group:
            group.create_task(claim(one, "one"))
            group.create_task(claim(other, "other"))

    assert totals == [300, 300]
    assert sorted(claimed) == sorted(set(claimed))
    assert len(claimed) == 300


@pytest.mark.rule("TASKS-36")
async def test_subscriber_of_one_process_is_told_of_a_change_by_another(
    database: Database,
) -> None:
    async with over_stdio(database) as one, over_stdio(database) as other:
        await submit(one, [TASK])
        async with one.subscribe("task://1") as changes:
            await call(other, "mcp-tasks-update", updates=[{"id": 1, "status": "DONE"}])
            async with asyncio.timeout(20):
                uri = await anext(aiter(changes))

    assert uri == "task://1"


@pytest.mark.rule("TASKS-02")
@one_store
async def test_server_without_key_or_consent_does_not_start(database: Database) -> None:
    ended = run(*database.command("--http", "127.0.0.1:0")[3:])

    assert ended.returncode == 1
    assert "no_auth" in ended.stderr


@pytest.mark.rule("TASKS-31", "TASKS-21")
@one_store
async def test_principal_is_creator_and_worker(database: Database) -> None:
    with serving(database, "--transport", "http", settings={"http.api_keys": KEYS}) as (url, _):
        headers = {"X-API-Key": "0123456789abcdef-ann"}
        async with connect(HttpServer(url, headers=headers)) as client:
            await submit(client, [{"title": "x"}])
            [task] = (await call(client, "mcp-tasks-claim"))["tasks"]

    assert (task["createdBy"], task["claimedBy"]) == ("key:ann", "key:ann")


@pytest.mark.rule("TASKS-06")
@one_store
async def test_metrics_and_limits_are_on_over_http(database: Database) -> None:
    with serving(database) as (url, _):
        async with connect(url) as client:
            await submit(client, batch(7))
            codes = []
            while codes[-1:] != ["RESOURCE_EXHAUSTED"]:  # the bucket of the limit is refilled
                with pytest.raises(ToolCallError) as refused:
                    await call(client, "mcp-tasks-from-file", filePath="x.json")
                codes.append(refused.value.code)
            await call(client, "mcp-tasks-summary")
        async with httpx2.AsyncClient(timeout=PATIENCE) as browser:
            metrics = (await browser.get(url.replace("/mcp", "/metrics"))).text
            ready = await browser.get(url.replace("/mcp", "/readyz"))

    assert len(codes) > 10
    assert "mcp_tasks_inserted_total 7.0" in metrics
    assert 'mcp_tool_invocations_total{result="success",tool="mcp-tasks"} 1.0' in metrics
    assert 'mcp_jobs{status="COMPLETED"} 1.0' in metrics
    assert ready.status_code == 200


@pytest.mark.rule("TASKS-02")
@one_store
async def test_stdio_and_http_are_served_at_once(database: Database) -> None:
    words = database.command("--transport", "both", "--http", "127.0.0.1:0", "--no-auth")
    with ServerProcess(words, environment()) as process:
        process.handshake()
        process.call("mcp-tasks", tasks=[TASK])
        url = str(process.record(message="serving over HTTP")["url"])
        async with connect(url) as client:
            await until(
                lambda: call(client, "mcp-tasks-list"), "it is stored", lambda found: found["tasks"]
            )


@pytest.mark.rule("TASKS-02")
async def test_workers_serve_one_database(database: Database) -> None:
    with serving(database, "--no-auth", "--workers", "2") as (url, _):
        async with connect(url, revision="2026-07-28") as client:
            async with asyncio.TaskGroup() as group:
                for _ in range(8):
                    group.create_task(submit(client, batch(25)))
            summary = await call(client, "mcp-tasks-summary")

    assert summary["totalCount"] == 200


@pytest.mark.rule("TASKS-01")
async def test_default_database_is_private(tmp_path: Path) -> None:
    env = {**environment(), "XDG_DATA_HOME": str(tmp_path)}
    async with connect(Database("").command()[:4], env=env) as client:
        await submit(client, [TASK])
    path = tmp_path / "foundation-rt" / "tasks.db"

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    others = [each for each in path.parent.iterdir() if each.stat().st_mode & 0o077]
    assert not others


@pytest.mark.rule("TASKS-06")
@way
async def test_five_thousand_long_tasks_are_one_call(way: Way, database: Database) -> None:
    long = batch(5000, description="x" * 2000)
    async with way(database) as client:
        answer = await submit(client, long)

    assert answer["processedTasks"] == 5000


@pytest.mark.rule("TASKS-01")
def test_plain_install_is_enough(tmp_path: Path) -> None:
    """A start and a batch import nothing of an extra."""
    url = f"sqlite:{tmp_path / 'tasks.db'}"
    code = (
        "import sys\n"
        "extras = ['psycopg', 'redis', 'prometheus_client', 'uvicorn', 'starlette', 'httpx2',"
        " 'jsonschema_rs', 'rich', 'uvloop', 'httptools']\n"
        "for name in extras: sys.modules[name] = None\n"
        "from foundation_rt.cli.main import main\n"
        f"raise SystemExit(main(['task-server', '--database', {url!r}]))\n"
    )
    with ServerProcess(
        [sys.executable, "-c", code], environment(), start=subprocess.Popen
    ) as process:
        process.handshake()
        answer = process.call("mcp-tasks", tasks=[TASK], waitMs=25_000)
        assert process.finish() == 0

    assert answer["status"] == "COMPLETED"


async def status_of(url: str) -> int:
    async with httpx2.AsyncClient(timeout=PATIENCE) as browser:
        return (await browser.get(url)).status_code


@pytest.mark.rule("TASKS-15", "TASKS-14")
async def test_database_that_comes_back_is_used_again() -> None:
    import psycopg

    with postgres_database() as address, serving(Database(address)) as (url, _):
        name, ready = address.rpartition("/")[2], url.replace("/mcp", "/readyz")
        with psycopg.connect(need_postgres(), autocommit=True) as admin:
            async with connect(url) as client:
                await submit(client, [TASK])
                admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
                query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                admin.execute(query, [name])
                with pytest.raises(ToolCallError) as refused:
                    await call(client, "mcp-tasks", tasks=[TASK], requestKey="k")
                await until(lambda: status_of(ready), "it is not ready", lambda its: its == 503)
                admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
                await until(lambda: status_of(ready), "it is ready", lambda its: its == 200)
                answer = await call(
                    client, "mcp-tasks", tasks=[TASK], requestKey="k", waitMs=25_000
                )
                summary = await call(client, "mcp-tasks-summary")

    details = refused.value.details or {}
    assert (refused.value.code, details["reason"]) == ("RESOURCE_EXHAUSTED", "database_unavailable")
    assert name not in str(refused.value)
    assert (answer["status"], summary["totalCount"]) == ("COMPLETED", 2)
