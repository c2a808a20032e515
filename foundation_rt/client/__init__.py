"""A client of MCP servers: `connect`, and what it leads to.

The public names are imported when they are first used (PEP 562), as those of the package are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..server_requests.elicitation import ElicitResult as ElicitResult
    from ..server_requests.roots import Root as Root
    from ..server_requests.sampling import SampleResult as SampleResult
    from .answering.elicitation import ElicitationRequest as ElicitationRequest
    from .answering.elicitation import ElicitationUrlRequest as ElicitationUrlRequest
    from .answering.refusing import QuestionRefused as QuestionRefused
    from .answering.sampling import SamplingRequest as SamplingRequest
    from .calling.routing import DOCUMENT_ROUTES as DOCUMENT_ROUTES
    from .calling.routing import ExportRoute as ExportRoute
    from .calling.routing import FileRoute as FileRoute
    from .calling.routing import Router as Router
    from .calling.routing import SizeTimeout as SizeTimeout
    from .calling.routing import UrlRoute as UrlRoute
    from .client import Client as Client
    from .connect_options import ConnectOptions as ConnectOptions
    from .connecting import connect as connect
    from .failing.catalogue import CATALOGUE as CATALOGUE
    from .failing.circuit_breaker import BreakerSettings as BreakerSettings
    from .failing.circuit_breaker import CircuitBreaker as CircuitBreaker
    from .failing.circuit_breaker import CircuitState as CircuitState
    from .failing.error_mapping import map_mcp_error as map_mcp_error
    from .failing.errors import CallTimeoutError as CallTimeoutError
    from .failing.errors import CircuitOpenError as CircuitOpenError
    from .failing.errors import ConnectionLostError as ConnectionLostError
    from .failing.errors import InvalidArgumentsError as InvalidArgumentsError
    from .failing.errors import InvalidResponseError as InvalidResponseError
    from .failing.errors import MCPError as MCPError
    from .failing.errors import NotOfferedError as NotOfferedError
    from .failing.errors import SessionExpiredError as SessionExpiredError
    from .failing.errors import ToolCallError as ToolCallError
    from .failing.retries import RetryPolicy as RetryPolicy
    from .options import ClientOptions as ClientOptions
    from .reading.listed import Prompt as Prompt
    from .reading.listed import PromptArgument as PromptArgument
    from .reading.listed import Resource as Resource
    from .reading.listed import ResourceTemplate as ResourceTemplate
    from .reading.results import CallResult as CallResult
    from .reading.results import CompletionResult as CompletionResult
    from .reading.results import PromptResult as PromptResult
    from .reading.results import ReadResult as ReadResult
    from .reading.tool_schemas import ToolSchema as ToolSchema
    from .sessions.server_description import ServerDescription as ServerDescription
    from .sessions.subscription import Subscription as Subscription
    from .transports.http_server import HttpServer as HttpServer
    from .transports.stdio import StdioServer as StdioServer

_HOMES = {
    "BreakerSettings": "failing.circuit_breaker",
    "CATALOGUE": "failing.catalogue",
    "CallResult": "reading.results",
    "CallTimeoutError": "failing.errors",
    "CircuitBreaker": "failing.circuit_breaker",
    "CircuitOpenError": "failing.errors",
    "CircuitState": "failing.circuit_breaker",
    "Client": "client",
    "ClientOptions": "options",
    "CompletionResult": "reading.results",
    "ConnectOptions": "connect_options",
    "ConnectionLostError": "failing.errors",
    "DOCUMENT_ROUTES": "calling.routing",
    "ElicitResult": "..server_requests.elicitation",
    "ElicitationRequest": "answering.elicitation",
    "ElicitationUrlRequest": "answering.elicitation",
    "ExportRoute": "calling.routing",
    "FileRoute": "calling.routing",
    "HttpServer": "transports.http_server",
    "InvalidResponseError": "failing.errors",
    "InvalidArgumentsError": "failing.errors",
    "MCPError": "failing.errors",
    "NotOfferedError": "failing.errors",
    "Prompt": "reading.listed",
    "PromptArgument": "reading.listed",
    "PromptResult": "reading.results",
    "QuestionRefused": "answering.refusing",
    "ReadResult": "reading.results",
    "Resource": "reading.listed",
    "ResourceTemplate": "reading.listed",
    "RetryPolicy": "failing.retries",
    "Root": "..server_requests.roots",
    "Router": "calling.routing",
    "SampleResult": "..server_requests.sampling",
    "SamplingRequest": "answering.sampling",
    "ServerDescription": "sessions.server_description",
    "SessionExpiredError": "failing.errors",
    "SizeTimeout": "calling.routing",
    "StdioServer": "transports.stdio",
    "Subscription": "sessions.subscription",
    "ToolCallError": "failing.errors",
    "ToolSchema": "reading.tool_schemas",
    "UrlRoute": "calling.routing",
    "connect": "connecting",
    "map_mcp_error": "failing.error_mapping",
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
