"""Sequence numbers of links: given out by the source, received and acknowledged by the target.

A link is one direction between two agents. Its source numbers its messages 1, 2, 3, ...; its target
records the numbers that it receives and acknowledges the highest number up to which none is missing
(AACP-11). `LinkState` is both ends as one value: in the ledger of the source only the sending half
changes, in the ledger of the target only the receiving half; in a ledger that holds the queues of
both agents the two halves change together.

Numbers belong to one *incarnation* of the source's ledger (`series` on the wire). When that ledger
is lost and another one begins at 1 again, its incarnation is newer, and the receiving half starts
over. When the ledger of the target is lost, the *low watermark* of every message (`floor` on the
wire) says where the new one begins (AACP-19).

Plain functions over values; a store decides where they are kept.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import define, field

WINDOW = 4096
"""The most by which a number may exceed the first missing one: bounds the messages held."""


class SequenceStatus(StrEnum):
    """The receiver's verdict on a sequence number."""

    NEW = "NEW"
    DUPLICATE = "DUPLICATE"
    BEYOND = "BEYOND"
    """More than `WINDOW` past the gap: neither taken nor acknowledged, so it is sent again."""
    OUTDATED = "OUTDATED"
    """From an older incarnation than the newest one seen: neither taken nor acknowledged."""


@define(eq=True, repr=True)
class LinkState:
    """Both ends of a link.

    Attributes:
        last_seq: the last number given out.
        acked: the number up to which the target has acknowledged everything; never decreases.
        received_up_to: the number up to which everything was received; in one incarnation it never
            decreases.
        out_of_order: the numbers received beyond `received_up_to`.
        incarnation: that of the source's ledger, for the two above; 0 before the first number.
    """

    last_seq: int = 0
    acked: int = 0
    received_up_to: int = 0
    out_of_order: set[int] = field(factory=set)
    incarnation: int = 0

    @property
    def low_watermark(self) -> int:
        """The lowest number that is not acknowledged: nothing below it is sent again."""
        return self.acked + 1


def allocate(link: LinkState) -> int:
    """Give out the next number (AACP-10)."""
    link.last_seq += 1
    return link.last_seq


def acknowledge(link: LinkState, ack: int) -> range:
    """Apply an acknowledgement; return the numbers that it settles.

    An old acknowledgement, or one beyond what was given out, settles nothing (AACP-11).
    """
    if not link.acked < ack <= link.last_seq:
        return range(0)
    settled = range(link.acked + 1, ack + 1)
    link.acked = ack
    return settled


def record_arrival(
    link: LinkState, seq: int, incarnation: int, low_watermark: int = 1, *, ours: bool = False
) -> SequenceStatus:
    """Record a received number, at least 1; `received_up_to` moves past every gap that is filled.

    A newer incarnation starts over: what is held of the older one no longer waits for anything
    (AACP-19).

    Args:
        link: changed by the number.
        seq: the number.
        incarnation: that of the ledger that gave it out.
        low_watermark: numbers below it are no gap, since they were acknowledged.
        ours: the source is in this ledger too. Then what was acknowledged to it is no gap either:
            the target had its queue in another ledger, which has those messages (AACP-42).
    """
    if incarnation < link.incarnation:
        return SequenceStatus.OUTDATED
    if incarnation > link.incarnation:
        _start_over(link, incarnation)
    # No message is sent with a number below its low watermark.
    _skip(link, max(min(low_watermark, seq) - 1, link.acked if ours else 0))
    if seq <= link.received_up_to or seq in link.out_of_order:
        return SequenceStatus.DUPLICATE
    if seq > link.received_up_to + 1 + WINDOW:
        return SequenceStatus.BEYOND
    link.out_of_order.add(seq)
    _advance(link)
    return SequenceStatus.NEW


def record_local_arrival(link: LinkState, seq: int, incarnation: int) -> None:
    """Record a number that was just given out here, to an agent whose queue is here too.

    It is acknowledged at once, unless an earlier one is not. If numbers of another ledger have
    come in, the source was there meanwhile; now it is here, whichever ledger is the newer.
    """
    if link.acked == seq - 1:
        link.acked = seq
    if incarnation != link.incarnation:
        _start_over(link, incarnation)
    if seq == link.received_up_to + 1 and not link.out_of_order:
        link.received_up_to = seq  # as is usual: 2 us less
    else:
        record_arrival(link, seq, incarnation, ours=True)


def _start_over(link: LinkState, incarnation: int) -> None:
    link.incarnation, link.received_up_to, link.out_of_order = incarnation, 0, set()


def _skip(link: LinkState, seq: int) -> None:
    """Treat every number up to `seq` as received."""
    if seq > link.received_up_to:
        link.received_up_to = seq
        link.out_of_order = {each for each in link.out_of_order if each > seq}
        _advance(link)


def _advance(link: LinkState) -> None:
    """Advance `received_up_to` while the next number has been received."""
    while link.received_up_to + 1 in link.out_of_order:
        link.received_up_to += 1
        link.out_of_order.remove(link.received_up_to)


def missing(link: LinkState) -> list[int]:
    """Return the numbers known to be missing, in order: those below one that was received."""
    if not link.out_of_order:
        return []
    return [
        seq
        for seq in range(link.received_up_to + 1, max(link.out_of_order))
        if seq not in link.out_of_order
    ]
