"""What the project is installed with, and the pages on its security, agree with the rest."""

from __future__ import annotations

import json
import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.bounds import QUICK_TESTS, ROOT, TESTS, pins, project

REQUIREMENTS = [Requirement(each) for some in project().values() for each in some]


@pytest.mark.parametrize(
    "requirement", [each for each in REQUIREMENTS if each.name != "foundation-rt"], ids=str
)
def test_lock_has_a_version_that_the_project_allows(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)]), "make lock"


def test_every_requirement_has_a_lower_bound() -> None:
    apart = {"foundation-rt", "mcp-server-git", "mcp-server-time"}  # whatever mcp takes
    for each in REQUIREMENTS:
        assert each.name in apart or ">=" in str(each.specifier)


def test_every_version_of_the_lock_has_hashes() -> None:
    text = (ROOT / "requirements-dev.txt").read_text("utf-8")
    entries = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert len(entries) >= len(pins())
    assert [each for each in entries if "--hash=sha256:" not in each] == []


def test_figures_have_what_every_extra_installs() -> None:
    measured = json.loads((ROOT / "spec/guide/figures/peers.json").read_text("utf-8"))["extras"]
    named = {each["name"]: each for each in measured}
    assert named.keys() == {f"foundation-rt[{extra}]" for extra in project() if extra}
    assert all(each["packages"] > 1 and each["megabytes"] > 1 for each in measured)


def test_bounds_are_tested_by_tests_that_exist() -> None:
    assert [each for each in TESTS if not (ROOT / each).is_file()] == []
    assert [each for each in QUICK_TESTS if not (ROOT / each).exists()] == []


def test_threat_model_names_rules_that_exist() -> None:
    text = (ROOT / "spec" / "threat-model.md").read_text("utf-8")
    named = set(re.findall(r"\b[A-Z]+-[0-9]+\b", text))
    assert len(named) > 40
    pages = (page.read_text("utf-8") for page in (ROOT / "spec").glob("*.md"))
    rules = {rule for page in pages for rule in re.findall(r"^\*\*([A-Z]+-\d+)\*\*", page, re.M)}
    assert named - rules == set()
