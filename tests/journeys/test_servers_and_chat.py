"""Somebody with servers of five makers: a gateway before them, then the chat."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.lab.models.fake_models import KEY, running_models
from tests.lab.pages.chromium import chromium, shot, watched_page
from tests.lab.programs import node
from tests.lab.programs.guides import GUIDES
from tests.lab.programs.journey import Journey
from tests.lab.servers.http_server import free_port, serve_http
from tests.lab.sizes import LONG
from tests.trace import ROOT

CALL = {"call": "weather__forecast", "arguments": {"city": "Oslo"}}
PACKAGES = "@modelcontextprotocol/server-"


def others() -> dict[str, object]:
    """Return entries of servers beside those of the guide."""
    python = {"command": sys.executable}
    everything = {"command": "npx", "args": ["-y", f"{PACKAGES}everything"]}
    memory = {"command": "npx", "args": ["-y", f"{PACKAGES}memory"]}
    time = {**python, "args": ["-m", "mcp_server_time", "--local-timezone", "Europe/Oslo"]}
    few = {"time": time, "git": {**python, "args": ["-m", "mcp_server_git"]}}
    return {**few, "everything": everything, "memory": memory} if LONG else few


@pytest.mark.skipif(shutil.which("git") is None, reason="the server of git needs git")
def test_servers_of_others_are_one_endpoint_and_the_tools_of_a_chat(journey: Journey) -> None:
    journey.follow(GUIDES / "host.md")
    journey.follow(GUIDES / "gateway.md")
    journey.open(GUIDES / "tutorial.md")
    folder, port = journey.folder, free_port()
    # npx finds what is installed below its folder; where nothing is, it asks npm.
    (folder / "node_modules").symlink_to(node.install(ROOT / "tests" / "interop"))
    npx = folder / "home" / "npx"
    npx.write_text(f'#!/bin/sh\nexec "{node.NODE}" "{node.NPX}" "$@"\n')
    npx.chmod(0o755)
    path = (npx.parent, node.NODE.parent, journey.variable("PATH"))
    journey.set("PATH", os.pathsep.join(map(str, path)))
    journey.set("PORT", str(free_port()))
    journey.make_environment()
    journey.values = {
        "127.0.0.1:8000": f"127.0.0.1:{port}",
        "gateway status": f"gateway status http://127.0.0.1:{port}/mcp",
        "host-gemini": "host-openai",
    }
    journey.run("pip install -e '.[host,host-gemini]'")
    with journey.running("foundation-rt host   ", "http://127.0.0.1"):
        journey.reached("chat with the demo tools")
    journey.run("foundation-rt host --init")
    journey.run("cp .env.example .env")
    assert "OPENAI_API_KEY" in (folder / ".env").read_text("utf-8")
    (folder / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    journey.run("pip install -e '.[http,client]'")
    tools = journey.write("tools.py", "def forecast")
    key = "a-key-of-more-than-sixteen-characters"
    journey.set("CRM_TOKEN", key)
    crm = serve_http(tools, "--config", str(config(folder, key)))
    models = running_models([CALL], ["It is sunny."])
    with crm as served, models as url, chromium() as browser:
        journey.values |= {
            "https://crm.example.com/mcp": served.url,
            "http://127.0.0.1:11434": url,
        }
        file = json.loads(journey.block('"crm"'))
        file["mcpServers"] |= others()
        (folder / "mcp.json").write_text(json.dumps(file))
        with journey.running("foundation-rt gateway mcp.json --http", "serving over HTTP"):
            listed = journey.run("foundation-rt tools http://127.0.0.1:8000/mcp")
            owners = set(re.findall(r"^(\w+?)__", listed, re.MULTILINE))
            assert owners == file["mcpServers"].keys()
            assert "sunny" in journey.run("foundation-rt call http://127.0.0.1:8000/mcp weather")
            states = journey.run("foundation-rt gateway status")
            assert all(re.search(rf"{name}\s+ready", states) for name in file["mcpServers"])
            journey.reached("call through the gateway")
        journey.set("MCP_JSON_PATH", str(folder / "mcp.json"))
        start = "LLM_BASE_URL=http://127.0.0.1:11434/v1 foundation-rt host"
        with journey.running(start, "http://127.0.0.1") as host:
            [address] = re.findall(r"http://127\S+", host.text)
            with watched_page(browser, address) as watched:
                page = watched.page
                page.get_by_label("Message", exact=True).fill("How is it in Oslo?")
                page.keyboard.press("Enter")
                page.get_by_role("button", name="Allow once").click()
                expect(page.get_by_role("log")).to_contain_text("It is sunny.")
                shot(page, "journey-chat")
                journey.reached("answer of the model")
    journey.leave("foundation-rt host --store", "it is the same chat, with a file")
    for start in ("foundation-rt ask", "git diff | foundation-rt ask"):
        journey.leave(start, "test_installed.py asks")
    journey.finish()


def config(folder: Path, key: str) -> Path:
    """Write the configuration of the server that wants a token."""
    path = folder / "home" / "crm.json"
    path.write_text(json.dumps({"http": {"api_keys": [f"me:{key}"]}}))
    return path
