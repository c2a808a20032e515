"""The prompts and resources of the servers, for people to put into a message (HOST-64, HOST-65)."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ....base.bounded_dict import BoundedDict
from ....base.exact_json import dumps
from ....client import MCPError
from ....protocol.methods import (
    COMPLETION_COMPLETE,
    LIST_METHODS,
    PROMPTS_GET,
    RESOURCES_READ,
)
from ...web_page.requests import MAX_RUNNING, PageRequestError, Room
from .frames import MAX_TEXT, AttachmentError, Attachments, read_attachments

if TYPE_CHECKING:
    from ...coordinator import Coordinator

MAX_LISTED = 500
"""Entries of one list of one server."""
MAX_LISTED_BYTES = 256 * 1024
"""Of one list of one server, as JSON; what follows is left out."""
_MAX_PAGES = 10
_MAX_WORDS = 300
_TIMEOUT_MS = 10_000
_KEPT_S = 30.0
_MAX_KEPT = 64
_MAX_NAME = 2_048
_MAX_ARGUMENT_NAME = 256
_MAX_ARGUMENTS = 50
_LISTS = ("prompts", "resources")
_MEMBERS = ("name", "title", "description", "uri")


@define(eq=False)
class Offers:
    """Asks the servers on behalf of people. It belongs to one event loop."""

    _coordinator: Coordinator
    _kept: dict[str, tuple[float, dict[str, Any]]] = field(
        factory=lambda: BoundedDict(_MAX_KEPT), init=False
    )
    _room: Room = field(factory=lambda: Room(MAX_RUNNING), init=False)

    async def listed(self, principal: str) -> dict[str, Any]:
        """Return the prompts and the resources of all servers that are there."""
        now = asyncio.get_running_loop().time()
        servers = [each for each in self._coordinator.states if self._is_there(each)]
        whose = principal if any(map(self._is_isolated, servers)) else ""
        until, found = self._kept.get(whose, (0.0, {}))
        if now < until:
            return found
        with self._room.of(principal):
            lists = [(server, kind) for server in servers for kind in _LISTS]
            entries = await asyncio.gather(
                *(self._list(server, kind, principal) for server, kind in lists)
            )
        found = {
            kind: [
                each
                for (_, own), some in zip(lists, entries, strict=True)
                if own == kind
                for each in some
            ]
            for kind in _LISTS
        }
        self._kept[whose] = (now + _KEPT_S, found)
        return found

    def _is_there(self, server: str) -> bool:
        return self._coordinator.states[server].state.value == "ready"

    def _is_isolated(self, server: str) -> bool:
        connections = self._coordinator.server(server)
        return connections is not None and connections.settings.isolation is not None

    async def _list(self, server: str, kind: str, principal: str) -> list[dict[str, Any]]:
        """Return a list of one server; of one that fails, what has come."""
        connections = self._coordinator.server(server)
        found: list[dict[str, Any]] = []
        if connections is None or not connections.has_capability(kind):
            return found
        params: dict[str, Any] = {}
        room = MAX_LISTED_BYTES
        try:
            async with asyncio.timeout(_TIMEOUT_MS / 1000):
                for _ in range(_MAX_PAGES):
                    result = await self._request(server, LIST_METHODS[kind], params, principal)
                    read = _prompt if kind == "prompts" else _trimmed
                    entries = _objects(result.get(kind))[: MAX_LISTED - len(found)]
                    for entry in ({"server": server, **read(each)} for each in entries):
                        room -= len(dumps(entry))
                        if room < 0:
                            return found
                        found.append(entry)
                    params = {"cursor": result.get("nextCursor")}
                    if not isinstance(params["cursor"], str):
                        break
        except (PageRequestError, TimeoutError):
            return found
        return found

    async def prompt(
        self, principal: str, server: str, name: str, arguments: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return a prompt as `text` and `attachments` of a message.

        Raises:
            PageRequestError: there is no such result.
        """
        params = {"name": name, "arguments": dict(arguments)}
        with self._room.of(principal):
            result = await self._request(server, PROMPTS_GET, params, principal)
        said = _Said()
        messages = _objects(result.get("messages"))
        several = len({str(each.get("role")) for each in messages}) > 1
        for message in messages:
            if several:
                said.texts.append(f"{str(message.get('role')).capitalize()}:")
            content = message.get("content")
            for block in content if isinstance(content, list) else [content]:
                said.add(block)
        return said.to_json()

    async def resource(self, principal: str, server: str, uri: str) -> dict[str, Any]:
        """Return a resource as `attachments` of a message.

        Raises:
            PageRequestError: there is no such result.
        """
        with self._room.of(principal):
            result = await self._request(server, RESOURCES_READ, {"uri": uri}, principal)
        said = _Said()
        for contents in _objects(result.get("contents")):
            said.add({"type": "resource", "resource": contents})
        return said.to_json()

    async def complete(
        self,
        principal: str,
        server: str,
        name: str,
        argument: Mapping[str, str],
        others: Mapping[str, str],
    ) -> list[str]:
        """Return values that an argument of a prompt may have; [] if the server knows none."""
        params = {
            "ref": {"type": "ref/prompt", "name": name},
            "argument": dict(argument),
            "context": {"arguments": dict(others)},
        }
        connections = self._coordinator.server(server)
        if connections is None or not connections.has_capability("completions"):
            return []
        with self._room.of(principal):
            result = await self._request(server, COMPLETION_COMPLETE, params, principal)
        completion = result.get("completion")
        values = completion.get("values") if isinstance(completion, dict) else None
        listed = values if isinstance(values, list) else []
        return [each[:_MAX_WORDS] for each in listed if isinstance(each, str)][:100]

    async def _request(
        self, server: str, method: str, params: Mapping[str, Any], principal: str
    ) -> dict[str, Any]:
        connections = self._coordinator.server(server)
        if connections is None:
            raise PageRequestError(404, "unknown_server", "there is no such server")
        # Without isolation one connection serves everybody, and a further one would be a process.
        own = principal if self._is_isolated(server) else None
        try:
            return await connections.request(method, params, principal=own, timeout_ms=_TIMEOUT_MS)
        except MCPError as error:
            raise PageRequestError(502, "server_failed", str(error)[:_MAX_WORDS]) from None


@define
class _Said:
    """The content of a message, as far as it may be sent (HOST-62)."""

    texts: list[str] = field(factory=list)
    attachments: list[dict[str, str]] = field(factory=list)
    _read: Attachments = field(factory=Attachments)

    def add(self, block: Any) -> None:
        """Add a block of content."""
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            self.texts.append(str(block.get("text")))
        elif kind == "image":
            self._attach("picture", block.get("data"))
        elif kind == "resource" and isinstance(block.get("resource"), dict):
            contents = block["resource"]
            uri, text = str(contents.get("uri")), contents.get("text")
            data = contents.get("blob")
            if isinstance(text, str):
                data = b64encode(text.encode("utf-8", "replace")).decode()
            self._attach(uri.rstrip("/").rpartition("/")[2] or uri, data)
        elif kind == "resource_link":
            self.texts.append(str(block.get("uri")))
        else:
            self.texts.append(f"[{str(kind)[:64]}: not shown here]")

    def _attach(self, name: str, data: Any) -> None:
        shown = "".join(each for each in name if each.isprintable())[:200] or "file"
        attachment = {"name": shown, "data": data}
        try:
            self._read += read_attachments([attachment])
        except AttachmentError as error:
            raise PageRequestError(
                422, "not_attachable", f"{shown} cannot be attached: expected {error.expected}"
            ) from None
        self.attachments.append(attachment)

    def to_json(self) -> dict[str, Any]:
        """Return both as JSON.

        Raises:
            PageRequestError: the text is longer than that of a message may be (HOST-22).
        """
        text = "\n\n".join(self.texts)
        if len(text) > MAX_TEXT:
            raise PageRequestError(413, "too_large", f"this has more than {MAX_TEXT} characters")
        return {"text": text, "attachments": self.attachments}


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in what should be a list of them."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _trimmed(entry: Mapping[str, Any], longest_name: int = _MAX_NAME) -> dict[str, Any]:
    """Return the texts of a definition that people are shown, in bounded length."""
    return {
        name: entry[name][: longest_name if name in ("name", "uri") else _MAX_WORDS]
        for name in _MEMBERS
        if isinstance(entry.get(name), str)
    }


def _prompt(entry: Mapping[str, Any]) -> dict[str, Any]:
    arguments = _objects(entry.get("arguments"))[:_MAX_ARGUMENTS]
    given = [
        {**_trimmed(each, _MAX_ARGUMENT_NAME), "required": each.get("required") is True}
        for each in arguments
    ]
    return {**_trimmed(entry), "arguments": given}
