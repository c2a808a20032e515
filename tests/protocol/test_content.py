"""Content: the form of each kind in each revision, and invalid values."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

import pytest

from foundation_rt.protocol.content import (
    Annotations,
    Audio,
    BlobContents,
    Block,
    EmbeddedResource,
    Icon,
    Image,
    ResourceLink,
    Text,
    TextContents,
    ToolResult,
)
from foundation_rt.protocol.revisions import REVISIONS, STATELESS_REVISIONS

NEWEST = REVISIONS[STATELESS_REVISIONS[-1]]
OLDEST = next(iter(REVISIONS.values()))
BYTES = bytes(range(256))
EVERYTHING = Annotations(audience=["user"], priority=0.25, last_modified="2026-01-01T00:00:00Z")
LINK = ResourceLink(
    "task://1",
    "one",
    title="One",
    description="The first.",
    mime_type="text/plain",
    size=5,
    icons=[Icon("https://x.example/i.png", "image/png", ["48x48"], "dark")],
)

BLOCKS: dict[str, tuple[Block, dict[str, Any]]] = {
    "text": (Text("hi"), {"type": "text", "text": "hi"}),
    "image": (
        Image(b"abc", "image/png"),
        {"type": "image", "data": "YWJj", "mimeType": "image/png"},
    ),
    "audio": (
        Audio(b"abc", "audio/wav"),
        {"type": "audio", "data": "YWJj", "mimeType": "audio/wav"},
    ),
    "resource_link": (
        LINK,
        {
            "type": "resource_link",
            "uri": "task://1",
            "name": "one",
            "title": "One",
            "description": "The first.",
            "mimeType": "text/plain",
            "size": 5,
            "icons": [
                {
                    "src": "https://x.example/i.png",
                    "mimeType": "image/png",
                    "theme": "dark",
                    "sizes": ["48x48"],
                }
            ],
        },
    ),
    "text resource": (
        EmbeddedResource(TextContents("task://1", "one", "text/plain", meta={"a": 1})),
        {
            "type": "resource",
            "resource": {
                "uri": "task://1",
                "mimeType": "text/plain",
                "text": "one",
                "_meta": {"a": 1},
            },
        },
    ),
    "blob resource": (
        EmbeddedResource(BlobContents("task://1", b"abc")),
        {"type": "resource", "resource": {"uri": "task://1", "blob": "YWJj"}},
    ),
}


@pytest.mark.rule("CONT-02")
@pytest.mark.parametrize(("block", "wire"), BLOCKS.values(), ids=BLOCKS)
def test_each_kind_has_its_wire_form(block: Block, wire: dict[str, Any]) -> None:
    assert block.to_wire(NEWEST) == wire


@pytest.mark.rule("CONT-02")
@pytest.mark.parametrize("kind", [Image, Audio])
def test_bytes_are_base64_with_padding(kind: type[Image]) -> None:
    assert b64decode(kind(BYTES, "x/y").to_wire(NEWEST)["data"], validate=True) == BYTES


@pytest.mark.rule("CONT-02")
def test_annotations_and_meta_are_members_of_block() -> None:
    block = Text("hi", annotations=EVERYTHING, meta={"a": 1})
    assert block.to_wire(NEWEST) == {
        "type": "text",
        "text": "hi",
        "annotations": {
            "audience": ["user"],
            "priority": 0.25,
            "lastModified": "2026-01-01T00:00:00Z",
        },
        "_meta": {"a": 1},
    }
    assert Annotations().to_wire(NEWEST) == {}
    moment = Annotations(last_modified=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert moment.to_wire(NEWEST) == {"lastModified": "2026-01-02T03:04:05+00:00"}


@pytest.mark.rule("CONT-04")
@pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)
@pytest.mark.parametrize(("block", "wire"), BLOCKS.values(), ids=BLOCKS)
def test_revision_gets_only_its_own_members(
    block: Block, wire: dict[str, Any], revision: Any
) -> None:
    sent = block.to_wire(revision)
    assert sent["type"] in revision.content_kinds
    if wire["type"] in revision.content_kinds:
        assert sent.items() <= block.to_wire(NEWEST).items() or wire["type"] == "resource"


@pytest.mark.rule("CONT-04")
def test_oldest_revision_gets_equivalent_kinds() -> None:
    annotations = Annotations(priority=1.0, last_modified="2026-01-01T00:00:00Z")
    link = ResourceLink("task://1", "one", annotations=annotations, meta={"a": 1})
    known = {"priority": 1}
    assert link.to_wire(OLDEST) == {"type": "text", "text": "task://1", "annotations": known}
    audio = Audio(b"abc", "audio/wav", annotations=annotations, meta={"a": 1})
    assert audio.to_wire(OLDEST) == {
        "type": "resource",
        "resource": {"uri": "content:audio", "mimeType": "audio/wav", "blob": "YWJj"},
        "annotations": known,
    }
    contents = EmbeddedResource(TextContents("task://1", "one", meta={"a": 1}), meta={"a": 1})
    assert contents.to_wire(OLDEST) == {
        "type": "resource",
        "resource": {"uri": "task://1", "text": "one"},
    }


@pytest.mark.rule("CONT-04")
def test_members_appear_with_their_revision() -> None:
    def link_in(name: str) -> set[str]:
        return {*LINK.to_wire(REVISIONS[name])}

    assert link_in("2025-11-25") - link_in("2025-06-18") == {"icons"}
    assert "title" in link_in("2025-06-18")


REFUSED: dict[str, Any] = {
    "text that is none": lambda: Text(5),  # type: ignore[arg-type]
    "data that is no bytes": lambda: Image("abc", "image/png"),  # type: ignore[arg-type]
    "no media type": lambda: Audio(b"", None),  # type: ignore[arg-type]
    "a size below 0": lambda: ResourceLink("a:b", "a", size=-1),
    "a size that is none": lambda: ResourceLink("a:b", "a", size=True),
    "contents that are none": lambda: EmbeddedResource("text"),  # type: ignore[arg-type]
    "meta that is no object": lambda: Text("", meta=[1]),  # type: ignore[arg-type]
    "annotations that are none": lambda: Text("", annotations={}),  # type: ignore[arg-type]
    "an audience unknown": lambda: Annotations(audience=["dog"]),
    "a priority above 1": lambda: Annotations(priority=1.5),
    "a priority that is no number": lambda: Annotations(priority=True),
    "a moment without a zone": lambda: Annotations(last_modified=datetime(2026, 1, 1)),
    "an icon without a source": lambda: Icon(None),  # type: ignore[arg-type]
    "sizes that are one string": lambda: Icon("a:b", sizes="48x48"),
    "a size that is no string": lambda: Icon("a:b", sizes=[48]),  # type: ignore[list-item]
    "a theme unknown": lambda: Icon("a:b", theme="grey"),  # type: ignore[arg-type]
    "icons that are none": lambda: ResourceLink("a:b", "a", icons=["a:b"]),
    "a result of values": lambda: ToolResult([{"type": "text"}]),  # type: ignore[list-item]
    "an error that is no yes or no": lambda: ToolResult(is_error="no"),  # type: ignore[arg-type]
}


@pytest.mark.rule("CONT-05")
@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_invalid_content_is_refused_when_made(make: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()


@pytest.mark.rule("CONT-05")
def test_repr_of_content_hides_bytes() -> None:
    assert "secret" not in repr(Image(b"secret", "image/png"))
    assert "secret" not in repr(BlobContents("a:b", b"secret"))


@pytest.mark.rule("CONT-03")
def test_single_block_is_list_of_one() -> None:
    assert ToolResult("hi").content == ["hi"]
    assert ToolResult(Text("hi")).content == [Text("hi")]
    assert ToolResult().content is None
