"""A POST whose head is the same, byte for byte, as one before it on its connection (HTTP-80).

What a head decides was decided then: its parsing, and the checks of Host, Origin and all other
fields that do not depend on the time. Such a request needs no parser, and where its reply is whole
and there within `SOON_SECONDS` no ASGI either: half of the instructions of a call over HTTP.

    data ─► the head is known, and the body is whole ─► `KnownHead.begin`, in place
        ─► its reply is there ──────────────────────► written at once
        ─► it waits ────────────────────────────────► goes on as a task ─► written when it is there
        ─► it says or hears anything else, the client sends more or leaves, the server stops
           ─────────────────────────────────────────► uvicorn's cycle of a request and its response

It is the same code in all ways: the coroutine that answers a request is stepped once in place, and
`KnownRequest` is its client.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from .asgi import sending_securely
from .request import continue_coroutine

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from .asgi import Event, Scope
    from .headers import RequestHead


class KnowingConnection(Protocol):
    """The connection of a request with a known head."""

    def write_reply(self, exchange: KnownRequest, reply: bytes) -> bool:
        """Write the whole response, whose status is 200; return whether nothing was in its way."""

    def cycle_of(self, exchange: KnownRequest) -> RequestResponseCycle:
        """Return the request as the HTTP server has it, from now on.

        Raises:
            RuntimeError: it was answered without.
        """


@define(eq=False, repr=False)
class KnownRequest:
    """One request with a known head, and its response.

    Attributes:
        head: of the request.
        is_answered: whether its response was written as a whole.
        cycle: the request as the HTTP server has it; None while it has none.
    """

    head: KnownHead
    _body: bytes
    _connection: KnowingConnection
    is_answered: bool = field(default=False, init=False)
    cycle: RequestResponseCycle | None = field(default=None, init=False)

    def take_body(self) -> bytes:
        """Return the body, which is not kept (HTTP-28)."""
        body, self._body = self._body, b""
        return body

    def take_reply(self, line: bytes) -> bool:
        """Take a whole reply; return False if it has to be sent by events."""
        self.is_answered = self._connection.write_reply(self, line)
        return self.is_answered

    async def receive(self) -> Event:
        """Return what the HTTP server says: the body was taken before."""
        return await self._connection.cycle_of(self).receive()  # type: ignore[return-value]

    async def send(self, event: Event) -> None:
        """Send an event by the HTTP server."""
        cycle = self._connection.cycle_of(self)
        await sending_securely(self.head.scope, cycle.send)(event)  # type: ignore[arg-type]


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
    _respond: Callable[[KnownRequest], Coroutine[Any, Any, None]]

    def begin(self, exchange: KnownRequest) -> Coroutine[Any, Any, None] | None:
        """Begin to answer a request; return what remains to be done in a task, if anything."""
        responding = self._respond(exchange)
        try:
            waits_for = responding.send(None)
        except StopIteration:
            return None
        except BaseException as error:
            return _fail(error)
        return responding if waits_for is None else _go_on(responding, waits_for)


async def _go_on(responding: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await continue_coroutine(responding, waits_for)


async def _fail(error: BaseException) -> None:
    raise error
