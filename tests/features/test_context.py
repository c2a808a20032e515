"""What a handler is given besides its arguments."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from foundation_rt import AbortSignal, ToolContext, ToolDefinition
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.ids import UuidGenerator
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.protocol.principal import Principal
from tests.lab.servers.fixture import ServerFixture

UUID_4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
ANYTHING = {"type": "object"}


def call(
    rig: ServerFixture, params: dict[str, Any] | None = None
) -> tuple[dict[str, Any], ToolContext]:
    """Make one call; return the arguments and the context its handler was given."""
    given: list[tuple[dict[str, Any], ToolContext]] = []

    def keep(arguments: dict[str, Any], context: ToolContext) -> None:
        given.append((arguments, context))
        context.logger.info("in the handler", {"city": "Oslo"})

    rig.server.unregister("keep")
    rig.server.register(ToolDefinition("keep", "", ANYTHING), keep, inline=True)
    peer = rig.connect()
    peer.ask("tools/call", {"name": "keep", **(params or {})})
    assert peer.received[0]["result"]["isError"] is False
    [found] = given
    return found


@pytest.mark.rule("CALL-03", "CALL-11", "ID-04")
def test_a_context_carries_the_ids_of_its_call() -> None:
    rig = ServerFixture()
    _, context = call(rig, {"_meta": {"correlationId": "from the client"}})
    assert context.run_id == "00000000-0000-4000-8000-000000000001"
    assert context.correlation_id == "from the client"
    _, context = call(rig)
    assert context.run_id == "00000000-0000-4000-8000-000000000002"
    assert context.correlation_id == "00000000-0000-4000-9000-000000000001"
    [first, second] = rig.records
    assert (second["runId"], second["correlationId"]) == (context.run_id, context.correlation_id)
    assert first["correlationId"] == "from the client"


@pytest.mark.rule("AUTH-13", "CALL-11")
def test_a_context_goes_on_naming_who_called() -> None:
    rig = ServerFixture()
    peer = rig.connect()
    session = peer.connection.session
    caller, later = Principal("ann", frozenset(("all",))), Principal("ann")
    session.principal = caller
    named = []

    def look(arguments: dict[str, Any], context: ToolContext) -> None:
        session.principal = later  # as the next message of the session does, with a new token
        named.append(context.principal)

    rig.server.register(ToolDefinition("look", "", ANYTHING), look, inline=True)
    peer.ask("tools/call", {"name": "look"})
    peer.ask("tools/call", {"name": "look"})
    assert named == [caller, later]


@pytest.mark.rule("CALL-03", "ID-01")
def test_ids_that_are_generated_are_uuids() -> None:
    _, context = call(ServerFixture(id_generator=UuidGenerator()))
    assert UUID_4.fullmatch(context.run_id)
    assert UUID_4.fullmatch(context.correlation_id)
    assert context.run_id != context.correlation_id


@pytest.mark.rule("CALL-04")
@pytest.mark.parametrize("meta", [{}, {"correlationId": "c", "progressToken": 5, "x": {}}])
def test_meta_is_not_shown_to_handlers(meta: dict[str, Any]) -> None:
    arguments, context = call(ServerFixture(), {"arguments": {"a": 1}, "_meta": meta})
    assert arguments == {"a": 1}
    assert not any("meta" in name for name in dir(context))
    # `_meta` inside the arguments is an argument like any other.
    arguments, _ = call(ServerFixture(), {"arguments": {"_meta": 1}})
    assert arguments == {"_meta": 1}


@pytest.mark.rule("CALL-11", "LOG-05", "LIFE-07")
def test_what_a_handler_logs_carries_the_ids_of_its_call() -> None:
    rig = ServerFixture()
    _, context = call(rig)
    [line] = rig.logged("in the handler")
    assert line == {
        "timestamp": "2024-01-01T00:00:00.000Z",
        "level": "info",
        "message": "in the handler",
        "connectionCorrelationId": "00000000-0000-4000-a000-000000000001",
        "runId": context.run_id,
        "correlationId": context.correlation_id,
        "city": "Oslo",
    }
    assert context.logger is context.logger


@pytest.mark.rule("CALL-11")
def test_each_call_has_a_signal_and_a_logger_of_its_own() -> None:
    rig = ServerFixture()
    _, first = call(rig)
    _, second = call(rig)
    assert first.abort_signal is not second.abort_signal
    assert first.logger is not second.logger
    assert not first.abort_signal.aborted
    assert first.abort_signal.reason is None


@pytest.mark.rule("CALL-11", "EMBED-05")
def test_a_host_of_its_own_can_make_a_context() -> None:
    sink = MemorySink()
    signal = AbortSignal()
    context = ToolContext("run", "chain", signal, StructuredLogger(sink, ManualClock()))
    thread = threading.Thread(target=context.logger.warn, args=("from a thread",))
    thread.start()
    thread.join(20)
    [line] = sink.lines
    assert (line["runId"], line["correlationId"], line["level"]) == ("run", "chain", "warn")
    assert context.abort_signal is signal
    context.close_stream()  # there is none
    assert (context.session_key, context.cancel_grace_ms) == (None, 0)
