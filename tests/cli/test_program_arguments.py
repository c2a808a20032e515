"""Arguments for the program of an application, after `--`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.servers import fork_server

APP = """
import argparse, os
from foundation_rt import Server

parser = argparse.ArgumentParser()
parser.add_argument("--db", default="none")
given = parser.parse_args()
server = Server(given.db)

@server.tool
def db() -> str:
    import sys
    return " ".join([given.db, *sys.argv])
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "foundation_rt", *arguments]
    return fork_server.run(command, cwd=folder, capture_output=True, timeout=60, check=False)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


@pytest.mark.rule("CLI-38")
def test_program_gets_its_arguments_wherever_it_is_served(app: Path) -> None:
    called = run(app, "call", "shop.py", "db", "--", "--db", "a b")
    assert called.stdout.decode().strip().strip('"') == "a b shop.py --db a b"
    of_module = run(app, "call", "shop:server", "db", "--", "--db=x")
    assert of_module.stdout.decode().strip().strip('"') == "x shop --db=x"
    child = f"{sys.executable} -m foundation_rt serve shop.py -- --db c"
    assert b"c shop.py --db c" in run(app, "call", child, "db").stdout
    behind = f"{sys.executable} -m foundation_rt gateway shop.py -- --db g"
    assert b"g shop.py --db g" in run(app, "call", behind, "db").stdout
    assert b"checked" in run(app, "check", "shop.py", "--", "--db", "checked").stdout
    assert b"none" in run(app, "check", "shop.py").stdout
    # `--help` after `--` is the program's, and stdout the client's (PROC-16).
    assert b"--db DB" in run(app, "serve", "shop.py", "--", "--help").stderr


@pytest.mark.rule("CLI-38")
@pytest.mark.parametrize(
    "arguments", [("serve", "--", "--db", "x"), ("tools", "http://127.0.0.1:9/mcp", "--", "x")]
)
def test_arguments_without_a_program_are_wrong(app: Path, arguments: tuple[str, ...]) -> None:
    done = run(app, *arguments)
    assert done.returncode == 2 and b"-- goes with an APP" in done.stderr
