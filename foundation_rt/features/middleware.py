"""Middleware: plain callables around the handler of every call, and the stack of one server.

A middleware is `async def f(call, proceed)`. It awaits `proceed()`, which runs the inner middleware
and the handler and returns the handler's value, and returns a value itself. It may return another
value, raise `ToolError` to refuse the call, or not proceed at all (OPS-08).

The rate limit is around the decision about a call. Around its handler are, from the outside to the
inside: traces, the audit log, then the author's middleware in the order of registration. Metrics
only observe.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..base.shown import Shown
from ..errors import RegistrationError
from ..kernel.registry.tools import is_async_callable
from ..protocol.methods import TOOLS_CALL
from .callables import takes
from .policies import Administrative
from .prompts.feature import Prompts

if TYPE_CHECKING:
    from ..base.config.settings import ServerConfig
    from ..base.logs.logger import StructuredLogger
    from ..kernel.dispatcher import Dispatcher
    from ..kernel.engine.connection import Observe
    from ..kernel.engine.executor import Proceed
    from ..kernel.feature import RuntimeFeature
    from ..kernel.invocation import Invocation
    from ..kernel.registry.tools import ToolRegistry
    from ..kernel.runtime import Runtime
    from .audit import AuditLog
    from .audit_file import AuditFile
    from .metrics import Metrics
    from .observers import CallObserver
    from .otel_metrics import OtelMetrics

    Middleware = Callable[[Invocation, Proceed], Awaitable[Any]]


def check_middleware(middleware: Any) -> None:
    """Check that `middleware` can be called as one.

    Raises:
        RegistrationError: it is not `async def`, or does not take two arguments.
    """
    if not (is_async_callable(middleware) and takes(middleware, 2)):
        name = getattr(middleware, "__qualname__", repr(middleware))
        raise RegistrationError(f"middleware {name!r}: write `async def {name}(call, proceed)`")


def wrap(middleware: Iterable[Middleware], call: Invocation, handler: Proceed) -> Proceed:
    """Return `handler` with all of `middleware` around it, the first outermost (OPS-07)."""
    proceed = handler
    for each in reversed(tuple(middleware)):
        proceed = partial(each, call, proceed)
    return proceed


@define(eq=False, repr=False)
class MiddlewareStack(Shown):
    """The middleware of a server, and the observers of its calls.

    Attributes:
        around: puts the middleware around a handler; None where there is none.
        observers: are given the records of calls and handshakes.
        audit: writes the audit records, if the configuration asks for them.
        metrics: counts for Prometheus, if the configuration asks for it.
        otel_metrics: records with OpenTelemetry, if the configuration asks for it.
        features: what is around the decisions about calls: a rate limit, if one is set.
    """

    around: Callable[[Invocation, Proceed], Proceed] | None = None
    observers: list[Observe] = field(factory=list)
    audit: AuditLog | None = None
    metrics: Metrics | None = None
    otel_metrics: OtelMetrics | None = None
    features: list[RuntimeFeature] = field(factory=list)


def build_stack(
    runtime: Runtime,
    own: Sequence[Middleware],
    call_observers: Sequence[CallObserver] = (),
    *,
    has_others: bool = False,
) -> MiddlewareStack:
    """Return the middleware that the configuration asks for, and the author's `own` within it.

    `call_observers` are the author's too. `has_others`: other servers stand behind this one.

    Raises:
        MissingExtraError: the extra of a part is not installed.
        UsageError: `audit.file` cannot be written.
    """
    config, registry, resources = runtime.config, runtime.registry, runtime.resources
    dispatcher, clock, logger = runtime.dispatcher, runtime.clock, runtime.logger
    is_registered = partial(_is_registered, registry, dispatcher)
    stack = MiddlewareStack()
    around: list[Middleware] = []
    if config.telemetry.tracing:
        from .tracing import Tracing

        around.append(Tracing())
    if config.telemetry.metrics:
        from .metrics import Metrics

        stack.metrics = Metrics(resources, is_registered, has_others)
        stack.observers.append(stack.metrics.observe)
    if config.telemetry.otel_metrics:
        from .otel_metrics import OtelMetrics

        stack.otel_metrics = OtelMetrics(is_registered, clock)
        stack.observers.append(stack.otel_metrics.observe)
    if config.audit.enabled:
        from .audit import AuditLog

        stack.audit = AuditLog(
            logger, config.audit, partial(_is_administrative, registry), _audit_file(config, logger)
        )
        stack.observers.append(stack.audit.observe)
        around.append(stack.audit)
    if config.rate_limit.is_set():
        from .rate_limit import make_rate_limit

        limit = make_rate_limit(
            config.rate_limit,
            clock,
            logger,
            dispatcher,
            partial(_name_of_tool, registry, dispatcher),
            config.tools.name_separator,
        )
        if stack.audit is not None:
            limit.call_observers.append(stack.audit.note_rate_limit)
        if stack.metrics is not None:
            limit.session_observers.append(stack.metrics.note_rate_limit)
        stack.features.append(limit)
    if call_observers:
        from .observers import as_observer

        stack.observers += [as_observer(each, is_registered) for each in call_observers]
    around += own
    if around:
        stack.around = partial(wrap, tuple(around))
    return stack


def _audit_file(config: ServerConfig, logger: StructuredLogger) -> AuditFile | None:
    """Return the file of the audit log; None if its records are written to the log.

    Raises:
        UsageError: the file cannot be written.
    """
    if config.audit.file is None:
        return None
    from .audit_file import AuditFile, check_path

    check_path(config.audit.file)
    return AuditFile(config.audit.file, config.logging.buffer_bytes, logger)


def _is_registered(registry: ToolRegistry, dispatcher: Dispatcher, method: str, name: str) -> bool:
    """Return whether there is such a tool or prompt, here or behind the forwarder (FWD-11)."""
    if method == TOOLS_CALL:
        found = registry.get(name) is not None
    else:
        found = dispatcher.parts[Prompts].has(name)
    return found or any(knows(method, name) for knows in dispatcher.knows)


def _name_of_tool(registry: ToolRegistry, dispatcher: Dispatcher, called: str) -> str:
    """Return the name of the tool that a client calls, of whatever version; "" if there is none."""
    tool = registry.get(called)
    if tool is not None:
        return tool.definition.name
    for name in dict.fromkeys((called.rpartition("@")[0] or called, called)):
        if any(knows(TOOLS_CALL, name) for knows in dispatcher.knows):
            return name
    return ""


def _is_administrative(registry: ToolRegistry, name: str) -> bool:
    tool = registry.get(name)
    return tool is not None and Administrative in tool.parts
