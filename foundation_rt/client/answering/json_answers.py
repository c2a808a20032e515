"""What handlers of questions answer, before it is sent: it has to be JSON."""

from __future__ import annotations

from typing import Any

from ...protocol.exact_json import dumps, loads
from ...server_requests.errors import InvalidClientResult


def as_json(value: Any, path: str) -> Any:
    """`value` as the server will read it.

    Raises:
        InvalidClientResult: it is not JSON; it stands at `path` of the answer.
    """
    try:
        return loads(dumps(value))
    except (TypeError, ValueError):
        raise InvalidClientResult((path, "is not JSON")) from None
