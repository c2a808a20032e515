"""Session state: what handlers keep for the session, or the principal, of their client (CALL-30).

In memory, a state is a dict in this process. With a handshake it is part of the session and ends
with it. In the stateless mode there is no session: over HTTP the principal has a state, which is
dropped when it was idle for long; over other transports the connection has one, as it has one
client. In a store, such as Redis, the states of HTTP are shared by all workers: a call gets a
`StoredState`, which is written back when the call has ended.

Memory is bounded: by bytes of JSON for each state, and by the number of principals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import orjson
from attrs import frozen

from ...base.exact_json import dumps, loads
from ...errors import ErrorCode, ToolError

_STRICT = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
"""Values that JSON alone cannot give back as they were are refused."""


def state_too_large(max_bytes: int) -> ToolError:
    """Return the error for a state that would be larger than `max_bytes` (CALL-31)."""
    return ToolError(
        ErrorCode.RESOURCE_EXHAUSTED,
        f"The state of this session would be larger than {max_bytes} bytes: keep less"
        " in it, or have its operator raise server.session_state_bytes",
        {"reason": "session_state_too_large", "maxBytes": max_bytes},
    )


def too_many_states(max_states: int) -> ToolError:
    """Return the error for one more principal with a state than `max_states` (CALL-32)."""
    return ToolError(
        ErrorCode.RESOURCE_EXHAUSTED,
        f"{max_states} principals have a session state: try again later, or have the"
        " operator raise server.session_states",
        {"reason": "session_states_full", "maxStates": max_states},
    )


class HandlerState(MutableMapping[str, Any]):
    """JSON values by name, for all calls of one session or principal; safe from any thread.

    Args:
        max_bytes: the most bytes of all values and names together, as JSON.

    Attributes:
        used: the last look at the state of a principal, in monotonic seconds.
    """

    __slots__ = ("_max_bytes", "_room", "_values", "used")

    hides_values = True
    """Logs show the names alone."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: dict[str, Any] = {}
        # What may be added before all is counted again: counting at every write is quadratic.
        self._room = 0
        self.used = 0.0

    def check_size(self) -> None:
        """Raise `ToolError` if values that grew in place have exceeded the limit (CALL-31)."""
        self._check(self._values)

    def _check(self, values: dict[str, Any]) -> None:
        room = self._max_bytes - len(dumps(values, option=_STRICT))
        if room < 0:
            raise state_too_large(self._max_bytes)
        self._room = room

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Keep a value.

        Raises:
            ToolError: RESOURCE_EXHAUSTED, the state would be too large.
            TypeError: the name is no string, or the value would not come back from JSON as it is.
        """
        if type(name) is not str:
            raise TypeError(f"a name in the session state is a string, not {name!r}")
        needed = len(_check_json(name, value)) + len(dumps(name)) + len(b":,")
        if needed > self._room:
            self._check({**self._values, name: value})
        else:
            self._room -= needed
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def clear(self) -> None:
        """Remove all values, at once: `MutableMapping` would look for the first one each time."""
        self._values.clear()

    def __iter__(self) -> Iterator[str]:
        return iter([*self._values])

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<session state {', '.join(self)}>"


def _check_json(name: str, value: Any) -> bytes:
    """Return the JSON of a value; raise `TypeError` if it would not come back as it is."""
    try:
        written = dumps(value, option=_STRICT)
        comes_back = loads(written) == value
    except TypeError as error:
        problem = str(error)
    else:
        if comes_back:
            return written
        problem = "it would come back as another value"
    raise TypeError(
        f"session_state[{name!r}] is a {type(value).__name__} that JSON cannot keep ({problem}):"
        " keep None, bool, int, float, str, and lists and dicts of them; a list instead of a tuple"
        " or a set, text instead of a date or an object"
    )


@frozen
class StateChanges:
    """The changes of a call in a stored state.

    Attributes:
        written: the JSON of each value that is new or another one, by its name.
        removed: the names that are there no longer.
    """

    written: Mapping[str, bytes]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.written or self.removed)


class StoredState(HandlerState):
    """The state of one call as a store had it, with the changes of this call (CALL-34).

    Args:
        max_bytes: the most bytes of all values and names together, as JSON.
        stored: the JSON of each value, by its name.
    """

    __slots__ = ("_stored",)

    def __init__(self, max_bytes: int, stored: dict[str, bytes]) -> None:
        super().__init__(max_bytes)
        self._stored = stored
        self._values = {name: loads(value) for name, value in stored.items()}

    def take_changes(self) -> StateChanges:
        """Return what has changed since the state was loaded, or since the last call of this.

        Values that were changed in place count, because their JSON is another one.

        Raises:
            ToolError: RESOURCE_EXHAUSTED, the state has grown too large.
            TypeError: a value was changed in place to what JSON cannot keep.
        """
        self.check_size()
        now: dict[str, bytes] = {}
        for name, value in dict(self._values).items():  # a thread may be left that changes it
            now[name] = _check_json(name, value)
        written = {name: value for name, value in now.items() if self._stored.get(name) != value}
        removed = tuple(name for name in self._stored if name not in now)
        self._stored = now
        return StateChanges(written, removed)
