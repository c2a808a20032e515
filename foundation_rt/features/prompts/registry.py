"""The prompts of a server: messages to a model, made for a user who asks for them (PROMPT-01)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, frozen

from ...kernel.registry.catalog import ChangeNotifier, Registry
from ..definitions import DefinitionChecks, FeatureEntry
from ..handler_calls import HandlerSpec

if TYPE_CHECKING:
    from typing import Unpack

    from ...kernel.registry.tools import ExecutionMode, Handler
    from ...protocol.content import Icon
    from ...protocol.revisions import Revision
    from ..completions.registry import Completer
    from ..options import HandlerOptions


@frozen
class PromptArgument:
    """An argument that a user fills in before a prompt is made; on the wire, a string.

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
        """Return the argument as a member of `arguments`."""
        members = {"title": self.title, "description": self.description}
        return revision.write("prompt_argument", name=self.name, required=self.required, **members)


@frozen
class PromptDefinition:
    """A prompt as a server describes it.

    Args:
        name: unique within a server.
        description: for the user who chooses a prompt.
        title: its name for people.
    """

    name: str
    description: str | None = None
    arguments: Sequence[PromptArgument] = ()
    title: str | None = None
    icons: Sequence[Icon] = ()
    meta: Mapping[str, Any] | None = None

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the prompt as `prompts/list` shows it."""
        return revision.write(
            "prompt",
            name=self.name,
            title=self.title,
            description=self.description,
            _meta=self.meta,
            arguments=[argument.to_wire(revision) for argument in self.arguments] or None,
            icons=[icon.to_wire() for icon in self.icons] or None,
        )


@define(eq=False, repr=False)
class RegisteredPrompt(FeatureEntry):
    """A prompt with its handler.

    Attributes:
        arguments: the names of its arguments.
        required: the names of those that a request must have.
        completers: by argument, the completer of its values.
    """

    definition: PromptDefinition
    handler_spec: HandlerSpec
    arguments: tuple[str, ...]
    required: tuple[str, ...]
    completers: dict[str, Completer]

    @property
    def names(self) -> tuple[str]:
        """The name by which it can be switched off and on."""
        return (self.definition.name,)

    def wire(self, revision: Revision) -> dict[str, Any]:
        """Return the prompt as `prompts/list` shows it."""
        return self.definition.to_wire(revision)


class PromptRegistry(Registry[RegisteredPrompt]):
    """The prompts of a server, by name."""

    def __init__(self, notifier: ChangeNotifier | None = None) -> None:
        super().__init__(notifier or ChangeNotifier("prompts"))

    def register(
        self,
        definition: PromptDefinition,
        handler: Handler,
        **options: Unpack[HandlerOptions],
    ) -> RegisteredPrompt:
        """Add a prompt from its definition (PROMPT-01).

        Args:
            definition: of the prompt.
            handler: called with the arguments, as sent, and a `ToolContext`.
            options: see `HandlerOptions`.

        Raises:
            RegistrationError: the definition is not valid, or the name is taken.
        """
        return self.add(definition, handler, None, {}, **options)

    def add(
        self,
        definition: PromptDefinition,
        handler: Handler,
        execution: ExecutionMode | None,
        completers: Mapping[str, Completer],
        **options: Unpack[HandlerOptions],
    ) -> RegisteredPrompt:
        """Add a prompt with its completers; see `register`."""
        checks = DefinitionChecks(f"prompt {definition.name!r}")
        checks.name("name", definition.name)
        checks.text("title", definition.title)
        checks.text("description", definition.description)
        checks.icons(definition.icons)
        arguments = _check_arguments(checks, definition.arguments)
        return self.adopt(
            RegisteredPrompt(
                evolve(definition, arguments=arguments, meta=checks.meta(definition.meta)),
                checks.handler_spec(handler, execution, **options),
                tuple(argument.name for argument in arguments),
                tuple(argument.name for argument in arguments if argument.required),
                dict(completers),
            )
        )

    def adopt(self, entry: RegisteredPrompt) -> RegisteredPrompt:
        """Add a prompt that was checked before; return it.

        Raises:
            RegistrationError: the name is taken.
        """
        name = entry.definition.name
        if not self.put(name, entry):
            checks = DefinitionChecks(f"prompt {name!r}")
            raise checks.refusal("the name is taken: choose another one, or unregister it first")
        self.notifier.notify(entry)
        return entry

    def unregister(self, name: str) -> bool:
        """Remove a prompt; return whether there was one."""
        with self.notifier.lock:
            entry = self.registered(name)
            if entry is None:
                return False
            self.drop(name)
        self.notifier.notify(entry)
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
