"""Mounting: what one server has as a part of another one (spec/mounting.md).

The entries of the mounted server are mirrored in the lists of the outer one: its names and URIs get
a prefix, and its handlers run with its own state. A change of a list of the mounted server changes
the mirror, so nothing is looked up in two places when a client calls.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from ..base.app_format import moved
from ..base.shown import Shown
from ..errors import RegistrationError, UsageError
from .completions.registry import Completer
from .context import ToolContext
from .handler_calls import HandlerSpec
from .resources.registry import RegisteredResource, RegisteredTemplate
from .resources.uri_template import parse_template
from .transforms import shaped

if TYPE_CHECKING:
    from ..base.transforms import Transform
    from ..kernel.registry.catalog import Predicate
    from ..kernel.registry.tools import Handler, RegisteredTool, ToolRegistry
    from ..protocol.content import ResourceContents
    from .custom_methods import CustomMethod
    from .lifespan import Lifespan
    from .prompts.registry import RegisteredPrompt
    from .registries import Features
    from .skills.registry import RegisteredSkill

_Overrides = Mapping[Callable[..., Any], Callable[..., Any]]

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*")
"""A prefix of names and URIs: part of a host name, without ``_`` at its end."""

_OF_A_WHOLE_SERVER = {
    "middleware": "middleware",
    "forwarder": "forwarder",
    "agent_coordinator": "agents",
    "call_observers": "observers of calls",
    "session_end_callbacks": "callbacks for sessions",
    "roots_callbacks": "callbacks for roots",
    "instruments": "metrics",
    "checks": "readiness checks",
    "http_pages": "pages",
    "http_app": "application over HTTP",
    "own_features": "features",
}
"""The options that a server that is mounted in another one cannot have (MOUNT-06)."""


def check_prefix(prefix: str) -> None:
    """Raise `UsageError` unless names and URIs can begin with `prefix`."""
    if prefix and not _PREFIX.fullmatch(prefix):
        raise UsageError(f"a prefix is letters, digits, - and single _, not {prefix!r}")


def check_mounted(options: object, features: Features) -> None:
    """Raise `UsageError` if a server has what one that is mounted cannot have (MOUNT-06).

    Args:
        options: its `ServerOptions`.
        features: its registries.
    """
    for option, what in _OF_A_WHOLE_SERVER.items():
        if getattr(options, option):
            raise UsageError(f"a mounted server has no {what} of its own: use the outer one's")
    if features.completions.general is not None:
        raise UsageError("a mounted server has no completion of all arguments: name each")


class MountedContext(ToolContext[Any]):
    """The context of a call, as the handler of a mounted server sees it.

    Args:
        outer: the context of the call in the outer server.
        mount: the mount of the handler.
    """

    __slots__ = ("_mount", "_outer")

    def __init__(self, outer: ToolContext[Any], mount: Mount) -> None:
        lifespan = mount.find_lifespan()
        super().__init__(
            outer.run_id,
            outer.correlation_id,
            outer.abort_signal,
            outer._base_logger,
            outer._call,
            outer._connection,
            None if lifespan is None else lifespan.state,
        )
        self._outer = outer
        self._mount = mount

    @property
    def dependency_overrides(self) -> _Overrides:
        """The functions that replace those of dependencies: of both servers."""
        return {**self._outer.dependency_overrides, **self._mount.overrides}

    async def read_resource(self, uri: str) -> tuple[ResourceContents, ...]:
        """Return the contents of a resource of the mounted server, by its own URI."""
        return await self._outer.read_resource(self._mount.outside(str(uri)))


class _MountedCompleters(dict[str, Completer]):
    """The completers of an entry, also those that come later, with the state of their server."""

    def __init__(self, completers: dict[str, Completer], mount: Mount) -> None:
        self._completers = completers
        self._mount = mount

    def __bool__(self) -> bool:
        return bool(self._completers)

    def __setitem__(self, argument: str, completer: Completer) -> None:
        self._completers[argument] = completer

    def get(self, argument: str, default: Any = None) -> Any:
        """Return the completer of an argument."""
        found = self._completers.get(argument, default)
        return self._mount.spec(found) if isinstance(found, HandlerSpec) else found


@define(eq=False, repr=False)
class Mount(Shown):
    """One server in another.

    Args:
        prefix: of its names and URIs; empty for none.
        tools: of the mounted server.
        features: of the mounted server.
        outer_tools: of the server that it is mounted in.
        outer_features: of the server that it is mounted in.
        find_lifespan: returns the lifespan of the mounted server, if it has one.
        overrides: `Server.dependency_overrides` of the mounted server.
        transform: shapes its tools.
    """

    prefix: str
    tools: ToolRegistry
    features: Features
    outer_tools: ToolRegistry
    outer_features: Features
    find_lifespan: Callable[[], Lifespan[Any] | None]
    overrides: _Overrides
    transform: Transform
    _lock: RLock = field(factory=RLock, init=False)
    # The mirror of each entry; None if the outer server has its name.
    _tools: dict[RegisteredTool, RegisteredTool | None] = field(factory=dict, init=False)
    _resources: dict[RegisteredResource | RegisteredTemplate, str | None] = field(
        factory=dict, init=False
    )
    _prompts: dict[RegisteredPrompt, str | None] = field(factory=dict, init=False)
    _skills: dict[RegisteredSkill, str | None] = field(factory=dict, init=False)

    def open(self) -> None:
        """Mirror the mounted server from now on.

        Raises:
            RegistrationError: the outer server has one of the names, or the transform fits no
                tool; nothing is mounted.
        """
        own = self._own_tools()
        versions = (each.names[0] for each in own)
        self.transform.check_fits((each.registered_name for each in own), versions)
        try:
            for kind in ("tools", "resources", "prompts"):
                self.list_changed(kind)
        except BaseException:
            outer = self.outer_features
            self._mirror(self._tools, (), self._add_tool, self.outer_tools.remove)
            self._mirror(self._resources, (), self._add_resource, outer.resources.unregister)
            self._mirror(self._prompts, (), self._add_prompt, outer.prompts.unregister)
            if outer.has_skills:
                self._mirror(self._skills, (), self._add_skill, outer.skills.drop)
            raise
        self.tools.observe(self)
        self.features.observe(self)

    def list_changed(self, kind: str, *, seen_by: Predicate | None = None) -> None:
        """Mirror a list of the mounted server again, after a change.

        Raises:
            RegistrationError: the outer server has the name of an entry, which is not offered then.
        """
        with self._lock:
            features, outer = self.features, self.outer_features
            if features.has_apps:
                outer.apps  # noqa: B018 - the outer server declares them from now on
            if kind == "tools":
                self._mirror(
                    self._tools, self._own_tools(), self._add_tool, self.outer_tools.remove
                )
            elif kind == "resources":
                resources = (*features.resources.resources.entries(),)
                templates = (*features.resources.templates.entries(),)
                self._mirror(
                    self._resources,
                    (*resources, *templates),
                    self._add_resource,
                    outer.resources.unregister,
                )
                if features.has_skills:
                    skills = features.skills.entries()
                    self._mirror(self._skills, skills, self._add_skill, outer.skills.drop)
            else:
                prompts = features.prompts.entries()
                self._mirror(self._prompts, prompts, self._add_prompt, outer.prompts.unregister)

    def _own_tools(self) -> list[RegisteredTool]:
        """Return its tools, without `health`."""
        return [each for each in self.tools.entries() if not each.reserved]

    @staticmethod
    def _mirror(
        mirrored: dict[Any, Any],
        entries: Iterable[object],
        add: Callable[[Any], Any],
        remove: Callable[[Any], object],
    ) -> None:
        present = dict.fromkeys(entries)
        for gone in [each for each in mirrored if each not in present]:
            mirror = mirrored.pop(gone)
            if mirror is not None:
                remove(mirror)
        refusal: RegistrationError | None = None
        for entry in [each for each in present if each not in mirrored]:
            mirrored[entry] = None  # refused once: the entries that come later are not
            try:
                mirrored[entry] = add(entry)
            except RegistrationError as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    def _add_tool(self, tool: RegisteredTool) -> RegisteredTool:
        tool = shaped(self.transform, tool)
        name = self._name(tool.registered_name)
        meta = moved(tool.definition.meta, self.outside)
        definition = evolve(tool.definition, name=name, meta=meta)
        handler = partial(self._run, tool.handler)
        return self.outer_tools.adopt(
            evolve(tool, definition=definition, registered_name=name, handler=handler)
        )

    def _add_resource(self, entry: RegisteredResource | RegisteredTemplate) -> str:
        handler = partial(self._read, entry.handler_spec.handler)
        spec = evolve(entry.handler_spec, handler=handler)
        if isinstance(entry, RegisteredResource):
            uri = self.outside(entry.definition.uri)
            self.outer_features.resources.adopt(
                evolve(entry, definition=evolve(entry.definition, uri=uri), handler_spec=spec)
            )
            return uri
        uri = self.outside(entry.template.text)
        self.outer_features.resources.adopt_template(
            evolve(
                entry,
                definition=evolve(entry.definition, uri_template=uri),
                template=parse_template(uri),
                handler_spec=spec,
                completers=_MountedCompleters(entry.completers, self),
            )
        )
        return uri

    def _add_prompt(self, prompt: RegisteredPrompt) -> str:
        name = self._name(prompt.definition.name)
        self.outer_features.prompts.adopt(
            evolve(
                prompt,
                definition=evolve(prompt.definition, name=name),
                handler_spec=self.spec(prompt.handler_spec),
                completers=_MountedCompleters(prompt.completers, self),
            )
        )
        return name

    def _add_skill(self, skill: RegisteredSkill) -> str:
        return self.outer_features.skills.adopt(skill.moved(self.outside))

    # -- names and URIs -------------------------------------------------------------------------

    def _name(self, name: str) -> str:
        return f"{self.prefix}_{name}" if self.prefix else name

    def outside(self, uri: str) -> str:
        """Return the URI of the outer server for one of the mounted server: scheme://prefix/..."""
        if not self.prefix:
            return uri
        scheme, colon, rest = uri.partition(":")
        slashes = "//" if rest.startswith("//") else ""
        return f"{scheme}{colon}{slashes}{self.prefix}/{rest.removeprefix(slashes)}"

    def inside(self, uri: str) -> str:
        """Return the URI of the mounted server for one of the outer server."""
        if not self.prefix:
            return uri
        scheme, colon, rest = uri.partition(":")
        slashes = "//" if rest.startswith("//") else ""
        own = rest.removeprefix(slashes).removeprefix(f"{self.prefix}/")
        return f"{scheme}{colon}{slashes}{own}"

    # -- handlers -------------------------------------------------------------------------------

    def spec(self, spec: HandlerSpec) -> HandlerSpec:
        """Return how a handler of the mounted server runs in the outer one."""
        return evolve(spec, handler=partial(self._run, spec.handler))

    def method(self, method: CustomMethod) -> CustomMethod:
        """Return a method of the mounted server as the outer one has it."""
        return evolve(method, handler_spec=self.spec(method.handler_spec))

    def _run(self, handler: Handler, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        return handler(arguments, MountedContext(context, self))

    def _read(self, handler: Handler, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        arguments = {**arguments, "uri": self.inside(arguments["uri"])}
        return handler(arguments, MountedContext(context, self))

    async def lifespan(self, outer: object) -> AsyncIterator[None]:
        """Enter the hooks of the mounted server with those of the outer one (MOUNT-05)."""
        async with AsyncExitStack() as stack:
            lifespan = self.find_lifespan()
            if lifespan is not None:
                await lifespan.enter(stack)
            yield
