"""What is known of a server."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from foundation_rt.client.errors import NotOfferedError
from foundation_rt.client.session.handshake import ServerDescription
from foundation_rt.protocol.revisions import NEWEST_HANDSHAKE_REVISION, REVISIONS

DEEP: Any = orjson.loads(b'{"a":' * 1000 + b"1" + b"}" * 1000)


def server(capabilities: Any = None, **implementation: Any) -> ServerDescription:
    revision = REVISIONS[NEWEST_HANDSHAKE_REVISION]
    return ServerDescription(revision, capabilities or {}, implementation)


@pytest.mark.rule("CLIENT-06")
@pytest.mark.parametrize(
    ("declared", "is_offered"),
    [
        ({}, True),
        ({"listChanged": False}, True),
        (True, True),
        ([], True),
        (None, False),
        (False, False),
    ],
    ids=repr,
)
def test_a_capability_is_there_unless_it_is_denied(declared: Any, is_offered: bool) -> None:
    assert server({"tools": declared}).can("tools") is is_offered


@pytest.mark.rule("CLIENT-06")
def test_a_capability_within_another_one_is_named_by_its_path() -> None:
    known = server({"resources": {"subscribe": True, "listChanged": False}, "tools": True})
    assert known.can("resources", "subscribe")
    assert not known.can("resources", "listChanged")
    assert not known.can("tools", "listChanged")
    assert not known.can("prompts", "listChanged")
    known.check(["resources.subscribe", "tools"])
    known.check([])


@pytest.mark.rule("CLIENT-06")
def test_the_first_that_is_missing_is_named() -> None:
    with pytest.raises(NotOfferedError) as caught:
        server({"resources": {}}).check({"tools", "resources", "resources.subscribe", "prompts"})
    assert (caught.value.code, caught.value.capability) == ("E205", "prompts")
    assert not caught.value.may_have_run
    assert not caught.value.retryable


def test_name_and_version_are_used_if_they_are_text() -> None:
    known = server(name="s", version="1.0")
    assert (known.name, known.version) == ("s", "1.0")
    for said in ({}, {"name": None, "version": 1}, {"name": DEEP, "version": [DEEP]}):
        known = server(**said)
        assert (known.name, known.version) == ("", "")
