"""The public conformance suite: how it is run, and what it says.

`@modelcontextprotocol/conformance` talks to a server over HTTP as a client would, and is the server
that a client talks to. It has a set of required scenarios for each revision, and further ones that
it runs without scoring (extensions, and what its own reference servers can't pass yet). Skills are
in no set: their scenarios are run one by one. Here all of them count. How a client is authorized
(`auth/`) does not depend on the revision of the requests that it authorizes: all scenarios are run
in each.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
from attrs import frozen

from tests.lab.login.client import LoginClient
from tests.lab.programs import node

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
REVISIONS = ("2025-11-25", "2026-07-28")
PATIENCE = 300.0
"""Seconds a set of scenarios may take; it takes five."""

_SUMMARY = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed$", re.MULTILINE)
_CLIENTS = re.compile(r"^Client scenarios.*\n((?:  - .*\n)+)", re.MULTILINE)
_REQUIRED = re.compile(r"^  - (\S+)$", re.MULTILINE)
_AUTHORIZATION = re.compile(r"^  - (auth/\S+) \[", re.MULTILINE)
_HAS_FAILED = re.compile(r"^Client (exited with code|timed out)", re.MULTILINE)
_UNSCORED = re.compile(r"^    - (\S+) \[client\]$", re.MULTILINE)
_SKILLS = re.compile(r"^  - (sep-2640-\S+) \[extension\]$", re.MULTILINE)
_WITH_EXTENSIONS = "2026-07-28"
_TIMED = ("client-sse-retry-timing", "client-sse-last-event-id")

CHECKS = {
    ("server", "2025-11-25"): 83,
    ("server", "2026-07-28"): 241,
    # One less: a server that ends the stream of a call ends that to the gateway, not the client's.
    ("gateway", "2025-11-25"): 82,
    ("gateway", "2026-07-28"): 196,
    ("client", "2025-11-25"): 451,
    ("client", "2026-07-28"): 480,
    ("authorization", "every revision"): 3,
}
"""How many checks there are: a scenario that did not run is no success."""

ATTEMPTS = 5
"""How often it is seen when and with what a client comes back: on a busy machine it is late, or
the GET that listens is so late that the suite takes it for that. A wrong client is always wrong."""


@frozen
class Check:
    """One check that did not succeed."""

    scenario: str
    name: str
    status: str
    """"FAILURE", or "WARNING" for what only should be done."""
    message: str


@frozen
class Score:
    """What the suite said of one revision.

    Attributes:
        side: "server", "gateway", "client" or "authorization".
        scenarios: (passed, failed) checks by scenario.
        complaints: the checks that failed or warned.
    """

    side: str
    revision: str
    scenarios: dict[str, tuple[int, int]]
    complaints: tuple[Check, ...]

    @property
    def passed(self) -> int:
        """How many checks succeeded."""
        return sum(passed for passed, _ in self.scenarios.values())

    @property
    def total(self) -> int:
        """How many checks there were; warnings do not count."""
        return self.passed + sum(failed for _, failed in self.scenarios.values())

    @property
    def is_good(self) -> bool:
        """Whether all that there is to check was checked, and nothing was complained of."""
        return not self.complaints and self.passed == CHECKS[self.side, self.revision]

    def __str__(self) -> str:
        lines = [
            f"  {check.status.lower()}: {check.scenario}: {check.name}: {check.message}"
            for check in self.complaints
        ]
        score = f"{self.revision}, {self.side}: {self.passed} of {self.total} checks"
        return "\n".join([*lines, score])


def run_server(url: str, revision: str, side: str = "server") -> Score:
    """Run everything the suite has for a revision's servers.

    Args:
        url: the server's MCP endpoint.
        side: of the score.

    Raises:
        RuntimeError: the suite itself failed; with what it wrote.
    """
    with tempfile.TemporaryDirectory() as results:
        ended = _run("server", "--url", url, "--requirements", revision, "-o", results)
        complaints = [
            _complaint(re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\d-]+Z$", "", folder), check)
            for folder, check in _checks(Path(results))
            if check["status"] in ("FAILURE", "WARNING")
        ]
    scenarios = {
        name: (int(passed), int(failed)) for name, passed, failed in _SUMMARY.findall(ended.stdout)
    }
    if not scenarios:
        raise RuntimeError(f"the conformance suite failed:\n{ended.stdout}{ended.stderr}")
    if side == "server" and revision == _WITH_EXTENSIONS:
        for name in _SKILLS.findall(_run("list", "--server").stdout):
            scenarios[name], found = _run_skills(url, name)
            complaints += found
    return Score(side, revision, scenarios, tuple(complaints))


def _run_skills(url: str, scenario: str) -> tuple[tuple[int, int], list[Check]]:
    """How many checks of a scenario about skills a server passed and failed, and what to say."""
    asked = ["--url", url, "--scenario", scenario, "--spec-version", _WITH_EXTENSIONS, "--force"]
    with tempfile.TemporaryDirectory() as results:
        _run("server", *asked, "-o", results)
        checks = [check for _, check in _checks(Path(results))]
    statuses = [check["status"] for check in checks]
    bad = [check for check in checks if check["status"] in ("FAILURE", "WARNING", "SKIPPED")]
    complaints = [_complaint(scenario, check) for check in bad]
    return (statuses.count("SUCCESS"), statuses.count("FAILURE")), complaints


def run_authorization(client: LoginClient, port: int) -> Score:
    """Run everything the suite has for authorization servers; a person agrees to all of it.

    Args:
        client: a client of the authorization server, with the browser of the person.
        port: where the suite waits for the browser.

    Raises:
        RuntimeError: the suite itself failed; with what it wrote.
    """
    client.register(f"http://127.0.0.1:{port}/callback")
    page = f"{client.url}/oauth/authorize?"
    asked = ["--url", client.url, "--client-id", client.client_id, "--port", str(port)]
    asked += ["--resource", f"{client.url}/mcp"]
    with tempfile.TemporaryDirectory() as results:
        words = _words("authorization", *asked, "-o", results)
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=_environment()) as it:
            assert it.stdout is not None
            told = []
            for line in it.stdout:
                told.append(line)
                if line.startswith(page):
                    shown = client.browser.get(line.strip())
                    back = client.come_back(client.answer(shown))
                    client.browser.get(back.headers["location"])
        checks = list(_checks(Path(results)))
    if not checks:
        raise RuntimeError(f"the conformance suite failed:\n{''.join(told)}")
    statuses = [check["status"] for _, check in checks]
    counts = (statuses.count("SUCCESS"), statuses.count("FAILURE"))
    bad = (check for _, check in checks if check["status"] != "SUCCESS")
    complaints = tuple(_complaint("authorization", check) for check in bad)
    return Score("authorization", "every revision", {"authorization": counts}, complaints)


def run_client(revision: str, client: Path = HERE / "client.py") -> Score:
    """Run everything the suite has for a revision's clients, two scenarios at a time.

    Args:
        client: the program that is the client; it is given a URL.

    Raises:
        RuntimeError: the suite itself failed; with what it wrote.
    """
    names = client_scenarios(revision)
    with ThreadPoolExecutor(2) as pool:
        ran = list(pool.map(lambda name: _run_scenario(name, revision, client), names))
    scenarios = {name: counts for name, (counts, _) in zip(names, ran, strict=True)}
    complaints = [check for _, found in ran for check in found]
    return Score("client", revision, scenarios, tuple(complaints))


def client_scenarios(revision: str) -> list[str]:
    """Return the scenarios of a revision for clients, and those of authorization of all revisions.

    Raises:
        RuntimeError: the suite does not list any.
    """
    listed = _run("list", "--requirements", revision).stdout
    clients = _CLIENTS.search(listed)
    if clients is None:
        raise RuntimeError(f"the conformance suite lists nothing for clients:\n{listed}")
    names = _REQUIRED.findall(clients[1]) + _UNSCORED.findall(listed)
    others = [name for name in names if not name.startswith("auth/")]
    listed = _run("list", "--client").stdout
    skills = _SKILLS.findall(listed) if revision == _WITH_EXTENSIONS else []
    return others + skills + _AUTHORIZATION.findall(listed)


def _run_scenario(
    scenario: str, revision: str, client: Path
) -> tuple[tuple[int, int], list[Check]]:
    """How many checks of one scenario a client passed and failed, and what is to be said of it."""
    command = f"{sys.executable} {client}"
    asked = ["--command", command, "--scenario", scenario, "--spec-version", revision, "--force"]
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory() as results:
            ended = _run("client", *asked, "-o", results)
            checks = [check for _, check in _checks(Path(results))]
        bad = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
        if not any(check["id"] in _TIMED for check in bad):
            break
    statuses = [check["status"] for check in checks]
    complaints = [_complaint(scenario, check) for check in bad]
    if "SUCCESS" not in statuses or _HAS_FAILED.search(ended.stderr):
        # The suite is content with a client that has done nothing at all.
        complaints.append(Check(scenario, "the client itself", "FAILURE", ended.stderr))
    return (statuses.count("SUCCESS"), statuses.count("FAILURE")), complaints


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _words(*words), env=_environment(), capture_output=True, text=True, timeout=PATIENCE
    )


def _words(*words: str) -> list[str]:
    suite = node.install(HERE) / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    return [str(node.NODE), str(suite), *words]


def _environment() -> dict[str, str]:
    return {**node.environment(), "PYTHONPATH": str(REPOSITORY)}


def _checks(results: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each check with the name of its folder, from the files the suite wrote, in their order."""
    for file in sorted(results.rglob("checks.json"), key=lambda file: file.stat().st_mtime_ns):
        for check in orjson.loads(file.read_bytes()):
            yield file.parent.name, check


def _complaint(scenario: str, check: dict[str, Any]) -> Check:
    message = check.get("errorMessage", check["description"])
    return Check(scenario, check["id"], check["status"], message)
