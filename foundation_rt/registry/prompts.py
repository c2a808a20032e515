"""The prompts of a server: messages to a model, made for a user who asks for them (PROMPT-01)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from ..protocol.content import Icon
from .catalog import Catalog, ChangeNotifier
from .checks import DefinitionChecks
from .handling import HandlerSpec, make_handler_spec

if TYPE_CHECKING:
    from ..protocol.revisions import Revision
    from .catalog import Observer
    from .completions import Completer
    from .tools import ExecutionMode, Handler


@frozen
class PromptArgument:
    """What a user is asked for before a prompt is made; on the wire, a string.

    Args:
        name: unique within its prompt.
        description: for the user.
        required: whether the prompt cannot be made without it.
        title: its name for people.
    """

    name: str
    description: str | None = None
    required: bool = False
    title: str | None = None

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """A member of `arguments`."""
        wire: dict[str, Any] = {"name": self.name, "required": self.required}
        if self.title is not None:
            wire["title"] = self.title
        if self.description is not None:
            wire["description"] = self.description
        return revision.keep("prompt_argument", wire)


@frozen
class PromptDefinition:
    """What a server says of a prompt.

    Args:
        name: unique within a server.
        description: for the user who chooses.
        title: its name for people.
    """

    name: str
    description: str | None = None
    arguments: Sequence[PromptArgument] = ()
    title: str | None = None
    icons: Sequence[Icon] = ()
    meta: Mapping[str, Any] | None = None

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """The prompt as `prompts/list` shows it."""
        wire: dict[str, Any] = {"name": self.name}
        optional = {"title": self.title, "description": self.description, "_meta": self.meta}
        wire.update((key, value) for key, value in optional.items() if value is not None)
        if self.arguments:
            wire["arguments"] = [argument.to_wire(revision) for argument in self.arguments]
        if self.icons:
            wire["icons"] = [icon.to_wire() for icon in self.icons]
        return revision.keep("prompt", wire)


@define(eq=False, repr=False)
class RegisteredPrompt:
    """A prompt, ready to be made.

    Attributes:
        arguments: the names of its arguments.
        required: those it cannot be made without.
        completers: by argument, what completes it.
    """

    definition: PromptDefinition
    handler_spec: HandlerSpec
    arguments: tuple[str, ...]
    required: tuple[str, ...]
    completers: dict[str, Completer]

    @property
    def scopes(self) -> frozenset[str]:
        """What a principal must have been granted to use it, all of it."""
        return self.handler_spec.scopes

    def wire(self, revision: Revision) -> dict[str, Any]:
        """How `prompts/list` shows it."""
        return self.definition.to_wire(revision)


@define(eq=False, repr=False)
class PromptRegistry:
    """Keeps prompts by name."""

    _notifier: ChangeNotifier = field(factory=lambda: ChangeNotifier("prompts"), init=False)
    prompts: Catalog[RegisteredPrompt] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.prompts = Catalog(self._notifier)

    @property
    def is_offered(self) -> bool:
        """Whether clients have been told, or are told, that there are prompts (PROMPT-07)."""
        return self.prompts.was_used

    def observe(self, observer: Observer) -> None:
        """Tell `observer` of every change from now on, as long as somebody else holds it."""
        self._notifier.observe(observer)

    def register(
        self,
        definition: PromptDefinition,
        handler: Handler,
        *,
        execution: ExecutionMode | None = None,
        timeout_ms: int | None = None,
        scopes: Iterable[str] = (),
        completers: Mapping[str, Completer] | None = None,
    ) -> RegisteredPrompt:
        """Add a prompt (PROMPT-01).

        Args:
            handler: called with the arguments, as sent, and a `ToolContext`.
            execution: where it runs; by default a task for `async def`, else a worker thread.
            timeout_ms: deadline in ms; by default `tools.default_timeout_ms`.
            scopes: see `HandlerSpec`.
            completers: by argument, what completes it.

        Raises:
            RegistrationError: the definition is not valid, or the name is taken.
        """
        checks = DefinitionChecks(f"prompt {definition.name!r}")
        checks.name("name", definition.name)
        checks.text("title", definition.title)
        checks.text("description", definition.description)
        checks.icons(definition.icons)
        arguments = _check_arguments(checks, definition.arguments)
        definition = evolve(definition, arguments=arguments, meta=checks.meta(definition.meta))
        entry = RegisteredPrompt(
            definition,
            make_handler_spec(checks, handler, execution, timeout_ms, scopes),
            tuple(argument.name for argument in arguments),
            tuple(argument.name for argument in arguments if argument.required),
            dict(completers or {}),
        )
        if not self.prompts.add(definition.name, entry):
            raise checks.refusal("the name is taken: choose another one, or unregister it first")
        self._notifier.notify()
        return entry

    def unregister(self, name: str) -> bool:
        """Remove a prompt; return whether there was one."""
        if not self.prompts.remove(name):
            return False
        self._notifier.notify()
        return True


def _check_arguments(checks: DefinitionChecks, arguments: object) -> tuple[PromptArgument, ...]:
    if not isinstance(arguments, Sequence) or not all(
        isinstance(each, PromptArgument) for each in arguments
    ):
        raise checks.refusal("arguments must be a sequence of PromptArgument")
    known = set[str]()
    for argument in arguments:
        checks.name("the name of an argument", argument.name)
        checks.text(f"the title of {argument.name!r}", argument.title)
        checks.text(f"the description of {argument.name!r}", argument.description)
        if type(argument.required) is not bool:
            raise checks.refusal(f"required of {argument.name!r} must be True or False")
        if argument.name in known:
            raise checks.refusal(f"it has two arguments {argument.name!r}")
        known.add(argument.name)
    return tuple(arguments)
