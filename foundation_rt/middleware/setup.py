"""Puts around the calls of a server what its configuration and its author ask for.

Around the decision about a call: the rate limit. Around its handler, from the outside to the
inside: traces, audit log, then the author's middleware in its own order. Metrics only observe.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .stack import wrap

if TYPE_CHECKING:
    from ..runtime import Runtime
    from .rate_limit import RateLimit
    from .stack import Middleware


def set_up_operations(runtime: Runtime) -> None:
    """Make what is asked for, and wire it to the engine and the observers of `runtime`.

    Raises:
        MissingExtraError: something is asked for whose extra is not installed.
    """
    config = runtime.config
    around: list[Middleware] = []
    if config.telemetry.tracing:
        from .tracing import Tracing

        around.append(Tracing())
    if config.telemetry.metrics:
        from .metrics import Metrics

        runtime.metrics = Metrics(runtime.resources, partial(_is_registered, runtime))
        runtime.observers.append(runtime.metrics.observe)
    if config.audit.enabled:
        from .audit import AuditLog

        is_administrative = partial(_is_administrative, runtime)
        runtime.audit = AuditLog(runtime.logger, config.audit, is_administrative)
        runtime.observers.append(runtime.audit.observe)
        around.append(runtime.audit)
    if config.rate_limit.is_set():
        runtime.dispatcher.around = runtime.rate_limit = _make_rate_limit(runtime)
    around += runtime.middleware
    if around:
        runtime.engine.around = partial(wrap, tuple(around))


def _make_rate_limit(runtime: Runtime) -> RateLimit:
    from .rate_limit import make_rate_limit

    limit = make_rate_limit(
        runtime.config.rate_limit,
        runtime.clock,
        runtime.logger,
        runtime.dispatcher,
        lambda name: runtime.registry.get(name) is not None,
    )
    if runtime.audit is not None:
        limit.call_observers.append(runtime.audit.note_rate_limit)
    if runtime.metrics is not None:
        limit.session_observers.append(runtime.metrics.note_rate_limit)
    return limit


def _is_registered(runtime: Runtime, method: str, name: str) -> bool:
    if method == "tools/call":
        return runtime.registry.get(name) is not None
    features = runtime.dispatcher.features
    return features is not None and features.prompts.prompts.get(name) is not None


def _is_administrative(runtime: Runtime, name: str) -> bool:
    tool = runtime.registry.get(name)
    return tool is not None and tool.administrative
