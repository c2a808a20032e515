"""`tasks/get`, `tasks/update` and `tasks/cancel` of the tasks extension (spec/tasks.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernel.replies import invalid_params, method_not_found
from ..subscriptions.methods import read_names
from .feature import Tasks
from .support import require_extension

if TYPE_CHECKING:
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import Effect
    from ...kernel.session import Session
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..subscriptions.subscriptions import Topic
    from .manager import TaskManager
    from .record import TaskRecord


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


def read_task_ids(
    dispatcher: Dispatcher, session: Session, peer: Peer, value: object
) -> tuple[list[str], list[Topic]]:
    """Return those tasks that a client may listen for, and their topics (TASK-11, SUB-04)."""
    ids = read_names(value, "taskIds")
    require_extension(peer)
    tasks: Tasks = dispatcher.parts[Tasks]
    known = [one for one in ids if tasks.record_of(one, session.principal) is not None]
    return known, [("task", one) for one in known]


def _find(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> tuple[TaskManager, TaskRecord]:
    """Return the task that `request` names; raise `JsonRpcError` (TASK-02, TASK-10)."""
    tasks: Tasks = dispatcher.parts[Tasks]
    if not tasks.offered:
        raise method_not_found(request)
    require_extension(peer)
    task_id = request.members.get("taskId")
    if type(task_id) is not str:
        raise invalid_params("taskId must be a string")
    record = tasks.record_of(task_id, session.principal)
    if record is None:
        raise invalid_params("there is no such task", "task_not_found")
    return tasks.manager(), record
