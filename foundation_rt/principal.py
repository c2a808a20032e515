"""Who a peer has proved to be."""

from __future__ import annotations

from attrs import frozen


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
