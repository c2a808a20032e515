"""The handshake, and whether the server is there: `initialize`, `initialized`, `ping`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import JsonRpcErrorCode
from ...protocol.jsonrpc import ABSENT
from ...protocol.peer import DescriptionTooLarge, describe_peer
from ...protocol.revisions import negotiate
from ..effects import ClientConnected
from ..replies import invalid_params, refuse, result_reply
from ..session import SessionEvent, State
from .capabilities import capabilities_of

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..session import Session


def initialize(dispatcher: Dispatcher, session: Session, request: Request) -> list[Effect]:
    """LIFE-02, LIFE-04: agree on a revision."""
    if session.state is not State.STARTING:
        return _already_initialized(session, request)
    params = {} if request.params is ABSENT else request.params
    if type(params.get("protocolVersion")) is not str:
        return invalid_params(session, request, "protocolVersion must be a string")
    for name in ("capabilities", "clientInfo"):
        if type(params.get(name, {})) is not dict:
            return invalid_params(session, request, f"{name} must be an object")
    revision = negotiate(params["protocolVersion"])
    client = params.get("clientInfo", {})
    try:
        peer = describe_peer(revision, params.get("capabilities", {}), client)
    except DescriptionTooLarge as refused:
        return invalid_params(session, request, str(refused))
    session.advance(SessionEvent.INITIALIZE)
    session.peer = peer.retain()
    results = dispatcher.results
    capabilities = capabilities_of(dispatcher, revision)
    session.capabilities = frozenset(capabilities)
    result: dict[str, Any] = {
        "protocolVersion": revision.name,
        "capabilities": capabilities,
        "serverInfo": results.server_info(revision),
    }
    if results.info.instructions is not None:
        result["instructions"] = results.info.instructions
    opened = {
        "protocolVersion": revision.name,
        "clientName": client.get("name"),
        "clientVersion": client.get("version"),
    }
    return [result_reply(request.id, result), ClientConnected("info", "client connected", opened)]


def initialized(dispatcher: Dispatcher, session: Session, request: Request) -> list[Effect]:
    """The handshake's last step, sent as a request (LIFE-05)."""
    if session.advance(SessionEvent.INITIALIZED):
        return [result_reply(request.id, {})]
    return _already_initialized(session, request)


def ping(dispatcher: Dispatcher, session: Session, peer: Peer, request: Request) -> list[Effect]:
    """Say that the server is there."""
    return [result_reply(request.id, {})]


def _already_initialized(session: Session, request: Request) -> list[Effect]:
    message = "Invalid Request: the connection is already initialized"
    return refuse(
        session, request, JsonRpcErrorCode.INVALID_REQUEST, message, "already_initialized"
    )
