"""`tasks/get`, `tasks/update` and `tasks/cancel` of the tasks extension (spec/tasks.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import JsonRpcErrorCode
from ...protocol.jsonrpc import ABSENT
from ..replies import Refused, invalid_params, method_not_found, refuse
from ..tasks.support import REQUIRED_CAPABILITIES, can_have_tasks

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
    """How a task stands (TASK-06)."""
    _, record = _find(dispatcher, session, peer, request)
    return [dispatcher.results.reply(peer, request, record.detailed())]


def update_task(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """The client answers what a task asks (TASK-08)."""
    manager, record = _find(dispatcher, session, peer, request)
    responses = request.params.get("inputResponses")
    if type(responses) is not dict:
        return invalid_params(session, request, "inputResponses must be an object")
    task = manager.running(record.task_id)
    effects = [] if task is None else manager.answer(task, responses)
    return [dispatcher.results.reply(peer, request, {}), *effects]


def cancel_task(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """The client does not want a task any more; one that has ended stays as it is (TASK-09)."""
    manager, record = _find(dispatcher, session, peer, request)
    call = manager.call_of(record.task_id)
    effects = [] if call is None else call.procedure.cancel(call)
    return [dispatcher.results.reply(peer, request, {}), *effects]


def _find(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> tuple[TaskManager, TaskRecord]:
    """The task that `request` names; raises `Refused` (TASK-02, TASK-10)."""
    if not dispatcher.tasks.offered:
        raise Refused(method_not_found(session, request))
    require_extension(session, peer, request)
    task_id = None if request.params is ABSENT else request.params.get("taskId")
    if type(task_id) is not str:
        raise Refused(invalid_params(session, request, "taskId must be a string"))
    manager = dispatcher.tasks.manager()
    record = manager.find(task_id, session.principal)
    if record is None:
        raise Refused(
            refuse(
                session,
                request,
                JsonRpcErrorCode.INVALID_PARAMS,
                "Invalid params: there is no such task",
                "task_not_found",
            )
        )
    return manager, record


def require_extension(session: Session, peer: Peer, request: Request) -> None:
    """Raise `Refused` if the client did not say that it can have tasks (TASK-02)."""
    if not can_have_tasks(peer):
        raise Refused(
            refuse(
                session,
                request,
                JsonRpcErrorCode.MISSING_CLIENT_CAPABILITY,
                "Missing required client capability",
                requiredCapabilities=REQUIRED_CAPABILITIES,
            )
        )
