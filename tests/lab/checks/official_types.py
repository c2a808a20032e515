"""Checks of messages against the official types of each revision.

`mcp-types` has the types of two revisions, and says for each of the older ones which methods it
has; their shapes it takes from 2025-11-25. So what came between is looked for by name: a message
of an older revision has no member that a later one brought.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcp_types import methods
from mcp_types.jsonrpc import jsonrpc_message_adapter

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

_NAMES_SINCE = {
    "2025-03-26": {"completions", "destructiveHint", "idempotentHint", "readOnlyHint"},
    "2025-06-18": {"_meta", "lastModified", "outputSchema", "structuredContent", "title"},
    "2025-11-25": {"elicitationId", "icons", "theme", "toolChoice", "websiteUrl"},
    "2026-07-28": {
        "cacheScope",
        "extensions",
        "inputRequests",
        "requestState",
        "resultType",
        "ttlMs",
    },
}
"""Names of members that came with a revision and mean the same wherever they stand."""

_VALUES = frozenset({"arguments", "default", "properties", "requestedSchema", "structuredContent"})
"""Members whose own members are named by whoever writes tools."""

_ADDITIONS = {
    "tools/list": {("tools", "version")},  # ours, and ignored by clients (REV-03)
    "tools/call": {("structuredContent",)},  # null, where it may be anything
}
"""Members that are sent on purpose though the types, written out again, lack them."""


class NotOfTheTypes(AssertionError):
    """A message is not what its revision says."""


def check_result(revision: str, method: str, result: dict[str, Any]) -> None:
    """Check that a result has the members of its type, and no others."""
    typed = methods.serialize_server_result(method, revision, result)
    unknown = set(_paths(result)) - set(_paths(typed)) - _ADDITIONS.get(method, set())
    if unknown:
        raise NotOfTheTypes(f"{method} in {revision}: not in its type: {sorted(unknown)}")
    _check_names(revision, result)


def check_message(revision: str, message: dict[str, Any]) -> None:
    """Check a request or notification of the server, or an error."""
    jsonrpc_message_adapter.validate_python(message)
    if "error" in message:
        return
    surface = methods.SERVER_REQUESTS if "id" in message else methods.SERVER_NOTIFICATIONS
    known = surface.get((message["method"], revision))
    if known is None:
        raise NotOfTheTypes(f"there is no {message['method']} in {revision}")
    known.model_validate(message, by_name=False)
    _check_names(revision, message.get("params", {}))


def check_of_client(revision: str, message: dict[str, Any], asked: str | None) -> None:
    """Check that a message of a client has the members of its type, and no others.

    Args:
        asked: the method of the server's request that it answers; None of what is no answer.
    """
    jsonrpc_message_adapter.validate_python(message)
    if "error" in message:
        return
    if "result" in message:
        assert asked is not None
        typed = methods.CLIENT_RESULTS[asked, revision].model_validate(message["result"])
        given = message["result"]
    else:
        surface = methods.CLIENT_REQUESTS if "id" in message else methods.CLIENT_NOTIFICATIONS
        known = surface.get((message["method"], revision))
        if known is None:
            raise NotOfTheTypes(f"there is no {message['method']} in {revision}")
        typed = known.model_validate(message, by_name=False)
        given = message
    dumped = typed.model_dump(by_alias=True, exclude_unset=True, mode="json")
    unknown = set(_paths(given)) - set(_paths(dumped))
    if unknown:
        raise NotOfTheTypes(f"{asked or message['method']} in {revision}: {sorted(unknown)}")
    _check_names(revision, message.get("params", message.get("result", {})))


def _check_names(revision: str, value: Any) -> None:
    later = {name for date, names in _NAMES_SINCE.items() if date > revision for name in names}
    # Every revision has `_meta` on the outside.
    used = {name for path in _paths(value) for name in path if path != ("_meta",)}
    if used & later:
        raise NotOfTheTypes(f"too new for {revision}: {sorted(used & later)}")


def _paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each member, without those in values of free form."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield (*path, name)
            if name not in _VALUES and name != "_meta":
                yield from _paths(each, (*path, name))
    elif isinstance(value, list):
        for each in value:
            yield from _paths(each, path)
