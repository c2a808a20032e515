"""Every module of the package is imported on Windows, which has no fcntl, fork or SIGHUP."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OF_ANOTHER_SYSTEM = {
    "foundation_rt.client.transports.orphan_guard"
    if sys.platform == "win32"
    else "foundation_rt.base.windows_files"
}

SCRIPT = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(f"{name}: {error!r}")
"""


def modules() -> list[str]:
    files = (each.relative_to(ROOT) for each in (ROOT / "foundation_rt").rglob("*.py"))
    names = (".".join(each.with_suffix("").parts) for each in files)
    return sorted({each.removesuffix(".__init__") for each in names} - OF_ANOTHER_SYSTEM)


@pytest.mark.rule("WIN-02")
def test_every_module_can_be_imported() -> None:
    names = [each for each in modules() if not each.endswith("__main__")]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *names],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
