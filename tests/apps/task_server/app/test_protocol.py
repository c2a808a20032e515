"""What clients see of the protocol around the tools: scopes of OAuth, and calls that become tasks.

Neither depends on the store: every server here has a SQLite file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from attrs import frozen

from foundation_rt.apps.task_server.jobs import NewJob
from foundation_rt.apps.task_server.services import LOCAL
from foundation_rt.apps.task_server.stores.sqlite import SqliteTaskStore
from foundation_rt.apps.task_server.validation import encode_payload, read_tasks
from tests.apps.task_server.app.servers import TASK, Database, serving
from tests.lab.login.issuer import AUDIENCE, running_issuer, token
from tests.lab.servers.process import PATIENCE

READ, WRITE = "tasks:read", "tasks:write"
JOB_ID = "2f1c1c3e-6d2b-4a4e-9d2f-1f6f4c1b7a10"
EXTENSION = "io.modelcontextprotocol/tasks"
A_LONG_TIME_MS = 3_600_000

TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "mcp-tasks": (WRITE, {"tasks": [TASK]}),
    "mcp-tasks-from-file": (WRITE, {"filePath": "x.json"}),
    "mcp-tasks-claim": (WRITE, {}),
    "mcp-tasks-update": (WRITE, {"updates": [{"id": 1, "status": "DONE"}]}),
    "mcp-tasks-delete": (WRITE, {"ids": [1]}),
    "mcp-job-status": (READ, {"jobId": JOB_ID}),
    "mcp-tasks-list": (READ, {}),
    "mcp-tasks-summary": (READ, {}),
    "mcp-schema-tasks": (READ, {}),
    "mcp-help": (READ, {}),
}
"""The scope of each tool, and arguments that its schema allows."""

NAMED_BY = {
    "tools/call": "name",
    "resources/read": "uri",
    "prompts/get": "name",
    "tasks/get": "taskId",
}
"""The parameter that the header `Mcp-Name` repeats."""


@frozen
class Caller:
    """Sends requests without a session to one server.

    Attributes:
        browser: over which they go.
        url: of the server.
        tasks: the client takes tasks.
    """

    browser: httpx2.AsyncClient
    url: str
    tasks: bool = False

    async def ask(self, method: str, bearer: str = "", **params: Any) -> httpx2.Response:
        capabilities = {"extensions": {EXTENSION: {}}} if self.tasks else {}
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
        }
        if method in NAMED_BY:
            headers["mcp-name"] = params[NAMED_BY[method]]
        if bearer:
            headers["authorization"] = f"Bearer {bearer}"
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return await self.browser.post(self.url, json=body, headers=headers)

    async def result(self, method: str, bearer: str = "", **params: Any) -> Any:
        """Return the result of a request that is answered with one."""
        return (await self.ask(method, bearer, **params)).json()["result"]


@asynccontextmanager
async def calling(url: str, *, tasks: bool = False) -> AsyncIterator[Caller]:
    async with httpx2.AsyncClient(timeout=PATIENCE) as browser:
        yield Caller(browser, url, tasks)


@pytest.mark.rule("TASKS-20")
async def test_every_tool_resource_and_prompt_needs_its_scope(tmp_path: Path) -> None:
    requests = [
        *(
            (scope, "tools/call", {"name": name, "arguments": arguments})
            for name, (scope, arguments) in TOOLS.items()
        ),
        *((READ, "resources/read", {"uri": uri}) for uri in ("db://stats", "task://all")),
        (READ, "prompts/get", {"name": "task-report-template"}),
    ]
    database = Database(f"sqlite:{tmp_path / 'tasks.db'}")
    with running_issuer() as issuer:
        settings: dict[str, object] = {"oauth.issuer": issuer.url, "oauth.audience": AUDIENCE}
        bearers = {
            scope: token(issuer, scope=scope, exp=2**33, nbf=None) for scope in (READ, WRITE)
        }
        with serving(database, "--transport", "http", settings=settings) as (url, _):
            async with calling(url) as caller:
                for scope, method, params in requests:
                    other = READ if scope == WRITE else WRITE
                    refused = await caller.ask(method, bearers[other], **params)
                    allowed = await caller.ask(method, bearers[scope], **params)
                    assert refused.status_code == 403, (method, params)
                    assert f'scope="{scope}"' in refused.headers["www-authenticate"]
                    assert allowed.status_code == 200, (method, params, allowed.text)
                listed = {
                    scope: (await caller.result("tools/list", bearer))["tools"]
                    for scope, bearer in bearers.items()
                }

    for scope, tools in listed.items():
        its_own = {name for name, (needed, _) in TOOLS.items() if needed == scope}
        assert {tool["name"] for tool in tools} == {"health"} | its_own


@pytest.mark.rule("TASKS-23")
async def test_call_that_waits_long_becomes_a_task_and_ends_with_its_job(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    payload, digest, text_bytes = encode_payload(read_tasks([TASK]))
    store = SqliteTaskStore(file)
    await store.open()
    try:
        # No worker of the server may carry it out: another process holds it.
        await store.submit_job(NewJob(JOB_ID, LOCAL, None, digest, payload, 1, text_bytes, "c"), 10)
        claim = await store.claim_job("another process", A_LONG_TIME_MS, 3)
        assert claim is not None
        with serving(Database(f"sqlite:{file}")) as (url, _):
            async with calling(url, tasks=True) as caller:
                arguments = {"jobId": JOB_ID, "waitMs": 25_000}
                task = handle = await caller.result(
                    "tools/call", name="mcp-job-status", arguments=arguments
                )
                assert (handle["resultType"], handle["status"]) == ("task", "working")

                await store.fail_job(claim, "The disk is full.")
                while task["status"] == "working":
                    task = await caller.result("tasks/get", taskId=handle["taskId"])
    finally:
        await store.close()

    job = task["result"]["structuredContent"]
    assert task["status"] == "completed"
    assert (job["status"], job["errorMessage"]) == ("FAILED", "The disk is full.")
