"""The output of `make demo`."""

from __future__ import annotations

import io
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foundation_rt.cli.main import main
from foundation_rt.cli.tour import Screen
from tests.lab.programs.terminal import Terminal
from tests.lab.servers import fork_server
from tests.lab.servers.process import PATIENCE, environment
from tests.trace import ROOT

NEEDS_MAKE = pytest.mark.skipif(shutil.which("make") is None, reason="make is not there")


@pytest.mark.rule("CLI-01", "LIFE-02", "CALL-05", "CALL-08", "TIME-02", "PROC-04")
def test_tour_shows_every_part_and_what_to_try_next() -> None:
    done = fork_server.run(
        [sys.executable, "-m", "foundation_rt.cli.tour"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    parts = re.split(r"^\d (?!server)", done.stdout, flags=re.MULTILINE)
    shown = {part.partition("  ")[0]: part for part in parts[1:]}
    expected = {
        "A call": r'✓ {"message":"hello"}',
        "A refusal: the schema is enforced": r"✗ INVALID_ARGUMENT: .*message must be string",
        "A deadline, here of 300 ms": r"✗ TIMEOUT",
        "Progress": r"━{30} page 12 of 12\n    ✓",
        "A question to the user": r"\? Who comes(?s:.*)> Ada(?s:.*)✓ Booked for 2 .* Ada",
        "A batch of 500 tasks, as one job": r"✓ 500 tasks are stored",
        "A gateway: two servers behind one": r"8 tools: (?s:.*)✓ .*Seen(?s:.*)✓ 9592",
        "One log record for each call": r"✓ echo(?s:.*)✗ echo(?s:.*)✗ sleep +[\d.]+ ms +TIMEOUT",
    }
    assert [*shown] == [*expected]
    for name, pattern in expected.items():
        assert re.search(pattern, shown[name]), shown[name]
    following = parts[-1].partition("What to try next")[2]
    commands = re.findall(r"^  foundation-rt (\S+)", following, re.MULTILINE)
    assert commands == ["inspect", "dev", "host", "help"]
    assert all(main(["help", command]) == 0 for command in commands)
    installs = following.index("pip install --editable '.[host]'")
    assert (
        following.index("foundation-rt inspect") < installs < following.index("foundation-rt dev")
    )
    guide = re.search(r"(\S+\.md), '(.*)'$", following, re.MULTILINE)
    assert guide and f"\n## {guide[2]}\n" in (ROOT / guide[1]).read_text("utf-8")
    assert "\x1b" not in done.stdout and "\r" not in done.stdout


@pytest.mark.rule("CLI-01", "CLI-19")
def test_narrow_terminal_gets_whole_texts_and_bars_that_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Tty()
    monkeypatch.setattr(sys, "stdout", out)
    for name, value in {"COLUMNS": "30", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    screen = Screen()
    screen.outcome("Booked for Ada Lovelace", "12.3 ms")
    screen.bar(1, 2, "page")
    screen.bar(2, 2, "page")
    screen.suggest([("foundation-rt inspect", "see its tools")])
    assert out.getvalue() == (
        "    ✓ Booked for Ada Lovelace\n      12.3 ms\n"
        "\r\x1b[K    ━━━━━───── page\r\x1b[K    ━━━━━━━━━━ page\n"
        "  foundation-rt inspect\n      see its tools\n"
    )


@pytest.mark.rule("CLI-31")
def test_tour_that_is_interrupted_ends_at_once(tmp_path: Path) -> None:
    program = (sys.executable, "-m", "foundation_rt.cli.tour")
    with Terminal(cwd=tmp_path, program=program) as terminal:
        terminal.wait_for("A call")
        terminal.signal(signal.SIGINT)
        assert terminal.exit_code() == 130
        assert "Traceback" not in terminal.text


@pytest.mark.rule("CONF-04")
def test_tour_fails_if_the_server_does_not_start() -> None:
    done = fork_server.run(
        [sys.executable, "-m", "foundation_rt.cli.tour"],
        env=environment({"logging.level": "loud"}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert "the tour has ended" in done.stderr and "loud" in done.stderr
    assert "Traceback" not in done.stderr


@NEEDS_MAKE
@pytest.mark.parametrize("target", ["demo", "install"])
def test_make_refuses_a_python_that_is_too_old_before_it_installs(
    tmp_path: Path, target: str
) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements-dev.txt"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "python"
    renamed = "import sys; sys.version_info = (3, 10, 12); exec(sys.argv[1])"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{renamed}" "$2"\n')
    old.chmod(0o755)
    made = ["make", target, f"PYTHON={old}"]
    done = subprocess.run(made, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"Python 3.11 or later; {old} is 3.10" in done.stderr
    assert not (tmp_path / ".venv").exists()


@NEEDS_MAKE
@pytest.mark.parametrize("target", ["demo", "install"])
def test_make_says_what_it_does_before_it_does_it(tmp_path: Path, target: str) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements-dev.txt"):
        shutil.copy(ROOT / name, tmp_path)
    stuck = tmp_path / "python"
    stuck.write_text('#!/bin/sh\n[ "$1" = -c ]\n')
    stuck.chmod(0o755)
    made = ["make", target, f"PYTHON={stuck}"]
    done = subprocess.run(made, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "making .venv" in done.stdout
