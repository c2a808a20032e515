"""The identity of principals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.logs.redaction import Redactor
from foundation_rt.protocol.principal import Principal, TokenClaims, identity_of

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


@pytest.mark.rule("AUTH-37")
def test_claims_are_read_and_never_shown() -> None:
    payload = b'{"sub": "ann", "mail": "ann@secret.example", "roles": ["a"]}'
    ann = Principal("ann", claims=TokenClaims(payload))
    ann.claims["roles"].append("admin")
    assert dict(ann.claims) == {"sub": "ann", "mail": "ann@secret.example", "roles": ["a"]}
    assert ann.claims.get("none") is None and len(ann.claims) == 3
    with pytest.raises(TypeError):
        ann.claims["roles"] = []  # type: ignore[index]
    said = {"principal": ann, "claims": ann.claims}
    redactor = Redactor(())
    for shown in (ann, ann.claims, redactor.redact(said), redactor.for_log(said)):
        assert "secret" not in repr(shown)
    assert "mail" in repr(ann.claims)
    assert Principal("key:a").claims == {}
    assert ann == Principal("ann")
