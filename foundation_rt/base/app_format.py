"""The format of apps, for servers, clients and hosts (SEP-1865; spec/apps.md).

An app is a page of HTML that a server has as a resource with a URI `ui://...`. A tool names it in
its `_meta.ui`: a host shows the results of that tool in that page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, get_args

from attrs import field, frozen

EXTENSION: Final = "io.modelcontextprotocol/ui"
MIME_TYPE: Final = "text/html;profile=mcp-app"
SETTINGS: Final[Mapping[str, Any]] = {"mimeTypes": [MIME_TYPE]}
"""Of the extension, as either side declares it."""

APPS: Final[Mapping[str, Mapping[str, Any]]] = {EXTENSION: SETTINGS}
"""The extension as `connect(target, extensions=APPS)` declares it, of a program that shows apps."""

SCHEME: Final = "ui://"
UI: Final = "ui"
"""The member of `_meta` that says what a tool has to do with apps, and what an app asks for."""

MAX_HTML_BYTES: Final = 16 << 20
MAX_DOMAINS: Final = 64
"""Of one kind, of one app."""

Audience = Literal["model", "app"]
"""The callers of a tool: the model of a host, the apps of the same server."""

Permission = Literal["camera", "microphone", "geolocation", "clipboardWrite"]
"""A capability of the browser that an app asks for."""

EVERYONE: Final[tuple[Audience, ...]] = get_args(Audience)
PERMISSIONS: Final[tuple[Permission, ...]] = get_args(Permission)

_MAX_URI: Final = 2048
_FLAT: Final = "ui/resourceUri"
"""The place of the URI in drafts of the extension."""

_LABEL: Final = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = re.compile(rf"(https?|wss?)://(\*\.)?{_LABEL}(\.{_LABEL})*(:[0-9]{{1,5}})?")


def is_app_uri(uri: object) -> bool:
    """Return whether a value is the URI of an app."""
    return type(uri) is str and uri.startswith(SCHEME) and len(SCHEME) < len(uri) <= _MAX_URI


def is_domain(text: object) -> bool:
    """Return whether a value is an origin: scheme, host (``*.`` may be before it) and port."""
    return type(text) is str and len(text) <= 300 and _DOMAIN.fullmatch(text) is not None


def _audience(given: Iterable[Audience]) -> tuple[Audience, ...]:
    return tuple(given)


def _texts(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


@frozen
class ToolUi:
    """The `_meta.ui` of a tool: its app, and who may call it.

    Attributes:
        resource_uri: of the app that shows the results of the tool; None for no app.
        visibility: who may call the tool: the model, the apps of the same server, or both.
    """

    resource_uri: str | None = None
    visibility: tuple[Audience, ...] = field(default=EVERYONE, converter=_audience)

    @classmethod
    def read(cls, meta: object) -> ToolUi:
        """Return what the `_meta` of a tool says, as anybody may have written it.

        What is no URI of an app, or no list of an audience, counts as left out.
        """
        if not isinstance(meta, Mapping):
            return cls()
        found = meta.get(UI)
        ui = found if isinstance(found, Mapping) else {}
        uri = ui.get("resourceUri", meta.get(_FLAT))
        audience = ui.get("visibility")
        if not isinstance(audience, list):
            audience = EVERYONE
        visibility = tuple(each for each in EVERYONE if each in audience)
        return cls(uri if is_app_uri(uri) else None, visibility)

    @property
    def for_model(self) -> bool:
        """Return whether the tool may be offered to a model."""
        return "model" in self.visibility

    @property
    def for_app(self) -> bool:
        """Return whether the apps of the same server may call the tool."""
        return "app" in self.visibility

    def wire(self) -> dict[str, Any]:
        """Return it as a list has it."""
        uri = {} if self.resource_uri is None else {"resourceUri": self.resource_uri}
        return uri if self.visibility == EVERYONE else {**uri, "visibility": [*self.visibility]}


def moved(meta: Mapping[str, Any] | None, move: Callable[[str], str]) -> Mapping[str, Any] | None:
    """Return the `_meta` of a tool whose app has another URI: what `move` makes of it."""
    ui = None if meta is None else meta.get(UI)
    if meta is None or not (isinstance(ui, Mapping) or _FLAT in meta):
        return meta
    changed = dict(meta)
    if isinstance(ui, Mapping) and is_app_uri(ui.get("resourceUri")):
        changed[UI] = {**ui, "resourceUri": move(ui["resourceUri"])}
    if is_app_uri(meta.get(_FLAT)):
        changed[_FLAT] = move(meta[_FLAT])
    return changed


@frozen
class AppCsp:
    """The origins that an app needs; without any it reaches nothing.

    Each is written as ``https://api.example.com``, ``https://*.example.com`` or
    ``wss://live.example.com:8443``.

    Attributes:
        connect_domains: for requests and WebSockets.
        resource_domains: for scripts, styles, images, fonts and media.
        frame_domains: for frames in the page.
        base_uri_domains: for the base of its relative URLs.
    """

    connect_domains: tuple[str, ...] = field(default=(), converter=_texts)
    resource_domains: tuple[str, ...] = field(default=(), converter=_texts)
    frame_domains: tuple[str, ...] = field(default=(), converter=_texts)
    base_uri_domains: tuple[str, ...] = field(default=(), converter=_texts)

    @classmethod
    def read(cls, wire: object) -> AppCsp:
        """Return the well-formed origins of a `csp`, as anybody may have written it."""
        found = wire if isinstance(wire, Mapping) else {}
        return cls(*(_domains(found.get(member)) for member in CSP_MEMBERS.values()))

    def wire(self) -> dict[str, Any]:
        """Return it as the metadata of an app has it."""
        found = {member: [*getattr(self, name)] for name, member in CSP_MEMBERS.items()}
        return {member: domains for member, domains in found.items() if domains}


CSP_MEMBERS: Final[Mapping[str, str]] = {
    "connect_domains": "connectDomains",
    "resource_domains": "resourceDomains",
    "frame_domains": "frameDomains",
    "base_uri_domains": "baseUriDomains",
}


def _domains(found: object) -> tuple[str, ...]:
    """Return the well-formed origins of a list; a slash at the end of one is left out."""
    listed = found[:MAX_DOMAINS] if isinstance(found, list) else ()
    texts = (each.removesuffix("/") for each in listed if isinstance(each, str))
    return tuple(each for each in texts if is_domain(each))
