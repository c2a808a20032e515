"""Mailboxes: each agent handles one message at a time, first come, first served, without cycles.

A message is handled in the task of its sender, once its `MailboxEntry` holds the agent's `Mailbox`.
So the sender's cancellation, context variables and exceptions reach the handler and come back by
themselves, and no task of ours can leak. At any time:

* A mailbox has at most one holder, or as many as it has `places` (AACP-190). A holder releases it
  when its handler has really ended, the cleanup after a cancellation included.
* It is handed straight to the first entry that waits, so none can overtake. An entry that was
  cancelled just when it was handed the mailbox hands it on: no wake-up is lost.
* While the handler of X waits for a message to Y, X's entry names Y's mailbox in `awaits`. Only
  holders have handlers, so these edges between mailboxes are the whole wait-for graph: a sender
  that is about to wait for a mailbox from which a path leads back to its own would wait for ever,
  and is refused; also where a mailbox has further places, which might all be waiting. The path goes
  through mailboxes, not ids, so it is found across coordinators.

Nothing here is locked: a mailbox is used on one event loop only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

from attrs import define, field

from .errors import AgentCycleError, AgentQueueFullError

if TYPE_CHECKING:
    import asyncio

    from .messages import AgentContext


@define(eq=False, repr=False)
class MailboxEntry:
    """One message's place in the mailbox of its agent.

    Attributes:
        context: what the handler will be given.
        awaits: the mailboxes that the handler waits for, once for each message under way.
        ended: the handler has ended; a task that it left behind no longer acts for it.
    """

    mailbox: Mailbox
    context: AgentContext
    awaits: list[Mailbox] = field(factory=list, init=False)
    ended: bool = field(default=False, init=False)
    _handed: asyncio.Future[None] | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"MailboxEntry({self.mailbox!r}, ended={self.ended})"

    async def wait(self) -> None:
        """Wait until the mailbox is handed to this entry.

        Raises:
            AbortError: the abort signal fired first.
            AgentUnregisteredError: or another error that `give_up` was called with.
        """
        import asyncio

        self._handed = asyncio.get_running_loop().create_future()
        remove = self.context.abort_signal.fail(self._handed)
        try:
            await self._handed
        finally:
            remove()

    def hand_over(self) -> None:
        """Wake the waiting task; one that has given up, and has not run since, hands it on."""
        if self._is_waited_for():
            self._future.set_result(None)

    def give_up(self, error: Exception) -> None:
        """Make the waiting task fail with `error`; do nothing if it is too late."""
        if self._is_waited_for():
            self._future.set_exception(error)

    def _is_waited_for(self) -> bool:
        # A task that was left on a loop that was closed never runs again.
        return not (self._future.done() or self._future.get_loop().is_closed())

    @property
    def _future(self) -> asyncio.Future[None]:
        assert self._handed is not None
        return self._handed


@define(eq=False, repr=False)
class Mailbox:
    """The messages of one agent: the entries that hold it, and those that wait, in order.

    Attributes:
        holders: at most as many as there are places.
    """

    agent_id: str
    places: int = field(default=1, init=False)
    holders: list[MailboxEntry] = field(factory=list, init=False)
    # Ordered, and any of them can leave at once.
    _waiting: OrderedDict[MailboxEntry, None] = field(factory=OrderedDict, init=False)

    def __repr__(self) -> str:
        return f"Mailbox({self.agent_id!r}, held={len(self.holders)})"

    async def take(self, entry: MailboxEntry, max_queue: int) -> None:
        """Wait until `entry` holds the mailbox; a free mailbox is taken at once.

        Args:
            entry: a new entry for this mailbox.
            max_queue: how many entries may wait.

        Raises:
            AgentQueueFullError: so many wait already.
            AbortError, AgentUnregisteredError: as `MailboxEntry.wait`.
        """
        if len(self.holders) < self.places:
            self.holders.append(entry)
            return
        if len(self._waiting) >= max_queue:
            raise AgentQueueFullError(self.agent_id, max_queue)
        self._waiting[entry] = None
        try:
            await entry.wait()
        except BaseException:
            self._waiting.pop(entry, None)
            if entry in self.holders:
                self.release(entry)
            raise

    def release(self, entry: MailboxEntry) -> None:
        """Hand the mailbox to the next entry: `entry`, a holder, has ended."""
        entry.ended = True
        self.holders.remove(entry)
        while self._waiting and len(self.holders) < self.places:
            following, _ = self._waiting.popitem(last=False)
            self.holders.append(following)
            following.hand_over()

    def refuse_waiting(self, error: type[Exception]) -> None:
        """Make every waiting entry fail with an `error` of its own, made with the agent's id."""
        while self._waiting:
            entry, _ = self._waiting.popitem(last=False)
            entry.give_up(error(self.agent_id))


_current: ContextVar[MailboxEntry | None] = ContextVar("foundation_rt_mailbox_entry", default=None)


def current_entry() -> MailboxEntry | None:
    """Return the entry whose handler is running here, or has started the running task."""
    entry = _current.get()
    return None if entry is None or entry.ended else entry


@define(eq=False, repr=False)
class ActingFor:
    """Makes the handler of `entry` the sender of what is sent in a `with` block.

    A class, as `contextmanager` costs every message 0.8 us.
    """

    entry: MailboxEntry
    _token: Token[MailboxEntry | None] = field(init=False)

    def __enter__(self) -> None:
        self._token = _current.set(self.entry)

    def __exit__(self, *exception: object) -> None:
        try:  # noqa: SIM105 - `suppress` costs 0.4 us
            _current.reset(self._token)
        except ValueError:  # the collector closes a coroutine that is never resumed in any context
            pass


def waiting_for(
    mailbox: Mailbox | None, sender: MailboxEntry | None
) -> AbstractContextManager[None]:
    """Record that the handler of `sender` waits in a `with` block for a message in `mailbox`.

    Nothing is recorded without a sender, or for an agent that is not here.

    Raises:
        AgentCycleError: on entry, it would wait for itself.
    """
    if mailbox is None or sender is None:
        return _NOBODY_WAITS
    return _waiting_for(mailbox, sender)


_NOBODY_WAITS = nullcontext()


@contextmanager
def _waiting_for(mailbox: Mailbox, sender: MailboxEntry) -> Iterator[None]:
    path = _path(mailbox, sender.mailbox)
    if path:
        raise AgentCycleError([each.agent_id for each in (*path, mailbox)])
    sender.awaits.append(mailbox)
    try:
        yield
    finally:
        sender.awaits.remove(mailbox)


def _path(start: Mailbox, goal: Mailbox) -> list[Mailbox]:
    """Return a shortest path along which `start` waits for `goal`, both included; or none."""
    reached: dict[Mailbox, Mailbox | None] = {start: None}
    pending = [start]
    for mailbox in pending:  # which grows meanwhile
        if mailbox is goal:
            return _way_back(mailbox, reached)[::-1]
        for following in [each for holder in mailbox.holders for each in holder.awaits]:
            if following not in reached:
                reached[following] = mailbox
                pending.append(following)
    return []


def _way_back(mailbox: Mailbox | None, reached: dict[Mailbox, Mailbox | None]) -> list[Mailbox]:
    way = []
    while mailbox is not None:
        way.append(mailbox)
        mailbox = reached[mailbox]
    return way
