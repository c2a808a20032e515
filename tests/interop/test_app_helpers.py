"""Apps between our side and the official one, with the helpers of npm's `ext-apps`."""

from __future__ import annotations

import subprocess

import orjson
import pytest

from foundation_rt.client import APPS, App, AppCsp, StdioServer, connect
from tests.interop.servers import HERE
from tests.lab.programs import node
from tests.lab.servers.process import PATIENCE, command, environment

URI = "ui://orders/table"
EXTENSION = "io.modelcontextprotocol/ui"


@pytest.mark.rule("CAPP-01", "CAPP-02", "CAPP-03", "EXT-11")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_our_client_reads_apps_of_the_official_server(revision: str) -> None:
    node.install(HERE)
    target = StdioServer(str(node.NODE), [str(HERE / "apps_server.mjs")])
    async with connect(target, revision=revision, extensions=APPS) as client:
        tools = {each.name: each.ui for each in await client.list_tools()}
        assert tools["orders"].resource_uri == URI and not tools["refund"].for_model
        [entry] = await client.list_resources()
        csp = AppCsp(("https://api.example.com",))
        assert await client.read_app(entry) == App(URI, "<!doctype html>", csp, (), None, None)
        seen = (await client.call("orders")).value()
        assert seen == (APPS[EXTENSION] if revision == "2025-11-25" else None)


@pytest.mark.rule("APP-01", "APP-03", "APP-07", "APP-08")
def test_the_official_client_finds_our_apps() -> None:
    node.install(HERE)
    server = command("serve", "foundation_rt.examples.orders")
    done = subprocess.run(
        [str(node.NODE), str(HERE / "apps_client.mjs"), *server],
        env=environment(),
        capture_output=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    found = {
        "uri": URI,
        "forAppsAlone": ["refund_order"],
        "mimeType": True,
        "ui": {"prefersBorder": True},
    }
    declared = {EXTENSION: APPS[EXTENSION]}
    assert orjson.loads(done.stdout) == {
        "legacy": {**found, "declared": None},
        "2026-07-28": {**found, "declared": declared},
    }
