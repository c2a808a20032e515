"""The state of an agent: a dict that notices changes and is bounded."""

from __future__ import annotations

from typing import Any

import attrs
import orjson

from ..base.config.settings import ToolsSection
from ..base.exact_json import dumps
from .errors import AgentStateTooLargeError

DEFAULT_MAX_BYTES = ToolsSection().max_state_bytes


class AgentState(dict[str, Any]):
    """The state that an agent keeps from one message to the next: a dict that notices changes.

    It notices when a member is assigned or deleted, not what happens inside a member: a list that
    was appended to is assigned again to be noticed (AGENT-13), and to be measured (AGENT-20).

    Attributes:
        changed: whether a member was assigned or deleted since this was last set to False.
        max_bytes: the most that the members are together, as a JSON object in UTF-8.

    Raises:
        TypeError: a key is not a string.
        AgentStateTooLargeError: an assignment would make it too large; it is not made.
    """

    __slots__ = ("_size", "_sizes", "changed", "max_bytes")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        super().__init__()
        self.changed = False
        self.max_bytes = max_bytes
        self._sizes: dict[str, int] = {}
        self._size = 1  # each member counts what separates it from the next, or ends the object

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"the keys of an agent's state are strings, not {key!r}")
        size = _json_size(key) + _json_size(value) + 2
        total = self._size + size - self._sizes.get(key, 0)
        if total > self.max_bytes:
            raise AgentStateTooLargeError(total, self.max_bytes)
        super().__setitem__(key, value)
        self._sizes[key], self._size = size, total
        self.changed = True

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._forget(key)

    def __ior__(self, other: Any) -> AgentState:  # type: ignore[override, misc]
        self.update(other)
        return self

    def update(self, *others: Any, **members: Any) -> None:
        """Assign members as `dict.update` does; stop at the first that is too large."""
        for key, value in dict(*others, **members).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        """As of a dict."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str, *default: Any) -> Any:
        """As of a dict."""
        present = key in self
        value = super().pop(key, *default)
        if present:
            self._forget(key)
        return value

    def popitem(self) -> tuple[str, Any]:
        """As of a dict."""
        item = super().popitem()
        self._forget(item[0])
        return item

    def clear(self) -> None:
        """As of a dict."""
        self.changed = self.changed or bool(self)
        super().clear()
        self._sizes.clear()
        self._size = 1

    def _forget(self, key: str) -> None:
        self._size -= self._sizes.pop(key)
        self.changed = True


def _json_size(value: Any) -> int:
    """Return the length of a value as JSON in UTF-8; what is not JSON counts as null."""
    try:
        return len(dumps(value, _plain, orjson.OPT_NON_STR_KEYS))
    except (TypeError, RecursionError):
        return len(b"null")


def _plain(value: Any) -> Any:
    """Return what orjson is to write for a value of a type that it does not know."""
    if attrs.has(type(value)):
        return {each.name: getattr(value, each.name) for each in attrs.fields(type(value))}
    return None
