"""The task server as it is put together: its configuration, its imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation_rt import ConfigError, UsageError
from foundation_rt.apps.task_server.app import create_task_server, default_database
from tests.apps.task_server.app.servers import task_server
from tests.lab.checks.public_imports import private_imports

PUBLIC = (
    "base.backoff",
    "base.config.sections",
    "base.database",
    "base.files",
    "client",
    "protocol.methods",
)
"""Modules, and packages with all of their modules, that are documented as public."""


@pytest.mark.rule("TASKS-06")
def test_defaults_fit_thousands_of_tasks() -> None:
    config = task_server().load_config()

    assert config.tools.max_payload_bytes == 16 * 2**20
    assert config.transport.max_line_bytes == config.http.max_body_bytes == 20 * 2**20
    assert config.resources.max_concurrent_executions == 200
    assert config.audit.enabled
    assert not config.telemetry.metrics and not config.rate_limit.is_set()


@pytest.mark.rule("TASKS-06")
def test_calls_over_http_are_counted_and_limited() -> None:
    config = task_server(over_http=True).load_config()

    assert config.telemetry.metrics
    assert (config.rate_limit.per_tool, config.rate_limit.window_ms) == (100, 60_000)
    assert set(config.rate_limit.tools) == {"mcp-tasks-from-file=10", "mcp-job-status=600"}


@pytest.mark.rule("TASKS-06", "TASKS-05")
def test_operator_overrides_every_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FOUNDATION_RT_AUDIT__ENABLED", "false")
    monkeypatch.setenv("FOUNDATION_RT_TASK_SERVER__MAX_BATCH", "7")
    file = tmp_path / "config.toml"
    file.write_text("[tools]\nmax_payload_bytes = 1000\n[task_server]\nread_only = true\n")
    server = create_task_server({"task_server": {"database": "sqlite:/nowhere"}}, config=file)
    config = server.load_config()

    assert not config.audit.enabled
    assert config.tools.max_payload_bytes == 1000
    assert server.get("mcp-tasks") is None


@pytest.mark.rule("TASKS-05")
def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_batch"):
        task_server(max_batch=0)
    with pytest.raises(ConfigError, match="database"):
        task_server(database="mysql://root:secret@db/tasks")


@pytest.mark.rule("TASKS-05")
async def test_largest_batch_is_that_of_the_settings() -> None:
    tool = task_server(max_batch=7).get("mcp-tasks")

    assert tool is not None
    assert tool.definition.input_schema["properties"]["tasks"]["maxItems"] == 7


@pytest.mark.rule("TASKS-08")
def test_formats_have_to_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOUNDATION_RT_TOOLS__CHECK_FORMATS", "false")

    with pytest.raises(UsageError, match="check_formats"):
        task_server()


@pytest.mark.rule("TASKS-01")
@pytest.mark.parametrize("is_set", [True, False])
def test_default_database_is_in_a_folder_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_set: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data") if is_set else "relative")
    home = tmp_path / "data" if is_set else tmp_path / ".local" / "share"

    assert default_database() == str(home / "foundation-rt" / "tasks.db")
    assert (home / "foundation-rt").stat().st_mode & 0o777 == 0o700


@pytest.mark.rule("TASKS-01")
def test_folder_that_cannot_be_made_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))

    with pytest.raises(UsageError, match="--database"):
        default_database()


@pytest.mark.rule("TASKS-07")
def test_task_server_imports_only_what_is_documented_as_public() -> None:
    assert not private_imports("apps.task_server", PUBLIC)
