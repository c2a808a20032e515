"""Asking the user: by a form, or by a page that is opened outside of the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from attrs import frozen

from ..errors import UsageError
from .errors import ClientCapabilityError, InvalidClientResult
from .requests import PreparedRequest

if TYPE_CHECKING:
    from ..protocol.peer import Peer
    from .forms import Forms

METHOD = "elicitation/create"

Content = TypeVar("Content")
Action = Literal["accept", "decline", "cancel"]
ACTIONS = ("accept", "decline", "cancel")
"""What a user may have done."""


@frozen
class ElicitResult(Generic[Content]):
    """What the user did.

    Attributes:
        action: `accept`; `decline` for an explicit no; `cancel` for a form closed unanswered.
        content: what was filled in, after `accept` of a form; else None.
    """

    action: Action
    content: Content | None = None

    @property
    def accepted(self) -> bool:
        """Return whether the user said yes."""
        return self.action == "accept"


@frozen
class Elicit:
    """A form for the user to fill in.

    Args:
        message: why it is asked; shown to the user.
        schema: what is asked for: a JSON Schema of a flat object, or a class (ASK-06, ASK-07).
    """

    message: str
    schema: Mapping[str, Any] | type

    def prepare(self, peer: Peer, forms: Forms, name: str) -> PreparedRequest:
        """The form as `peer` shows it; raises `ClientCapabilityError` or `UsageError`."""
        form = forms.form(self.schema)
        if not _can_show_forms(peer):
            raise ClientCapabilityError({"elicitation": {"form": {}}})
        params = {"message": self.message, "requestedSchema": form.to_wire(peer.revision)}

        def read(answer: Any) -> ElicitResult[Any]:
            action = _read_action(answer)
            if action != "accept":
                return ElicitResult(action)
            return ElicitResult(action, form.read(answer.get("content", {})))

        return PreparedRequest(METHOD, params, read)


@frozen
class ElicitUrl:
    """A page for the user to visit, for what must not pass through the client.

    That the user accepts means that the page will be visited, not that it was: the handler finds
    out for itself.

    Args:
        message: why; shown to the user.
        url: the page: http or https, and nothing in it that the client may not know.
        elicitation_id: names it in `Server.elicitation_completed`, in a revision that has names
            for them; by default one is made up.
    """

    message: str
    url: str
    elicitation_id: str = ""

    def prepare(self, peer: Peer, forms: Forms, name: str) -> PreparedRequest:
        """The page as `peer` is told of it; raises `ClientCapabilityError` or `UsageError`."""
        if not is_web_page(self.url):
            raise UsageError(f"an elicitation needs an http or https URL: {self.url!r} is none")
        modes = peer.revision.elicitation_modes
        if "url" not in modes or not peer.can("elicitation", "url"):
            raise ClientCapabilityError({"elicitation": {"url": {}}})
        params = {"mode": "url", "message": self.message, "url": self.url}
        if peer.revision.names_elicitations:
            params["elicitationId"] = self.elicitation_id or name
        return PreparedRequest(METHOD, params, _read_visit)


def _can_show_forms(peer: Peer) -> bool:
    """An empty capability, or one that names other things than modes, means forms (ASK-04)."""
    if "form" not in peer.revision.elicitation_modes or not peer.can("elicitation"):
        return False
    return peer.can("elicitation", "form") or not peer.can("elicitation", "url")


def is_web_page(url: str) -> bool:
    """Return whether it is an http or https URL with a host."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        return False


def _read_action(answer: Any) -> Action:
    if type(answer) is not dict or answer.get("action") not in ACTIONS:
        raise InvalidClientResult(("/action", f"is not one of {', '.join(ACTIONS)}"))
    action: Action = answer["action"]
    return action


def _read_visit(answer: Any) -> ElicitResult[None]:
    return ElicitResult(_read_action(answer))
