"""A server with tools that have tasks, and stateless clients, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import TasksSection
from foundation_rt.base.config.settings import ResourcesSection, ServerConfig
from foundation_rt.features.context import ToolContext
from foundation_rt.features.embedding import HostLoop
from foundation_rt.features.tasks.support import EXTENSION
from foundation_rt.kernel.registry.tools import ToolDefinition
from foundation_rt.protocol.principal import Principal
from tests.lab.clock.virtual_loop import run_virtual
from tests.lab.servers.fixture import ServerFixture, ServerPeer
from tests.lab.waiting import until

RUN_MS, KEEP_MS = 60_000, 30_000
LIMITS = TasksSection(max_run_ms=RUN_MS, keep_ms=KEEP_MS, poll_interval_ms=500)
WITH_TASKS: dict[str, Any] = {"extensions": {EXTENSION: {}}, "elicitation": {"form": {}}}

Handler = Callable[[dict[str, Any], ToolContext], Any]


class TaskClient(ServerPeer):
    """A client of revision 2026-07-28.

    Attributes:
        capabilities: declared with each request.
    """

    def __init__(self, capabilities: dict[str, Any]) -> None:
        super().__init__()
        self.capabilities = capabilities
        self.meta: dict[str, Any] = {}

    def request(self, method: str, **params: Any) -> int | str:
        """Send a request; return its id."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            **self.meta,
        }
        return self.ask(method, {**params, "_meta": meta})

    def result(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result that a request has at once, without the `_meta` of the server."""
        answer = self.answer(self.request(method, **params))
        result: dict[str, Any] = answer["result"]
        del result["_meta"]
        return result

    def error(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the error that a request has at once."""
        error: dict[str, Any] = self.answer(self.request(method, **params))["error"]
        return error

    def call(self, tool: str, **params: Any) -> dict[str, Any]:
        """Return the result that a call has at once."""
        return self.result("tools/call", name=tool, arguments={}, **params)

    def get(self, task_id: str) -> dict[str, Any]:
        """Return the state of a task."""
        return self.result("tasks/get", taskId=task_id)

    async def ended(self, task_id: str) -> dict[str, Any]:
        """Return the state of a task once it has ended."""
        task: dict[str, Any] = await until(
            lambda: self.get(task_id),
            "the task ends",
            lambda task: task["status"] not in ("working", "input_required"),
        )
        return task


class TaskHarness(ServerFixture):
    """A server whose tasks live for `RUN_MS` and `KEEP_MS`."""

    def __init__(self, clock: ManualClock, *, slots: int = 10, **tasks: Any) -> None:
        limits = TasksSection(max_run_ms=RUN_MS, keep_ms=KEEP_MS, **tasks) if tasks else LIMITS
        resources = ResourcesSection(max_concurrent_executions=slots)
        super().__init__(ServerConfig(tasks=limits, resources=resources), clock)

    def add(self, name: str, handler: Handler, **options: Any) -> None:
        """Register a tool; by default one whose calls are tasks at once."""
        options.setdefault("task", "optional")
        self.server.register(ToolDefinition(name, "", {"type": "object"}), handler, **options)

    def client(
        self, capabilities: dict[str, Any] = WITH_TASKS, principal: Principal | None = None
    ) -> TaskClient:
        """Connect one more client."""
        client = TaskClient(capabilities)
        scheduler = HostLoop(asyncio.get_running_loop())
        client.connection = self.server.runtime.connect(
            lambda message: client.receive(message.line), "http", scheduler, principal=principal
        )
        return client


def run(scenario: Callable[[ManualClock], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in virtual time."""
    run_virtual(scenario)
