"""Numbers on a link: who gave out which, who has received which.

A link is one direction between two agents. Its source numbers its messages 1, 2, 3, ...; its target
notes what has come and acknowledges the highest number up to which nothing is missing (AACP-11).
`LinkState` is both ends as one value: in the ledger of the source only the sending half moves, in
that of the target only the receiving half; in a ledger that holds the queues of both agents the two
move together.

Plain functions over values; where they are kept is the business of a store.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import define, field

WINDOW = 4096
"""How far ahead of the first missing number a message is taken: no more pile up behind a gap."""


class Arrival(StrEnum):
    """What a number is to the receiver."""

    NEW = "NEW"
    DUPLICATE = "DUPLICATE"
    BEYOND = "BEYOND"
    """More than `WINDOW` ahead: not taken, and not acknowledged, so it comes again."""


@define(eq=True, repr=True)
class LinkState:
    """Both ends of a link.

    Attributes:
        last_seq: the last number given out.
        acked: the number up to which the target says it has everything; never goes back.
        contiguous: the number up to which everything was received; never goes back.
        ahead: what was received beyond it.
    """

    last_seq: int = 0
    acked: int = 0
    contiguous: int = 0
    ahead: set[int] = field(factory=set)


def allocate(link: LinkState) -> int:
    """Give out the next number (AACP-10)."""
    link.last_seq += 1
    return link.last_seq


def acknowledge(link: LinkState, ack: int) -> range:
    """Take an acknowledgement; return the numbers that it settles.

    One that is old, or beyond what was given out, settles nothing: it neither goes back nor skips
    (AACP-11).
    """
    if not link.acked < ack <= link.last_seq:
        return range(0)
    settled = range(link.acked + 1, ack + 1)
    link.acked = ack
    return settled


def arrive(link: LinkState, seq: int) -> Arrival:
    """Take note of a number that came in, at least 1; `contiguous` moves past every filled gap.

    Where the source is in this ledger too, what was acknowledged is no gap: the target had its
    queue in another ledger then, and that one has it (AACP-42).
    """
    if link.acked > link.contiguous:
        link.contiguous = link.acked
        link.ahead = {ahead for ahead in link.ahead if ahead > link.acked}
    if seq <= link.contiguous or seq in link.ahead:
        return Arrival.DUPLICATE
    if seq > link.contiguous + 1 + WINDOW:
        return Arrival.BEYOND
    link.ahead.add(seq)
    while link.contiguous + 1 in link.ahead:
        link.contiguous += 1
        link.ahead.remove(link.contiguous)
    return Arrival.NEW


def missing(link: LinkState) -> list[int]:
    """The numbers that are known to be missing, in order: below what has come, and not there."""
    if not link.ahead:
        return []
    return [seq for seq in range(link.contiguous + 1, max(link.ahead)) if seq not in link.ahead]
