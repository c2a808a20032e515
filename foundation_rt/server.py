"""What a tool author holds, and the one place where components are made and wired.

`Server` collects tools. The first time something is to be served, `compose` loads the
configuration and makes a `Runtime`: every component, each given its collaborators, nothing global.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from attrs import evolve

from .builtin.health import HEALTH, health_report
from .config.settings import ServerConfig, ServerSection, needs_loading
from .core.session import TransportType
from .engine.connection import Connection, Send
from .errors import ConfigError, RegistrationError, UsageError
from .registry.tool_definition import ToolDefinition
from .registry.tools import (
    MAX_TIMEOUT_MS,
    ExecutionMode,
    RegisteredTool,
    ToolRegistry,
    is_async_callable,
)
from .runtime import Runtime, ServerOptions, compose
from .server_features import FeatureServer

if TYPE_CHECKING:
    from .agents.ledger.coordinator import AgentCoordinatorV2
    from .agents.local import AgentCoordinator
    from .core.tasks.support import TaskSupport
    from .engine.lifespan import Lifetime
    from .jsonschema.validation import ValidationResult
    from .middleware.stack import Middleware
    from .protocol.content import Icon
    from .protocol.tool_annotations import ToolAnnotations
    from .registry.features import Features
    from .registry.tools import Handler
    from .transports.http.app import HttpApplication

F = TypeVar("F", bound=Callable[..., Any])

TaskUse = Literal["optional", "required"]
"""Whether clients without the tasks extension may call a tool as well (TASK-02)."""


class Server(FeatureServer):
    """A set of tools, and ways to serve them.

    Args:
        name: what `initialize` calls the server; configuration can override it.
        version: the server's own version; likewise.
        instructions: advice for the model that uses the tools.
        title: what people are shown as the server's name; likewise `icons`.
        website_url: where people read about the server.
        config: configuration given in code, by section:
            ``{"tools": {"default_timeout_ms": 5000}}``. File and environment override it.
        options: components to use instead of those the server would make.

    Raises:
        UsageError: the registry in `options` belongs to another server; or an argument is of
            another type.

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
        options: ServerOptions | None = None,
    ) -> None:
        self._code_config = _merge_identity(config, name, version)
        self._options = options or ServerOptions()
        given: dict[str, Any] = {
            "instructions": instructions,
            "title": title,
            "website_url": website_url,
            "icons": icons or None,
        }
        given = {name: value for name, value in given.items() if value is not None}
        if given:
            self._options = evolve(self._options, **given)
        _check_presentation(self._options)
        self._config_file: str | os.PathLike[str] | None = None
        self._overrides: dict[str, dict[str, Any]] = {}
        self._runtime: Runtime | None = None
        self._registry = self._options.tool_registry or ToolRegistry()
        self._add_health()
        if self._options.agent_coordinator is not None:
            self._add_agent_tools(self._options.agent_coordinator)

    def _add_health(self) -> None:
        """Every server has the tool, unless its author brought one of that name (HEALTH-01)."""
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
        from .builtin.agents import register_agent_tools

        register_agent_tools(self._registry, coordinator, lambda: self.runtime.config.tools)

    # -- tools -------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        version: str | None = None,
        timeout_ms: int | None = None,
        inline: bool = False,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | bool | None = None,
        title: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        scopes: Iterable[str] = (),
        task: TaskUse | None = None,
        task_after_ms: int = 0,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        version: str | None = None,
        timeout_ms: int | None = None,
        inline: bool = False,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | bool | None = None,
        title: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        scopes: Iterable[str] = (),
        task: TaskUse | None = None,
        task_after_ms: int = 0,
    ) -> Callable[..., Any]:
        """Make a tool of a function: `@server.tool` or `@server.tool(timeout_ms=2000)`.

        The input schema comes from the signature, the descriptions from the docstring
        (spec/typed-tools.md). The function itself stays as it is.

        Args:
            name: of the tool; by default the function's.
            description: by default the docstring's.
            version: of the tool.
            timeout_ms: deadline of its calls in ms; by default `tools.default_timeout_ms`.
            inline: run it in place instead of in a worker thread; only for a `def` that takes
                microseconds and never blocks.
            input_schema: use this schema instead of deriving one.
            output_schema: hold what the function returns against this schema, or against one that
                is derived from the return annotation if it is True.
            title: for people; likewise `icons`.
            annotations: what the tool does to the world.
            meta: the `_meta` of the tool.
            scopes: what a client must have been granted, all of it, where it has to log in.
            task: "optional": a call becomes a task if its client takes tasks; "required": the
                tool is for such clients only (spec/tasks.md). None: calls are never tasks.
            task_after_ms: how long a call runs before it becomes a task, in ms.

        Raises:
            RegistrationError: says which parameter, or which option, and what to do.
        """
        from .registry.tool_signature import derive_tool

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            typed = derive_tool(function, input_schema=input_schema, output_schema=output_schema)
            tool_name = name if name is not None else typed.name
            if inline and typed.is_async:
                raise _inline_refusal(tool_name)
            execution = ExecutionMode.ASYNC if typed.is_async else ExecutionMode.THREAD
            self._registry.register(
                ToolDefinition(
                    tool_name,
                    description if description is not None else typed.description,
                    typed.input_schema,
                    version,
                    title=title,
                    output_schema=typed.output_schema,
                    annotations=annotations,
                    icons=icons,
                    meta=meta,
                ),
                typed.handler,
                execution=ExecutionMode.INLINE if inline else execution,
                timeout_ms=timeout_ms,
                scopes=scopes,
                task=_task_support(tool_name, task, task_after_ms, inline),
            )
            return function

        return register if function is None else register(function)

    def register(
        self,
        definition: ToolDefinition,
        handler: Handler,
        *,
        is_dynamic: bool = False,
        timeout_ms: int | None = None,
        inline: bool = False,
        scopes: Iterable[str] = (),
        task: TaskUse | None = None,
        task_after_ms: int = 0,
    ) -> None:
        """Add a tool from its definition; `handler(arguments, context)` gets arguments as sent.

        While the server runs, clients are told (LIFE-10); so they are by `unregister`.

        Raises:
            RegistrationError: says what is wrong with the definition.
        """
        if inline and is_async_callable(handler):
            raise _inline_refusal(definition.name)
        self._registry.register(
            definition,
            handler,
            is_dynamic=is_dynamic,
            execution=ExecutionMode.INLINE if inline else None,
            timeout_ms=timeout_ms,
            scopes=scopes,
            task=_task_support(definition.name, task, task_after_ms, inline),
        )

    def unregister(self, name: str) -> bool:
        """Remove a tool; return whether there was one."""
        return self._registry.unregister(name)

    def get(self, name: str) -> RegisteredTool | None:
        """The tool registered as `name`, if there is one."""
        return self._registry.find(name)

    def list(self) -> tuple[ToolDefinition, ...]:
        """All definitions, sorted by name."""
        return self._registry.list()

    def validate_definition(self, definition: ToolDefinition) -> ValidationResult:
        """What `register` would say of `definition`."""
        return self._registry.validate_definition(definition)

    @property
    def features(self) -> Features:
        """The resources, prompts and completions of this server; made when first asked for."""
        features = self._options.features
        if features is None:
            from .registry.features import Features

            features = Features()
            self._options = evolve(self._options, features=features)
            if self._runtime is not None:
                self._runtime.attach_features(features)
        return features

    # -- what clients wait to hear -----------------------------------------------------------

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that have subscribed to this resource; from any thread (SUB-07)."""
        if self._runtime is not None:
            self._runtime.dispatcher.subscriptions.resource_updated(uri)

    def elicitation_completed(self, elicitation_id: str) -> None:
        """Tell the client whose user was sent to a page that he is done there (ASK-18).

        From any thread. The id is that of `elicit_url`; only revision 2025-11-25 has a word for it.
        """
        if self._runtime is not None:
            self._runtime.dispatcher.subscriptions.elicitation_completed(elicitation_id)

    # -- agents ------------------------------------------------------------------------------

    @property
    def agents(self) -> AgentCoordinatorV2:
        """The agents of this server; the first use gives it the agent tools (AGENT-14).

        It is the coordinator in `options`, if there is one.
        """
        coordinator = self._options.agent_coordinator
        if coordinator is None:
            from .agents.ledger.coordinator import AgentCoordinatorV2

            coordinator = AgentCoordinatorV2()
            self._options = evolve(self._options, agent_coordinator=coordinator)
            self._add_agent_tools(coordinator)
            if self._runtime is not None:
                self._runtime.attach_agents(coordinator)
        return cast("AgentCoordinatorV2", coordinator)

    # -- around the calls --------------------------------------------------------------------

    def lifespan(self, hook: F, /) -> F:
        """Have `hook(server)` entered before the first message is served, left after the last.

        It is an async generator function that yields once, or returns an async context manager.
        What it yields is `ToolContext.state`. Hooks nest in the order of their registration
        (spec/operations.md). ::

            @server.lifespan
            async def database(server):
                async with connect() as connection:
                    yield {"database": connection}

        Raises:
            RegistrationError: `hook` is neither.
            UsageError: the server has been started already.
        """
        from .engine.lifespan import Lifespan

        self._refuse_when_started("a lifespan hook")
        lifespan = self._options.lifespan or Lifespan(self)
        lifespan.add(hook)
        self._options = evolve(self._options, lifespan=lifespan)
        return hook

    def middleware(self, function: F, /) -> F:
        """Have `async def function(call, proceed)` run around every handler, of whatever feature.

        It awaits `proceed()` for what the handler returns; the one registered first is outermost
        (spec/operations.md).

        Raises:
            RegistrationError: `function` is no such function.
            UsageError: the server has been started already.
        """
        from .middleware.stack import check_middleware

        self._refuse_when_started("middleware")
        check_middleware(function)
        middleware = (*self._options.middleware, cast("Middleware", function))
        self._options = evolve(self._options, middleware=middleware)
        return function

    def lifetime(self) -> Lifetime:
        """The time in which a host of its own serves: `async with`, or `with` without a loop.

        The lifespan hooks are entered at its beginning and left at its end. Connections are made
        within; a server without hooks needs none of it.
        """
        from .engine.lifespan import Lifetime

        return Lifetime(self.runtime)

    def _refuse_when_started(self, what: str) -> None:
        if self._runtime is not None:
            raise UsageError(f"{what} is registered before the server is started")

    # -- serving -----------------------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        """The wired components; made, and the configuration loaded, when first asked for.

        Raises:
            ConfigError: lists every problem of the configuration.
        """
        if self._runtime is None:
            config = self.load_config()
            if config.aacp.is_ledger_named():
                _ = self.agents  # an operator may want a ledger where the author has no agents
            self._runtime = compose(self._registry, self._options, config)
        return self._runtime

    def configure(self, file: str | os.PathLike[str]) -> None:
        """Read configuration from `file` (.toml or .json) when the server starts.

        Raises:
            UsageError: the server has been started already.
        """
        if self._runtime is not None:
            raise UsageError("configure() comes before the server is started")
        self._config_file = file

    def override(self, section: str, **settings: Any) -> None:
        """Give settings that win over every other source: a command line's, for instance.

        Args:
            section: of the configuration, as in ``override("http", port=8080)``.

        Raises:
            UsageError: the server has been started already.
        """
        if self._runtime is not None:
            raise UsageError("override() comes before the server is started")
        self._overrides.setdefault(section, {}).update(settings)

    def connect(self, send: Send, transport_type: TransportType = "http") -> Connection:
        """Embed the server: a connection to feed bytes to (EMBED-01).

        In a host with a running event loop, handlers, timers and `send` run on that loop, and
        the connection is to be fed there. In a host without one, coroutines run on a loop thread
        of ours, and `send` is called from whichever thread has something to say, one at a time.

        Args:
            send: is given every outgoing line, without its newline.

        Raises:
            UsageError: the server has lifespan hooks, and this is not within `lifetime()`.
        """
        return self.runtime.connect_host(send, transport_type)

    def run(self, config: str | os.PathLike[str] | None = None) -> None:
        """Serve over stdio until the client leaves.

        Returns after end of file; raises `SystemExit` with 143, 130 or 129 after SIGTERM,
        SIGINT or SIGHUP.

        Args:
            config: a configuration file, .toml or .json.

        Raises:
            ConfigError: lists every problem of the configuration.
            UsageError: it is called while `foundation-rt serve` imports the file it stands in.
        """
        from .cli.apps import refuse_while_importing

        refuse_while_importing()
        if config is not None:
            self.configure(config)
        from .transports.stdio.transport import serve

        exit_code = serve(self.runtime, process_goes_on=True)
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
            UsageError: nothing can listen there, or everybody would be let in unintendedly; or it
                is called while `foundation-rt serve` imports the file it stands in.
        """
        from .cli.apps import refuse_while_importing

        refuse_while_importing()
        if config is not None:
            self.configure(config)
        if settings:
            self.override("http", **settings)
        from .transports.http.serve import serve

        raise SystemExit(serve(self.runtime, process_goes_on=True))

    def asgi_app(self, path: str | None = None) -> HttpApplication:
        """The server as an ASGI application, to be served or mounted anywhere (extra `http`).

        It starts with the lifespan events of its host, or with the first request if none come.

        Args:
            path: of the endpoint, below the path it is mounted at; by default `http.path`.

        Raises:
            ConfigError: lists every problem of the configuration.
            UsageError: everybody would be let in, and nobody said that this is meant.
        """
        from .transports.http.app import HttpApplication

        if path is not None and not path.startswith("/"):
            raise UsageError(f"asgi_app: a path begins with /, as {'/' + path!r} does")
        runtime = self.runtime
        return HttpApplication(runtime, path or runtime.config.http.path)

    def load_config(self) -> ServerConfig:
        """The configuration that the server would start with now.

        Raises:
            ConfigError: lists every problem of it.
        """
        config = self._read_config(os.environ)
        for section, settings in self._overrides.items():
            try:
                changed = evolve(getattr(config, section), **settings)
            except (AttributeError, TypeError, ValueError) as error:
                raise ConfigError(f"{section}: {error}") from error
            config = evolve(config, **{section: changed})
        return config

    def _read_config(self, environ: Mapping[str, str]) -> ServerConfig:
        if self._options.config is not None:
            return self._options.config
        if self._config_file is None and not needs_loading(environ):
            # A name and a version are all that most servers set: no need to import the loader.
            with suppress(TypeError, ValueError):
                if self._code_config.keys() <= {"server"}:
                    return ServerConfig(server=ServerSection(**self._code_config.get("server", {})))
        from .config.loading import load_config

        return load_config(file=self._config_file, environ=environ, code=self._code_config)


def create_server(options: ServerOptions) -> Server:
    """A server made of the components in `options`; those left out are made for it."""
    return Server(options=options)


def start_server(server: Server) -> int:
    """Serve `server` over stdio until the client leaves; return the exit code (PROC-04).

    The process is expected to end then: it is ended when `server.shutdown_timeout_ms` is spent.

    Raises:
        ConfigError: lists every problem of the configuration.
    """
    from .transports.stdio.transport import serve

    return serve(server.runtime)


def _check_presentation(options: ServerOptions) -> None:
    """Raise `UsageError` if what is told of a server besides its name is not what it must be."""
    for name in ("instructions", "title", "website_url"):
        value = getattr(options, name)
        if value is not None and type(value) is not str:
            raise UsageError(f"{name} must be a string, not {type(value).__name__}")
    icons: object = options.icons
    if icons:
        from .protocol.content import Icon

        if not isinstance(icons, Sequence) or not all(isinstance(each, Icon) for each in icons):
            raise UsageError("icons must be a sequence of Icon")


def _merge_identity(config: object, name: str | None, version: str | None) -> dict[str, Any]:
    """A copy of `config` with name and version in it; what is no section is left to the loader."""
    if not isinstance(config, Mapping | None):
        raise UsageError('config is a mapping of sections, as in {"tools": {...}}')
    merged: dict[str, Any] = {
        section: dict(values) if isinstance(values, Mapping) else values
        for section, values in (config or {}).items()
    }
    identity = {
        key: value for key, value in (("name", name), ("version", version)) if value is not None
    }
    server = merged.get("server", {})
    if identity and isinstance(server, dict):
        merged["server"] = identity | server
    return merged


def _task_support(
    tool_name: str, task: TaskUse | None, after_ms: int, inline: bool
) -> TaskSupport | None:
    """What `task` and `task_after_ms` of a tool mean together."""
    if task not in (None, "optional", "required"):
        raise RegistrationError(
            f'tool {tool_name!r}: task is "optional" or "required", not {task!r}'
        )
    if type(after_ms) is not int or not 0 <= after_ms <= MAX_TIMEOUT_MS:
        raise RegistrationError(
            f"tool {tool_name!r}: task_after_ms must be a whole number of milliseconds"
            f" from 0 to {MAX_TIMEOUT_MS}, not {after_ms!r}"
        )
    if task is None:
        if after_ms:
            raise RegistrationError(f"tool {tool_name!r}: task_after_ms needs task as well")
        return None
    if inline:
        raise RegistrationError(f"tool {tool_name!r}: what runs inline cannot be a task")
    from .core.tasks.support import TaskSupport

    return TaskSupport(task == "required", after_ms)


def _inline_refusal(tool_name: str) -> RegistrationError:
    return RegistrationError(f"tool {tool_name!r}: inline=True is for def, not for async def")
