"""`completion/complete` (spec/completion.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...kernel.replies import MAX_ECHOED_NAME, invalid_params, method_not_found
from ..handler_calls import begin_handler_call
from ..scopes import require_scopes
from .feature import Completions

if TYPE_CHECKING:
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import Effect
    from ...kernel.invocation import Invocation
    from ...kernel.session import Session
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ...protocol.principal import Principal
    from ..prompts.registry import RegisteredPrompt
    from ..resources.registry import RegisteredTemplate
    from .registry import CompletionRegistry


def complete(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Complete an argument of a prompt, or a variable of a template (COMP-02)."""
    offered: Completions = dispatcher.parts[Completions]
    if not offered.is_offered and not _is_advertised(dispatcher):
        raise method_not_found(request)
    completions = offered.registry
    from .registry import Choices, shape_completion

    params = request.members
    name, found = _find_reference(completions, params.get("ref"), session.principal)
    require_scopes(session, found.scopes)
    argument, typed = _read_argument(found, params.get("argument"))
    has_context = peer.revision.has("completion", "context")
    known = _read_context(params.get("context", {})) if has_context else {}
    completer = found.completers.get(argument)
    arguments: dict[str, Any] = {"value": typed, "arguments": known}
    if completer is None:
        completer = completions.general or Choices(())
        arguments |= {"argument": argument, **_subject(found)}
    if isinstance(completer, Choices):
        result = completer.complete(typed).to_wire()
        return [dispatcher.results.reply(peer, request, result)]

    def to_result(value: Any, call: Invocation) -> dict[str, Any]:
        is_unknown = value is None and completer is completions.general
        return shape_completion([] if is_unknown else value)

    return begin_handler_call(
        dispatcher.calls,
        session,
        peer,
        request,
        name=name,
        handler=completer,
        arguments=arguments,
        to_result=to_result,
    )


def _is_advertised(dispatcher: Dispatcher) -> bool:
    """Return whether clients are told of completions: a forwarder may have some (FWD-02)."""
    capabilities: dict[str, Any] = {}
    for advertise in dispatcher.advertise:
        advertise(capabilities)
    return "completions" in capabilities


def _subject(found: RegisteredPrompt | RegisteredTemplate) -> dict[str, str | None]:
    """Return the prompt or the template of a `CompletionRequest`, as it was registered."""
    from ..resources.registry import RegisteredTemplate

    if isinstance(found, RegisteredTemplate):
        return {"prompt": None, "template": found.definition.uri_template}
    return {"prompt": found.definition.name, "template": None}


def _find_reference(
    completions: CompletionRegistry, ref: Any, principal: Principal | None
) -> tuple[str, RegisteredPrompt | RegisteredTemplate]:
    """Return the prompt or template that `ref` names, and its name or URI."""
    kind = ref.get("type") if type(ref) is dict else None
    if type(kind) is not str or kind not in _REFERENCES:
        raise invalid_params(f"ref must be an object with a type: {' or '.join(_REFERENCES)}")
    member, find = _REFERENCES[kind]
    name = ref.get(member)
    if type(name) is not str:
        raise invalid_params(f"ref.{member} must be a string")
    try:
        return name, find(completions, name, principal)
    except LookupError:
        raise invalid_params(f"ref names nothing: {name[:MAX_ECHOED_NAME]!r}") from None


_Find = Callable[
    ["CompletionRegistry", str, "Principal | None"], "RegisteredPrompt | RegisteredTemplate"
]

_REFERENCES: dict[str, tuple[str, _Find]] = {
    "ref/prompt": ("name", lambda completions, *named: completions.of_prompt(*named)),
    "ref/resource": ("uri", lambda completions, *named: completions.of_resource(*named)),
}


def _read_argument(found: RegisteredPrompt | RegisteredTemplate, argument: Any) -> tuple[str, str]:
    """Return the name of the argument to complete, and the part of its value already typed."""
    if type(argument) is not dict:
        raise invalid_params("argument must be an object")
    name, typed = argument.get("name"), argument.get("value")
    if type(name) is not str or type(typed) is not str:
        raise invalid_params("argument must have a name and a value, which are strings")
    if name not in found.arguments:
        raise invalid_params(f"there is no argument {name[:MAX_ECHOED_NAME]!r}")
    return name, typed


def _read_context(context: Any) -> dict[str, str]:
    """Return the other arguments whose values are already known."""
    known = context.get("arguments", {}) if type(context) is dict else None
    if type(known) is not dict or any(type(value) is not str for value in known.values()):
        raise invalid_params("context must be an object, and its arguments strings by name")
    return known
