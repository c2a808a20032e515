"""The server that an author writes: it collects tools and other features, and serves them.

Registries hold what is registered. The first time that the server is used, `compose` loads the
configuration and makes a `Runtime`: every component, each given its collaborators, nothing global.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from attrs import evolve

from .base.config.sources import ConfigSources
from .base.lazy_names import lazy
from .errors import RegistrationError, UsageError
from .features.composition import ServerOptions, ServerRuntime, compose
from .features.context import ToolContext
from .features.health import HEALTH, checked_report, health_report
from .features.registries import Features
from .features.subscriptions.feature import publisher_of
from .features.tool_settings import tool_settings
from .kernel.engine.connection import Connection, Send
from .kernel.registry.tool_definition import ToolDefinition
from .kernel.registry.tools import ExecutionMode, RegisteredTool, ToolRegistry, execution_of
from .kernel.session import TransportType
from .protocol.principal import identity_of
from .protocol.revisions import REVISIONS

if TYPE_CHECKING:
    from typing import Self, Unpack

    from .agents.ledger.coordinator import AgentCoordinatorV2
    from .agents.local import AgentCoordinator
    from .base.config.feature_sections import AuditCategory
    from .base.config.settings import ServerConfig
    from .base.config.types import Settings
    from .base.jsonschema.compilation import ValidationResult
    from .base.transforms import Transform
    from .features.custom_methods import CustomMethod
    from .features.forwarding.forwarder import ForwardedRequest, RequestForwarder
    from .features.http_pages import HttpMiddleware, HttpPage
    from .features.instruments import Instruments
    from .features.lifespan import Lifetime
    from .features.middleware import Middleware
    from .features.mounting import Mount
    from .features.observers import CallObserver
    from .features.openapi.api import Api, OpenApiOptions
    from .features.openapi.documents import Document
    from .features.options import (
        AppOptions,
        CompletionOptions,
        HandlerOptions,
        PromptOptions,
        ResourceHandlerOptions,
        ResourceOptions,
        SkillOptions,
        ToolHandlerOptions,
        ToolOptions,
    )
    from .features.own_features import Feature
    from .features.prompts.registry import PromptDefinition
    from .features.readiness import ReadinessChecks
    from .features.resources.registry import ResourceDefinition, ResourceTemplateDefinition
    from .features.session_callbacks import SessionCallback
    from .features.visibility import Switches
    from .http.app import HttpApplication
    from .http.asgi import App
    from .http.page_access import PageAccess
    from .kernel.invocation import Invocation
    from .kernel.registry.tools import Handler
    from .protocol.content import Icon
    from .protocol.principal import Principal

F = TypeVar("F", bound=Callable[..., Any])
_Section = TypeVar("_Section", bound="Settings")

READINESS_TIMEOUT_MS = 750
"""Below the second that Kubernetes waits for an answer."""

importing: ContextVar[bool] = ContextVar("foundation_rt_importing", default=False)
"""Set while the command line imports the file of an author, which must not serve (CLI-03)."""


class Server:
    """A set of tools and other features, and ways to serve them.

    Every decorator has a method beside it that takes a definition and a handler. The options of
    both are described in `features.options`; a name that is not among them is a `TypeError`.

    Args:
        name: of the server, as `initialize` has it; configuration can override it.
        version: of the server; configuration can override it.
        instructions: advice for the model that uses the tools.
        title: the server's name for people.
        website_url: a page about the server.
        icons: for people.
        config: configuration in code, by section: ``{"tools": {"default_timeout_ms": 5000}}``.
            File and environment override it.
        sections: sections of configuration of the application, by name: frozen attrs classes that
            derive from `config.sections.Settings` (CONF-24).
        experimental: capabilities that no revision defines, by name, each an object of JSON; sent
            to clients of every revision (REV-13).
        extensions: settings of the extensions that the server has, by name, each an object of
            JSON: ``{"com.example/reports": {}}``; sent to clients whose revision has extensions
            (EXT-08).
        request_headers: names of headers of HTTP requests that handlers get as
            `ToolContext.headers`; configuration can override them (HEAD-16).
        options: components to use instead of those the server would make.

    Raises:
        RegistrationError: a section is refused (CONF-25).
        UsageError: the registry in `options` belongs to another server; or an argument has the
            wrong type.

    Example::

        server = Server("weather", version="1.0.0")

        @server.tool
        def forecast(city: str) -> dict: ...

        if __name__ == "__main__":
            server.run()
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        version: str | None = None,
        instructions: str | None = None,
        title: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon] = (),
        config: Mapping[str, Mapping[str, Any]] | None = None,
        sections: Mapping[str, type[Settings]] | None = None,
        experimental: Mapping[str, Mapping[str, Any]] | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        request_headers: Sequence[str] | None = None,
        options: ServerOptions | None = None,
    ) -> None:
        self._config = ConfigSources(config, name, version, sections, request_headers)
        given: dict[str, Any] = {
            "instructions": instructions,
            "title": title,
            "website_url": website_url,
            "icons": icons or None,
            "experimental": experimental,
            "extensions": extensions,
        }
        given = {name: value for name, value in given.items() if value is not None}
        self._options = evolve(options or ServerOptions(), **given)
        self._options.features = self._options.features or Features()
        if given or options is not None:
            from .features.presentation import check_presentation

            check_presentation(self._options)
        if self._options.experimental is not None or self._options.extensions:
            from .features.declared import read_experimental, read_server_extensions

            if self._options.experimental is not None:
                self._options.experimental = read_experimental(self._options.experimental)
            self._options.extensions = read_server_extensions(self._options.extensions)
        self._runtime: ServerRuntime | None = None
        self._mounted_in: tuple[Server, Mount] | None = None
        self._switches: Switches | None = None
        self._registry = self._options.tool_registry or ToolRegistry()
        self._registry.on_version = lazy(f"{__package__}.features.tool_versions", "keep_versions")
        self._add_health()
        if self._options.agent_coordinator is not None:
            self._add_agent_tools(self._options.agent_coordinator)

    @classmethod
    def from_openapi(
        cls,
        document: Document,
        *,
        name: str | None = None,
        config: Mapping[str, Mapping[str, Any]] | None = None,
        request_headers: Sequence[str] | None = None,
        **options: Unpack[OpenApiOptions],
    ) -> Self:
        """Return a server whose tools call an HTTP API (spec/openapi.md; extra `openapi`).

        ::

            server = Server.from_openapi("petstore.yaml", base_url="https://pets.example.com/v1")

        Args:
            document: of OpenAPI 3.0 or 3.1: a mapping, the path of a file, or a text, in JSON or
                YAML.
            name: of the server; by default the title of the document.
            config: see `Server`.
            request_headers: see `Server`; for a function as `auth`.
            options: see `OpenApiOptions`.

        Raises:
            MissingExtraError: the extra `openapi` is not installed.
            OpenApiError: the document, or an option, cannot be used.
        """
        from .features.openapi.api import read_api
        from .features.openapi.upstream import require_client

        api = read_api(document, options)
        require_client()
        return cls._of_api(api, name, config, request_headers, options.get("transform"))

    @classmethod
    def from_asgi(
        cls,
        app: Any,
        *,
        document: Document | None = None,
        name: str | None = None,
        config: Mapping[str, Mapping[str, Any]] | None = None,
        request_headers: Sequence[str] | None = None,
        **options: Unpack[OpenApiOptions],
    ) -> Self:
        """Return a server whose tools call an ASGI application in process (OAPI-40).

        ::

            server = Server.from_asgi(app)  # of FastAPI

        The application starts and ends with the server.

        Args:
            app: an ASGI application, such as one of FastAPI or Starlette.
            document: by default the application's own: what its `openapi` returns, or the one that
                it serves at `/openapi.json`.
            name: of the server; by default the title of the document.
            config: see `Server`.
            request_headers: see `Server`; for a function as `auth`.
            options: see `OpenApiOptions`.

        Raises:
            MissingExtraError: the extra `openapi` is not installed.
            OpenApiError: the application has no document, or an option cannot be used.
        """
        from .features.openapi.api import read_api
        from .features.openapi.asgi import BASE_URL, InProcessApp

        hosted = InProcessApp(app)
        options.setdefault("base_url", BASE_URL)
        found = hosted.document() if document is None else document
        api = read_api(found, options, sender=hosted)
        transform = options.get("transform")
        return cls._of_api(api, name, config, request_headers, transform, hosted.lifespan)

    @classmethod
    def _of_api(
        cls,
        api: Api,
        name: str | None,
        config: Any,
        headers: Any,
        transform: Transform | None,
        *hooks: Callable[..., Any],
    ) -> Self:
        """Return a server with the tools and the resources of an API; log what cannot be called."""
        from .features.openapi.api import register_api

        server = cls(name or api.title, version=api.version, config=config, request_headers=headers)
        for hook in hooks:
            server.lifespan(hook)
        register_api(api, server._registry, lambda: server.features.resources, transform)
        api.max_bytes = lambda: server.runtime.config.tools.max_response_bytes
        server.lifespan(after_initialize=True)(api.lifespan)
        return server

    def _add_health(self) -> None:
        """Add the `health` tool, unless the author has a tool of that name (HEALTH-01)."""
        present = self._registry.get(HEALTH.name)
        if present is not None and present.reserved:
            raise UsageError("a ToolRegistry belongs to one server: give each its own")
        if present is None:
            self._registry.register(
                HEALTH,
                lambda arguments, context: health_report(
                    self.runtime.config, self.runtime.resources
                ),
                execution=ExecutionMode.INLINE,
                reserved=True,
            )

    def _add_agent_tools(self, coordinator: AgentCoordinator) -> None:
        from .features.agent_tools.agents import register_agent_tools

        register_agent_tools(self._registry, coordinator, lambda: self.runtime.config.tools)
        if self._runtime is None:
            self.readiness_check("agents")(coordinator.is_ready)

    # -- tools -----------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, name: str = ..., /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(
        self, function: Callable[..., Any] | str | None = None, /, **options: Unpack[ToolOptions]
    ) -> Callable[..., Any]:
        """Make a tool of a function: `@server.tool` or `@server.tool(timeout_ms=2000)`.

        The input schema comes from the signature, the descriptions from the docstring
        (spec/typed-tools.md). The function itself does not change.

        Args:
            function: becomes the tool; or its name, as in `@server.tool("name")`.
            options: see `ToolOptions`.

        Raises:
            RegistrationError: names the parameter or the option, and what to change.
        """
        ui = options.pop("ui", None)

        def register(function: Callable[..., Any], **named: Any) -> Callable[..., Any]:
            from .features.typed.tool_signature import add_tool

            if ui is not None:
                apps = self._first(self.features.has_apps, "app").apps
                options["meta"] = apps.meta_of(function, {**cast("Any", options), **named}, ui)
            add_tool(self._registry, function, ToolContext, **named, **cast("Any", options))
            return function

        if isinstance(function, str):
            return partial(register, name=function)
        return register if function is None else register(function)

    def register(
        self,
        definition: ToolDefinition,
        handler: Handler,
        *,
        is_dynamic: bool = False,
        **options: Unpack[ToolHandlerOptions],
    ) -> None:
        """Add a tool from its definition; `handler(arguments, context)` gets arguments as sent.

        While the server runs, clients are notified (LIFE-10).

        Args:
            definition: of the tool.
            handler: a function, or a coroutine function.
            is_dynamic: the tool comes while the server runs; this is logged.
            options: see `ToolHandlerOptions`.

        Raises:
            RegistrationError: names the problem of the definition or of an option.
        """
        settings = tool_settings(definition, execution_of(handler), **options)
        self._registry.register(definition, handler, is_dynamic=is_dynamic, **settings)

    def unregister(self, name: str) -> bool:
        """Remove a tool, or the version of ``name@version``; return whether there was one."""
        return self._registry.unregister(name)

    def get(self, name: str) -> RegisteredTool | None:
        """Return the tool registered as `name`, or as ``name@version``, if there is one."""
        return self._registry.find(name)

    def list(self) -> tuple[ToolDefinition, ...]:
        """Return all definitions of tools, sorted by name."""
        return self._registry.list()

    def validate_definition(self, definition: ToolDefinition) -> ValidationResult:
        """Return the problems that `register` would find."""
        return self._registry.validate_definition(definition)

    def disable(self, *names: str, tags: Iterable[str] = ()) -> None:
        """Switch tools, resources and prompts off: for clients they are not there (VIS-04).

        From any thread; clients are notified. Entries that are registered later are concerned as
        well. Running calls go on.

        Args:
            names: of tools and prompts; URIs of resources and templates.
            tags: entries with any of them.

        Raises:
            UsageError: neither is given, or one has the wrong type.
        """
        self._switch(False, names, tags)

    def enable(self, *names: str, tags: Iterable[str] = (), only: bool = False) -> None:
        """Switch tools, resources and prompts on again; see `disable`.

        Args:
            names: as of `disable`.
            tags: as of `disable`.
            only: switch all others off (VIS-06).
        """
        self._switch(True, names, tags, only=only)

    def _switch(
        self, on: bool, names: Sequence[str], tags: Iterable[str], *, only: bool = False
    ) -> None:
        from .features.visibility import ALL_OFF, Switches, read_switch

        switch = read_switch(on, names, tags)
        if self._switches is None:
            self._switches = Switches()
        self._switches.add(*((ALL_OFF, switch) if only else (switch,)))
        features = self.features
        for registry in (self._registry, features.resources, features.prompts):
            registry.switch(self._switches.is_on)
        if features.has_skills:
            features.skills.switch(self._switches.is_on)

    def mount(self, other: Server, prefix: str = "", transform: Transform | None = None) -> None:
        """Offer what another server has as a part of this one, live (spec/mounting.md).

        The names of its tools and prompts begin with the prefix and ``_``, and its resources are
        offered as ``scheme://prefix/rest``. Methods and extensions keep their names. The lifespan
        of the other server is entered with that of this one, and its handlers have its state.
        Limits, configuration and the client are those of this server.

        Args:
            other: has tools, resources, prompts, methods, extensions and lifespan hooks, and
                nothing else (MOUNT-06).
            prefix: letters, digits, `-` and single `_`; empty: names stay as they are.
            transform: shapes its tools (spec/transforms.md).

        Raises:
            RegistrationError: this server has one of the names, or the transform does not fit.
            UsageError: the prefix or the other server cannot be used, or this server has been
                started already.
        """
        from .base.transforms import Transform
        from .features.mounting import Mount, check_prefix

        self._refuse_when_started("mount another one", if_mounted=False)
        check_prefix(prefix)
        other._check_mountable(self)
        mount = Mount(
            prefix,
            other._registry,
            other.features,
            self._registry,
            self.features,
            lambda: other._options.lifespan,
            other.dependency_overrides,
            transform or Transform({}),
        )
        self._check_methods(other._options.methods)
        mount.open()
        for method in other._options.methods.values():
            self._add_method(mount.method(method))
        self._declare(other._options.extensions)
        other._mounted_in = (self, mount)
        self.lifespan(mount.lifespan)

    def _check_methods(self, methods: Mapping[str, CustomMethod]) -> None:
        """Raise `RegistrationError` if this server, or one around it, has one of these methods."""
        for name in methods.keys() & self._options.methods.keys():
            raise RegistrationError(f"method {name!r} is refused: the outer server has it")
        if self._mounted_in is not None:
            self._mounted_in[0]._check_methods(methods)

    def _declare(self, extensions: Mapping[str, Mapping[str, Any]]) -> None:
        """Declare the extensions of a mounted server as well; an own one stays as it is."""
        self._options.extensions = {**extensions, **self._options.extensions}
        if self._mounted_in is not None:
            self._mounted_in[0]._declare(extensions)

    @property
    def is_mounted(self) -> bool:
        """Return whether this server is a part of another one."""
        return self._mounted_in is not None

    def _check_mountable(self, outer: Server) -> None:
        """Raise `UsageError` unless this server can be mounted in `outer`."""
        from .features.mounting import check_mounted

        each: Server | None = outer
        while each is not None:
            if each is self:
                raise UsageError("a server cannot be mounted in itself")
            each = None if each._mounted_in is None else each._mounted_in[0]
        if self._mounted_in is not None or self._runtime is not None:
            raise UsageError("this server is mounted or served already: make one for each mount")
        check_mounted(self._options, self.features)

    @property
    def revisions(self) -> tuple[str, ...]:
        """The names of the protocol revisions that the server speaks, the oldest first."""
        return tuple(REVISIONS)

    # -- resources, prompts, completions ---------------------------------------------------------

    @property
    def features(self) -> Features:
        """The resources, prompts and completions of this server; each made when first used."""
        features = self._options.features
        assert features is not None  # made with the server
        return features

    def resource(self, uri: str, /, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Make a resource of a function that reads it: `@server.resource("task://{id}")`.

        A URI with variables in braces stands for many resources; the function takes the variables
        as parameters, converted to their types. It may take the URI as ``uri`` and a
        `ToolContext`. Its result becomes text, bytes or JSON, by its type (spec/mcp-resources.md).

        Args:
            uri: of the resource, or a template (MRES-06): ``{id}`` is a part of a path segment,
                ``{+path}`` several segments, ``{?page,size}`` the parameters of a query.
            options: see `ResourceOptions`.

        Raises:
            RegistrationError: names the parameter or the option, and what to change.
        """
        from .features.typed.feature_signatures import resource_of

        return resource_of(self.features.resources, uri, ToolContext, options)

    def register_resource(
        self,
        definition: ResourceDefinition,
        handler: Handler,
        **options: Unpack[ResourceHandlerOptions],
    ) -> None:
        """Add a resource from its definition; see `ResourceRegistry.register`."""
        self.features.resources.register(definition, handler, **options)

    def register_resource_template(
        self,
        definition: ResourceTemplateDefinition,
        handler: Handler,
        **options: Unpack[ResourceHandlerOptions],
    ) -> None:
        """Add all resources of a template; see `ResourceRegistry.register_template`."""
        self.features.resources.register_template(definition, handler, **options)

    def list_resources(self) -> tuple[ResourceDefinition, ...]:
        """Return the definitions of all resources that are switched on, sorted by URI."""
        resources = self.features.resources.resources
        return tuple(each.definition for each in resources.entries())

    def list_resource_templates(self) -> tuple[ResourceTemplateDefinition, ...]:
        """Return the definitions of all templates that are switched on, sorted as written."""
        templates = self.features.resources.templates
        return tuple(each.definition for each in templates.entries())

    def unregister_resource(self, uri: str) -> bool:
        """Remove the resource or the template registered as `uri`; return whether there was one."""
        return self.features.resources.unregister(uri)

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(self, name: str = ..., /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...

    def prompt(
        self, function: Callable[..., Any] | str | None = None, /, **options: Unpack[PromptOptions]
    ) -> Callable[..., Any]:
        """Make a prompt of a function: `@server.prompt` or `@server.prompt(title="Review")`.

        Its parameters are the prompt's arguments, read from text as their types say. Its result is
        a text, a content block, a `PromptMessage`, a list of these, or a `PromptResult`
        (spec/prompts.md).

        Args:
            function: becomes the prompt; or its name, as in `@server.prompt("name")`.
            options: see `PromptOptions`.

        Raises:
            RegistrationError: names the parameter or the option, and what to change.
        """

        def register(function: Callable[..., Any], **named: Any) -> Callable[..., Any]:
            from .features.typed.feature_signatures import add_prompt

            add_prompt(self.features.prompts, function, ToolContext, **named, **options)
            return function

        if isinstance(function, str):
            return partial(register, name=function)
        return register if function is None else register(function)

    def register_prompt(
        self, definition: PromptDefinition, handler: Handler, **options: Unpack[HandlerOptions]
    ) -> None:
        """Add a prompt from its definition; see `PromptRegistry.register`."""
        self.features.prompts.register(definition, handler, **options)

    def list_prompts(self) -> tuple[PromptDefinition, ...]:
        """Return the definitions of all prompts that are switched on, sorted by name."""
        return tuple(each.definition for each in self.features.prompts.entries())

    def unregister_prompt(self, name: str) -> bool:
        """Remove a prompt; return whether there was one."""
        return self.features.prompts.unregister(name)

    def expose_prompts_as_tools(self) -> None:
        """Add the tools `list_prompts` and `get_prompt`, for clients that have tools alone.

        Raises:
            RegistrationError: a tool has one of these names.
        """
        add = lazy("foundation_rt.features.as_tools", "add_prompt_tools")
        add(self._registry, self.features.prompts)

    def expose_resources_as_tools(self) -> None:
        """Add the tools `list_resources` and `read_resource`, for clients that have tools alone.

        Raises:
            RegistrationError: a tool has one of these names.
        """
        add = lazy("foundation_rt.features.as_tools", "add_resource_tools")
        add(self._registry, self.features.resources)

    def skill(self, folder: str | os.PathLike[str], /, **options: Unpack[SkillOptions]) -> str:
        """Offer a skill, a folder with a file `SKILL.md`; return its URI (extra `skills`).

        Its files are read now, and served as they are now. Names that begin with a dot are left
        out (spec/skills.md).

        Args:
            folder: has the name of the skill; a relative path is taken from the working folder.
            options: see `SkillOptions`.

        Raises:
            MissingExtraError: the extra `skills` is not installed.
            RegistrationError: it is no skill, or larger than one may be, or its name is taken; says
                what to change.
            UsageError: it is the first skill, and the server has been started already.
        """
        return self._first(self.features.has_skills, "skill").skills.add(folder, **options)

    def skills_from(
        self, folder: str | os.PathLike[str], /, **options: Unpack[SkillOptions]
    ) -> tuple[str, ...]:
        """Offer every skill below a folder; return their URIs.

        The folders in between are in the URIs: `skills/billing/refunds/SKILL.md` below `skills` is
        ``skill://billing/refunds/SKILL.md``. If one is refused, none is offered. Otherwise as
        `skill`.
        """
        return self._first(self.features.has_skills, "skill").skills.add_from(folder, **options)

    def list_skills(self) -> tuple[str, ...]:
        """Return the URIs of all skills that are switched on, sorted."""
        if not self.features.has_skills:
            return ()
        return tuple(each.uri for each in self.features.skills.entries())

    def unregister_skill(self, uri: str) -> bool:
        """Remove a skill and its files; return whether there was one."""
        return self.features.has_skills and self.features.skills.unregister(uri)

    @overload
    def app(self, uri: str, /, **options: Unpack[AppOptions]) -> Callable[[F], F]: ...

    @overload
    def app(
        self, uri: str, html: str | os.PathLike[str], /, **options: Unpack[AppOptions]
    ) -> None: ...

    def app(
        self, uri: str, html: str | os.PathLike[str] | None = None, /, **options: Unpack[AppOptions]
    ) -> Any:
        """Add an app, a page in which hosts show the results of tools: `ui="ui://orders/table"`.

        ::

            server.app("ui://orders/table", Path(__file__).with_name("orders.html"))

            @server.app("ui://orders/chart")
            def chart() -> str: ...  # the HTML

        It is a resource of the type `text/html;profile=mcp-app` (spec/apps.md). A file is read now.

        Args:
            uri: of the app; begins with ``ui://``.
            html: the page as text, or a file with it; left out, a function returns the page, which
                takes no arguments, or a `ToolContext`.
            options: see `AppOptions`.

        Raises:
            RegistrationError: names the app and what to change.
            UsageError: it is the first app, and the server has been started already.
        """
        from .features.apps.pages import app_of

        apps = self._first(self.features.has_apps, "app").apps
        return app_of(apps, uri, html, ToolContext, options)

    def _first(self, is_used: bool, kind: str) -> Features:
        """Return the registries; raise `UsageError` for the first of a kind after the start."""
        if not is_used:
            self._refuse_when_started(f"add its first {kind}", if_mounted=False)
        return self.features

    @overload
    def completion(self, function: F, /) -> F: ...

    @overload
    def completion(self, /, **options: Unpack[CompletionOptions]) -> Callable[[F], F]: ...

    @overload
    def completion(
        self, subject: str, argument: str, /, **options: Unpack[CompletionOptions]
    ) -> Callable[[F], F]: ...

    def completion(
        self,
        subject: str | Callable[..., Any] | None = None,
        argument: str | None = None,
        /,
        **options: Unpack[CompletionOptions],
    ) -> Any:
        """Make a function complete an argument: `@server.completion("review", "language")`.

        Without a subject, as `@server.completion`, the function completes every argument that has
        no completion of its own. It takes a `CompletionRequest`, and returns None where it knows
        no values (COMP-08).

        With a subject, it takes the text so far and, if it has a second parameter, the other
        arguments that are known, by name. It returns the values that fit, or a `Completion`
        (spec/completion.md).

        Args:
            subject: the name of a prompt, or a URI template as it was registered.
            argument: of the prompt; of a template, a variable.
            options: see `CompletionOptions`.

        Raises:
            RegistrationError: there is no such prompt, template or argument, or the function has
                other parameters.
        """
        from .features.typed.feature_signatures import completion_of

        return completion_of(self.features.completions, subject, argument, ToolContext, options)

    def register_completion(
        self, subject: str, argument: str, handler: Handler, **options: Unpack[CompletionOptions]
    ) -> None:
        """Let a handler complete an argument; see `CompletionRegistry.register`."""
        self.features.completions.register(subject, argument, handler, **options)

    # -- methods of the author -------------------------------------------------------------------

    def method(
        self,
        name: str,
        /,
        *,
        inline: bool = False,
        timeout_ms: int | None = None,
        scopes: Iterable[str] = (),
    ) -> Callable[[F], F]:
        """Answer requests of a method that MCP does not have: `@server.method("acme/report")`.

        The params of a request are the parameters of the function, by the rules of tools. Its
        result is an object: a class with annotations, a dict, or None for an empty one
        (spec/custom-methods.md).

        Args:
            name: of the method, with a prefix of yours (EXT-02).
            inline, timeout_ms, scopes: see `HandlerOptions`.

        Raises:
            RegistrationError: the name is taken or is none; or names the parameter or the option,
                and what to change.
            UsageError: the server has been started already.
        """
        from .features.custom_methods import check_name, typed_method

        check_name(name)

        def register(function: F) -> F:
            method = typed_method(
                name, function, ToolContext, inline=inline, timeout_ms=timeout_ms, scopes=scopes
            )
            self._add_method(method)
            return function

        return register

    def register_method(
        self,
        name: str,
        handler: Handler,
        *,
        inline: bool = False,
        timeout_ms: int | None = None,
        scopes: Iterable[str] = (),
    ) -> None:
        """Answer requests of a method by `handler(params, context)`, with the params as sent.

        `_meta` is not among them. Otherwise as `method`.
        """
        from .features.custom_methods import raw_method

        self._add_method(
            raw_method(name, handler, inline=inline, timeout_ms=timeout_ms, scopes=scopes)
        )

    def _add_method(self, method: CustomMethod) -> None:
        self._refuse_when_started("register a method", if_mounted=False)
        if method.name in self._options.methods:
            raise RegistrationError(f"method {method.name!r} is refused: the name is taken")
        if self._mounted_in is not None:
            outer, mount = self._mounted_in
            outer._add_method(mount.method(method))
        self._options.methods = {**self._options.methods, method.name: method}

    def add_feature(
        self,
        feature: Feature,
        *,
        sections: Mapping[str, type[Settings]] | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Let a feature of yours join the server: its hooks, settings and extensions (EXT-12).

        What else it has, it registers as any author does: tools, methods, lifespan hooks.

        Args:
            feature: its hooks are called after those of the runtime, in the order of additions.
            sections: of configuration, as of `Server`.
            extensions: as of `Server`.

        Raises:
            RegistrationError: a hook cannot be called as one (EXT-14), a section is refused, or its
                name is taken.
            UsageError: it is no feature, it has joined, an extension cannot be declared or is
                declared already, or the server has been started.
        """
        from .features.own_features import Feature, check_feature

        self._refuse_when_started("add a feature")
        given: object = feature
        has_joined = any(each is given for each in self._options.own_features)
        if not isinstance(given, Feature) or has_joined:
            raise UsageError(f"add_feature takes an object of a class of Feature, once: {given!r}")
        check_feature(given)
        declared: Mapping[str, Mapping[str, Any]] = {}
        if extensions is not None:
            from .features.declared import read_server_extensions

            declared = read_server_extensions(extensions)
        for name in declared.keys() & self._options.extensions.keys():
            raise UsageError(f"the server declares the extension {name!r} already")
        if sections is not None:
            self._config.add_sections(sections)
        self._options.own_features += (feature,)
        self._options.extensions = {**self._options.extensions, **declared}

    # -- requests for somebody else --------------------------------------------------------------

    def forward(self, forwarder: RequestForwarder) -> None:
        """Hand to `forwarder` every request for what the server itself does not have (FWD-01).

        The tools, resources and prompts of the server answer first. See `RequestForwarder`, and
        spec/forwarding.md.

        Raises:
            UsageError: the server has a forwarder, or has been started already.
        """
        self._refuse_when_started("give it a forwarder")
        if self._options.forwarder is not None:
            raise UsageError("a server has one forwarder: let one object hand on to the others")
        self._options.forwarder = forwarder

    def seal_state(self, value: Any, context: ToolContext) -> str:
        """Return a `requestState` that carries `value`, for an `input_required` result (FWD-10).

        It is authenticated, not encrypted, and good for this principal, this method, what it names
        and its arguments, for `server.input_ttl_ms`. Servers with the same `security.state_key`
        open it.

        Args:
            value: can be written as JSON.
            context: of the call.

        Raises:
            ToolError: the state would be longer than 1 MiB.
            TypeError: `value` cannot be written as JSON.
            UsageError: the context was made by hand.
        """
        from .features.server_requests.feature import ClientInput
        from .features.server_requests.stateless_calls import seal_for

        return seal_for(self.runtime.engine.part(ClientInput), _call_of(context), value)

    def open_state(self, state: object, context: ToolContext) -> Any:
        """Return the value of a `requestState` that `seal_state` made for the same request.

        Raises:
            ForwardedError: -32602; it was made for another principal or request, has expired, or
                was changed (ASK-33). A forwarder lets it pass.
            UsageError: the context was made by hand.
        """
        from .features.server_requests.feature import ClientInput
        from .features.server_requests.stateless_calls import open_for

        return open_for(self.runtime.engine.part(ClientInput), _call_of(context), state)

    # -- notifications ---------------------------------------------------------------------------

    def resource_updated(
        self,
        uri: str,
        *,
        session_key: str | None = None,
        principal: Principal | None = None,
        requests: Collection[ForwardedRequest] | None = None,
        all_workers: bool = True,
    ) -> None:
        """Notify the clients that have subscribed to this resource; from any thread (SUB-07).

        All of them are notified, unless the resource is that of one session, or of one principal
        (SUB-16), or of some subscriptions that a forwarder has accepted (FWD-32).

        Args:
            uri: as clients have subscribed to it; it need not be listed.
            session_key: the `ToolContext.session_key` of the only session that is notified.
            principal: the `ToolContext.principal` whose clients are notified.
            requests: those that the forwarder was given, whose subscriptions alone are notified.
            all_workers: whether clients of other workers are notified too (SUB-17); False where
                each worker learns of the change by itself.

        Raises:
            UsageError: both a session and a principal are given.
        """
        if session_key is not None and principal is not None:
            raise UsageError("a resource is that of one session, or of one principal, not of both")
        if self._mounted_in is not None:
            outer, mount = self._mounted_in
            outer.resource_updated(
                mount.outside(uri),
                session_key=session_key,
                principal=principal,
                requests=requests,
                all_workers=all_workers,
            )
        elif self._runtime is not None:
            publisher = publisher_of(self._runtime.engine)
            if requests is not None:  # a forwarder has them in this process
                seen_by = None if principal is None else _is_same_as(principal)
                publisher.resource_updated(uri, seen_by, session_key, requests)
            else:
                concerned = (session_key, identity_of(principal))
                publisher.announce(("resource", uri, *concerned), all_workers=all_workers)

    def task_changed(self, task: Mapping[str, Any]) -> None:
        """Notify the clients that listen for a task of a forwarder; from any thread (FWD-27).

        Args:
            task: the params of `notifications/tasks`, as they came, with the `taskId` that clients
                know.
        """
        if self._runtime is not None:
            publisher_of(self._runtime.engine).task_changed(task)

    def subscribed_resources(self) -> Sequence[str]:
        """Return the URIs that any client has subscribed to; from any thread (SUB-13).

        For a server that knows better which of its resources have changed than how to list them.
        """
        if self._runtime is None:
            return []
        return publisher_of(self._runtime.engine).subscriptions.names("resource")

    def list_changed(
        self,
        kind: str,
        *,
        session_key: str | None = None,
        principal: Principal | None = None,
        all_workers: bool = True,
    ) -> None:
        """Notify clients that a list has changed, with or without a registration (SUB-14).

        From any thread. For a list whose entries change by other means: the resources of a
        template, for instance. A registration notifies by itself. All clients are notified, unless
        the list is that of one session, or of one principal (SUB-15).

        Args:
            kind: `tools`, `resources` or `prompts`.
            session_key: the `ToolContext.session_key` of the only session that is notified.
            principal: the `ToolContext.principal` whose clients are notified.
            all_workers: whether clients of other workers are notified too (SUB-17); False where
                each worker learns of the change by itself.

        Raises:
            UsageError: there is no such list, or both a session and a principal are given.
        """
        if kind not in ("tools", "resources", "prompts"):
            raise UsageError(f"a list is tools, resources or prompts, not {kind!r}")
        if session_key is not None and principal is not None:
            raise UsageError("a list is that of one session, or of one principal, not of both")
        if self._mounted_in is not None:
            self._mounted_in[0].list_changed(
                kind, session_key=session_key, principal=principal, all_workers=all_workers
            )
        elif self._runtime is not None:
            concerned = (session_key, identity_of(principal))
            publisher_of(self._runtime.engine).announce(
                ("list", kind, *concerned), all_workers=all_workers
            )

    def elicitation_completed(self, elicitation_id: str) -> None:
        """Notify the client whose user has finished on the page of an elicitation (ASK-18).

        From any thread. The id is that of `elicit_url`; only revision 2025-11-25 has the
        notification.
        """
        if self._runtime is not None:
            publisher_of(self._runtime.engine).announce(("elicitation", elicitation_id, None, None))

    # -- agents ----------------------------------------------------------------------------------

    @property
    def agents(self) -> AgentCoordinatorV2:
        """The agents of this server; the first use adds the agent tools (AGENT-14).

        It is the coordinator in `options`, if there is one.
        """
        coordinator = self._options.agent_coordinator
        if coordinator is None:
            from .agents.ledger.coordinator import AgentCoordinatorV2

            coordinator = AgentCoordinatorV2()
            self._options.agent_coordinator = coordinator
            self._add_agent_tools(coordinator)
            if self._runtime is not None:
                self._runtime.attach_agents(coordinator)
        return cast("AgentCoordinatorV2", coordinator)

    # -- dependencies ----------------------------------------------------------------------------

    @property
    def dependency_overrides(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        """By function of a dependency, the one that calls use instead, for tests (TYPED-75).

        It counts from the next call on, and for all that this server serves::

            server.dependency_overrides[open_database] = lambda: FakeDatabase()
        """
        return self._options.dependency_overrides

    # -- around the calls ------------------------------------------------------------------------

    @overload
    def lifespan(self, hook: F, /) -> F: ...

    @overload
    def lifespan(self, /, *, after_initialize: bool) -> Callable[[F], F]: ...

    def lifespan(
        self, hook: Callable[..., Any] | None = None, /, *, after_initialize: bool = False
    ) -> Callable[..., Any]:
        """Enter `hook(server)` before the first message is served, and leave it after the last.

        The hook is an async generator function that yields once, or returns an async context
        manager. The value that it yields is `ToolContext.state`. Hooks nest in the order of their
        registration (spec/operations.md). ::

            @server.lifespan
            async def database(server):
                async with connect() as connection:
                    yield {"database": connection}

        Args:
            hook: to be entered.
            after_initialize: over stdio, `initialize` may be answered before the hook is entered: a
                client waits less, and if the hook fails, the process ends after that answer. Every
                hook of the server has to allow it. Not for hooks that register features, as the
                answer names those that are there (OPS-40).

        Raises:
            RegistrationError: `hook` is neither.
            UsageError: the server has been started already.
        """
        from .features.lifespan import Lifespan

        def register(hook: Callable[..., Any]) -> Callable[..., Any]:
            self._refuse_when_started("register a lifespan hook", if_mounted=False)
            lifespan = self._options.lifespan or Lifespan(self)
            lifespan.add(hook, after_initialize=after_initialize)
            self._options.lifespan = lifespan
            return hook

        return register if hook is None else register(hook)

    def middleware(self, function: F, /) -> F:
        """Run `async def function(call, proceed)` around every handler, of tools and features.

        It awaits `proceed()` for the result of the handler; the middleware registered first is the
        outermost (spec/operations.md).

        Raises:
            RegistrationError: `function` is no such function.
            UsageError: the server has been started already.
        """
        from .features.middleware import check_middleware

        self._refuse_when_started("register middleware")
        check_middleware(function)
        self._options.middleware += (cast("Middleware", function),)
        return function

    def lifetime(self) -> Lifetime:
        """Return the time in which a host serves: `async with`, or `with` without a loop.

        The lifespan hooks are entered at its beginning and left at its end. The host makes its
        connections within it; a server without hooks does not need it.
        """
        from .features.lifespan import Lifetime

        return Lifetime(self.runtime, lambda: self.runtime.embedding)

    # -- what operators see ----------------------------------------------------------------------

    def audit(
        self,
        event_type: str,
        category: AuditCategory,
        *,
        success: bool = True,
        context: ToolContext | None = None,
        correlation_id: str | None = None,
        error_message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        sensitive: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a record of the application to the audit log, from any thread (OPS-29).

        Nothing is done while the audit log or the category is off, or before the server starts.

        Args:
            event_type: the event, such as "BATCH_JOB_COMPLETED".
            category: of the record; see `audit.categories`.
            success: whether the event is a success; decides the level of the record.
            context: of the call in which it happens; gives the ids, the client and the tool.
            correlation_id: replaces that of the context; for events outside of a call.
            error_message: what went wrong.
            metadata: facts about the event, such as counts and ids.
            sensitive: data of users, shown as `audit.sensitive_data` says (OPS-30).

        Raises:
            UsageError: the event type is not in capitals, or there is no such category.
        """
        from .features.audit import check_event

        check_event(event_type, category)
        if self._runtime is not None and self._runtime.audit is not None:
            self._runtime.audit.write_own(
                event_type,
                category,
                success,
                context,
                correlation_id,
                error_message,
                metadata,
                sensitive,
            )

    @property
    def metrics(self) -> Instruments:
        """The metrics of the application, beside those of the runtime (OPS-31).

        ::

            inserted = server.metrics.counter("mcp_tasks_inserted_total", "Tasks inserted.")
            inserted.add(5000)

        Instruments may be made and used at any time, and do nothing while `telemetry.metrics` is
        off.
        """
        instruments = self._options.instruments
        if instruments is None:
            from .features.instruments import Instruments

            instruments = Instruments()
            self._options.instruments = instruments
            if self._runtime is not None:
                self._runtime.attach_instruments(instruments)
        return instruments

    def call_observer(self, function: F, /) -> F:
        """Give every call that has ended to `function(call)`, refused ones included (OPS-34).

        It is a plain function, which does not block: it runs in the thread that ends the call,
        after the answer was sent. What it raises is logged. See `CompletedCall`.

        Raises:
            RegistrationError: `function` is no such function.
            UsageError: the server has been started already.
        """
        from .features.observers import check_observer

        self._refuse_when_started("register an observer")
        check_observer(function)
        self._options.call_observers += (cast("CallObserver", function),)
        return function

    def on_session_end(self, function: F, /) -> F:
        """Call `function(key)` when a session has ended whose key a handler has read (LIFE-18).

        ``key`` is the `ToolContext.session_key` of its handlers, the last of which has ended. The
        client may have left or ended it, it may have been idle, or the server stops. It is a
        plain function, which does not block; it is called in any thread. What it raises is logged.

        Raises:
            RegistrationError: `function` is no such function.
            UsageError: the server has been started already.
        """
        self._options.session_end_callbacks += (self._session_callback(function),)
        return function

    def on_roots_changed(self, function: F, /) -> F:
        """Call `function(key)` when a client says that its roots have changed (ASK-47).

        For a server that keeps what `ToolContext.roots` has returned. ``key`` is the
        `ToolContext.session_key` of its handlers, one of which has read it. The function is like
        that of `on_session_end`, and raises likewise.
        """
        self._options.roots_callbacks += (self._session_callback(function),)
        return function

    def _session_callback(self, function: Callable[..., Any]) -> SessionCallback:
        from .features.observers import check_observer

        self._refuse_when_started("register a callback for sessions")
        check_observer(function, "key")
        return function

    def readiness_check(
        self, name: str, /, *, timeout_ms: int = READINESS_TIMEOUT_MS
    ) -> Callable[[F], F]:
        """Make a function a readiness check: `@server.readiness_check("database")` (HEALTH-02).

        The function takes no arguments. It may block, or be a coroutine function. It fails if it
        raises, or returns something else than None and True. While a check fails, `/readyz`
        answers 503 with its name, and `health` reports `unhealthy`.

        Args:
            name: what clients and probes see of it; lower-case letters, digits, `_` and `-`.
            timeout_ms: how long it may take.

        Raises:
            RegistrationError: the name is taken, or is none.
            UsageError: the function or the time cannot be used, or the server has been started.
        """
        from .features.readiness import ReadinessChecks

        self._refuse_when_started("register a readiness check")

        def register(function: F) -> F:
            checks = self._options.checks or ReadinessChecks()
            checks.add(name, function, timeout_ms)
            if self._options.checks is None:
                self._options.checks = checks
                self._check_in_health(checks)
            return function

        return register

    def http_get(self, path: str, /) -> Callable[[F], F]:
        """Make a function answer GET over HTTP: `@server.http_get("/status")` (HTTP-38).

        For what operators look at beside the protocol. It is authenticated as the endpoint is, and
        stdio does not have it. The function, `def` or `async def`, is given the principal (None
        where authentication is off). It does not block. Its result is sent as JSON, a `str` as
        plain text.

        Args:
            path: begins with `/`, as in `/status`; below the path at which the application is
                mounted.

        Raises:
            RegistrationError: a function has this path already, or it is no path.
            UsageError: the server has been started already.
        """
        self._refuse_when_started("register a page")
        from .features.http_pages import check_path

        check_path(path, self._options.http_pages)

        def register(function: F) -> F:
            page = cast("HttpPage", function)
            self._options.http_pages = {**self._options.http_pages, path: page}
            return function

        return register

    def http_app(
        self,
        app: App,
        *,
        public: Sequence[str] = (),
        page_access: PageAccess | None = None,
        websocket: bool = True,
        endpoint: bool = True,
    ) -> None:
        """Serve an ASGI application at the paths that the runtime does not use (HTTP-39).

        Requests and WebSockets have passed the checks of Host and Origin, and authentication, when
        the application sees them; it finds their `Principal` (None where authentication is off, or
        at a public path) in the scope as ``"foundation_rt.principal"``. It starts and ends with the
        server's own lifespan hooks: it gets no lifespan events. It bounds the bodies it reads.

        Args:
            app: called for the types `http` and `websocket`.
            public: paths that need no key or token; one that ends with `/` is all below it.
            page_access: lets people in by a token in the URL of a page, whose files are
                public (HTTP-43).
            websocket: whether it takes WebSockets, which need the extra `host`.
            endpoint: whether MCP is served beside it (HTTP-51).

        Raises:
            UsageError: the server has an application, or has been started already; or a path does
                not begin with `/`.
        """
        self._refuse_when_started("give it an application")
        if self._options.http_app is not None:
            raise UsageError("http_app: a server has one application: let it route to others")
        from .features.http_pages import MountedApp

        token = None if page_access is None else page_access.token
        mounted = MountedApp(app, tuple(public), token, websocket, endpoint)
        self._options.http_app = mounted

    def http_middleware(self, function: F, /) -> F:
        """Put ``function(app)``, an ASGI application, around all that is served (HTTP-70).

        It sees every HTTP request before any check, and every response as it goes out; the one
        registered first is the outermost. It has to pass on what it does not answer itself, and
        gets neither WebSockets nor lifespan events.

        Args:
            function: takes an ASGI application and returns one around it.

        Raises:
            UsageError: the server has been started already, or it is no function.
        """
        self._refuse_when_started("give it HTTP middleware")
        if not callable(function):
            raise UsageError(f"http_middleware: {function!r} cannot be called")
        self._options.http_middleware += (cast("HttpMiddleware", function),)
        return function

    def _check_in_health(self, checks: ReadinessChecks) -> None:
        """Have the `health` tool, unless it is the author's, wait for `checks`."""
        present = self._registry.get(HEALTH.name)
        if present is None or not present.reserved:
            return

        async def report(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
            return await checked_report(self.runtime.config, self.runtime.resources, checks)

        self._registry.unregister(HEALTH.name)
        self._registry.register(HEALTH, report, execution=ExecutionMode.ASYNC, reserved=True)

    # -- serving ---------------------------------------------------------------------------------

    @property
    def options(self) -> ServerOptions:
        """The components that replace the defaults of this server, as far as they are known."""
        return self._options

    @property
    def runtime(self) -> ServerRuntime:
        """The wired components; made, and the configuration loaded, when first used.

        That generates the checks of all tools (REG-18). A mounted server has the components of the
        outer one.

        Raises:
            ConfigError: lists every problem of the configuration.
        """
        if self._mounted_in is not None:
            return self._mounted_in[0].runtime
        if self._runtime is None:
            for _ in self.stdio_runtime.registry.generate_checks():
                pass
        return self.stdio_runtime

    @property
    def stdio_runtime(self) -> ServerRuntime:
        """The same components for `kernel.stdio.transport`, which generates the checks itself."""
        if self._mounted_in is not None:
            return self._mounted_in[0].stdio_runtime
        if self._runtime is None:
            config = self.load_config()
            if config.has_ledger():
                _ = self.agents  # an operator may want a ledger where the author has no agents
            self._runtime = compose(self._registry, self._options, config)
        return self._runtime

    def configure(self, file: str | os.PathLike[str]) -> None:
        """Read configuration from `file` (.toml or .json) when the server starts.

        Raises:
            UsageError: the server has been started already.
        """
        self._refuse_when_started("call configure()")
        self._config.file = file

    def set_defaults(self, section: str, **settings: Any) -> None:
        """Give settings in code, which file and environment override (CONF-27).

        They replace those of `Server(config=...)`: defaults that depend on a command line, for
        instance.

        Args:
            section: of the configuration, as in ``set_defaults("telemetry", metrics=True)``.
            settings: of the section, by name.

        Raises:
            UsageError: the server has been started already.
        """
        self._refuse_when_started("call set_defaults()")
        self._config.set_defaults(section, settings)

    def override(self, section: str, **settings: Any) -> None:
        """Give settings that win over every other source: those of a command line, for instance.

        Args:
            section: of the configuration, as in ``override("http", port=8080)``.
            settings: of the section, by name.

        Raises:
            UsageError: the server has been started already.
        """
        self._refuse_when_started("call override()")
        self._config.override(section, settings)

    def log_as(self, form: Callable[[bytes], bytes]) -> None:
        """Write the log in another form than JSON: for people who read it on a terminal (LOG-41).

        A logger of the application is left as it is.

        Args:
            form: returns the text of a log line, with its newline, given the line of JSON; empty
                for none. It is called in the thread that logs, and never raises.

        Raises:
            UsageError: the server has been started already.
        """
        self._refuse_when_started("call log_as()")
        self._options.log_form = form

    def load_config(self) -> ServerConfig:
        """Return the configuration that the server would start with now.

        Raises:
            ConfigError: lists every problem of it.
        """
        return self._config.load(os.environ, self._options.config)

    def settings(self, cls: type[_Section]) -> _Section:
        """Return the section of configuration of that class (CONF-26).

        It is the one that the server runs with. Before the server is started, it is the one that it
        would start with now. ::

            server.settings(ShopSettings).max_orders

        Raises:
            ConfigError: lists every problem of the configuration.
            UsageError: the server has no such section.
        """
        config = self.load_config() if self._runtime is None else self._runtime.config
        return config.section(cls)

    def connect(self, send: Send, transport_type: TransportType = "http") -> Connection:
        """Embed the server: return a connection to feed bytes to (EMBED-01).

        In a host with a running event loop, handlers, timers and `send` run on that loop, and
        the host feeds the connection there. In a host without one, coroutines run on a loop thread
        of ours, and `send` is called from whichever thread has a line to send, one at a time.

        Args:
            send: is given every outgoing line, without its newline.
            transport_type: of the session.

        Raises:
            UsageError: the server has lifespan hooks, and this is not within `lifetime()`.
        """
        return self.runtime.embedding.connect(send, transport_type)

    def run(self, config: str | os.PathLike[str] | None = None) -> None:
        """Serve over stdio until the client leaves.

        Returns after end of file; raises `SystemExit` with 143, 130 or 129 after SIGTERM,
        SIGINT or SIGHUP.

        Args:
            config: a configuration file, .toml or .json.

        Raises:
            ConfigError: lists every problem of the configuration.
            UsageError: `foundation-rt serve` is importing the file of the server.
        """
        self._prepare_to_run(config)
        from .kernel.stdio.transport import serve

        exit_code = serve(self.stdio_runtime, process_goes_on=True)
        if exit_code:
            raise SystemExit(exit_code)

    def run_http(self, config: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        """Serve over HTTP until a signal comes (extra `http`); see spec/http.md.

        Raises `SystemExit` with 143, 130 or 129 after SIGTERM, SIGINT or SIGHUP.

        Args:
            config: a configuration file, .toml or .json.
            settings: of the section `http`: ``run_http(port=8080, api_keys=(KEY,))``.

        Raises:
            ConfigError: lists every problem of the configuration.
            UsageError: nothing can listen there; or the server would be open to everyone and
                `http.no_auth` does not say so; or `foundation-rt serve` is importing the file of
                the server.
        """
        self._prepare_to_run(config)
        if settings:
            self.override("http", **settings)
        from .http.serve import serve

        raise SystemExit(serve(self.runtime, process_goes_on=True))

    def asgi_app(self, path: str | None = None) -> HttpApplication:
        """Return the server as an ASGI application, to be served or mounted (extra `http`).

        It starts with the lifespan events of its host, or with the first request if none come.

        Args:
            path: of the endpoint, below the path it is mounted at; by default `http.path`.

        Raises:
            ConfigError: lists every problem of the configuration.
            UsageError: the server would be open to everyone and `http.no_auth` does not say so.
        """
        from .http.app import HttpApplication

        if path is not None and not path.startswith("/"):
            raise UsageError(f"asgi_app: a path begins with /, as {'/' + path!r} does")
        runtime = self.runtime
        return HttpApplication(runtime, path or runtime.config.http.path)

    def _prepare_to_run(self, config: str | os.PathLike[str] | None) -> None:
        if importing.get():
            raise UsageError(
                "it runs its server while it is imported: put server.run() under"
                ' `if __name__ == "__main__":`'
            )
        if config is not None:
            self.configure(config)

    def _refuse_when_started(self, action: str, *, if_mounted: bool = True) -> None:
        if self._mounted_in is not None:
            if if_mounted:
                raise UsageError(f"this server is mounted in another one: {action} there")
            self._mounted_in[0]._refuse_when_started(action, if_mounted=False)
        elif self._runtime is not None:
            raise UsageError(f"{action} before the server is started")


def create_server(options: ServerOptions) -> Server:
    """Return a server of the components in `options`; the server makes those left out."""
    return Server(options=options)


def start_server(server: Server) -> int:
    """Serve `server` over stdio until the client leaves; return the exit code (PROC-04).

    The process should end then: it is ended when `server.shutdown_timeout_ms` has passed.

    Raises:
        ConfigError: lists every problem of the configuration.
    """
    from .kernel.stdio.transport import serve

    return serve(server.stdio_runtime)


def _is_same_as(principal: Principal) -> Callable[[Principal | None], bool]:
    return lambda other: identity_of(other) == principal.identity


def _call_of(context: ToolContext) -> Invocation:
    if context.call is None:
        raise UsageError("this context was made by hand: it has no call to bind a state to")
    return context.call
