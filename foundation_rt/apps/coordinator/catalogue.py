"""The lists of all servers as one (COORD-17, COORD-18). Pure.

A change is what differs from the lists that were last announced. So a server that is lost and comes
back with the same tools before anybody was notified has changed nothing.

The guidance of a server is for a model, on its tools (COORD-40 to COORD-42).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ...base.exact_json import dumps
from ...base.skill_format import EXTENSION, SKILLS_LIST
from ...protocol.methods import LIST_METHODS, facts

if TYPE_CHECKING:
    from ...client import Client

Definition = Mapping[str, Any]

KINDS = (
    "tools",
    "resources",
    "resourceTemplates",
    "prompts",
    "skills",
    "instructions",
    "guidance",
)
"""The lists of a server, named as the member of the result that holds their entries.

The last two hold a text for models, as an entry with `name` and `text`, if the server has one.
Guidance is read last: that there is none is announced too (COORD-18).
"""


LIST_METHOD_OF: Mapping[str, str] = {**LIST_METHODS, "skills": SKILLS_LIST}
"""The methods that list what a server has, by kind."""


def offers(client: Client, kind: str) -> bool:
    """Return whether a server has declared that it has a list of this kind."""
    if kind == "skills":
        return client.server is not None and client.server.can("extensions", EXTENSION)
    return client.has_capability(facts(LIST_METHOD_OF[kind]).capability or kind)


@frozen(eq=False)
class _Listed:
    entries: tuple[Definition, ...]
    digest: bytes


_NOTHING = _Listed((), b"")


@define(eq=False)
class Catalogue:
    """The definitions of every server, as they came, in the order of the servers."""

    _servers: dict[str, dict[str, _Listed]] = field(factory=dict, init=False)
    _shown: set[str] = field(factory=set, init=False)
    _announced: dict[str, tuple[tuple[str, bytes], ...]] = field(factory=dict, init=False)

    def arrange(self, servers: Iterable[str]) -> None:
        """Set the servers and their order; those that are not named are removed."""
        kept = self._servers
        self._servers = {server: kept.get(server, {}) for server in servers}
        self._shown &= self._servers.keys()

    def put(self, server: str, kind: str, entries: Sequence[Definition]) -> None:
        """Replace one list of a server."""
        self._servers[server][kind] = _Listed(tuple(entries), _digest(entries))

    def forget(self, server: str) -> None:
        """Forget the lists of a server: another one has taken its name."""
        self._servers[server] = {}
        self._shown.discard(server)

    def show(self, server: str, is_shown: bool) -> None:
        """Have the lists of a server in those of all, or not."""
        if is_shown:
            self._shown.add(server)
        else:
            self._shown.discard(server)

    def of_server(self, server: str, kind: str) -> tuple[Definition, ...]:
        """Return one list of a server, also if it is not shown."""
        return self._servers.get(server, {}).get(kind, _NOTHING).entries

    def has_read(self, server: str, kind: str) -> bool:
        """Return whether a list of a server was read, be it empty."""
        return kind in self._servers.get(server, {})

    def listed(self, kind: str) -> list[tuple[str, Definition]]:
        """Return a list of all servers that are shown, each entry with its server."""
        return [
            (server, entry)
            for server, lists in self._servers.items()
            if server in self._shown
            for entry in lists.get(kind, _NOTHING).entries
        ]

    def changes(self) -> list[str]:
        """Return the kinds of lists that differ from those that were announced."""
        return [kind for kind in KINDS if self._state(kind) != self._announced.get(kind, ())]

    def announce(self, kinds: Iterable[str]) -> None:
        """Note that these lists, as they are now, have been announced."""
        for kind in kinds:
            self._announced[kind] = self._state(kind)

    def _state(self, kind: str) -> tuple[tuple[str, bytes], ...]:
        return tuple(
            (server, listed.digest)
            for server, lists in self._servers.items()
            if server in self._shown
            and (listed := lists.get(kind, _NOTHING)) is not _NOTHING
            and (listed.entries or kind == "guidance")
        )


def _digest(entries: Sequence[Definition]) -> bytes:
    """Return a hash of a list: to Python `1`, `1.0` and `true` are equal, to a client not."""
    return sha256(dumps(entries)).digest()


PROMPT = "tool-descriptions"
"""The prompt in which a server says how its tools are used."""

MAX_GUIDANCE_BYTES = 16 * 1024


def guidance_text(result: Mapping[str, Any]) -> str | None:
    """Return the text of a `prompts/get` result; None unless it is one user message of text."""
    messages = result.get("messages")
    if type(messages) is not list or len(messages) != 1 or type(messages[0]) is not dict:
        return None
    content = messages[0].get("content")
    if messages[0].get("role") != "user" or type(content) is not dict:
        return None
    text = content.get("text")
    if content.get("type") != "text" or type(text) is not str:
        return None
    is_small = len(text.encode("utf-8", "surrogatepass")) <= MAX_GUIDANCE_BYTES
    return text if is_small else None


def fallback_guidance(server: str, tools: Iterable[Mapping[str, Any]]) -> str:
    """Return the guidance for a server that has none: the seed's text, to the letter."""
    text = f"Guidance for Server {server}:\nAvailable tools:\n"
    lines = [f"- {tool.get('name')}: {tool.get('description') or ''}\n" for tool in tools]
    return text + ("".join(lines) or "(No tools discovered)")
