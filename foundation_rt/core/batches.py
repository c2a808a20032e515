"""JSON-RPC batches: several messages in one array, answered by one array when all have ended.

Only revision 2025-03-26 has them (RPC-13 to RPC-16). A batch that has begun is known to its session
under the id of every request in it that is still to be answered; whatever answers one is looked up
there, and kept until the last one has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from ..protocol.jsonrpc import Batch, Request, compact, read
from .effects import Reply

if TYPE_CHECKING:
    from ..protocol.jsonrpc import Message, RequestId
    from .effects import Effect
    from .session import Session

MAX_BATCH = 1000
"""Messages of one batch: a short line could else ask for an answer a hundred times as long."""


@define(eq=False, repr=False)
class PendingBatch:
    """A batch whose requests have not all ended.

    Attributes:
        reading: not all of its messages have been looked at.
        waiting: the requests that have not.
        lines: the answers so far, in the order in which they came to be.
        latest: the request that ended last.
    """

    reading: bool = field(default=True, init=False)
    waiting: set[RequestId] = field(factory=set, init=False)
    lines: list[bytes] = field(factory=list, init=False)
    latest: RequestId | None = field(default=None, init=False)

    def keep_replies(self, effects: list[Effect]) -> list[Effect]:
        """The effects without their replies, which are kept for the answer of the batch."""
        self.lines += [compact(each.line) for each in effects if isinstance(each, Reply)]
        return [each for each in effects if not isinstance(each, Reply)]

    def answer(self) -> list[Effect]:
        """The answer, once nothing is waited for; none where there was nothing to answer.

        It belongs to the request that ended last.
        """
        if self.reading or self.waiting or not self.lines:
            return []
        return [Reply(b"[" + b",".join(self.lines) + b"]", self.latest)]


def requests_of(message: Message) -> list[Request]:
    """The requests that a line brings; of a batch that is too large none, since none is taken."""
    if isinstance(message, Batch):
        items = message.items if len(message.items) <= MAX_BATCH else []
        return [each for each in map(read, items) if isinstance(each, Request)]
    return [message] if isinstance(message, Request) else []


def wait(session: Session, batch: PendingBatch, request_id: RequestId) -> None:
    """A request of `batch` will be answered later."""
    batch.waiting.add(request_id)
    session.batches[request_id] = batch


def gather(session: Session, request_id: RequestId, effects: list[Effect]) -> list[Effect]:
    """What the end of a request leads to, if it is one of a batch (RPC-14).

    Args:
        effects: what it leads to by itself; no reply where it was cancelled.
    """
    batch = session.batches.pop(request_id, None)
    if batch is None:
        return effects
    batch.waiting.discard(request_id)
    batch.latest = request_id
    return batch.keep_replies(effects) + batch.answer()
