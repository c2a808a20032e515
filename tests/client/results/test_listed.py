"""Resources, templates and prompts as a server lists them."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.client import InvalidResponseError, Prompt, Resource, ResourceTemplate
from foundation_rt.client.results.tool_schemas import ToolSchema


@pytest.mark.rule("CTOOL-27")
def test_listed_entries_have_members_and_a_repr() -> None:
    about = {"title": "Sea", "description": "Waves.", "mimeType": "text/plain"}
    wire: dict[str, Any] = {"uri": "sea://1", "name": "sea", **about, "size": 5, "x-own": 1}
    resource = Resource.read(wire)
    assert resource.wire is wire
    assert (resource.uri, resource.name, resource.title) == ("sea://1", "sea", "Sea")
    assert (resource.description, resource.mime_type, resource.size) == ("Waves.", "text/plain", 5)
    assert repr(resource) == (
        "Resource(uri='sea://1', name='sea', title='Sea', description='Waves.',"
        " mime_type='text/plain', size=5)"
    )
    template = ResourceTemplate.read({"uriTemplate": "sea://{n}", "name": "seas", **about})
    assert (template.uri_template, template.name, template.title) == ("sea://{n}", "seas", "Sea")
    assert repr(template).startswith("ResourceTemplate(uri_template='sea://{n}', name='seas'")
    arguments = [{"name": "n", "title": "N", "description": "Which.", "required": True}, {"a": 1}]
    prompt = Prompt.read({"name": "ask", "title": "Ask", "arguments": arguments})
    [argument] = prompt.arguments
    assert (argument.name, argument.title, argument.description) == ("n", "N", "Which.")
    assert argument.required
    assert (prompt.name, prompt.title, prompt.description) == ("ask", "Ask", None)
    tool = ToolSchema.read({"name": "sum", "description": "Adds.", "inputSchema": {}})
    assert (tool.title, tool.description) == (None, "Adds.")
    assert repr(tool) == "ToolSchema('sum', 'Adds.')"
    old = {"name": "sum", "inputSchema": {}, "annotations": {"title": "Sum"}}
    assert ToolSchema.read(old).title == "Sum"


@pytest.mark.rule("CTOOL-27")
def test_members_that_are_wrong_are_left_out() -> None:
    wrong = {"name": 5, "title": [], "description": 1, "mimeType": {}, "size": -1, "arguments": 5}
    resource = Resource.read({"uri": "sea://1", **wrong})
    assert (resource.name, resource.title, resource.description) == ("sea://1", None, None)
    assert (resource.mime_type, resource.size) == (None, None)
    template = ResourceTemplate.read({"uriTemplate": "sea://{n}", **wrong})
    assert (template.name, template.title) == ("sea://{n}", None)
    assert Prompt.read({**wrong, "name": "ask"}).arguments == ()


@pytest.mark.rule("CTOOL-23")
@pytest.mark.parametrize("kind", [Resource, ResourceTemplate, Prompt])
@pytest.mark.parametrize(
    "wire", [None, 5, [], {}, {"uri": "", "uriTemplate": "", "name": ""}, {"name": 5, "uri": []}]
)
def test_entry_without_identity_is_refused(kind: Any, wire: Any) -> None:
    with pytest.raises(InvalidResponseError):
        kind.read(wire)
