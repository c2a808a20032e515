"""The public conformance suite: how it is run, and what it says.

`@modelcontextprotocol/conformance` talks to a server over HTTP as a client would. It has a set of
required scenarios for each revision, and further ones that it runs without scoring (extensions,
and what its own reference servers can't pass yet). Here all of them count.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import orjson
from attrs import frozen

from tests.support import node

HERE = Path(__file__).parent
REVISIONS = ("2025-11-25", "2026-07-28")
PATIENCE = 300.0
"""Seconds a set of scenarios may take; it takes five."""

_SUMMARY = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed$", re.MULTILINE)


@frozen
class Check:
    """One check that did not succeed."""

    scenario: str
    name: str
    status: str
    """"FAILURE", or "WARNING" for what a server only should do."""
    message: str


@frozen
class Score:
    """What the suite said of one revision.

    Attributes:
        scenarios: (passed, failed) checks by scenario.
        complaints: the checks that failed or warned.
    """

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

    def __str__(self) -> str:
        lines = [
            f"  {check.status.lower()}: {check.scenario}: {check.name}: {check.message}"
            for check in self.complaints
        ]
        return "\n".join([*lines, f"{self.revision}: {self.passed} of {self.total} checks"])


def run(url: str, revision: str, results: Path) -> Score:
    """Run everything the suite has for a revision's servers.

    Args:
        url: the server's MCP endpoint.
        results: an empty folder, for what the suite writes.

    Raises:
        RuntimeError: the suite itself failed; with what it wrote.
    """
    suite = node.install(HERE) / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    ended = subprocess.run(
        [node.NODE, suite, "server", "--url", url, "--requirements", revision, "-o", results],
        env=node.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    scenarios = {
        name: (int(passed), int(failed)) for name, passed, failed in _SUMMARY.findall(ended.stdout)
    }
    if not scenarios:
        raise RuntimeError(f"the conformance suite failed:\n{ended.stdout}{ended.stderr}")
    return Score(revision, scenarios, tuple(_complaints(results)))


def _complaints(results: Path) -> list[Check]:
    """The checks that did not succeed, from the files the suite wrote, in their order."""
    return [
        Check(
            scenario=re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\d-]+Z$", "", file.parent.name),
            name=check["id"],
            status=check["status"],
            message=check.get("errorMessage", check["description"]),
        )
        for file in sorted(results.glob("*/checks.json"), key=lambda file: file.stat().st_mtime_ns)
        for check in orjson.loads(file.read_bytes())
        if check["status"] in ("FAILURE", "WARNING")
    ]
