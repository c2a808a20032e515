"""foundation-rt: a hand-rolled MCP runtime.

The package has the public names; each is imported when it is first used (PEP 562), so that the
import of the package costs next to nothing. Type checkers read `__init__.pyi`.
"""

from __future__ import annotations

from .base.lazy_names import homes_of, lazy_names
from .version import __version__ as __version__

_HOMES = homes_of(
    {
        "agents.errors": "AgentCycleError AgentNotFoundError AgentQueueFullError "
        "AgentStateTooLargeError AgentUnregisteredError",
        "agents.ledger.coordinator": "AgentCoordinatorV2",
        "agents.ledger.errors": "OutcomeUnknownError RequestConflictError RequestFailedError",
        "agents.local": "AgentCoordinator",
        "agents.messages": "AgentContext AgentMessage",
        "base.abort": "AbortSignal",
        "base.app_format": "AppCsp ToolUi",
        "base.transforms": "Transform",
        "errors": "AbortError ConfigError ErrorCode JsonRpcErrorCode RegistrationError ToolError "
        "UsageError",
        "features.context": "ToolContext",
        "features.session_log": "SessionLog",
        "features.instruments": "Counter Gauge Histogram",
        "features.observers": "CompletedCall",
        "features.own_features": "Feature",
        "features.forwarding.forwarder": "ForwardTarget ForwardedError ForwardedRequest "
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
