"""Notifications of changed lists, resources and tasks, and subscriptions to them.

In the handshake mode a server notifies of its lists by itself, and of a resource after
`resources/subscribe`. In the stateless mode it notifies of the kinds that `subscriptions/listen`
names, while that request is open. A subscription outlives sessions: it is made again in each new
one (CLIENT-31).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ...base.backoff import exponential_delay
from ...errors import UsageError
from ...protocol.methods import (
    NOTIFICATIONS_PROMPTS_LIST_CHANGED,
    NOTIFICATIONS_RESOURCES_LIST_CHANGED,
    NOTIFICATIONS_RESOURCES_UPDATED,
    NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED,
    NOTIFICATIONS_TASKS,
    NOTIFICATIONS_TOOLS_LIST_CHANGED,
    RESOURCES_SUBSCRIBE,
    RESOURCES_UNSUBSCRIBE,
    SUBSCRIPTIONS_LISTEN,
)
from ..errors import MCPError, NotOfferedError
from ..handlers.server_requests import not_declared
from ..resilience.retries import Attempt
from .pending_requests import NotificationReceived
from .session import ClientSession
from .session_link import SessionLink
from .shared_task import client_closed, shared

if TYPE_CHECKING:
    from ...protocol.revisions import Revision

# Changes of one subscription that wait for the iterator; more would say nothing new.
_MAX_CHANGES = 1_000


@define(eq=False, repr=False)
class Subscription:
    """An asynchronous iterator over the URIs of resources, and the ids of tasks, that have changed.

    One that changed several times before it was read comes once. After a lost connection every one
    counts as changed. The iteration ends when it is closed, or with an `MCPError` when the server
    refuses it.

    Args:
        timeout: seconds that the server has to confirm it.

    Attributes:
        uris: the resources.
        tasks: the ids of the tasks.
    """

    uris: tuple[str, ...]
    tasks: tuple[str, ...]
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

    async def __aexit__(self, *exception: object) -> None:
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
        """Unsubscribe; the iteration gets the changes received so far, then ends."""
        if not self._is_closed:
            self._is_closed = True
            self._wake.set()
            self._end(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Return all that it is about."""
        return (*self.uris, *self.tasks)

    def changed(self, name: str) -> None:
        """Note a change of a task, or of a resource that is covered."""
        for each in (name,) if len(self._changed) < _MAX_CHANGES else self.names:
            self._changed[each] = None
        self._wake.set()

    @property
    def is_established(self) -> bool:
        """Return whether the server has confirmed it."""
        return self._established.is_set() and self._error is None

    def established(self) -> None:
        """Note that the server has confirmed it; if it did before, everything may have changed."""
        if self.is_established:
            for each in self.names:
                self.changed(each)
        self._established.set()

    def ended(self, error: Exception) -> None:
        """End it: the server refuses it."""
        self._error = error
        self._established.set()
        self._wake.set()

    def covers(self, uri: str) -> bool:
        """Return whether `uri` is one of the resources, or below one."""
        return any(uri == each or uri.startswith(each.rstrip("/") + "/") for each in self.uris)


log = logging.getLogger("foundation_rt.client")

_TASKS = "io.modelcontextprotocol/tasks"
_LISTS = {
    NOTIFICATIONS_TOOLS_LIST_CHANGED: "tools",
    NOTIFICATIONS_PROMPTS_LIST_CHANGED: "prompts",
    NOTIFICATIONS_RESOURCES_LIST_CHANGED: "resources",
}
# Between two attempts, in s: doubled each time, and reset after one that lasted.
_FIRST_DELAY_SECONDS = 1.0
_MAX_DELAY_SECONDS = 30.0


class Perform(Protocol):
    """Performs an operation with a deadline, circuit breakers and retries."""

    async def __call__(
        self, what: str, operation: Callable[[Attempt], Awaitable[ClientSession]], timeout: float
    ) -> ClientSession:
        """See `Resilience.perform`."""


@define(eq=False, repr=False)
class ClientSubscriptions:
    """Keeps subscriptions alive across sessions.

    Args:
        perform: performs the requests like any other, with a timeout in s.
        on_list_changed: gets the name of a changed list: `tools`, `prompts`, `resources`.
        wants_all_lists: whether to listen to more lists than the tools.
        observe: gets the notifications of the streams that listen, as they came.
    """

    link: SessionLink
    perform: Perform
    on_list_changed: Callable[[str], object]
    wants_all_lists: bool
    observe: Callable[[NotificationReceived], object]
    _open: dict[Subscription, asyncio.Task[None]] = field(factory=dict, init=False)
    _others: set[asyncio.Task[None]] = field(factory=set, init=False)
    _is_closed: bool = field(default=False, init=False)

    def open(self, uris: tuple[str, ...], tasks: tuple[str, ...], timeout: float) -> Subscription:
        """Return a subscription to resources and tasks, to be entered.

        Raises:
            UsageError: there are none.
        """
        if not uris and not tasks:
            raise UsageError("subscribe takes the URI of a resource, or several")
        return Subscription(uris, tasks, timeout, self._begin, self._end)

    def began(self, session: ClientSession) -> None:
        """Listen to the lists of a new session, where that needs a request."""
        if session.server.revision.is_stateless:
            wanted = ["tools", "prompts", "resources"] if self.wants_all_lists else ["tools"]
            kinds = [kind for kind in wanted if session.server.can(kind, "listChanged")]
            if kinds:
                self._spawn(self._listen_to_lists(session, kinds))

    def notified(self, notification: NotificationReceived) -> None:
        """Handle a notification that belongs to no single request."""
        kind = _LISTS.get(notification.method)
        if kind is not None:
            self.on_list_changed(kind)
        else:
            _updated(notification, self._open)

    def _listened(self, notification: NotificationReceived) -> None:
        """Handle a notification of the stream that listens to lists."""
        if notification.method != NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED:
            self.observe(notification)
            self.notified(notification)

    async def close(self) -> None:
        """End all of them for good."""
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
        self._open[subscription] = asyncio.create_task(self._maintain(subscription))

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

    async def _maintain(self, subscription: Subscription) -> None:
        """Subscribe in each session, until the subscription is closed."""
        clock = asyncio.get_running_loop().time
        attempt = 1
        while True:
            began = clock()
            try:
                await self._follow_session(subscription)
            except Exception as error:  # anything but an MCPError is a bug of this program
                may_pass = isinstance(error, MCPError) and error.retryable
                if not (subscription.is_established and may_pass):
                    subscription.ended(error)
                    return
                log.info("the subscription has ended, and is made again: %s", error)
            if clock() - began > _MAX_DELAY_SECONDS:
                attempt = 1
            await _back_off(attempt)
            attempt += 1

    async def _follow_session(self, subscription: Subscription) -> None:
        """Subscribe, and return when the session or the stream has ended."""
        streams: list[asyncio.Task[None]] = []

        async def subscribe(attempt: Attempt) -> ClientSession:
            attempt.is_idempotent = True
            attempt.admit()
            session = attempt.session = await self.link.session()
            _require(session, subscription)
            if session.server.revision.is_stateless:
                attempt.was_sent = True
                await _listen_to_names(session, subscription, streams, self.observe)
            else:
                for uri in subscription.uris:
                    await session.request(RESOURCES_SUBSCRIBE, {"uri": uri}, attempt)
            return session

        try:
            session = await self.perform("the subscription", subscribe, subscription.timeout)
            subscription.established()
            await (streams[-1] if streams else session.ended.wait())
        finally:
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)

    async def _unsubscribe(self, session: ClientSession, uris: Sequence[str]) -> None:
        """Unsubscribe, in the handshake mode; after a failure, later changes are ignored."""
        try:
            async with asyncio.timeout(_FIRST_DELAY_SECONDS):
                for uri in uris:
                    # A new subscription may have been made meanwhile.
                    if not any(uri in each.uris for each in self._open):
                        await session.request(RESOURCES_UNSUBSCRIBE, {"uri": uri}, Attempt())
        except (MCPError, TimeoutError) as error:
            log.debug("not unsubscribed: %s", error)

    async def _listen_to_lists(self, session: ClientSession, kinds: Sequence[str]) -> None:
        """Listen while the session lasts; a server that refuses is not asked again."""
        for attempt in count(1):
            try:
                await _listen(
                    session, {f"{kind}ListChanged": True for kind in kinds}, self._listened
                )
            except MCPError as error:
                if not error.retryable:
                    log.info("the server does not notify of changes: %s", error.message)
                    return
            await _back_off(attempt)
            if not session.is_usable:
                return  # the next session listens by itself
            for kind in kinds:  # they may have changed meanwhile
                self.on_list_changed(kind)


async def _back_off(attempt: int) -> None:
    """Wait after so many attempts in a row."""
    await asyncio.sleep(exponential_delay(attempt, _FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS))


def _require(session: ClientSession, subscription: Subscription) -> None:
    """Raise `NotOfferedError` unless the server has what a subscription is about."""
    server = session.server
    if subscription.uris and not server.can("resources", "subscribe"):
        raise NotOfferedError("resources.subscribe")
    has_tasks = server.revision.is_stateless and server.can("extensions", _TASKS)
    if subscription.tasks and not has_tasks:
        raise NotOfferedError(f"extensions.{_TASKS}")


def _updated(notification: NotificationReceived, subscriptions: Iterable[Subscription]) -> None:
    """Pass a change of a resource or a task to its subscriptions."""
    task = notification.params.get("taskId")
    if notification.method == NOTIFICATIONS_TASKS and isinstance(task, str):
        for subscription in subscriptions:
            if task in subscription.tasks:
                subscription.changed(task)
    uri = notification.params.get("uri")
    if notification.method == NOTIFICATIONS_RESOURCES_UPDATED and isinstance(uri, str):
        for subscription in subscriptions:
            if subscription.covers(uri):
                subscription.changed(uri)


class _TaskListener:
    """Declares that the client can have tasks, for a request that listens for some."""

    def capabilities(self, revision: Revision) -> dict[str, Any]:
        """Return the extension alone."""
        return {"extensions": {_TASKS: {}}}

    async def handle(self, method: str, params: Any, revision: Revision) -> dict[str, Any]:
        """Refuse every request: nothing is asked while a client listens."""
        raise not_declared()


async def _listen(
    session: ClientSession,
    wanted: Mapping[str, Any],
    on_notification: Callable[[NotificationReceived], object],
) -> None:
    """Listen until the request `subscriptions/listen` ends, in the stateless mode."""
    handlers = _TaskListener() if "taskIds" in wanted else None
    attempt = Attempt(on_notification=on_notification, handlers=handlers)
    await session.request(SUBSCRIPTIONS_LISTEN, {"notifications": wanted}, attempt)


async def _listen_to_names(
    session: ClientSession,
    subscription: Subscription,
    streams: list[asyncio.Task[None]],
    observe: Callable[[NotificationReceived], object],
) -> None:
    """Return when the server has confirmed, in the stateless mode; add the stream to `streams`."""
    confirmed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    members = {"resourceSubscriptions": subscription.uris, "taskIds": subscription.tasks}
    wanted = {member: [*names] for member, names in members.items() if names}

    def on_notification(notification: NotificationReceived) -> None:
        if notification.method != NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED:
            observe(notification)
        elif not confirmed.done():
            confirmed.set_result(notification.params.get("notifications"))
        _updated(notification, [subscription])

    stream = shared(_listen(session, wanted, on_notification))
    streams.append(stream)
    await asyncio.wait([stream, confirmed], return_when=asyncio.FIRST_COMPLETED)
    if not confirmed.done():
        stream.result()  # raises why there is none
        raise MCPError("E201", "the server ended the subscription before it began")
    honoured = confirmed.result()
    known = honoured.get("taskIds") if isinstance(honoured, dict) else None
    for task in subscription.tasks:
        if not isinstance(known, list) or task not in known:
            raise MCPError("E204", "the server does not know the task that was subscribed to")
