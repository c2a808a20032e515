"""The headers of a request as handlers get them (HEAD-16).

Their values may be credentials of users for other servers. They are read by handlers alone, and
nothing that logs or describes an object shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class RequestHeaders(Mapping[str, str]):
    """Values by lower-case name; a name is looked up in any case, and no value is ever shown."""

    __slots__ = ("_values",)

    hides_values = True
    """Logs show the names alone."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<headers {', '.join(self._values)}>"
