"""pyright (npm), as an editor runs it, over files of this repository."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson

from tests.support import node
from tests.trace import ROOT

PATIENCE = 300.0


def problems(paths: Sequence[Path], folder: Path) -> list[str]:
    """Return what pyright, strict, finds in files and folders, and in unneeded `type: ignore`.

    Args:
        paths: files and folders below the repository.
        folder: an empty one, for the configuration.

    Raises:
        RuntimeError: it checked nothing.
    """
    program = node.install(ROOT / "tests" / "interop") / "pyright" / "index.js"
    settings = {
        "include": [str(path.relative_to(ROOT)) for path in paths],
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": True,
    }
    # Paths in it are relative to it.
    (folder / "pyrightconfig.json").write_bytes(orjson.dumps(settings))
    for each in {path.relative_to(ROOT).parts[0] for path in paths}:
        (folder / each).symlink_to(ROOT / each)
    done = subprocess.run(
        [node.NODE, program, "--project", folder, "--pythonpath", sys.executable, "--outputjson"],
        env=node.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    try:
        report = orjson.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"pyright failed: {done.stdout}{done.stderr}") from None
    if report["summary"]["filesAnalyzed"] < len(paths):
        raise RuntimeError(f"pyright has checked nothing: {report['summary']}")
    return [
        f"{each['file']}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in report["generalDiagnostics"]
    ]
