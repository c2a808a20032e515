"""JSON-RPC batches: several messages in one array, answered by one array when all have ended.

Only revision 2025-03-26 has them (RPC-13 to RPC-16). The part of a session knows a pending batch by
the id of each of its requests that has not been answered. Their replies are kept in the batch until
the last of them has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..base.exact_json import compact
from ..base.shown import Shown
from ..kernel.effects import Reply
from ..kernel.session import Session, SessionPart
from ..protocol.jsonrpc import Batch, Request, read
from ..protocol.malformed import invalid
from ..protocol.peer import brings_peer

if TYPE_CHECKING:
    from ..kernel.dispatcher import Dispatcher
    from ..kernel.effects import Effect
    from ..protocol.jsonrpc import Malformed, Message, Notification, RequestId, Response

MAX_BATCH = 1000
"""Messages of one batch: without a limit the answer could be a hundred times as long."""


@define(eq=False, repr=False)
class PendingBatch(Shown):
    """A batch whose requests have not all ended.

    Attributes:
        reading: some of its messages have not been dispatched.
        waiting: the requests that have not been answered.
        lines: the replies so far, in the order of the ends of their requests.
        latest: the request that ended last.
    """

    reading: bool = field(default=True, init=False)
    waiting: set[RequestId] = field(factory=set, init=False)
    lines: list[bytes] = field(factory=list, init=False)
    latest: RequestId | None = field(default=None, init=False)

    def keep_replies(self, effects: list[Effect]) -> list[Effect]:
        """Keep the replies among `effects` for the answer of the batch; return the others."""
        self.lines += [compact(each.line) for each in effects if isinstance(each, Reply)]
        return [each for each in effects if not isinstance(each, Reply)]

    def answer(self) -> list[Effect]:
        """Return the answer once all requests have ended; nothing if the batch has no replies.

        The answer belongs to the request that ended last.
        """
        if self.reading or self.waiting or not self.lines:
            return []
        return [Reply(b"[" + b",".join(self.lines) + b"]", self.latest)]


def requests_of(message: Message) -> list[Request]:
    """Return the requests in a message; none of a batch that is too large and so refused."""
    if isinstance(message, Batch):
        items = message.items if len(message.items) <= MAX_BATCH else []
        return [each for each in map(read, items) if isinstance(each, Request)]
    return [message] if isinstance(message, Request) else []


class PendingBatches(SessionPart):
    """The batches of a session that have not been answered, by the ids of their open requests."""

    __slots__ = ("by_request",)

    def __init__(self) -> None:
        self.by_request: dict[RequestId, PendingBatch] = {}

    def wait(self, batch: PendingBatch, request_id: RequestId) -> None:
        """Add a request of `batch` that will be answered later."""
        batch.waiting.add(request_id)
        self.by_request[request_id] = batch

    def holds(self, request_id: RequestId | None) -> bool:
        """Return whether a request came in a batch that has not been answered."""
        return request_id in self.by_request

    def ended(self, request_id: RequestId, effects: list[Effect]) -> list[Effect]:
        """Keep the reply of a request that came in a batch (RPC-14)."""
        batch = self.by_request.pop(request_id, None)
        if batch is None:
            return effects
        batch.waiting.discard(request_id)
        batch.latest = request_id
        return batch.keep_replies(effects) + batch.answer()

    def close(self) -> None:
        """Drop all batches: nobody is answered any more."""
        self.by_request.clear()


def answer_batch(dispatcher: Dispatcher, session: Session, batch: Batch) -> list[Effect]:
    """Dispatch each message of a batch, and answer them together (RPC-13 to RPC-16)."""
    refusal = refuse_batch(session, batch)
    if refusal is not None:
        return dispatcher.dispatch(session, refusal)
    pending = PendingBatch()
    effects: list[Effect] = []
    for message in map(read_batched, batch.items):
        try:
            found = dispatcher.dispatch(session, message)
        except Exception as error:
            found = dispatcher.report_bug(session, message, error)
        rest = pending.keep_replies(found)
        effects += rest
        if isinstance(message, Request):
            pending.latest = message.id
            if len(rest) == len(found):
                session.part(PendingBatches).wait(pending, message.id)
    pending.reading = False
    return effects + pending.answer()


def refuse_batch(session: Session, batch: Batch) -> Malformed | None:
    """Return why a batch is refused as a whole, if it is (RPC-13, RPC-16)."""
    if session.peer is None or not session.peer.revision.batches:
        return invalid("batch_not_supported", "Batches are not supported: send one message a line.")
    if not batch.items:
        return invalid("empty_batch", "A batch has one message or more.")
    if len(batch.items) > MAX_BATCH:
        return invalid("batch_too_large", f"A batch has {MAX_BATCH} messages or less.")
    return None


def read_batched(item: Any) -> Request | Notification | Response | Malformed:
    """Read a member of a batch; stateless requests may not be one (RPC-16)."""
    message = read(item)
    if isinstance(message, Request) and brings_peer(message.params):
        detail = "The revision that the request names has no batches."
        return invalid("revision_without_batches", detail, message.id, message.params)
    return message
