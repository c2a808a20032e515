"""The option dictionaries of type checkers are the options that registries take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from foundation_rt.features.completions.registry import CompletionRegistry
from foundation_rt.features.definitions import DefinitionChecks
from foundation_rt.features.options import (
    CompletionOptions,
    HandlerOptions,
    PromptOptions,
    ResourceHandlerOptions,
    ResourceOptions,
    ToolHandlerOptions,
    ToolOptions,
)
from foundation_rt.features.resources.registry import ResourceRegistry
from foundation_rt.features.tool_settings import tool_settings
from foundation_rt.features.typed.feature_signatures import add_prompt, add_resource
from foundation_rt.features.typed.tool_signature import add_tool


def keywords(*functions: Callable[..., Any]) -> set[str]:
    return {
        parameter.name
        for function in functions
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


@pytest.mark.rule("TYPED-01", "MRES-10", "PROMPT-03", "COMP-05")
@pytest.mark.parametrize(
    ("options", "functions"),
    [
        (HandlerOptions, [DefinitionChecks.handler_spec]),
        (ToolHandlerOptions, [tool_settings]),
        (ToolOptions, [add_tool, tool_settings]),
        (PromptOptions, [add_prompt, DefinitionChecks.handler_spec]),
        (ResourceHandlerOptions, [ResourceRegistry.add, DefinitionChecks.handler_spec]),
        (
            ResourceOptions,
            [add_resource, ResourceRegistry.add, DefinitionChecks.handler_spec],
        ),
        (CompletionOptions, [CompletionRegistry.add]),
    ],
)
def test_option_dictionaries_have_the_keywords_of_the_registries(
    options: Any, functions: list[Callable[..., Any]]
) -> None:
    # `ui` is taken by `Server.tool` itself, which has the apps.
    assert options.__annotations__.keys() - {"ui"} == keywords(*functions)
    assert not options.__required_keys__
