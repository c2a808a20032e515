"""What a server tells unasked: which of its lists and resources have changed.

In the handshake mode it tells of lists by itself, and of a resource after `resources/subscribe`; in
the stateless mode of whatever one request, `subscriptions/listen`, asks for, as long as that is
open. A subscription outlives sessions: it is made again in every new one (CLIENT-31).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol

from attrs import define, field

from ...errors import UsageError
from ..errors import MCPError, NotOfferedError
from ..resilience.attempt import Attempt
from .pending_requests import NotificationReceived
from .session import Session
from .session_link import SessionLink
from .shared_task import client_closed, shared

# Of one subscription, that nobody has taken yet. What a server tells beyond says no more.
_MAX_CHANGES = 1_000


@define(eq=False, repr=False)
class Subscription:
    """An asynchronous iterator over the URIs of resources that have changed.

    A URI that changed several times before it was taken comes once. After a connection was lost
    every URI counts as changed, because nobody knows. It ends when it is closed, or with an
    `MCPError` when the server does not take it any more.

    Args:
        timeout: seconds that the server has to confirm it.

    Attributes:
        uris: what is subscribed to.
    """

    uris: tuple[str, ...]
    timeout: float
    _begin: Callable[[Subscription], None]
    _end: Callable[[Subscription], None]
    _established: asyncio.Event = field(factory=asyncio.Event, init=False)
    _changed: dict[str, None] = field(factory=dict, init=False)
    _wake: asyncio.Event = field(factory=asyncio.Event, init=False)
    _is_entered: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    _error: Exception | None = field(default=None, init=False)

    async def __aenter__(self) -> Subscription:
        """Subscribe; returns when the server has confirmed.

        Raises:
            MCPError: it refused, or cannot be reached, or did not confirm in time.
            UsageError: this has been entered before.
        """
        if self._is_entered:
            raise UsageError("a subscription is entered once; make another one")
        self._is_entered = True
        self._begin(self)
        try:
            await self._established.wait()
        except BaseException:
            self.close()
            raise
        if self._error is not None:
            self.close()
            raise self._error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> str:
        if not self._is_entered:
            raise UsageError("a subscription is entered first: async with ... as changes")
        while not self._changed:
            if self._error is not None:
                raise self._error
            if self._is_closed:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        uri = next(iter(self._changed))
        del self._changed[uri]
        return uri

    def close(self) -> None:
        """Unsubscribe; whoever iterates gets what has come so far, and the end."""
        if not self._is_closed:
            self._is_closed = True
            self._wake.set()
            self._end(self)

    def changed(self, uri: str) -> None:
        """A resource has changed: `uri`, or something below it."""
        for each in (uri,) if len(self._changed) < _MAX_CHANGES else self.uris:
            self._changed[each] = None
        self._wake.set()

    @property
    def is_established(self) -> bool:
        """Return whether the server has confirmed it once."""
        return self._established.is_set() and self._error is None

    def established(self) -> None:
        """The server has confirmed it; if not for the first time, everything may have changed."""
        if self.is_established:
            for uri in self.uris:
                self.changed(uri)
        self._established.set()

    def ended(self, error: Exception) -> None:
        """The server does not take it, or not any more."""
        self._error = error
        self._established.set()
        self._wake.set()

    def covers(self, uri: str) -> bool:
        """Whether a change of `uri` is one of what was subscribed to: it, or a part of it."""
        return any(uri == each or uri.startswith(each.rstrip("/") + "/") for each in self.uris)


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

    link: SessionLink
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

    def told(self, told: NotificationReceived) -> None:
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
        """The handshake mode: what nobody wants any more; where it fails, changes are ignored."""
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


def _updated(told: NotificationReceived, subscriptions: Iterable[Subscription]) -> None:
    """Tell those whose resource it is, if it is a change of a resource."""
    uri = told.params.get("uri")
    if told.method == _UPDATED and isinstance(uri, str):
        for subscription in subscriptions:
            if subscription.covers(uri):
                subscription.changed(uri)


async def _listen(
    session: Session, wanted: Mapping[str, Any], hear: Callable[[NotificationReceived], object]
) -> None:
    """The stateless mode: one request, as long as it lasts."""
    attempt = Attempt(on_notification=hear)
    await session.request("subscriptions/listen", {"notifications": wanted}, attempt)


async def _listen_to_resources(
    session: Session, subscription: Subscription, streams: list[asyncio.Task[None]]
) -> None:
    """Return when the server has confirmed, in the stateless mode; add the stream to `streams`."""
    confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def hear(told: NotificationReceived) -> None:
        if told.method == _ACKNOWLEDGED and not confirmed.done():
            confirmed.set_result(None)
        _updated(told, [subscription])

    stream = shared(_listen(session, {"resourceSubscriptions": [*subscription.uris]}, hear))
    streams.append(stream)
    await asyncio.wait([stream, confirmed], return_when=asyncio.FIRST_COMPLETED)
    if not confirmed.done():
        stream.result()  # raises why there is none
        raise MCPError("E201", "the server ended the subscription before it began")
