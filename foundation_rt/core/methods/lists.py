"""What all lists have in common: a page of entries, and the cursor of the page after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ...errors import JsonRpcErrorCode
from ...protocol.jsonrpc import ABSENT
from ...registry.catalog import InvalidCursor
from ..replies import refuse

if TYPE_CHECKING:
    import orjson

    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ...protocol.principal import Principal
    from ...protocol.revisions import Revision
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..session import Session

    Page = tuple[list[orjson.Fragment], str | None]


class Paged(Protocol):
    """What can be listed in pages."""

    @property
    def has_scopes(self) -> bool:
        """Return whether anything in it needs scopes."""

    def page(
        self, cursor: str | None, size: int, revision: Revision, principal: Principal | None
    ) -> Page:
        """The entries and the next cursor; raises `InvalidCursor`."""


def answer_list(
    dispatcher: Dispatcher,
    session: Session,
    peer: Peer,
    request: Request,
    member: str,
    table: Paged,
) -> list[Effect]:
    """The page that `request` asks for (PAGE-01 to PAGE-03).

    Args:
        member: the name of the list in the result.
        table: what is listed; shows a principal what it may use (AUTH-26).
    """
    cursor = None if request.params is ABSENT else request.params.get("cursor")
    try:
        if cursor is not None and type(cursor) is not str:
            raise InvalidCursor
        entries, following = table.page(
            cursor, dispatcher.page_size, peer.revision, session.principal
        )
    except InvalidCursor:
        message = "Invalid params: there is no such cursor"
        return refuse(session, request, JsonRpcErrorCode.INVALID_PARAMS, message, "invalid_cursor")
    result: dict[str, Any] = {member: entries, **dispatcher.results.cache_hints(peer)}
    if table.has_scopes and "cacheScope" in result:
        result["cacheScope"] = "private"  # another principal may be shown another list
    if following is not None:
        result["nextCursor"] = following
    return [dispatcher.results.reply(peer, request, result)]
