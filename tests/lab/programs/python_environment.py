"""Environments of Python for programs that cannot share ours: another version of a package.

Packages come from a file of requirements that names every one of them with its version. They stay
below the environment of the tests until that file changes.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from tests.lab.places.services import need_registry

UV = Path(sys.executable).parent / "uv"

PATIENCE = 300.0
"""Seconds an installation may take."""


def install(requirements: Path) -> Path:
    """Install what a file of requirements names, once, and return the Python that has it.

    Processes that ask for the same one at the same time wait for the first of them.

    Without the registry the test is skipped.

    Raises:
        RuntimeError: the installation failed; with what it wrote.
    """
    environment = Path(sys.prefix) / "environments" / requirements.stem
    installed, python = environment / "installed.txt", environment / "bin" / "python"
    with requirements.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        if installed.exists() and installed.read_bytes() == requirements.read_bytes():
            return python
        _run("venv", "--quiet", "--clear", "--python", sys.executable, environment)
        _run("pip", "install", "--quiet", "--no-deps", "--python", python, "-r", requirements)
        shutil.copyfile(requirements, installed)
    return python


def make(environment: Path, *requirements: object) -> Path:
    """Make an environment with these packages and what they need; return its folder of programs.

    Raises:
        RuntimeError: the installation failed; with what it wrote.
    """
    _run("venv", "--quiet", "--python", sys.executable, environment)
    _run("pip", "install", "--quiet", "--python", environment, *requirements)
    return environment / "bin"


def _run(*words: object) -> None:
    command = [str(word) for word in (UV, *words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        need_registry(done.stderr)
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
