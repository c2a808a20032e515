"""`prompts/*`: what every request, good or bad, is answered with."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.features.prompts.registry import PromptArgument, PromptDefinition
from foundation_rt.kernel.invocation import Invocation
from foundation_rt.protocol.peer import CAPABILITIES_KEY
from foundation_rt.protocol.revisions import VERSION_KEY
from tests.lab.servers.core import Core, make_core, request

STATELESS = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}


def never(arguments: dict[str, Any], context: Any) -> None:
    raise AssertionError("the core calls no handlers")


def featured(config: dict[str, dict[str, Any]] | None = None) -> Core:
    core = make_core(config)
    features = core.features
    arguments = [PromptArgument("code", required=True), PromptArgument("language")]
    definition = PromptDefinition("review", "Reads code.", arguments)
    features.prompts.register(definition, never, timeout_ms=50)
    features.prompts.register(PromptDefinition("bare"), never)
    return core.handshake()


def begun(core: Core, params: Any) -> Invocation:
    [call] = core.dispatch(request("prompts/get", params))
    assert isinstance(call, Invocation)
    return call


@pytest.mark.rule("PROMPT-07")
def test_first_prompt_adds_capability_and_methods() -> None:
    core = make_core().handshake()
    for _ in range(2):
        for method in ("prompts/list", "prompts/get"):
            assert core.answer(request(method, {"name": "review"}))["error"]["code"] == -32601
        assert core.features.prompts.entries() == ()  # the registry is made, and empty
    core = featured()
    core.session = core.open_session()
    answer = core.answer(request("initialize", {"protocolVersion": "2025-11-25"}))
    assert answer["result"]["capabilities"] == {
        "tools": {"listChanged": True},
        "logging": {},
        "prompts": {"listChanged": True},
    }


@pytest.mark.rule("PROMPT-06")
@pytest.mark.parametrize(
    ("params", "what"),
    [
        (None, "name must be a string"),
        ({}, "name must be a string"),
        ({"name": 5}, "name must be a string"),
        ({"name": "other"}, "there is no prompt 'other'"),
        ({"name": "x" * 5000}, f"there is no prompt {'x' * 128!r}"),
        ({"name": "review", "arguments": None}, "arguments must be an object"),
        ({"name": "review", "arguments": ["code"]}, "arguments must be an object"),
        ({"name": "review"}, "the argument 'code' is required"),
        ({"name": "review", "arguments": {"language": "py"}}, "the argument 'code' is required"),
        ({"name": "review", "arguments": {"code": 5}}, "the argument 'code' must be a string"),
        ({"name": "review", "arguments": {"code": None}}, "the argument 'code' must be a string"),
        ({"name": "bare", "arguments": {"a": "b"}}, "the prompt has no argument 'a'"),
    ],
)
def test_invalid_prompt_arguments_are_refused_before_handler_runs(params: Any, what: str) -> None:
    error = featured().answer(request("prompts/get", params))["error"]
    assert error["code"] == -32602
    assert error["message"] == f"Invalid params: {what}"
    assert error["data"]["reason"] == "invalid_params"
