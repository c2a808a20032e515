"""A span for every call whose handler runs, as OpenTelemetry's conventions for MCP have it.

The parent is the W3C trace context in the request's `_meta` (SEP-414); the span that is current
where the request arrived, that of an HTTP server say, is linked. In the handler the call's
span is the current one, whichever thread it runs in, so that what the handler traces hangs below.

Only the API of OpenTelemetry is used: where spans go is the business of the program that serves,
which sets up an SDK, and without one nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..errors import MissingExtraError, ToolError
from ..invocation import Phase
from ..version import __version__

try:
    from opentelemetry import trace
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.context import Context
    from opentelemetry.propagators.composite import CompositePropagator
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise MissingExtraError("Tracing", "otel") from None

if TYPE_CHECKING:
    from ..invocation import Invocation
    from .middleware import Proceed

_CARRIED = ("traceparent", "tracestate", "baggage")
_MAX_CARRIED = 8192  # characters: the longest baggage that W3C asks anybody to pass on

_TARGETS = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_NETWORK = {"stdio": "pipe", "http": "tcp", "sse": "tcp"}

_ENDED_EARLY = {
    Phase.EXPIRED: "timeout",
    Phase.CANCELLED: "cancelled",
    Phase.DISCONNECTED: "disconnected",
    Phase.DISCONNECTED_THEN_EXPIRED: "disconnected",
}
"""`error.type` of a call whose client did not get what the handler made."""


@define(eq=False, repr=False)
class Tracing:
    """The middleware that makes the spans.

    Args:
        provider: where spans go; by default what the program has set up for all.
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
        context, links = self._parent(call.meta)
        with self._tracer.start_as_current_span(
            _span_name(call),
            context,
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

    def _parent(self, meta: Mapping[str, Any] | None) -> tuple[Context | None, list[trace.Link]]:
        """The context that the client sent, and a link to that of the transport, if any.

        None stands for the context of the transport.
        """
        carrier = {
            key: value
            for key in _CARRIED
            if type(value := (meta or {}).get(key)) is str and len(value) <= _MAX_CARRIED
        }
        if "traceparent" not in carrier:
            return None, []
        context = self._propagator.extract(carrier, Context())
        if not trace.get_current_span(context).get_span_context().is_valid:
            return None, []
        around = trace.get_current_span().get_span_context()
        return context, [trace.Link(around)] if around.is_valid else []


def _span_name(call: Invocation) -> str:
    """The method and, where there are few of them, what is called (OPS-18)."""
    return f"{call.method} {call.name}" if call.method in _TARGETS else call.method


def _attributes(call: Invocation) -> dict[str, str]:
    attributes = {
        "mcp.method.name": call.method,
        "mcp.protocol.version": call.peer.revision.name,
        "jsonrpc.request.id": str(call.request_id),
        "foundation_rt.run_id": call.run_id,
        "foundation_rt.correlation_id": call.correlation_id,
    }
    transport = _NETWORK.get(call.session.transport_type)
    if transport is not None:
        attributes["network.transport"] = transport
    if call.method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    target = _TARGETS.get(call.method)
    if target is not None:
        attributes[target] = call.name
    elif call.method == "resources/read":
        attributes["mcp.resource.uri"] = call.name
    return attributes


def _note_return(span: trace.Span, call: Invocation, value: Any) -> None:
    if call.phase is not Phase.WAITED_FOR:
        _note_failure(span, _ENDED_EARLY[call.phase])
    elif getattr(value, "is_error", False) is True:
        _note_failure(span, "tool_error")


def _note_error(span: trace.Span, call: Invocation, error: BaseException) -> None:
    if call.phase is not Phase.WAITED_FOR:
        _note_failure(span, _ENDED_EARLY[call.phase])
    elif isinstance(error, ToolError):
        kind = "tool_error" if call.method == "tools/call" else error.code.value
        _note_failure(span, kind, error.message)
        span.set_attribute("foundation_rt.error_code", error.code.value)
    else:
        _note_failure(span, type(error).__qualname__)
        span.record_exception(error)


def _note_failure(span: trace.Span, kind: str, description: str | None = None) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(trace.StatusCode.ERROR, description)
