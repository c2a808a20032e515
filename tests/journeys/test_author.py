"""The author of a first tool: the tutorial, from nothing to a page and a desktop client."""

from __future__ import annotations

import orjson
from playwright.sync_api import expect

from foundation_rt.base.mcp_json import ServerFile
from foundation_rt.client import blocking
from foundation_rt.client.targets import server_of
from tests.lab.pages.chromium import chromium, shot, watched_page
from tests.lab.programs.guides import GUIDES
from tests.lab.programs.journey import Journey

FORECAST = {"city": "Oslo", "days": ["sunny"] * 3}


def test_first_tool_is_called_seen_tested_and_installed(journey: Journey) -> None:
    journey.follow(GUIDES / "tutorial.md")
    for start in ("pip install -e . ", "pip install -e '.[http]' ", "pip install -e '.[http,redis"):
        journey.leave(start, "test_installed.py installs each")
    journey.make_environment()
    journey.run("pip install -e '.[http,client,cli]'")
    journey.write("tools.py", "def forecast")
    assert "forecast" in journey.run("foundation-rt check tools.py")
    assert "0 refusals" in journey.run("foundation-rt check --portable tools.py")
    assert orjson.loads(journey.run("foundation-rt call tools.py forecast city=Oslo")) == FORECAST
    journey.reached("first call")
    journey.leave("foundation-rt serve tools.py", "the entry of the desktop client does")
    opened = journey.set_browser()
    with (
        journey.running("foundation-rt dev tools.py --open", "page"),
        chromium() as browser,
        watched_page(browser, opened()) as watched,
    ):
        page = watched.page
        page.get_by_role("link", name="forecast").click()
        page.get_by_label("city").fill("Oslo")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("article").first).to_contain_text("sunny")
        journey.reached("page")
        shot(page, "journey-dev")
    journey.write("test_tools.py", "def test_forecast")
    journey.run("pip install pytest")
    assert "1 passed" in journey.run("pytest")
    journey.answer("foundation-rt install claude-desktop tools.py", "[y/N]", "y")
    [file] = journey.folder.rglob("claude_desktop_config.json")
    entry = ServerFile.read(file).entry("weather", {})
    with blocking.connect(server_of(entry)) as client:
        assert client.call("forecast", {"city": "Oslo"}).value() == FORECAST
    journey.reached("desktop client")
    journey.finish()
