"""The lists of all servers as one, and the way from a name in it to its server (GATE-02, GATE-03).

Tools and prompts have a name outside, which `coordinator.names` makes of the server's id and their
own. URIs stay as they are, since results refer to them; where two servers list one, that of the
later server in the file is `ID+URI`.

A client may read a URI that no list has: from a link in a result, or filled into a template. Then
the servers that could have it are asked in the order of `resource_routes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import define, field, frozen

from ..coordinator import close_names
from ..errors import ErrorCode, ToolError
from .definition_lock import Withheld

_MEMBERS = {"resourceTemplates": "templates"}

Definition = Mapping[str, Any]

Listed = Iterable[tuple[str, Definition]]
"""Definitions, each with the id of its server, in the order of the file."""

OutsideName = Callable[[str, str], str]
"""Makes the name outside of a server's id and the name of a tool or prompt."""


@frozen(eq=False)
class RoutedEntry:
    """An entry of a list, and where it comes from.

    Attributes:
        server: the id of its server.
        inner: its name or URI there.
        definition: as clients of the gateway see it.
    """

    server: str
    inner: str
    definition: Definition


@define(eq=False)
class Routes:
    """The entries of all lists, by the name or URI outside, in the order of the file.

    Attributes:
        resource_servers: the servers that can be asked for resources that they do not list.
        withheld: definitions that are not shown, by kind and name or URI outside.
    """

    tools: dict[str, RoutedEntry] = field(factory=dict)
    prompts: dict[str, RoutedEntry] = field(factory=dict)
    resources: dict[str, RoutedEntry] = field(factory=dict)
    templates: dict[str, RoutedEntry] = field(factory=dict)
    resource_servers: tuple[str, ...] = ()
    withheld: Mapping[tuple[str, str], Withheld] = field(factory=dict)
    _entries: dict[str, tuple[Definition, ...]] = field(factory=dict, init=False)

    def entries(self, kind: str) -> tuple[Definition, ...]:
        """Return the definitions of a list; always the same tuple (FWD-15)."""
        known = self._entries.get(kind)
        if known is None:
            found: dict[str, RoutedEntry] = getattr(self, _MEMBERS.get(kind, kind))
            known = self._entries[kind] = tuple(each.definition for each in found.values())
        return known

    @classmethod
    def of(
        cls,
        listed: Mapping[str, Listed],
        resource_servers: Iterable[str],
        outside_name: OutsideName,
        withheld: Iterable[Withheld] = (),
    ) -> Routes:
        """Return the ways to the entries of these lists.

        Args:
            listed: the lists by kind: `tools`, `prompts`, `resources`, `resourceTemplates`.
            resource_servers: see the attribute.
            outside_name: makes the names of tools and prompts; the first of equal names has it.
            withheld: definitions that are not among them.
        """
        return cls(
            _named(listed.get("tools", ()), outside_name),
            _named(listed.get("prompts", ()), outside_name),
            _by_uri(listed.get("resources", ()), "uri"),
            _by_uri(listed.get("resourceTemplates", ()), "uriTemplate"),
            tuple(resource_servers),
            {(each.kind, _outside(each, outside_name)): each for each in withheld},
        )

    def resource_routes(self, uri: str) -> list[tuple[str, str]]:
        """Return the servers to ask for a URI, with the URI there, the likeliest first."""
        listed = self.resources.get(uri) or self.templates.get(uri)
        if listed is not None:
            return [(listed.server, listed.inner)]
        server, plus, inner = uri.partition("+")
        if plus and server in self.resource_servers:
            return [(server, inner)]
        fitting = [route for route in self.templates.values() if _could_fill(route.inner, uri)]
        # The longest beginning in plain text says most.
        fitting.sort(key=lambda route: -route.inner.index("{"))
        likely = dict.fromkeys(route.server for route in fitting)
        return [(each, uri) for each in likely or self.resource_servers]

    def owner_of(self, uri: str) -> tuple[str, str]:
        """Return the server that most likely has a URI, and the URI there.

        Raises:
            ToolError: NOT_FOUND: no server has resources.
        """
        found = self.resource_routes(uri)
        if not found:
            raise ToolError(ErrorCode.NOT_FOUND, f"No server has the resource {uri!r}.")
        return found[0]

    def unknown_tool(self, name: str) -> ToolError:
        """Return the error for a tool that no server has (GATE-18), or that is withheld (GATE-53).

        It has the tools of this name without a server's, or else the names most like it.
        """
        withheld = self.withheld.get(("tools", name))
        if withheld is not None:
            return _withheld_error(withheld)
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
        withheld = self.withheld.get((kind, name))
        if withheld is not None:
            raise _withheld_error(withheld)

    def _nearest_tools(self, name: str) -> list[str]:
        """Return the tools spelled most like a name: of the server it begins with, else of all.

        The prefixes are left out: with them, all tools of a server look alike.
        """
        server, _, rest = name.partition("__")
        inner = rest or name
        own = {out: each for out, each in self.tools.items() if each.server == server}
        return _alike(inner, own) or _alike(inner, self.tools) or _alike(name, self.tools)

    def outside_uri(self, server: str, inner: str) -> str:
        """Return the URI under which clients know a resource of a server."""
        listed = self.resources.get(inner)
        if listed is None or listed.server == server:
            return inner
        return f"{server}+{inner}"


def _alike(inner: str, tools: Mapping[str, RoutedEntry]) -> list[str]:
    """Return at most three tools whose name at their server is spelled like this."""
    outside: dict[str, list[str]] = {}
    for name, route in tools.items():
        outside.setdefault(route.inner, []).append(name)
    return [name for each in close_names(inner, outside) for name in outside[each]][:3]


def _withheld_error(withheld: Withheld) -> ToolError:
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


def _outside(withheld: Withheld, outside_name: OutsideName) -> str:
    if withheld.kind in ("tools", "prompts"):
        return outside_name(withheld.server, withheld.identifier)
    return withheld.identifier


def _named(listed: Listed, outside_name: OutsideName) -> dict[str, RoutedEntry]:
    routes: dict[str, RoutedEntry] = {}
    for server, definition in listed:
        inner = definition.get("name")
        if not isinstance(inner, str):  # another program wrote it
            continue
        outside = outside_name(server, inner)
        routes.setdefault(outside, RoutedEntry(server, inner, {**definition, "name": outside}))
    return routes


def _by_uri(listed: Listed, member: str) -> dict[str, RoutedEntry]:
    routes: dict[str, RoutedEntry] = {}
    for server, definition in listed:
        inner = definition.get(member)
        if not isinstance(inner, str):
            continue
        holder = routes.get(inner)
        if holder is None:
            routes[inner] = RoutedEntry(server, inner, definition)
        elif holder.server != server:
            outside = f"{server}+{inner}"
            routes.setdefault(outside, RoutedEntry(server, inner, {**definition, member: outside}))
    return routes


def _could_fill(template: str, uri: str) -> bool:
    """Return whether a URI begins and ends as a template does outside of its variables."""
    begin, brace, _ = template.partition("{")
    end = template.rpartition("}")[2]
    if not brace:
        return False
    return len(uri) >= len(begin) + len(end) and uri.startswith(begin) and uri.endswith(end)
