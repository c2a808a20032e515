"""Names of servers and tools, for any Unicode."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foundation_rt.apps.coordinator.names import (
    ToolNames,
    UnknownName,
    id_problem,
    inside_name,
    outside_name,
)

plain = st.text("ab_-0123456789cdef", min_size=1, max_size=12)
any_text = st.text(st.characters(exclude_categories=()), min_size=1, max_size=80)
ids = (plain | any_text).filter(lambda text: id_problem(text) is None)
tools = plain | any_text
OUTSIDE = re.compile(r"[A-Za-z0-9_-]{1,64}")


@pytest.mark.rule("COORD-01")
@pytest.mark.parametrize("good", ["a", "My files (work)", "ü__ü_", "日本", "x" * 64, "-", "🐍"])
def test_id_is_what_people_write(good: str) -> None:
    assert id_problem(good) is None


@pytest.mark.rule("COORD-01")
@pytest.mark.parametrize("bad", ["", "x" * 65, "a:b", "a\nb", "\x7f", "\x85", "\ud800"])
def test_other_id_is_refused(bad: str) -> None:
    assert id_problem(bad) is not None


@pytest.mark.rule("COORD-05")
@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("notes", "add", "notes__add"),
        ("notes", "_add", "notes___add"),
        ("no-tes", "a__b", "no-tes__a__b"),
        ("x" * 31, "y" * 31, "x" * 31 + "__" + "y" * 31),
        ("notes", "a.b", "notes__a_b_5827890c"),
        ("n__s", "a", "n__s__a_"),
        ("notes_", "a", "notes___a_"),
        ("notes", "a_0123abcd", "notes__a_0123abcd_"),
        ("x" * 31, "y" * 32, "x" * 31 + "__" + "y" * 22 + "_"),
    ],
)
def test_outside_name_is_kept_or_ends_in_a_hash(server: str, tool: str, name: str) -> None:
    found = outside_name(server, tool)
    assert OUTSIDE.fullmatch(found)
    if name.endswith("_"):
        assert re.fullmatch(re.escape(name) + "[0-9a-f]{8}", found)
    else:
        assert found == name


@pytest.mark.rule("COORD-05", "COORD-06")
@given(ids, tools, ids, tools)
def test_outside_names_differ_where_the_tools_do(s1: str, t1: str, s2: str, t2: str) -> None:
    first, second = outside_name(s1, t1), outside_name(s2, t2)
    assert OUTSIDE.fullmatch(first)
    assert (first == second) is ((s1, t1) == (s2, t2))


@pytest.mark.rule("COORD-05", "COORD-06")
@given(plain, plain, plain, plain)
def test_outside_names_that_look_alike_differ(s1: str, t1: str, s2: str, t2: str) -> None:
    assume((s1, t1) != (s2, t2))
    assert outside_name(s1, t1) != outside_name(s2, t2)


@pytest.mark.rule("COORD-06")
@given(ids, tools)
def test_outside_name_that_was_kept_can_be_taken_apart(server: str, tool: str) -> None:
    name = outside_name(server, tool)
    if name == f"{server}__{tool}":
        assert tuple(name.split("__", 1)) == (server, tool)


@pytest.mark.rule("COORD-06")
@given(st.lists(st.text("a_", min_size=1, max_size=8), unique=True, max_size=6), st.data())
def test_outside_names_of_known_servers_are_of_the_longest_id(ids: list[str], data: Any) -> None:
    tools = {(each, data.draw(st.text("a_", min_size=1, max_size=8))) for each in ids}
    outside = {each: outside_name(*each, servers=ids) for each in tools}
    assert len({*outside.values()}) == len(tools)
    for (server, tool), name in outside.items():
        if name == f"{server}__{tool}":
            assert server == max((e for e in ids if name.startswith(f"{e}__")), key=len)


@pytest.mark.rule("COORD-04")
def test_nearest_names_have_the_form_of_the_unknown_one() -> None:
    names = ToolNames()
    names.put("notes", ["echo", "add"])
    names.put("files", ["move"])
    for name, nearest in (
        ("notes:ecko", "notes:echo"),
        ("notes__ecko", "notes__echo"),
        ("notes__mov", "files__move"),
        ("mov", "files:move"),
        ("files_move", "files:move"),
    ):
        assert names.resolve(name) == UnknownName(nearest=(nearest,))


small = st.sampled_from(["a", "b", "a:b", "b:a", "c"])


@pytest.mark.rule("COORD-02", "COORD-03", "COORD-04")
@given(st.dictionaries(st.sampled_from("abc"), st.lists(small, max_size=4)), small | tools)
def test_name_resolves_as_in_a_search_of_all_tools(
    servers: dict[str, list[str]], name: str
) -> None:
    names = ToolNames()
    for server, listed in servers.items():
        names.put(server, ["other"])
        names.put(server, listed)
    qualified = [
        (server, tool)
        for server, listed in servers.items()
        for tool in dict.fromkeys(listed)
        if inside_name(server, tool) == name
    ]
    bare = [(server, name) for server, listed in servers.items() if name in listed]
    found = names.resolve(name)
    if qualified:
        assert [found] == qualified
    elif len(bare) == 1:
        assert [found] == bare
    else:
        assert isinstance(found, UnknownName)
        assert found.candidates == tuple(sorted(inside_name(*each) for each in bare))


@pytest.mark.rule("COORD-03", "COORD-06")
@given(st.dictionaries(ids, st.lists(tools, min_size=1, max_size=3), max_size=3))
def test_every_qualified_name_leads_to_its_tool(servers: dict[str, list[str]]) -> None:
    names = ToolNames()
    for server, listed in servers.items():
        names.put(server, listed)
    for server, listed in servers.items():
        for tool in listed:
            assert names.resolve(inside_name(server, tool)) == (server, tool)
            assert names.from_outside(outside_name(server, tool)) == (server, tool)
    for server in servers:
        names.remove(server)
        assert isinstance(names.resolve(inside_name(server, servers[server][0])), UnknownName)
        assert names.from_outside(outside_name(server, servers[server][0])) is None


@pytest.mark.rule("COORD-04")
def test_unknown_name_has_the_nearest_ones() -> None:
    names = ToolNames()
    names.put("files", ["read_file", "write_file", "list"])
    names.put("notes", ["read_note"])
    for wrong in ("reed_file", "files:reed_file", "file:reed_file"):
        found = names.resolve(wrong)
        assert isinstance(found, UnknownName)
        assert found.nearest[0] == "files:read_file"
    assert names.resolve("z" * 100_000) == UnknownName()
