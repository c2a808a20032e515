"""A client of MCP servers: `connect`, and what it leads to.

The public names are imported when they are first used (PEP 562), as those of the package are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..asking.elicitation import ElicitResult as ElicitResult
    from ..asking.roots import Root as Root
    from ..asking.sampled import SampleResult as SampleResult
    from .capabilities import ServerDescription as ServerDescription
    from .catalogue import CATALOGUE as CATALOGUE
    from .circuit_breaker import BreakerSettings as BreakerSettings
    from .circuit_breaker import CircuitBreaker as CircuitBreaker
    from .circuit_breaker import CircuitState as CircuitState
    from .client import Client as Client
    from .connect_options import ConnectOptions as ConnectOptions
    from .connecting import connect as connect
    from .elicitation import ElicitationRequest as ElicitationRequest
    from .elicitation import ElicitationUrlRequest as ElicitationUrlRequest
    from .error_mapping import map_mcp_error as map_mcp_error
    from .errors import CallTimeoutError as CallTimeoutError
    from .errors import CircuitOpenError as CircuitOpenError
    from .errors import ConnectionLostError as ConnectionLostError
    from .errors import InvalidArgumentsError as InvalidArgumentsError
    from .errors import InvalidResponseError as InvalidResponseError
    from .errors import MCPError as MCPError
    from .errors import NotOfferedError as NotOfferedError
    from .errors import SessionExpiredError as SessionExpiredError
    from .errors import ToolCallError as ToolCallError
    from .options import ClientOptions as ClientOptions
    from .refusing import QuestionRefused as QuestionRefused
    from .results import CallResult as CallResult
    from .results import CompletionResult as CompletionResult
    from .results import PromptResult as PromptResult
    from .results import ReadResult as ReadResult
    from .retries import RetryPolicy as RetryPolicy
    from .routing import DOCUMENT_ROUTES as DOCUMENT_ROUTES
    from .routing import ExportRoute as ExportRoute
    from .routing import FileRoute as FileRoute
    from .routing import Router as Router
    from .routing import SizeTimeout as SizeTimeout
    from .routing import UrlRoute as UrlRoute
    from .sampling import SamplingRequest as SamplingRequest
    from .subscription import Subscription as Subscription
    from .tool_schemas import ToolSchema as ToolSchema
    from .transports.http_server import HttpServer as HttpServer
    from .transports.stdio import StdioServer as StdioServer

_HOMES = {
    "BreakerSettings": "circuit_breaker",
    "CATALOGUE": "catalogue",
    "CallResult": "results",
    "CallTimeoutError": "errors",
    "CircuitBreaker": "circuit_breaker",
    "CircuitOpenError": "errors",
    "CircuitState": "circuit_breaker",
    "Client": "client",
    "ClientOptions": "options",
    "CompletionResult": "results",
    "ConnectOptions": "connect_options",
    "ConnectionLostError": "errors",
    "DOCUMENT_ROUTES": "routing",
    "ElicitResult": "..asking.elicitation",
    "ElicitationRequest": "elicitation",
    "ElicitationUrlRequest": "elicitation",
    "ExportRoute": "routing",
    "FileRoute": "routing",
    "HttpServer": "transports.http_server",
    "InvalidResponseError": "errors",
    "InvalidArgumentsError": "errors",
    "MCPError": "errors",
    "NotOfferedError": "errors",
    "PromptResult": "results",
    "QuestionRefused": "refusing",
    "ReadResult": "results",
    "RetryPolicy": "retries",
    "Root": "..asking.roots",
    "Router": "routing",
    "SampleResult": "..asking.sampled",
    "SamplingRequest": "sampling",
    "ServerDescription": "capabilities",
    "SessionExpiredError": "errors",
    "SizeTimeout": "routing",
    "StdioServer": "transports.stdio",
    "Subscription": "subscription",
    "ToolCallError": "errors",
    "ToolSchema": "tool_schemas",
    "UrlRoute": "routing",
    "connect": "connecting",
    "map_mcp_error": "error_mapping",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = home if home.startswith(".") else f".{home}"
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
