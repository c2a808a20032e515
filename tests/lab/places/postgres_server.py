"""A PostgreSQL server of a test's own, which can be stopped, started, and killed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from attrs import define

from tests.lab.places.services import lacking
from tests.lab.servers.http_server import free_port

_FOLDERS = (None, *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True))


@define
class PostgresServer:
    """See the module.

    Attributes:
        url: of its database.
    """

    url: str
    _folder: Path
    _port: int

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        options = (
            f"-p {self._port} -k {self._folder} -c listen_addresses=127.0.0.1 -c fsync=off"
            " -c max_connections=30"
        )
        log = str(self._folder / "log")
        _run("pg_ctl", "-D", str(self._folder / "data"), "-w", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; with the mode ``immediate`` as if its machine had failed."""
        _run("pg_ctl", "-D", str(self._folder / "data"), "-w", "-m", mode, "stop")


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server on a free port; without the programs of PostgreSQL the test is skipped."""
    if _program("initdb") is None:
        lacking("the programs of a PostgreSQL server are not there")
    folder = Path(mkdtemp(prefix="foundation-rt-postgres-"))
    try:
        if os.getuid() == 0:  # the server refuses to run as root
            shutil.chown(folder, "postgres")
        _run("initdb", "-D", str(folder / "data"), "-N", "-A", "trust", "-U", "test", "-E", "UTF8")
        port = free_port()
        server = PostgresServer(f"postgresql://test@127.0.0.1:{port}/postgres", folder, port)
        server.start()
        try:
            yield server
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                server.stop("immediate")
    finally:
        shutil.rmtree(folder)


def _program(name: str) -> str | None:
    return next(filter(None, (shutil.which(name, path=folder) for folder in _FOLDERS)), None)


def _run(name: str, *arguments: str) -> None:
    program = _program(name)
    assert program is not None
    user = "postgres" if os.getuid() == 0 else None
    subprocess.run(
        [program, *arguments],
        user=user,
        cwd="/",
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
    )
