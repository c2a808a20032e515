"""The benchmark of the search among tools."""

from __future__ import annotations

from typing import Any

import pytest

from bench.tool_search import QUERIES, TOOLS, missed, read_queries, tools_of

SUMMARIES = {
    "issues/create": "Create an issue",
    "gists/star": "Star a gist",
    "repos/compare-commits-with-basehead": "Compare two commits",
    "actions/cancel-workflow-run": "Cancel a workflow run",
    "pulls/request-reviewers": "Request reviewers for a pull request",
    "meta/get-zen": "Get the Zen of GitHub",
}


@pytest.mark.rule("SEARCH-04")
def test_queries_find_their_tools_among_two_thousand() -> None:
    """With the whole document of GitHub, 94 of 100 do: `python -m bench.tool_search`."""
    paths: dict[str, Any] = {
        f"/{name}": {"post": {"operationId": name, "summary": text, "responses": {}}}
        for name, text in SUMMARIES.items()
    }
    document = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths}
    queries = read_queries(QUERIES.read_text("utf-8"))
    assert len({query for query, _ in queries}) == 100
    assert {len(query.split()) for query, _ in queries} == {3}
    tools = tools_of(document)
    assert len(tools) > TOOLS / 2
    assert missed(tools, [each for each in queries if each[1] in SUMMARIES]) == []
    assert missed(tools, [("star a gist", "nothing")])[0][:2] == ("star a gist", "nothing")
