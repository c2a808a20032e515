"""Principals: the authenticated identities of peers."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import Factory, field, frozen

ALL_SCOPES = frozenset(("*",))
"""The scopes of a principal without limits: the holder of an API key of the server."""


@frozen
class Principal:
    """An authenticated peer.

    Attributes:
        subject: its name, unique among all principals.
        scopes: the scopes that it was granted.
        client_id: the program that acts for it, if known.
    """

    subject: str
    scopes: frozenset[str] = frozenset()
    client_id: str | None = None
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
