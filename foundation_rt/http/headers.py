"""The head of an HTTP request, and the comparison with its body.

Pure decisions over the raw headers of ASGI (spec/http-headers.md). A header that decides anything
may occur only once: of two, a proxy may have used the other one. From revision 2026-07-28 on a
request repeats values of its body in headers, for intermediaries to route by (SEP-2243); a request
whose headers and body differ is refused.

Handlers get those headers that the operator allows (HEAD-16).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..errors import JsonRpcErrorCode, UsageError
from ..kernel.session import NO_HEADERS
from ..protocol.http_headers import RequestHeaders, decode_header_value
from ..protocol.jsonrpc import Request
from ..protocol.methods import facts
from ..protocol.peer import brings_peer, unsupported_data
from ..protocol.revisions import HANDSHAKE_REVISIONS, REVISIONS, STATELESS_REVISIONS, VERSION_KEY
from .asgi import CLOSE, HttpRefusal

if TYPE_CHECKING:
    from ..base.config.settings import ServerConfig


HeaderParameter = tuple[str, tuple[str, ...], str]
"""A parameter that a header repeats: name of the header, path of property keys, type."""

_FIELDS = {
    b"accept": "accept",
    b"content-type": "content_type",
    b"content-length": "content_length",
    b"content-encoding": "content_encoding",
    b"transfer-encoding": "transfer_encoding",
    b"host": "host",
    b"origin": "origin",
    b"authorization": "authorization",
    b"x-api-key": "api_key",
    b"last-event-id": "last_event_id",
    b"mcp-protocol-version": "protocol_version",
    b"mcp-session-id": "session_id",
    b"mcp-method": "method",
    b"mcp-name": "name",
}
_PARAMETER = b"mcp-param-"
UNSAFE = re.compile(r"[^\t\x20-\x7e]")  # RFC 9110, section 5.5, without its obsolete part

_BOTH_TYPES = "application/json, text/event-stream"  # the exact value of nearly every client
_NO_QUALITY = re.compile(r"0(\.0{0,3})?")
_JSON_TYPE = "application/json"
_EVENTS_TYPE = "text/event-stream"

_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?")


@define(eq=False, repr=False)
class RequestHead:
    """The headers of a request that decide anything; None for those that are absent.

    Attributes:
        accept: all `Accept` headers, joined.
        parameters: the values of `Mcp-Param-*`, by the rest of the name in lower case.
    """

    accept: str | None = None
    content_type: str | None = None
    content_length: str | None = None
    content_encoding: str | None = None
    transfer_encoding: str | None = None
    host: str | None = None
    origin: str | None = None
    authorization: str | None = None
    api_key: str | None = None
    last_event_id: str | None = None
    protocol_version: str | None = None
    session_id: str | None = None
    method: str | None = None
    name: str | None = None
    parameters: dict[str, str] = field(factory=dict)


def read_head(headers: Iterable[tuple[bytes, bytes]]) -> RequestHead | HttpRefusal:
    """Parse the head of a request; refuse an ambiguous or malformed one (HEAD-01 to HEAD-03).

    Args:
        headers: the headers of the ASGI scope, with names in lower case.
    """
    fields: dict[str, str] = {}
    parameters: dict[str, str] = {}
    for name, raw in headers:
        found, key = fields, _FIELDS.get(name)
        if key is None:
            if not name.startswith(_PARAMETER):
                continue
            found, key = parameters, name[len(_PARAMETER) :].decode("ascii", "replace")
        value = raw.decode("latin-1").strip(" \t")
        if key in found:
            if name != b"accept":
                return malformed(name, "stands in the request more than once")
            value = f"{found[key]}, {value}"
        found[key] = value
    # All at once: checking each would be a third of the work.
    text = "".join((*fields.values(), *parameters.values()))
    if not (text.isascii() and text.isprintable()) and UNSAFE.search(text) is not None:
        return _find_unsafe(fields, parameters)
    if "transfer_encoding" in fields and fields["transfer_encoding"].lower() != "chunked":
        return HttpRefusal(
            501,
            "Not implemented: the only Transfer-Encoding taken is chunked",
            reason="transfer_encoding_not_supported",
            headers=(CLOSE,),
        )
    if "transfer_encoding" in fields and "content_length" in fields:
        return HttpRefusal(
            400, "Content-Length and Transfer-Encoding exclude each other", reason="ambiguous_body"
        )
    return RequestHead(**fields, parameters=parameters)


def check_post(head: RequestHead) -> HttpRefusal | None:
    """Return why a POST is refused, whatever its body (HEAD-04, HEAD-05)."""
    accept = head.accept
    if accept != _BOTH_TYPES and not (_accepts(accept, _JSON_TYPE, _EVENTS_TYPE)):
        return _not_acceptable(f"{_JSON_TYPE} and {_EVENTS_TYPE}")
    if head.content_type != _JSON_TYPE and not _is_json(head.content_type):
        return HttpRefusal(
            415,
            "Unsupported media type: Content-Type must be application/json in UTF-8",
            reason="unsupported_media_type",
        )
    if head.content_encoding is not None and head.content_encoding.lower() != "identity":
        return HttpRefusal(
            415,
            "Unsupported media type: a body must not be compressed",
            reason="unsupported_media_type",
            headers=((b"accept-encoding", b"identity"),),
        )
    return None


def check_get(head: RequestHead) -> HttpRefusal | None:
    """Return why a GET gets no stream (HEAD-04, HEAD-06, HEAD-07, HEAD-08)."""
    if head.protocol_version in STATELESS_REVISIONS:
        return method_not_allowed("POST")
    if not _accepts(head.accept, _EVENTS_TYPE):
        return _not_acceptable(_EVENTS_TYPE)
    return check_session_headers(head)


def check_delete(head: RequestHead) -> HttpRefusal | None:
    """Return why a DELETE ends no session (HEAD-06 to HEAD-08)."""
    if head.protocol_version in STATELESS_REVISIONS:
        return method_not_allowed("POST")
    return check_session_headers(head)


def check_session_headers(head: RequestHead) -> HttpRefusal | None:
    """Return why a request of the handshake mode belongs to no session (HEAD-06, HEAD-07).

    Not for `initialize`, which has no session yet, nor for a revision of the stateless mode, which
    is refused or taken before (HEAD-08, HEAD-09).
    """
    version = head.protocol_version
    if version is not None and version not in REVISIONS:
        return _unsupported(version)
    if not head.session_id:
        return HttpRefusal(
            400,
            "Mcp-Session-Id is missing: send initialize first, then the id of its response",
            reason="session_required",
        )
    return None


def is_stateless(head: RequestHead, params: Any) -> bool:
    """Return whether the head or the `_meta` of a request choose the stateless mode (HEAD-09).

    An unknown revision counts as a later one; its client gets the list of supported revisions.

    Args:
        head: the request's head.
        params: the params of the message in the body.
    """
    version = head.protocol_version
    return (version is not None and version not in HANDSHAKE_REVISIONS) or brings_peer(params)


def check_mcp_headers(
    head: RequestHead, request: Request, parameters: Sequence[HeaderParameter] = ()
) -> HttpRefusal | None:
    """Return how the head of a stateless request differs from its body (HEAD-10 to HEAD-15).

    Args:
        head: the request's head.
        request: the message in its body.
        parameters: the parameters of the called tool that have a header.
    """
    version, params = head.protocol_version, request.params
    if version is None:
        return _mismatch("the header MCP-Protocol-Version is missing")
    described = _meta_version(params)
    if described is not None and described != version:
        return _mismatch("MCP-Protocol-Version is not the protocolVersion of _meta")
    if version not in REVISIONS:
        return _unsupported(version)
    if head.method is None:
        return _mismatch("the header Mcp-Method is missing")
    if head.method != request.method:
        return _mismatch("Mcp-Method is not the method of the body")
    if type(params) is not dict:
        return None
    source = facts(request.method).mirrored
    if source is not None:
        refusal = _check_name(head, params.get(source))
        if refusal is not None:
            return refusal
    for header, path, _ in parameters:
        refusal = _check_parameter(head, header, _value_at(params.get("arguments"), path))
        if refusal is not None:
            return refusal
    return None


def method_not_allowed(*methods: str) -> HttpRefusal:
    """Return the refusal of a method that the endpoint or the revision lacks (HEAD-08)."""
    allowed = ", ".join(methods)
    return HttpRefusal(
        405,
        f"Method not allowed: use {allowed}",
        reason="method_not_allowed",
        headers=((b"allow", allowed.encode()),),
    )


def _check_name(head: RequestHead, name: Any) -> HttpRefusal | None:
    if type(name) is not str:
        # The params are invalid, which the protocol reports; there is nothing to compare.
        return None
    if head.name is None:
        return _mismatch("the header Mcp-Name is missing")
    is_plain = head.name == name and not name.startswith("=?")
    if not is_plain and decode_header_value(head.name) != name:
        return _mismatch("Mcp-Name is not the name in the body")
    return None


def _check_parameter(head: RequestHead, header: str, value: Any) -> HttpRefusal | None:
    text = head.parameters.get(header.lower())
    if text is None and value is None:
        return None
    if text is None:
        return _mismatch(f"the header Mcp-Param-{header} is missing")
    decoded = decode_header_value(text)
    if decoded is None:
        return _mismatch(f"Mcp-Param-{header} is no valid base64 of UTF-8")
    if value is None:
        return _mismatch(f"Mcp-Param-{header} has a value, and the body has none")
    if not _equals(decoded, value):
        return _mismatch(f"Mcp-Param-{header} is not the value in the body")
    return None


def _equals(text: str, value: Any) -> bool:
    """Return whether a header's text is `value`; numbers compare as numbers (HEAD-14)."""
    if type(value) is str:
        return text == value
    if type(value) is bool:
        return text == ("true" if value else "false")
    if type(value) is int or type(value) is float:
        return _NUMBER.fullmatch(text) is not None and Decimal(text) == Decimal(value)
    return False


def _value_at(arguments: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if type(arguments) is not dict:
            return None
        arguments = arguments.get(key)
    return arguments


def _meta_version(params: Any) -> Any:
    meta = params.get("_meta") if type(params) is dict else None
    return meta.get(VERSION_KEY) if type(meta) is dict else None


def _accepts(accept: str | None, *types: str) -> bool:
    """Return whether a client accepts all `types`; without `Accept` it accepts none (HEAD-04)."""
    ranges: set[str] = set()
    for item in (accept or "").lower().split(","):
        kind, *attributes = (part.strip(" \t") for part in item.split(";"))
        quality = next((each[2:] for each in attributes if each.startswith("q=")), "1")
        if _NO_QUALITY.fullmatch(quality) is None:
            ranges.add(kind)
    return all(
        not ranges.isdisjoint((kind, f"{kind.partition('/')[0]}/*", "*/*")) for kind in types
    )


def _is_json(content_type: str | None) -> bool:
    kind, *attributes = (part.strip(" \t").lower() for part in (content_type or "").split(";"))
    charsets = [each[8:].strip('"') for each in attributes if each.startswith("charset=")]
    return kind == _JSON_TYPE and all(charset in ("utf-8", "utf8") for charset in charsets)


def _not_acceptable(types: str) -> HttpRefusal:
    return HttpRefusal(406, f"Not acceptable: Accept must list {types}", reason="not_acceptable")


def _find_unsafe(fields: dict[str, str], parameters: dict[str, str]) -> HttpRefusal:
    """Return the refusal that names the header with a forbidden character."""
    values = {name: fields.get(attribute, "") for name, attribute in _FIELDS.items()}
    values |= {_PARAMETER + name.encode(): value for name, value in parameters.items()}
    name = next(name for name, value in values.items() if UNSAFE.search(value) is not None)
    return malformed(name, "holds a character that no header may hold")


def malformed(name: bytes, problem: str) -> HttpRefusal:
    """Return the refusal of a header, which the message names (HEAD-01 to HEAD-03)."""
    shown = name[:64].decode("ascii", "replace")
    if name.startswith(b"mcp-"):
        return _mismatch(f"{shown} {problem}")
    return HttpRefusal(400, f"The header {shown} {problem}", reason="malformed_header")


def _unsupported(version: str) -> HttpRefusal:
    return HttpRefusal(
        400,
        "Unsupported protocol version",
        JsonRpcErrorCode.UNSUPPORTED_PROTOCOL_VERSION,
        "unsupported_protocol_version",
        data=unsupported_data(version),
    )


def _mismatch(problem: str) -> HttpRefusal:
    return HttpRefusal(
        400, f"Header mismatch: {problem}", JsonRpcErrorCode.HEADER_MISMATCH, "header_mismatch"
    )


_SESSION = "mcp-session-id"


@define(eq=False, repr=False)
class HeaderSelection:
    """Reads the allowed headers of every request.

    Args:
        names: the allowed ones, in lower case.
    """

    _names: frozenset[bytes]

    def read(self, raw: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str] | HttpRefusal:
        """Return the allowed headers of a request, or why it is refused (HEAD-16, HEAD-17).

        Args:
            raw: the headers of the ASGI scope, with names in lower case.
        """
        if not self._names:
            return NO_HEADERS
        found: dict[str, str] = {}
        for name, value in raw:
            if name not in self._names:
                continue
            text, key = value.decode("latin-1").strip(" \t"), name.decode()
            if key in found:
                return malformed(name, "stands in the request more than once")
            if UNSAFE.search(text) is not None:
                return malformed(name, "holds a character that no header may hold")
            found[key] = text
        return RequestHeaders(found) if found else NO_HEADERS


def make_header_selection(config: ServerConfig) -> HeaderSelection:
    """Return the selection that `http.request_headers` asks for.

    Raises:
        UsageError: a header among them carries the server's own credentials (HEAD-18).
    """
    names = {name.lower() for name in config.http.request_headers}
    for name in sorted(names & _own_credentials(config)):
        raise UsageError(
            f"http.request_headers: {name} carries credentials for this server, which no handler"
            " gets: let clients send what the handlers need in a header of its own"
        )
    return HeaderSelection(frozenset(name.encode() for name in names))


def _own_credentials(config: ServerConfig) -> set[str]:
    """Return the headers that the server itself takes credentials from."""
    own = {_SESSION}  # with `http.no_auth`, all that it takes to act in the session
    if config.http.api_keys:
        own |= {"authorization", "x-api-key"}
    if config.has_issuer():
        own.add("authorization")
    return own
