"""Reading the params of a server's request, and the error that refuses it.

What a server sends may be anything. A member that is not what the specification has is named in
the refusal (QUEST-03); a member that may be left out may be null as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...base.exact_json import dumps, loads
from ...errors import JsonRpcErrorCode
from ...features.server_requests.errors import InvalidClientResult
from ..errors import MCPError

if TYPE_CHECKING:
    from ...base.structuring import Structurer

T = TypeVar("T")

_KINDS: dict[type, str] = {str: "a string", dict: "an object", list: "an array"}


class ServerRequestRefused(MCPError):
    """A request of the server is refused: E210.

    A handler may raise it to choose what the server is told; in the stateless mode, where nothing
    is told, the request that asked ends with it (QUEST-15).

    Args:
        json_rpc_code: of the error that the server gets; kept as `original_code`.
        message: for the server.
        data: JSON for the server; None for none.
    """

    def __init__(self, json_rpc_code: int, message: str, data: Any = None) -> None:
        super().__init__(
            "E210", message, original_code=int(json_rpc_code), data=data, may_have_run=True
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the error object of a JSON-RPC response."""
        wire = {"code": self.original_code, "message": self.message}
        return wire if self.data is None else {**wire, "data": self.data}


def malformed(path: str, what: str) -> ServerRequestRefused:
    """Return the refusal of params whose member at `path` is wrong: -32602."""
    return _refusal(f"{path or 'they'} {what}", path)


def _refusal(what: str, path: str) -> ServerRequestRefused:
    return ServerRequestRefused(
        JsonRpcErrorCode.INVALID_PARAMS,
        f"Invalid params: {what}",
        {"reason": "invalid_params", "path": path},
    )


def required(members: Mapping[str, Any], name: str, kind: type, path: str = "") -> Any:
    """Return the member `name` of the object at `path`.

    Args:
        members: of the object.
        name: of the member.
        kind: `str`, `dict` or `list`.
        path: of the object, for the error.

    Raises:
        ServerRequestRefused: it is missing, or of another kind.
    """
    value = members.get(name)
    if type(value) is not kind:
        raise malformed(f"{path}/{name}", f"is not {_KINDS[kind]}")
    return value


def optional(members: Mapping[str, Any], name: str, kind: type, path: str = "") -> Any:
    """As `required`, but None for a member that is missing or null."""
    return None if members.get(name) is None else required(members, name, kind, path)


def read_params(structurer: Structurer, params: Any, kind: type[T]) -> T:
    """Return params as an instance of a class.

    Raises:
        ServerRequestRefused: they are none.
    """
    from ...base.structuring import StructuringError

    try:
        return cast("T", structurer.structure(params, kind))
    except StructuringError as error:
        [(path, _), *_] = error.issues
        raise _refusal(str(error), path) from None


def as_json(value: Any, path: str) -> Any:
    """Return `value` as the server will read it.

    Raises:
        InvalidClientResult: it is not JSON; it stands at `path` of the response.
    """
    try:
        return loads(dumps(value))
    except (TypeError, ValueError):
        raise InvalidClientResult((path, "is not JSON")) from None
