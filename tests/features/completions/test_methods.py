"""`completion/complete`: what every request, good or bad, is answered with."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.features.completions.registry import Choices, Completion
from foundation_rt.features.prompts.registry import PromptArgument, PromptDefinition
from foundation_rt.features.resources.registry import ResourceDefinition, ResourceTemplateDefinition
from foundation_rt.kernel.invocation import Invocation, Returned
from foundation_rt.protocol.peer import CAPABILITIES_KEY
from foundation_rt.protocol.revisions import VERSION_KEY
from tests.lab.servers.core import Core, make_core, replies, request

PROMPT = {"type": "ref/prompt", "name": "review"}
TEMPLATE = {"type": "ref/resource", "uri": "task://{id}"}
STATELESS = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}


def never(arguments: dict[str, Any], context: Any) -> None:
    raise AssertionError("the core calls no handlers")


def featured(*, completing: bool = True) -> Core:
    core = make_core().handshake()
    features = core.features
    arguments = [PromptArgument(name) for name in ("code", "language", "color")]
    choices = {"color": Choices(("red", "green"))} if completing else {}
    definition = PromptDefinition("review", arguments=arguments)
    features.prompts.register(definition, never).completers.update(choices)
    features.resources.register(ResourceDefinition(uri="task://all", name="all"), never)
    template = ResourceTemplateDefinition(uri_template="task://{id}", name="one")
    features.resources.register_template(template, never)
    if completing:
        features.completions.register("review", "language", never, timeout_ms=50)
        features.completions.register("task://{id}", "id", never)
    return core


def asked(ref: Any = PROMPT, name: Any = "language", value: Any = "p", **params: Any) -> bytes:
    whole = {"ref": ref, "argument": {"name": name, "value": value}, **params}
    return request("completion/complete", whole)


@pytest.mark.rule("COMP-06")
def test_first_completer_adds_capability_and_method() -> None:
    for core in (make_core().handshake(), featured(completing=False)):
        assert core.answer(asked())["error"]["code"] == -32601
    core = featured()
    core.session = core.open_session()
    answer = core.answer(request("initialize", {"protocolVersion": "2025-03-26"}))
    assert answer["result"]["capabilities"]["completions"] == {}
    core.session = core.open_session()
    answer = core.answer(request("initialize", {"protocolVersion": "2024-11-05"}))
    assert "completions" not in answer["result"]["capabilities"]


@pytest.mark.rule("COMP-02", "COMP-03")
@pytest.mark.parametrize(
    ("ref", "name", "subject", "timeout_ms"),
    [
        (PROMPT, "language", "review", 50),
        (TEMPLATE, "id", "task://{id}", 30_000),
        ({"type": "ref/resource", "uri": "task://7"}, "id", "task://7", 30_000),
    ],
)
def test_handler_completes_argument(ref: Any, name: str, subject: str, timeout_ms: int) -> None:
    core = featured()
    [call] = core.dispatch(asked(ref, name, context={"arguments": {"code": "x"}}))
    assert isinstance(call, Invocation)
    assert call.arguments == {"value": "p", "arguments": {"code": "x"}}
    assert (call.name, call.timeout_ms) == (subject, timeout_ms)
    [reply] = replies(core.conclude(call, Returned(Completion(["python"], 7))))
    expected = {"completion": {"values": ["python"], "total": 7, "hasMore": True}}
    assert reply["result"] == expected


@pytest.mark.rule("COMP-07")
@pytest.mark.parametrize(
    ("params", "what"),
    [
        (None, "ref must be an object with a type: ref/prompt or ref/resource"),
        ({"ref": "review"}, "ref must be an object with a type"),
        ({"ref": {}}, "ref must be an object with a type"),
        ({"ref": {"type": "ref/tool"}}, "ref must be an object with a type"),
        ({"ref": {"type": ["ref/prompt"]}}, "ref must be an object with a type"),
        ({"ref": {"type": "ref/prompt"}}, "ref.name must be a string"),
        ({"ref": {"type": "ref/resource", "name": "x"}}, "ref.uri must be a string"),
        ({"ref": {**PROMPT, "name": "other"}}, "ref names nothing: 'other'"),
        ({"ref": {**TEMPLATE, "uri": "other://x"}}, "ref names nothing: 'other://x'"),
        ({"ref": {**TEMPLATE, "uri": "task://all"}}, "ref names nothing: 'task://all'"),
        ({"ref": {**TEMPLATE, "uri": "x" * 5000}}, f"ref names nothing: {'x' * 128!r}"),
        ({"ref": PROMPT}, "argument must be an object"),
        ({"ref": PROMPT, "argument": {}}, "argument must have a name and a value"),
        ({"ref": PROMPT, "argument": {"name": "code"}}, "argument must have a name and a value"),
        ({"ref": PROMPT, "argument": {"name": 5, "value": ""}}, "argument must have a name"),
        ({"ref": PROMPT, "argument": {"name": "x", "value": ""}}, "there is no argument 'x'"),
    ],
)
def test_malformed_or_unknown_reference_is_refused(params: Any, what: str) -> None:
    error = featured().answer(request("completion/complete", params))["error"]
    assert error["code"] == -32602
    assert error["message"].startswith(f"Invalid params: {what}")


@pytest.mark.rule("COMP-07")
@pytest.mark.parametrize("context", [5, None, {"arguments": 5}, {"arguments": {"a": 5}}])
def test_invalid_context_is_refused(context: Any) -> None:
    error = featured().answer(asked(context=context))["error"]
    assert error["code"] == -32602
    assert "context must be an object" in error["message"]


@pytest.mark.rule("COMP-02", "REV-03")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
def test_context_is_ignored_by_revision_without_it(revision: str) -> None:
    core = featured()
    core.session = core.open_session()
    core.dispatch(request("initialize", {"protocolVersion": revision}))
    core.dispatch(request("initialized"))
    for context in (5, {"arguments": {"code": "x"}}):
        [call] = core.dispatch(asked(context=context))
        assert isinstance(call, Invocation)
        assert call.arguments["arguments"] == {}
        core.conclude(call, Returned(()))
