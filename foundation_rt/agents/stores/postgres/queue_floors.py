"""Floors of queues: claims read from there, and pass over nothing that is gone (AACP-172).

While a transaction is open elsewhere, a dump for instance, PostgreSQL keeps the index entries of
all requests that left their queues since it began, and every claim would read them again.

A position is the last one of its queue when it is given out, whatever its priority, and positions
are committed in their order (AACP-22). So what one statement reads as the lowest position of a
queue, or of a priority in it, is never undercut later. That holds for the database that was read: a
copy of it that takes over may lack the last transactions, and gives their positions out again. So
floors belong to the connection through which they were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import define, field

from ....base.database.postgres import Row
from ....base.shown import Shown

STEP = 8
"""Floors are read again when a queue has gone on by so many positions; it costs a statement."""
_MAX_QUEUES = 10_000

Level = tuple[str, int, int]
"""An agent, a priority, and the floor that is known of it."""


@define(eq=False, repr=False)
class _Queue(Shown):
    """The floors of the queue of one agent.

    Attributes:
        floors: by priority, up to the highest one that was seen: no request is at a lower position.
        seen: the highest position that was read; what is entered later has a higher one.
        read_at: what `seen` was when the floors were read.
    """

    floors: list[int] = field(factory=lambda: [0], init=False)
    seen: int = field(default=0, init=False)
    read_at: int = field(default=-STEP, init=False)


@define(eq=False, repr=False)
class QueueFloors(Shown):
    """The floors that were read through one connection."""

    _queues: dict[str, _Queue] = field(factory=dict, init=False)

    def of(self, agents: Iterable[str]) -> list[list[int]]:
        """Return the floors of each agent, by priority."""
        return [self._queues[each].floors if each in self._queues else [0] for each in agents]

    def outdated(self, agents: Iterable[str]) -> list[Level]:
        """Return the floors that are to be read again, before `learn` is called."""
        queues = [(each, self._queues[each]) for each in agents if each in self._queues]
        return [
            (agent_id, priority, floor)
            for agent_id, queue in queues
            if queue.seen >= queue.read_at + STEP
            for priority, floor in enumerate(queue.floors)
        ]

    def learn(self, lowest: Sequence[Row]) -> None:
        """Take the lowest position of each agent and priority, None if there is none."""
        for agent_id, priority, position in lowest:
            queue = self._queues[agent_id]
            floor = queue.seen if position is None else position
            queue.floors[priority] = max(floor, queue.floors[priority])
            queue.read_at = queue.seen

    def see_locked(
        self, agent_id: str, priority: int, lowest: int | None, last_position: int
    ) -> None:
        """Note the lowest position of a priority, None if there is none, in a queue that is locked.

        The last position is that which was given out last in the queue.
        """
        self.see(agent_id, priority, last_position)
        queue = self._queues[agent_id]
        queue.floors[priority] = last_position + 1 if lowest is None else lowest
        queue.read_at = queue.seen

    def see(self, agent_id: str, priority: int, position: int) -> None:
        """Note a request of a queue, which was read after what `learn` was given."""
        if len(self._queues) >= _MAX_QUEUES and agent_id not in self._queues:
            self._queues.clear()
        queue = self._queues.setdefault(agent_id, _Queue())
        queue.floors += [0] * (priority + 1 - len(queue.floors))
        queue.seen = max(queue.seen, position)
