"""What every call passes through, function by function; `python -m bench calls` runs it.

A ratio to the floor of the same run is comparable between machines and days.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from foundation_rt import Server, ToolContext
from foundation_rt.base.exact_json import dumps
from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.base.logs.redaction import Redactor
from foundation_rt.errors import ToolCompletionOutcome
from foundation_rt.features.typed.tool_signature import derive_tool
from foundation_rt.kernel.invocation import Invocation, Returned
from foundation_rt.kernel.records import completion_record
from foundation_rt.protocol.jsonrpc import parse

# Set by `python -m bench`, in whose environment this runs.
_ROUNDS, _ITERATIONS = map(int, os.environ.get("BENCH_IN_PROCESS", "400 100").split())

HANDSHAKE = (
    b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25"}}\n'
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)
LINE = (
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"order","arguments":'
    b'{"lines":[{"sku":"a-1","count":2},{"sku":"b-2","count":1}],"note":"soon"}}}'
)
ARGUMENTS = {"lines": [{"sku": "a-1", "count": 2}, {"sku": "b-2", "count": 1}], "note": "soon"}


@attrs.frozen
class Line:
    sku: str
    count: int


def order(lines: list[Line], note: str = "") -> int:
    """Count what is ordered."""
    return len(lines)


@pytest.fixture
def run(benchmark: Any) -> Callable[[Callable[[], object]], None]:
    """Measure a function without arguments."""

    def measure(function: Callable[[], object]) -> None:
        function()
        benchmark.pedantic(function, rounds=_ROUNDS, iterations=_ITERATIONS)

    return measure


@pytest.fixture
def begin() -> Callable[[], tuple[Any, Invocation]]:
    """Return a function that begins a call of a tool in the pure core."""
    server = Server("bench")
    server.tool(order)
    connection = server.connect(lambda line: None)
    connection.feed(HANDSHAKE)
    dispatcher, message = server.runtime.dispatcher, parse(LINE)

    def begin_one() -> tuple[Any, Invocation]:
        [call] = dispatcher.dispatch(connection.session, message)
        assert isinstance(call, Invocation)
        return dispatcher, call

    return begin_one


def test_parse(run: Any) -> None:
    run(lambda: parse(LINE))


def test_dispatch(run: Any, begin: Any) -> None:
    """The ten steps, without the handler."""

    def decide() -> None:
        dispatcher, call = begin()
        dispatcher.conclude(call, Returned(2), 1.0)

    run(decide)


def test_validate(run: Any) -> None:
    validate = compile_schema(derive_tool(order, ToolContext).input_schema).validate
    run(lambda: validate(ARGUMENTS))


def test_convert(run: Any) -> None:
    handler: Any = derive_tool(order, ToolContext, inline=True).handler
    run(lambda: handler(ARGUMENTS, None))


def test_encode(run: Any) -> None:
    result = {"content": [{"type": "text", "text": "x" * 200}], "isError": False}
    run(lambda: dumps({"jsonrpc": "2.0", "id": 7, "result": result}))


def test_redact(run: Any) -> None:
    redactor = Redactor()
    run(lambda: redactor.for_log({"arguments": ARGUMENTS, "token": "abc", "note": "password=x"}))


def test_record(run: Any, begin: Any) -> None:
    _, call = begin()
    run(lambda: completion_record(call, ToolCompletionOutcome.SUCCESS, None, 1.0))
