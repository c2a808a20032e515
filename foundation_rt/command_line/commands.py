"""What `foundation-rt check` and `foundation-rt call` do; not on the start path of `serve`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import orjson

from ..configuration.loading import to_mapping
from ..errors import ToolError
from ..protocol.revisions import REVISIONS
from ..testing import connect

if TYPE_CHECKING:
    from ..protocol.revisions import Revision
    from ..server import Server


def check(server: Server) -> int:
    """Print what the server offers and the effective configuration, secrets redacted."""
    runtime = server.runtime
    newest = [*REVISIONS.values()][-1]
    report: dict[str, Any] = {
        "server": {"name": runtime.config.server.name, "version": runtime.config.server.version},
        "tools": [definition.to_wire(newest) for definition in server.list()],
        **_other_features(server, newest),
        "configuration": to_mapping(runtime.config),
    }
    _print_json(report)
    runtime.close_logs(1.0)
    return 0


def call(server: Server, tool: str, arguments: str) -> int:
    """Call one tool in process; print its result, or its error on stderr (exit code 1)."""
    try:
        parsed = orjson.loads(arguments)
    except orjson.JSONDecodeError as error:
        sys.stderr.write(f"foundation-rt: the arguments are not valid JSON: {error}\n")
        return 2
    if not isinstance(parsed, dict):
        sys.stderr.write("foundation-rt: the arguments must be a JSON object\n")
        return 2
    try:
        result = asyncio.run(_call(server, tool, parsed))
    except ToolError as error:
        _print_json({"code": error.code, "message": error.message, "details": error.details}, True)
        return 1
    finally:
        server.runtime.close_logs(1.0)
    _print_json(result)
    return 0


def _other_features(server: Server, revision: Revision) -> dict[str, Any]:
    """What lists show besides tools; nothing of what the server has none of."""
    resources, prompts = server.features.resources, server.features.prompts.prompts
    lists = {
        "resources": [each.wire(revision) for each in resources.resources.entries()],
        "resourceTemplates": [each.wire(revision) for each in resources.templates.entries()],
        "prompts": [each.wire(revision) for each in prompts.entries()],
    }
    return {name: listed for name, listed in lists.items() if listed}


async def _call(server: Server, tool: str, arguments: dict[str, Any]) -> Any:
    async with connect(server) as client:
        return await client.call_tool(tool, arguments)


def _print_json(value: Any, error: bool = False) -> None:
    stream = sys.stderr if error else sys.stdout
    stream.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
