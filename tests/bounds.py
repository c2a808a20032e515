"""Tests at the ends of what `pyproject.toml` allows: `python -m tests.bounds lowest`, or `newest`.

Each makes an environment below build, with every extra of the runtime, prints what it has
installed, and runs the tests of what uses other packages.

`python -m tests.bounds python` runs the tests that are quick, and those of the event loop, with
each other Python that is promised and present.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).parent / "uv"

NOT_OF_THE_RUNTIME = {"dev", "docs", "host-anthropic", "host-gemini", "host-openai"}
BOUNDED_TOOLS = ("httpx2", "opentelemetry-sdk")
TOOLS = ["hypothesis", *BOUNDED_TOOLS, "pytest", "pytest-xdist"]
"""What the tests need besides; of those with bounds the lowest is tried too."""

TESTS = [
    "tests/agents/ledger/test_cron.py",
    "tests/client/results/test_schema_costs.py",
    "tests/client/transports/test_http.py",
    "tests/client/transports/test_http_vectors.py",
    "tests/base/jsonschema/test_compilation.py",
    "tests/base/jsonschema/test_rust_validator.py",
    "tests/features/test_metrics.py",
    "tests/features/test_rate_limit.py",
    "tests/features/test_tracing.py",
    "tests/http/test_app.py",
    "tests/http/test_oauth.py",
    "tests/http/test_uvicorn_protocol.py",
]

PYTHONS = ("3.14", "3.13", "3.12")
"""The versions that are promised beside the oldest, newest first."""

QUICK_TESTS = [
    "tests/client/test_stdio_servers.py",
    "tests/features/completions",
    "tests/features/forwarding",
    "tests/features/prompts",
    "tests/features/resources",
    "tests/features/signatures",
    "tests/features/subscriptions",
    "tests/features/tasks",
    "tests/features/typed",
    "tests/integration/test_http_process.py",
    "tests/kernel",
    "tests/protocol",
]


def project() -> dict[str, list[str]]:
    """Return the requirements of `pyproject.toml` by extra, the runtime's own as ""."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {"": read["dependencies"], **read["optional-dependencies"]}


def pins() -> dict[str, str]:
    """Return the versions of `requirements-dev.txt` by name, one where there are several."""
    lines = (ROOT / "requirements-dev.txt").read_text("utf-8").splitlines()
    found = (re.match(r"([a-z0-9.-]+)==([^ ;]+)", line) for line in lines)
    return {each[1]: each[2] for each in found if each}


def install(python: Path, which: str) -> None:
    """Install the runtime with its extras, and what the tests need.

    Args:
        python: of the environment.
        which: `lowest`, or `newest`, where upper bounds do not count.
    """
    extras = project()
    chosen = ",".join(sorted(extras.keys() - NOT_OF_THE_RUNTIME - {""}))
    tools = [f"{name}=={pins()[name]}" for name in TOOLS]
    options = ["--upgrade"]
    if which == "lowest":
        tools = [each for each in tools if not each.startswith(BOUNDED_TOOLS)]
        tools += [each for each in extras["dev"] if each.startswith(BOUNDED_TOOLS)]
        options = ["--resolution", "lowest-direct"]
    else:
        tools = TOOLS
        bounded = [Requirement(each) for some in extras.values() for each in some if "<" in each]
        overrides = python.parents[2] / "overrides.txt"
        overrides.write_text("".join(f"{each.name}\n" for each in bounded))
        options += ["--overrides", str(overrides)]
    run(UV, "pip", "install", "--quiet", "--python", python, *options, "-e", f".[{chosen}]", *tools)


def run(*words: object) -> None:
    """Run a program in the checkout; end with its exit code if it fails."""
    ended = subprocess.run([str(each) for each in words], cwd=ROOT, check=False)
    if ended.returncode:
        sys.exit(ended.returncode)


def other_pythons() -> dict[str, Path]:
    """Return the programs of those of `PYTHONS` that are here, but this one, by version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found: dict[str, Path] = {}
    for version in PYTHONS:
        named = shutil.which(f"python{version}")
        for each in [*([Path(named)] if named else ()), *pyenv.glob(f"{version}.*/bin/python3")]:
            asked = subprocess.run([each, "--version"], capture_output=True, text=True, check=False)
            if asked.stdout.startswith(f"Python {version}."):
                found.setdefault(version, each)
    return {each: at for each, at in found.items() if not sys.version.startswith(f"{each}.")}


def with_other_pythons() -> None:
    """Test with every other Python, with the versions of the lock."""
    others = other_pythons()
    for version in PYTHONS:
        if version not in others and not sys.version.startswith(f"{version}."):
            print(f"Python {version} was not tried: it is not here", flush=True)
    for version, program in others.items():
        folder = ROOT / "build" / "bounds" / version
        python = folder / "bin" / "python"
        run(UV, "venv", "--quiet", "--clear", "--python", program, folder)
        into = (UV, "pip", "install", "--quiet", "--python", python)
        run(*into, "--require-hashes", "--requirement", ROOT / "requirements-dev.txt")
        run(*into, "--no-deps", "--no-build-isolation", "--editable", ".")
        run(python, "-m", "pytest", "-n", "3", *QUICK_TESTS)


def main(which: str) -> None:
    """Test one end, or with every other Python."""
    if which == "python":
        with_other_pythons()
        return
    folder = ROOT / "build" / "bounds" / which
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    run(UV, "venv", "--quiet", "--clear", "--python", sys.executable, folder)
    install(python, which)
    print(f"{which} versions:", flush=True)
    run(UV, "pip", "freeze", "--quiet", "--python", python, "--exclude-editable")
    run(python, "-m", "pytest", "-n", "2", *TESTS)


if __name__ == "__main__":
    main(sys.argv[1])
