"""Completions: what an argument of a prompt, or a variable of a template, could be (COMP-01).

A completer belongs to the prompt or the template whose argument it completes, and goes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ..errors import ErrorCode, RegistrationError, ToolError
from .checks import DefinitionChecks
from .handling import HandlerSpec, make_handler_spec
from .resources import RegisteredTemplate

if TYPE_CHECKING:
    from .prompts import PromptRegistry, RegisteredPrompt
    from .resources import ResourceRegistry
    from .tools import ExecutionMode, Handler

MAX_VALUES = 100
"""As many values an answer may have (COMP-03)."""


@frozen
class Completion:
    """What a handler of completions may return in place of a plain sequence.

    Args:
        values: the best first; no more than the first 100 are sent.
        total: how many there are, if it is known.
        has_more: whether there are more than `values`; by default what `total` says.
    """

    values: Sequence[str]
    total: int | None = None
    has_more: bool | None = None

    def to_wire(self) -> dict[str, Any]:
        """The result of `completion/complete`.

        Raises:
            ToolError: INTERNAL, when it is none that can be sent.
        """
        values = self.values
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise _not_sendable()
        if not all(isinstance(value, str) for value in values):
            raise _not_sendable()
        if self.total is not None and not (type(self.total) is int and self.total >= 0):
            raise _not_sendable()
        count = max(len(values), self.total or 0)
        sent = list(values[:MAX_VALUES])
        completion: dict[str, Any] = {"values": sent}
        if self.total is not None:
            completion["total"] = count
        completion["hasMore"] = bool(self.has_more) or count > len(sent)
        return {"completion": completion}


@frozen
class Choices:
    """A completer that knows all values there can be."""

    values: tuple[str, ...]

    def complete(self, begun: str) -> Completion:
        """The values that begin with what was begun, in either case of its letters (COMP-04)."""
        prefix = begun.casefold()
        found = [value for value in self.values if value.casefold().startswith(prefix)]
        return Completion(found, len(found))


Completer = Choices | HandlerSpec


def shape_completion(value: Any) -> dict[str, Any]:
    """The result of `completion/complete` for what a handler returned (COMP-03).

    Raises:
        ToolError: INTERNAL, when it is neither a `Completion` nor a sequence of strings.
    """
    if isinstance(value, Completion):
        return value.to_wire()
    total = len(value) if isinstance(value, Sequence) else None
    return Completion(value, total).to_wire()


def _not_sendable() -> ToolError:
    return ToolError(
        ErrorCode.INTERNAL,
        "The completions are not a sequence of strings.",
        {"reason": "result_not_serializable"},
    )


@define(eq=False, repr=False)
class CompletionRegistry:
    """Finds what completes an argument."""

    _prompts: PromptRegistry
    _resources: ResourceRegistry
    _was_used: bool = field(default=False, init=False)

    @property
    def is_offered(self) -> bool:
        """Whether clients have been told, or are told, that something completes (COMP-06)."""
        if not self._was_used:
            self._was_used = any(
                prompt.completers for prompt in self._prompts.prompts.entries()
            ) or any(template.completers for template in self._resources.templates.entries())
        return self._was_used

    def register(
        self,
        subject: str,
        argument: str,
        handler: Handler,
        *,
        execution: ExecutionMode | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Let `handler` complete an argument; it replaces what completed it before (COMP-01).

        Args:
            subject: the name of a prompt, or a template as it was registered.
            argument: of the prompt; of a template, a variable.
            handler: called with ``{"value": ..., "arguments": {...}}``, what was typed and the
                other arguments that are known, and a `ToolContext`.
            execution: where it runs; by default a task for `async def`, else a worker thread.
            timeout_ms: deadline in ms; by default `tools.default_timeout_ms`.

        Raises:
            RegistrationError: there is no such prompt, template or argument.
        """
        entry = self._resources.templates.get(subject) or self._prompts.prompts.get(subject)
        if entry is None:
            raise RegistrationError(
                f"completion of {subject!r}: there is no such prompt or resource template; "
                "register it first"
            )
        if argument not in entry.arguments:
            raise RegistrationError(
                f"completion of {subject!r}: it has no argument {argument!r}; "
                f"it has {', '.join(map(repr, entry.arguments)) or 'none'}"
            )
        checks = DefinitionChecks(f"completion of {argument!r} of {subject!r}")
        entry.completers[argument] = make_handler_spec(checks, handler, execution, timeout_ms)

    def of_prompt(self, name: str) -> RegisteredPrompt:
        """The prompt whose arguments are to be completed.

        Raises:
            LookupError: there is none of that name.
        """
        entry = self._prompts.prompts.get(name)
        if entry is None:
            raise LookupError(name)
        return entry

    def of_resource(self, uri: str) -> RegisteredTemplate:
        """The template whose variables are to be completed: written as it is, or by a URI of it.

        Raises:
            LookupError: there is none.
        """
        entry = self._resources.templates.get(uri)
        if entry is not None:
            return entry
        found, _ = self._resources.find(uri)
        if not isinstance(found, RegisteredTemplate):
            raise LookupError(uri)
        return found
