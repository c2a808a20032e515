"""States: what was sealed comes back, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.features.server_requests.request_state import (
    MAX_STATE_BYTES,
    CallState,
    StateRefused,
    StateScope,
    StateTooLarge,
    seal,
    state_scope,
    unseal,
)
from foundation_rt.protocol.principal import Principal

KEY, OTHER_KEY = bytes(32), bytes(31) + b"\x01"
ANN = Principal("ann")
CALL = state_scope("tools/call", "book", {"room": 5}, ANN)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
states = st.builds(
    CallState,
    st.dictionaries(st.text(min_size=1, max_size=4), st.text("0123456789abcdef", min_size=1)),
    st.dictionaries(
        st.text(min_size=1, max_size=4), st.tuples(st.text("0123456789abcdef"), json_values)
    ),
)


def refusal(sealed: str, scope: StateScope = CALL, now_ms: int = 0, key: bytes = KEY) -> str:
    with pytest.raises(StateRefused) as refused:
        unseal(key, sealed, scope, now_ms)
    return refused.value.reason


@pytest.mark.rule("ASK-14")
@given(states)
def test_sealed_state_is_unsealed(state: CallState) -> None:
    found = unseal(KEY, seal(KEY, state, CALL, 100), CALL, 99)
    assert (found.asked, found.answers) == (state.asked, state.answers)


@pytest.mark.rule("ASK-14", "ASK-33")
@given(st.data())
def test_no_character_can_be_changed(data: st.DataObject) -> None:
    sealed = seal(KEY, CallState({"1": "ab"}), CALL, 100)
    at = data.draw(st.integers(0, len(sealed)))
    kept = data.draw(st.integers(at, len(sealed)))
    changed = sealed[:at] + data.draw(st.text(max_size=3)) + sealed[kept:]
    if changed != sealed:
        assert refusal(changed) == "state_tampered"


@pytest.mark.rule("ASK-33")
@given(st.text())
@example("text.täg")
def test_malformed_state_text_is_refused(sealed: str) -> None:
    assert refusal(sealed) == "state_tampered"


@pytest.mark.rule("ASK-14", "ASK-33")
def test_state_of_another_key_is_refused() -> None:
    assert refusal(seal(KEY, CallState(), CALL, 100), key=OTHER_KEY) == "state_tampered"


@pytest.mark.rule("ASK-32", "ASK-33")
@pytest.mark.parametrize(
    "other",
    [
        state_scope("prompts/get", "book", {"room": 5}, ANN),
        state_scope("tools/call", "cancel", {"room": 5}, ANN),
        state_scope("tools/call", "book", {"room": 6}, ANN),
        state_scope("tools/call", "book", {}, ANN),
        state_scope("tools/call", "book", {"room": 5}, None),
        state_scope("tools/call", "book", {"room": 5}, Principal("bob")),
        state_scope("tools/call", "book", {"room": 5}, Principal("ann", client_id="desk")),
    ],
)
def test_state_serves_one_request_of_one_principal(other: StateScope) -> None:
    assert refusal(seal(KEY, CallState(), CALL, 100), other) == "state_foreign"


@pytest.mark.rule("ASK-32")
def test_scopes_and_argument_order_do_not_change_the_state_scope() -> None:
    first = state_scope("tools/call", "book", {"a": 1, "b": 2}, ANN)
    again = state_scope("tools/call", "book", {"b": 2, "a": 1}, Principal("ann", frozenset({"x"})))
    unseal(KEY, seal(KEY, CallState(), first, 100), again, 0)


@pytest.mark.rule("ASK-32")
@pytest.mark.parametrize(("now_ms", "good"), [(99, True), (100, False), (10**15, False)])
def test_state_is_accepted_until_it_expires(now_ms: int, good: bool) -> None:
    sealed = seal(KEY, CallState(), CALL, 100)
    if good:
        unseal(KEY, sealed, CALL, now_ms)
    else:
        assert refusal(sealed, now_ms=now_ms) == "state_expired"


@pytest.mark.rule("ASK-15")
def test_state_is_bounded_when_made_and_when_read() -> None:
    def sealed(length: int) -> str:
        return seal(KEY, CallState({}, {"1": ("", "x" * length)}), CALL, 100)

    almost = sealed(MAX_STATE_BYTES * 3 // 4 - 400)
    assert MAX_STATE_BYTES - 1000 < len(almost) <= MAX_STATE_BYTES
    unseal(KEY, almost, CALL, 0)
    with pytest.raises(StateTooLarge):
        sealed(MAX_STATE_BYTES)
    assert refusal("x" * (MAX_STATE_BYTES + 1)) == "state_tampered"


@pytest.mark.rule("ASK-15")
def test_too_deeply_nested_state_is_too_large() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = [deep]
    with pytest.raises(StateTooLarge):
        seal(KEY, CallState({}, {"1": ("", deep)}), CALL, 100)


@pytest.mark.rule("ASK-14", "ASK-15")
def test_sealed_text_is_stable_across_versions() -> None:
    """Workers are replaced one by one: what one of them sealed, the next has to understand."""
    state = CallState({"2": "cd"}, {"1": ("ab", {"action": "decline"})})
    sealed = seal(
        KEY, state, state_scope("tools/call", "book", {"room": 5}, None), 1_700_000_000_000
    )
    assert sealed == (
        "eyJhbnN3ZXJzIjp7IjEiOlsiYWIiLHsiYWN0aW9uIjoiZGVjbGluZSJ9XX0sImFza2VkIjp7IjIiOiJjZCJ9LCJ1"
        "bnRpbCI6MTcwMDAwMDAwMDAwMCwid2hhdCI6Ijg0YmI2NzA2M2Q5NWU5YTE5NmZlNzFiMzFkMGFjZjUzM2QyODA1"
        "M2VmMGJmNzNkNjlhZTEwY2IzYmIwMWY0OTkiLCJ3aG8iOiIifQ==.4fceb6d483e8ad7b07d2bc7ec0b04c2b38b"
        "1f01a3fb549775d59b1cf96ae45f9"
    )
