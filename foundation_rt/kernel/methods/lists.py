"""Lists in pages: what all methods `*/list` have in common, and `tools/list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ...base.cursors import InvalidCursor
from ..replies import invalid_params

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
    """A list that can be read in pages."""

    @property
    def differs(self) -> bool:
        """Return whether principals may see different lists."""

    def page(
        self, cursor: str | None, size: int, revision: Revision, principal: Principal | None
    ) -> Page:
        """Return a page of entries and the next cursor; raise `InvalidCursor`."""


def list_tools(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Return a page of the tools, as the peer's revision shows them (REG-02)."""
    return answer_list(dispatcher, session, peer, request, "tools", dispatcher.calls.registry)


def answer_list(
    dispatcher: Dispatcher,
    session: Session,
    peer: Peer,
    request: Request,
    member: str,
    entries: Paged,
) -> list[Effect]:
    """Return the page of `entries` that `request` asks for, as `member` (PAGE-01 to PAGE-03).

    A principal sees only the entries that it may use (AUTH-26).
    """
    cursor = request.members.get("cursor")
    try:
        page, next_cursor = entries.page(
            cursor, dispatcher.page_size, peer.revision, session.principal
        )
    except InvalidCursor:
        raise invalid_params("there is no such cursor", "invalid_cursor") from None
    hints = dispatcher.results.cache_hints(peer, differs=entries.differs)
    result: dict[str, Any] = {member: page, **hints}
    if next_cursor is not None:
        result["nextCursor"] = next_cursor
    return [dispatcher.results.reply(peer, request, result)]
