"""Forms and pages: who can be asked for which, what is sent, what an answer becomes."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.errors import UsageError
from foundation_rt.features.server_requests.elicitation import Elicit, ElicitResult, ElicitUrl
from foundation_rt.features.server_requests.errors import ClientCapabilityError, InvalidClientResult
from foundation_rt.features.server_requests.forms import Forms
from tests.lab.peers.clients import peer

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FORM = Elicit("Who?", NAME)
PAGE = ElicitUrl("Pay", "https://pay.example/1")


def prepare(server_request: Any, revision: str = "2025-11-25", capabilities: Any = None) -> Any:
    return server_request.prepare(peer(revision, capabilities), Forms(), "run/1")


@pytest.mark.rule("ASK-01")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_form_is_sent_without_a_mode_which_every_revision_reads(revision: str) -> None:
    assert prepare(FORM, revision).to_wire() == {
        "method": "elicitation/create",
        "params": {"message": "Who?", "requestedSchema": NAME},
    }


@pytest.mark.rule("ASK-01", "ASK-18")
def test_page_has_an_id_where_the_revision_has_one() -> None:
    page = {"mode": "url", "message": "Pay", "url": "https://pay.example/1"}
    assert prepare(PAGE, "2026-07-28").params == page
    assert prepare(PAGE).params == {**page, "elicitationId": "run/1"}
    named = ElicitUrl("Pay", "https://pay.example/1", "mine")
    assert prepare(named).params == {**page, "elicitationId": "mine"}


@pytest.mark.rule("ASK-04", "ASK-21")
@pytest.mark.parametrize(
    ("revision", "capabilities", "form", "page"),
    [
        ("2025-11-25", {"elicitation": {}}, True, False),
        ("2025-11-25", {"elicitation": {"form": {}}}, True, False),
        ("2025-11-25", {"elicitation": {"url": {}}}, False, True),
        ("2025-11-25", {"elicitation": {"form": {}, "url": {}}}, True, True),
        ("2025-11-25", {"elicitation": {"other": {}}}, True, False),
        ("2025-11-25", {"elicitation": None}, False, False),
        ("2025-11-25", {"sampling": {}}, False, False),
        ("2025-06-18", {"elicitation": {"form": {}, "url": {}}}, True, False),
        ("2025-03-26", {"elicitation": {}}, False, False),
        ("2024-11-05", {"elicitation": {}}, False, False),
        ("2026-07-28", {"elicitation": {}}, True, False),
        ("2026-07-28", {}, False, False),
    ],
)
def test_capabilities_decide_whether_the_request_is_sent(
    revision: str, capabilities: Any, form: bool, page: bool
) -> None:
    for server_request, can, name in ((FORM, form, "form"), (PAGE, page, "url")):
        if can:
            prepare(server_request, revision, capabilities)
            continue
        with pytest.raises(ClientCapabilityError) as lacking:
            prepare(server_request, revision, capabilities)
        assert lacking.value.required_capabilities == {"elicitation": {name: {}}}
        assert f"elicitation.{name}" in lacking.value.message


@pytest.mark.parametrize(
    "url", ["", "x", "ftp://x/", "https://", "javascript:alert(1)", "https://[x", "https://a\n/"]
)
def test_page_must_be_an_http_url(url: str) -> None:
    with pytest.raises(UsageError, match="http or https"):
        prepare(ElicitUrl("x", url))


@pytest.mark.rule("ASK-23")
def test_invalid_form_is_refused_before_the_capability_is_checked() -> None:
    with pytest.raises(UsageError):
        prepare(Elicit("x", {"type": "string"}), capabilities={})


@pytest.mark.rule("ASK-09")
def test_action_of_the_user_is_read() -> None:
    read = prepare(FORM).read
    accepted = read({"action": "accept", "content": {"name": "Ann"}, "_meta": {}})
    assert accepted == ElicitResult("accept", {"name": "Ann"})
    assert accepted.accepted
    assert read({"action": "decline", "content": {"name": 1}}) == ElicitResult("decline")
    assert read({"action": "cancel"}) == ElicitResult("cancel")
    assert not read({"action": "cancel"}).accepted
    assert prepare(PAGE).read({"action": "accept", "content": {}}) == ElicitResult("accept")


@pytest.mark.rule("ASK-09", "ASK-27")
@pytest.mark.parametrize(
    "answer",
    [
        None,
        12345,
        [],
        {},
        {"action": "yes"},
        {"action": ["accept"]},
        {"action": "accept"},
        {"action": "accept", "content": None},
        {"action": "accept", "content": []},
        {"action": "accept", "content": {"name": 5}},
    ],
)
def test_answer_of_another_shape_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidClientResult) as refused:
        prepare(FORM).read(answer)
    assert refused.value.details["reason"] == "invalid_client_answer"
