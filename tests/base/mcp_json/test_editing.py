"""Entries set in and removed from the text of a file of servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.mcp_json.editing import remove_member, set_member
from foundation_rt.base.mcp_json.json_text import parse_object

FILE = Path("mcp.json")
ENTRY = {"command": "python", "args": ["-m", "weather"]}

NAMES = st.text(max_size=5)
ENTRIES = st.dictionaries(
    NAMES, st.sampled_from([ENTRY, {}, {"a": "// no comment, }"}]), max_size=4
)
FILES = st.fixed_dictionaries(
    {}, optional={"before": st.just([1, {}]), "servers": ENTRIES, "after": st.just("}")}
)


def styled(content: Any, indent: int | None, style: str) -> str:
    """Return an object as text, with what people and editors put into such files."""
    text = json.dumps(content, indent=indent)
    if "comments" in style and indent is not None:
        text = text.replace("\n", ' // "x": {},\n')
    return text.replace("\n", "\r\n") if "windows" in style else text


@pytest.mark.rule("MCPJSON-09")
@given(FILES, NAMES, st.sampled_from([None, 2, 4]), st.sampled_from(["", "comments", "windows"]))
def test_an_entry_is_set_and_nothing_else_changes(
    content: dict[str, Any], name: str, indent: int | None, style: str
) -> None:
    text = styled(content, indent, style)
    changed = set_member(text, "servers", name, ENTRY)
    wanted = {**content, "servers": {**content.get("servers", {}), name: ENTRY}}
    assert parse_object(FILE, changed) == wanted
    # The entry that is replaced may hold a "//" itself.
    before = json.dumps(content.get("servers", {}).get(name))
    assert changed.count("//") >= text.count("//") - before.count("//")
    assert ("\r\n" in text) == ("\r\n" in changed) or "\n" not in text


@pytest.mark.rule("MCPJSON-09")
@given(FILES, NAMES, st.sampled_from([None, 2, 4]), st.sampled_from(["", "comments", "windows"]))
def test_an_entry_is_removed_and_nothing_else_changes(
    content: dict[str, Any], name: str, indent: int | None, style: str
) -> None:
    content["servers"] = {**content.get("servers", {}), name: ENTRY}
    changed = remove_member(styled(content, indent, style), "servers", name)
    del content["servers"][name]
    assert parse_object(FILE, changed) == content


@pytest.mark.rule("MCPJSON-09")
def test_comments_indentation_and_trailing_commas_stay() -> None:
    text = '{\n\t// mine\n\t"servers": {\n\t\t"a": {}, // the first\n\t},\n\t"inputs": [],\n}\n'
    changed = set_member(text, "servers", "b", {"url": "http://b"})
    assert changed == (
        '{\n\t// mine\n\t"servers": {\n\t\t"a": {}, // the first\n'
        '\t\t"b": {\n\t\t\t"url": "http://b"\n\t\t}\n\t},\n\t"inputs": [],\n}\n'
    )
    replaced = set_member(changed, "servers", "a", {"x": 1})
    assert '"a": {\n\t\t\t"x": 1\n\t\t}, // the first\n' in replaced
    assert remove_member(changed, "servers", "b") == text.replace("{}, //", "{} //")
    with pytest.raises(KeyError):
        remove_member(text, "servers", "c")


@pytest.mark.rule("MCPJSON-09")
@pytest.mark.parametrize("text", ["", " \n", "// a note\n"])
def test_a_text_without_an_object_gets_one(text: str) -> None:
    assert parse_object(FILE, set_member(text, "servers", "a", ENTRY)) == {"servers": {"a": ENTRY}}
