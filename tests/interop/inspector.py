"""The MCP Inspector: its two command lines, and how they are run."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import orjson

from tests.lab.programs import node
from tests.lab.servers.process import PATIENCE

CLIENTS = Path("@modelcontextprotocol/inspector/clients")
LAUNCHER = CLIENTS / "launcher/build/index.js"
MCPDO = CLIENTS / "mcpdo/build/mcp-bin.js"


def command(program: Path, *words: str) -> list[str]:
    """Return the command line that runs one of the two."""
    return [str(node.NODE), str(node.install(Path(__file__).parent) / program), *words]


def environment(home: Path) -> dict[str, str]:
    """Its environment; `home` is where it keeps files, one of them a socket."""
    return {**node.environment(), "HOME": str(home), "MCP_INSPECTOR_SECRET_STORE": "memory"}


def run(home: Path, program: Path, *words: str) -> Any:
    """Run it to its end and return the JSON it printed."""
    ended = subprocess.run(
        command(program, *words),
        env=environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr
    return orjson.loads(ended.stdout)
