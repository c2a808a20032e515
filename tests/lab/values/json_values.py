"""Any JSON, for properties."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def json_values(
    *scalars: st.SearchStrategy[Any],
    keys: st.SearchStrategy[str] | None = None,
    leaves: int = 8,
) -> st.SearchStrategy[Any]:
    """Return null, booleans and these scalars, and small lists and objects of them."""
    names = st.text(max_size=3) if keys is None else keys
    return st.recursive(
        st.one_of(st.none(), st.booleans(), *scalars),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=leaves,
    )
