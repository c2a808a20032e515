"""Roots: who can be asked for them, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.features.server_requests.errors import ClientCapabilityError, InvalidClientResult
from foundation_rt.features.server_requests.forms import Forms
from foundation_rt.features.server_requests.roots import Root, Roots
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.peers.clients import peer


@pytest.mark.rule("ASK-01", "ASK-21")
@pytest.mark.parametrize("revision", REVISIONS)
def test_every_revision_has_roots(revision: str) -> None:
    prepared = Roots().prepare(peer(revision), Forms(), "x")
    assert prepared.to_wire() == {"method": "roots/list", "params": {}}
    with pytest.raises(ClientCapabilityError) as lacking:
        Roots().prepare(peer(revision, {"sampling": {}}), Forms(), "x")
    assert lacking.value.required_capabilities == {"roots": {}}


@pytest.mark.rule("ASK-26")
def test_roots_are_read() -> None:
    read = Roots().prepare(peer(), Forms(), "x").read
    assert read({"roots": []}) == ()
    answer = {"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b", "name": 5}]}
    assert read(answer) == (Root("file:///a", "A"), Root("file:///b"))


@pytest.mark.rule("ASK-26", "ASK-27")
@pytest.mark.parametrize(
    "answer", [None, 1, [], {}, {"roots": {}}, {"roots": [1]}, {"roots": [{"uri": 1}]}]
)
def test_invalid_list_of_roots_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidClientResult):
        Roots().prepare(peer(), Forms(), "x").read(answer)
