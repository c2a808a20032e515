"""The Inspector's `--cli`, a connection for each request: it lists, calls, reads and prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop import inspector, tour


@pytest.mark.parametrize(
    ("target", "mode"), [("stdio", "legacy"), ("http", "modern")], indirect=["target"]
)
def test_it_finds_what_it_expects(mode: str, target: list[str], home: Path) -> None:
    def inspect(method: str, *words: str) -> Any:
        options = ["--protocol-era", mode, "--quiet", "--format", "json", "--method", method]
        return inspector.run(home, inspector.LAUNCHER, "--cli", *target, *options, *words)["result"]

    expected = tour.expected(modern=mode == "modern", over_http=False)
    hello = inspect("initialize")
    assert hello["protocolVersion"] == expected["revision"]
    assert hello["serverInfo"] == {"name": "interop", "version": "1.0.0"}
    assert {"tools", "resources", "prompts", "completions", "logging"} <= set(hello["capabilities"])

    tools = inspect("tools/list")["tools"]
    assert sorted(tool["name"] for tool in tools) == expected["tools"]
    added = inspect("tools/call", "--tool-name", "add", "--tool-arg", "a=2", "b=3")
    assert added["structuredContent"] == expected["add"]
    read = inspect("resources/read", "--uri", "note://by-name/rent")
    assert read["contents"][0]["text"] == expected["read_template"]
    prompt = inspect("prompts/get", "--prompt-name", "greet", "--prompt-args", "name=Ada")
    assert prompt["messages"][0]["content"]["text"] == expected["prompt"]
