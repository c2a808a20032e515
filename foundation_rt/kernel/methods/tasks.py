"""`tasks/get`, `tasks/update` and `tasks/cancel` of the tasks extension (spec/tasks.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.jsonrpc import ABSENT
from ..replies import invalid_params, method_not_found
from ..tasks.support import require_extension

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..session import Session
    from ..tasks.manager import TaskManager
    from ..tasks.record import TaskRecord


def get_task(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Return the state of a task (TASK-06)."""
    _, record = _find(dispatcher, session, peer, request)
    return [dispatcher.results.reply(peer, request, record.detailed())]


def update_task(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Take the client's responses to the requests of a task (TASK-08)."""
    manager, record = _find(dispatcher, session, peer, request)
    responses = request.params.get("inputResponses")
    if type(responses) is not dict:
        raise invalid_params("inputResponses must be an object")
    task = manager.running(record.task_id)
    effects = [] if task is None else manager.respond(task, responses)
    return [dispatcher.results.reply(peer, request, {}), *effects]


def cancel_task(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Cancel a task; one that has ended does not change (TASK-09)."""
    manager, record = _find(dispatcher, session, peer, request)
    call = manager.call_of(record.task_id)
    effects = [] if call is None else dispatcher.cancel_call(call)
    return [dispatcher.results.reply(peer, request, {}), *effects]


def _find(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> tuple[TaskManager, TaskRecord]:
    """Return the task that `request` names; raise `JsonRpcError` (TASK-02, TASK-10)."""
    if not dispatcher.tasks.offered:
        raise method_not_found(request)
    require_extension(peer)
    task_id = None if request.params is ABSENT else request.params.get("taskId")
    if type(task_id) is not str:
        raise invalid_params("taskId must be a string")
    manager = dispatcher.tasks.manager()
    record = manager.find(task_id, session.principal)
    if record is None:
        raise invalid_params("there is no such task", "task_not_found")
    return manager, record
