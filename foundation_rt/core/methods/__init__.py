"""The methods of MCP: a table, and a module for each noun of the protocol.

A method is a function of the dispatcher, the session, the peer and the request. It returns the
effects that answer the request, or raises `JsonRpcError` or `ToolError` to refuse it. The peer's
revision says which methods it may use (`protocol.revisions`); `tools/call` begins in
`core.call_lifecycle`.

The functions of `METHODS` import their module when they are first called: most servers never need
most of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..session import Session

    Method = Callable[[Dispatcher, Session, Peer, Request], list[Effect]]


def _complete(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .completion import complete

    return complete(dispatcher, session, peer, request)


def _set_level(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .logging import set_level

    return set_level(dispatcher, session, peer, request)


def _ping(dispatcher: Dispatcher, session: Session, peer: Peer, request: Request) -> list[Effect]:
    from .lifecycle import ping

    return ping(dispatcher, session, peer, request)


def _get_prompt(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .prompts import get_prompt

    return get_prompt(dispatcher, session, peer, request)


def _list_prompts(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .prompts import list_prompts

    return list_prompts(dispatcher, session, peer, request)


def _list_resources(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .resources import list_resources

    return list_resources(dispatcher, session, peer, request)


def _read_resource(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .resources import read_resource

    return read_resource(dispatcher, session, peer, request)


def _subscribe(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .subscriptions import subscribe

    return subscribe(dispatcher, session, peer, request)


def _list_templates(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .resources import list_templates

    return list_templates(dispatcher, session, peer, request)


def _unsubscribe(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .subscriptions import unsubscribe

    return unsubscribe(dispatcher, session, peer, request)


def _discover(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .lifecycle import discover

    return discover(dispatcher, session, peer, request)


def _listen(dispatcher: Dispatcher, session: Session, peer: Peer, request: Request) -> list[Effect]:
    from .subscriptions import listen

    return listen(dispatcher, session, peer, request)


def _cancel_task(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .tasks import cancel_task

    return cancel_task(dispatcher, session, peer, request)


def _get_task(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .tasks import get_task

    return get_task(dispatcher, session, peer, request)


def _update_task(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .tasks import update_task

    return update_task(dispatcher, session, peer, request)


def _list_tools(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    from .lists import list_tools

    return list_tools(dispatcher, session, peer, request)


METHODS: dict[str, Method] = {
    "completion/complete": _complete,
    "logging/setLevel": _set_level,
    "ping": _ping,
    "prompts/get": _get_prompt,
    "prompts/list": _list_prompts,
    "resources/list": _list_resources,
    "resources/read": _read_resource,
    "resources/subscribe": _subscribe,
    "resources/templates/list": _list_templates,
    "resources/unsubscribe": _unsubscribe,
    "server/discover": _discover,
    "subscriptions/listen": _listen,
    "tasks/cancel": _cancel_task,
    "tasks/get": _get_task,
    "tasks/update": _update_task,
    "tools/list": _list_tools,
}
