"""The command that installs an extra of this package (ERR-11)."""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from .shell_words import quote


def install_command(extra: str) -> str:
    """Return the command that installs an extra into the environment of this process (ERR-11)."""
    python = quote(sys.executable)
    install = f"{python} -m pip install"
    if not find_spec("pip"):
        is_uv_there = shutil.which("uv") is not None
        install = (
            f"uv pip install -p {python}" if is_uv_there else f"{python} -m ensurepip && {install}"
        )
    name = "foundation-rt"
    try:
        distribution(name)  # of a checkout too: pip adds what its extra lacks
    except PackageNotFoundError:
        name = str(Path(__file__).parents[2])
    return f"{install} {quote(f'{name}[{extra}]')}"
