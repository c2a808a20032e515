"""Roots: the files and folders that this program works in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...features.server_requests.errors import InvalidClientResult
from ...features.server_requests.roots import Root

Place = Root | Path | str
"""A root; a path, whose URI is made; or a `file:` URI."""


def write_roots(places: Any) -> dict[str, Any]:
    """Return the result of `roots/list` that names `places` (QUEST-10).

    Raises:
        InvalidClientResult: they are not several places, or one of them is none.
    """
    if isinstance(places, (str, Path)) or not isinstance(places, Iterable):
        raise InvalidClientResult(("/roots", "is not several roots"))
    return {"roots": [_write(place, f"/roots/{at}") for at, place in enumerate(places)]}


def _write(place: Any, path: str) -> dict[str, Any]:
    if isinstance(place, Path):
        return {"uri": _uri(place, path)}
    root = Root(place) if isinstance(place, str) else place
    if not isinstance(root, Root):
        raise InvalidClientResult((path, "is neither a path, a URI nor a Root"))
    if not _is_file_uri(root.uri):
        raise InvalidClientResult((f"{path}/uri", "is not a file: URI of an absolute path"))
    if root.name is None:
        return {"uri": root.uri}
    if not isinstance(root.name, str):
        raise InvalidClientResult((f"{path}/name", "is not a string"))
    return {"uri": root.uri, "name": root.name}


def _uri(place: Path, path: str) -> str:
    """Return the URI of a path, with links and `..` resolved."""
    try:
        return place.resolve().as_uri()
    except (OSError, RuntimeError, ValueError):  # a circle of links, a NUL
        raise InvalidClientResult((path, "is not a path that can be resolved")) from None


def _is_file_uri(uri: Any) -> bool:
    """Return whether a URI is a `file:` URI of an absolute path without `..`."""
    from urllib.parse import unquote, urlsplit

    if not isinstance(uri, str) or not uri.isprintable():
        return False
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    steps = unquote(parts.path).split("/")
    return parts.scheme == "file" and steps[0] == "" and len(steps) > 1 and ".." not in steps
