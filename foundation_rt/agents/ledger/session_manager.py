"""Numbers on a link: who gave out which, who has received which.

A link is one direction between two agents. Its source numbers its messages 1, 2, 3, ...; its target
notes what has come and acknowledges the highest number up to which nothing is missing (AACP-11).
`LinkState` is both ends as one value: in the ledger of the source only the sending half moves, in
that of the target only the receiving half; in a ledger that holds the queues of both agents the two
move together.

Numbers are those of one ledger of the source, named by its *series*. When that ledger is lost and
another one begins at 1 again, its series is newer, and the receiving half begins anew with it; when
the ledger of the target is lost, the *floor* that comes with every message says where the new one
begins (AACP-19).

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
    OUTDATED = "OUTDATED"
    """Of an older ledger than the one last heard of: neither taken nor acknowledged."""


@define(eq=True, repr=True)
class LinkState:
    """Both ends of a link.

    Attributes:
        last_seq: the last number given out.
        acked: the number up to which the target says it has everything; never goes back.
        contiguous: the number up to which everything was received; in one series it never goes
            back.
        ahead: what was received beyond it.
        series: that of the ledger whose numbers these two are; 0 before the first.
    """

    last_seq: int = 0
    acked: int = 0
    contiguous: int = 0
    ahead: set[int] = field(factory=set)
    series: int = 0

    @property
    def floor(self) -> int:
        """The lowest number that is not acknowledged: nothing below it is sent any more."""
        return self.acked + 1


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


def arrive(
    link: LinkState, seq: int, series: int, floor: int = 1, *, ours: bool = False
) -> Arrival:
    """Take note of a number that came in, at least 1; `contiguous` moves past every filled gap.

    A newer series begins anew; what is held of the older one waits for nothing any more (AACP-19).

    Args:
        floor: what is below is no gap, for it was acknowledged.
        ours: the source is in this ledger too. Then what was acknowledged to it is no gap either:
            the target had its queue in another ledger, and that one has it (AACP-42).
    """
    if series < link.series:
        return Arrival.OUTDATED
    if series > link.series:
        _begin(link, series)
    # What is sent is never below its floor.
    _skip(link, max(min(floor, seq) - 1, link.acked if ours else 0))
    if seq <= link.contiguous or seq in link.ahead:
        return Arrival.DUPLICATE
    if seq > link.contiguous + 1 + WINDOW:
        return Arrival.BEYOND
    link.ahead.add(seq)
    _pass_what_came(link)
    return Arrival.NEW


def arrive_here(link: LinkState, seq: int, series: int) -> None:
    """Take note of a number that was just given out here, to an agent whose queue is here too.

    It is acknowledged at once, unless an earlier one is not. If the numbers of another ledger have
    come in, the source was there meanwhile: now it is here, whichever ledger is the newer.
    """
    if link.acked == seq - 1:
        link.acked = seq
    if series != link.series:
        _begin(link, series)
    arrive(link, seq, series, ours=True)


def _begin(link: LinkState, series: int) -> None:
    link.series, link.contiguous, link.ahead = series, 0, set()


def _skip(link: LinkState, seq: int) -> None:
    """Miss nothing up to a number."""
    if seq > link.contiguous:
        link.contiguous = seq
        link.ahead = {ahead for ahead in link.ahead if ahead > seq}
        _pass_what_came(link)


def _pass_what_came(link: LinkState) -> None:
    """Move `contiguous` on: the number behind it is never one that has come."""
    while link.contiguous + 1 in link.ahead:
        link.contiguous += 1
        link.ahead.remove(link.contiguous)


def missing(link: LinkState) -> list[int]:
    """The numbers that are known to be missing, in order: below what has come, and not there."""
    if not link.ahead:
        return []
    return [seq for seq in range(link.contiguous + 1, max(link.ahead)) if seq not in link.ahead]
