"""A chat in which a model uses the tools of many MCP servers (spec/host.md).

The public names are imported when they are first used (PEP 562), as those of the package are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.lazy_names import homes_of, lazy_names

if TYPE_CHECKING:
    from .app import Host as Host
    from .app import make_server as make_server
    from .chat import ChatMessage as ChatMessage
    from .chat import Role as Role
    from .chat import TokenUsage as TokenUsage
    from .chat import ToolPhase as ToolPhase
    from .llm.provider import CallPiece as CallPiece
    from .llm.provider import EndPiece as EndPiece
    from .llm.provider import ModelRequest as ModelRequest
    from .llm.provider import Provider as Provider
    from .llm.provider import TextPiece as TextPiece
    from .llm.provider import ThoughtPiece as ThoughtPiece
    from .llm.provider import UsagePiece as UsagePiece
    from .llm.providers import make_service as make_service
    from .llm.service import LLMConfig as LLMConfig
    from .llm.service import LLMService as LLMService
    from .llm.service import LLMServiceError as LLMServiceError
    from .orchestrator import ConversationOrchestrator as ConversationOrchestrator
    from .orchestrator import connection_options as connection_options
    from .settings import HostSettings as HostSettings

_HOMES = homes_of(
    {
        "app": "Host make_server",
        "chat": "ChatMessage Role TokenUsage ToolPhase",
        "llm.provider": "CallPiece EndPiece ModelRequest Provider TextPiece ThoughtPiece "
        "UsagePiece",
        "llm.providers": "make_service",
        "llm.service": "LLMConfig LLMService LLMServiceError",
        "orchestrator": "ConversationOrchestrator connection_options",
        "settings": "HostSettings",
    }
)

__all__ = [*_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
