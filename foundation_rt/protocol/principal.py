"""Principals: the authenticated identities of peers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import Factory, field, frozen

from ..base.exact_json import loads
from ..base.shown import Compared

ALL_SCOPES = frozenset(("*",))
"""The scopes of a principal without limits: the holder of an API key of the server."""


class TokenClaims(Mapping[str, Any]):
    """The claims of a verified token by name, as handlers get them (AUTH-37).

    No value is ever shown. Each look returns a copy of the value, which may be changed: requests
    with the same token do not share one.

    Args:
        payload: of the token: a JSON object.
    """

    __slots__ = ("_payload",)

    hides_values = True
    """Logs show the names alone."""

    def __init__(self, payload: bytes = b"{}") -> None:
        self._payload = payload

    def _read(self) -> dict[str, Any]:
        claims: dict[str, Any] = loads(self._payload)
        return claims

    def __getitem__(self, name: str) -> Any:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return f"<claims {', '.join(self)}>"


NO_CLAIMS = TokenClaims()
"""Those of a principal without a token: the holder of an API key."""


@frozen(eq=False)
class Principal(Compared):
    """An authenticated peer.

    Attributes:
        subject: its name, unique among all principals.
        scopes: the scopes that it was granted.
        client_id: the program that acts for it, if known.
        claims: those of the token of this request; empty for the holder of an API key.
    """

    subject: str
    scopes: frozenset[str] = frozenset()
    client_id: str | None = None
    claims: Mapping[str, Any] = field(default=NO_CLAIMS, eq=False, repr=False, kw_only=True)
    _identity: str = field(
        init=False,
        eq=False,
        repr=False,
        default=Factory(lambda self: ascii((self.subject, self.client_id)), takes_self=True),
    )

    @property
    def identity(self) -> str:
        """The same for all tokens of the principal, and of no other one; ASCII (AUTH-11)."""
        return self._identity

    def lacks(self, needed: Iterable[str]) -> frozenset[str]:
        """Return the scopes in `needed` that the principal does not have (AUTH-13)."""
        if self.scopes is ALL_SCOPES:  # itself: a token may have a scope that is called "*"
            return frozenset()
        return frozenset(needed) - self.scopes


def identity_of(principal: Principal | None) -> str | None:
    """Return the identity of a principal, the same for all of its tokens (AUTH-11).

    It is ASCII, and no two principals have the same.
    """
    return None if principal is None else principal._identity
