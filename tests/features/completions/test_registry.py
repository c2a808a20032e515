"""Completions: results of handlers, choices, and completers of prompts and templates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.errors import ErrorCode, RegistrationError, ToolError
from foundation_rt.features.completions.registry import (
    MAX_VALUES,
    Choices,
    Completion,
    CompletionRegistry,
    shape_completion,
)
from foundation_rt.features.handler_calls import HandlerSpec
from foundation_rt.features.prompts.registry import PromptArgument, PromptDefinition, PromptRegistry
from foundation_rt.features.resources.registry import (
    ResourceDefinition,
    ResourceRegistry,
    ResourceTemplateDefinition,
)


def handler(arguments: dict[str, Any], context: Any) -> list[str]:
    return []


def make_registry() -> tuple[CompletionRegistry, PromptRegistry, ResourceRegistry]:
    prompts, resources = PromptRegistry(), ResourceRegistry()
    prompts.register(PromptDefinition("review", arguments=[PromptArgument("language")]), handler)
    resources.register(ResourceDefinition(uri="task://all", name="all"), handler)
    definition = ResourceTemplateDefinition(uri_template="task://{id}", name="one")
    resources.register_template(definition, handler)
    return CompletionRegistry(prompts, resources), prompts, resources


# -- results


@pytest.mark.rule("COMP-03")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], {"values": [], "total": 0, "hasMore": False}),
        (("a", "b"), {"values": ["a", "b"], "total": 2, "hasMore": False}),
        (Completion(["a"]), {"values": ["a"], "hasMore": False}),
        (Completion(["a"], 7), {"values": ["a"], "total": 7, "hasMore": True}),
        (Completion(["a"], has_more=True), {"values": ["a"], "hasMore": True}),
        (Completion(["a", "b"], 1), {"values": ["a", "b"], "total": 2, "hasMore": False}),
    ],
)
def test_returned_value_becomes_a_completion(value: Any, expected: dict[str, Any]) -> None:
    assert shape_completion(value) == {"completion": expected}


@pytest.mark.rule("COMP-03")
@given(st.integers(0, 3 * MAX_VALUES))
def test_no_more_than_a_hundred_are_sent(count: int) -> None:
    values = [str(number) for number in range(count)]
    completion = shape_completion(values)["completion"]
    assert completion["values"] == values[:MAX_VALUES]
    assert completion["total"] == count
    assert completion["hasMore"] == (count > MAX_VALUES)


@pytest.mark.rule("COMP-03")
@pytest.mark.parametrize(
    "value",
    [
        "abc",
        None,
        5,
        {"a": 1},
        {"a"},
        ["a", 5],
        Completion("abc"),
        Completion(5),
        Completion(["a"], -1),
    ],  # type: ignore[arg-type]
)
def test_returned_value_of_another_type_is_an_error(value: Any) -> None:
    with pytest.raises(ToolError, match="not a sequence of strings") as raised:
        shape_completion(value)
    assert raised.value.code is ErrorCode.INTERNAL


@pytest.mark.rule("COMP-04")
def test_choices_match_by_prefix_in_any_case() -> None:
    choices = Choices(("Red", "green", "grey"))
    assert choices.complete("").values == ["Red", "green", "grey"]
    assert choices.complete("GR").values == ["green", "grey"]
    assert choices.complete("rE") == Completion(["Red"], 1)
    assert choices.complete("x") == Completion([], 0)


# -- completers


@pytest.mark.rule("COMP-01", "COMP-06")
def test_completer_is_removed_with_its_prompt_or_template() -> None:
    completions, prompts, resources = make_registry()
    assert not completions.is_offered
    completions.register("review", "language", handler)
    assert completions.is_offered
    first = completions.of_prompt("review", None).completers["language"]
    completions.register("review", "language", handler, timeout_ms=5)
    second = completions.of_prompt("review", None).completers["language"]
    assert isinstance(second, HandlerSpec)
    assert second is not first
    assert second.timeout_ms == 5
    prompts.unregister("review")
    with pytest.raises(LookupError):
        completions.of_prompt("review", None)
    completions.register("task://{id}", "id", handler)
    resources.unregister("task://{id}")
    with pytest.raises(LookupError):
        completions.of_resource("task://{id}", None)
    assert completions.is_offered  # clients have seen the capability


@pytest.mark.rule("COMP-01")
@pytest.mark.parametrize(
    ("subject", "argument", "problem"),
    [
        ("other", "language", "there is no such prompt or resource template; register it first"),
        ("task://all", "id", "there is no such prompt or resource template"),
        ("task://{other}", "id", "there is no such prompt or resource template"),
        ("review", "code", "it has no argument 'code'; it has 'language'"),
        ("task://{id}", "language", "it has no argument 'language'; it has 'id'"),
    ],
)
def test_completer_of_an_unknown_argument_is_refused(
    subject: str, argument: str, problem: str
) -> None:
    completions, _, _ = make_registry()
    with pytest.raises(RegistrationError, match=problem):
        completions.register(subject, argument, handler)
    assert not completions.is_offered


@pytest.mark.rule("COMP-01")
def test_a_prompt_without_arguments_has_nothing_to_complete() -> None:
    completions, prompts, _ = make_registry()
    prompts.register(PromptDefinition("bare"), handler)
    with pytest.raises(RegistrationError, match="it has none"):
        completions.register("bare", "a", handler)
    with pytest.raises(RegistrationError, match="the handler is not callable"):
        completions.register("review", "language", "x")  # type: ignore[arg-type]


@pytest.mark.rule("COMP-02")
def test_template_is_found_as_written_or_by_its_uri() -> None:
    completions, _, _ = make_registry()
    written = completions.of_resource("task://{id}", None)
    assert completions.of_resource("task://7", None) is written
    for uri in ("task://all", "other://7", ""):
        with pytest.raises(LookupError):
            completions.of_resource(uri, None)
    with pytest.raises(LookupError):
        completions.of_prompt("other", None)
