"""Notifications of another server about a call, handed on to its client (NOTE-09)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..protocol.methods import NOTIFICATIONS_MESSAGE, NOTIFICATIONS_PROGRESS
from ..protocol.peer import is_wanted
from .context import check_level

if TYPE_CHECKING:
    from ..protocol.peer import Peer


def params_to_send(
    client: Peer, token: str | int | None, method: str, params: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the params of a notification as its client gets them; None: it gets none.

    Args:
        client: of the call.
        token: with which the client asked for progress; None if it did not.
        method: of the notification.
        params: of the notification, as the other server has sent them.

    Raises:
        UsageError: the method or the level is another one.
    """
    if method == NOTIFICATIONS_PROGRESS:
        if token is None or type(params.get("progress")) not in (int, float):
            return None
        return {**client.revision.keep("progress", params), "progressToken": token}
    if method == NOTIFICATIONS_MESSAGE:
        check_level(params.get("level"))
        return dict(params) if is_wanted(params["level"], client.log_level) else None
    raise UsageError(
        f"a call has {NOTIFICATIONS_PROGRESS} and {NOTIFICATIONS_MESSAGE}, not {method!r}"
    )
