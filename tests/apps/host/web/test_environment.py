"""`.env`, the seed's variables, and everything that is wrong at a start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import yaml

from foundation_rt import UsageError
from foundation_rt.apps.host import Host, HostSettings, examples, make_server
from foundation_rt.apps.host.environment import HostEnvironment
from foundation_rt.apps.host.examples import write_examples
from foundation_rt.apps.host.llm.providers import KEY_VARIABLES
from foundation_rt.apps.host.settings import Temperature
from foundation_rt.apps.host.starting import HostOptions, read_parts
from foundation_rt.base.mcp_json import ServerFile, ServerSettings
from foundation_rt.cli.demo import demo_server
from tests.lab.checks.public_imports import private_imports
from tests.lab.servers.process import PATIENCE, command
from tests.trace import ROOT


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
    parts = read_parts(HostOptions(**more), HostEnvironment(here / ".env"), demo_server)
    return parts.assemble()


@pytest.mark.rule("HOST-04", "HOST-05")
def test_file_is_below_the_environment(tmp_path: Path) -> None:
    text = "# keys\nexport GEMINI_API_KEY='from file'\nLLM_MODEL=\"m\"\nTOKEN=${PART}x\nPART=y\n"
    found = environment(tmp_path, text, GEMINI_API_KEY="given", OPENAI_API_KEY="")
    assert found.load() == []
    assert found.keys == {"gemini": "given"}
    assert found.defaults == {"host": {"model": "m"}}
    assert found.from_file == {"LLM_MODEL": "m", "TOKEN": "x", "PART": "y"}
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
        "LOG_LEVEL": "trace",
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
    assert (config.logging.level, config.http.port) == ("debug", 4000)


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
    assert "environment PORT" in text and "MAX_TOKEN_COUNT in .env" in text
    monkeypatch.setattr(os, "environ", {"HOME": str(here)})
    with pytest.raises(UsageError) as error:
        start(here, "LLM_PROVIDER=gemni\nMCP_JSON_PATH=missing.json\nPORT=3000\n")
    monkeypatch.setattr(os, "environ", {"HOME": str(here), "LLM_BASE_URL": "http://[::1/v1"})
    with pytest.raises(UsageError, match=r"environment LLM_BASE_URL\): expected an http://"):
        start(here, "")
    text = str(error.value)
    assert "host.provider = 'gemni' (LLM_PROVIDER in .env): expected one of gemini, openai" in text
    assert "missing.json" in text


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
    assert {each.name for each in tmp_path.iterdir()} == {
        "mcp.json",
        ".env.example",
        "compose.yaml",
    }
    file = ServerFile.read(tmp_path / "mcp.json")
    assert [each for each in file.entries if not file.is_disabled(each)] == ["files"]
    (tmp_path / ".env").write_text((tmp_path / ".env.example").read_text())
    found = environment(tmp_path)
    assert found.load() == [] and found.keys == {}


@pytest.mark.rule("HOST-15")
def test_container_of_the_host_installs_the_checkout(tmp_path: Path) -> None:
    subprocess.run(command("host", "--init"), cwd=tmp_path, timeout=PATIENCE, check=True)
    service = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]["host"]
    [bound] = [each for each in service["volumes"] if isinstance(each, dict)]
    assert (Path(bound["source"]), bound["read_only"]) == (ROOT, True)
    [(target, extras)] = re.findall(r"pip install -q '(/\w+)\[([\w,-]+)\]'", service["command"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert target == bound["target"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()


@pytest.mark.rule("HOST-18")
def test_host_imports_only_what_is_documented_as_public() -> None:
    public = ("apps.coordinator", "base.database", "base.logs", "client", "errors")
    shared = ("features.tool_search", "apps.web_page", "base.file_changes")
    base = ["app_format", "backoff", "bounded_dict", "close_names", "config.sections", "exact_json"]
    base += ["http_client.values", "jsonschema.references", "lazy_names", "mcp_json"]
    base += ["skill_format"]
    more = ("features.signatures.type_schema", "protocol.methods", "base.rich_values")
    public = (*public, *shared, *(f"base.{each}" for each in base), *more)
    assert private_imports("apps.host", public) == []


@pytest.mark.rule("HOST-07")
def test_wrong_settings_hide_no_other_problem(here: Path) -> None:
    wrong = {"host": {"store": "redis://x", "servers": "missing.json"}}
    with pytest.raises(UsageError) as error:
        start(here, "BROKEN\nPORT=high\nMAX_TOKEN_COUNT=3\n", overrides=wrong, model="gemni:x")
    lines = str(error.value).splitlines()[1:]
    expected = ["line 1", "PORT", "MAX_TOKEN_COUNT", "host: store", "gemini", "missing.json"]
    assert len(lines) == len(expected)
    assert all(any(each in line for line in lines) for each in expected), lines


@pytest.mark.rule("HOST-40")
def test_only_what_harms_nobody_counts_of_the_file(here: Path) -> None:
    before = set(os.environ)
    secure = "FOUNDATION_RT_HOST__APPROVE_ALL=1\nFOUNDATION_RT_HTTP__NO_AUTH=1\n"
    (here / ".env").write_text(f"{secure}HTTPS_PROXY=http://x\nPORT=4000\nTOKEN=t\nLLM_MODEL=\n")
    found = HostEnvironment(here / ".env")
    assert found.load() == []
    assert set(os.environ) == before
    assert [each.split()[0] for each in found.notes] == [
        "FOUNDATION_RT_HOST__APPROVE_ALL",
        "FOUNDATION_RT_HTTP__NO_AUTH",
    ]
    assert found.defaults == {"http": {"port": 4000}}
    parts = read_parts(HostOptions(), HostEnvironment(here / ".env"), demo_server)
    config = parts.server.load_config()
    assert (config.http.port, config.http.no_auth) == (4000, False)
    assert not config.section(HostSettings).approve_all


@pytest.mark.rule("HOST-05")
def test_configuration_file_wins_over_the_folders(here: Path) -> None:
    (here / "host.toml").write_text("[host]\nmodel = 'mine'\n[http]\nport = 5000\n")
    text = "LLM_MODEL=4\nPORT=4000\nMAX_TOKEN_COUNT=9000\nLLM_PROVIDER=openai\nOPENAI_API_KEY=k\n"
    (here / ".env").write_text(text)
    options = HostOptions(config=str(here / "host.toml"))
    parts = read_parts(options, HostEnvironment(here / ".env"), demo_server)
    assert (parts.settings.model, parts.settings.max_token_count) == ("mine", 9000)
    assert parts.server.load_config().http.port == 5000
    parts = read_parts(HostOptions(), HostEnvironment(here / ".env"), demo_server)
    assert (parts.settings.model, parts.provider) == ("4", "openai")


@pytest.mark.rule("COORD-77")
def test_circuits_of_a_host_are_settings(here: Path) -> None:
    (here / "host.toml").write_text("[host]\ncircuit_failures = 2\ncircuit_open_ms = 9\n")
    options = HostOptions(config=str(here / "host.toml"))
    parts = read_parts(options, HostEnvironment(here / ".env"), demo_server)
    circuit = parts.coordinator()._settings.circuit(ServerSettings())
    assert (circuit.failure_threshold, circuit.reset_timeout_ms) == (2, 9)


@pytest.mark.rule("HOST-44")
def test_folder_plays_no_model_that_it_wrote(here: Path) -> None:
    (here / "s.json").write_text('["hello"]')
    text = "LLM_PROVIDER=script\nLLM_MODEL=s.json\n"
    with pytest.raises(UsageError, match="can choose no provider of another package"):
        start(here, text)
    start(here, text, model="script:s.json")
    os.environ["LLM_PROVIDER"] = "script"
    with pytest.raises(UsageError, match="can choose no provider of another package"):
        start(here, text)
    os.environ["LLM_MODEL"] = "s.json"
    start(here, text)


URL = "http://127.0.0.1:9/v1"


@pytest.mark.rule("HOST-41")
@pytest.mark.parametrize(
    ("provider", "name", "given", "counts"),
    [
        ("openai", "LLM_BASE_URL", {}, True),  # Ollama and the like
        ("openai", "OPENAI_BASE_URL", {}, True),
        ("anthropic", "ANTHROPIC_BASE_URL", {}, True),
        ("gemini", "GOOGLE_GEMINI_BASE_URL", {}, True),
        ("openai", "ANTHROPIC_BASE_URL", {}, False),
        ("openai", "LLM_BASE_URL", {"OPENAI_API_KEY": "k"}, False),
        ("openai", "OPENAI_BASE_URL", {"OPENAI_API_KEY": "k"}, False),
        ("openai", "OPENAI_BASE_URL", {"OPENAI_CUSTOM_HEADERS": "A: k"}, False),
        ("openai", "LLM_BASE_URL", {"OPENAI_ORG_ID": "k"}, False),
        ("openai", "OPENAI_BASE_URL", {"OPENAI_PROJECT_ID": "k"}, False),
        ("anthropic", "LLM_BASE_URL", {"ANTHROPIC_API_KEY": "k"}, False),
        ("anthropic", "ANTHROPIC_BASE_URL", {"ANTHROPIC_CUSTOM_HEADERS": "A: k"}, False),
        ("gemini", "LLM_BASE_URL", {"GEMINI_API_KEY": "k"}, False),
        ("openai", "LLM_BASE_URL", {"ANTHROPIC_API_KEY": "k"}, True),  # it is not sent there
        ("openai", "LLM_BASE_URL", {"OPENAI_BASE_URL": "http://mine"}, False),
    ],
)
def test_no_key_of_the_environment_goes_where_the_file_says(
    here: Path, provider: str, name: str, given: dict[str, str], counts: bool
) -> None:
    os.environ.update(given)
    key = KEY_VARIABLES[provider]
    (here / ".env").write_text(f"LLM_PROVIDER={provider}\nLLM_MODEL=m\n{name}={URL}\n{key}=own\n")
    found = HostEnvironment(here / ".env")
    parts = read_parts(HostOptions(), found, demo_server)
    assert parts.llm is not None
    config = parts.llm._provider._config  # type: ignore[attr-defined]
    assert config.base_url == (URL if counts else None)
    assert config.api_key == given.get(key, "own")
    assert os.environ.get(name) == given.get(name)
    sent = [each for each in given if not counts and not each.endswith("_BASE_URL")]
    assert len(found.notes) == len(sent)
    assert all(f"since {sent[0]} is set" in each for each in found.notes)


@pytest.mark.rule("HOST-41")
def test_base_url_of_the_configuration_stays(here: Path) -> None:
    os.environ["OPENAI_API_KEY"] = "k"
    (here / "host.toml").write_text('[host]\nbase_url = "http://mine/v1"\n')
    (here / ".env").write_text(f"LLM_PROVIDER=openai\nLLM_MODEL=m\nLLM_BASE_URL={URL}\n")
    options = HostOptions(config=str(here / "host.toml"))
    parts = read_parts(options, HostEnvironment(here / ".env"), demo_server)
    assert parts.llm is not None
    config = parts.llm._provider._config  # type: ignore[attr-defined]
    assert config.base_url == "http://mine/v1"
    with pytest.raises(UsageError, match=r"LLM_BASE_URL in .*: expected an http"):
        del os.environ["OPENAI_API_KEY"]
        start(here, "LLM_PROVIDER=openai\nLLM_MODEL=m\nLLM_BASE_URL=nowhere\n")


@pytest.mark.rule("HOST-42")
def test_file_takes_no_value_of_the_environment(tmp_path: Path) -> None:
    text = "HERE=x\nA=${HERE}/${SECRET}\nB=${SECRET:-none}\nC='$SECRET'\n"
    found = environment(tmp_path, text, SECRET="hush")
    assert found.load() == []
    assert found.from_file == {"HERE": "x", "A": "x/", "B": "none", "C": "$SECRET"}


@pytest.mark.rule("HOST-50")
def test_bounds_of_turns_are_settings(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "retry_attempts": 1,
        "retry_delay_ms": 2,
        "max_rounds": 3,
        "max_repeats": 4,
        "turn_timeout_ms": 5,
        "approval_timeout_ms": 6,
    }
    variables = {**given, "first_token_timeout_ms": 7}
    names = {f"FOUNDATION_RT_HOST__{name.upper()}": str(each) for name, each in variables.items()}
    monkeypatch.setattr(os, "environ", {"HOME": str(here), **names})
    environment = HostEnvironment(here / ".env")
    parts = read_parts(HostOptions(), environment, demo_server)
    assert {name: getattr(parts.turns, name) for name in given} == given
    assert parts.llm is not None
    assert parts.llm._config.first_token_timeout_ms == 7
    assert parts._connections()["handler_timeout"] == 30.006


@pytest.mark.rule("HOST-15")
def test_examples_that_cannot_be_written_or_have_no_source_are_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"mcp\.json cannot be written: No such file"):
        write_examples(tmp_path / "missing")

    def unknown(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(examples, "distribution", unknown)
    write_examples(tmp_path)
    compose = (tmp_path / "compose.yaml").read_text()
    assert "{source}" not in compose and "{volume}" not in compose
    assert "/source" not in compose and "foundation-rt" in compose


@pytest.mark.rule("HOST-05")
@pytest.mark.parametrize(
    ("value", "is_taken"),
    [("0.7", True), ("2", True), ("2.1", False), ("-1", False), ("warm", False), ("", False)],
)
def test_temperature_is_a_number_also_as_text(value: str, is_taken: bool) -> None:
    assert Temperature().accepts(value) is is_taken
