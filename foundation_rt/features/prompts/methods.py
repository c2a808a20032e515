"""`prompts/list` and `prompts/get` (spec/prompts.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kernel.methods.lists import answer_list
from ...kernel.replies import MAX_ECHOED_NAME, invalid_params, method_not_found
from ..handler_calls import begin_handler_call
from ..scopes import require_scopes
from .feature import Prompts

if TYPE_CHECKING:
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import Effect
    from ...kernel.invocation import Invocation
    from ...kernel.session import Session
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from .registry import PromptRegistry, RegisteredPrompt


def list_prompts(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Return a page of the prompts (PROMPT-02)."""
    prompts = _require_prompts(dispatcher, request)
    return answer_list(dispatcher, session, peer, request, "prompts", prompts)


def get_prompt(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Begin the call that makes the messages of a prompt (PROMPT-05)."""
    from .results import shape_prompt

    prompts = _require_prompts(dispatcher, request)
    params = request.members
    name, arguments = params.get("name"), params.get("arguments", {})
    if type(name) is not str:
        raise invalid_params("name must be a string")
    prompt = prompts.seen(name, session.principal)
    if prompt is None:
        raise invalid_params(f"there is no prompt {name[:MAX_ECHOED_NAME]!r}")
    require_scopes(session, prompt.scopes)
    check_arguments(prompt, arguments)
    description = prompt.definition.description

    def to_result(value: Any, call: Invocation) -> dict[str, Any]:
        return shape_prompt(value, description, call.peer.revision)

    return begin_handler_call(
        dispatcher.calls,
        session,
        peer,
        request,
        name=name,
        handler=prompt.handler_spec,
        arguments=arguments,
        to_result=to_result,
    )


def _require_prompts(dispatcher: Dispatcher, request: Request) -> PromptRegistry:
    """Return the prompts; raise `JsonRpcError` where the server never had any."""
    prompts: Prompts = dispatcher.parts[Prompts]
    if not prompts.is_offered:
        raise method_not_found(request)
    return prompts.registry


def check_arguments(prompt: RegisteredPrompt, arguments: Any) -> None:
    """Raise `JsonRpcError` unless `arguments` are those that the prompt declares (PROMPT-06)."""
    if type(arguments) is not dict:
        raise invalid_params("arguments must be an object")
    for name, value in arguments.items():
        if name not in prompt.arguments:
            raise invalid_params(f"the prompt has no argument {name[:MAX_ECHOED_NAME]!r}")
        if type(value) is not str:
            raise invalid_params(f"the argument {name!r} must be a string")
    for name in prompt.required:
        if name not in arguments:
            raise invalid_params(f"the argument {name!r} is required")
