"""Tracing: a span for every call whose handler runs, by OpenTelemetry's conventions for MCP.

The parent is the W3C trace context in the request's `_meta` (SEP-414). The span that is current
where the request arrives, such as that of an HTTP server, is linked. The call's span is the current
span in the handler, in any thread, so the spans of the handler are its children.

Only the API of OpenTelemetry is used: the program that serves sets up an SDK, which decides where
spans go. Without an SDK nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..errors import ErrorCode, MissingExtraError, ToolError
from ..kernel.invocation import Phase
from ..protocol.content import ToolResult
from ..protocol.methods import TOOLS_CALL, facts
from ..version import __version__
from .forwarding.forwarder import ForwardedError, ForwardedRequest
from .handler_calls import json_rpc_code
from .server_requests.round_trips import InputRequired

try:
    from opentelemetry import trace
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.context import attach, detach, get_current
    from opentelemetry.propagators.composite import CompositePropagator
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise MissingExtraError("Tracing", "otel") from None

if TYPE_CHECKING:
    from ..kernel.engine.executor import Proceed
    from ..kernel.invocation import Invocation

_CARRIED = ("traceparent", "tracestate", "baggage")
_MAX_CARRIED = 8192  # characters: the longest baggage that W3C requires to be propagated

NETWORK = {"stdio": "pipe", "http": "tcp", "sse": "tcp"}
"""`network.transport` by the transport of a session."""

_TOOL_ERROR = "tool_error"

_ENDED_EARLY = {
    Phase.EXPIRED: "timeout",
    Phase.CANCELLED: "cancelled",
    Phase.DISCONNECTED: "disconnected",
    Phase.DISCONNECTED_THEN_EXPIRED: "disconnected",
}
"""`error.type` of a call whose client did not receive the result of the handler."""


@define(eq=False, repr=False)
class Tracing:
    """Middleware that creates the spans.

    Args:
        provider: receives the spans; by default the global one of the program.
    """

    _provider: trace.TracerProvider | None = None
    _tracer: trace.Tracer = field(init=False)
    _propagator: CompositePropagator = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._tracer = trace.get_tracer("foundation_rt", __version__, self._provider)
        self._propagator = CompositePropagator(
            [TraceContextTextMapPropagator(), W3CBaggagePropagator()]
        )

    async def __call__(self, call: Invocation, proceed: Proceed) -> Any:
        """Run the rest of the call within its span."""
        around = trace.get_current_span().get_span_context()
        token = attach(self._propagator.extract(_carried(call.meta), get_current()))
        try:
            sent = trace.get_current_span().get_span_context()
            links = [trace.Link(around)] if around.is_valid and sent != around else []
            return await self._trace(call, proceed, links)
        finally:
            detach(token)

    async def _trace(self, call: Invocation, proceed: Proceed, links: list[trace.Link]) -> Any:
        with self._tracer.start_as_current_span(
            _span_name(call),
            kind=trace.SpanKind.SERVER,
            attributes=_attributes(call),
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                value = await proceed()
            except BaseException as error:
                _note_error(span, call, error)
                raise
            _note_return(span, call, value)
            return value


def _carried(meta: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the trace context in `_meta`; the propagators ignore malformed values (OPS-17)."""
    found = {key: (meta or {}).get(key) for key in _CARRIED}
    return {
        key: value
        for key, value in found.items()
        if type(value) is str and len(value) <= _MAX_CARRIED
    }


def _span_name(call: Invocation) -> str:
    """Return the method and, where the number of names is bounded, the name (OPS-16)."""
    return f"{call.method} {call.name}" if facts(call.method).target == "name" else call.method


def _attributes(call: Invocation) -> dict[str, str]:
    attributes = {
        "mcp.method.name": call.method,
        "mcp.protocol.version": call.peer.revision.name,
        "jsonrpc.request.id": str(call.request_id),
        "foundation_rt.run_id": call.run_id,
        "foundation_rt.correlation_id": call.correlation_id,
    }
    forwarded: ForwardedRequest | None = call.parts.get(ForwardedRequest)
    if forwarded is not None and forwarded.target is not None:
        attributes["foundation_rt.server"] = forwarded.target.server
    transport = NETWORK.get(call.session.transport_type)
    if transport is not None:
        attributes["network.transport"] = transport
    if call.method == TOOLS_CALL:
        attributes["gen_ai.operation.name"] = "execute_tool"
    target = facts(call.method).attribute
    if target is not None:
        attributes[target] = call.name
    return attributes


def _note_return(span: trace.Span, call: Invocation, value: Any) -> None:
    if call.phase is not Phase.PENDING:
        _note_failure(span, _ENDED_EARLY[call.phase])
    elif _is_failure(call, value):
        _note_failure(span, _TOOL_ERROR)


def _is_failure(call: Invocation, value: Any) -> bool:
    """Return whether a tool, or the server behind a forwarder, calls its result a failure."""
    if isinstance(value, ToolResult):
        return value.is_error
    is_result = ForwardedRequest in call.parts and isinstance(value, Mapping)
    return is_result and value.get("isError") is True


def _note_error(span: trace.Span, call: Invocation, error: BaseException) -> None:
    """Note the error that the client receives, or else the exception (OPS-18)."""
    if call.phase is not Phase.PENDING:
        _note_failure(span, _ENDED_EARLY[call.phase])
    elif ForwardedRequest in call.parts and isinstance(error, ForwardedError):
        _note_failure(span, str(error.code))
        span.set_attribute("rpc.response.status_code", str(error.code))
    elif not isinstance(error, InputRequired):  # which asks the client and is not a failure
        is_sent = isinstance(error, ToolError)
        code = error.code if isinstance(error, ToolError) else ErrorCode.INTERNAL
        description = error.message if isinstance(error, ToolError) else None
        if call.method == TOOLS_CALL:
            _note_failure(span, _TOOL_ERROR, description)
        else:
            number = str(int(json_rpc_code(call, code)))
            _note_failure(span, number, description)
            span.set_attribute("rpc.response.status_code", number)
        span.set_attribute("foundation_rt.error_code", code.value)
        if not is_sent:
            span.record_exception(error)


def _note_failure(span: trace.Span, kind: str, description: str | None = None) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(trace.StatusCode.ERROR, description)
