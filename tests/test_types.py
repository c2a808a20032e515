"""Type checkers and the code of users: the examples, and what the public names promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foundation_rt import Server
from tests.lab.programs import pyright
from tests.trace import ROOT

EXAMPLES = ROOT / "foundation_rt" / "apps" / "examples"
TYPED = ROOT / "tests" / "lab" / "typed"
PROMISES = [TYPED / f"{name}.py" for name in ("user_types", "typing_check", "client_typing_check")]


@pytest.mark.rule("EXAMPLE-03", "TYPED-01", "EMBED-01")
def test_pyright_finds_nothing_in_code_of_users(tmp_path: Path) -> None:
    assert pyright.problems([EXAMPLES, *PROMISES], tmp_path) == []


@pytest.mark.rule("EMBED-11")
def test_an_editor_completes_every_method_of_a_server(tmp_path: Path) -> None:
    """Those of features as well, whose modules a server imports when it needs them."""
    text = "from foundation_rt import Server\n\nserver = Server()\nserver."
    public = {name for name in vars(Server) if not name.startswith("_")}
    assert {"tool", "prompt", "mount", "method", "add_feature", "forward", "metrics"} <= public
    assert pyright.completions(text, tmp_path) >= public


@pytest.mark.rule("EXAMPLE-03", "TYPED-01", "EMBED-01")
def test_mypy_finds_nothing_in_code_of_users() -> None:
    """Wrong uses in them are marked as such; where one would pass, the mark is an error."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-incremental"]
    done = subprocess.run(
        [*command, *map(str, [EXAMPLES, *PROMISES])],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
