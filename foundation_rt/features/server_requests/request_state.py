"""`requestState`: the state of a call between its round trips, which the client carries.

The client may be hostile, so the state is authenticated: it cannot be made or changed without the
key (HMAC-SHA256 over its text, compared in constant time). It is bound to a principal, a request
and a time, and serves no other (ASK-14, ASK-15). Its content is not encrypted: it came from the
client, or is sent to it anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ...base.exact_json import dumps, loads
from ...base.shown import Shown
from ...protocol.principal import identity_of

if TYPE_CHECKING:
    from ...protocol.principal import Principal

MAX_STATE_BYTES = 1024 * 1024
"""The length of a state, in bytes, above which it is neither made nor read."""

_CALL_STATE = b"foundation-rt requestState 1\n"
_VALUE = b"foundation-rt value 1\n"
"""Each begins the text that is authenticated, so that no other use of the key makes a state."""


class StateTooLarge(Exception):
    """Raised for a state that is longer than `MAX_STATE_BYTES`, or nested too deeply."""


class StateRefused(Exception):
    """Raised for a state that was tampered with, has expired, or is bound to another request.

    Attributes:
        reason: `state_tampered`, `state_expired` or `state_foreign`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@define(eq=False, repr=False)
class StateScope(Shown):
    """The principal and the request that a state is bound to.

    Attributes:
        principal: a digest of the principal's identity; "" where authentication is off.
        request: a digest of the method, of what it names and of its arguments.
    """

    principal: str
    request: str


@define(eq=False, repr=False)
class CallState(Shown):
    """The requests of a call and their answers, over all of its round trips.

    Attributes:
        asked: by key, the digest of each request that was sent in the last round trip.
        answers: by key, the digest of a request and the client's result.
    """

    asked: dict[str, str] = field(factory=dict)
    answers: dict[str, tuple[str, Any]] = field(factory=dict)


def state_scope(
    method: str, name: str, arguments: Mapping[str, Any], principal: Principal | None
) -> StateScope:
    """Return what a state for this request of this principal is bound to."""
    identity = identity_of(principal)
    principal_digest = "" if identity is None else _digest(identity)
    return StateScope(principal_digest, _digest([method, name, arguments]))


def seal(key: bytes, state: CallState, scope: StateScope, expires_ms: int) -> str:
    """Return the text that the client carries.

    Args:
        key: authenticates the state; all processes that serve the call have the same one.
        state: what the client carries.
        scope: what the state is bound to.
        expires_ms: when the state expires, in ms of wall-clock time since 1970.

    Raises:
        StateTooLarge: it would be longer than `MAX_STATE_BYTES`, or is nested too deeply.
    """
    members = {"asked": state.asked, "answers": state.answers}
    try:
        return _seal(key, _CALL_STATE, members, scope, expires_ms)
    except TypeError:  # orjson reads deeper than it writes
        raise StateTooLarge from None


def seal_value(key: bytes, value: Any, scope: StateScope, expires_ms: int) -> str:
    """Return a state that carries `value`; see `seal`.

    Raises:
        StateTooLarge: it would be longer than `MAX_STATE_BYTES`.
        TypeError: `value` cannot be written as JSON.
    """
    return _seal(key, _VALUE, {"value": value}, scope, expires_ms)


def _seal(
    key: bytes, purpose: bytes, members: dict[str, Any], scope: StateScope, expires_ms: int
) -> str:
    from base64 import urlsafe_b64encode

    bound = {"who": scope.principal, "what": scope.request, "until": expires_ms}
    encoded = dumps({**bound, **members}, option=orjson.OPT_SORT_KEYS)
    text = urlsafe_b64encode(encoded).decode()
    sealed = f"{text}.{_tag(key, purpose, text)}"
    if len(sealed) > MAX_STATE_BYTES:
        raise StateTooLarge
    return sealed


def unseal(key: bytes, sealed: str, scope: StateScope, now_ms: int) -> CallState:
    """Return the state that `seal` made.

    Raises:
        StateRefused: it was made with another key or for another scope, or has expired.
    """
    content = _unseal(key, _CALL_STATE, sealed, scope, now_ms)
    answers = {name: (digest, answer) for name, (digest, answer) in content["answers"].items()}
    return CallState(content["asked"], answers)


def unseal_value(key: bytes, sealed: str, scope: StateScope, now_ms: int) -> Any:
    """Return the value of a state that `seal_value` made; raises as `unseal` does."""
    return _unseal(key, _VALUE, sealed, scope, now_ms)["value"]


def _unseal(
    key: bytes, purpose: bytes, sealed: str, scope: StateScope, now_ms: int
) -> dict[str, Any]:
    from base64 import urlsafe_b64decode
    from hmac import compare_digest

    text, _, tag = sealed.partition(".")
    if len(sealed) > MAX_STATE_BYTES or not sealed.isascii():
        raise StateRefused("state_tampered")
    if not compare_digest(_tag(key, purpose, text), tag):
        raise StateRefused("state_tampered")
    content: dict[str, Any] = loads(urlsafe_b64decode(text))
    if content["who"] != scope.principal or content["what"] != scope.request:
        raise StateRefused("state_foreign")
    if content["until"] <= now_ms:
        raise StateRefused("state_expired")
    return content


def _tag(key: bytes, purpose: bytes, text: str) -> str:
    import hmac

    return hmac.new(key, purpose + text.encode(), "sha256").hexdigest()


def _digest(value: Any) -> str:
    from hashlib import sha256

    return sha256(dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
