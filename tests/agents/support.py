"""A harness of agents that a test steps through their messages."""

from __future__ import annotations

import asyncio
from typing import Any

from foundation_rt.agents.local import AgentCoordinator
from foundation_rt.agents.messages import AgentContext, AgentMessage
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import AgentsSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.ids import SequentialIds
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger


class AgentHarness:
    """A coordinator that logs to memory and counts its ids.

    Attributes:
        log: the steps of the agents of `add`, in order: "begin a 1" and "end a 1" for each
            message, by its type.
    """

    def __init__(self, max_queue: int = 1_000) -> None:
        self.sink = MemorySink()
        self.logger = StructuredLogger(self.sink, ManualClock(), "debug")
        self.coordinator = AgentCoordinator()
        config = ServerConfig(agents=AgentsSection(max_queue))
        self.coordinator.attach(self.logger, config, SequentialIds())
        self.log: list[str] = []
        self.contexts: list[AgentContext] = []
        self._gates: dict[str, asyncio.Event] = {}

    def add(self, *agent_ids: str) -> None:
        """Register agents that end a message when the test opens its gate."""
        for agent_id in agent_ids:
            self.coordinator.register_agent(agent_id, self.handle)

    async def handle(self, message: AgentMessage, context: AgentContext) -> Any:
        name = f"{context.agent_id} {message.type}"
        self.contexts.append(context)
        self.log.append(f"begin {name}")
        try:
            await self.gate(message.type).wait()
        except asyncio.CancelledError:
            self.log.append(f"cancelled {name}")
            await self.gate(f"cleanup {message.type}").wait()
            raise
        finally:
            self.log.append(f"end {name}")
        return message.payload

    def gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    def open(self, *names: object) -> None:
        for name in names:
            self.gate(str(name)).set()

    def send(self, agent_id: str, kind: object, **options: Any) -> asyncio.Task[Any]:
        """Send a message in a task of its own; its type is `kind`, its payload "re" and `kind`."""
        message = AgentMessage(str(kind), f"re {kind}")
        return asyncio.create_task(self.coordinator.send_message(agent_id, message, **options))

    async def send_first(self, agent_id: str, kind: object) -> Any:
        """Send a message from this task to an idle agent, and return when it has been handled.

        Tasks that have been created, and have not run, queue up meanwhile. The first of them has
        been handed the turn when this returns, and has not run since.
        """
        asyncio.get_running_loop().call_later(1, self.open, kind)
        return await self.coordinator.send_message(agent_id, AgentMessage(str(kind), f"re {kind}"))

    def take_log(self) -> list[str]:
        """Return and clear the log."""
        taken, self.log[:] = list(self.log), []
        return taken
