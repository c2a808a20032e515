"""Values that would take long to check, through a real process: whoever comes next is served."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.servers.process import serve

APP = """
from __future__ import annotations
from dataclasses import dataclass
from typing import Annotated
from foundation_rt import Constraints, Server

server = Server("target")


@dataclass
class Plus:
    left: Plus | Times | int
    plus: Plus | Times | int


@dataclass
class Times:
    left: Plus | Times | int
    times: Plus | Times | int


@server.tool(inline=True)
def measure(x: Plus | Times | int) -> int:
    depth = 0
    while not isinstance(x, int):
        x, depth = x.left, depth + 1
    return depth


@server.tool(inline=True)
def steps(of: list[Annotated[float, Constraints(multiple_of=0.1)]]) -> int:
    return len(of)
"""


@pytest.mark.rule("SCHEMA-37", "CALL-08")
def test_values_that_took_for_ever_are_answered_and_so_is_what_follows() -> None:
    """The second one took 2^100 steps, the last one seconds."""
    value: Any = 1
    for _ in range(100):
        value = {"left": value, "times": 1}
    with serve(APP) as server:
        assert server.call("measure", x=value) == 100
        broken: Any = "no"
        for _ in range(100):
            broken = {"left": broken, "plus": 1, "times": 1}
        error = server.call("measure", x=broken)
        assert error["details"]["reason"] == "schema_validation"
        assert server.call("steps", of=[0.3] * 100) == 100
        error = server.call("steps", of=[0.3] * 250_000)
        assert (error["code"], error["details"]) == ("INVALID_ARGUMENT", {"reason": "too_complex"})
        assert server.request("ping")["result"] == {}
        assert server.finish() == 0
