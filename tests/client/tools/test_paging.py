"""Lists that come in pages, and lists that never end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.client import Client
from foundation_rt.client.tools import paging
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import (
    BOTH,
    STATELESS,
    MemoryHarness,
    error_of,
    in_turn,
    play,
    result,
    scripted,
    tool,
)

pytestmark = pytest.mark.virtual_time

LISTS = [
    ("resources/list", "resources", Client.list_resources),
    ("resources/templates/list", "resourceTemplates", Client.list_resource_templates),
    ("prompts/list", "prompts", Client.list_prompts),
]


def pages(member: str, *said: dict[str, Any]) -> list[Act]:
    """Return a list in these pages, the last of which comes again and again."""
    acts = []
    for number, members in enumerate(said):
        name = f"{number}"
        entry = {"name": name, "uri": name, "uriTemplate": name}
        acts.append(result(**{member: [entry]}, **members))
    return in_turn(*acts)


@pytest.mark.rule("CLIENT-22")
@pytest.mark.parametrize(("method", "member", "operation"), LISTS)
@pytest.mark.parametrize("revision", BOTH)
async def test_pages_are_followed_to_the_end(
    method: str, member: str, operation: Any, revision: str
) -> None:
    """With each cursor as it came; an empty one is one, null is none."""
    async with scripted(revision=revision) as (client, harness):
        await client.initialize()
        cursors = ["a", "", "ä" * 100]
        harness.play({method: pages(member, *({"nextCursor": each} for each in cursors), {})})
        listed = await operation(client)
        assert [each.name for each in listed] == ["0", "1", "2", "3"]
        asked = [each.get("params") or {} for each in harness.of(method)]
        assert [each.get("cursor") for each in asked] == [None, *cursors]
        harness.play({method: pages(member, {"nextCursor": None})})
        assert len(await operation(client)) == 1


@pytest.mark.rule("CLIENT-22")
@pytest.mark.parametrize("cursor", ["", "1"])
async def test_cursor_that_does_not_advance_ends_the_list(
    cursor: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted() as (client, harness):
        await client.initialize()
        tools = [{"name": "a", "inputSchema": {"type": "object"}}]
        page = {"tools": tools, "nextCursor": cursor}
        harness.play({"tools/list": [["answer", {"result": page}]]})
        assert [each["name"] for each in await client.request_all("tools/list")] == ["a"]
        assert "comes again" in caplog.text
        others = pages("tools", {"nextCursor": cursor}, {"nextCursor": cursor})
        harness.play({"tools/list": others})
        assert [each["name"] for each in await client.request_all("tools/list")] == ["0", "1"]


@pytest.mark.rule("CLIENT-22")
@pytest.mark.parametrize(
    ("bound", "most"),
    [("MAX_ENTRIES", 3), ("MAX_LIST_BYTES", 3_700)],
)
@pytest.mark.parametrize(("method", "member", "operation"), LISTS)
async def test_a_list_that_is_too_long_is_given_up(
    bound: str, most: int, method: str, member: str, operation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all its pages together, each of which would do."""
    monkeypatch.setattr(paging, bound, most)

    async with scripted() as (client, harness):
        await client.initialize()
        said = [{"nextCursor": str(number), "_meta": {"x": "x" * 1_000}} for number in range(50)]
        harness.play({method: pages(member, *said)})
        error = await error_of(operation(client))
        assert (error.code, harness.count(method)) == ("E209", 4)
        harness.play({method: pages(member, *said[:2], {"_meta": {"x": "x" * 1_000}})})
        assert len(await operation(client)) == 3


@pytest.mark.rule("CLIENT-22")
async def test_the_bounds_hold_for_tools_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "MAX_ENTRIES", 3)

    async with scripted({"tools/list": [result(tools=[tool(name) for name in "abcd"])]}) as (
        client,
        harness,
    ):
        assert (await error_of(client.list_tools())).code == "E209"
        harness.play({"tools/list": [result(tools=[tool(name) for name in "abc"])]})
        assert len(await client.list_tools()) == 3


@pytest.mark.rule("CLIENT-22", "CLIENT-14")
@pytest.mark.parametrize("kind", ["input_required", "partial", 5, None])
async def test_a_page_is_complete(kind: Any) -> None:
    """Lists ask nothing back."""
    async with scripted(revision=STATELESS) as (client, harness):
        await client.initialize()
        harness.play({"resources/list": pages("resources", {"resultType": kind})})
        assert (await error_of(client.list_resources())).code == "E209"


@pytest.mark.rule("CLIENT-22")
async def test_invalid_entries_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted() as (client, harness):
        entries = [5, None, {"uri": "x://y"}, [], "x", {"name": "a"}, {"uri": 5}, {"uri": ""}]
        harness.play({"resources/list": [result(resources=entries)]})
        caplog.clear()
        assert [each.uri for each in await client.list_resources()] == ["x://y"]
        assert caplog.messages == ["resources/list: 7 left out: a resource is listed without a uri"]


hints = st.none() | st.integers(-10, 10_000_000) | st.sampled_from(["5", 1.5, True, [], {}])


@pytest.mark.rule("CLIENT-46")
@given(said=st.lists(hints, min_size=1, max_size=4))
def test_the_least_hint_of_all_pages_counts(said: list[Any]) -> None:
    """What is no hint is none."""

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        await client.initialize()
        client.invalidate()
        cursors = [{"nextCursor": str(each)} for each in range(len(said) - 1)]
        told = [{} if each is None else {"ttlMs": each} for each in said]
        both = zip(told, [*cursors, {}], strict=True)
        harness.play({"tools/list": pages("tools", *({**a, **b} for a, b in both))})
        await client.list_tools()
        usable = [each for each in said if type(each) is int and each >= 0]
        assert client._tools.cache._lifetime == min(usable, default=300_000) / 1000

    play(scenario, {"tools/list": [result(tools=[tool("x")])]})
