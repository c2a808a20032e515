"""The lists of all servers as one, and the way from a name in it to its server (GATE-02, GATE-03).

Tools and prompts have a name outside, which `coordinator.names` makes of the server's id and their
own. URIs stay as they are, since results refer to them; where two servers list one, that of the
later server in the file is `ID+URI`, and of an app `ui://ID+REST`: hosts take no other scheme. A
tool names its app by the URI outside.

A client may read a URI that no list has: from a link in a result, or filled into a template. Then
the servers that could have it are asked in the order of `resource_routes`.

What is withheld keeps its name or URI: nothing else is found there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any
from unicodedata import normalize
from urllib.parse import unquote

from attrs import define, evolve, field, frozen

from ...base.app_format import SCHEME, ToolUi, moved
from ...base.tool_versions import SEPARATOR
from ...base.transforms import ShapedArguments
from ...errors import ErrorCode, ToolError
from ...features.resources.uri_template import InvalidUri, is_traversal, parse_template
from ..coordinator import close_names
from .definition_lock import Withheld
from .tool_versions import listed_versions, with_versions

_MEMBERS = {"resourceTemplates": "templates"}
_FOR_MODELS = "tools for models"
_OF_RESOURCES = ("resources", "resourceTemplates")

# The query or the fragment of a URI or template begins here.
_QUERY = re.compile(r"\{[?#&]|[?#]")

# White space, parameters of a segment, a user or a port, and escapes of ASCII.
_AMBIGUOUS = re.compile(r"[\s;\\]|^[^/]*//[^/]*[@:]|%[0-7]")

Definition = Mapping[str, Any]

Listed = Iterable[tuple[str, Definition, Withheld | None]]
"""Definitions, each with the id of its server and why it is withheld, in the order of the file."""

OutsideName = Callable[[str, str], str]
"""Makes the name outside of a server's id and the name of a tool or prompt."""

Shape = Callable[[str, Definition], tuple[Definition, ShapedArguments | None] | None]
"""Returns the tool of a server as its entry shapes it; None: it is not offered."""


@frozen(eq=False)
class RoutedEntry:
    """An entry of a list, and where it comes from.

    Attributes:
        server: the id of its server.
        inner: its name or URI there.
        definition: as clients of the gateway see it.
        withheld: why they do not; None if they do.
        arguments: what a call of a tool does with them; None: they go as they came.
        versions: the other versions of a tool.
    """

    server: str
    inner: str
    definition: Definition
    withheld: Withheld | None = None
    arguments: ShapedArguments | None = None
    versions: Mapping[str, RoutedEntry] = field(factory=dict)


@define(eq=False)
class Routes:
    """The entries of all lists, by the name or URI outside, in the order of the file.

    Attributes:
        servers: the ids of all servers.
        withheld: entries that are not shown, by kind and name or URI outside.
    """

    tools: dict[str, RoutedEntry] = field(factory=dict)
    prompts: dict[str, RoutedEntry] = field(factory=dict)
    resources: dict[str, RoutedEntry] = field(factory=dict)
    templates: dict[str, RoutedEntry] = field(factory=dict)
    skills: dict[str, RoutedEntry] = field(factory=dict)
    servers: Collection[str] = ()
    withheld: dict[tuple[str, str], RoutedEntry] = field(factory=dict)
    _entries: dict[str, tuple[Definition, ...]] = field(factory=dict, init=False)
    # The files of the skills that are shown, as templates: a server may list them nowhere else.
    _files: list[RoutedEntry] = field(factory=list, init=False)

    def entries(self, kind: str) -> tuple[Definition, ...]:
        """Return the definitions of a list; always the same tuple (FWD-15)."""
        known = self._entries.get(kind)
        if known is None:
            found: dict[str, RoutedEntry] = getattr(self, _MEMBERS.get(kind, kind))
            known = self._entries[kind] = tuple(each.definition for each in found.values())
        return known

    def tools_for_models(self) -> tuple[Definition, ...]:
        """Return the tools without those that are for apps alone; always the same tuple."""
        known = self._entries.get(_FOR_MODELS)
        if known is None:
            tools = self.entries("tools")
            known = tuple(each for each in tools if is_for_models(each))
            self._entries[_FOR_MODELS] = known
        return known

    @classmethod
    def of(
        cls,
        listed: Mapping[str, Listed],
        servers: Collection[str],
        outside_name: OutsideName,
        shape: Shape = lambda _, definition: (definition, None),
    ) -> Routes:
        """Return the ways to the entries of these lists.

        Args:
            listed: the lists by kind: `tools`, `prompts`, `resources`, `resourceTemplates`,
                `skills`.
            servers: the ids of all servers.
            outside_name: makes the names of tools and prompts; the first of equal names has it.
            shape: shapes tools.
        """
        resources = _by_uri(listed.get("resources", ()), "uri", servers)
        listed_at = {(each.server, each.inner): uri for uri, each in resources.items()}
        found = {
            "tools": _tools(listed.get("tools", ()), outside_name, shape, listed_at),
            "prompts": _named(listed.get("prompts", ()), outside_name),
            "resources": resources,
            "resourceTemplates": _by_uri(
                listed.get("resourceTemplates", ()), "uriTemplate", servers
            ),
            "skills": _skills(listed.get("skills", ()), servers),
        }
        self = cls(servers=servers)
        for kind, routes in found.items():
            shown: dict[str, RoutedEntry] = getattr(self, _MEMBERS.get(kind, kind))
            for outside, route in routes.items():
                if route.withheld is None:
                    shown[outside] = route
                else:
                    self.withheld[kind, outside] = route
        for outside, route in found["skills"].items():
            files = evolve(route, inner=_files_of(route.inner))
            if route.withheld is None:
                self._files.append(files)
            else:
                self.withheld.setdefault(("resourceTemplates", _files_of(outside)), files)
        return self

    def resource_routes(self, uri: str) -> list[tuple[str, str]]:
        """Return the servers to ask for a URI or template, with that there, the likeliest first.

        Raises:
            ToolError: NOT_FOUND: it is withheld (GATE-53).
        """
        listed = self.resources.get(uri) or self.templates.get(uri)
        if listed is not None:
            return [(listed.server, listed.inner)]
        for kind in _OF_RESOURCES:
            self.refuse_withheld(kind, uri)
        found = self._likely_routes(uri)
        held = [self._withheld_at(*route) for route in found]
        allowed = [route for route, why in zip(found, held, strict=True) if why is None]
        why = next(filter(None, held), None)
        if why is not None and not allowed:
            raise withheld_error(why)
        return allowed

    def _likely_routes(self, uri: str) -> list[tuple[str, str]]:
        """Return the servers that may have a URI that no list has (GATE-57)."""
        server, inner = _split(uri)
        if server in self.servers:
            return [(server, inner)]
        own = (each for each in self._files if _files_of(each.definition["uri"]) == each.inner)
        templates = (*self.templates.values(), *own)  # others are `ID+URI`, for their files too
        fitting = [route for route in templates if _could_fill(route.inner, uri)]
        # The longest beginning in plain text says most.
        fitting.sort(key=lambda route: -route.inner.index("{"))
        if not fitting:
            scheme = _scheme(uri)
            of_resources = (*self.resources.values(), *self.templates.values(), *self._held())
            fitting = [route for route in of_resources if _scheme(route.inner) == scheme]
        return [(each, uri) for each in dict.fromkeys(route.server for route in fitting)]

    def _held(self, server: str | None = None) -> list[RoutedEntry]:
        """Return the resources and templates that are withheld, of one server or of all."""
        return [
            route
            for (kind, _), route in self.withheld.items()
            if kind in _OF_RESOURCES and server in (None, route.server)
        ]

    def _withheld_at(self, server: str, uri: str) -> Withheld | None:
        """Return why a server is not asked for a URI: it might read it as a withheld one.

        Nobody knows how a server compares URIs. So while it has something withheld, it is asked
        for those alone that it lists, or that fit a template that it lists, to the letter.
        """
        held = self._held(server)
        shown = [
            route.inner
            for route in (*self.resources.values(), *self.templates.values(), *self._files)
            if route.server == server
        ]
        if not held or uri in shown:
            return None
        why = next((route.withheld for route in held if _may_be(route.inner, uri)), None)
        if why is None and _is_plain(uri) and any(_fits(inner, uri) for inner in shown):
            return None
        return why or Withheld(server, "resources", uri, "new")

    def owner_of(self, uri: str) -> tuple[str, str]:
        """Return the server that most likely has a URI, and the URI there.

        Raises:
            ToolError: NOT_FOUND: it fits none, or is withheld.
        """
        found = self.resource_routes(uri)
        if not found:
            raise ToolError(ErrorCode.NOT_FOUND, f"No server has the resource {uri!r}.")
        return found[0]

    def tool(self, name: str) -> RoutedEntry:
        """Return a tool; raise `ToolError` if there is none, or it is withheld."""
        route = self.tools.get(name)
        if route is None:
            raise self.unknown_tool(name)
        return route

    def tool_of_app(self, name: str) -> RoutedEntry:
        """Return a tool by the name that the pages of its server know (GATE-67).

        Raises:
            ToolError: no server with apps has it, or several have.
        """
        uis = [(each, ToolUi.read(each.definition.get("_meta"))) for each in self.tools.values()]
        with_apps = {each.server for each, ui in uis if ui.resource_uri is not None}
        found = [
            each
            for each, ui in uis
            if each.inner == name and ui.for_app and each.server in with_apps
        ]
        if len(found) != 1:
            raise self.unknown_tool(name)
        return found[0]

    def tool_for_models(self, name: str) -> RoutedEntry:
        """Return a tool that a model may call; raise `ToolError` if there is none (GATE-66)."""
        route = self.tool(name)
        if not is_for_models(route.definition):
            raise ToolError(ErrorCode.NOT_FOUND, f"The tool {name!r} is for apps alone.")
        return route

    def unknown_tool(self, name: str) -> ToolError:
        """Return the error for a tool that no server has (GATE-18), or that is withheld (GATE-53).

        It has the tools of this name without a server's, or else the names most like it.
        """
        names = name, name.rpartition(SEPARATOR)[0]
        route = next(filter(None, (self.withheld.get(("tools", each)) for each in names)), None)
        if route is not None and route.withheld is not None:
            return withheld_error(route.withheld)
        candidates = [outside for outside, route in self.tools.items() if route.inner == name]
        meant = candidates or self._nearest_tools(name)
        hint = f" Did you mean {', '.join(map(repr, meant))}?" if meant else ""
        return ToolError(
            ErrorCode.NOT_FOUND,
            f"There is no tool {name!r}.{hint}",
            {"candidates": candidates} if candidates else {"nearest": meant},
        )

    def refuse_withheld(self, kind: str, name: str) -> None:
        """Raise if a prompt or resource of this name is withheld (GATE-53).

        Raises:
            ToolError: it is.
        """
        route = self.withheld.get((kind, name))
        if route is not None and route.withheld is not None:
            raise withheld_error(route.withheld)

    def _nearest_tools(self, name: str) -> list[str]:
        """Return the tools spelled most like a name: of the server it begins with, else of all.

        The prefixes are left out first: with them, all tools of a server look alike.
        """
        server, _, rest = name.partition("__")
        inner = rest or name
        own = {out: each for out, each in self.tools.items() if each.server == server}
        return _alike(inner, own) or _alike(inner, self.tools) or close_names(name, self.tools)

    def renamed_for_ids(self) -> set[str]:
        """Return the URIs outside of those that begin with the id of a server, and `+`."""
        of_resources = (*self.resources.items(), *self.templates.items())
        return {
            outside for outside, route in of_resources if _begins_with_id(route.inner, self.servers)
        }


def _alike(inner: str, tools: Mapping[str, RoutedEntry]) -> list[str]:
    """Return at most three tools whose name at their server is spelled like this."""
    outside: dict[str, list[str]] = {}
    for name, route in tools.items():
        outside.setdefault(route.inner, []).append(name)
    return [name for each in close_names(inner, outside) for name in outside[each]][:3]


def withheld_error(withheld: Withheld) -> ToolError:
    """Return the error for what is there, and is withheld until it is accepted (GATE-53)."""
    what = "is new" if withheld.reason == "new" else "has changed"
    command = f"foundation-rt gateway accept --lock FILE --server {withheld.server}"
    return ToolError(
        ErrorCode.NOT_FOUND,
        f"{withheld.identifier!r} of the server {withheld.server!r} is withheld: its definition"
        f" {what} since the operator of the gateway has accepted it."
        f" Ask the operator to run: {command}",
        {"reason": "withheld", "server": withheld.server, "definition": withheld.reason},
    )


def is_for_models(tool: Definition) -> bool:
    """Return whether a tool may be offered to a model (GATE-66)."""
    return ToolUi.read(tool.get("_meta")).for_model


def _tools(
    listed: Listed,
    outside_name: OutsideName,
    shape: Shape,
    listed_at: Mapping[tuple[str, str], str],
) -> dict[str, RoutedEntry]:
    """Return the tools; each names its app by the URI that it has outside (GATE-65).

    A server need not list its apps: such a one is asked for at this server alone.
    """
    routes: dict[str, RoutedEntry] = {}

    def app_outside(server: str, uri: str) -> str:
        return listed_at.get((server, uri)) or _with_id(server, uri)

    for server, definition, withheld in listed:
        inner = definition.get("name")
        shaped = shape(server, definition) if isinstance(inner, str) else None
        if isinstance(inner, str) and shaped is not None:
            name = shaped[0]["name"]
            outside = outside_name(server, name)
            plain = RoutedEntry(server, inner, {"name": outside}, withheld)
            move = partial(app_outside, server)
            others = (shape(server, each) for each in listed_versions(definition))
            versions = {
                each[0]["version"]: _tool(plain, each, move)
                for each in others
                if each is not None and each[0]["name"] == name
            }
            route = _tool(evolve(plain, versions=versions), shaped, move)
            holder = routes.setdefault(outside, route)
            # No other tool of a server gets the calls of one that has its own name.
            if holder.server == server and holder.arguments is not None and route.arguments is None:
                routes[outside] = route
    return routes


def _tool(
    route: RoutedEntry,
    shaped: tuple[Definition, ShapedArguments | None],
    move: Callable[[str], str],
) -> RoutedEntry:
    """Return the route of a tool that was shaped, with its name outside and its versions."""
    shown, arguments = shaped
    shown = {**with_versions(shown, route.versions), **route.definition}
    if isinstance(meta := shown.get("_meta"), Mapping):
        shown["_meta"] = moved(meta, move)
    return evolve(route, definition=shown, arguments=arguments)


def _named(listed: Listed, outside_name: OutsideName) -> dict[str, RoutedEntry]:
    routes: dict[str, RoutedEntry] = {}
    for server, definition, withheld in listed:
        inner = definition.get("name")
        if not isinstance(inner, str):  # another program wrote it
            continue
        outside = outside_name(server, inner)
        shown = {**definition, "name": outside}
        routes.setdefault(outside, RoutedEntry(server, inner, shown, withheld))
    return routes


def _by_uri(listed: Listed, member: str, servers: Collection[str]) -> dict[str, RoutedEntry]:
    routes: dict[str, RoutedEntry] = {}
    for server, definition, withheld in listed:
        inner = definition.get(member)
        if not isinstance(inner, str):
            continue
        holder = routes.get(inner)
        if _begins_with_id(inner, servers):  # it would be a URI of that server (GATE-03)
            holder = None
        elif holder is None:
            routes[inner] = RoutedEntry(server, inner, definition, withheld)
            continue
        if holder is None or holder.server != server:
            outside = _with_id(server, inner)
            shown = {**definition, member: outside}
            routes.setdefault(outside, RoutedEntry(server, inner, shown, withheld))
    return routes


def _skills(listed: Listed, servers: Collection[str]) -> dict[str, RoutedEntry]:
    """Return the skills by URI; the files of one have the prefix that its own URI has."""
    return {
        outside: evolve(route, definition=skill_outside(route, route.definition))
        for outside, route in _by_uri(listed, "uri", servers).items()
    }


def _files_of(skill: str) -> str:
    """Return a template that the URIs of the files of a skill fit.

    Args:
        skill: the URI of its `SKILL.md`.
    """
    return f"{skill.rpartition('/')[0]}/{{+file}}"


def skill_outside(route: RoutedEntry, entry: Definition) -> Definition:
    """Return the entry of a skill with the URIs that clients of the gateway use for it."""
    if route.definition.get("uri") == route.inner:
        return entry
    files = entry.get("resources")
    if isinstance(files, list):
        files = [
            {**each, "uri": _with_id(route.server, str(each.get("uri")))}
            if isinstance(each, dict)
            else each
            for each in files
        ]
    return {**entry, "uri": route.definition["uri"], "resources": files}


def _begins_with_id(uri: str, servers: Collection[str]) -> bool:
    """Return whether a URI has the form `ID+URI`."""
    return _split(uri)[0] in servers


def names_server(name: str, server: str, *, is_uri: bool) -> bool:
    """Return whether a name or a URI outside has the id of a server."""
    return _split(name)[0] == server if is_uri else name.startswith(f"{server}__")


def _with_id(server: str, uri: str) -> str:
    """Return the URI outside that names its server."""
    scheme = SCHEME if uri.startswith(SCHEME) else ""
    return f"{scheme}{server}+{uri.removeprefix(scheme)}"


def _split(uri: str) -> tuple[str, str]:
    """Return what may be the id of a server in a URI, and the URI there; without one, "" ."""
    scheme = SCHEME if uri.startswith(SCHEME) else ""
    server, plus, rest = uri.removeprefix(scheme).partition("+")
    return (server, f"{scheme}{rest}") if plus else ("", uri)


def _scheme(uri: str) -> str:
    return uri.partition(":")[0].casefold()


def _is_plain(uri: str) -> bool:
    """Return whether a URI has one spelling: what servers may pass over or decode is not in it."""
    text = unquote(uri)
    is_readable = text.isprintable() and text == normalize("NFKC", text)
    return is_readable and not is_traversal(uri) and _AMBIGUOUS.search(uri) is None


def _fits(template: str, uri: str) -> bool:
    """Return whether a URI fits a template by the exact rule of MRES-06; foreign ones fit none."""
    try:
        return parse_template(template).match(uri) is not None
    except InvalidUri:
        return False


def _may_be(listed: str, uri: str) -> bool:
    """Return whether a server may take a URI for a listed one or fill it into a listed template.

    The query, the fragment, case, escapes, forms of characters, and a slash at the end are ignored.
    """
    begin, brace, rest = _QUERY.split(listed)[0].partition("{")
    place = _folded(_QUERY.split(uri)[0])
    if not brace:
        return place.rstrip("/") == _folded(begin).rstrip("/")
    end = _form(rest.rpartition("}")[2]).rstrip("/")
    return place.startswith(_folded(begin)) and place.rstrip("/").endswith(end)


def _folded(uri: str) -> str:
    """Return a URI for comparison, without ids of servers before its scheme."""
    scheme, colon, rest = _form(uri).partition(":")
    return f"{scheme.rpartition('+')[2]}{colon}{rest}"


def _form(text: str) -> str:
    return normalize("NFKC", unquote(text)).casefold()


def _could_fill(template: str, uri: str) -> bool:
    """Return whether a URI begins and ends as a template does outside of its variables."""
    begin, brace, _ = template.partition("{")
    end = template.rpartition("}")[2]
    if not brace:
        return False
    return len(uri) >= len(begin) + len(end) and uri.startswith(begin) and uri.endswith(end)
