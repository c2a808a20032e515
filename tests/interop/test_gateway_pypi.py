"""PyPI's `mcp-server-time` and `mcp-server-git` behind one gateway, over stdio and HTTP."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.client import StdioServer, connect
from tests.lab.servers.http_server import serve_gateway
from tests.lab.servers.process import command


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not there")
    folder = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        subprocess.run(["git", "-C", str(folder), "config", name, value], check=True)
    return folder


@pytest.fixture
def target(transport: str, tmp_path: Path, repository: Path) -> Iterator[Any]:
    """Yield a gateway before both servers."""
    python = {"command": sys.executable}
    servers = {
        "time": {**python, "args": ["-m", "mcp_server_time", "--local-timezone", "Europe/Oslo"]},
        "git": {**python, "args": ["-m", "mcp_server_git", "--repository", str(repository)]},
    }
    file = tmp_path / "mcp.json"
    file.write_bytes(orjson.dumps({"mcpServers": servers}))
    if transport == "stdio":
        words = command("gateway", str(file))
        yield StdioServer(words[0], words[1:])
    else:
        with serve_gateway(str(file)) as gateway:
            yield gateway.url


@pytest.mark.parametrize(
    ("transport", "revision"), [("stdio", "2026-07-28"), ("http", "2025-11-25")]
)
async def test_time_and_git(target: Any, revision: str, repository: Path) -> None:
    async with connect(target, revision=revision) as client:
        names = {tool.name for tool in await client.list_tools()}
        assert names >= {"time__get_current_time", "time__convert_time", "git__git_commit"}
        noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        converted = await client.call("time__convert_time", noon)
        assert "T21:00:00+09:00" in converted.text
        wrong = await client.call("time__get_current_time", {"timezone": "Nowhere/Land"})
        assert wrong.is_error
        here = {"repo_path": str(repository)}
        (repository / "note.txt").write_text("one\n")
        await client.call("git__git_add", {**here, "files": ["note.txt"]})
        committed = await client.call("git__git_commit", {**here, "message": "Add a note"})
        assert not committed.is_error
        assert "Add a note" in (await client.call("git__git_log", here)).text
