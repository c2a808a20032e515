"""The lists of all servers as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.gateway.definition_lock import Withheld
from foundation_rt.apps.gateway.routes import OutsideName, RoutedEntry, Routes
from foundation_rt.errors import ToolError


def prefixed(server: str, name: str) -> str:
    return f"{server}__{name}"


def routes(
    outside_name: OutsideName = prefixed, **servers: Mapping[str, list[dict[str, Any]]]
) -> Routes:
    """Return the routes to these lists."""
    kinds = ("tools", "prompts", "resources", "resourceTemplates")
    listed = {
        kind: [
            (server, each, None)
            for server, lists in servers.items()
            for each in lists.get(kind, [])
        ]
        for kind in kinds
    }
    return Routes.of(listed, servers.keys(), outside_name)


def shown(found: Mapping[str, RoutedEntry]) -> list[Mapping[str, Any]]:
    return [route.definition for route in found.values()]


def uris(*found: str) -> list[dict[str, Any]]:
    return [{"uri": uri, "name": uri} for uri in found]


@pytest.mark.rule("GATE-18")
def test_name_without_its_server_has_all_candidates() -> None:
    tools = {"tools": [{"name": "echo"}, {"name": "sum"}]}
    error = routes(notes=tools, files=tools).unknown_tool("echo")
    assert error.details == {"candidates": ["notes__echo", "files__echo"]}
    assert "Did you mean 'notes__echo', 'files__echo'?" in error.message


@pytest.mark.rule("GATE-18")
@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("notes__ecko", ["notes__echo"]),
        ("ceho", ["notes__echo"]),
        ("note__add", ["notes__add", "files__add"]),
        ("files__eho", ["notes__echo"]),
        ("files__mov", ["files__move"]),
        ("notes_remove", ["notes__remove"]),
        ("something", []),
    ],
)
def test_name_that_no_tool_has_gets_those_spelled_like_it(name: str, nearest: list[str]) -> None:
    notes = {"tools": [{"name": "echo"}, {"name": "add"}, {"name": "remove"}]}
    files = {"tools": [{"name": "add"}, {"name": "move"}]}
    error = routes(notes=notes, files=files).unknown_tool(name)
    assert error.details == {"nearest": nearest}


def templates(*found: str) -> list[dict[str, Any]]:
    return [{"uriTemplate": each, "name": each} for each in found]


@pytest.mark.rule("GATE-02")
def test_definitions_keep_every_member_but_the_name() -> None:
    tool = {"name": "add", "inputSchema": {"type": "object", "x-odd": [1]}, "future": {"a": None}}
    found = routes(math={"tools": [tool], "prompts": [{"name": "sum"}]})
    assert shown(found.tools) == [{**tool, "name": "math__add"}]
    assert shown(found.prompts) == [{"name": "math__sum"}]
    route = found.tools["math__add"]
    assert (route.server, route.inner) == ("math", "add")


@pytest.mark.rule("GATE-02")
def test_first_of_equal_names_has_it() -> None:
    lists = {each: {"tools": [{"name": "add", "title": each}]} for each in ("a", "b")}
    found = routes(lambda server, name: name, **lists)
    assert shown(found.tools) == [{"name": "add", "title": "a"}]


@pytest.mark.rule("GATE-02")
def test_definition_without_a_name_is_left_out() -> None:
    found = routes(odd={"tools": [{}, {"name": 7}], "resources": [{"name": "no URI"}]})
    assert (found.tools, found.resources) == ({}, {})


@pytest.mark.rule("GATE-03")
def test_uri_of_two_servers_is_prefixed_in_the_later_one() -> None:
    found = routes(
        a={"resources": uris("note://1", "note://2")},
        b={"resources": uris("note://2", "note://3")},
    )
    assert [*found.resources] == ["note://1", "note://2", "b+note://2", "note://3"]
    assert [each["uri"] for each in shown(found.resources)] == [*found.resources]
    assert found.resource_routes("note://2") == [("a", "note://2")]
    assert found.resource_routes("b+note://2") == [("b", "note://2")]
    assert found.resource_routes("b+note://9") == [("b", "note://9")]


@pytest.mark.rule("GATE-57")
def test_uri_that_no_list_has_goes_to_servers_whose_templates_fit() -> None:
    found = routes(
        all={"resources": [], "resourceTemplates": templates("{+anything}")},
        files={"resources": [], "resourceTemplates": templates("file:///{+path}.md")},
        none={"resources": uris("x://1")},
        tools={},
    )
    assert found.resource_routes("file:///a/b.md") == [
        ("files", "file:///a/b.md"),
        ("all", "file:///a/b.md"),
    ]
    assert found.resource_routes("file:///a") == [("all", "file:///a")]
    assert found.resource_routes("x://1") == [("none", "x://1")]


@pytest.mark.rule("GATE-57")
def test_without_a_fitting_template_servers_with_such_a_scheme_are_asked() -> None:
    found = routes(
        a={"resources": uris("z://9", "y://1")},
        b={"resources": uris("y://2")},
        c={"resourceTemplates": templates("Z://{id}/x")},
    )
    assert found.resource_routes("z://1") == [("a", "z://1"), ("c", "z://1")]
    assert found.resource_routes("x://1") == []


@pytest.mark.rule("GATE-03")
def test_uri_that_begins_with_the_id_of_a_server_is_that_servers() -> None:
    found = routes(
        a={"resources": uris("b+note://1"), "resourceTemplates": templates("b+note://{id}")},
        b={"resources": uris("note://1")},
    )
    assert [*found.resources] == ["a+b+note://1", "note://1"]
    assert found.resource_routes("b+note://1") == [("b", "note://1")]
    assert found.resource_routes("a+b+note://1") == [("a", "b+note://1")]
    assert found.renamed_for_ids() == {"a+b+note://1", "a+b+note://{id}"}


_URIS = st.lists(st.sampled_from(["x://1", "x://2", "b+x://1", "c+x://2", "x://3"]), max_size=5)


@pytest.mark.rule("GATE-03")
@given(st.lists(_URIS, max_size=4))
def test_every_listed_uri_leads_back_to_its_server(listed: list[list[str]]) -> None:
    servers = dict(zip("abcd", listed, strict=False))
    found = routes(**{server: {"resources": uris(*each)} for server, each in servers.items()})
    for outside, route in found.resources.items():
        assert found.resource_routes(outside) == [(route.server, route.inner)]
    ways = {(route.server, route.inner) for route in found.resources.values()}
    for server, each in servers.items():
        for uri in each:
            assert (server, uri) in ways or f"{server}+{uri}" in found.resources


@pytest.mark.rule("GATE-53", "GATE-60")
@pytest.mark.parametrize(
    ("uri", "asked"),
    [
        ("note://5", None),
        ("a+note://5", None),
        ("NOTE:///./%35#x", None),
        ("memo://t/x/", None),
        ("memo://t/x", None),
        ("memo://s/a%3Fb/raw", None),
        ("memo://s/a%23b/raw", None),
        ("memo://open/../t/x/", None),
        ("memo://open/%2e%2e/t/x/", None),
        ("memo://t%2Fx", None),
        ("memo://open\t/x", None),
        ("memo://open/x ", None),
        ("memo://open/x%20", None),
        ("memo://open/%2561", None),
        ("memo://open/a;v", None),
        ("memo://open/e\u0301", None),
        ("memo://open/\uff0e\uff0e/t", None),
        ("memo://SECRET?x", None),
        ("a+a+memo://secret", None),
        ("memo://t/{id}", None),
        ("memo://open", [("a", "memo://open")]),
        ("memo://open/caf\u00e9/b", [("a", "memo://open/caf\u00e9/b")]),
        ("a+memo://open/caf%C3%A9", [("a", "memo://open/caf%C3%A9")]),
        ("a+memo://open/{+path}", [("a", "memo://open/{+path}")]),
        ("file:///tmp/x", None),
        ("b+file:///tmp/a", [("b", "file:///tmp/a")]),
        ("file:///tmp/y", [("b", "file:///tmp/y")]),
        ("other://x", []),
    ],
)
def test_what_is_withheld_is_found_in_no_spelling(uri: str, asked: Any) -> None:
    held = Withheld("a", "", "", "new")
    found = Routes.of(
        {
            "resources": [
                ("a", {"uri": "file:///tmp/x"}, held),
                ("b", {"uri": "file:///tmp/x"}, None),
                ("a", {"uri": "memo://secret"}, held),
            ],
            "resourceTemplates": [
                *(
                    ("a", {"uriTemplate": each}, held)
                    for each in ("note://{id}", "memo://t/{id}/", "memo://s/{id}/raw")
                ),
                *(
                    ("a", {"uriTemplate": each}, None)
                    for each in ("memo://open/{+path}", "memo://{+a}", "memo://x{&foreign}")
                ),
            ],
        },
        ("a", "b"),
        prefixed,
    )
    if asked is not None:
        assert found.resource_routes(uri) == asked
    else:
        with pytest.raises(ToolError) as raised:
            found.resource_routes(uri)
        assert raised.value.details is not None and raised.value.details["reason"] == "withheld"


@pytest.mark.rule("GATE-18")
def test_definitions_that_are_none_are_left_out_and_unknown_uris_are_errors() -> None:
    odd = {
        "tools": [{"name": 5}, {}, {"name": "echo"}],
        "resourceTemplates": [{"uriTemplate": "x"}],
    }
    found = routes(one=odd)
    assert [*found.tools] == ["one__echo"]
    assert found.resource_routes("x:y") == [("one", "x:y")]
    with pytest.raises(ToolError, match="No server has the resource 'x:y'"):
        routes().owner_of("x:y")
