"""One turn of a chat: the model, calls of tools, approvals, questions (spec/host-orchestrator.md).

The public names are imported when they are first used (PEP 562), as those of the package are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....base.lazy_names import homes_of, lazy_names

if TYPE_CHECKING:
    from .histories import ConversationHistories as ConversationHistories
    from .histories import MemoryHistories as MemoryHistories
    from .observation import TurnMetrics as TurnMetrics
    from .orchestrator import ConversationOrchestrator as ConversationOrchestrator
    from .settings import HistoryManagementOptions as HistoryManagementOptions
    from .settings import OrchestratorSettings as OrchestratorSettings
    from .settings import connection_options as connection_options

_HOMES = homes_of(
    {
        "histories": "ConversationHistories MemoryHistories",
        "observation": "TurnMetrics",
        "orchestrator": "ConversationOrchestrator",
        "settings": "HistoryManagementOptions OrchestratorSettings connection_options",
    }
)

__all__ = [*_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
