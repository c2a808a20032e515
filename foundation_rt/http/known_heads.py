"""A POST whose head is the same, byte for byte, as one before it on its connection (HTTP-80).

What a head decides was decided then: its parsing, and the checks of Host, Origin and all other
fields that do not depend on the time. Such a request needs no parser, and where its reply is there
at once no ASGI either: two fifths of the instructions of a call over HTTP.

    data ─► the head is known, and the body is whole ─► `KnownHead.begin`, in place
        ─► its reply is there ──────────────────────► written at once
        ─► it waits, or says anything else ─────────► goes on as an ASGI application

It is the same code in both ways: the coroutine that answers a request is stepped once in place, and
`KnownRequest` is its client until the HTTP server has another one for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from .request import continue_coroutine

if TYPE_CHECKING:
    from .asgi import Event, Receive, Scope, Send
    from .headers import RequestHead


@define(eq=False, repr=False)
class KnownRequest:
    """One request and its response, first in place and then as the HTTP server has them.

    Args:
        body: of the request.

    Attributes:
        reply: the body of the whole response, whose status is 200; None while there is none.
        write: writes such a body where the HTTP server has the request, unless it has to be sent
            by events; returns whether it did.
        rest: what remains to be done for the request, if there was no reply in place.
    """

    _body: bytes | None
    reply: bytes | None = field(default=None, init=False)
    write: Callable[[bytes], bool] | None = field(default=None, init=False)
    rest: Awaitable[None] | None = field(default=None, init=False)
    _receive: Receive | None = field(default=None, init=False)
    _send: Send | None = field(default=None, init=False)

    async def receive(self) -> Event:
        """Return the body, and then what the HTTP server says."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self._receive is None:
            await asyncio.sleep(0)
        assert self._receive is not None
        return await self._receive()

    async def send(self, event: Event) -> None:
        """Send an event by the HTTP server."""
        if self._send is None:
            await asyncio.sleep(0)
        assert self._send is not None
        await self._send(event)

    def take(self, line: bytes) -> bool:
        """Take a whole reply; return False if it has to be sent by events."""
        if self.write is not None:
            return self.write(line)
        self.reply = line
        return True

    async def go_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Do the rest as an ASGI application."""
        rest, self.rest = self.rest, None
        assert rest is not None
        self._receive, self._send = receive, send
        await rest


@define(eq=False, repr=False)
class KnownHead:
    """The findings about a head, which hold for each request that has it.

    Args:
        respond: responds to a request with such a head.

    Attributes:
        head, headers, scope: of the first request that had it.
        mount: the path at which the application is mounted.
        fields: the encoded fields that every response has.
    """

    head: RequestHead
    headers: Mapping[str, str]
    scope: Scope
    mount: str
    fields: bytes
    _respond: Callable[[KnownHead, KnownRequest], Coroutine[Any, Any, None]]

    def begin(self, body: bytes) -> KnownRequest:
        """Begin to answer a request with this body, and return how far that came."""
        exchange = KnownRequest(body)
        responding = self._respond(self, exchange)
        try:
            waits_for = responding.send(None)
        except StopIteration:
            pass  # `take` has its reply
        except BaseException as error:
            exchange.rest = _fail(error)
        else:
            exchange.rest = continue_coroutine(responding, waits_for)
        return exchange


async def _fail(error: BaseException) -> None:
    raise error
