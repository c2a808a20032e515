"""A request to an agent with its answer: `send_request`."""

import asyncio
import sys
from itertools import count

from serving import serve

from foundation_rt.agents import AgentCoordinatorV2, PostgresAACPPersistenceAdapter
from foundation_rt.agents.messages import AgentContext, AgentMessage

AGENTS = [f"agent-{number}" for number in range(8)]


async def work(message: AgentMessage, context: AgentContext) -> object:
    """Answer with what came."""
    if message.payload["pause"]:
        await asyncio.sleep(message.payload["pause"])
    return message.payload


async def main() -> None:
    """Serve."""
    coordinator = AgentCoordinatorV2(store=PostgresAACPPersistenceAdapter(sys.argv[1]))
    for agent_id in AGENTS:
        coordinator.register_agent(agent_id, work)
    numbers = count()
    async with coordinator:
        await serve(
            lambda pause: coordinator.send_request(
                AGENTS[next(numbers) % len(AGENTS)], AgentMessage("work", {"pause": pause})
            )
        )


asyncio.run(main())
