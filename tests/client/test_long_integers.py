"""Integers beyond 64 bits, from the caller to a server and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import Server
from foundation_rt.base.request_ids import UuidRequestIds
from foundation_rt.client import CallResult, InvalidArgumentsError
from foundation_rt.client.blocking import Client, connect
from foundation_rt.client.session.pending_requests import (
    PendingRequests,
    RequestReceived,
    encode_response,
)
from foundation_rt.client.targets import StdioServer
from foundation_rt.errors import ErrorCode
from tests.support.plain_server import PlainHttp

pytestmark = pytest.mark.usefixtures("forked")

LONG = [2**64, -(2**63) - 1, 10**25, 2**64 - 1]


@contextmanager
def connected(kind: str) -> Iterator[Client]:
    if kind == "stdio":
        script = Path(__file__).parents[1] / "support" / "plain_server.py"
        with connect(StdioServer(sys.executable, [str(script)])) as client:
            yield client
    else:
        with PlainHttp() as url, connect(url) as client:
            yield client


@pytest.mark.rule("CTOOL-20")
@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_long_integers_arrive_exact_in_both_directions(kind: str) -> None:
    with connected(kind) as client:
        for number in LONG:
            result = client.call("echo", {"n": number})
            for found in (result.structured, result.value()):
                assert found == {"n": number}
                assert type(found["n"]) is int
            assert result.text == f'{{"n": {number}}}'
        with pytest.raises(InvalidArgumentsError, match=f"must be at most {2**100}"):
            client.call("echo", {"n": 2**100 + 1})


@pytest.mark.rule("CTOOL-20")
def test_a_text_that_is_a_long_integer_has_it_as_its_value() -> None:
    value: Any = CallResult.read({"content": [{"type": "text", "text": str(2**70)}]}).value()
    assert (type(value), value) == (int, 2**70)


@pytest.mark.rule("CTOOL-20")
def test_a_server_of_this_process_gets_the_digits_and_refuses_them() -> None:
    """Its own rule (TYPED-16) refuses what no 64 bits hold; a float would have been rounded."""
    server = Server("numbers")

    @server.tool
    def double(number: int) -> int:
        return 2 * number

    with connect(server) as client:
        result = client.call("double", {"number": 2**64})
        assert result.error is not None
        assert result.error.code == ErrorCode.INVALID_ARGUMENT


@pytest.mark.rule("CTOOL-20")
def test_server_request_with_long_integer_id_is_answered_under_that_id() -> None:
    line = b'{"jsonrpc": "2.0", "id": 99999999999999999999, "method": "ping"}'
    [asked] = PendingRequests(UuidRequestIds()).receive(line, None)
    assert isinstance(asked, RequestReceived)
    assert b'"id":99999999999999999999' in encode_response(asked.request, result={})
