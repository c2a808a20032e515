"""The options of `connect`, for type checkers; not imported at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from .callbacks import LogCallback
    from .handlers.client_handlers import (
        ElicitationHandler,
        ElicitationUrlHandler,
        Places,
        RootsHandler,
        SamplingHandler,
    )
    from .resilience.circuit_breaker import BreakerSettings
    from .resilience.retries import RetryPolicy


class ConnectOptions(TypedDict, total=False):
    """The options of `ClientOptions` and `ClientHandlers`, which describe them.

    A program that wraps `connect` passes them on with ``**options: Unpack[ConnectOptions]``.
    """

    name: str
    version: str
    title: str | None
    require: Collection[str] | None
    revision: str | None
    timeout: float
    tool_timeouts: Mapping[str, float]
    connect_timeout: float
    probe_timeout: float
    handler_timeout: float
    tool_cache_ttl_ms: int
    max_pages: int
    breaker: BreakerSettings
    tool_breakers: bool
    retries: RetryPolicy
    log_level: str | None
    on_log: LogCallback | None
    on_list_changed: Callable[[str], object] | None
    sampling: SamplingHandler | None
    sampling_tools: bool
    elicitation: ElicitationHandler | None
    elicitation_url: ElicitationUrlHandler | None
    roots: Places | RootsHandler | None
