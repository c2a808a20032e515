"""Which revision of MCP a handshake agrees on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.protocol.revisions import (
    HANDSHAKE_REVISIONS,
    NEWEST_HANDSHAKE_REVISION,
    negotiate,
)


@pytest.mark.rule("LIFE-04")
def test_the_revisions_are_those_of_the_handshake_era_oldest_first() -> None:
    assert HANDSHAKE_REVISIONS == ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
    assert NEWEST_HANDSHAKE_REVISION == "2025-11-25"


@pytest.mark.rule("LIFE-04")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
def test_a_known_revision_is_answered_with_itself(revision: str) -> None:
    assert negotiate(revision).name == revision


@pytest.mark.rule("LIFE-04")
@pytest.mark.parametrize("revision", ["", "2026-07-28", "2024-11-5", "2025-06-18 ", "draft", "\0"])
def test_an_unknown_revision_is_answered_with_the_newest(revision: str) -> None:
    assert negotiate(revision).name == "2025-11-25"


@pytest.mark.rule("LIFE-04")
@given(st.text())
def test_whatever_is_asked_for_the_answer_is_a_revision_there_is(revision: str) -> None:
    assert negotiate(revision).name in HANDSHAKE_REVISIONS
