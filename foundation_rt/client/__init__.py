"""A client of MCP servers: `connect`, and what it leads to.

The public names are imported when they are first used (PEP 562), as those of the package are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lazy_names import homes_of, lazy_names

if TYPE_CHECKING:
    from ..base.app_format import APPS as APPS
    from ..base.app_format import AppCsp as AppCsp
    from ..base.app_format import ToolUi as ToolUi
    from ..base.jsonschema.issues import ValidationIssue as ValidationIssue
    from ..features.server_requests.elicitation import ElicitResult as ElicitResult
    from ..features.server_requests.roots import Root as Root
    from ..features.server_requests.sampling import SampleResult as SampleResult
    from ..protocol.revisions import Revision as Revision
    from .auth.descriptions import ClientCredentials as ClientCredentials
    from .auth.descriptions import EnterpriseManaged as EnterpriseManaged
    from .auth.descriptions import LoginRequest as LoginRequest
    from .auth.descriptions import OAuth as OAuth
    from .auth.descriptions import StoreKey as StoreKey
    from .auth.descriptions import TokenStore as TokenStore
    from .auth.descriptions import WorkloadIdentity as WorkloadIdentity
    from .auth.logins import browser_login as browser_login
    from .auth.logins import device_login as device_login
    from .auth.logins import log_in as log_in
    from .auth.logins import paste_login as paste_login
    from .auth.stores import FileTokenStore as FileTokenStore
    from .auth.stores import MemoryTokenStore as MemoryTokenStore
    from .client import Client as Client
    from .connecting import connect as connect
    from .errors import CATALOGUE as CATALOGUE
    from .errors import AuthorizationError as AuthorizationError
    from .errors import CallTimeoutError as CallTimeoutError
    from .errors import CircuitOpenError as CircuitOpenError
    from .errors import ConnectionLostError as ConnectionLostError
    from .errors import InvalidArgumentsError as InvalidArgumentsError
    from .errors import InvalidResponseError as InvalidResponseError
    from .errors import MCPError as MCPError
    from .errors import NotOfferedError as NotOfferedError
    from .errors import SessionExpiredError as SessionExpiredError
    from .errors import ToolCallError as ToolCallError
    from .handlers.client_handlers import ClientHandlers as ClientHandlers
    from .handlers.elicitation import ElicitationRequest as ElicitationRequest
    from .handlers.elicitation import ElicitationUrlRequest as ElicitationUrlRequest
    from .handlers.params import ServerRequestRefused as ServerRequestRefused
    from .handlers.sampling import SamplingRequest as SamplingRequest
    from .handlers.server_requests import ServerRequestHandlers as ServerRequestHandlers
    from .options import ClientOptions as ClientOptions
    from .options import ConnectOptions as ConnectOptions
    from .resilience.circuit_breaker import BreakerSettings as BreakerSettings
    from .resilience.circuit_breaker import CircuitBreaker as CircuitBreaker
    from .resilience.circuit_breaker import CircuitState as CircuitState
    from .resilience.error_mapping import map_mcp_error as map_mcp_error
    from .resilience.resilience import Permits as Permits
    from .resilience.retries import RetryPolicy as RetryPolicy
    from .resilience.retries import is_failure as is_failure
    from .results.apps import App as App
    from .results.results import CallResult as CallResult
    from .results.results import CompletionResult as CompletionResult
    from .results.results import GetPromptResult as GetPromptResult
    from .results.results import ListedPromptArgument as ListedPromptArgument
    from .results.results import Prompt as Prompt
    from .results.results import ReadResult as ReadResult
    from .results.results import Resource as Resource
    from .results.results import ResourceTemplate as ResourceTemplate
    from .results.skills import Skill as Skill
    from .results.skills import SkillFile as SkillFile
    from .results.tool_schemas import ToolSchema as ToolSchema
    from .session.handshake import ServerDescription as ServerDescription
    from .session.subscriptions import Subscription as Subscription
    from .targets import HttpServer as HttpServer
    from .targets import StdioServer as StdioServer
    from .tools.routing import DOCUMENT_ROUTES as DOCUMENT_ROUTES
    from .tools.routing import ExportRoute as ExportRoute
    from .tools.routing import FileRoute as FileRoute
    from .tools.routing import Router as Router
    from .tools.routing import SizeTimeout as SizeTimeout
    from .tools.routing import UrlRoute as UrlRoute

_HOMES = homes_of(
    {
        ".base.app_format": "APPS AppCsp ToolUi",
        ".base.jsonschema.issues": "ValidationIssue",
        ".features.server_requests.elicitation": "ElicitResult",
        ".features.server_requests.roots": "Root",
        ".features.server_requests.sampling": "SampleResult",
        ".protocol.revisions": "Revision",
        "auth.descriptions": "ClientCredentials EnterpriseManaged LoginRequest OAuth StoreKey "
        "TokenStore WorkloadIdentity",
        "auth.logins": "browser_login device_login log_in paste_login",
        "auth.stores": "FileTokenStore MemoryTokenStore",
        "client": "Client",
        "connecting": "connect",
        "errors": "AuthorizationError CATALOGUE CallTimeoutError CircuitOpenError "
        "ConnectionLostError InvalidArgumentsError InvalidResponseError MCPError NotOfferedError "
        "SessionExpiredError ToolCallError",
        "handlers.client_handlers": "ClientHandlers",
        "handlers.elicitation": "ElicitationRequest ElicitationUrlRequest",
        "handlers.params": "ServerRequestRefused",
        "handlers.sampling": "SamplingRequest",
        "handlers.server_requests": "ServerRequestHandlers",
        "options": "ClientOptions ConnectOptions",
        "resilience.circuit_breaker": "BreakerSettings CircuitBreaker CircuitState",
        "resilience.error_mapping": "map_mcp_error",
        "resilience.resilience": "Permits",
        "resilience.retries": "RetryPolicy is_failure",
        "results.results": "CallResult CompletionResult GetPromptResult ListedPromptArgument "
        "Prompt ReadResult Resource ResourceTemplate",
        "results.apps": "App",
        "results.skills": "Skill SkillFile",
        "results.tool_schemas": "ToolSchema",
        "session.handshake": "ServerDescription",
        "session.subscriptions": "Subscription",
        "targets": "HttpServer StdioServer",
        "tools.routing": "DOCUMENT_ROUTES ExportRoute FileRoute Router SizeTimeout UrlRoute",
    }
)

__all__ = [*_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
