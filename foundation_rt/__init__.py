"""foundation-rt: a hand-rolled MCP runtime.

The public names are here; each is imported when it is first used (PEP 562), so that importing the
package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from .aacp.coordinator import AgentCoordinatorV2 as AgentCoordinatorV2
    from .aacp.errors import OutcomeUnknownError as OutcomeUnknownError
    from .aacp.errors import RequestConflictError as RequestConflictError
    from .aacp.errors import RequestFailedError as RequestFailedError
    from .abort import AbortSignal as AbortSignal
    from .agents.coordinator import AgentCoordinator as AgentCoordinator
    from .agents.errors import AgentCycleError as AgentCycleError
    from .agents.errors import AgentNotFoundError as AgentNotFoundError
    from .agents.errors import AgentQueueFullError as AgentQueueFullError
    from .agents.errors import AgentStateTooLargeError as AgentStateTooLargeError
    from .agents.errors import AgentUnregisteredError as AgentUnregisteredError
    from .agents.messages import AgentContext as AgentContext
    from .agents.messages import AgentMessage as AgentMessage
    from .asking.elicitation import Elicit as Elicit
    from .asking.elicitation import ElicitResult as ElicitResult
    from .asking.elicitation import ElicitUrl as ElicitUrl
    from .asking.errors import AnswerTimeoutError as AnswerTimeoutError
    from .asking.errors import AskError as AskError
    from .asking.errors import ClientCapabilityError as ClientCapabilityError
    from .asking.errors import ClientGoneError as ClientGoneError
    from .asking.errors import ClientRefusedError as ClientRefusedError
    from .asking.errors import InvalidAnswerError as InvalidAnswerError
    from .asking.errors import UrlElicitationRequired as UrlElicitationRequired
    from .asking.roots import Root as Root
    from .asking.roots import Roots as Roots
    from .asking.sampled import SampleResult as SampleResult
    from .asking.sampled import ToolUse as ToolUse
    from .asking.sampling import ModelPreferences as ModelPreferences
    from .asking.sampling import Sample as Sample
    from .asking.sampling import SamplingMessage as SamplingMessage
    from .asking.sampling import ToolUseResult as ToolUseResult
    from .context import ToolContext as ToolContext
    from .dispatch.dispatcher import Dispatcher as Dispatcher
    from .errors import AbortError as AbortError
    from .errors import ConfigError as ConfigError
    from .errors import ErrorCode as ErrorCode
    from .errors import RegistrationError as RegistrationError
    from .errors import ToolError as ToolError
    from .errors import UsageError as UsageError
    from .features.completions import Completion as Completion
    from .features.messages import PromptMessage as PromptMessage
    from .features.messages import PromptResult as PromptResult
    from .features.prompts import PromptArgument as PromptArgument
    from .features.prompts import PromptDefinition as PromptDefinition
    from .features.resources import ResourceDefinition as ResourceDefinition
    from .features.resources import ResourceTemplateDefinition as ResourceTemplateDefinition
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
    from .protocol.tool_annotations import ToolAnnotations as ToolAnnotations
    from .running.connection import Connection as Connection
    from .runtime import ServerOptions as ServerOptions
    from .server import Server as Server
    from .server import create_server as create_server
    from .server import start_server as start_server
    from .tools.definition import ToolDefinition as ToolDefinition
    from .typed.constraints import Constraints as Constraints
    from .typed.constraints import Header as Header

_HOMES = {
    "AbortError": "errors",
    "AbortSignal": "abort",
    "AgentContext": "agents.messages",
    "AgentCoordinator": "agents.coordinator",
    "AgentCoordinatorV2": "aacp.coordinator",
    "AgentCycleError": "agents.errors",
    "AgentMessage": "agents.messages",
    "AgentNotFoundError": "agents.errors",
    "AgentQueueFullError": "agents.errors",
    "AgentStateTooLargeError": "agents.errors",
    "AgentUnregisteredError": "agents.errors",
    "Annotations": "protocol.content",
    "AnswerTimeoutError": "asking.errors",
    "AskError": "asking.errors",
    "Audio": "protocol.content",
    "BlobContents": "protocol.content",
    "ClientCapabilityError": "asking.errors",
    "ClientGoneError": "asking.errors",
    "ClientRefusedError": "asking.errors",
    "Completion": "features.completions",
    "ConfigError": "errors",
    "Connection": "running.connection",
    "Constraints": "typed.constraints",
    "Dispatcher": "dispatch.dispatcher",
    "Elicit": "asking.elicitation",
    "ElicitResult": "asking.elicitation",
    "ElicitUrl": "asking.elicitation",
    "EmbeddedResource": "protocol.content",
    "ErrorCode": "errors",
    "Header": "typed.constraints",
    "Icon": "protocol.content",
    "Image": "protocol.content",
    "InvalidAnswerError": "asking.errors",
    "ModelPreferences": "asking.sampling",
    "OutcomeUnknownError": "aacp.errors",
    "PromptArgument": "features.prompts",
    "PromptDefinition": "features.prompts",
    "PromptMessage": "features.messages",
    "PromptResult": "features.messages",
    "RegistrationError": "errors",
    "RequestConflictError": "aacp.errors",
    "RequestFailedError": "aacp.errors",
    "ResourceDefinition": "features.resources",
    "ResourceLink": "protocol.content",
    "ResourceTemplateDefinition": "features.resources",
    "Root": "asking.roots",
    "Roots": "asking.roots",
    "Sample": "asking.sampling",
    "SampleResult": "asking.sampled",
    "SamplingMessage": "asking.sampling",
    "Server": "server",
    "ServerOptions": "runtime",
    "Text": "protocol.content",
    "TextContents": "protocol.content",
    "ToolAnnotations": "protocol.tool_annotations",
    "ToolContext": "context",
    "ToolDefinition": "tools.definition",
    "ToolError": "errors",
    "ToolResult": "protocol.content",
    "ToolUse": "asking.sampled",
    "ToolUseResult": "asking.sampling",
    "UrlElicitationRequired": "asking.errors",
    "UsageError": "errors",
    "create_server": "server",
    "start_server": "server",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
