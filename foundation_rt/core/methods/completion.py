"""`completion/complete` (spec/completion.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...protocol.jsonrpc import ABSENT
from ..replies import MAX_ECHOED_NAME, invalid_params, method_not_found
from .scopes import require_scopes

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ...registry.completions import CompletionRegistry
    from ...registry.prompts import RegisteredPrompt
    from ...registry.resources import RegisteredTemplate
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..invocation import Invocation
    from ..session import Session


class _Invalid(Exception):
    """The params are not those of a completion; the text says why."""


def complete(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """What an argument of a prompt, or a variable of a template, could be (COMP-02)."""
    features = dispatcher.features
    if features is None or not features.completions.is_offered:
        return method_not_found(session, request)
    from ...registry.completions import Choices, shape_completion

    try:
        params = {} if request.params is ABSENT else request.params
        subject, found = _subject(features.completions, params.get("ref"))
        require_scopes(session, request, found.scopes)
        argument, begun = _argument(found, params.get("argument"))
        has_context = peer.revision.has("completion", "context")
        known = _known(params.get("context", {})) if has_context else {}
    except _Invalid as invalid:
        return invalid_params(session, request, str(invalid))
    completer = found.completers.get(argument, Choices(()))
    if isinstance(completer, Choices):
        result = completer.complete(begun).to_wire()
        return [dispatcher.results.reply(peer, request, result)]

    def shape(value: Any, call: Invocation) -> dict[str, Any]:
        return shape_completion(value)

    return dispatcher.feature_calls.begin(
        session,
        peer,
        request,
        name=subject,
        handler=completer.handler,
        execution=completer.execution,
        arguments={"value": begun, "arguments": known},
        shape=shape,
        timeout_ms=completer.timeout_ms,
    )


def _subject(
    completions: CompletionRegistry, ref: Any
) -> tuple[str, RegisteredPrompt | RegisteredTemplate]:
    """What `ref` refers to, and how it says so."""
    kind = ref.get("type") if type(ref) is dict else None
    if type(kind) is not str or kind not in _REFERENCES:
        raise _Invalid(f"ref must be an object with a type: {' or '.join(_REFERENCES)}")
    member, find = _REFERENCES[kind]
    subject = ref.get(member)
    if type(subject) is not str:
        raise _Invalid(f"ref.{member} must be a string")
    try:
        return subject, find(completions, subject)
    except LookupError:
        raise _Invalid(f"ref names nothing: {subject[:MAX_ECHOED_NAME]!r}") from None


_Find = Callable[["CompletionRegistry", str], "RegisteredPrompt | RegisteredTemplate"]

_REFERENCES: dict[str, tuple[str, _Find]] = {
    "ref/prompt": ("name", lambda completions, name: completions.of_prompt(name)),
    "ref/resource": ("uri", lambda completions, uri: completions.of_resource(uri)),
}


def _argument(found: RegisteredPrompt | RegisteredTemplate, argument: Any) -> tuple[str, str]:
    """The name of the argument to complete, and what was typed of it."""
    if type(argument) is not dict:
        raise _Invalid("argument must be an object")
    name, begun = argument.get("name"), argument.get("value")
    if type(name) is not str or type(begun) is not str:
        raise _Invalid("argument must have a name and a value, which are strings")
    if name not in found.arguments:
        raise _Invalid(f"there is no argument {name[:MAX_ECHOED_NAME]!r}")
    return name, begun


def _known(context: Any) -> dict[str, str]:
    """The other arguments, as far as they are known."""
    known = context.get("arguments", {}) if type(context) is dict else None
    if type(known) is not dict or any(type(value) is not str for value in known.values()):
        raise _Invalid("context must be an object, and its arguments strings by name")
    return known
