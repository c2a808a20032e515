"""The lists of all servers as one, after any order of changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.coordinator.catalogue import KINDS, Catalogue

servers = st.sampled_from("abc")
entries = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("xyz"), "n": st.sampled_from([1, 1.0, True])}),
    max_size=2,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), servers, st.sampled_from(KINDS[:2]), entries),
        st.tuples(st.just("show"), servers, st.booleans()),
        st.tuples(st.just("forget"), servers),
        st.tuples(st.just("arrange"), st.permutations("abc"), st.integers(1, 3)),
        st.tuples(st.just("announce")),
    ),
    max_size=30,
)


@pytest.mark.rule("COORD-17", "COORD-18")
@given(steps)
def test_lists_after_any_order_of_changes_are_those_of_the_model(history: list[Any]) -> None:
    catalogue = Catalogue()
    order, lists, shown = list("abc"), dict[tuple[str, str], Any](), set[str]()
    catalogue.arrange(order)
    announced: dict[str, str] = dict.fromkeys(KINDS, "[]")

    def listed(kind: str) -> str:
        return str([(s, e) for s in order if s in shown for e in lists.get((s, kind), ()) or ()])

    for step, *given_ in history:
        if step == "announce":
            expected = [kind for kind in KINDS if listed(kind) != announced[kind]]
            assert catalogue.changes() == expected
            catalogue.announce(expected)
            announced = {kind: listed(kind) for kind in KINDS}
            assert catalogue.changes() == []
        elif step == "arrange":
            order = list(given_[0][: given_[1]])
            shown &= set(order)
            lists = {key: value for key, value in lists.items() if key[0] in order}
            catalogue.arrange(order)
        elif given_[0] in order:
            getattr(catalogue, step)(*given_)
            if step == "put":
                lists[given_[0], given_[1]] = given_[2]
            elif step == "forget":
                lists = {key: value for key, value in lists.items() if key[0] != given_[0]}
                shown.discard(given_[0])
            elif given_[1]:
                shown.add(given_[0])
            else:
                shown.discard(given_[0])
        for kind in KINDS:
            assert str(catalogue.listed(kind)) == listed(kind)


@pytest.mark.rule("COORD-18")
def test_definitions_that_differ_in_a_digit_are_two() -> None:
    catalogue = Catalogue()
    catalogue.arrange(["a"])
    catalogue.show("a", True)
    for odd in (2**70, 2**70 + 1):
        catalogue.put("a", "tools", [{"name": "x", "odd": odd}])
        assert catalogue.changes() == ["tools"]
        catalogue.announce(["tools"])
