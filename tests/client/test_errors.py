"""The errors of the client: what they say, what they are, and that they travel."""

from __future__ import annotations

import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

import pytest

from foundation_rt.base.jsonschema.issues import ValidationIssue
from foundation_rt.client.errors import (
    CATALOGUE,
    RANGES,
    CallTimeoutError,
    CircuitOpenError,
    ConnectionLostError,
    InvalidArgumentsError,
    InvalidResponseError,
    MCPError,
    NotOfferedError,
    SessionExpiredError,
    ToolCallError,
)
from foundation_rt.errors import ErrorCode

GUIDE = (Path(__file__).parents[2] / "spec/guide/errors.md").read_text()
ISSUES = (
    ValidationIssue("", 'must have the property "city"'),
    ValidationIssue("/days", "must be integer"),
)

EVERY_KIND: list[tuple[MCPError, str, bool]] = [
    (ConnectionLostError("gone", may_have_run=True), "E201", True),
    (ConnectionLostError("never there", may_have_run=False), "E201", False),
    (SessionExpiredError("unknown"), "E201", False),
    (CallTimeoutError("late", may_have_run=True), "E202", True),
    (CircuitOpenError("left alone", retry_after=12.5), "E201", False),
    (InvalidArgumentsError("forecast", ISSUES), "E203", False),
    (InvalidResponseError("nonsense"), "E209", True),
    (InvalidResponseError("nonsense", may_have_run=False), "E209", False),
    (NotOfferedError("tools"), "E205", False),
]


@pytest.mark.rule("CERR-01", "CERR-03")
@pytest.mark.parametrize("code", list(CATALOGUE))
def test_omitted_members_of_an_error_come_from_the_catalogue(code: str) -> None:
    error, entry = MCPError(code, "it failed"), CATALOGUE[code]
    assert (error.code, error.message) == (code, "it failed")
    assert error.user_message == entry.user_message
    assert error.suggested_action == entry.suggested_action
    assert error.retryable is entry.retryable
    assert (error.original_code, error.data, error.retry_after) == (None, None, None)
    assert error.may_have_run is False


@pytest.mark.rule("CERR-14")
def test_given_members_of_an_error_win() -> None:
    error = MCPError(
        "E201",
        "it failed",
        user_message="",
        suggested_action="Wait.",
        retryable=False,
        original_code=-32603,
        data=[1],
        may_have_run=True,
        retry_after=2.0,
    )
    assert (error.user_message, error.suggested_action, error.retryable) == ("", "Wait.", False)
    assert (error.original_code, error.data) == (-32603, [1])
    assert (error.may_have_run, error.retry_after) == (True, 2.0)


@pytest.mark.rule("CERR-01")
@pytest.mark.parametrize("code", ["E999", "E001", "e201", "", "201"])
def test_a_code_that_is_not_in_the_catalogue_is_refused(code: str) -> None:
    with pytest.raises(ValueError, match="is not in the catalogue"):
        MCPError(code, "it failed")


@pytest.mark.rule("CERR-03")
@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("it failed", "E204 it failed. Check the name against what the server lists."),
        ("It failed.", "E204 It failed. Check the name against what the server lists."),
        ("Did it?", "E204 Did it? Check the name against what the server lists."),
        ("It said:\nno\n", "E204 It said:\nno\nCheck the name against what the server lists."),
    ],
)
def test_text_of_an_error_is_code_message_and_action(message: str, text: str) -> None:
    assert str(MCPError("E204", message)) == text


@pytest.mark.rule("CERR-14", "CERR-04")
@pytest.mark.parametrize(("error", "code", "may_have_run"), EVERY_KIND)
def test_every_kind_has_its_code_and_says_whether_it_may_have_run(
    error: MCPError, code: str, may_have_run: bool
) -> None:
    assert (error.code, error.may_have_run) == (code, may_have_run)
    assert str(error).startswith(f"{code} {error.message}")


@pytest.mark.rule("CERR-04")
def test_programs_that_know_nothing_of_this_one_can_catch_them() -> None:
    with pytest.raises(ConnectionError):
        raise ConnectionLostError("gone", may_have_run=True)
    with pytest.raises(ConnectionLostError):
        raise SessionExpiredError("unknown")
    with pytest.raises(TimeoutError):
        raise CallTimeoutError("late", may_have_run=True)
    assert not issubclass(CallTimeoutError, ConnectionError)


def test_error_classes_have_members_of_their_own() -> None:
    assert CircuitOpenError("left alone", retry_after=12.5).retry_after == 12.5
    assert NotOfferedError("tools").capability == "tools"
    refused = InvalidArgumentsError("forecast", list(ISSUES))
    assert (refused.tool, refused.issues) == ("forecast", ISSUES)
    assert refused.message == (
        "the arguments do not fit the schema of forecast: "
        'they must have the property "city"; /days must be integer'
    )


@pytest.mark.rule("CERR-05")
def test_tool_call_error_is_no_mcp_error() -> None:
    error = ToolCallError(
        "no such city",
        code=ErrorCode.NOT_FOUND,
        details={"city": "Oslo"},
        run_id="run",
        correlation_id="correlation",
        content=[{"type": "text", "text": "no such city"}],
    )
    assert not isinstance(error, MCPError)
    assert (error.code, error.message) == (ErrorCode.NOT_FOUND, "no such city")
    assert (error.details, error.content) == (
        {"city": "Oslo"},
        ({"type": "text", "text": "no such city"},),
    )
    assert (error.run_id, error.correlation_id) == ("run", "correlation")
    assert str(error) == "NOT_FOUND: no such city"
    plain = ToolCallError("no such city")
    assert (plain.code, plain.details, plain.run_id, plain.content) == (None, None, None, ())
    assert str(plain) == "no such city"


def _said(error: BaseException) -> tuple[Any, ...]:
    return type(error), str(error), error.args, error.__dict__


@pytest.mark.rule("CERR-06")
@pytest.mark.parametrize(
    "error",
    [
        MCPError("E302", "no", original_code=-32002, data={"page": 3}, retry_after=1.0),
        ToolCallError("no such city", code=ErrorCode.NOT_FOUND, details={"city": "Oslo"}),
        *(error for error, _, _ in EVERY_KIND),
    ],
)
def test_they_are_copied_and_pickled_with_all_that_they_say(error: Exception) -> None:
    assert _said(copy(error)) == _said(error)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert _said(pickle.loads(pickle.dumps(error, protocol))) == _said(error)


def fail() -> NoReturn:
    raise CircuitOpenError("left alone", retry_after=12.5)


@pytest.mark.rule("CERR-06")
def test_one_that_is_raised_in_another_process_comes_back() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(CircuitOpenError) as raised:
            pool.submit(fail).result(timeout=60)
        assert raised.value.retry_after == 12.5


# -- the catalogue


@pytest.mark.rule("CERR-01")
def test_every_code_is_in_order_under_its_own_name_with_words_for_its_user() -> None:
    assert list(CATALOGUE) == sorted(CATALOGUE)
    assert len({entry.name for entry in CATALOGUE.values()}) == len(CATALOGUE)
    for code, entry in CATALOGUE.items():
        assert code == entry.code
        assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", entry.name)
        assert entry.user_message
        assert entry.suggested_action.endswith(".")
        assert type(entry.retryable) is bool


@pytest.mark.rule("CERR-01")
def test_codes_of_the_seed_have_its_texts() -> None:
    retryable = {code: CATALOGUE[code].retryable for code in CATALOGUE}
    seed = {"E201": True, "E202": True, "E203": False, "E204": False, "E302": True, "E303": True}
    assert seed.items() <= retryable.items()
    assert retryable["E205"] is False
    messages = {entry.user_message for entry in CATALOGUE.values()}
    assert {"Processing service unavailable", "Request timeout", "Invalid parameters"} <= messages
    assert {"Document conversion failed", "Export generation failed"} <= messages


@pytest.mark.rule("CERR-02")
def test_the_ranges_are_reserved_side_by_side_and_hold_every_code() -> None:
    assert [each.name for each in RANGES] == ["File", "URL", "MCP", "Processing", "Database"]
    for number, each in enumerate(RANGES):
        assert (each.first, each.last) == (f"E{number}00", f"E{number}99")
    used = [code for code in CATALOGUE if any(r.first <= code <= r.last for r in RANGES)]
    assert used == list(CATALOGUE)
    assert {code[:2] for code in CATALOGUE} == {"E2", "E3"}


@pytest.mark.rule("CERR-02")
def test_the_guide_names_the_ranges() -> None:
    listed = ", ".join(f"`{each.first[:2]}xx` {each.description}" for each in RANGES)
    assert listed in re.sub(r"\s+", " ", GUIDE)
