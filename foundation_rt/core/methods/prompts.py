"""`prompts/list` and `prompts/get` (spec/prompts.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.jsonrpc import ABSENT
from ..replies import MAX_ECHOED_NAME, Refused, invalid_params, method_not_found
from .lists import answer_list
from .scopes import require_scopes

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ...registry.prompts import PromptRegistry, RegisteredPrompt
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..invocation import Invocation
    from ..session import Session


def list_prompts(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """The prompts there are (PROMPT-02)."""
    prompts = _offered(dispatcher, session, request).prompts
    return answer_list(dispatcher, session, peer, request, "prompts", prompts)


def get_prompt(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """The messages of a prompt (PROMPT-05)."""
    from ...registry.prompts import shape_prompt

    prompts = _offered(dispatcher, session, request).prompts
    params = {} if request.params is ABSENT else request.params
    name, arguments = params.get("name"), params.get("arguments", {})
    if type(name) is not str:
        return invalid_params(session, request, "name must be a string")
    prompt = prompts.get(name)
    if prompt is None:
        what = f"there is no prompt {name[:MAX_ECHOED_NAME]!r}"
        return invalid_params(session, request, what)
    require_scopes(session, request, prompt.scopes)
    problem = _problem(prompt, arguments)
    if problem is not None:
        return invalid_params(session, request, problem)
    description = prompt.definition.description

    def shape(value: Any, call: Invocation) -> dict[str, Any]:
        return shape_prompt(value, description, call.peer.revision)

    return dispatcher.feature_calls.begin(
        session,
        peer,
        request,
        name=name,
        handler=prompt.handler_spec.handler,
        execution=prompt.handler_spec.execution,
        arguments=arguments,
        shape=shape,
        timeout_ms=prompt.handler_spec.timeout_ms,
    )


def _offered(dispatcher: Dispatcher, session: Session, request: Request) -> PromptRegistry:
    """The prompts there are; `Refused`, if there never were any: there is no such method."""
    features = dispatcher.features
    if features is None or not features.prompts.is_offered:
        raise Refused(method_not_found(session, request))
    return features.prompts


def _problem(prompt: RegisteredPrompt, arguments: Any) -> str | None:
    """What is wrong with arguments, whatever the handler makes of them (PROMPT-06)."""
    if type(arguments) is not dict:
        return "arguments must be an object"
    for name, value in arguments.items():
        if name not in prompt.arguments:
            return f"the prompt has no argument {name[:MAX_ECHOED_NAME]!r}"
        if type(value) is not str:
            return f"the argument {name!r} must be a string"
    for name in prompt.required:
        if name not in arguments:
            return f"the argument {name!r} is required"
    return None
