"""The wheel that is installed in all journeys, and the reader of one."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.programs.journey import Journey
from tests.lab.programs.python_environment import UV
from tests.trace import ROOT


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the source distribution and the wheel that is built from it, once."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    built = shared / "distributions"
    with (shared / "distributions.lock").open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        if not built.exists():
            words = ("build", "--quiet", "--no-build-isolation", "--python", sys.executable)
            subprocess.run([UV, *words, "--out-dir", built, ROOT], check=True)
    return built


@pytest.fixture(scope="session")
def wheel(distributions: Path) -> Path:
    """Return the wheel."""
    [found] = distributions.glob("*.whl")
    return found


@pytest.fixture
def journey(tmp_path: Path, wheel: Path, request: pytest.FixtureRequest) -> Iterator[Journey]:
    """Yield a reader; in the end no command of the pages is left over, and the times are kept."""
    reader = Journey(tmp_path, wheel)
    yield reader
    request.node.user_properties.append(("journey", reader.told()))
