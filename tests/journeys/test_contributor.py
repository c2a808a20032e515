"""The reader of the first screen, and the contributor: both begin with a clone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.lab.pages.chromium import chromium, shot, watched_page
from tests.lab.programs.guides import README
from tests.lab.programs.journey import Journey
from tests.lab.sizes import LONG
from tests.trace import ROOT

pytestmark = pytest.mark.skipif(
    not LONG, reason="continuous integration goes this way itself; pip loads all anew, for minutes"
)
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
CLONE = "git clone ADDRESS foundation-rt"


@pytest.fixture
def reader(journey: Journey) -> Journey:
    """Return a reader who clones what is committed here, and installs the clone."""
    journey.wheel = None
    journey.values = {"ADDRESS": str(ROOT)}
    return journey


def test_first_command_of_the_readme_opens_the_page(reader: Journey) -> None:
    reader.follow(README)
    reader.open(CONTRIBUTING)
    reader.run(CLONE)
    reader.write("tools.py", "def largest")
    opened = reader.set_browser()
    with (
        reader.running("python3 -m venv .venv && . .venv/bin/activate && pip", "page"),
        chromium() as browser,
        watched_page(browser, opened()) as watched,
    ):
        page = watched.page
        page.get_by_role("link", name="largest").click()
        page.get_by_label("most").fill("1")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("article").first).to_contain_text(".venv")
        reader.reached("page")
        shot(page, "journey-readme")
    reader.leave("pip install -e '.[dev]' && python -m pytest", "it is what runs this")
    reader.finish()


def test_contributor_installs_runs_a_test_and_lints(reader: Journey) -> None:
    reader.follow(CONTRIBUTING)
    reader.run(CLONE)
    reader.run("python3 -m venv .venv && . .venv/bin/activate")
    reader.run("pip install -e '.[dev]'")
    assert "passed" in reader.run("python -m pytest tests/test_server.py -k word")
    reader.reached("one test")
    assert "Success" in reader.run("ruff check . && ruff format . && mypy")
    reader.reached("lint")
    reader.leave("python -m pytest -n 3", "it is what runs this")
    reader.finish()
