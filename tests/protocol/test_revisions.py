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
def test_handshake_revisions_are_listed_oldest_first() -> None:
    assert HANDSHAKE_REVISIONS == ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
    assert NEWEST_HANDSHAKE_REVISION == "2025-11-25"


@pytest.mark.rule("LIFE-04")
@pytest.mark.parametrize("revision", ["", "2026-07-28", "2024-11-5", "2025-06-18 ", "draft", "\0"])
def test_unknown_revision_negotiates_newest(revision: str) -> None:
    assert negotiate(revision).name == "2025-11-25"


@pytest.mark.rule("LIFE-04")
@given(st.text())
def test_any_request_negotiates_existing_revision(revision: str) -> None:
    assert negotiate(revision).name in HANDSHAKE_REVISIONS
