"""A span for every call, with its context from the client and its end as the client saw it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foundation_rt import Server, ToolContext
from foundation_rt.features.tracing import Tracing
from foundation_rt.testing import TestClient
from tests.lab.apps.observed import call_everything, converse, make_server
from tests.lab.servers.engine import EngineHarness, HeldHandler

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}


class Tracer:
    """A provider that keeps its spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.middleware = Tracing(self.provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    @property
    def span(self) -> ReadableSpan:
        [span] = self.spans
        return span


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    tracer = Tracer()
    yield tracer
    tracer.provider.shutdown()


def traced(tracer: Tracer) -> Server:
    server = make_server()
    server.middleware(tracer.middleware)
    return server


def add(meta: dict[str, Any] | None = None) -> Any:
    """Return a conversation that is one call."""

    async def talk(client: TestClient) -> None:
        params: dict[str, Any] = {"name": "add", "arguments": {"a": 1, "b": 2}}
        await client.request("tools/call", params | ({} if meta is None else {"_meta": meta}))

    return talk


@pytest.mark.rule("OPS-16", "OPS-28")
def test_call_is_a_span_with_the_attributes_of_the_conventions(tracer: Tracer) -> None:
    converse(traced(tracer), add({"correlationId": "c"}))
    span = tracer.span
    assert span.name == "tools/call add"
    assert span.kind is trace.SpanKind.SERVER
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "foundation_rt"
    attributes = dict(span.attributes or {})
    assert attributes.pop("foundation_rt.run_id")
    assert attributes == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "jsonrpc.request.id": "00000000-0000-4000-b000-000000000002",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "foundation_rt.correlation_id": "c",
    }
    assert span.status.status_code is trace.StatusCode.UNSET


@pytest.mark.rule("OPS-22", "OPS-23", "OPS-16", "OPS-18")
def test_every_feature_is_traced_with_its_error(tracer: Tracer) -> None:
    converse(traced(tracer), call_everything)
    found = [
        (span.name, dict(span.attributes or {}).get("error.type"), span.status.status_code.name)
        for span in tracer.spans
    ]
    assert found == [
        ("tools/call add", None, "UNSET"),
        *[("tools/call fails", "tool_error", "ERROR")] * 3,
        ("resources/read", None, "UNSET"),
        ("resources/read", "-32002", "ERROR"),
        ("prompts/get review", None, "UNSET"),
        ("completion/complete", None, "UNSET"),
    ]
    by_name = {span.name: dict(span.attributes or {}) for span in tracer.spans}
    assert by_name["resources/read"]["mcp.resource.uri"] == "data://lost"
    assert by_name["resources/read"]["rpc.response.status_code"] == "-32002"
    assert by_name["resources/read"]["foundation_rt.error_code"] == "NOT_FOUND"
    assert by_name["prompts/get review"]["gen_ai.prompt.name"] == "review"


@pytest.mark.rule("OPS-18")
def test_only_errors_hidden_from_the_client_are_recorded_as_exceptions(tracer: Tracer) -> None:
    converse(traced(tracer), call_everything)
    failed = [span for span in tracer.spans if span.name == "tools/call fails"]
    assert [span.status.description for span in failed] == [None, "Nowhere.", None]
    assert [len(span.events) for span in failed] == [0, 0, 1]
    [event] = failed[2].events
    assert dict(event.attributes or {})["exception.type"] == "LookupError"


@pytest.mark.rule("OPS-16")
@pytest.mark.parametrize("way", ["task", "worker", "inline"])
def test_spans_of_a_handler_are_children(tracer: Tracer, way: str) -> None:
    server = Server("s")
    server.middleware(tracer.middleware)
    inner = tracer.provider.get_tracer("handler")

    if way == "task":

        @server.tool(name="tool")
        async def task() -> None:
            with inner.start_as_current_span("inner"):
                await asyncio.sleep(0)
    else:

        @server.tool(name="tool", inline=way == "inline")
        def plain() -> None:
            with inner.start_as_current_span("inner"):
                pass

    async def talk(client: TestClient) -> None:
        await client.call("tool")

    converse(server, talk)
    below, above = tracer.spans
    assert (below.name, above.name) == ("inner", "tools/call tool")
    assert below.parent is not None and above.context is not None
    assert below.parent.span_id == above.context.span_id


@pytest.mark.rule("OPS-28")
@pytest.mark.parametrize(
    ("transport", "network"), [("stdio", "pipe"), ("http", "tcp"), ("memory", None)]
)
def test_span_names_the_transport(tracer: Tracer, transport: Any, network: str | None) -> None:
    async def talk(client: TestClient) -> None:
        client.connection.session.transport_type = transport
        await add()(client)

    converse(traced(tracer), talk)
    assert dict(tracer.span.attributes or {}).get("network.transport") == network


# -- its parent


@pytest.mark.rule("OPS-17")
def test_parent_span_comes_from_the_client(tracer: Tracer) -> None:
    server, seen = Server("s"), []
    server.middleware(tracer.middleware)

    @server.tool(name="add")
    def handler(a: int, b: int) -> None:
        seen.append(baggage.get_all())

    converse(server, add(PARENT | {"tracestate": "vendor=1", "baggage": "user=alice"}))
    parent = tracer.span.parent
    assert parent is not None
    assert (f"{parent.trace_id:032x}", f"{parent.span_id:016x}") == (TRACE, SPAN)
    assert parent.is_remote
    assert parent.trace_state.get("vendor") == "1"
    assert tracer.span.links == ()
    assert [dict(each) for each in seen] == [{"user": "alice"}]


@pytest.mark.rule("OPS-17")
@pytest.mark.parametrize("meta", [None, {}, PARENT])
def test_the_span_of_the_transport_is_linked_or_the_parent(
    tracer: Tracer, meta: dict[str, Any] | None
) -> None:
    async def talk(client: TestClient) -> None:
        around = tracer.provider.get_tracer("transport").start_as_current_span("POST")
        with around as span:
            await add(meta)(client)
            contexts.append(span.get_span_context())

    contexts: list[trace.SpanContext] = []
    converse(traced(tracer), talk)
    call = next(span for span in tracer.spans if span.name.startswith("tools/call"))
    [post] = contexts
    assert call.parent is not None
    if meta == PARENT:
        assert f"{call.parent.span_id:016x}" == SPAN
        assert [link.context.span_id for link in call.links] == [post.span_id]
    else:
        assert call.parent.span_id == post.span_id
        assert call.links == ()


HOSTILE: list[Any] = [
    {"traceparent": None},
    {"traceparent": 5},
    {"traceparent": ["00"]},
    {"traceparent": ""},
    {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
    {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
    {"traceparent": f"00-{TRACE}-{SPAN}"},
    {"traceparent": "00-" + "z" * 32 + f"-{SPAN}-01"},
    {"traceparent": "x" * 1_000_000},
    {"tracestate": "vendor=1"},
    {"baggage": "user=alice"},
]


@pytest.mark.rule("OPS-17")
@pytest.mark.parametrize("meta", HOSTILE, ids=lambda meta: str(meta)[:40])
def test_invalid_trace_context_is_ignored(tracer: Tracer, meta: dict[str, Any]) -> None:
    converse(traced(tracer), add(meta))
    assert tracer.span.parent is None


@pytest.mark.rule("OPS-17")
@pytest.mark.parametrize("key", ["tracestate", "baggage"])
@pytest.mark.parametrize("value", [7, None, {"a": 1}, "=,;=", "x=" + "y" * 9_000])
def test_malformed_tracestate_or_baggage_is_ignored(tracer: Tracer, key: str, value: Any) -> None:
    converse(traced(tracer), add(PARENT | {key: value}))
    assert tracer.span.parent is not None
    assert f"{tracer.span.parent.trace_id:032x}" == TRACE


TRACER = Tracer()


@pytest.mark.rule("OPS-17")
@given(
    meta=st.dictionaries(
        st.sampled_from(["traceparent", "tracestate", "baggage"]),
        st.text() | st.text("0123456789abcdef-=,;", max_size=60) | st.integers(-9, 9),
    )
)
def test_malformed_trace_context_does_not_break_a_call(meta: dict[str, Any]) -> None:
    with EngineHarness(middleware=(TRACER.middleware,)) as bench:
        tool = bench.tool(lambda arguments, context: 1, inline=True)
        request_id = bench.peer.ask("tools/call", {"name": tool, "_meta": meta})
        bench.scheduler.settle()
        assert bench.peer.outcome(request_id) == 1
        bench.assert_over()
    TRACER.exporter.clear()


# -- how it ends


@pytest.mark.rule("OPS-18")
@pytest.mark.parametrize(
    ("event", "kind"),
    [("deadline", "timeout"), ("cancel", "cancelled"), ("disconnect", "disconnected")],
)
@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_span_of_an_abandoned_call_has_failed(
    tracer: Tracer, event: str, kind: str, ending: str
) -> None:
    with EngineHarness(middleware=(tracer.middleware,)) as bench:
        held = HeldHandler()
        request_id = bench.start(bench.tool(held))
        if event == "deadline":
            bench.wait(1000)
        elif event == "cancel":
            bench.peer.notify("notifications/cancelled", {"requestId": request_id})
        else:
            bench.peer.connection.close()
        assert tracer.spans == []
        held.end(LookupError("late") if ending == "raises" else 1)
        bench.scheduler.settle()
        bench.assert_over()
    assert dict(tracer.span.attributes or {})["error.type"] == kind
    assert tracer.span.status.status_code is trace.StatusCode.ERROR
    assert tracer.span.events == ()


@pytest.mark.rule("OPS-18")
def test_call_that_sends_a_server_request_has_not_failed(tracer: Tracer) -> None:
    server = Server("s")
    server.middleware(tracer.middleware)

    @server.tool
    async def where(ctx: ToolContext) -> list[str]:
        return [str(root.uri) for root in await ctx.roots()]

    async def talk(client: TestClient) -> None:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
        }
        params = {"name": "where", "arguments": {}, "_meta": meta}
        result = await client.request("tools/call", params)
        assert result["resultType"] == "input_required"

    converse(server, talk)
    assert tracer.span.status.status_code is trace.StatusCode.UNSET
    assert "error.type" not in (tracer.span.attributes or {})


@pytest.mark.rule("OPS-16")
def test_tracing_is_configured_and_needs_an_sdk_to_record() -> None:
    server = make_server({"telemetry": {"tracing": True}})
    converse(server, call_everything)
    assert server.runtime.engine.around is not None
    assert make_server().runtime.engine.around is None
