"""Definitions and results of other servers in every revision: equal, less what that lacks."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from foundation_rt import Audio, Image, ResourceLink, Text, ToolAnnotations, ToolDefinition
from foundation_rt.features.forwarding.results import adapt_entry, adapt_result
from foundation_rt.features.prompts.registry import PromptArgument, PromptDefinition
from foundation_rt.features.resources.registry import ResourceDefinition
from foundation_rt.protocol.content import Annotations, BlobContents, EmbeddedResource, Icon
from foundation_rt.protocol.revisions import REVISIONS

NEWEST = REVISIONS["2026-07-28"]
every_revision = pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)

META = {"origin": {"n": 1}}
ICON = Icon("https://x.test/a.png", sizes=("48x48",))
NOTED = Annotations(audience=["user"], priority=0.5, last_modified="2026-01-01T00:00:00Z")

BLOCKS = [
    Text("one", annotations=NOTED, meta=META),
    Image(b"\x89PNG", "image/png", meta=META),
    Audio(b"RIFF", "audio/wav", annotations=NOTED, meta=META),
    ResourceLink(
        "note://1", "one", title="One", icons=[ICON], annotations=NOTED, size=3, meta=META
    ),
    EmbeddedResource(BlobContents("note://2", b"two", "text/plain", meta=META), meta=META),
]

DEFINITIONS = {
    "tools": ToolDefinition(
        "echo",
        "Echo.",
        {"type": "object"},
        title="Echo",
        output_schema={"type": "array"},
        annotations=ToolAnnotations(read_only=True),
        icons=[ICON],
        meta=META,
    ),
    "resources": ResourceDefinition(
        uri="note://1", name="one", title="One", icons=[ICON], annotations=NOTED, meta=META
    ),
    "prompts": PromptDefinition(
        "review", "Review.", [PromptArgument("code", title="Code")], "Review", [ICON], META
    ),
}


@pytest.mark.rule("FWD-05")
@every_revision
def test_content_is_as_our_own_server_would_send_it(revision: Any) -> None:
    sent = [block.to_wire(NEWEST) for block in BLOCKS]
    before = deepcopy(sent)
    expected = [block.to_wire(revision) for block in BLOCKS]
    result = adapt_result("tools/call", {"content": sent, "isError": False}, revision)
    assert result == {"content": expected, "isError": False}
    messages = [{"role": "user", "content": block} for block in sent]
    got = adapt_result("prompts/get", {"messages": messages}, revision)["messages"]
    assert [message["content"] for message in got] == expected
    assert sent == before


@pytest.mark.rule("FWD-04")
@every_revision
@pytest.mark.parametrize("kind", DEFINITIONS)
def test_definitions_are_as_our_own_server_would_send_them(kind: Any, revision: Any) -> None:
    sent = DEFINITIONS[kind].to_wire(NEWEST)
    before = deepcopy(sent)
    expected = DEFINITIONS[kind].to_wire(revision)
    if "outputSchema" in expected and not revision.any_structured_content:
        del expected["outputSchema"]  # our own server wraps it, and its results (CONT-12)
    assert adapt_entry(kind, sent, revision) == expected
    assert sent == before


@pytest.mark.rule("FWD-04", "FWD-05")
@every_revision
def test_unknown_members_and_kinds_go_out_as_they_came(revision: Any) -> None:
    strange = {"type": "hologram", "x-y": [1, None]}
    text = {"type": "text", "text": "t", "x-y": {}}
    result = {"content": [strange, text, 7], "_meta": {"k": 1}, "x-z": True}
    assert adapt_result("tools/call", result, revision) == result
    tool = {"name": "a", "inputSchema": {"$ref": "https://x.test/far"}, "execution": {"x": 1}}
    assert adapt_entry("tools", tool, revision) == tool
    template = {"uriTemplate": "x://{a,b}{?c*}", "name": "n", "x-y": 1}
    assert adapt_entry("resourceTemplates", template, revision) == template


@pytest.mark.rule("FWD-05")
@pytest.mark.parametrize("structured", [{"n": 1}, [1], "text", None, 1.5])
@every_revision
def test_structured_content_goes_to_revisions_that_have_it(revision: Any, structured: Any) -> None:
    result = {"content": [], "structuredContent": structured}
    kept = "structuredContent" in adapt_result("tools/call", result, revision)
    is_object = isinstance(structured, dict) and revision.name >= "2025-06-18"
    assert kept == (is_object or revision is NEWEST)


@pytest.mark.rule("FWD-05")
@every_revision
@pytest.mark.parametrize("garbage", [None, 1, "text", {"a": 1}, [None, [], {"type": []}]])
def test_malformed_results_go_out_as_they_came(garbage: Any, revision: Any) -> None:
    for method, member in (
        ("tools/call", "content"),
        ("resources/read", "contents"),
        ("prompts/get", "messages"),
    ):
        assert adapt_result(method, {member: garbage}, revision) == {member: garbage}
