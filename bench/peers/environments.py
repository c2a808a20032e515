"""Environments of the contestants: virtual ones filled by pip, and folders filled by npm.

They hold what was asked for and what that depends on, so their packages can be counted and weighed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import orjson
from attrs import frozen

from bench.peers.contestants import NODE, RUNTIME, Contestant
from bench.report import say

_ROOT = Path(__file__).resolve().parents[2]
_SERVERS = Path(__file__).resolve().parent / "servers"
_INSTALL_SECONDS = 900

FOLDER = Path(sys.prefix) / "peers"
"""Where environments are kept: beside the packages of this one, so `make clean` removes them."""


class NotInstalledError(Exception):
    """A contestant cannot be had here; the message says why."""


@frozen
class Environment:
    """What a server runs in.

    Attributes:
        command: runs the server, without a port.
        version: of the package that is measured; None for a floor.
        packages: how many are installed.
        megabytes: what they take on the disk, with their bytecode.
    """

    command: list[str]
    version: str | None
    packages: int
    megabytes: float


def installed(contestant: Contestant) -> Environment:
    """Return an environment for the contestant; install it unless it is there.

    The runtime is installed from this checkout every time, as a user would have it.

    Raises:
        NotInstalledError: there is no npm, or nothing could be installed.
    """
    folder = FOLDER / contestant.folder
    if contestant.language == NODE:
        return _of_npm(contestant, folder)
    python = install_python(folder, contestant.requirements)
    [site] = folder.glob("lib/python*/site-packages")
    versions = {each.name: each.version for each in metadata.distributions(path=[str(site)])}
    version = None if contestant.is_floor else versions[contestant.name.partition("[")[0]]
    command = [python, str(_SERVERS / contestant.server)]
    return Environment(command, version, len(versions), _megabytes(site))


def present(contestant: Contestant) -> Environment:
    """Return the environment that this program runs in, if it has the packages.

    Raises:
        NotInstalledError: it lacks one.
    """
    if contestant.language == NODE:
        raise NotInstalledError("this is an environment of Python")
    try:
        versions = [metadata.version(each.partition("[")[0]) for each in contestant.requirements]
    except metadata.PackageNotFoundError as error:
        raise NotInstalledError(f"{error.name} is not in this environment") from None
    count = len(list(metadata.distributions()))
    version = None if contestant.is_floor else versions[0]
    command = [sys.executable, str(_SERVERS / contestant.server)]
    return Environment(command, version, count, _megabytes(Path(sys.prefix, "lib")))


def install_python(folder: Path, requirements: tuple[str, ...]) -> str:
    """Return the interpreter of a virtual environment with these packages alone.

    Raises:
        NotInstalledError: pip could not install them.
    """
    python = folder / "bin" / "python"
    local = [each for each in requirements if each.partition("[")[0] == RUNTIME]
    if local or not (folder / "installed").exists():
        say(f"installing {', '.join(requirements) or 'nothing'} into {folder}")
        venv.create(folder, clear=True, with_pip=False)
        wanted = [
            f"{_ROOT}{each.removeprefix(RUNTIME)}" if each in local else each
            for each in requirements
        ]
        if wanted:
            pip = [sys.executable, "-m", "pip", "--python", str(python)]
            _run([*pip, "install", "--quiet", "--disable-pip-version-check", *wanted])
        (folder / "installed").touch()
    return str(python)


def _of_npm(contestant: Contestant, folder: Path) -> Environment:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotInstalledError("there is no Node here")
    if not (folder / "installed").exists():
        say(f"installing {', '.join(contestant.requirements)} into {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        options = ("--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel", "error")
        _run([npm, "install", *options, *contestant.requirements])
        (folder / "installed").touch()
    # Node looks for packages beside the file of the program.
    server = shutil.copy(_SERVERS / contestant.server, folder)
    modules = folder / "node_modules"
    lock = orjson.loads((modules / ".package-lock.json").read_bytes())
    package = orjson.loads((modules / contestant.requirements[0] / "package.json").read_bytes())
    version = package["version"]
    return Environment([node, str(server)], version, len(lock["packages"]), _megabytes(modules))


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        raise NotInstalledError(lines[-1] if lines else str(error)) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(str(error)) from None


def _megabytes(folder: Path) -> float:
    files = (each for each in folder.rglob("*") if each.is_file() and not each.is_symlink())
    return sum(each.stat().st_size for each in files) / 1e6
