"""Versions of the tools of servers, as clients of a gateway see and call them (GATE-69).

A server lists the newest version of a tool, with the definitions of the others in its `_meta`. So
they are shaped as it is, and a lock holds them with it. What a server does not list is not called:
nobody could have shaped or accepted it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...base.tool_versions import (
    SEPARATOR,
    VERSION_KEY,
    VERSIONS_KEY,
    asked_version,
    without_version,
)
from ...errors import ErrorCode, ToolError

if TYPE_CHECKING:
    from .routes import Definition, RoutedEntry

_OF_NEWEST = ("name", "version")
"""Members of a definition that the entry of the newest version has."""


def listed_versions(definition: Definition) -> Iterator[Definition]:
    """Yield the other versions of a tool that its server lists, each as if it were listed."""
    meta = definition.get("_meta")
    listed = meta.get(VERSIONS_KEY) if isinstance(meta, Mapping) else None
    for version, each in listed.items() if isinstance(listed, Mapping) else ():
        if isinstance(each, Mapping):
            yield {**each, "name": definition["name"], "version": version}


def with_versions(definition: Definition, versions: Mapping[str, RoutedEntry]) -> Definition:
    """Return a definition that lists these versions, and no others."""
    meta = definition.get("_meta")
    if not (isinstance(meta, Mapping) and VERSIONS_KEY in meta):
        return definition
    shown = {
        version: {name: value for name, value in route.definition.items() if name not in _OF_NEWEST}
        for version, route in versions.items()
    }
    return {**definition, "_meta": {**meta, VERSIONS_KEY: shown}}


def with_plain_name(
    params: Mapping[str, Any], tools: Mapping[str, RoutedEntry]
) -> Mapping[str, Any]:
    """Return the params of a call by ``NAME@VERSION`` as those of one by its `_meta`.

    Raises:
        ToolError: INVALID_ARGUMENT: the `_meta` has another version.
    """
    plain, at, version = str(params["name"]).rpartition(SEPARATOR)
    if not at or params["name"] in tools or plain not in tools:
        return params
    if "version" not in tools[plain].definition:
        return params
    meta = params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    asked = asked_version(meta)
    if asked is not None and asked != version:
        problem = f"The call asks for two versions of {plain!r}: {version!r} and {asked!r:.80}."
        raise ToolError(ErrorCode.INVALID_ARGUMENT, problem)
    return {**params, "name": plain, "_meta": {**meta, VERSION_KEY: version}}


def version_of(route: RoutedEntry, params: Mapping[str, Any]) -> RoutedEntry | None:
    """Return the version of a tool that the `_meta` of a call asks for; None if none is listed."""
    asked = asked_version(params.get("_meta") or {})
    if asked is None or asked == route.definition.get("version"):
        return route
    return route.versions.get(asked)


def with_version(
    route: RoutedEntry, params: Mapping[str, Any], *, is_locked: bool
) -> tuple[RoutedEntry, Mapping[str, Any]]:
    """Return the version of a tool that a call asks for, and the params for its server.

    A server that lists no versions as ours do may have some: it gets the `_meta` as it came,
    unless its tool is shaped or locked.

    Raises:
        ToolError: NOT_FOUND: the version is not listed.
    """
    meta = params.get("_meta")
    asked = asked_version(meta if isinstance(meta, dict) else {})
    if asked is None or not isinstance(meta, dict):
        return route, params
    found = version_of(route, params)
    if found is not None:
        return found, {**params, "_meta": {**without_version(meta), VERSION_KEY: asked}}
    if not (is_locked or route.arguments is not None or "version" in route.definition):
        return route, params
    raise ToolError(
        ErrorCode.NOT_FOUND,
        f"There is no version {asked[:128]!r} of the tool {params['name']!r}.",
        {"versions": [*_known(route)]},
    )


def _known(route: RoutedEntry) -> Iterator[str]:
    newest = route.definition.get("version")
    if isinstance(newest, str):
        yield newest
    yield from route.versions
