"""Who a peer has proved to be."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import Factory, field, frozen

ALL_SCOPES = frozenset(("*",))
"""Of a principal that is not bound by scopes: who has a key of the server's own."""


@frozen
class Principal:
    """A peer that has authenticated itself.

    Attributes:
        subject: unique among all who may connect.
        scopes: what it may do.
        client_id: the program that acts for it, if that is known.
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

    def lacks(self, needed: Iterable[str]) -> frozenset[str]:
        """Those of the scopes `needed` that it does not have (AUTH-13)."""
        if self.scopes is ALL_SCOPES:  # itself: a token may have a scope that is called "*"
            return frozenset()
        return frozenset(needed) - self.scopes


def identity_of(principal: Principal | None) -> str | None:
    """What all requests of one principal have in common, whatever their tokens allow (AUTH-11).

    It is ASCII, whatever the names hold, and no two principals have the same.
    """
    return None if principal is None else principal._identity
