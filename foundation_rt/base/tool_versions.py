"""Versions of a tool: what one is, how they are ordered, and how a call names one.

Servers, clients and gateways read them (spec/versions.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

VERSION_KEY: Final = "foundation-rt/version"
"""The member of the `_meta` of a call: the version of the tool that it means."""

VERSIONS_KEY: Final = "foundation-rt/versions"
"""The member of the `_meta` of a tool that is listed: its other versions, by version."""

DEPRECATED_KEY: Final = "foundation-rt/deprecated"
"""The member of the `_meta` of a deprecated tool, and of its results: what to do instead."""

SEPARATOR: Final = "@"
"""Stands between the name of a tool and a version; no name has it."""

_FASTMCP: Final = "fastmcp"
"""The member of `_meta` in which clients of FastMCP name a version."""

_VERSION: Final = re.compile(r"[0-9][0-9A-Za-z._-]{0,63}")
_PARTS: Final = re.compile(r"[0-9]+|[A-Za-z]+")
_WORD, _END, _NUMBER = range(3)

Rank = tuple[tuple[int, int, str], ...]
"""The place of a version among others."""


def version_problem(version: object) -> str | None:
    """Return why a value is no version (VERS-01); None if it is one."""
    if isinstance(version, str) and _VERSION.fullmatch(version):
        return None
    return (
        "must be a string: a digit, then at most 63 ASCII letters, digits and . _ -,"
        f" as '2' or '1.10.3', not {version!a:.80}"
    )


def rank(version: str) -> Rank:
    """Return what orders a version; that of equal versions is equal (VERS-02).

    Numbers are compared as numbers. A word is before the end, and the end before a number:
    1.0-rc1, 1.0, 1.0.1. A zero before a word or the end says nothing: 1 is 1.0.
    """
    found: list[tuple[int, int, str]] = []
    for part in (*_PARTS.findall(version), ""):
        if part.isdigit():
            found.append((_NUMBER, int(part), ""))
            continue
        while len(found) > 1 and found[-1] == (_NUMBER, 0, ""):
            found.pop()
        found.append((_WORD, 0, part.lower()) if part else (_END, 0, ""))
    return tuple(found)


def described(description: str, advice: str) -> str:
    """Return the description of a deprecated version, which ends with the advice (VERS-08)."""
    end = f"Deprecated: {advice}"
    return description if description.endswith(end) else f"{description}\n\n{end}".strip()


def at_version(name: str, version: str) -> str:
    """Return the name by which a version is called; `name` may be that already."""
    end = f"{SEPARATOR}{version}"
    return name if name.endswith(end) else f"{name}{end}"


def asked_version(meta: Mapping[str, Any] | None) -> str | None:
    """Return the version that the `_meta` of a call names; None: it names none.

    Clients of FastMCP name it in a member of theirs: a server that was one of FastMCP goes on to
    answer them with the version that they have asked for.
    """
    if not meta:
        return None
    version = meta.get(VERSION_KEY)
    if version is None:
        theirs = meta.get(_FASTMCP)
        version = theirs.get("version") if isinstance(theirs, dict) else None
    return version if version is None or isinstance(version, str) else ascii(version)[:64]


def without_version(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `_meta` of a call without the version that it names."""
    left = {name: value for name, value in meta.items() if name != VERSION_KEY}
    theirs = left.get(_FASTMCP)
    if isinstance(theirs, dict) and "version" in theirs:
        left[_FASTMCP] = {name: each for name, each in theirs.items() if name != "version"}
    return left
