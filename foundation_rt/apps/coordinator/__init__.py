"""Many MCP servers as one, for programs: `Coordinator` (spec/coordinator.md).

The public names are imported when they are first used (PEP 562), as those of the package are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.lazy_names import homes_of, lazy_names

if TYPE_CHECKING:
    from .coordinator import Coordinator as Coordinator
    from .errors import CoordinatorError as CoordinatorError
    from .errors import ExecutionContext as ExecutionContext
    from .errors import ToolCircuitOpenError as ToolCircuitOpenError
    from .errors import ToolExecutionError as ToolExecutionError
    from .errors import ToolNotFoundError as ToolNotFoundError
    from .errors import ToolValidationError as ToolValidationError
    from .names import close_names as close_names
    from .names import outside_name as outside_name
    from .options import CircuitOptions as CircuitOptions
    from .options import CoordinatorOptions as CoordinatorOptions
    from .registry import ToolRegistryEntry as ToolRegistryEntry
    from .requests import Priority as Priority
    from .requests import RetryOptions as RetryOptions
    from .requests import ToolCallFailure as ToolCallFailure
    from .requests import ToolCallRequest as ToolCallRequest
    from .requests import ToolCallResponse as ToolCallResponse
    from .requests import ToolExecutionOptions as ToolExecutionOptions
    from .requests import failure_of as failure_of
    from .server_connections import ServerConnections as ServerConnections
    from .server_group import ServerStatus as ServerStatus
    from .server_state import ServerState as ServerState
    from .servers import ServerPlan as ServerPlan
    from .servers import chain_mark as chain_mark
    from .servers import file_identity as file_identity
    from .servers import for_many as for_many
    from .servers import is_own_child as is_own_child
    from .servers import mark_children as mark_children
    from .servers import plans_of as plans_of
    from .servers import plans_of_file as plans_of_file
    from .servers import shared_logins as shared_logins
    from .servers import with_logins as with_logins

_HOMES = homes_of(
    {
        "coordinator": "Coordinator",
        "errors": "CoordinatorError ExecutionContext ToolCircuitOpenError ToolExecutionError "
        "ToolNotFoundError ToolValidationError",
        "names": "close_names outside_name",
        "options": "CircuitOptions CoordinatorOptions",
        "registry": "ToolRegistryEntry",
        "requests": "Priority RetryOptions ToolCallFailure ToolCallRequest ToolCallResponse "
        "ToolExecutionOptions failure_of",
        "server_connections": "ServerConnections",
        "server_group": "ServerStatus",
        "server_state": "ServerState",
        "servers": "ServerPlan chain_mark file_identity for_many is_own_child mark_children "
        "plans_of plans_of_file shared_logins with_logins",
    }
)

__all__ = [*_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
