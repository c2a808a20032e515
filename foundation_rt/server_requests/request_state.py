"""`requestState`: what a server remembers of a call by having its client remember it.

The state passes through the client, which may be hostile. So it is sealed: nobody without the key
can make or change one (HMAC-SHA256 over its very text, compared in constant time). And it says for
whom, for what and until when it is good, so that it serves nobody else, no other request and not
for ever (ASK-14, ASK-15). What is inside is not hidden: it came from the client, or it goes there
anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ..protocol.principal import identity_of

if TYPE_CHECKING:
    from ..protocol.principal import Principal

MAX_STATE_BYTES = 1024 * 1024
"""A longer state is neither made nor read."""

_PURPOSE = b"foundation-rt requestState 1\n"
"""What is authenticated begins with it, lest a key that serves something else makes a state."""


class StateTooLarge(Exception):
    """What a client would have to remember is longer than it is asked to, or nested too deeply."""


class StateRefused(Exception):
    """A state that is not good here and now.

    Attributes:
        reason: `state_tampered`, `state_expired` or `state_foreign`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@define(eq=False, repr=False)
class StateScope:
    """Whom and what a state is good for.

    Attributes:
        principal: who asked, as a digest; "" where nobody has to say.
        request: what was asked: a digest of the method and of the params that matter.
    """

    principal: str
    request: str


@define(eq=False, repr=False)
class CallState:
    """What has been asked in a call, and answered, over all of its rounds.

    Attributes:
        asked: by key, the digest of a question that was asked in the last round.
        answers: by key, the digest of a question and the client's result.
    """

    asked: dict[str, str] = field(factory=dict)
    answers: dict[str, tuple[str, Any]] = field(factory=dict)


def purpose(
    method: str, name: str, arguments: Mapping[str, Any], principal: Principal | None
) -> StateScope:
    """What a state for this request of this principal is good for."""
    identity = identity_of(principal)
    who = "" if identity is None else _digest(identity)
    return StateScope(who, _digest([method, name, arguments]))


def seal(key: bytes, state: CallState, good_for: StateScope, expires_ms: int) -> str:
    """The text that a client is given, and gives back.

    Args:
        expires_ms: until when it is good, in ms of wall-clock time since 1970.

    Raises:
        StateTooLarge: it would be longer than `MAX_STATE_BYTES`, or is nested too deeply.
    """
    from base64 import urlsafe_b64encode

    content = {
        "who": good_for.principal,
        "what": good_for.request,
        "until": expires_ms,
        "asked": state.asked,
        "answers": state.answers,
    }
    try:
        encoded = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # orjson reads deeper than it writes
        raise StateTooLarge from None
    text = urlsafe_b64encode(encoded).decode()
    sealed = f"{text}.{_tag(key, text)}"
    if len(sealed) > MAX_STATE_BYTES:
        raise StateTooLarge
    return sealed


def unseal(key: bytes, sealed: str, good_for: StateScope, now_ms: int) -> CallState:
    """The state that `seal` made.

    Raises:
        StateRefused: it was not made with this key, or is not good for this, or no longer.
    """
    from base64 import urlsafe_b64decode
    from hmac import compare_digest

    text, _, tag = sealed.partition(".")
    if len(sealed) > MAX_STATE_BYTES or not sealed.isascii():
        raise StateRefused("state_tampered")
    if not compare_digest(_tag(key, text), tag):
        raise StateRefused("state_tampered")
    content = orjson.loads(urlsafe_b64decode(text))
    if content["who"] != good_for.principal or content["what"] != good_for.request:
        raise StateRefused("state_foreign")
    if content["until"] <= now_ms:
        raise StateRefused("state_expired")
    answers = {name: (digest, answer) for name, (digest, answer) in content["answers"].items()}
    return CallState(content["asked"], answers)


def _tag(key: bytes, text: str) -> str:
    import hmac

    return hmac.new(key, _PURPOSE + text.encode(), "sha256").hexdigest()


def _digest(value: Any) -> str:
    from hashlib import sha256

    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
