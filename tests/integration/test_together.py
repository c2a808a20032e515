"""Calls that are read together are answered in their order, however they are written."""

from __future__ import annotations

import sys

import orjson
import pytest

from tests.lab.servers import fork_server

_OPENING = [
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25"},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


@pytest.mark.rule("PROC-09", "PROC-03")
@pytest.mark.parametrize("size", [1, 300, 5000])
def test_calls_that_arrive_together_are_answered_in_their_order(size: int) -> None:
    calls = [
        {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"message": "x" * size}},
        }
        for number in range(1, 200)
    ]
    done = fork_server.run(
        [sys.executable, "-m", "foundation_rt", "serve"],
        input=b"".join(orjson.dumps(each) + b"\n" for each in [*_OPENING, *calls]),
        capture_output=True,
        timeout=40,
        check=True,
    )
    answers = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == list(range(200))
    assert not any(answer["result"]["isError"] for answer in answers[1:])
