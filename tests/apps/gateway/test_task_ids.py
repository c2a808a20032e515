"""Ids of tasks that servers have made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.gateway.forwarder import TaskIds

KEY = "ab" * 32


@pytest.mark.rule("GATE-14")
@given(st.text(), st.text(), st.text())
def test_id_leads_back_to_its_server_for_its_owner(server: str, task: str, owner: str) -> None:
    outside = TaskIds(KEY).outside(server, task, owner)
    assert TaskIds(KEY).inside(outside, owner) == (server, task)
    assert TaskIds(KEY).inside(outside, f"{owner}x") is None
    assert TaskIds(None).inside(outside, owner) is None


@pytest.mark.rule("GATE-14")
@given(st.text() | st.none() | st.integers())
def test_anything_else_is_no_id(given: object) -> None:
    assert TaskIds(KEY).inside(given, "me") is None


@pytest.mark.rule("GATE-14")
def test_changed_id_is_no_id() -> None:
    outside = TaskIds(KEY).outside("notes", "1", "me")
    for at in range(len(outside)):
        changed = outside[:at] + ("A" if outside[at] != "A" else "B") + outside[at + 1 :]
        assert TaskIds(KEY).inside(changed, "me") is None
