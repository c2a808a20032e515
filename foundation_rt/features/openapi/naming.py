"""Names and texts as every host takes them: of tools and their arguments (OAPI-06, OAPI-16)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from .operations import ApiOperation

MAX_NAME: Final = 64
HEALTH: Final = "health"
"""The name of the server's own tool, which many APIs have as well."""

_DIGEST: Final = 8


def tool_names(operations: Iterable[ApiOperation]) -> dict[str, str]:
    """Return the name of the tool of each operation, by its `label` (OAPI-06).

    A name depends on its own operation alone, unless another one would have the same: then each
    gets a digest of its method and path, but for one whose `operationId` is the name exactly.
    """
    listed = list(operations)
    plain = {each.label: _plain_name(each) for each in listed}
    counts = Counter(plain.values())
    exact = Counter(each.id for each in listed if each.id is not None)
    names = {}
    for each in listed:
        name = plain[each.label]
        if name == HEALTH or (counts[name] > 1 and not (each.id == name and exact[name] == 1)):
            name = _with_digest(name, each.label)
        names[each.label] = name
    return names


def _plain_name(operation: ApiOperation) -> str:
    text = operation.id or f"{operation.method.lower()}{operation.path}"
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")
    if not name:
        name = f"{operation.method.lower()}_root"
    return name if len(name) <= MAX_NAME else _with_digest(name, text)


def _with_digest(name: str, text: str) -> str:
    digest = sha256(text.encode()).hexdigest()[:_DIGEST]
    return f"{name[: MAX_NAME - _DIGEST - 1]}_{digest}"


def argument_name(name: str, suffix: str, taken: Iterable[str]) -> str:
    """Return the name of an argument: the one of the API, where hosts take it and it is free.

    Args:
        name: of a parameter, or of a property of a body.
        suffix: what tells it from another one of this name, such as `query`.
        taken: the names of other arguments.
    """
    base = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:MAX_NAME] or suffix
    found = base
    if found in taken:
        found = f"{base[: MAX_NAME - len(suffix) - 1]}_{suffix}"
    return _with_digest(found, name) if found in taken else found


_MORE: Final = 4
"""A text is read to so many times its longest length: most of the rest are spaces."""


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, cut at a word and marked with an ellipsis."""
    lines = text[: most * _MORE].split("\n")
    text = "\n".join(line.rstrip(" \t") for line in lines).strip()
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    space = max(cut.rfind(" "), cut.rfind("\n"))
    return cut[: space if space > most // 2 else most - 1].rstrip() + "…"
