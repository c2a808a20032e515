"""What a client makes of the answer to its first question."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.client import MCPError, ServerDescription, map_mcp_error
from foundation_rt.client.handshake import NEWEST_REVISION, Handshake, Opening
from foundation_rt.protocol.revisions import NEWEST_HANDSHAKE_REVISION, REVISIONS


def handshake(forced: str | None = None) -> Handshake:
    info = {"name": "tests", "version": "0"}
    return Handshake(info, lambda _: {}, None if forced is None else REVISIONS[forced])


def answered(made: Handshake, **result: Any) -> ServerDescription | Opening:
    opening = made.first()
    assert opening.method == "server/discover"
    return made.answered(opening, result)


@pytest.mark.rule("CLIENT-02")
@pytest.mark.parametrize(
    "result",
    [{}, {"tools": []}, *({"supportedVersions": named} for named in ([], None, "all", [5]))],
)
def test_a_server_that_answers_anything_is_of_the_handshake_era(result: dict[str, Any]) -> None:
    outcome = answered(handshake(), **result)
    assert isinstance(outcome, Opening)
    assert (outcome.method, outcome.revision.name) == ("initialize", NEWEST_HANDSHAKE_REVISION)


@pytest.mark.rule("CLIENT-02")
def test_a_server_that_names_none_of_ours_cannot_be_spoken_to() -> None:
    with pytest.raises(MCPError) as refused:
        answered(handshake(), supportedVersions=["1999-12-31"], capabilities={})
    assert refused.value.code == "E206"


@pytest.mark.rule("CLIENT-01", "CLIENT-02")
def test_who_is_to_speak_one_revision_falls_back_to_no_other() -> None:
    with pytest.raises(MCPError) as refused:
        answered(handshake(NEWEST_REVISION))
    assert refused.value.code == "E209"


@pytest.mark.rule("CLIENT-02")
def test_a_server_that_names_an_older_one_gets_that() -> None:
    outcome = answered(handshake(), supportedVersions=["2025-06-18", "1999-12-31"], capabilities={})
    assert isinstance(outcome, Opening)
    assert (outcome.method, outcome.revision.name) == ("initialize", "2025-06-18")


@pytest.mark.rule("CLIENT-01")
@pytest.mark.parametrize(
    ("number", "message", "code"),
    [
        (-32601, "Method not found", "E206"),
        (-32602, "Invalid request parameters", "E206"),
        (-32600, "Bad Request: Missing session ID", "E206"),
        (-32000, "Bad Request: Server not initialized", "E206"),
        (-32603, "Internal error", "E201"),
    ],
)
def test_a_server_of_the_older_kind_is_told_from_one_that_fails(
    number: int, message: str, code: str
) -> None:
    made = handshake(NEWEST_REVISION)
    opening = made.first()
    error = map_mcp_error({"code": number, "message": message}, opening.method)
    with pytest.raises(MCPError) as refused:
        made.refused(opening, error)
    assert (refused.value.code, refused.value.original_code) == (code, number)
    assert message in refused.value.message
