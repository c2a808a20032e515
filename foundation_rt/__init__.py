"""foundation-rt: a hand-rolled MCP runtime.

The package has the public names; each is imported when it is first used (PEP 562), so that the
import of the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base.lazy_names import homes_of, lazy_names
from .version import __version__ as __version__

if TYPE_CHECKING:
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
    from .base.abort import AbortSignal as AbortSignal
    from .errors import AbortError as AbortError
    from .errors import ConfigError as ConfigError
    from .errors import ErrorCode as ErrorCode
    from .errors import JsonRpcErrorCode as JsonRpcErrorCode
    from .errors import RegistrationError as RegistrationError
    from .errors import ToolError as ToolError
    from .errors import UsageError as UsageError
    from .features.completions.registry import Completion as Completion
    from .features.completions.registry import CompletionRequest as CompletionRequest
    from .features.composition import ServerOptions as ServerOptions
    from .features.context import SessionLog as SessionLog
    from .features.context import ToolContext as ToolContext
    from .features.instruments import Counter as Counter
    from .features.instruments import Gauge as Gauge
    from .features.instruments import Histogram as Histogram
    from .features.observers import CompletedCall as CompletedCall
    from .features.own_features import Feature as Feature
    from .features.prompts.registry import PromptArgument as PromptArgument
    from .features.prompts.registry import PromptDefinition as PromptDefinition
    from .features.prompts.results import PromptMessage as PromptMessage
    from .features.prompts.results import PromptResult as PromptResult
    from .features.proxy.forwarder import ForwardedError as ForwardedError
    from .features.proxy.forwarder import ForwardedRequest as ForwardedRequest
    from .features.proxy.forwarder import ForwardTarget as ForwardTarget
    from .features.proxy.forwarder import RequestForwarder as RequestForwarder
    from .features.resources.registry import ResourceDefinition as ResourceDefinition
    from .features.resources.registry import (
        ResourceTemplateDefinition as ResourceTemplateDefinition,
    )
    from .features.server_requests.elicitation import Elicit as Elicit
    from .features.server_requests.elicitation import ElicitResult as ElicitResult
    from .features.server_requests.elicitation import ElicitUrl as ElicitUrl
    from .features.server_requests.errors import AnswerTimeoutError as AnswerTimeoutError
    from .features.server_requests.errors import ClientCapabilityError as ClientCapabilityError
    from .features.server_requests.errors import ClientErrorResponse as ClientErrorResponse
    from .features.server_requests.errors import ClientGoneError as ClientGoneError
    from .features.server_requests.errors import InvalidClientResult as InvalidClientResult
    from .features.server_requests.errors import ServerRequestError as ServerRequestError
    from .features.server_requests.errors import UrlElicitationRequired as UrlElicitationRequired
    from .features.server_requests.roots import Root as Root
    from .features.server_requests.roots import Roots as Roots
    from .features.server_requests.sampling import ModelPreferences as ModelPreferences
    from .features.server_requests.sampling import Sample as Sample
    from .features.server_requests.sampling import SampleResult as SampleResult
    from .features.server_requests.sampling import SamplingMessage as SamplingMessage
    from .features.server_requests.sampling import ToolUse as ToolUse
    from .features.server_requests.sampling import ToolUseResult as ToolUseResult
    from .features.signatures.constraints import ByName as ByName
    from .features.signatures.constraints import Constraints as Constraints
    from .features.signatures.constraints import Header as Header
    from .features.signatures.parameters import Depends as Depends
    from .http.page_access import PageAccess as PageAccess
    from .kernel.dispatcher import Dispatcher as Dispatcher
    from .kernel.engine.connection import Connection as Connection
    from .kernel.invocation import Invocation as Invocation
    from .kernel.registry.tool_definition import ToolDefinition as ToolDefinition
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
    from .server import Server as Server
    from .server import create_server as create_server
    from .server import start_server as start_server

_HOMES = homes_of(
    {
        "agents.errors": "AgentCycleError AgentNotFoundError AgentQueueFullError "
        "AgentStateTooLargeError AgentUnregisteredError",
        "agents.ledger.coordinator": "AgentCoordinatorV2",
        "agents.ledger.errors": "OutcomeUnknownError RequestConflictError RequestFailedError",
        "agents.local": "AgentCoordinator",
        "agents.messages": "AgentContext AgentMessage",
        "base.abort": "AbortSignal",
        "errors": "AbortError ConfigError ErrorCode JsonRpcErrorCode RegistrationError ToolError "
        "UsageError",
        "features.context": "SessionLog ToolContext",
        "features.instruments": "Counter Gauge Histogram",
        "features.observers": "CompletedCall",
        "features.own_features": "Feature",
        "features.proxy.forwarder": "ForwardTarget ForwardedError ForwardedRequest "
        "RequestForwarder",
        "features.server_requests.elicitation": "Elicit ElicitResult ElicitUrl",
        "features.server_requests.errors": "AnswerTimeoutError ClientCapabilityError "
        "ClientErrorResponse ClientGoneError InvalidClientResult ServerRequestError "
        "UrlElicitationRequired",
        "features.server_requests.roots": "Root Roots",
        "features.server_requests.sampling": "ModelPreferences Sample SampleResult "
        "SamplingMessage ToolUse ToolUseResult",
        "features.signatures.constraints": "ByName Constraints Header",
        "features.signatures.parameters": "Depends",
        "http.page_access": "PageAccess",
        "kernel.dispatcher": "Dispatcher",
        "kernel.engine.connection": "Connection",
        "kernel.invocation": "Invocation",
        "features.completions.registry": "Completion CompletionRequest",
        "features.prompts.results": "PromptMessage PromptResult",
        "features.prompts.registry": "PromptArgument PromptDefinition",
        "features.resources.registry": "ResourceDefinition ResourceTemplateDefinition",
        "kernel.registry.tool_definition": "ToolDefinition",
        "features.composition": "ServerOptions",
        "protocol.content": "Annotations Audio BlobContents EmbeddedResource Icon Image "
        "ResourceLink Text TextContents ToolResult",
        "protocol.peer": "Peer",
        "protocol.principal": "Principal",
        "protocol.tool_annotations": "ToolAnnotations",
        "server": "Server create_server start_server",
    }
)

__all__ = ["__version__", *_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
