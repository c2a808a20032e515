"""When the checks of a server's tools are generated."""

from __future__ import annotations

import orjson
import pytest

from foundation_rt import ToolDefinition
from tests.lab.clock.counting import generations
from tests.lab.servers.fixture import ServerFixture
from tests.lab.servers.process import decode, serve

SCHEMA = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}}
CALL = {"name": "count_0", "arguments": {"text": "x"}}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "tests", "version": "0"},
}

APP = """
import sys
from foundation_rt import Server, ToolDefinition
from foundation_rt.base.jsonschema import codegen

noted = []


def execute(code, names):
    exec(code, names)
    noted.append(code)
    print("generated", len(noted), file=sys.stderr, flush=True)


codegen.exec = execute
server = Server("target")
for number in range(3):
    schema = {"type": "object", "properties": {"text": {"type": "string", "minLength": number}}}
    tool = ToolDefinition(f"count_{number}", "", schema)
    server.register(tool, lambda given, context: len(noted), inline=True)
"""


@pytest.mark.rule("REG-18")
def test_checks_are_there_once_a_server_is_composed() -> None:
    rig = ServerFixture()
    with generations() as noted:
        rig.server.register(ToolDefinition("echo", "", SCHEMA), lambda given, context: given)
        assert len(noted) == 0
        peer = rig.connect()
        assert len(noted) == 2  # of `health`, too
        peer.start("echo", {"text": ""})
        assert len(noted) == 2


@pytest.mark.rule("REG-18", "REG-20")
def test_over_stdio_checks_are_generated_when_nothing_waits_or_with_the_first_value() -> None:
    messages = (
        {"id": 0, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": "a", "method": "tools/call", "params": CALL},
    )
    together = [orjson.dumps({"jsonrpc": "2.0", **each}) + b"\n" for each in messages]
    with serve(APP, handshake=False) as server:
        server.write(b"".join(together))
        assert decode(server.answer("a")) == 1
        server.wait_until(lambda: "generated 4\n" in server.stderr, "all checks")
        assert server.call("count_1", text="x") == server.call("count_2", text="xx") == 4
        assert server.finish() == 0
