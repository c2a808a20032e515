"""The guides for people who come from other libraries: their programs run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from foundation_rt.testing import TestClient
from tests.trace import ROOT

GUIDES = ROOT / "spec" / "guide"


def program(name: str) -> dict[str, Any]:
    """Run the program of a guide as a module, and return its names."""
    [block] = re.findall(r"```python\n(.*?)```", (GUIDES / name).read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(block, name, "exec", dont_inherit=True), names)
    return names


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_program_of_the_fastmcp_guide_runs(revision: str) -> None:
    def user(method: str, params: dict[str, Any]) -> Any:
        return {"action": "accept", "content": {"value": "Ann"}}

    server = program("from-fastmcp.md")["mcp"]
    async with TestClient(server, revision=revision, answers=user) as client:
        assert await client.call("keep", text="milk") == "milk"
        assert await client.call("ask") == "Hello, Ann!"
        assert await client.read_resource("notes://milk") == "milk"


async def test_program_of_the_official_sdk_guide_runs() -> None:
    async with TestClient(program("from-the-official-sdk.md")["app"]) as client:
        result = await client.call("search", words="tea")
        assert result == "search: nothing is called tea"
