"""foundation-rt: a hand-rolled MCP runtime.

The package has the public names; each is imported when it is first used (PEP 562), so that the
import of the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy_names import lazy_names
from .version import __version__ as __version__

if TYPE_CHECKING:
    from .abort import AbortSignal as AbortSignal
    from .agents.errors import AgentCycleError as AgentCycleError
    from .agents.errors import AgentNotFoundError as AgentNotFoundError
    from .agents.errors import AgentQueueFullError as AgentQueueFullError
    from .agents.errors import AgentStateTooLargeError as AgentStateTooLargeError
    from .agents.errors import AgentUnregisteredError as AgentUnregisteredError
    from .agents.ledger.coordinator import AgentCoordinatorV2 as AgentCoordinatorV2
    from .agents.ledger.errors import OutcomeUnknownError as OutcomeUnknownError
    from .agents.ledger.errors import RequestConflictError as RequestConflictError
    from .agents.ledger.errors import RequestFailedError as RequestFailedError
    from .agents.local import AgentCoordinator as AgentCoordinator
    from .agents.messages import AgentContext as AgentContext
    from .agents.messages import AgentMessage as AgentMessage
    from .core.context import SessionLog as SessionLog
    from .core.context import ToolContext as ToolContext
    from .core.dispatcher import Dispatcher as Dispatcher
    from .core.forwarding.forwarder import ForwardedError as ForwardedError
    from .core.forwarding.forwarder import ForwardedRequest as ForwardedRequest
    from .core.forwarding.forwarder import ForwardTarget as ForwardTarget
    from .core.forwarding.forwarder import RequestForwarder as RequestForwarder
    from .core.invocation import Invocation as Invocation
    from .engine.connection import Connection as Connection
    from .errors import AbortError as AbortError
    from .errors import ConfigError as ConfigError
    from .errors import ErrorCode as ErrorCode
    from .errors import JsonRpcErrorCode as JsonRpcErrorCode
    from .errors import RegistrationError as RegistrationError
    from .errors import ToolError as ToolError
    from .errors import UsageError as UsageError
    from .middleware.instruments import Counter as Counter
    from .middleware.instruments import Gauge as Gauge
    from .middleware.instruments import Histogram as Histogram
    from .middleware.observers import CompletedCall as CompletedCall
    from .protocol.content import Annotations as Annotations
    from .protocol.content import Audio as Audio
    from .protocol.content import BlobContents as BlobContents
    from .protocol.content import EmbeddedResource as EmbeddedResource
    from .protocol.content import Icon as Icon
    from .protocol.content import Image as Image
    from .protocol.content import ResourceLink as ResourceLink
    from .protocol.content import Text as Text
    from .protocol.content import TextContents as TextContents
    from .protocol.content import ToolResult as ToolResult
    from .protocol.peer import Peer as Peer
    from .protocol.principal import Principal as Principal
    from .protocol.tool_annotations import ToolAnnotations as ToolAnnotations
    from .registry.completions import Completion as Completion
    from .registry.completions import CompletionRequest as CompletionRequest
    from .registry.prompt_results import PromptMessage as PromptMessage
    from .registry.prompt_results import PromptResult as PromptResult
    from .registry.prompts import PromptArgument as PromptArgument
    from .registry.prompts import PromptDefinition as PromptDefinition
    from .registry.resources import ResourceDefinition as ResourceDefinition
    from .registry.resources import ResourceTemplateDefinition as ResourceTemplateDefinition
    from .registry.tool_definition import ToolDefinition as ToolDefinition
    from .runtime import ServerOptions as ServerOptions
    from .server import Server as Server
    from .server import create_server as create_server
    from .server import start_server as start_server
    from .server_requests.elicitation import Elicit as Elicit
    from .server_requests.elicitation import ElicitResult as ElicitResult
    from .server_requests.elicitation import ElicitUrl as ElicitUrl
    from .server_requests.errors import AnswerTimeoutError as AnswerTimeoutError
    from .server_requests.errors import ClientCapabilityError as ClientCapabilityError
    from .server_requests.errors import ClientErrorResponse as ClientErrorResponse
    from .server_requests.errors import ClientGoneError as ClientGoneError
    from .server_requests.errors import InvalidClientResult as InvalidClientResult
    from .server_requests.errors import ServerRequestError as ServerRequestError
    from .server_requests.errors import UrlElicitationRequired as UrlElicitationRequired
    from .server_requests.roots import Root as Root
    from .server_requests.roots import Roots as Roots
    from .server_requests.sampling import ModelPreferences as ModelPreferences
    from .server_requests.sampling import Sample as Sample
    from .server_requests.sampling import SampleResult as SampleResult
    from .server_requests.sampling import SamplingMessage as SamplingMessage
    from .server_requests.sampling import ToolUse as ToolUse
    from .server_requests.sampling import ToolUseResult as ToolUseResult
    from .signatures.constraints import ByName as ByName
    from .signatures.constraints import Constraints as Constraints
    from .signatures.constraints import Header as Header
    from .signatures.parameters import Depends as Depends
    from .transports.http.page_access import PageAccess as PageAccess

_HOMES = {
    "Principal": "protocol.principal",
    "Peer": "protocol.peer",
    "JsonRpcErrorCode": "errors",
    "AbortError": "errors",
    "AbortSignal": "abort",
    "AgentContext": "agents.messages",
    "AgentCoordinator": "agents.local",
    "AgentCoordinatorV2": "agents.ledger.coordinator",
    "AgentCycleError": "agents.errors",
    "AgentMessage": "agents.messages",
    "AgentNotFoundError": "agents.errors",
    "AgentQueueFullError": "agents.errors",
    "AgentStateTooLargeError": "agents.errors",
    "AgentUnregisteredError": "agents.errors",
    "Annotations": "protocol.content",
    "AnswerTimeoutError": "server_requests.errors",
    "ServerRequestError": "server_requests.errors",
    "Audio": "protocol.content",
    "BlobContents": "protocol.content",
    "ByName": "signatures.constraints",
    "ClientCapabilityError": "server_requests.errors",
    "ClientGoneError": "server_requests.errors",
    "ClientErrorResponse": "server_requests.errors",
    "CompletedCall": "middleware.observers",
    "Completion": "registry.completions",
    "CompletionRequest": "registry.completions",
    "ConfigError": "errors",
    "Connection": "engine.connection",
    "Constraints": "signatures.constraints",
    "Counter": "middleware.instruments",
    "Depends": "signatures.parameters",
    "Dispatcher": "core.dispatcher",
    "Elicit": "server_requests.elicitation",
    "ElicitResult": "server_requests.elicitation",
    "ElicitUrl": "server_requests.elicitation",
    "EmbeddedResource": "protocol.content",
    "ErrorCode": "errors",
    "ForwardTarget": "core.forwarding.forwarder",
    "ForwardedError": "core.forwarding.forwarder",
    "ForwardedRequest": "core.forwarding.forwarder",
    "Gauge": "middleware.instruments",
    "Header": "signatures.constraints",
    "Histogram": "middleware.instruments",
    "Icon": "protocol.content",
    "Image": "protocol.content",
    "Invocation": "core.invocation",
    "InvalidClientResult": "server_requests.errors",
    "ModelPreferences": "server_requests.sampling",
    "PageAccess": "transports.http.page_access",
    "OutcomeUnknownError": "agents.ledger.errors",
    "PromptArgument": "registry.prompts",
    "PromptDefinition": "registry.prompts",
    "PromptMessage": "registry.prompt_results",
    "PromptResult": "registry.prompt_results",
    "RegistrationError": "errors",
    "RequestConflictError": "agents.ledger.errors",
    "RequestForwarder": "core.forwarding.forwarder",
    "RequestFailedError": "agents.ledger.errors",
    "ResourceDefinition": "registry.resources",
    "ResourceLink": "protocol.content",
    "ResourceTemplateDefinition": "registry.resources",
    "Root": "server_requests.roots",
    "Roots": "server_requests.roots",
    "Sample": "server_requests.sampling",
    "SampleResult": "server_requests.sampling",
    "SamplingMessage": "server_requests.sampling",
    "Server": "server",
    "ServerOptions": "runtime",
    "SessionLog": "core.context",
    "Text": "protocol.content",
    "TextContents": "protocol.content",
    "ToolAnnotations": "protocol.tool_annotations",
    "ToolContext": "core.context",
    "ToolDefinition": "registry.tool_definition",
    "ToolError": "errors",
    "ToolResult": "protocol.content",
    "ToolUse": "server_requests.sampling",
    "ToolUseResult": "server_requests.sampling",
    "UrlElicitationRequired": "server_requests.errors",
    "UsageError": "errors",
    "create_server": "server",
    "start_server": "server",
}

__all__ = ["__version__", *_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
