"""`.env`, the seed's variables, and everything that is wrong at a start."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import UsageError
from foundation_rt.cli.demo import demo_server
from foundation_rt.host import Host, HostSettings, make_server
from foundation_rt.host.environment import HostEnvironment
from foundation_rt.host.examples import FILES, write_examples
from foundation_rt.host.starting import HostOptions, create_host
from foundation_rt.mcp_json import ServerFile
from tests.support.public_imports import private_imports


def environment(folder: Path, text: str | None = None, **variables: str) -> HostEnvironment:
    if text is not None:
        (folder / ".env").write_text(text)
    return HostEnvironment(folder / ".env", variables)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with nothing in the environment."""
    monkeypatch.chdir(tmp_path)
    variables = {"XDG_DATA_HOME": str(tmp_path / "data"), "HOME": str(tmp_path)}
    monkeypatch.setattr(os, "environ", variables)  # a start changes it
    return tmp_path


def start(here: Path, text: str = "", **more: Any) -> Host:
    """Make a host; its variables are put into the environment, as a process does."""
    (here / ".env").write_text(text)
    return create_host(HostOptions(**more), HostEnvironment(here / ".env"), demo_server)


@pytest.mark.rule("HOST-04", "HOST-05")
def test_file_is_below_the_environment(tmp_path: Path) -> None:
    text = "# keys\nexport GEMINI_API_KEY='from file'\nLLM_MODEL=\"m\"\nTOKEN=${PART}x\nPART=y\n"
    found = environment(tmp_path, text, GEMINI_API_KEY="given", OPENAI_API_KEY="")
    assert found.load() == []
    assert found.keys == {"gemini": "given"}
    assert found.variables["FOUNDATION_RT_HOST__MODEL"] == "m"
    assert found.variables["PART"] == "y"
    assert environment(tmp_path / "nothing").load() == []


@pytest.mark.rule("HOST-05")
def test_variables_of_the_seed_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "LLM_PROVIDER": "openai",
        "LLM_MODEL": "m",
        "LLM_BASE_URL": "http://127.0.0.1:1/v1",
        "LLM_TOOL_MODE": "text",
        "MCP_JSON_PATH": "a.json",
        "MAX_TOKEN_COUNT": "9000",
        "DEFAULT_TOOL_TIMEOUT_MS": "5000",
        "LOG_LEVEL": "warn",
        "PORT": "4000",
        "FOUNDATION_RT_HOST__MODEL": "wins",
    }
    found = HostEnvironment(Path("/nowhere/.env"), variables)
    assert found.load() == []
    monkeypatch.setattr(os, "environ", variables)
    config = make_server().load_config()
    settings = config.section(HostSettings)
    assert (settings.provider, settings.model) == ("openai", "wins")
    assert (settings.tool_mode, settings.servers) == ("text", "a.json")
    assert (settings.max_token_count, settings.tool_timeout_ms) == (9000, 5000)
    assert (config.logging.level, config.http.port) == ("warn", 4000)


@pytest.mark.rule("HOST-07")
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("A=1\nB C=sk-secret\n", [2]),
        ("\n\n# c\n=sk-secret\n\nOK=1\nKEY='sk-secret\n", [4, 7]),
        ("sk-secret\n", [1]),
    ],
)
def test_malformed_line_is_named_and_not_shown(tmp_path: Path, text: str, lines: list[int]) -> None:
    problems = environment(tmp_path, text).load()
    assert [f"line {line}:" in each for line, each in zip(lines, problems, strict=True)]
    assert all("NAME=VALUE" in each and "sk-secret" not in each for each in problems)


@pytest.mark.rule("HOST-07")
def test_unreadable_files_are_problems(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"A=1\nB=\xff\n")
    assert "line 2" in environment(tmp_path).load()[0]
    (tmp_path / ".env").write_bytes(b"A=" + b"x" * 1024 * 1024)
    assert "1 MiB" in environment(tmp_path).load()[0]


@pytest.mark.rule("HOST-06")
def test_keys_are_read_again(tmp_path: Path) -> None:
    found = environment(tmp_path, "GEMINI_API_KEY=one\n", OPENAI_API_KEY="given")
    found.load()
    (tmp_path / ".env").write_text("GEMINI_API_KEY=two\nOPENAI_API_KEY=three\n")
    assert found.read_keys() == {"gemini": "two", "openai": "given"}
    (tmp_path / ".env").write_text("GEMINI_API_KEY\n")
    with pytest.raises(UsageError, match="line 1"):
        found.read_keys()
    assert found.keys["gemini"] == "two"


@pytest.mark.rule("HOST-07")
def test_all_problems_of_a_start_are_said_at_once(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "PORT": "high"})
    with pytest.raises(UsageError) as error:
        start(here, "BROKEN\nMAX_TOKEN_COUNT=3\n")
    assert "line 1" in str(error.value) and "environment PORT" in str(error.value)
    monkeypatch.setattr(os, "environ", {"HOME": str(here), "PORT": "high"})
    with pytest.raises(UsageError) as error:
        start(here, "MAX_TOKEN_COUNT=3\n")
    text = str(error.value)
    assert "environment PORT" in text and "environment MAX_TOKEN_COUNT" in text
    monkeypatch.setattr(os, "environ", {"HOME": str(here)})
    with pytest.raises(UsageError) as error:
        start(here, "LLM_PROVIDER=gemni\nMCP_JSON_PATH=missing.json\nPORT=3000\n")
    assert "gemini" in str(error.value) and "missing.json" in str(error.value)


@pytest.mark.rule("HOST-17")
def test_start_without_anything_is_the_demo(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = start(here)
    hint = str(host._status.hint)
    assert "demo server" in hint and "--init" in hint and "GEMINI_API_KEY" in hint
    (here / "mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "a"}}}))
    assert "demo server" not in str(start(here)._status.hint)
    (here / "mcp.json").write_text("{")
    with pytest.raises(UsageError, match=r"mcp\.json"):
        start(here)


@pytest.mark.rule("HOST-36", "COORD-70")
def test_host_that_its_own_host_started_is_refused(here: Path) -> None:
    (here / "mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "a"}}}))
    entry = start(here)._coordinator._source()["a"].target
    os.environ.update(entry.env)
    with pytest.raises(UsageError, match="start itself for ever"):
        start(here)


@pytest.mark.rule("HOST-15")
def test_examples_are_written_once_and_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("mine")
    said = write_examples(tmp_path)
    assert "mcp.json was written" in said and "compose.yaml is there already" in said
    assert (tmp_path / "compose.yaml").read_text() == "mine"
    assert {each.name for each in tmp_path.iterdir()} == FILES.keys()
    file = ServerFile.read(tmp_path / "mcp.json")
    assert [each for each in file.entries if not file.is_disabled(each)] == ["files"]
    (tmp_path / ".env").write_text((tmp_path / ".env.example").read_text())
    found = environment(tmp_path)
    assert found.load() == [] and found.keys == {}


@pytest.mark.rule("HOST-18")
def test_host_imports_only_what_is_documented_as_public() -> None:
    public = ("backoff", "client", "config.sections", "coordinator", "database", "errors", "logs")
    shared = ("engine.user_signal", "lazy_names", "mcp_json", "web_page.files")
    assert private_imports("host", (*public, *shared)) == []


@pytest.mark.rule("HOST-07")
def test_wrong_settings_hide_no_other_problem(here: Path) -> None:
    wrong = {"host": {"store": "redis://x", "servers": "missing.json"}}
    with pytest.raises(UsageError) as error:
        start(here, "BROKEN\nPORT=high\nMAX_TOKEN_COUNT=3\n", overrides=wrong, model="gemni:x")
    lines = str(error.value).splitlines()[1:]
    expected = ["line 1", "PORT", "MAX_TOKEN_COUNT", "host: store", "gemini", "missing.json"]
    assert len(lines) == len(expected)
    assert all(any(each in line for line in lines) for each in expected), lines
