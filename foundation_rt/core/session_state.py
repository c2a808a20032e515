"""Session state: what handlers keep for the session, or the principal, of their client (CALL-30).

A state is a dict in this process. With a handshake it is part of the session and ends with it. In
the stateless mode there is no session: over HTTP the principal has a state, which is dropped when
it was idle for long; over other transports the connection has one, as it has one client.

Memory is bounded: by bytes of JSON for each state, and by the number of principals.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import orjson

from ..errors import ErrorCode, ToolError

_STRICT = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
"""Values that JSON alone cannot give back as they were are refused."""


class HandlerState(MutableMapping[str, Any]):
    """JSON values by name, for all calls of one session or principal; safe from any thread.

    Args:
        max_bytes: the most bytes of all values and names together, as JSON.

    Attributes:
        used: the last look at the state of a principal, in monotonic seconds.
    """

    __slots__ = ("_max_bytes", "_values", "used")

    hides_values = True
    """Logs show the names alone."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: dict[str, Any] = {}
        self.used = 0.0

    def check_size(self) -> None:
        """Raise `ToolError` if values that grew in place have exceeded the limit (CALL-31)."""
        self._check(self._values)

    def _check(self, values: dict[str, Any]) -> None:
        if len(orjson.dumps(values, option=_STRICT)) > self._max_bytes:
            raise ToolError(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"The state of this session would be larger than {self._max_bytes} bytes: keep less"
                " in it, or have its operator raise server.session_state_bytes",
                {"reason": "session_state_too_large", "maxBytes": self._max_bytes},
            )

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Keep a value.

        Raises:
            ToolError: RESOURCE_EXHAUSTED, the state would be too large.
            TypeError: the name is no string, or the value is not JSON.
        """
        if type(name) is not str:
            raise TypeError(f"a name in the session state is a string, not {name!r}")
        self._check({**self._values, name: value})
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._values])

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<session state {', '.join(self)}>"
