"""The process of a program under development: `python -m foundation_rt.cli.dev_program` (DEV-10).

It loads the program as `serve` does, and tells the front on stderr what it has imported, or why it
could not be loaded.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import orjson

from ..apps.dev.log_lines import AGENTS_TOOL, REPORT_KEY
from .program_errors import ignored_folders, problem_of

if TYPE_CHECKING:
    from ..agents.ledger.status import MessageStatus
    from ..agents.local import AgentCoordinator
    from ..features.context import ToolContext
    from ..protocol.principal import Principal
    from ..server import Server
    from .args import CommandLine

_MAX_REQUESTS = 200


def run(arguments: list[str]) -> int:
    """Load the program and serve it over stdio; return the exit code."""
    from ..kernel.stdio.descriptors import isolate
    from ..kernel.stdio.transport import serve
    from .args import CliCommand
    from .serve import APP, CONFIG

    program = CliCommand("program", "", None, (APP,), {"options": (CONFIG,)}, takes_program=True)
    line = program.parse(arguments)
    # Python takes the bytecode of a file for that of the next version, if both have the same size
    # and were saved within a second (DEV-13).
    sys.dont_write_bytecode = True
    descriptors = isolate()
    try:
        server = _load(line)
        runtime = server.stdio_runtime
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _report({"problem": problem_of(error).to_json(), "files": _imported_files()})
        return 1
    if runtime.agents is not None:
        _add_agents_tool(server)
    _report({"files": _imported_files()})
    return serve(runtime, descriptors=descriptors)


def _load(line: CommandLine) -> Server:
    from .serve import configured, load_program

    if line.positional:
        return load_program(line)
    from .showing_server import showing_server

    return configured(showing_server(), line)


def _report(report: dict[str, Any]) -> None:
    """Tell the front; stderr may have been replaced by the program."""
    data = orjson.dumps({REPORT_KEY: {"pid": os.getpid(), **report}}) + b"\n"
    while data:
        data = data[os.write(2, data) :]


def _imported_files() -> list[str]:
    """Return the files of the modules that are loaded and the author's."""
    ignored = (*ignored_folders(), f"{sys.base_prefix}{os.sep}lib")
    files = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    return sorted(
        {
            os.path.realpath(file)
            for file in files
            if isinstance(file, str)
            and file.endswith(".py")
            and not file.startswith(ignored)
            and "site-packages" not in file
        }
    )


def _add_agents_tool(server: Server) -> None:
    """Add the tool with which the front reads agents and ledger (DEV-32)."""
    from ..kernel.registry.tool_definition import ToolDefinition

    ids = {"type": "array", "items": {"type": "string"}, "maxItems": _MAX_REQUESTS}
    definition = ToolDefinition(
        name=AGENTS_TOOL,
        description="Tell the page of the front of agents and ledger.",
        input_schema={"type": "object", "properties": {"requestIds": ids}},
    )

    async def tell(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        coordinator = server.runtime.agents
        if coordinator is None:
            return {"agents": [], "ledger": None}
        return {
            "agents": [
                {"id": each, "state": context.logger.redact(coordinator.get_agent_state(each))}
                for each in coordinator.agent_ids()
            ],
            "ledger": await _ledger(coordinator, arguments.get("requestIds", [])),
        }

    # No list has it, not even that of the program; the front calls it by its name.
    tool = server.runtime.registry.register(definition, tell, visible=_nobody)
    tool.is_restricted = False


def _nobody(principal: Principal | None) -> bool:
    return False


async def _ledger(coordinator: AgentCoordinator, known: list[str]) -> dict[str, Any] | None:
    from ..agents.ledger.coordinator import AgentCoordinatorV2
    from ..agents.ledger.status import request_status

    if not isinstance(coordinator, AgentCoordinatorV2):
        return None
    found = {each.request_id: each for each in await coordinator.pending_requests(_MAX_REQUESTS)}
    others = [request_id for request_id in known if request_id not in found]
    for record in await (await coordinator.operator()).store.get_request_records(others):
        found[record.request_id] = request_status(record)
    return {
        "name": coordinator.name or coordinator.aacp.name,
        "requests": [_request(each) for each in found.values()],
    }


def _request(status: MessageStatus) -> dict[str, Any]:
    error = status.error
    return {
        "requestId": status.request_id or status.message_id,
        "targetAgentId": status.target_agent_id,
        "outcome": status.outcome.value,
        "at": status.timestamp_ms,
        "error": None if error is None else {"code": error.code, "message": error.message},
    }


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
