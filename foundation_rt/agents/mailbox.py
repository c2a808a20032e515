"""Whose turn it is: one lane for each agent, first come, first served, and no waiting in a circle.

A message is handled in the task of its sender, once its `Turn` holds the agent's `Lane`. So the
sender's cancellation, its context variables and its exceptions reach the handler and come back by
themselves, and there are no tasks of ours to leak. What holds at any time:

* A lane has at most one holder. The holder gives it back when its handler has really ended, the
  cleanup after a cancellation included.
* It is handed straight to the first that waits, so nobody can push in. A turn that was cancelled
  just when it was handed the lane hands it on: no wake-up is lost.
* While the handler of X waits for a message to Y, X's turn names Y's lane in `awaits`. As only
  holders have handlers and a lane has one holder, these edges between lanes are the whole wait-for
  graph: whoever is about to wait for a lane from which a path leads back to its own would wait for
  ever, and is refused. The path goes through lanes, not ids, so it is found across coordinators.

Nothing here is locked: a lane is used on one event loop only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

from attrs import define, field

from ..errors import AbortError
from .errors import AgentCycleError, AgentQueueFullError

if TYPE_CHECKING:
    import asyncio

    from .messages import AgentContext


@define(eq=False, repr=False)
class Turn:
    """One message's place in the lane of its agent.

    Attributes:
        context: what the handler will be given.
        awaits: the lanes that the handler waits for, once for each message it has under way.
        ended: the handler has ended; a task it left behind no longer acts for it.
    """

    lane: Lane
    context: AgentContext
    awaits: list[Lane] = field(factory=list, init=False)
    ended: bool = field(default=False, init=False)
    _handed: asyncio.Future[None] | None = field(default=None, init=False)

    async def wait(self) -> None:
        """Wait until the lane is handed to this turn.

        Raises:
            AbortError: the abort signal fired first.
            AgentUnregisteredError: or whatever else `give_up` was told.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        self._handed = loop.create_future()
        signal = self.context.abort_signal
        remove = signal.add_callback(
            lambda: loop.call_soon_threadsafe(self.give_up, AbortError(signal.reason))
        )
        try:
            await self._handed
        finally:
            remove()

    def hand_over(self) -> None:
        """Wake whoever waits; one that has given up, and has not run since, hands it on itself."""
        if self._is_waited_for():
            self._future.set_result(None)

    def give_up(self, error: Exception) -> None:
        """Let whoever waits fail with `error`; too late, nothing happens."""
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
class Lane:
    """The turns of one agent: the one that holds it, and those that wait, in order."""

    agent_id: str
    holder: Turn | None = field(default=None, init=False)
    # Ordered, and any of them can leave at once.
    _waiting: OrderedDict[Turn, None] = field(factory=OrderedDict, init=False)

    async def take(self, turn: Turn, max_queue: int) -> None:
        """Wait until `turn` holds the lane; at once if nobody does.

        Args:
            max_queue: how many may wait.

        Raises:
            AgentQueueFullError: so many wait already.
            AbortError, AgentUnregisteredError: as `Turn.wait`.
        """
        if self.holder is None:
            self.holder = turn
            return
        if len(self._waiting) >= max_queue:
            raise AgentQueueFullError(self.agent_id, max_queue)
        self._waiting[turn] = None
        try:
            await turn.wait()
        except BaseException:
            self._waiting.pop(turn, None)
            if self.holder is turn:
                self.release(turn)
            raise

    def release(self, turn: Turn) -> None:
        """`turn`, the holder, has ended: the lane is the next one's."""
        turn.ended = True
        self.holder = None
        if self._waiting:
            self.holder, _ = self._waiting.popitem(last=False)
            self.holder.hand_over()

    def refuse_waiting(self, error: type[Exception]) -> None:
        """Let every turn that waits fail with an `error` of its own, made with the agent's id."""
        while self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            turn.give_up(error(self.agent_id))


_current: ContextVar[Turn | None] = ContextVar("foundation_rt_agent_turn", default=None)


def current_turn() -> Turn | None:
    """The turn whose handler is running here, or has started the task that is."""
    turn = _current.get()
    return None if turn is None or turn.ended else turn


@contextmanager
def acting_for(turn: Turn) -> Iterator[None]:
    """What is sent in this block is sent by the handler of `turn`."""
    token = _current.set(turn)
    try:
        yield
    finally:
        # A coroutine that nobody resumes is closed by the collector, in whatever context it runs.
        with suppress(ValueError):
            _current.reset(token)


@contextmanager
def waiting_for(lane: Lane, sender: Turn | None) -> Iterator[None]:
    """The handler of `sender`, if there is one, waits in this block for a message in `lane`.

    Raises:
        AgentCycleError: it would wait for itself.
    """
    if sender is None:
        yield
        return
    path = _path(lane, sender.lane)
    if path:
        raise AgentCycleError([each.agent_id for each in (*path, lane)])
    sender.awaits.append(lane)
    try:
        yield
    finally:
        sender.awaits.remove(lane)


def _path(start: Lane, goal: Lane) -> list[Lane]:
    """A shortest path along which `start` waits for `goal`, both included; empty if none does."""
    reached: dict[Lane, Lane | None] = {start: None}
    pending = [start]
    for lane in pending:  # which grows meanwhile
        if lane is goal:
            return _way_back(lane, reached)[::-1]
        for following in lane.holder.awaits if lane.holder is not None else ():
            if following not in reached:
                reached[following] = lane
                pending.append(following)
    return []


def _way_back(lane: Lane | None, reached: dict[Lane, Lane | None]) -> list[Lane]:
    way = []
    while lane is not None:
        way.append(lane)
        lane = reached[lane]
    return way
