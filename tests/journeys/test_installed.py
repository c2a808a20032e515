"""What is installed: the wheel with each extra, in a new environment, makes its first call."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from foundation_rt.client import blocking
from tests.bounds import project
from tests.journeys.programs import HEAD, PROGRAMS
from tests.lab.login.oauth_world import running_world
from tests.lab.models.fake_models import KEY, running_models
from tests.lab.places.services import need_nats, need_redis, postgres_schema
from tests.lab.programs import python_environment
from tests.lab.programs.guides import GUIDES, README, blocks_of
from tests.lab.programs.program import end, home_at
from tests.lab.servers.http_server import free_port
from tests.lab.servers.process import PATIENCE
from tests.lab.sizes import cases
from tests.trace import ROOT

Extras = tuple[str, ...]

_INSTALL = re.compile(r"pip install (?:-\S+ )*[\"']?(?:\.(?!\w)|foundation-rt|\S+\.whl)(\S*)")
_ELSEWHERE = {"dev"}
"""The tests themselves need it, and run with it."""


def documented() -> set[Extras]:
    """Return the extras of each command that installs the runtime, in every document."""
    pages = [README, ROOT / "CONTRIBUTING.md", *GUIDES.glob("*.md")]
    found: set[Extras] = set()
    for page in pages:
        for rest in _INSTALL.findall(page.read_text("utf-8").replace("$(ls ", "")):
            named = re.search(r"\[([\w,-]+)\]", rest)
            found.add(tuple(sorted(named[1].split(","))) if named else ())
    return {each for each in found if not _ELSEWHERE & {*each}}


DOCUMENTED = documented()
FOLLOWED = {
    ("cli", "client", "http"),
    ("client", "http"),
    ("http", "migrate"),
    ("http-full", "metrics"),
}
"""The other journeys install these, by their guides."""
_BESIDE = {"redis": "http"}
"""What an extra adds to, if it does nothing alone."""
ALONE = [tuple({each, _BESIDE.get(each, each)}) for each in {*project()} - _ELSEWHERE - {""}]
EVERY = sorted({*DOCUMENTED, (), *(tuple(sorted(each)) for each in ALONE)})


@frozen
class Installed:
    """An environment, and a folder in which its programs run.

    Attributes:
        programs: the folder of its programs.
        folder: with `tools.py`, and the home of the programs.
    """

    programs: Path
    folder: Path

    def run(self, line: str, code: int = 0, **variables: str) -> str:
        """Run a command; return what it writes. Fail unless it ends so."""
        done = subprocess.run(
            shlex.split(line),
            cwd=self.folder,
            env=self.environment(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == code, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        """Return the variables of its programs."""
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        return {**home_at(self.folder), "PATH": path, **variables}

    def program(self, extra: str, *addresses: object) -> None:
        """Run the program of an extra."""
        (self.folder / "first.py").write_text(HEAD + PROGRAMS[extra])
        self.run(shlex.join(["python", "first.py", *map(str, addresses)]))

    @contextmanager
    def serving(self, line: str, **variables: str) -> Iterator[str]:
        """Run a server over HTTP, without keys; yield its URL."""
        port = free_port()
        with subprocess.Popen(
            [*shlex.split(line), "--http", f"127.0.0.1:{port}", "--no-auth"],
            cwd=self.folder,
            env=self.environment(variables),
            stderr=subprocess.PIPE,
        ) as process:
            try:
                assert process.stderr is not None
                log = b""
                while b"serving over HTTP" not in log:
                    line_of_log = process.stderr.readline()
                    assert line_of_log, log
                    log += line_of_log
                yield f"http://127.0.0.1:{port}/mcp"
                end(process, PATIENCE)
            finally:
                process.kill()


def forecast(url: str) -> None:
    with blocking.connect(url) as client:
        assert client.call("forecast", {"city": "Oslo"}).value()["city"] == "Oslo"


def call_in_process(at: Installed) -> None:
    assert "sunny" in at.run("foundation-rt call tools.py forecast city=Oslo")


def install_for_a_client(at: Installed) -> None:
    at.run("foundation-rt install codex tools.py --yes")
    assert "[mcp_servers.weather]" in (at.folder / ".codex" / "config.toml").read_text()
    assert "complete" in at.run("foundation-rt completion bash")


def call_over_http(at: Installed) -> None:
    with running_world() as world:
        world.scopes_needed = {}
        world.valid["token"] = ""
        header = "'Authorization: Bearer token'"
        assert "done" in at.run(f"foundation-rt call {world.url} echo --header {header}")


def authenticate_with_a_key(at: Installed) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (at.folder / "key.pem").write_bytes(pem)
    with running_world() as world:
        world.server = {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}
        at.program("client-oauth", world.url, world.issuer, at.folder / "key.pem")


def serve_over_http(at: Installed) -> None:
    with at.serving("foundation-rt serve tools.py") as url:
        forecast(url)


def serve_with_workers_and_limits(at: Installed) -> None:
    limit = {"FOUNDATION_RT_RATE_LIMIT__PER_TOOL": "100"}
    with at.serving("foundation-rt serve tools.py --workers 2", **limit) as url:
        forecast(url)


def ask_a_command(at: Installed) -> None:
    assert "hi" in at.run('foundation-rt ask --yes "/demo:echo message=hi"')


def ask_a_model(name: str, variable: str, path: str = "") -> Callable[[Installed], None]:
    def ask(at: Installed) -> None:
        with running_models(["It is sunny."]) as url:
            variables = {f"{name.upper()}_API_KEY": KEY, variable: url + path}
            line = f"foundation-rt ask --model {name}:fake-1 'How is it?'"
            assert "It is sunny." in at.run(line, **variables)

    return ask


def migrate_a_program(at: Installed) -> None:
    (at.folder / "old.py").write_text("from fastmcp import FastMCP\n\nmcp = FastMCP('a')\n")
    assert "+mcp = Server('a')" in at.run("foundation-rt migrate old.py")


def use_postgres(at: Installed) -> None:
    with postgres_schema() as (url, schema):
        at.program("postgres", url, schema)


def serve_tasks(at: Installed) -> None:
    with at.serving("foundation-rt task-server") as url, blocking.connect(url) as client:
        stored = client.call("mcp-tasks", {"tasks": [{"title": "Write docs"}], "waitMs": 20_000})
        assert not stored.is_error


def build_a_page(at: Installed) -> None:
    (at.folder / "index.md").write_text("# Docs\n")
    options = "-q -C -D extensions=myst_parser -D html_theme=furo"
    at.run(f"sphinx-build {options} . html")
    assert (at.folder / "html" / "index.html").exists()


def program(extra: str) -> Callable[[Installed], None]:
    return lambda at: at.program(extra)


FIRST_CALLS: dict[str, Callable[[Installed], None]] = {
    "": call_in_process,
    "cli": install_for_a_client,
    "client": call_over_http,
    "client-oauth": authenticate_with_a_key,
    "docs": build_a_page,
    "host": ask_a_command,
    "host-anthropic": ask_a_model("anthropic", "ANTHROPIC_BASE_URL"),
    "host-gemini": ask_a_model("gemini", "GOOGLE_GEMINI_BASE_URL"),
    "host-openai": ask_a_model("openai", "OPENAI_BASE_URL", "/v1"),
    "http": serve_over_http,
    "http-full": serve_with_workers_and_limits,
    "jsonschema": program("jsonschema"),
    "metrics": program("metrics"),
    "migrate": migrate_a_program,
    "nats": lambda at: at.program("nats", need_nats()),
    "openapi": program("openapi"),
    "otel": program("otel"),
    "postgres": use_postgres,
    "redis": lambda at: at.program("redis", need_redis()),
    "schedules": program("schedules"),
    "skills": program("skills"),
    "task-server": serve_tasks,
}


def test_every_extra_has_a_first_call() -> None:
    assert DOCUMENTED >= FOLLOWED
    assert FIRST_CALLS.keys() == project().keys() - _ELSEWHERE


@pytest.mark.parametrize(
    "extras", cases(sorted(DOCUMENTED - FOLLOWED), EVERY), ids=lambda each: ",".join(each) or "-"
)
def test_wheel_makes_its_first_call(extras: Extras, wheel: Path, tmp_path: Path) -> None:
    """In the usual size: what documents say to install; for hours, each extra alone too."""
    named = f"[{','.join(extras)}]" if extras else ""
    programs = python_environment.make(tmp_path / "environment", f"{wheel}{named}")
    folder = tmp_path / "folder"
    folder.mkdir()
    [tools] = {
        each.text for each in blocks_of(GUIDES / "tutorial.md") if "def forecast" in each.text
    }
    (folder / "tools.py").write_text(tools)
    for extra in extras or ("",):
        FIRST_CALLS[extra](Installed(programs, folder))


def test_distributions_have_the_license_and_nothing_that_is_made(distributions: Path) -> None:
    [source] = distributions.glob("*.tar.gz")
    [built] = distributions.glob("*.whl")
    with tarfile.open(source) as archive:
        sources = {each.name.partition("/")[2] for each in archive.getmembers()}
    with zipfile.ZipFile(built) as archive:
        modules = {*archive.namelist()}
    assert {"LICENSE", "README.md", "pyproject.toml", "foundation_rt/server.py"} <= sources
    assert [each for each in sources | modules if "__pycache__" in each or "/build/" in each] == []
    tops = {each.partition("/")[0].partition("-")[0] for each in modules}
    assert tops == {"foundation_rt"}
