"""Loading a unit of work under locks, and flushing it in sets.

A batch locks the links and queues that it touches, reads the requests that are known, runs the unit
of work, and writes everything at once: two round trips for a batch of any size.

While the links are locked no other transaction enters anything on them. When another link brings
the same request in the same instant, the database notices, because its key is violated; the
transaction is repeated and then finds the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import define

from ....base.database.postgres import Query, Raced, Transaction
from ....base.shown import Shown
from ...ledger.types import LedgerNews, Link, MessageRecord, OutgoingMessage
from ...ledger.unit_of_work import UnitOfWork, touched_by
from .. import records
from . import statements
from .queue_floors import QueueFloors

NO_NEWS = LedgerNews()


@define(eq=False, repr=False)
class Work(Shown):
    """A transaction of a ledger.

    Attributes:
        transaction: that of the database.
        incarnation: of the ledger.
        tell: returns the queries that tell other processes some news, after the commit.
    """

    transaction: Transaction
    incarnation: int
    tell: Callable[[LedgerNews | None], Sequence[Query]]

    async def load(
        self,
        links: Iterable[Link] = (),
        agents: Iterable[str] = (),
        request_ids: Sequence[str] = (),
        message_ids: Sequence[str] = (),
        sent: Sequence[str] = (),
        vacancy: Query | None = None,
        floors: QueueFloors | None = None,
    ) -> UnitOfWork:
        """Lock links and queues, which are made if they are missing; read requests and messages.

        The requests in `sent` may get their outcomes from other ledgers; they are locked as well.
        `vacancy` is read once the queues are locked, so that nothing is entered there any more, and
        `floors` learn from it.
        """
        names, targets = set(links), set(agents)
        # A statement costs about 0.1 ms, whether it finds something or not.
        queries = [
            statements.lock_links(names) if names else None,
            statements.lock_queues(targets) if targets else None,
            statements.lock_sent(sent) if sent else None,
            statements.requests(request_ids) if request_ids else None,
            statements.messages(message_ids) if message_ids else None,
            vacancy,
        ]
        rows = iter(await self.transaction.ask(*filter(None, queries)))
        linked, queues, settling, known, sent_before, vacant = (
            next(rows) if each else [] for each in queries
        )
        if len(linked) < len(names) or len(queues) < len(targets):
            # In a transaction of their own: made in this one, they would be locked out of order.
            await self.transaction.rollback()
            await self.transaction.commit(*statements.make_rows(names, targets))
            raise Raced
        requests = map(records.request_of, [*settling, *known])
        messages = map(records.message_of, sent_before)
        unit = UnitOfWork(
            self.incarnation,
            links=dict(map(statements.link_of, linked)),
            queues=dict(queues),
            requests={record.request_id: record for record in requests},
            messages={message.message_id: message for message in messages},
        )
        if floors is not None:
            for agent_id, priority, lowest in vacant:
                floors.see_locked(agent_id, priority, lowest, unit.queues[agent_id])
        unit.free = {agent_id for agent_id, *_ in vacant}
        return unit

    async def load_to_append(
        self,
        messages: Sequence[OutgoingMessage],
        vacancy: Query | None = None,
        floors: QueueFloors | None = None,
    ) -> UnitOfWork:
        """Load what messages that are made here touch; `vacancy` and `floors` as in `load`."""
        unit = await self.load(*touched_by(messages), vacancy=vacancy, floors=floors)
        await self.load_held(unit, unit.releases_here(messages))
        return unit

    async def load_held(self, unit: UnitOfWork, links: Mapping[Link, int]) -> None:
        """Lock and read the requests that wait on these links, each up to a number."""
        if links:
            [rows] = await self.transaction.ask(statements.lock_held(links))
            unit.hold(map(records.request_of, rows))

    async def load_response_links(self, unit: UnitOfWork) -> None:
        """Lock the links of the RESPONSEs to the requests that the unit has finished."""
        answered = [record for record in unit.finished.values() if record.needs_response]
        links = [(record.target_agent_id, record.source_agent_id) for record in answered]
        if links:
            unit.links.update((await self.load(links)).links)

    async def flush(self, unit: UnitOfWork, news: LedgerNews = NO_NEWS) -> list[MessageRecord]:
        """Write what was changed, commit and tell; return what has been acknowledged."""
        queries: list[Query] = []
        if unit.added:
            queries.append(statements.ADD_REQUESTS.of_records(unit.added.values()))
        if unit.entered:
            queries.append(statements.ENTER.of_records(unit.entered.values()))
        if unit.finished:
            queries.append(statements.FINISH.of_records(unit.finished.values()))
        if unit.posted:
            queries.append(statements.ADD_MESSAGES.of_records(unit.posted))
        if unit.touched:
            queries.append(statements.write_links({k: unit.links[k] for k in unit.touched}))
        if unit.moved:
            queries.append(statements.WRITE_QUEUES.of((k, unit.queues[k]) for k in unit.moved))
        if unit.acknowledged:
            queries += statements.acknowledge(unit.acknowledged)
        rows = await self.transaction.commit(*queries, then=self.tell(news))
        return list(map(records.message_of, rows[-1])) if unit.acknowledged else []
