"""Many MCP servers as one, for programs: `Coordinator` (spec/coordinator.md).

The public names are imported when they are first used (PEP 562), as those of the package are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.lazy_names import homes_of, lazy_names

if TYPE_CHECKING:
    from .coordinator import Coordinator as Coordinator
    from .names import close_names as close_names
    from .names import outside_name as outside_name
    from .options import CircuitOptions as CircuitOptions
    from .options import CoordinatorOptions as CoordinatorOptions
    from .requests import CoordinatorError as CoordinatorError
    from .requests import ExecutionContext as ExecutionContext
    from .requests import Priority as Priority
    from .requests import RetryOptions as RetryOptions
    from .requests import ToolCallFailure as ToolCallFailure
    from .requests import ToolCallRequest as ToolCallRequest
    from .requests import ToolCallResponse as ToolCallResponse
    from .requests import ToolCircuitOpenError as ToolCircuitOpenError
    from .requests import ToolExecutionError as ToolExecutionError
    from .requests import ToolExecutionOptions as ToolExecutionOptions
    from .requests import ToolNotFoundError as ToolNotFoundError
    from .requests import ToolValidationError as ToolValidationError
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
    from .tool_record import ToolRegistryEntry as ToolRegistryEntry

_HOMES = homes_of(
    {
        "coordinator": "Coordinator",
        "names": "close_names outside_name",
        "options": "CircuitOptions CoordinatorOptions",
        "tool_record": "ToolRegistryEntry",
        "requests": "CoordinatorError ExecutionContext Priority RetryOptions ToolCallFailure "
        "ToolCallRequest ToolCallResponse ToolCircuitOpenError ToolExecutionError "
        "ToolExecutionOptions ToolNotFoundError ToolValidationError failure_of",
        "server_connections": "ServerConnections",
        "server_group": "ServerStatus",
        "server_state": "ServerState",
        "servers": "ServerPlan chain_mark file_identity for_many is_own_child mark_children "
        "plans_of plans_of_file shared_logins with_logins",
    }
)

__all__ = [*_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
