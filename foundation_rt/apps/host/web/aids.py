"""`/api/...` for the writer and the reader: prompts, resources, colours (HOST-63 to HOST-65)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ....base.exact_json import loads_bounded
from .colours import Colours
from .offers import OfferError, Offers, Room
from .responses import read_body, send_error, send_json

if TYPE_CHECKING:
    from ...coordinator import Coordinator
    from .responses import Receive, Scope, Send

MAX_BODY = 256 * 1024
MAX_COLOURED = 4
"""Texts of one principal at once: one process colours those of all."""
_MAX_NAME = 2_048
_MAX_ARGUMENTS = 50
_MAX_VALUE = 32_768


class _WrongError(Exception):
    """A member of a body that is not as it should be; says what was expected."""


@define(eq=False)
class Aids:
    """The REST interface of what the message field and the transcript need."""

    _offers: Offers
    _colours: Colours
    _colouring: Room = field(factory=lambda: Room(MAX_COLOURED), init=False)

    @classmethod
    def of(cls, coordinator: Coordinator) -> Aids:
        """Return those of a host."""
        return cls(Offers(coordinator), Colours())

    async def respond(
        self, scope: Scope, receive: Receive, send: Send, path: str, principal: str
    ) -> bool:
        """Answer a request; return False if there is nothing at its path."""
        known = path == _OFFERS or path in _POSTED
        if not known:
            return False
        allowed = ("GET", "HEAD") if path == _OFFERS else ("POST",)
        if scope["method"] not in allowed:
            headers = ((b"allow", ", ".join(allowed).encode()),)
            await send_error(send, 405, "method_not_allowed", f"use {allowed[0]}", headers)
            return True
        try:
            if path == _OFFERS:
                found: Any = await self._offers.listed(principal)
            else:
                body = _object(await read_body(receive, MAX_BODY))
                found = await _POSTED[path](self, body, principal)
        except _WrongError as error:
            await send_error(send, 400, "invalid_request", str(error))
        except OfferError as error:
            await send_error(send, error.status, error.code, str(error))
        else:
            await send_json(send, found)
        return True

    async def _prompt(self, body: Mapping[str, Any], principal: str) -> Any:
        server, name = _text(body, "server"), _text(body, "name")
        return await self._offers.prompt(principal, server, name, _texts(body, "arguments"))

    async def _resource(self, body: Mapping[str, Any], principal: str) -> Any:
        return await self._offers.resource(principal, _text(body, "server"), _text(body, "uri"))

    async def _completion(self, body: Mapping[str, Any], principal: str) -> Any:
        server, name, argument = (_text(body, each) for each in ("server", "name", "argument"))
        typed = {"name": argument, "value": _text(body, "value", fewest=0)}
        others = _texts(body, "arguments")
        return {"values": await self._offers.complete(principal, server, name, typed, others)}

    async def _colour(self, body: Mapping[str, Any], principal: str) -> Any:
        code = body.get("code")
        if type(code) is not str:
            raise _WrongError("code: expected a text")
        language = _text(body, "language")
        with self._colouring.of(principal):
            return {"spans": await self._colours.spans(language, code)}

    async def close(self) -> None:
        """End the process that colours."""
        await self._colours.close()


_OFFERS = "/api/offers"
_POSTED = {
    "/api/prompt": Aids._prompt,
    "/api/resource": Aids._resource,
    "/api/completion": Aids._completion,
    "/api/colours": Aids._colour,
}


def _object(body: bytes | None) -> dict[str, Any]:
    try:
        found = None if body is None else loads_bounded(body)
    except orjson.JSONDecodeError:
        found = None
    if type(found) is not dict:
        raise _WrongError(f"the body: expected a JSON object of at most {MAX_BODY} bytes")
    return found


def _text(body: Mapping[str, Any], name: str, fewest: int = 1) -> str:
    value = body.get(name)
    if type(value) is not str or not fewest <= len(value) <= _MAX_NAME:
        raise _WrongError(f"{name}: expected a text of {fewest} to {_MAX_NAME} characters")
    return value


def _texts(body: Mapping[str, Any], name: str) -> dict[str, str]:
    values = body.get(name, {})
    is_right = type(values) is dict and len(values) <= _MAX_ARGUMENTS
    if not is_right or any(
        type(each) is not str or len(each) > _MAX_VALUE for each in values.values()
    ):
        raise _WrongError(
            f"{name}: expected at most {_MAX_ARGUMENTS} texts of at most {_MAX_VALUE} characters"
        )
    return {str(name): str(each) for name, each in values.items()}
