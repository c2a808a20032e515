"""A user of FastMCP with a server of 180 lines, who migrates it and serves it over HTTP."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from foundation_rt.client import blocking
from foundation_rt.client.errors import MCPError, ToolCallError
from tests.lab.programs.guides import GUIDES
from tests.lab.programs.journey import Journey
from tests.lab.servers.http_server import free_port

SERVER = Path(__file__).with_name("library_server.py")
FAUST = "9783150000014"


def test_server_of_fastmcp_is_migrated_and_serves(journey: Journey) -> None:
    journey.follow(GUIDES / "from-fastmcp.md")
    port = free_port()
    journey.values = {":8000": f":{port}", ".[http,migrate]'": ".[http,migrate]' pydantic"}
    journey.make_environment()
    journey.run("pip install -e '.[http,migrate]'")
    server = Path(shutil.copy(SERVER, journey.folder / "server.py"))
    difference = journey.run("foundation-rt migrate server.py", code=1)
    assert server.read_text("utf-8") == SERVER.read_text("utf-8")
    assert "+from foundation_rt import" in difference
    journey.run("foundation-rt migrate --write server.py", code=1)
    decide = re.findall(r"^server.py:\d+: decide: (.*)", journey.said, re.MULTILINE)
    assert len(decide) == 2
    assert all("remove it; set http.api_keys" in each for each in decide)
    remove_verifier(server)
    assert "catalogue_find" in journey.run("foundation-rt check server.py")
    journey.reached("migrated server")
    journey.run("export FOUNDATION_RT_HTTP__API_KEYS=")
    key = journey.variable("FOUNDATION_RT_HTTP__API_KEYS").split(":")[1]
    url = f"http://127.0.0.1:{port}/mcp"
    with journey.running("foundation-rt serve server.py", "serving over HTTP"):
        with pytest.raises(MCPError, match="401"):
            blocking.connect(url).list_tools()
        headers = {"Authorization": f"Bearer {key}"}
        with blocking.connect(url, headers=headers) as client:
            loan = client.call("lend", {"isbn": FAUST, "reader": "Ann"}).value()
            assert loan == {"isbn": FAUST, "reader": "Ann", "due": "2026-01-29", "renewals": 0}
            with pytest.raises(ToolCallError, match="Ann has it"):
                client.call("lend", {"isbn": FAUST, "reader": "Bob"}).value()
            with pytest.raises(ToolCallError, match="the library is closed"):
                client.call("sell", {"isbn": FAUST}).value()
            [found] = client.call("catalogue_find", {"words": "faust"}).value()
            assert found["year"] == 1808
        journey.reached("call over HTTP")
    journey.finish()


def remove_verifier(server: Path) -> None:
    """Do what migrate has left to decide: the login is a key of the configuration."""
    text = server.read_text("utf-8")
    for part in (
        r"^from fastmcp.*StaticTokenVerifier\n",
        r"^verifier = StaticTokenVerifier\((?s:.*?)^\)\n",
        r"^    auth=verifier,\n",
    ):
        text, count = re.subn(part, "", text, flags=re.MULTILINE)
        assert count == 1
    assert "fastmcp" not in text
    server.write_text(text, "utf-8")
