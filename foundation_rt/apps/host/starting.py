"""A host as a command line describes it: everything that is wrong is said at once (HOST-07)."""

from __future__ import annotations

import logging
import os
from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from ... import Server, UsageError
from ...base.mcp_json import (
    Agreement,
    ServerFile,
    ServerFileError,
    ServerSettings,
    is_at_home,
)
from ..coordinator import (
    Coordinator,
    ServerPlan,
    chain_mark,
    file_identity,
    for_many,
    is_own_child,
    mark_children,
    plans_of_file,
    shared_logins,
    with_logins,
)
from ..coordinator.servers import Source
from .app import Host, is_for_many, make_server, orchestrator_settings
from .environment import HostEnvironment
from .llm.providers import PROVIDERS, RULES, choose_provider, make_service, parse_model
from .llm.service import LLMConfig
from .orchestrator import OrchestratorSettings, connection_options
from .settings import DEFAULT_SERVERS, HostSettings

if TYPE_CHECKING:
    from ...client import ConnectOptions
    from ..coordinator import CircuitOptions
    from .llm.model_service import ModelService

log = logging.getLogger("foundation_rt.host")

DEMO_HINT = (
    "These are the tools of the built-in demo server. To add servers of your own, list them in"
    " `mcp.json`, of which `foundation-rt host --init` writes an example, and start again."
)
RULES_HINT = (
    "There is no language model: tools are called as commands, and `help` says how. To set one,"
    " write a key into `.env`: `GEMINI_API_KEY=...`, `ANTHROPIC_API_KEY=...` or"
    " `OPENAI_API_KEY=...`, and start again."
)


@frozen(kw_only=True, eq=False)
class HostOptions:
    """The options of a command line.

    Attributes:
        overrides: settings by section, which win over every other source.
        config: a configuration file, .toml or .json.
        model: `PROVIDER:NAME`; None: that of the settings.
    """

    overrides: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    config: str | None = None
    model: str | None = None


AddGateway = Callable[[Server, Source, "ConnectOptions", "CircuitOptions"], Coordinator]
"""Makes a gateway of a server, of these servers, and of options of connections and circuits."""


def read_parts(
    options: HostOptions,
    environment: HostEnvironment,
    demo: Callable[[], Server],
    new_server: Callable[[], Server] = make_server,
) -> HostParts:
    """Return what a host is made of.

    Args:
        options: of the command line.
        environment: has the keys; it is loaded here.
        demo: makes the server that is used if there is no file of servers.
        new_server: makes the server of the host, with the sections that a gateway needs.

    Raises:
        UsageError: lists every problem, and what to write.
    """
    problems = environment.load()
    server = _with_defaults(new_server(), environment)
    if options.config is not None:
        server.configure(options.config)
    for section, settings in options.overrides.items():
        server.override(section, **settings)
    config, wrong = _read_config(server, options, environment, new_server)
    problems += wrong
    found = None
    if config is not None:
        found = HostParts(server, config.section(HostSettings), options, environment, demo)
        problems += found.problems
    if problems or found is None:
        raise UsageError("the host cannot start:" + "".join(f"\n  {each}" for each in problems))
    return found


def _read_config(
    server: Server,
    options: HostOptions,
    environment: HostEnvironment,
    new_server: Callable[[], Server],
) -> tuple[Any, list[str]]:
    """Return the configuration and its problems.

    With problems it is what is right of it, in which more can be wrong; None if a file is refused,
    of which nothing can be left out.
    """
    problems: list[str] = []
    keys: set[str] = set()
    while True:
        config, wrong = environment.config_of(server)
        problems += map(str, wrong)
        found = {each.key for each in wrong}
        if config is not None or options.config is not None or "" in found or found <= keys:
            return config, problems
        keys |= found
        environment.drop(wrong)
        server = _with_defaults(new_server(), environment)
        for section, settings in options.overrides.items():
            right = [name for name in settings if f"{section}.{name}" not in keys]
            server.override(section, **{name: settings[name] for name in right})


def _with_defaults(server: Server, environment: HostEnvironment) -> Server:
    for section, settings in environment.defaults.items():
        server.set_defaults(section, **settings)
    return server


@define(eq=False)
class HostParts:
    """The parts of a host as far as they can be made, and what is wrong with the rest."""

    server: Server
    settings: HostSettings
    _options: HostOptions
    environment: HostEnvironment
    _demo: Callable[[], Server]
    problems: list[str] = field(factory=list, init=False)
    llm: ModelService | None = field(default=None, init=False)
    provider: str = field(default=RULES, init=False)
    servers: Source | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        try:
            self.llm = self._make_model()
        except UsageError as error:
            self.problems.append(str(error))
        try:
            self.servers = self._list_servers()
        except UsageError as error:
            self.problems.append(str(error))

    def _make_model(self) -> ModelService:
        settings, keys = self.settings, self.environment.keys
        provider, model, named = settings.provider, settings.model, ""
        if self._options.model is not None:
            provider, named = parse_model(self._options.model)
            model = named or (model if provider == settings.provider else None)
        self.provider = provider or choose_provider(keys)
        has_set = self.environment.has_set
        is_of_file = not named and (has_set("provider", provider) or has_set("model", model))
        if self.provider not in PROVIDERS and is_of_file:
            raise UsageError(
                f"{self.environment.file} can choose no provider of another package, and no model"
                f" of it: write --model {self.provider}:NAME, or set LLM_PROVIDER and LLM_MODEL in"
                " the environment"
            )
        return make_service(
            LLMConfig(
                provider=self.provider,
                model=model or "",
                api_key=keys.get(self.provider, ""),
                base_url=settings.base_url or self.environment.base_url(self.provider),
                temperature=settings.temperature_value,
                system_prompt=settings.system_prompt or "",
                tool_mode=settings.tool_mode,
                first_token_timeout_ms=settings.first_token_timeout_ms,
            )
        )

    def _list_servers(self) -> Source:
        named = self.settings.servers
        path = Path(named or DEFAULT_SERVERS).absolute()
        if path.is_file():
            identity = file_identity(path)
            mark = chain_mark(identity)
            if is_own_child(mark, os.environ):
                raise UsageError(
                    f"a server in {path} is a host or gateway of this very file, which would start"
                    " itself for ever: take it out"
                )
            agreement = self._agreement(named)
            waiting = agreement.waiting(ServerFile.read(path))  # what cannot be used is said now
            read = partial(_read_file, path, mark, self.settings, agreement)
            logged = for_many if is_for_many(self.server) else with_logins
            return Source(logged(read), (path,), identity, waiting=lambda: waiting)
        if named is not None:
            raise ServerFileError(
                f"there is no file {named}: write it, or leave out --servers and MCP_JSON_PATH;"
                " foundation-rt host --init writes an example"
            )
        demo = ServerPlan("demo", self._demo(), ServerSettings(trust=True))
        return Source(lambda: {"demo": demo}, (), "demo")

    def _agreement(self, named: str | None) -> Agreement:
        """Return what has to be agreed to, of a file that is named or found (HOST-43)."""
        environment = self.environment
        if is_at_home():  # its `.env` is the person's own, as their environment is
            own = ChainMap(environment.from_file, dict(environment.variables))
            return Agreement(is_named=True, environment=own)
        overridden = self._options.overrides.get("host", {})
        by_folder = environment.has_set("servers", named) and "servers" not in overridden
        is_named = named is not None and not by_folder
        return Agreement(is_named, environment.from_file, environment.variables)

    @property
    def turns(self) -> OrchestratorSettings:
        """The settings of turns."""
        return orchestrator_settings(self.settings)

    def coordinator(self) -> Coordinator:
        """Return a coordinator of the servers, not started yet."""
        assert self.servers is not None  # there was no problem
        if is_for_many(self.server):
            self.environment.notes += [
                f"at server {name!r} everybody acts as the person who logged in"
                for name in shared_logins(self.servers.read())
            ]
        return Coordinator.from_plans(
            self.servers.read,
            self.servers.watched,
            lists=("tools", "skills"),
            connections=self._connections(),
            **self._circuits(),
        )

    def _circuits(self) -> CircuitOptions:
        return {
            "circuit_failures": self.settings.circuit_failures,
            "circuit_window_ms": self.settings.circuit_window_ms,
            "circuit_open_ms": self.settings.circuit_open_ms,
        }

    def _connections(self) -> ConnectOptions:
        return connection_options(self.turns.roots, self.turns.approval_timeout_ms)

    def assemble(self, add_gateway: AddGateway | None = None) -> Host:
        """Return the host of all parts, not started yet.

        Args:
            add_gateway: makes a gateway of the host's server.
        """
        assert self.servers is not None and self.llm is not None
        if add_gateway is not None:
            coordinator = add_gateway(
                self.server, self.servers, self._connections(), self._circuits()
            )
        else:
            coordinator = self.coordinator()
        is_demo = not self.servers.files
        hints = [
            DEMO_HINT if is_demo else None,
            RULES_HINT if self.provider == RULES else None,
        ]
        host = Host(
            coordinator,
            self.llm,
            self.settings.store,
            server=self.server,
            hint="\n\n".join(filter(None, hints)) or None,
            is_demo=is_demo,
            endpoint=add_gateway is not None,
        )
        read = partial(_rotate, self.environment, self.llm, self.provider)
        host.keys = self.environment.watch, read
        return host


def _read_file(
    path: Path, mark: str, settings: HostSettings, agreement: Agreement
) -> dict[str, ServerPlan]:
    """Return the plans of a file, for a host (HOST-36).

    Calls may take as long as the host says, where their server does not say it.
    """
    default = ServerSettings()
    plans = mark_children(plans_of_file(path, agreement), mark, os.environ)
    for server, plan in plans.items():
        if plan.settings.timeout_ms == default.timeout_ms:
            longest = max(plan.settings.max_timeout_ms, settings.tool_timeout_ms)
            own = evolve(plan.settings, timeout_ms=settings.tool_timeout_ms, max_timeout_ms=longest)
            plans[server] = evolve(plan, settings=own)
    return plans


def _rotate(environment: HostEnvironment, llm: ModelService, provider: str) -> None:
    """Use the key that `.env` has now (HOST-06)."""
    try:
        key = environment.read_keys().get(provider)
    except UsageError as error:
        log.error("the keys were not read again: %s", error)
        return
    if key is not None:
        llm.set_api_key(key)
    log.info("the keys were read again")
