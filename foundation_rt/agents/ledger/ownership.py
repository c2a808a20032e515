"""Ids that belong to a principal: how the ids of several fit into one ledger (AACP-48).

A ledger has one namespace. What a principal calls ``order-17`` is kept there, and travels, as
``order-17@`` and a digest of its identity; what has no principal keeps its id as it is. No caller
can give an id with an ``@`` in it, so one principal's ids are never another's, nor the host's. To
look an id up is to look it up under its owner: another's is simply not there.
"""

from __future__ import annotations

import re
from hashlib import blake2b

_GIVEN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_LEDGER_ID = re.compile(rf"{_GIVEN_ID.pattern}(?:@[0-9a-f]{{32}})?")
_OWNER_BYTES = 16


def is_request_id(value: object) -> bool:
    """Return whether a caller may give this id: 1 to 128 of letters, digits and ``._:-``.

    The first is a letter or a digit (AACP-12).
    """
    return type(value) is str and _GIVEN_ID.fullmatch(value) is not None


def is_ledger_id(value: object) -> bool:
    """Return whether a ledger may hold this id: one that was given, with or without an owner."""
    return type(value) is str and _LEDGER_ID.fullmatch(value) is not None


def owned_id(given: str, identity: str | None) -> str:
    """Return the id under which a ledger keeps what a principal calls `given`.

    Args:
        given: an id that `is_request_id` accepts.
        identity: the principal's `identity_of`; None where there is no principal.
    """
    if identity is None:
        return given
    owner = blake2b(identity.encode(), digest_size=_OWNER_BYTES).hexdigest()
    return f"{given}@{owner}"


def given_id(ledger_id: str) -> str:
    """Return the id as its owner gave it: the inverse of `owned_id`."""
    return ledger_id.partition("@")[0] if "@" in ledger_id else ledger_id


def owner_of(ledger_id: str) -> str | None:
    """Return the digest that names the owner of an id; None where it has none."""
    return (ledger_id.partition("@")[2] or None) if "@" in ledger_id else None
