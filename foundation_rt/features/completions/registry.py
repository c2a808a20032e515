"""Completions: possible values of an argument of a prompt or a variable of a template (COMP-01).

A completer belongs to the prompt or the template whose argument it completes, and is removed with
it. One more may complete every argument that has none of its own (COMP-08).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ...errors import RegistrationError
from ..definitions import DefinitionChecks
from ..handler_calls import HandlerSpec, result_refused
from ..resources.registry import RegisteredTemplate

if TYPE_CHECKING:
    from typing import Unpack

    from ...errors import ToolError
    from ...kernel.registry.tools import ExecutionMode, Handler
    from ...protocol.principal import Principal
    from ..options import CompletionOptions
    from ..prompts.registry import PromptRegistry, RegisteredPrompt
    from ..resources.registry import ResourceRegistry

MAX_VALUES = 100
"""The most values of one result (COMP-03)."""


@frozen
class Completion:
    """A result of a completer, with all of its members; a plain sequence will often do.

    Args:
        values: the best first; only the first 100 are sent.
        total: the number of all values, if it is known.
        has_more: whether there are more than `values`; by default it follows from `total`.
    """

    values: Sequence[str]
    total: int | None = None
    has_more: bool | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the result of `completion/complete`.

        Raises:
            ToolError: INTERNAL, when a member has the wrong type.
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
class CompletionRequest:
    """An argument to complete, as the general completer of a server is given it (COMP-08).

    Attributes:
        prompt: the name of the prompt; None if it is a template.
        template: the URI template as it was registered; None if it is a prompt.
        argument: the name of the argument, or of the variable.
        value: the text so far.
        arguments: the other arguments that are known, by name.
    """

    prompt: str | None
    template: str | None
    argument: str
    value: str
    arguments: Mapping[str, str]


@frozen
class Choices:
    """A completer that knows all possible values."""

    values: tuple[str, ...]

    def complete(self, begun: str) -> Completion:
        """Return the values that begin with `begun`; upper and lower case are equal (COMP-04)."""
        prefix = begun.casefold()
        found = [value for value in self.values if value.casefold().startswith(prefix)]
        return Completion(found, len(found))


Completer = Choices | HandlerSpec


def shape_completion(value: Any) -> dict[str, Any]:
    """Return the result of `completion/complete` for the value of a handler (COMP-03).

    Raises:
        ToolError: INTERNAL, when it is neither a `Completion` nor a sequence of strings.
    """
    if isinstance(value, Completion):
        return value.to_wire()
    total = len(value) if isinstance(value, Sequence) else None
    return Completion(value, total).to_wire()


def _not_sendable() -> ToolError:
    problem = "The completions are not a sequence of strings."
    return result_refused(problem, "result_not_serializable")


@define(eq=False, repr=False)
class CompletionRegistry:
    """The completers of the prompts and templates of a server."""

    _prompts: PromptRegistry
    _resources: ResourceRegistry
    general: HandlerSpec | None = field(default=None, init=False)
    _was_used: bool = field(default=False, init=False)

    @property
    def is_offered(self) -> bool:
        """Return whether the server advertises completions: it has or has had one (COMP-06)."""
        if not self._was_used:
            self._was_used = (
                self.general is not None
                or any(prompt.completers for prompt in self._prompts.all_registered())
                or any(
                    template.completers for template in self._resources.templates.all_registered()
                )
            )
        return self._was_used

    def add_general(
        self,
        name: str,
        handler: Handler,
        execution: ExecutionMode | None,
        *,
        inline: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Let a handler complete every argument without a completer of its own (COMP-08).

        Raises:
            RegistrationError: there is one already.
        """
        if self.general is not None:
            raise RegistrationError(
                f"completion {name!r}: there is a completion of all arguments already"
            )
        checks = DefinitionChecks(f"completion {name!r}")
        self.general = checks.handler_spec(handler, execution, inline=inline, timeout_ms=timeout_ms)

    def register(
        self, subject: str, argument: str, handler: Handler, **options: Unpack[CompletionOptions]
    ) -> None:
        """Let `handler` complete an argument; it replaces an earlier completer (COMP-01).

        Args:
            subject: the name of a prompt, or a template as it was registered.
            argument: of the prompt; of a template, a variable.
            handler: called with ``{"value": ..., "arguments": {...}}`` and a `ToolContext`; the
                value is the text so far, the arguments are the other ones that are known.
            options: see `CompletionOptions`.

        Raises:
            RegistrationError: there is no such prompt, template or argument.
        """
        self.add(subject, argument, handler, None, **options)

    def add(
        self,
        subject: str,
        argument: str,
        handler: Handler,
        execution: ExecutionMode | None,
        *,
        inline: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Let a handler complete an argument, run as `execution` says; see `register`."""
        entry = self._resources.templates.registered(subject) or self._prompts.registered(subject)
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
        entry.completers[argument] = checks.handler_spec(
            handler, execution, inline=inline, timeout_ms=timeout_ms
        )

    def of_prompt(self, name: str, principal: Principal | None) -> RegisteredPrompt:
        """Return the prompt of this name.

        Raises:
            LookupError: there is none that the principal sees.
        """
        entry = self._prompts.seen(name, principal)
        if entry is None:
            raise LookupError(name)
        return entry

    def of_resource(self, uri: str, principal: Principal | None) -> RegisteredTemplate:
        """Return the template that is registered as `uri`, or that has this URI.

        Raises:
            LookupError: there is none that the principal sees.
        """
        entry = self._resources.templates.seen(uri, principal)
        if entry is not None:
            return entry
        found, _ = self._resources.find(uri, principal)
        if not isinstance(found, RegisteredTemplate):
            raise LookupError(uri)
        return found
