"""Loading a unit of work under locks, and flushing it in sets.

A batch locks the links and queues that it touches, reads the requests that are known, runs the unit
of work, and writes everything at once: two round trips for a batch of any size.

While the links are locked no other transaction enters anything on them. When another link brings
the same request in the same instant, the database notices, because its key is violated; the
transaction is repeated and then finds the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ....base.database.postgres import Query, Raced, Transaction
from ...ledger.types import Link, MessageRecord, OutgoingMessage
from ...ledger.unit_of_work import UnitOfWork, touched_by
from .. import records
from . import statements
from .queue_floors import QueueFloors


async def load(
    transaction: Transaction,
    incarnation: int,
    links: Iterable[Link],
    agents: Iterable[str] = (),
    request_ids: Sequence[str] = (),
    message_ids: Sequence[str] = (),
    sent: Sequence[str] = (),
    vacancy: Query | None = None,
    floors: QueueFloors | None = None,
) -> UnitOfWork:
    """Lock links and queues, which are made if they are missing, and read requests and messages.

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
    rows = iter(await transaction.ask(*(query for query in queries if query)))
    linked, queues, settling, known, sent_before, vacant = (
        next(rows) if each else [] for each in queries
    )
    if len(linked) < len(names) or len(queues) < len(targets):
        # In a transaction of their own: made in this one, they would be locked out of order.
        await transaction.rollback()
        await transaction.commit(*statements.make_rows(names, targets))
        raise Raced
    requests = map(records.request_of, [*settling, *known])
    messages = map(records.message_of, sent_before)
    unit = UnitOfWork(
        incarnation,
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
    transaction: Transaction,
    incarnation: int,
    messages: Sequence[OutgoingMessage],
    vacancy: Query | None = None,
    floors: QueueFloors | None = None,
) -> UnitOfWork:
    """Load what messages that are made here touch; `vacancy` and `floors` as in `load`."""
    touched = touched_by(messages)
    unit = await load(transaction, incarnation, *touched, vacancy=vacancy, floors=floors)
    await load_held(transaction, unit, unit.releases_here(messages))
    return unit


async def load_held(transaction: Transaction, unit: UnitOfWork, links: Mapping[Link, int]) -> None:
    """Lock and read the requests that wait on these links, each up to a number."""
    if links:
        [rows] = await transaction.ask(statements.lock_held(links))
        unit.hold(map(records.request_of, rows))


async def load_response_links(transaction: Transaction, unit: UnitOfWork) -> None:
    """Lock the links of the RESPONSEs to the requests that the unit has finished."""
    answered = [record for record in unit.finished.values() if record.needs_response]
    links = [(record.target_agent_id, record.source_agent_id) for record in answered]
    if links:
        unit.links.update((await load(transaction, unit.incarnation, links)).links)


async def flush(
    transaction: Transaction, unit: UnitOfWork, then: Sequence[Query] = ()
) -> list[MessageRecord]:
    """Write what was changed and commit; return the messages that have been acknowledged."""
    queries = []
    if unit.added:
        queries.append(statements.add_requests(list(unit.added.values())))
    if unit.entered:
        queries.append(statements.enter(list(unit.entered.values())))
    if unit.finished:
        queries.append(statements.finish(list(unit.finished.values())))
    if unit.posted:
        queries.append(statements.add_messages(unit.posted))
    if unit.touched:
        queries.append(statements.write_links({k: unit.links[k] for k in unit.touched}))
    if unit.moved:
        queries.append(statements.write_queues({k: unit.queues[k] for k in unit.moved}))
    if not unit.acknowledged:
        await transaction.commit(*queries, then=then)
        return []
    queries.append(statements.forget_tombstones(unit.acknowledged))
    queries.append(statements.acknowledge(unit.acknowledged))
    rows = await transaction.commit(*queries, then=then)
    return [records.message_of(row) for row in rows[-1]]
