"""The selection of operations that become tools or resources, and their names (OAPI-07)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from .documents import OpenApiError
from .operations import ApiOperation

Selector = str | re.Pattern[str] | Callable[[ApiOperation], bool]
"""Selects operations: by text, by a pattern that is found in their paths, or by a function.

A text is `tag:NAME`, `GET`, `/path`, `GET /path`, or an `operationId`; `*` stands for anything.
"""

RouteKind = Literal["tool", "resource", "skip"]

Routes = Mapping[Any, RouteKind] | Callable[[ApiOperation], "RouteKind | None"]
"""Kinds by `Selector`, of which the first that fits counts; or a function that returns a kind."""

Renames = Mapping[str, str] | Callable[[ApiOperation], "str | None"]
"""Names of tools by `operationId` or `GET /path`; or a function that returns a name or None."""

_METHOD = re.compile(r"[A-Z]+")


def selects(selector: Selector, operation: ApiOperation) -> bool:
    """Return whether a selector selects an operation.

    Raises:
        OpenApiError: it is no selector.
    """
    if isinstance(selector, re.Pattern):
        return selector.search(operation.path) is not None
    if callable(selector):
        return bool(selector(operation))
    if not selector.strip():
        raise OpenApiError(f"{selector!r} selects nothing: give `tag:NAME`, `GET /path`, or an id")
    if selector.startswith("tag:"):
        return any(fnmatchcase(tag, selector[4:]) for tag in operation.tags)
    method, _, path = selector.partition(" ")
    if _METHOD.fullmatch(method):
        is_method = method == operation.method
        return is_method and (not path or _is_path(operation, path.strip()))
    if selector.startswith("/"):
        return _is_path(operation, selector)
    return operation.id is not None and fnmatchcase(operation.id, selector)


def _is_path(operation: ApiOperation, pattern: str) -> bool:
    return fnmatchcase(operation.path, pattern)


def is_included(
    operation: ApiOperation,
    include: Iterable[Selector] | None,
    exclude: Iterable[Selector] | None,
) -> bool:
    """Return whether an operation is used: `exclude` wins over `include`."""
    if include is not None and not any(selects(each, operation) for each in include):
        return False
    return not any(selects(each, operation) for each in exclude or ())


def kind_of(operation: ApiOperation, routes: Routes | None) -> RouteKind:
    """Return what an operation becomes; a tool by default.

    Raises:
        OpenApiError: a kind is another one.
    """
    found: Any = None
    if callable(routes):
        found = routes(operation)
    elif routes is not None:
        found = next((kind for each, kind in routes.items() if selects(each, operation)), None)
    if found not in (None, "tool", "resource", "skip"):
        raise OpenApiError(f"routes: {found!r} is no kind: give tool, resource or skip")
    kind: RouteKind = found or "tool"
    return kind


def renamed(operation: ApiOperation, name: str, rename: Renames | None) -> str:
    """Return the name of an operation's tool, which is `name` unless it is renamed."""
    if callable(rename):
        return rename(operation) or name
    if rename is None:
        return name
    keys = (operation.id or "", operation.label, name)
    return next((rename[key] for key in keys if key in rename), name)
