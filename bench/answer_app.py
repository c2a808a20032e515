"""A tool with the schemas of another one, which always returns the same answer; with an audit log.

`BENCH_ANSWER` names a JSON file of the tool's definition, as it is listed, and of the answer.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson

from foundation_rt import Server, ToolContext, ToolDefinition

server = Server("bench", version="1.0.0", config={"audit": {"enabled": True}})

_given = orjson.loads(Path(os.environ["BENCH_ANSWER"]).read_bytes())
_listed = _given["definition"]


async def _answer(arguments: dict[str, Any], context: ToolContext) -> Any:
    return _given["answer"]


server.register(
    ToolDefinition(
        _listed["name"],
        _listed["description"],
        _listed["inputSchema"],
        output_schema=_listed["outputSchema"],
    ),
    _answer,
)
