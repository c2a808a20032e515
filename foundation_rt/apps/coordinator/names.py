"""Names of servers and of their tools, inside and outside (COORD-01 to COORD-06). Pure.

Inside, a tool is `server:tool`, in any Unicode. Outside, many clients and models take only
`[A-Za-z0-9_-]{1,64}`: there `__` stands for the colon. A name that cannot be written so is changed,
and ends in a hash of itself; so it never depends on other tools, nor on the order of servers. Names
that only look changed are changed too: then no name that was kept can equal a changed one. A name
that begins as those of another server is that server's, so that no server takes another's names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from hashlib import sha256

from attrs import define, field, frozen

from ...base.close_names import close_names as close_names

MAX_ID = 64
MAX_OUTSIDE = 64

_HASH_DIGITS = 8
_OUTSIDE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LOOKS_CHANGED = re.compile(r"_[0-9a-f]{8}\Z")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def id_problem(server: str) -> str | None:
    """Return the reason why this is no id of a server; None if it is one (COORD-01)."""
    if not 1 <= len(server) <= MAX_ID:
        return f"an id has 1 to {MAX_ID} characters"
    if ":" in server:
        return "an id has no colon"
    return "an id has no control characters" if _CONTROL.search(server) else None


def inside_name(server: str, tool: str) -> str:
    """Return the qualified name of a tool (COORD-02)."""
    return f"{server}:{tool}"


def outside_name(server: str, tool: str, servers: Collection[str] = ()) -> str:
    """Return the name of a tool for clients (COORD-05, COORD-06).

    Args:
        server, tool: id and name.
        servers: the ids of all servers; without them, no id that could be ambiguous is kept.
    """
    name = f"{server}__{tool}"
    is_clear = bool(servers) or not ("__" in server or server.endswith("_"))
    if (
        is_clear
        and _OUTSIDE.fullmatch(name)
        and not _LOOKS_CHANGED.search(name)
        and id_in(server, tool, servers) is None
    ):
        return name
    return changed_name(name, inside_name(server, tool))


def id_in(server: str, tool: str, servers: Collection[str]) -> str | None:
    """Return the longer id with which the name outside begins; None without one (COORD-06)."""
    if "__" not in tool and not tool.startswith("_"):
        return None
    name = f"{server}__{tool}"
    longer = [each for each in servers if len(each) > len(server) and name.startswith(f"{each}__")]
    return max(longer, key=len, default=None)


def changed_name(name: str, original: str) -> str:
    """Return `name` in the characters and the length for clients, with the hash of `original`."""
    digest = sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return f"{_OTHER.sub('_', name)[: MAX_OUTSIDE - _HASH_DIGITS - 1]}_{digest}"


@frozen
class UnknownName:
    """The result of a name that leads to no tool.

    Attributes:
        candidates: qualified names of all tools of this bare name; empty unless it is ambiguous.
        nearest: names that are spelled alike, the nearest first; at most three. They are qualified
            names, or outside names where the unknown one has that form.
    """

    candidates: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()


@define(eq=False)
class ToolNames:
    """The tools of all servers by their names, so that a call finds its tool at once.

    Attributes:
        servers: the ids of all, also of those whose tools are not known.
    """

    servers: Collection[str] = field(default=(), init=False)
    _tools: dict[str, dict[str, None]] = field(factory=dict, init=False)
    _by_bare_name: dict[str, list[str]] = field(factory=dict, init=False)
    # Made when it is first asked for: most programs use the names inside.
    _by_outside_name: dict[str, tuple[str, str]] | None = field(default=None, init=False)

    def put(self, server: str, tools: Iterable[str]) -> None:
        """Replace the tools of a server; a new server comes last."""
        self._forget(server)
        self._tools[server] = dict.fromkeys(tools)
        for tool in self._tools[server]:
            self._by_bare_name.setdefault(tool, []).append(server)

    def remove(self, server: str) -> None:
        """Remove a server and its tools."""
        self._forget(server)
        self._tools.pop(server, None)

    def arrange(self, servers: Collection[str]) -> None:
        """Set the ids of all servers."""
        self.servers = servers
        self._by_outside_name = None

    def outside(self, server: str, tool: str) -> str:
        """Return the name of a tool for clients."""
        return outside_name(server, tool, self.servers)

    def from_outside(self, name: str) -> tuple[str, str] | None:
        """Return the server and the tool of an outside name; None if it leads to none.

        Of two tools with one hash, which is one chance in 2**32 for each pair of changed names,
        it leads to the one whose qualified name sorts first.
        """
        if self._by_outside_name is None:
            known = [(server, tool) for server, tools in self._tools.items() for tool in tools]
            known.sort(key=lambda each: inside_name(*each), reverse=True)
            self._by_outside_name = {self.outside(*each): each for each in known}
        return self._by_outside_name.get(name)

    def resolve(self, name: str) -> tuple[str, str] | UnknownName:
        """Return the server and the tool of a name (COORD-03, COORD-04).

        A colon is a prefix only behind the id of a server: tools may have one in their names.
        """
        server, colon, tool = name.partition(":")
        if colon and tool in self._tools.get(server, ()):
            return server, tool
        owners = self._by_bare_name.get(name, ())
        if len(owners) == 1:
            return owners[0], name
        if owners:
            return UnknownName(tuple(inside_name(owner, name) for owner in sorted(owners)))
        return UnknownName(nearest=self._nearest(name))

    def _nearest(self, name: str) -> tuple[str, ...]:
        """Return the names like this one, in its form: of the server it names, else of all."""
        server, colon, tool = name.partition(":")
        if not colon and "__" in name:
            prefix, _, rest = name.partition("__")
            own = [(prefix, each) for each in close_names(rest, self._tools.get(prefix, ()))]
            of_all = close_names(rest, self._by_bare_name)
            near = own or [(self._by_bare_name[each][0], each) for each in of_all]
            return tuple(self.outside(*each) for each in near)
        if colon and server in self._tools:
            found = close_names(tool, self._tools[server])
            return tuple(inside_name(server, each) for each in found)
        bare = tool if colon else name
        found = close_names(bare, self._by_bare_name)
        if found:
            return tuple(inside_name(self._by_bare_name[each][0], each) for each in found)
        whole = [inside_name(owner, each) for owner, known in self._tools.items() for each in known]
        return tuple(close_names(name, whole))

    def _forget(self, server: str) -> None:
        self._by_outside_name = None
        for tool in self._tools.get(server, ()):
            owners = self._by_bare_name[tool]
            owners.remove(server)
            if not owners:
                del self._by_bare_name[tool]
