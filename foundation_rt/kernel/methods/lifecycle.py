"""The handshake, `server/discover` and `ping`: the server describes itself (REV-08)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import JsonRpcError, JsonRpcErrorCode
from ...protocol.peer import SUPPORTED_REVISIONS, DescriptionTooLarge, describe_peer
from ...protocol.revisions import negotiate
from ..effects import ClientConnected
from ..replies import invalid_params, result_reply
from ..session import SessionEvent, State

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ...protocol.revisions import Revision
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..session import Session


def initialize(dispatcher: Dispatcher, session: Session, request: Request) -> list[Effect]:
    """Agree on a revision with the client (LIFE-02, LIFE-04)."""
    if session.state is not State.STARTING:
        raise _already_initialized()
    params = request.members
    if type(params.get("protocolVersion")) is not str:
        raise invalid_params("protocolVersion must be a string")
    for name in ("capabilities", "clientInfo"):
        if type(params.get(name, {})) is not dict:
            raise invalid_params(f"{name} must be an object")
    revision = negotiate(params["protocolVersion"])
    client = params.get("clientInfo", {})
    try:
        peer = describe_peer(revision, params.get("capabilities", {}), client)
    except DescriptionTooLarge as error:
        raise invalid_params(str(error)) from None
    capabilities = _begin(dispatcher, session, peer.retain())
    result: dict[str, Any] = {
        "protocolVersion": revision.name,
        "capabilities": capabilities,
        "serverInfo": dispatcher.results.server_info(revision),
    }
    instructions = instructions_of(dispatcher)
    if instructions is not None:
        result["instructions"] = instructions
    name, version = client.get("name"), client.get("version")
    return [result_reply(request.id, result), _connected(revision, name, version)]


def restore(dispatcher: Dispatcher, session: Session, peer: Peer) -> list[Effect]:
    """Continue, in a new session, one that had nothing but its handshake (HTTP-62)."""
    _begin(dispatcher, session, peer)
    session.advance(SessionEvent.INITIALIZED)
    return [_connected(peer.revision, peer.name, peer.version)]


def _begin(dispatcher: Dispatcher, session: Session, peer: Peer) -> dict[str, Any]:
    """Give a session its peer; return the capabilities that are advertised to it."""
    session.advance(SessionEvent.INITIALIZE)
    session.peer = peer
    capabilities = capabilities_of(dispatcher, peer.revision)
    session.capabilities = frozenset(capabilities)
    return capabilities


def _connected(revision: Revision, name: Any, version: Any) -> ClientConnected:
    opened = {"protocolVersion": revision.name, "clientName": name, "clientVersion": version}
    return ClientConnected("info", "client connected", opened)


def initialized(dispatcher: Dispatcher, session: Session, request: Request) -> list[Effect]:
    """Complete the handshake, for clients that send this as a request (LIFE-05)."""
    if not session.advance(SessionEvent.INITIALIZED):
        raise _already_initialized()
    return [result_reply(request.id, {})]


def discover(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Return revisions, capabilities and instructions to a stateless client (REV-09)."""
    results = dispatcher.results
    result: dict[str, Any] = {
        "supportedVersions": [*SUPPORTED_REVISIONS],
        "capabilities": capabilities_of(dispatcher, peer.revision),
        **results.cache_hints(peer),
    }
    instructions = instructions_of(dispatcher)
    if instructions is not None:
        result["instructions"] = instructions
    return [results.reply(peer, request, result)]


def ping(dispatcher: Dispatcher, session: Session, peer: Peer, request: Request) -> list[Effect]:
    """Answer that the server is alive."""
    return [result_reply(request.id, {})]


def instructions_of(dispatcher: Dispatcher) -> str | None:
    """Return the advice of the server, and that of features after it (FWD-28)."""
    own = dispatcher.results.info.instructions
    if not dispatcher.instructions:
        return own
    others = (instructions() for instructions in dispatcher.instructions)
    return "\n\n".join(each for each in (own, *others) if each) or None


def capabilities_of(dispatcher: Dispatcher, revision: Revision) -> dict[str, Any]:
    """Return the `ServerCapabilities` for a peer that speaks `revision`."""
    capabilities: dict[str, Any] = {"logging": {}, "tools": {"listChanged": True}}
    for advertise in dispatcher.advertise:
        advertise(capabilities)
    return revision.keep("capabilities", capabilities)


def _already_initialized() -> JsonRpcError:
    message = "Invalid Request: the connection is already initialized"
    data = {"reason": "already_initialized"}
    return JsonRpcError(JsonRpcErrorCode.INVALID_REQUEST, message, data)
