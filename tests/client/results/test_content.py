"""Content as it comes: what a server of ours writes is read back, and what nobody should write."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.errors import InvalidResponseError
from foundation_rt.client.results.content import read_block, read_contents
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
)
from foundation_rt.protocol.revisions import REVISIONS, STATELESS_REVISIONS
from tests.lab.peers.client_vectors import cases
from tests.lab.values.json_values import json_values

NEWEST = REVISIONS[STATELESS_REVISIONS[-1]]

LINES = st.text(max_size=10)
MAYBE = st.none() | LINES
META = st.none() | st.dictionaries(LINES, st.integers(-9, 9), max_size=2)
ANNOTATIONS = st.none() | st.builds(
    Annotations,
    audience=st.sampled_from([["user"], ["assistant"], ["user", "assistant"]]),
    priority=st.none() | st.floats(0, 1),
    last_modified=MAYBE,
)
ICONS = st.builds(
    Icon, LINES, MAYBE, st.lists(LINES, max_size=2), st.sampled_from([None, "light", "dark"])
)
BESIDES: dict[str, Any] = {"annotations": ANNOTATIONS, "meta": META}
CONTENTS = st.builds(TextContents, LINES, LINES, MAYBE, meta=META) | st.builds(
    BlobContents, LINES, st.binary(max_size=20), MAYBE, meta=META
)
BLOCKS = st.one_of(
    st.builds(Text, LINES, **BESIDES),
    st.builds(Image, st.binary(max_size=20), LINES, **BESIDES),
    st.builds(Audio, st.binary(max_size=20), LINES, **BESIDES),
    st.builds(
        ResourceLink,
        LINES,
        LINES,
        title=MAYBE,
        description=MAYBE,
        mime_type=MAYBE,
        size=st.none() | st.integers(0, 2**53),
        icons=st.lists(ICONS, max_size=2),
        **BESIDES,
    ),
    st.builds(EmbeddedResource, CONTENTS, **BESIDES),
)


def over_the_wire(wire: dict[str, Any]) -> Any:
    return orjson.loads(orjson.dumps(wire))


@pytest.mark.rule("CTOOL-13", "CTOOL-14")
@given(BLOCKS)
def test_every_block_is_read_as_it_was_written(block: Block) -> None:
    assert read_block(over_the_wire(block.to_wire(NEWEST))) == block


@pytest.mark.rule("CTOOL-17")
@given(CONTENTS)
def test_contents_are_read_as_they_were_written(contents: TextContents | BlobContents) -> None:
    assert read_contents(over_the_wire(contents.to_wire(NEWEST))) == contents


@pytest.mark.rule("CTOOL-13")
def test_block_of_an_unknown_kind_stays_as_it_came() -> None:
    wire = {"type": "hologram", "data": 5}
    assert read_block(wire) is wire


@pytest.mark.rule("CTOOL-13")
@pytest.mark.parametrize("vector", cases("results", "block"))
def test_block_that_does_not_match_its_kind_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(InvalidResponseError):
        read_block(vector["block"])


@pytest.mark.rule("CTOOL-14")
def test_hints_that_are_wrong_are_left_out_one_by_one() -> None:
    wire = {
        "type": "resource_link",
        "uri": "a:b",
        "name": "a",
        "title": 5,
        "description": "kept",
        "mimeType": None,
        "size": -1,
        "icons": [5, {}, {"src": "x:y", "sizes": ["any", 5], "theme": "blue", "mimeType": []}],
        "annotations": {"audience": ["user", "all", []], "priority": 2, "lastModified": "now"},
        "_meta": [],
    }
    assert read_block(wire) == ResourceLink(
        "a:b",
        "a",
        description="kept",
        icons=[Icon("x:y", sizes=["any"])],
        annotations=Annotations(audience=["user"], last_modified="now"),
    )
    for size in (True, 1.5, "5", None):
        link = read_block({**wire, "size": size})
        assert isinstance(link, ResourceLink)
        assert link.size is None


@pytest.mark.rule("CTOOL-14")
@pytest.mark.parametrize("priority", [True, "1", -0.1, 1.1, None, [1]])
def test_a_priority_that_is_none_is_left_out(priority: Any) -> None:
    wire = {"type": "text", "text": "a", "annotations": {"priority": priority}}
    assert read_block(wire) == Text("a", annotations=Annotations())
    assert read_block({**wire, "annotations": priority}) == Text("a")


JSON = json_values(
    st.integers(-5, 5),
    st.floats(),
    st.sampled_from(["", "YWJj", "a"]),
    keys=st.sampled_from(["uri", "text", "blob", "src", "audience", "priority"]),
)
MEMBERS = ["text", "data", "mimeType", "uri", "name", "size", "icons", "annotations", "resource"]
NEARLY = st.builds(
    lambda kind, members: {"type": kind, **members},
    st.sampled_from(["text", "image", "audio", "resource_link", "resource", "x"]),
    st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=6),
)


@pytest.mark.rule("CTOOL-13", "CTOOL-14")
@given(NEARLY | JSON)
def test_whatever_comes_is_content_or_refused(wire: Any) -> None:
    for read in (read_block, read_contents):
        try:
            read(wire)
        except InvalidResponseError as error:
            assert error.code == "E209"
