"""Values of tools of the official Python SDK, which puts what is no object into one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.client import StdioServer
from foundation_rt.client.blocking import connect

SERVER = """
from mcp.server import MCPServer

server = MCPServer("wrapping", log_level="ERROR")

def number() -> int:
    return 3

def numbers() -> list[list[int]]:
    return [[1, 2], [3]]

def word() -> str:
    return "hi"

def nothing() -> int | None:
    return None

def mapping() -> dict[str, int]:
    return {"result": 3}

for tool in (number, numbers, word, nothing, mapping):
    server.add_tool(tool)
server.run()
"""
VALUES: dict[str, Any] = {
    "number": 3,
    "numbers": [[1, 2], [3]],
    "word": "hi",
    "nothing": None,
    "mapping": {"result": 3},
}


@pytest.mark.rule("CTOOL-21")
def test_values_are_what_the_tools_of_the_official_sdk_returned(tmp_path: Path) -> None:
    script = tmp_path / "wrapping.py"
    script.write_text(SERVER)
    with connect(StdioServer(sys.executable, [str(script)])) as client:
        assert {name: client.call(name).value() for name in VALUES} == VALUES
    command = [sys.executable, "-m", "foundation_rt", "call", f"{sys.executable} {script}"]
    printed = subprocess.run([*command, "number"], capture_output=True, timeout=60, check=True)
    assert printed.stdout == b"3\n"
