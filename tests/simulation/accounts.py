"""What the witness writes down of links and requests, and what it raises when that disagrees."""

from __future__ import annotations

from attrs import define, field

from foundation_rt.agents.ledger.types import MessageType, RequestState

Outcome = tuple[RequestState, bytes | None, bytes | None]
"""State, result and error of a finished request."""

Message = tuple[MessageType, str | None, bytes]
"""What a number of a link stands for: type, request id and payload."""


class Violation(AssertionError):
    """Something happened that must not.

    Attributes:
        invariant: its short name.
    """

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


@define(eq=False, repr=False)
class SentAccount:
    """The end of a link where its messages are made, in one ledger.

    Attributes:
        messages: what was entered, by number less one.
        acked: the last acknowledgement that the ledger took.
        covered: up to which number the other end, in whichever ledger, has ever had everything.
    """

    messages: list[Message] = field(factory=list)
    acked: int = 0
    covered: int = 0


@define(eq=False, repr=False)
class ArrivedAccount:
    """The end of a link where its messages are executed, in one ledger, for one ledger of theirs.

    Attributes:
        sent: the other end.
        received_up_to, out_of_order: which numbers have come in.
        dead: numbers that first came in as tombstones.
        begun: numbers whose execution has begun.
        last_begun: the highest of them.
        recorded: by number, the execution whose result is recorded.
        executed_as: under which id the message of a number is executed.
        to_repeat: numbers that failed temporarily, with their expiry.
        requeued: numbers that an operator has put behind others.
    """

    sent: SentAccount
    received_up_to: int = 0
    out_of_order: set[int] = field(factory=set)
    dead: set[int] = field(factory=set)
    begun: set[int] = field(factory=set)
    last_begun: int = 0
    recorded: dict[int, int] = field(factory=dict)
    executed_as: dict[int, str] = field(factory=dict)
    to_repeat: dict[int, int] = field(factory=dict)
    requeued: set[int] = field(factory=set)

    def arrive(self, seq: int, low_watermark: int = 1) -> bool:
        """Note that a number has come in; return whether for the first time.

        Args:
            low_watermark: what is below has come to another ledger, which was lost.
        """
        if low_watermark - 1 > self.received_up_to:
            self.received_up_to = low_watermark - 1
        is_new = seq > self.received_up_to and seq not in self.out_of_order
        if is_new:
            self.out_of_order.add(seq)
        while self.received_up_to + 1 in self.out_of_order:
            self.received_up_to += 1
        self.out_of_order = {each for each in self.out_of_order if each > self.received_up_to}
        self.sent.covered = max(self.sent.covered, self.received_up_to)
        return is_new


@define(eq=False, repr=False)
class RequestAccount:
    """What happened to one request in the ledger in which it is executed, in one lifetime.

    Attributes:
        process: which claimed it last, and in which life.
        lease_until_ms: of that claim; None when it was given back.
        runs: the numbers of its executions.
    """

    expires_at_ms: int
    epoch: int = 0
    process: str | None = None
    lease_until_ms: int | None = None
    outcome: Outcome | None = None
    runs: set[int] = field(factory=set)
