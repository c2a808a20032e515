"""Copies of records: a ledger gives out copies of what it may change."""

from __future__ import annotations

from operator import attrgetter

from attrs import fields

from .types import RequestRecord

_values_of_request = attrgetter(*(each.name for each in fields(RequestRecord)))


def copy_of_request(record: RequestRecord) -> RequestRecord:
    """Return a copy of a record; it shares the values, which do not change."""
    # 1.1 us; `attrs.evolve` goes through the fields one by one, which takes 5.8 us.
    return RequestRecord(*_values_of_request(record))
