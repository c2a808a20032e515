"""Calls that wait before step 1, for features around the decision about a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..kernel.invocation import Phase, Returned, Stopped
from ..kernel.records import late_record
from ..kernel.registry.tools import ExecutionMode
from ..kernel.results import TOOL
from ..protocol.methods import TOOLS_CALL
from .handler_calls import FEATURE

if TYPE_CHECKING:
    from ..kernel.dispatcher import Dispatcher
    from ..kernel.effects import Effect
    from ..kernel.invocation import Invocation, Step
    from ..kernel.session import Session
    from ..protocol.jsonrpc import Request
    from ..protocol.peer import Peer

_T = TypeVar("_T")

_TIMEOUT_MS = 60_000


def early_call(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request, name: str
) -> Invocation:
    """Return the call of a request that nothing has checked yet, with its ids."""
    kind = TOOL if request.method == TOOLS_CALL else FEATURE
    call = dispatcher.calls.assign_ids(kind, session, peer, request, name, {})
    for label in dispatcher.label:
        label(call, request)
    return call


def wait(
    dispatcher: Dispatcher,
    call: Invocation,
    waiting: Callable[[], Awaitable[_T]],
    then: Callable[[Invocation, _T], list[Effect]],
) -> list[Effect]:
    """Let an early call wait; it can be cancelled, and ends with its connection (RATE-08).

    Args:
        dispatcher: decides about the call.
        call: has its ids, and nothing that was decided.
        waiting: called once, on the event loop.
        then: decides about the request, given what was waited for.
    """

    async def handler(arguments: dict[str, Any], context: object) -> _T:
        return await waiting()

    call.handler, call.execution, call.timeout_ms = handler, ExecutionMode.ASYNC, _TIMEOUT_MS
    call.is_wait = True
    call.around_steps = (partial(_take_step, dispatcher, then),)
    call.session.in_flight[call.request_id] = call
    return [call]


def _take_step(
    dispatcher: Dispatcher,
    then: Callable[[Invocation, Any], list[Effect]],
    name: str,
    step: Step,
    call: Invocation,
    *arguments: Any,
) -> list[Effect]:
    if name == "expire":
        return []  # the deadline counts from the start of the handler (TIME-01)
    if name != "conclude":
        return step(call, *arguments)
    outcome, duration_ms = arguments
    if call.phase is not Phase.PENDING:
        return [late_record(call, Stopped(), duration_ms)]
    session = call.session
    del session.in_flight[call.request_id]
    if not isinstance(outcome, Returned):
        return dispatcher.calls.answer(call, outcome, duration_ms)
    # Later messages of the session may have brought another token of the same principal.
    latest = session.principal, session.headers
    session.principal, session.headers = call.principal, call.headers
    try:
        return then(call, outcome.value)
    finally:
        session.principal, session.headers = latest
