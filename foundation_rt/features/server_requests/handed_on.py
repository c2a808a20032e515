"""A request of another server that is handed on to the client as it is (ASK-42).

For servers that stand before others. What such a request says is between the other server and the
client: params and result are looked at only as far as capabilities depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ...errors import UsageError
from ...protocol.methods import ELICITATION_CREATE, ROOTS_LIST, SAMPLING_CREATE_MESSAGE
from . import elicitation, roots, sampling
from .errors import InvalidClientResult
from .requests import PreparedRequest

if TYPE_CHECKING:
    from ...protocol.peer import Peer
    from .forms import Forms

Params = Mapping[str, Any]


@frozen
class HandedOn:
    """A request of another server; its value is the client's result, as it came."""

    method: str
    params: object

    def prepare(self, peer: Peer, forms: Forms, name: str) -> PreparedRequest:
        """Return the request for `peer`; raise `ClientCapabilityError` or `UsageError`."""
        if peer.revision.is_stateless:
            raise UsageError(
                "a client of the stateless mode is not sent requests: return what is needed of it"
                " as an input_required result"
            )
        check = _CHECKS.get(self.method)
        if check is None:
            raise UsageError(f"a client is asked for {', '.join(_CHECKS)}, not {self.method!r}")
        if not isinstance(self.params, Mapping):
            raise UsageError("the params of a request are an object")
        check(peer, self.params)
        return PreparedRequest(self.method, _without_token(self.params), _read)


def _check_elicitation(peer: Peer, params: Params) -> None:
    if params.get("mode") == "url":
        elicitation.require_pages(peer)
    else:
        elicitation.require_forms(peer)


def _check_sampling(peer: Peer, params: Params) -> None:
    kinds = {kind for message in _list_of(params, "messages") for kind in _kinds_of(message)}
    sampling.require(
        peer,
        tools=any(params.get(each) for each in ("tools", "toolChoice"))
        or not kinds.isdisjoint(("tool_use", "tool_result")),
        context=params.get("includeContext") not in (None, "none"),
        audio="audio" in kinds,
    )


_CHECKS: dict[str, Callable[[Peer, Params], None]] = {
    ELICITATION_CREATE: _check_elicitation,
    SAMPLING_CREATE_MESSAGE: _check_sampling,
    ROOTS_LIST: lambda peer, params: roots.require(peer),
}
"""By method, what the client must have declared for a request."""


def _list_of(params: Params, member: str) -> list[Any]:
    found = params.get(member)
    return found if type(found) is list else []


def _kinds_of(message: Any) -> list[str]:
    """Return the types of the content of a message, which comes from elsewhere."""
    content = message.get("content") if type(message) is dict else None
    blocks = content if type(content) is list else [content]
    kinds = [block.get("type") for block in blocks if type(block) is dict]
    return [kind for kind in kinds if type(kind) is str]


def _without_token(params: Params) -> dict[str, Any]:
    """Return the params without a progress token: nothing would take the progress (ASK-17)."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or "progressToken" not in meta:
        return dict(params)
    rest = {name: value for name, value in meta.items() if name != "progressToken"}
    return {**params, "_meta": rest}


def _read(answer: Any) -> dict[str, Any]:
    if type(answer) is not dict:
        raise InvalidClientResult(("", "is not an object"))
    return answer
