"""The registry of prompts: its checks, and its lists for each revision."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from foundation_rt.errors import RegistrationError
from foundation_rt.features.prompts.registry import PromptArgument, PromptDefinition, PromptRegistry
from foundation_rt.protocol.content import Icon
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.servers.core import ListObserver


def make(arguments: dict[str, Any], context: Any) -> str:
    return "text"


@pytest.mark.rule("PROMPT-08")
@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"name": ""}, "name must be a string of 1 to 256"),
        ({"name": "a\x00"}, "name must be printable"),
        ({"title": 5}, "title must be"),
        ({"description": 5}, "description must be"),
        ({"icons": [5]}, "icons must be"),
        ({"meta": 5}, "meta must be"),
        ({"arguments": ["a"]}, "arguments must be a sequence of PromptArgument"),
        ({"arguments": 5}, "arguments must be a sequence of PromptArgument"),
        ({"arguments": [PromptArgument("")]}, "the name of an argument must be"),
        ({"arguments": [PromptArgument("a", title=5)]}, "the title of 'a' must be"),  # type: ignore[arg-type]
        ({"arguments": [PromptArgument("a", 5)]}, "the description of 'a' must be"),  # type: ignore[arg-type]
        ({"arguments": [PromptArgument("a", required="yes")]}, "required of 'a' must be True"),  # type: ignore[arg-type]
        ({"arguments": [PromptArgument("a"), PromptArgument("a")]}, "two arguments 'a'"),
    ],
)
def test_a_definition_that_is_not_valid_is_refused(members: dict[str, Any], problem: str) -> None:
    registry = PromptRegistry()
    observer = ListObserver()
    registry.observe(observer)
    with pytest.raises(RegistrationError, match=problem):
        registry.register(PromptDefinition(**{"name": "review", **members}), make)
    assert not registry.was_used
    assert observer.notified == []


@pytest.mark.rule("PROMPT-01", "PROMPT-07")
def test_prompts_are_added_and_removed() -> None:
    registry = PromptRegistry()
    observer = ListObserver()
    registry.observe(observer)
    first = registry.register(PromptDefinition("review"), make)
    with pytest.raises(RegistrationError, match="'review' is refused: the name is taken"):
        registry.register(PromptDefinition("review"), make)
    assert registry.get("review") is first
    assert registry.unregister("review")
    assert not registry.unregister("review")
    assert observer.notified == ["prompts", "prompts"]
    assert registry.entries() == ()


@pytest.mark.rule("PROMPT-02")
@pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)
def test_each_revision_gets_only_its_members(revision: Any) -> None:
    registry = PromptRegistry()
    arguments = (
        PromptArgument("code", "What to read.", True, "Code"),
        PromptArgument("language"),
    )
    icons = [Icon("https://example.com/i.png")]
    registry.register(
        PromptDefinition("review", "Reads code.", arguments, "Review", icons, {"a": 1}), make
    )
    registry.register(PromptDefinition("bare"), make)
    [bare, full] = orjson.loads(orjson.dumps(registry.page(None, 5, revision)[0]))
    assert bare == {"name": "bare"}
    code = {"name": "code", "title": "Code", "description": "What to read.", "required": True}
    expected = {
        "name": "review",
        "title": "Review",
        "description": "Reads code.",
        "arguments": [
            revision.keep("prompt_argument", code),
            {"name": "language", "required": False},
        ],
        "icons": [{"src": "https://example.com/i.png"}],
        "_meta": {"a": 1},
    }
    assert full == revision.keep("prompt", expected)
