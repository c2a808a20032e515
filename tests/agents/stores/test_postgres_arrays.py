"""Arrays in PostgreSQL's binary format: whatever goes there comes back."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.agents.stores.postgres import arrays
from tests.lab.places.services import need_postgres
from tests.lab.sizes import examples

SMALLEST, LARGEST = -(2**63), 2**63 - 1
characters = st.characters(exclude_categories=("Cs",), exclude_characters="\0")

KINDS: list[Any] = [
    ("text", arrays.texts, st.none() | st.text(characters)),
    ("bytea", arrays.blobs, st.none() | st.binary()),
    ("bigint", arrays.numbers, st.none() | st.integers(SMALLEST, LARGEST)),
    ("boolean", arrays.flags, st.booleans()),
]


@pytest.mark.parametrize(("kind", "encode", "values"), KINDS, ids=[kind[0] for kind in KINDS])
@settings(max_examples=examples(50))
@given(data=st.data())
def test_array_round_trips(data: st.DataObject, kind: str, encode: Any, values: Any) -> None:
    with psycopg.connect(need_postgres(), autocommit=True) as connection:
        arrays.register(connection)
        given_values = data.draw(st.lists(values))
        query = f"SELECT %b::{kind}[], pg_typeof(%b)::text".encode()
        encoded = encode(given_values)
        [row] = connection.execute(query, (encoded, encoded), binary=True).fetchall()
        assert row == (given_values, f"{kind}[]")
