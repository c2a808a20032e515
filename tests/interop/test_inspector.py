"""The Inspector's `--cli`, a connection for each request: it lists, calls, reads and prompts."""

from __future__ import annotations

import pkgutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.interop import inspector, tour
from tests.lab.servers.process import PATIENCE, command

_EXAMPLES = find_spec("foundation_rt.apps.examples")
SERVERS = [
    ("serve",),
    ("serve", str(tour.APP)),
    ("task-server",),
    ("gateway", "--demo"),
    *(
        ("serve", f"foundation_rt.examples.{each.name}")
        for each in pkgutil.iter_modules(_EXAMPLES and _EXAMPLES.submodule_search_locations)
        if not each.name.startswith("_")
    ),
]


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


@pytest.mark.rule("TYPED-48")
@pytest.mark.parametrize(
    ("mode", "words"),
    [("legacy", SERVERS[1]), *(("modern", words) for words in SERVERS)],
    ids=lambda value: value if type(value) is str else Path(value[-1]).name,
)
def test_its_strict_check_has_no_warning(mode: str, words: tuple[str, ...], home: Path) -> None:
    options = ["--protocol-era", mode, "--strict", "--format", "json", "--method", "tools/list"]
    ended = subprocess.run(
        inspector.command(inspector.LAUNCHER, "--cli", *command(*words), *options),
        env=inspector.environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=home,
    )
    assert ended.returncode == 0, ended.stderr
    assert orjson.loads(ended.stdout)["result"]["tools"]
    # Besides the log of the server.
    assert [line for line in ended.stderr.splitlines() if not line.startswith("{")] == []
