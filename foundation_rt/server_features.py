"""What a server offers besides tools, as its author registers it.

Two levels, as for tools: decorators that read a function's signature, and `register_*`, which take
a definition and a handler. What they need is imported when a server has the first of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from .protocol.content import Annotations, Icon
    from .registry.feature_signatures import TypedFeature
    from .registry.features import Features
    from .registry.prompts import PromptDefinition
    from .registry.resources import ResourceDefinition, ResourceTemplateDefinition
    from .registry.tools import ExecutionMode, Handler

F = TypeVar("F", bound=Callable[..., Any])


class FeatureServer(ABC):
    """The part of a `Server` that is not about tools."""

    @property
    @abstractmethod
    def features(self) -> Features:
        """The resources, prompts and completions; made when first asked for."""

    # -- resources ---------------------------------------------------------------------------

    def resource(
        self,
        uri: str,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | None = None,
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        inline: bool = False,
        timeout_ms: int | None = None,
        cache_ttl_ms: int | None = None,
        scopes: Iterable[str] = (),
    ) -> Callable[[F], F]:
        """Let a function read a resource: `@server.resource("task://{id}")`.

        A URI with variables in braces stands for many resources; the function takes the variables
        as parameters, converted to their types. It may take the URI as ``uri`` and a
        `ToolContext`. What it returns becomes text, bytes or JSON, by its type
        (spec/mcp-resources.md).

        Args:
            uri: of the resource, or a template of RFC 6570, level 1.
            name: for programs; by default the function's.
            title: for people.
            description: by default the docstring's.
            mime_type: of the contents; by default what goes with the type of the value.
            size: in bytes, if it is known; not of a template.
            annotations: for whom it is, and how much it matters.
            icons: for lists.
            meta: the `_meta` of the definition; JSON.
            inline: run it in place; only for a `def` that takes microseconds and never blocks.
            timeout_ms: deadline in ms; by default `tools.default_timeout_ms`.
            cache_ttl_ms: how long a client may keep the contents, in ms; by default
                `server.cache_ttl_ms`.
            scopes: what a token must have been granted for it (AUTH-13).

        Raises:
            RegistrationError: says what to change.
        """
        from .errors import RegistrationError
        from .protocol.uri_template import InvalidUri, parse_template
        from .registry.feature_signatures import derive_resource
        from .registry.resources import ResourceDefinition, ResourceTemplateDefinition

        given: object = uri  # of a decorator without brackets, the function itself
        if not isinstance(given, str):
            raise RegistrationError('a resource has a URI: @server.resource("task://all")')
        variables: tuple[str, ...] = ()
        is_template = "{" in uri
        if is_template:
            if size is not None:
                raise RegistrationError(f"resource {uri!r}: a template has no size")
            try:
                variables = parse_template(uri).variables
            except InvalidUri as error:
                raise RegistrationError(f"resource {uri!r} is refused: it {error}") from None

        def register(function: F) -> F:
            typed = derive_resource(function, variables)
            members: dict[str, Any] = {
                "name": typed.name if name is None else name,
                "title": title,
                "description": typed.description if description is None else description,
                "mime_type": mime_type,
                "annotations": annotations,
                "icons": icons,
                "meta": meta,
            }
            options: dict[str, Any] = {
                "execution": _run_typed(typed, inline),
                "timeout_ms": timeout_ms,
                "cache_ttl_ms": cache_ttl_ms,
                "scopes": scopes,
            }
            registry = self.features.resources
            if is_template:
                template = ResourceTemplateDefinition(uri_template=uri, **members)
                choices = {key: typed.choices[key] for key in variables if key in typed.choices}
                registry.register_template(template, typed.handler, completers=choices, **options)
            else:
                resource = ResourceDefinition(uri=uri, size=size, **members)
                registry.register(resource, typed.handler, **options)
            return function

        return register

    def register_resource(
        self,
        definition: ResourceDefinition,
        handler: Handler,
        *,
        inline: bool = False,
        timeout_ms: int | None = None,
        cache_ttl_ms: int | None = None,
        scopes: Iterable[str] = (),
    ) -> None:
        """Add a resource from its definition; `handler({"uri": ...}, context)` reads it.

        Raises:
            RegistrationError: says what is wrong with the definition.
        """
        self.features.resources.register(
            definition,
            handler,
            execution=_run_plain(inline),
            timeout_ms=timeout_ms,
            cache_ttl_ms=cache_ttl_ms,
            scopes=scopes,
        )

    def register_resource_template(
        self,
        definition: ResourceTemplateDefinition,
        handler: Handler,
        *,
        inline: bool = False,
        timeout_ms: int | None = None,
        cache_ttl_ms: int | None = None,
        scopes: Iterable[str] = (),
    ) -> None:
        """Add all resources of a template; the handler gets its variables, as text, and ``uri``.

        Raises:
            RegistrationError: says what is wrong with the definition.
        """
        self.features.resources.register_template(
            definition,
            handler,
            execution=_run_plain(inline),
            timeout_ms=timeout_ms,
            cache_ttl_ms=cache_ttl_ms,
            scopes=scopes,
        )

    def unregister_resource(self, uri: str) -> bool:
        """Remove the resource of that URI, or the template so written; tell if there was one."""
        return self.features.resources.unregister(uri)

    # -- prompts -----------------------------------------------------------------------------

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        inline: bool = False,
        timeout_ms: int | None = None,
        scopes: Iterable[str] = (),
    ) -> Callable[[F], F]: ...

    def prompt(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        inline: bool = False,
        timeout_ms: int | None = None,
        scopes: Iterable[str] = (),
    ) -> Callable[..., Any]:
        """Make a prompt of a function: `@server.prompt` or `@server.prompt(title="Review")`.

        Its parameters are the prompt's arguments, read from text as their types say; what it
        returns is a text, a content block, a `PromptMessage`, a list of these, or a
        `PromptResult` (spec/prompts.md).

        Args:
            name: of the prompt; by default the function's.
            title: for people.
            description: by default the docstring's.
            icons: for lists.
            meta: the `_meta` of the definition; JSON.
            inline: run it in place; only for a `def` that takes microseconds and never blocks.
            timeout_ms: deadline in ms; by default `tools.default_timeout_ms`.
            scopes: what a token must have been granted for it (AUTH-13).

        Raises:
            RegistrationError: says which parameter, or which option, and what to do.
        """
        from .registry.feature_signatures import derive_prompt
        from .registry.prompts import PromptDefinition

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            typed = derive_prompt(function)
            definition = PromptDefinition(
                typed.name if name is None else name,
                typed.description if description is None else description,
                typed.arguments,
                title,
                icons,
                meta,
            )
            self.features.prompts.register(
                definition,
                typed.handler,
                execution=_run_typed(typed, inline),
                timeout_ms=timeout_ms,
                scopes=scopes,
                completers=typed.choices,
            )
            return function

        return register if function is None else register(function)

    def register_prompt(
        self,
        definition: PromptDefinition,
        handler: Handler,
        *,
        inline: bool = False,
        timeout_ms: int | None = None,
        scopes: Iterable[str] = (),
    ) -> None:
        """Add a prompt from its definition; `handler(arguments, context)` gets them as sent.

        Raises:
            RegistrationError: says what is wrong with the definition.
        """
        self.features.prompts.register(
            definition,
            handler,
            execution=_run_plain(inline),
            timeout_ms=timeout_ms,
            scopes=scopes,
        )

    def unregister_prompt(self, name: str) -> bool:
        """Remove a prompt; return whether there was one."""
        return self.features.prompts.unregister(name)

    # -- completions -------------------------------------------------------------------------

    def completion(
        self, subject: str, argument: str, /, *, inline: bool = False, timeout_ms: int | None = None
    ) -> Callable[[F], F]:
        """Let a function complete an argument: `@server.completion("review", "language")`.

        It takes what was typed and, if it has a second parameter, the other arguments that are
        known, by name; it returns the values that fit, or a `Completion` (spec/completion.md).

        Args:
            subject: the name of a prompt, or a URI template as it was registered.
            argument: of the prompt; of a template, a variable.
            inline: run it in place; only for a `def` that takes microseconds and never blocks.
            timeout_ms: deadline in ms; by default `tools.default_timeout_ms`.

        Raises:
            RegistrationError: there is no such prompt, template or argument, or the function
                takes something else.
        """
        from .registry.feature_signatures import derive_completion

        def register(function: F) -> F:
            typed = derive_completion(function)
            self.features.completions.register(
                subject,
                argument,
                typed.handler,
                execution=_run_typed(typed, inline),
                timeout_ms=timeout_ms,
            )
            return function

        return register

    def register_completion(
        self,
        subject: str,
        argument: str,
        handler: Handler,
        *,
        inline: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Let `handler({"value": ..., "arguments": {...}}, context)` complete an argument.

        Raises:
            RegistrationError: there is no such prompt, template or argument.
        """
        self.features.completions.register(
            subject,
            argument,
            handler,
            execution=_run_plain(inline),
            timeout_ms=timeout_ms,
        )


def _run_typed(typed: TypedFeature, inline: bool) -> ExecutionMode:
    from .errors import RegistrationError
    from .registry.tools import ExecutionMode

    if inline and typed.execution is ExecutionMode.ASYNC:
        raise RegistrationError(f"{typed.name!r}: inline=True is for def, not for async def")
    return ExecutionMode.INLINE if inline else typed.execution


def _run_plain(inline: bool) -> ExecutionMode | None:
    from .registry.tools import ExecutionMode

    return ExecutionMode.INLINE if inline else None
