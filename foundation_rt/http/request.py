"""One HTTP request: its head, its body, and the response to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attrs import define

from ..kernel.session import NO_HEADERS
from .asgi import CLOSE, CUT_CONNECTION, HOLD_BYTES, UNCOUNTED_BYTES, HttpRefusal, send_json
from .sse import EventBody

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..base.config.http_sections import HttpSection
    from ..protocol.principal import Principal
    from .asgi import RawHeader, Receive, Scope, Send
    from .headers import RequestHead


_T = TypeVar("_T")


class ClientGone(Exception):
    """The client has gone before its request was complete."""


@define(eq=False, repr=False)
class HttpRequest:
    """One request with its head parsed and its principal known.

    Attributes:
        headers: those that handlers get (HEAD-16).
        take_reply: takes a short reply with status 200 instead of `send`, and returns whether it
            does.
    """

    head: RequestHead
    principal: Principal | None
    scope: Scope
    receive: Receive
    send: Send
    headers: Mapping[str, str] = NO_HEADERS
    _take_reply: Callable[[bytes], bool] | None = None

    def open_body(self) -> EventBody:
        """Return a body for the response."""
        extensions = self.scope.get("extensions", {})
        return EventBody(extensions.get(CUT_CONNECTION), extensions.get(HOLD_BYTES))

    async def send_reply(self, status: int, line: bytes, headers: Sequence[RawHeader] = ()) -> None:
        """Send a whole response; a large one counts as unread while it waits (HTTP-29)."""
        is_short = len(line) <= UNCOUNTED_BYTES
        take = self._take_reply if status == 200 and is_short and not headers else None
        if take is not None and take(line):
            return
        hold = self.scope.get("extensions", {}).get(HOLD_BYTES)
        if hold is None or is_short:
            await send_json(self.send, status, line, headers)
            return
        hold(len(line))
        try:
            await send_json(self.send, status, line, headers)
        finally:
            hold(-len(line))


async def read_body(
    head: RequestHead, receive: Receive, settings: HttpSection
) -> bytes | HttpRefusal:
    """Return the body of a request; a refusal if it is too large or too late (AUTH-22, AUTH-23).

    Raises:
        ClientGone: the client has gone.
    """
    max_bytes = settings.max_body_bytes
    length = head.content_length
    if length is not None and length.isdecimal() and int(length[:20]) > max_bytes:
        return too_large(max_bytes)
    reading = _read(receive, max_bytes)
    try:
        waits_for = reading.send(None)
    except StopIteration as whole:
        # It came with the head, as is the rule; a timeout would cost each request 7 us.
        body: bytes | HttpRefusal = whole.value
        return body
    try:
        async with asyncio.timeout(settings.body_timeout_ms / 1000):
            return await continue_coroutine(reading, waits_for)
    except TimeoutError:
        return HttpRefusal(
            408,
            "Request timeout: the body did not come in time",
            reason="slow_body",
            headers=(CLOSE,),
        )


async def _read(receive: Receive, max_bytes: int) -> bytes | HttpRefusal:
    chunks: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        chunk = event.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            return too_large(max_bytes)
        if not event.get("more_body", False):
            return b"".join((*chunks, chunk)) if chunks else chunk
        chunks.append(chunk)


@coroutine
def continue_coroutine(begun: Coroutine[Any, Any, _T], waits_for: Any) -> Generator[Any, Any, _T]:
    """Await `begun`, whose first step was made and returned `waits_for`."""
    while True:
        resume: Callable[[Any], Any] = begun.send
        try:
            given = yield waits_for
        except BaseException as error:
            resume, given = begun.throw, error
        try:
            waits_for = resume(given)
        except StopIteration as done:
            return cast("_T", done.value)


def too_large(max_bytes: int) -> HttpRefusal:
    """Return the refusal of a body of more than `max_bytes` bytes (AUTH-22)."""
    return HttpRefusal(
        413,
        f"Content too large: a body has at most {max_bytes} bytes",
        reason="body_too_large",
        headers=(CLOSE,),
    )
