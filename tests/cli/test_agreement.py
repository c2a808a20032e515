"""A folder's servers run after the person has agreed to them: real processes and terminals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.client import connect
from tests.apps.gateway.test_faults import APP, entry, until_listed, write
from tests.apps.gateway.test_through import OLD, status_of
from tests.lab.host.process import host_process
from tests.lab.programs.terminal import Terminal
from tests.lab.servers import fork_server
from tests.lab.servers.http_server import free_port
from tests.lab.servers.process import PATIENCE, ServerProcess, command, environment

TOKEN = "ghp-correct-horse"
SCRIPT = f"touch ran; exec '{sys.executable}' '{APP}' notes"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder that lists a server, as a repository does that was cloned."""
    here = tmp_path / "project"
    here.mkdir()
    env = {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "PLAIN": "\u202eseen\u001b[2J"}
    listed = {"command": "sh", "args": ["-c", SCRIPT], "env": env, "alwaysAllow": ["*"]}
    write(here / "mcp.json", notes=listed)
    return here


def variables(folder: Path) -> dict[str, str]:
    """Return what the person's home is, and a secret of theirs."""
    home = folder.parent / "home"
    places = {f"XDG_{each}_HOME": str(home / each) for each in ("STATE", "DATA")}
    return {"HOME": str(home), "GITHUB_TOKEN": TOKEN, **places}


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run(
        command(*words),
        cwd=folder,
        env={**environment(), **variables(folder)},
        capture_output=True,
        text=True,
        input="",
        timeout=PATIENCE,
        start_new_session=True,  # it has no terminal, whoever runs the tests
    )


@pytest.mark.rule("CLI-84", "CLI-83", "GATE-58", "HOST-43")
@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["gateway"], "gateway"),
        (["gateway", "accept", "--lock", "mcp.lock"], "gateway"),
        (["gateway", "notes"], "tools notes"),
        (["host", "--port", "0"], "host"),
        (["ask", "hello"], "ask"),
        (["tools", "notes"], "tools notes"),
        (["check", "--portable", "notes"], "tools notes"),
        (["dev", "notes", "--port", "0"], "tools notes"),
        (["install", "cursor", "notes", "--yes"], "tools notes"),
    ],
)
def test_without_a_terminal_nothing_of_the_folder_runs(
    folder: Path, words: list[str], advice: str
) -> None:
    ended = run_in(folder, *words)
    assert ended.returncode in (1, 2)
    assert f"foundation-rt {advice} --trust" in ended.stderr
    assert not (folder / "ran").exists()
    assert TOKEN not in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.rule("CLI-84")
def test_trust_agrees_for_every_command_in_this_folder(folder: Path) -> None:
    assert "notes" in run_in(folder, "call", "notes", "echo", "text=x", "--trust").stdout
    assert (folder / "ran").exists()
    for words in (["tools", "notes"], ["gateway"], ["ask", "--model", "rules", "hello"]):
        assert run_in(folder, *words).returncode == 0
    moved = folder.rename(folder.with_name("moved"))
    assert run_in(moved, "tools", "notes").returncode == 2


@pytest.mark.rule("CLI-84", "MCPJSON-15")
def test_file_that_the_person_names_runs_unasked(folder: Path) -> None:
    assert run_in(folder, "tools", "notes", "--servers", "mcp.json").returncode == 0
    assert run_in(folder, "gateway", "mcp.json").returncode == 0


@pytest.mark.rule("CLI-84", "CLI-19")
def test_terminal_shows_the_whole_entry_and_asks_once(folder: Path) -> None:
    words, own = ("tools", "notes"), variables(folder)
    with Terminal(*words, cwd=folder, variables=own) as shown:
        text = shown.wait_for("[y/N]")
        assert json.dumps(SCRIPT) in text and 'alwaysAllow  ["*"]' in text
        assert '"${GITHUB_TOKEN}"' in text and "takes from your environment  GITHUB_TOKEN" in text
        assert "\u202e" not in text and TOKEN not in text
        last = text.rpartition("reached:")[2]
        assert "notes" in last and "touch ran" in last
        shown.type("n\n")
        assert shown.exit_code() == 2
    assert not (folder / "ran").exists()
    with Terminal(*words, cwd=folder, variables=own) as shown:
        shown.wait_for("[y/N]")
        shown.type("y\n")
        shown.wait_for("echo")
        assert shown.exit_code() == 0
    with Terminal(*words, cwd=folder, variables=own) as shown:
        assert shown.exit_code() == 0
        assert "[y/N]" not in shown.text


@pytest.mark.rule("CLI-86")
def test_question_fits_a_screen_and_takes_no_earlier_answer(folder: Path) -> None:
    own = variables(folder)
    with Terminal("tools", "notes", cwd=folder, variables=own, typed="y\n") as shown:
        shown.wait_for("[y/N]")
        shown.type("n\n")
        assert shown.exit_code() == 2
    listed = {
        "command": "sh",
        "args": ["-c", SCRIPT],
        "env": {f"V{n}": "x" * 40 for n in range(99)},
    }
    write(folder / "mcp.json", notes=listed)
    with Terminal("tools", "notes", cwd=folder, variables=variables(folder)) as shown:
        assert shown.exit_code() == 2
        assert "mcp.json" in shown.text and "[y/N]" not in shown.text
    assert not (folder / "ran").exists()


@pytest.mark.rule("MCPJSON-11", "GATE-58")
async def test_entry_that_changes_waits_and_others_go_on(folder: Path) -> None:
    file = folder / "mcp.json"
    write(file, one=entry("one"), two=entry("two"))
    words = ["gateway", "--trust", "--http", "127.0.0.1:0", "--no-auth"]
    line = ["env", "-C", str(folder), *command(*words)]
    with ServerProcess(line, {**environment(), **variables(folder)}) as process:
        url = str(process.record(message="serving over HTTP")["url"])
        changes = asyncio.Queue[str]()
        async with connect(url, revision=OLD, on_list_changed=changes.put_nowait) as client:
            await until_listed(client, changes, {"one__echo", "two__echo"}.issubset)
            write(file, one=entry("other"), two=entry("two"), three=entry("three"))
            await until_listed(client, changes, {"one__echo"}.isdisjoint)
            assert (await client.call("two__echo", {"text": "x"})).text == "two: x"
            for server in ("one", "three"):
                status = await status_of(client, server)
                assert status["state"] == "failed" and "--trust" in status["reason"]
            # Whatever agrees in this folder, the gateway goes on by itself.
            assert run_in(folder, "tools", "one", "--trust").returncode == 0
            await until_listed(client, changes, {"one__echo"}.issubset)
            assert (await client.call("one__echo", {"text": "x"})).text == "other: x"
            assert (await status_of(client, "three"))["state"] == "failed"
        process.signal(signal.SIGTERM)
        process.wait()


@pytest.mark.rule("HOST-43")
def test_file_that_env_names_waits_also_for_its_values(folder: Path) -> None:
    (folder / "mcp.json").rename(folder.parent / "servers.json")
    env = "MCP_JSON_PATH=../servers.json\nLLM_PROVIDER=rules\nGITHUB_TOKEN=x\n"
    (folder / ".env").write_text(env)
    assert "ask --trust" in run_in(folder, "ask", "hello").stderr
    assert not (folder / "ran").exists()
    assert run_in(folder, "ask", "--trust", "hello").returncode == 0
    assert (folder / "ran").exists()
    (folder / ".env").write_text("MCP_JSON_PATH=../servers.json\nLLM_PROVIDER=rules\n")
    named = run_in(folder, "ask", "--servers", "../servers.json", "hello")
    assert named.returncode == 0


@pytest.mark.rule("HOST-40", "HOST-43")
def test_env_changes_no_setting_of_security_and_no_process(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "import os, pathlib\nfrom foundation_rt import Server\n"
        "pathlib.Path('seen').write_text(os.environ.get('SEEN', ''))\nserver = Server('x')\n"
    )
    words = ["-m", "foundation_rt", "serve", str(app)]
    listed: Mapping[str, Any] = {
        "command": sys.executable,
        "args": words,
        "env": {"SEEN": "${HTTPS_PROXY}"},
    }
    write(tmp_path / "mcp.json", x=listed)
    (tmp_path / ".env").write_text(
        "FOUNDATION_RT_HTTP__NO_AUTH=true\nFOUNDATION_RT_HOST__APPROVE_ALL=true\n"
        "HTTPS_PROXY=http://127.0.0.1:9\nXDG_STATE_HOME=.\nLOG_LEVEL=debug\n"
    )
    home = {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state")}
    with host_process(tmp_path, "--trust", env=home) as host:
        assert "token=" in host.url
    log = host.process.stderr  # whole only now: records are written in the background
    for name in ("HTTP__NO_AUTH", "HOST__APPROVE_ALL"):
        assert f"FOUNDATION_RT_{name} in .env does not count" in log
    assert (tmp_path / "seen").read_text() == "http://127.0.0.1:9"
    assert (tmp_path / "state").exists() and not (tmp_path / "foundation-rt").exists()


@pytest.mark.rule("CLI-80")
def test_modules_of_the_folder_are_not_taken_for_those_of_the_runtime(folder: Path) -> None:
    for name in ("foundation_rt", "orjson", "attrs"):
        (folder / f"{name}.py").write_text("open('ran', 'w').close(); raise SystemExit(9)\n")
    script = Path(sys.executable).with_name("foundation-rt")
    words = ["serve", "--http", f"127.0.0.1:{free_port()}", "--workers", "2", "--no-auth"]
    line = ["env", "-C", str(folder), str(script), *words]
    with ServerProcess(line, {**environment(), **variables(folder)}) as process:
        process.record(message="serving over HTTP")
        process.signal(signal.SIGTERM)
        process.wait()
    assert not (folder / "ran").exists()
    app = folder.parent / "tools.py"
    app.write_text("from foundation_rt import Server\nserver = Server('x')\n")
    install = [script, "install", "cursor", app, "--yes"]
    subprocess.run(install, cwd="/", env={**environment(), **variables(folder)}, check=True)
    file = folder.parent / "home" / ".cursor" / "mcp.json"
    [installed] = json.loads(file.read_text())["mcpServers"].values()
    started = subprocess.run(
        [installed["command"], *installed["args"]],
        cwd=folder,
        env={**os.environ, **installed.get("env", {})},
        input=b"",
        timeout=PATIENCE,
        capture_output=True,
    )
    assert started.returncode == 0 and not (folder / "ran").exists()
