"""A run of pytest in a process of its own, which finds the plugin by its entry point.

What is installed in the environment of the tests may be older than pyproject.toml, so its entry
points are written into a folder that the run looks into first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.lab.servers.process import PATIENCE
from tests.trace import ROOT


def run_pytest(folder: Path, *words: str) -> str:
    """Run pytest in a folder; return what it printed."""
    installed = folder / ".installed"
    _write_entry_points(installed / "this_checkout-0.dist-info")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout + done.stderr


def _write_entry_points(place: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plugins = project["entry-points"]["pytest11"].items()
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: this-checkout\nVersion: 0\n")
    lines = "".join(f"{name} = {module}\n" for name, module in plugins)
    (place / "entry_points.txt").write_text(f"[pytest11]\n{lines}")
