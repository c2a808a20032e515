"""What all lists have in common: a page of entries, and the cursor of the page after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dispatch.refusals import refuse
from ..errors import JsonRpcErrorCode
from ..features.pages import InvalidCursor
from ..protocol.jsonrpc import ABSENT

if TYPE_CHECKING:
    import orjson

    from ..dispatch.dispatcher import Dispatcher
    from ..dispatch.effects import Effect
    from ..dispatch.session import Session
    from ..protocol.jsonrpc import Request
    from ..protocol.peer import Peer
    from ..protocol.revisions import Revision

    Page = tuple[list[orjson.Fragment], str | None]
    ReadPage = Callable[[str | None, int, Revision], Page]


def answer_list(
    dispatcher: Dispatcher,
    session: Session,
    peer: Peer,
    request: Request,
    member: str,
    read_page: ReadPage,
) -> list[Effect]:
    """The page that `request` asks for (PAGE-01 to PAGE-03).

    Args:
        member: the name of the list in the result.
        read_page: gives the entries and the next cursor, by cursor, page size and revision; raises
            `InvalidCursor`.
    """
    cursor = None if request.params is ABSENT else request.params.get("cursor")
    try:
        if cursor is not None and type(cursor) is not str:
            raise InvalidCursor
        entries, following = read_page(cursor, dispatcher.page_size, peer.revision)
    except InvalidCursor:
        message = "Invalid params: there is no such cursor"
        return refuse(session, request, JsonRpcErrorCode.INVALID_PARAMS, message, "invalid_cursor")
    result: dict[str, Any] = {member: entries, **dispatcher.envelope.cache_hints(peer)}
    if following is not None:
        result["nextCursor"] = following
    return [dispatcher.envelope.reply(peer, request, result)]
