"""The ledger in PostgreSQL: it passes the suite of all stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from foundation_rt.aacp.stores.postgres import PostgresAACPPersistenceAdapter
from tests.aacp.contract import MakeAdapter, SharedStoreContract
from tests.support.services import postgres_schema


class _Contract(SharedStoreContract):
    @staticmethod
    @contextmanager
    def place() -> Iterator[MakeAdapter]:
        with postgres_schema() as (url, schema):
            yield lambda: PostgresAACPPersistenceAdapter(url, schema=schema)


TestContract = pytest.mark.rule("AACP-01")(_Contract)
