"""Search among the tools of all servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.features.tool_search.ranking import SearchableTool, search, words_of


def tool(name: str, description: str = "", server: str = "one") -> SearchableTool:
    return SearchableTool(name, server, {"name": name, "description": description})


TOOLS = [
    tool("files__read_file", "Read a file from the disk.", "files"),
    tool("files__write_file", "Write text to a file.", "files"),
    tool("git__log", "Show the commits that changed a file.", "git"),
    tool("weather__forecast", "Return the forecast for a city.", "weather"),
]


def found(query: str, server: str | None = None) -> list[str]:
    return [each.name for each in search(TOOLS, query, server)]


@pytest.mark.rule("GATE-30")
def test_word_of_the_name_outranks_word_of_the_description() -> None:
    assert found("read file")[0] == "files__read_file"
    assert found("commits") == ["git__log"]
    assert found("file")[-1] == "git__log"


@pytest.mark.rule("GATE-30")
def test_beginning_of_a_word_is_found() -> None:
    assert found("fore") == ["weather__forecast"]
    assert found("fo") == []


@pytest.mark.rule("GATE-30")
def test_empty_query_lists_all_and_server_narrows() -> None:
    assert found("") == sorted(each.name for each in TOOLS)
    assert found("file", "git") == ["git__log"]
    assert found("file", "nowhere") == []


@pytest.mark.rule("GATE-30")
def test_names_are_split_into_words() -> None:
    assert words_of("readHTTPFile2 get_user-name") == [
        "read",
        "http",
        "file",
        "2",
        "get",
        "user",
        "name",
    ]


@pytest.mark.rule("GATE-30")
@given(st.lists(st.text(max_size=20), max_size=8), st.text(max_size=40))
def test_order_of_tools_does_not_change_the_rank(names: list[str], query: str) -> None:
    tools = [tool(f"{index}{name}", name) for index, name in enumerate(names)]
    ranked = [each.name for each in search(tools, query)]
    assert [each.name for each in search(tools[::-1], query)] == ranked
    assert len(set(ranked)) == len(ranked) <= len(tools)


@pytest.mark.rule("GATE-30")
def test_summary_is_short_and_takes_texts_alone() -> None:
    long = SearchableTool("a", "one", {"title": 7, "description": "x" * 1000})
    summary = long.summary()
    assert "title" not in summary
    assert len(summary["description"]) == 300
