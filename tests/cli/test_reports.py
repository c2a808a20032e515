"""Results of servers as pages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.cli import reports
from foundation_rt.cli.render import Heading, Json, Paragraph, Payload, Table, render
from foundation_rt.client.results.results import CallResult, GetPromptResult, ReadResult

IMAGE = {"type": "image", "data": "iVBORw==", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "a://b", "name": "b", "description": "B."}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(**members: Any) -> list[Any]:
    return [*reports.call_report(CallResult.read(members))]


@pytest.mark.rule("CLI-05")
@pytest.mark.parametrize(
    ("result", "parts"),
    [
        ({"content": []}, []),
        ({"content": [text("a"), text("b")]}, [Payload("a"), Payload("b")]),
        ({"content": [IMAGE]}, [Payload(b"\x89PNG", "image/png")]),
        ({"content": [LINK]}, [Table([("a://b", "b", "B.")])]),
        ({"content": [{"type": "new", "x": 1}]}, [Json({"type": "new", "x": 1})]),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a://b", "text": "c"}}]},
            [Payload("c")],
        ),
        ({"content": [text('{"a": 1}')], "structuredContent": {"a": 1}}, [Json({"a": 1})]),
        ({"content": [text("3")], "structuredContent": {"result": 3}}, [Json(3)]),
        ({"content": [text("hi")], "structuredContent": {"result": "hi"}}, [Payload("hi")]),
        (
            {"content": [text("one"), IMAGE], "structuredContent": {"a": 1}},
            [Payload("one"), Payload(b"\x89PNG", "image/png"), Json({"a": 1})],
        ),
        ({"content": [], "structuredContent": None}, [Json(None)]),
    ],
)
def test_a_result_is_its_content_and_its_structure_once(
    result: dict[str, Any], parts: list[Any]
) -> None:
    assert call(**result) == parts


@pytest.mark.rule("CLI-09")
def test_several_contents_have_their_uris_one_has_none() -> None:
    one, two = {"uri": "a://1", "text": "x"}, {"uri": "a://2", "blob": "iVBORw==", "mimeType": "m"}
    assert reports.read_report(ReadResult.read({"contents": [one]})) == [Payload("x")]
    assert reports.read_report(ReadResult.read({"contents": [one, two]})) == [
        Heading("a://1"),
        Payload("x"),
        Heading("a://2", "m"),
        Payload(b"\x89PNG", "m"),
    ]


@pytest.mark.rule("CLI-09")
def test_a_prompt_is_messages_under_their_roles() -> None:
    messages = [{"role": "user", "content": text("a")}, {"role": "assistant", "content": IMAGE}]
    result = GetPromptResult.read({"description": "D.", "messages": messages})
    assert render(reports.prompt_report(result)) == (
        "D.\n\nuser\na\n\nassistant\n[image/png, 4 bytes]\n"
    )


@pytest.mark.rule("CLI-09", "CLI-18")
def test_a_tool_is_shown_with_its_schemas() -> None:
    tool = {
        "name": "forecast",
        "title": "Forecast",
        "description": "For a city.\nOr two.",
        "inputSchema": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Its\n name."}},
            "required": ["city"],
        },
        "outputSchema": {"type": "object", "additionalProperties": {"type": "integer"}},
        "annotations": {"readOnlyHint": True, "destructiveHint": False, "title": "No"},
    }
    assert render([*reports.tool_details(tool)]) == (
        "forecast  Forecast\n"
        "For a city.\n"
        "Or two.\n"
        "takes:\n"
        "  city  string  required  Its name.\n"
        "returns object of integer\n"
        "reads only, destroys nothing\n"
    )
    assert render(reports.tool_list([tool, {"name": "x"}])) == "forecast  For a city.\nx\n"
    older = {"description": "For a city.", "_meta": {"foundation-rt/deprecated": "use 2"}}
    versions = {**tool, "_meta": {"foundation-rt/versions": {"1": older, "2": 5}}}
    shown = "forecast    For a city.\nforecast@1  For a city. (deprecated: use 2)\n"
    assert render(reports.tool_list([versions])) == shown
    assert render(reports.tool_list([])) == "no tools\n"


@pytest.mark.rule("CLI-18")
def test_a_tool_with_very_many_properties_is_cut() -> None:
    properties = {f"p{at}": {} for at in range(reports.MAX_PROPERTIES + 1)}
    parts = [*reports.tool_details({"name": "a", "inputSchema": {"properties": properties}})]
    assert parts[-1] == Paragraph("  and more, which --json shows")
    [table] = [part for part in parts if isinstance(part, Table)]
    assert len(table.rows) == reports.MAX_PROPERTIES


@pytest.mark.rule("CLI-09")
def test_a_prompt_is_shown_with_its_arguments() -> None:
    arguments = [{"name": "a", "description": "A.", "required": True}, {"name": "b"}, 5]
    prompt = {"name": "report", "description": "Ask.", "arguments": arguments}
    assert render([*reports.prompt_details(prompt)]) == ("report\nAsk.\n  a  required  A.\n  b\n")


@pytest.mark.rule("CLI-09")
def test_capabilities_fit_on_a_line() -> None:
    capabilities = {"tools": {"listChanged": True, "x": False}, "completions": {}, "logging": 5}
    assert reports.capability_list(capabilities) == "tools (listChanged), completions, logging"


@pytest.mark.rule("CLI-17", "CLI-29")
def test_pings_that_were_lost_are_counted() -> None:
    page = reports.ping_report(3, 1, {"min": 0.5, "max": 12.3456})
    assert render(page) == "2 of 3 answered\nmin  0.500 ms\nmax  12.346 ms\n"


MEMBERS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
WIRE = st.dictionaries(
    st.sampled_from(
        ["name", "title", "description", "inputSchema", "outputSchema", "annotations", "arguments"]
    ),
    MEMBERS | st.lists(MEMBERS, max_size=2) | st.dictionaries(st.text(max_size=5), MEMBERS),
)


@pytest.mark.rule("CLI-09", "CLI-18")
@given(WIRE)
def test_entries_of_wrong_types_are_still_shown(wire: dict[str, Any]) -> None:
    render([*reports.tool_details(wire), *reports.prompt_details(wire)])
    render([*reports.tool_list([wire]), *reports.entry_list([wire], "name")])
