"""What a server tells unasked: which of its lists and resources have changed.

In the handshake era it tells of lists by itself, and of a resource after `resources/subscribe`; in
the stateless era of whatever one request, `subscriptions/listen`, asks for, as long as that is
open. A subscription outlives sessions: it is made again in every new one (CLIENT-31).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from attrs import define, field

from ...errors import UsageError
from ..failing.attempt import Attempt
from ..failing.errors import MCPError, NotOfferedError
from .conversation import Told
from .joining import client_closed, shared
from .link import Link
from .session import Session
from .subscription import Subscription

log = logging.getLogger("foundation_rt.client")

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_UPDATED = "notifications/resources/updated"
_LISTS = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}
# Between two tries to be told again, in s: doubled each time, until one has lasted for long.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0


class Perform(Protocol):
    """Performs an operation with a deadline, through the circuit breaker, and maybe again."""

    async def __call__(
        self, what: str, operation: Callable[[Attempt], Awaitable[Session]], timeout: float
    ) -> Session:
        """See `Resilience.perform`."""


@define(eq=False, repr=False)
class Subscriptions:
    """Keeps what is subscribed to alive, whatever becomes of sessions.

    Args:
        perform: performs what is asked as any other request, in the seconds it is given.
        on_list_changed: is told of the lists that changed: `tools`, `prompts`, `resources`.
        wants_all_lists: whether more than the tools is of interest.
    """

    link: Link
    perform: Perform
    on_list_changed: Callable[[str], object]
    wants_all_lists: bool
    _open: dict[Subscription, asyncio.Task[None]] = field(factory=dict, init=False)
    _others: set[asyncio.Task[None]] = field(factory=set, init=False)
    _is_closed: bool = field(default=False, init=False)

    def open(self, uris: tuple[str, ...], timeout: float) -> Subscription:
        """A subscription to the resources `uris`, to be entered.

        Raises:
            UsageError: there are none.
        """
        if not uris:
            raise UsageError("subscribe takes the URI of a resource, or several")
        return Subscription(uris, timeout, self._begin, self._end)

    def began(self, session: Session) -> None:
        """There is a new session: listen to its lists, where that has to be asked for."""
        if session.server.revision.is_stateless:
            wanted = ["tools", "prompts", "resources"] if self.wants_all_lists else ["tools"]
            kinds = [kind for kind in wanted if session.server.can(kind, "listChanged")]
            if kinds:
                self._spawn(self._listen_to_lists(session, kinds))

    def told(self, told: Told) -> None:
        """The server has said something that belongs to no single request."""
        kind = _LISTS.get(told.method)
        if kind is not None:
            self.on_list_changed(kind)
        else:
            _updated(told, self._open)

    async def close(self) -> None:
        """End all of them; there will be no other ones."""
        self._is_closed = True
        tasks = {*self._open.values(), *self._others}
        for subscription in [*self._open]:
            if not subscription.is_established:
                subscription.ended(client_closed())
            subscription.close()
        tasks |= self._others
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, subscription: Subscription) -> None:
        if self._is_closed:
            subscription.ended(client_closed())
            return
        self._open[subscription] = asyncio.create_task(self._keep(subscription))

    def _end(self, subscription: Subscription) -> None:
        task = self._open.pop(subscription, None)
        if task is None:
            return
        task.cancel()
        session = self.link.current
        if session is not None and not session.server.revision.is_stateless:
            self._spawn(self._unsubscribe(session, subscription.uris))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._is_closed:
            work.close()
            return
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _keep(self, subscription: Subscription) -> None:
        """Subscribe in every session there will be, until the subscription is closed."""
        clock = asyncio.get_running_loop().time
        pause = _FIRST_PAUSE
        while True:
            began = clock()
            try:
                await self._follow(subscription)
            except Exception as error:  # what is no MCPError is a mistake, of this program's
                may_pass = isinstance(error, MCPError) and error.retryable
                if not (subscription.is_established and may_pass):
                    subscription.ended(error)
                    return
                log.info("the subscription is made again in %g s: %s", pause, error)
            if clock() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _follow(self, subscription: Subscription) -> None:
        """Subscribe, and return when the session, or what it was asked to listen to, has ended."""
        streams: list[asyncio.Task[None]] = []

        async def subscribe(attempt: Attempt) -> Session:
            attempt.is_idempotent = True
            attempt.admit()
            session = attempt.session = await self.link.session()
            if not session.server.can("resources", "subscribe"):
                raise NotOfferedError("resources.subscribe")
            if session.server.revision.is_stateless:
                attempt.was_sent = True
                await _listen_to_resources(session, subscription, streams)
            else:
                for uri in subscription.uris:
                    await session.request("resources/subscribe", {"uri": uri}, attempt)
            return session

        try:
            session = await self.perform("the subscription", subscribe, subscription.timeout)
            subscription.established()
            await (streams[-1] if streams else session.ended.wait())
        finally:
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)

    async def _unsubscribe(self, session: Session, uris: Sequence[str]) -> None:
        """The handshake era: what nobody wants any more; where it fails, changes are ignored."""
        try:
            async with asyncio.timeout(_FIRST_PAUSE):
                for uri in uris:
                    # Somebody may have come back to it while the one before was answered.
                    if not any(uri in each.uris for each in self._open):
                        await session.request("resources/unsubscribe", {"uri": uri}, Attempt())
        except (MCPError, TimeoutError) as error:
            log.debug("not unsubscribed: %s", error)

    async def _listen_to_lists(self, session: Session, kinds: Sequence[str]) -> None:
        """Listen as long as the session lasts; a server that will not tell is not asked again."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await _listen(session, {f"{kind}ListChanged": True for kind in kinds}, self.told)
            except MCPError as error:
                if not error.retryable:
                    log.info("the server does not tell of changes: %s", error.message)
                    return
            await asyncio.sleep(pause)
            if not session.is_usable:
                return  # the next one listens by itself
            pause = min(2 * pause, _LONGEST_PAUSE)
            for kind in kinds:  # nobody knows what has changed meanwhile
                self.on_list_changed(kind)


def _updated(told: Told, subscriptions: Iterable[Subscription]) -> None:
    """Tell those whose resource it is, if it is a change of a resource."""
    uri = told.params.get("uri")
    if told.method == _UPDATED and isinstance(uri, str):
        for subscription in subscriptions:
            if subscription.covers(uri):
                subscription.changed(uri)


async def _listen(
    session: Session, wanted: Mapping[str, Any], hear: Callable[[Told], object]
) -> None:
    """The stateless era: one request, as long as it lasts."""
    attempt = Attempt(on_told=hear)
    await session.request("subscriptions/listen", {"notifications": wanted}, attempt)


async def _listen_to_resources(
    session: Session, subscription: Subscription, streams: list[asyncio.Task[None]]
) -> None:
    """The stateless era: return when the server has confirmed; the stream is added to `streams`."""
    confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def hear(told: Told) -> None:
        if told.method == _ACKNOWLEDGED and not confirmed.done():
            confirmed.set_result(None)
        _updated(told, [subscription])

    stream = shared(_listen(session, {"resourceSubscriptions": [*subscription.uris]}, hear))
    streams.append(stream)
    await asyncio.wait([stream, confirmed], return_when=asyncio.FIRST_COMPLETED)
    if not confirmed.done():
        stream.result()  # raises why there is none
        raise MCPError("E201", "the server ended the subscription before it began")
