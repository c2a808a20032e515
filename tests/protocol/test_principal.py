"""The identity of principals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.protocol.principal import Principal, identity_of

NAMES = st.text() | st.sampled_from(["None", "a", "a', 'b", "\ud800", "é"])
PRINCIPALS = st.none() | st.builds(
    Principal, NAMES, st.frozensets(NAMES), client_id=st.none() | NAMES
)


def names(principal: Principal | None) -> object:
    return principal and (principal.subject, principal.client_id)


@pytest.mark.rule("AUTH-11")
@given(PRINCIPALS, PRINCIPALS)
def test_identity_depends_on_subject_and_client_id(
    one: Principal | None, other: Principal | None
) -> None:
    assert (identity_of(one) == identity_of(other)) == (names(one) == names(other))
    assert one is None or str(identity_of(one)).isascii()
