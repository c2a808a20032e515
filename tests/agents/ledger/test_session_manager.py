"""Numbers on a link: against a model that remembers every number it was ever given."""

from __future__ import annotations

from itertools import pairwise

import pytest
from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from foundation_rt.agents.ledger.session_manager import (
    WINDOW,
    LinkState,
    SequenceStatus,
    acknowledge,
    allocate,
    missing,
    record_arrival,
    record_local_arrival,
)
from tests.lab.sizes import examples

INCARNATION = 0


def received(*numbers: int) -> LinkState:
    link = LinkState()
    for seq in numbers:
        record_arrival(link, seq, INCARNATION)
    return link


# -- taking in


@pytest.mark.rule("AACP-58")
def test_at_most_window_waits_behind_gap_and_refused_number_can_return() -> None:
    assert WINDOW == 4096
    link = LinkState()
    taken = [
        seq
        for seq in range(2, 2 * WINDOW)
        if record_arrival(link, seq, INCARNATION) is SequenceStatus.NEW
    ]
    assert taken == list(range(2, WINDOW + 2))
    assert len(link.out_of_order) == WINDOW
    assert missing(link) == [1]
    assert record_arrival(link, 1, INCARNATION) is SequenceStatus.NEW
    assert (link.received_up_to, link.out_of_order) == (WINDOW + 1, set())
    assert record_arrival(link, WINDOW + 2, INCARNATION) is SequenceStatus.NEW


# -- both, against a model


class Links(RuleBasedStateMachine):
    """A sender and a receiver with a network between them that may do what it likes.

    The model keeps the set of all numbers the receiver has taken, and computes everything from it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sender, self.receiver = LinkState(), LinkState()
        self.sent = 0
        self.taken = set[int]()
        self.settled: list[int] = []
        self.acks = [0]

    def prefix(self) -> int:
        seq = 0
        while seq + 1 in self.taken:
            seq += 1
        return seq

    @rule(count=st.integers(1, 8))
    def send(self, count: int) -> None:
        for _ in range(count):
            self.sent += 1
            assert allocate(self.sender) == self.sent

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """One of those that were sent: late, early or again."""
        if self.sent:
            self.take(data.draw(st.integers(1, self.sent)))

    @rule()
    def fill_the_first_gap(self) -> None:
        if self.prefix() < self.sent:
            self.take(self.prefix() + 1)

    @rule(distance=st.integers(-3, 3), times=st.integers(1, 2))
    def deliver_at_the_edge_of_the_window(self, distance: int, times: int) -> None:
        """Receive a number that was not given out yet, as from a peer that lost its memory."""
        for _ in range(times):
            self.take(self.prefix() + 1 + WINDOW + distance)

    def take(self, seq: int) -> None:
        first_gap = self.prefix() + 1
        found = record_arrival(self.receiver, seq, INCARNATION)
        if seq in self.taken:
            assert found is SequenceStatus.DUPLICATE
        elif seq > first_gap + WINDOW:
            assert found is SequenceStatus.BEYOND
        else:
            assert found is SequenceStatus.NEW
            self.taken.add(seq)

    @rule()
    def acknowledge(self) -> None:
        self.acks.append(self.receiver.received_up_to)
        self.hear(self.acks[-1])

    @rule(data=st.data())
    def hear_an_old_acknowledgement(self, data: st.DataObject) -> None:
        self.hear(data.draw(st.sampled_from(self.acks)))

    @rule(out_of_order=st.integers(1, 100))
    def hear_nonsense(self, out_of_order: int) -> None:
        before = self.sender.acked
        assert list(acknowledge(self.sender, self.sent + out_of_order)) == []
        assert self.sender.acked == before

    def hear(self, ack: int) -> None:
        self.settled += acknowledge(self.sender, ack)

    @invariant()
    def the_receiver_knows_what_it_has(self) -> None:
        prefix = self.prefix()
        assert self.receiver.received_up_to == prefix
        assert self.receiver.out_of_order == {seq for seq in self.taken if seq > prefix}
        assert len(self.receiver.out_of_order) <= WINDOW
        last = max(self.taken, default=0)
        assert missing(self.receiver) == [seq for seq in range(1, last) if seq not in self.taken]

    @invariant()
    def nothing_is_settled_that_was_not_received(self) -> None:
        assert self.settled == list(range(1, self.sender.acked + 1))
        assert set(self.settled) <= self.taken
        assert self.sender.acked <= self.sender.last_seq == self.sent

    @invariant()
    def no_acknowledgement_was_smaller_than_one_before(self) -> None:
        assert all(earlier <= later for earlier, later in pairwise(self.acks))


TestLinks = pytest.mark.rule("AACP-10", "AACP-11", "AACP-59")(Links.TestCase)
TestLinks.settings = settings(max_examples=examples(60), stateful_step_count=40)


@pytest.mark.rule("AACP-42")
def test_number_acknowledged_by_other_ledger_is_no_gap() -> None:
    link = LinkState(last_seq=5, acked=3, received_up_to=0, out_of_order={2, 5})
    assert record_arrival(link, 3, INCARNATION, ours=True) is SequenceStatus.DUPLICATE
    assert record_arrival(link, 6, INCARNATION, ours=True) is SequenceStatus.NEW
    assert (link.received_up_to, link.out_of_order) == (3, {5, 6})
    assert record_arrival(link, 4, INCARNATION, ours=True) is SequenceStatus.NEW
    assert (link.received_up_to, link.out_of_order) == (6, set())


@pytest.mark.rule("AACP-11", "AACP-42")
def test_numbers_received_behind_it_are_passed_at_once() -> None:
    link = LinkState(last_seq=3, acked=3, received_up_to=0, out_of_order={4, 5, 7})
    assert record_arrival(link, 3, INCARNATION, ours=True) is SequenceStatus.DUPLICATE
    assert (link.received_up_to, link.out_of_order) == (5, {7})


# -- ledgers that begin anew


@pytest.mark.rule("AACP-19")
def test_a_newer_incarnation_begins_at_one_and_an_older_one_is_outdated() -> None:
    link = LinkState()
    for seq in (1, 2, 3, 6):
        assert record_arrival(link, seq, 10) is SequenceStatus.NEW
    assert record_arrival(link, 2, 20) is SequenceStatus.NEW
    assert (link.received_up_to, link.out_of_order, link.incarnation) == (0, {2}, 20)
    before = evolve(link, out_of_order={2})
    for seq in (1, 4, 2**63 - 1):
        assert record_arrival(link, seq, 10, seq) is SequenceStatus.OUTDATED
        assert record_arrival(link, seq, 19, ours=True) is SequenceStatus.OUTDATED
    assert link == before
    assert record_arrival(link, 1, 20) is SequenceStatus.NEW
    assert link == LinkState(received_up_to=2, incarnation=20)


@pytest.mark.rule("AACP-19")
def test_incarnation_begins_even_with_refused_number() -> None:
    link = LinkState(received_up_to=5, out_of_order={7}, incarnation=10)
    assert record_arrival(link, WINDOW + 2, 20) is SequenceStatus.BEYOND
    assert link == LinkState(incarnation=20)


@pytest.mark.rule("AACP-69")
def test_numbers_below_low_watermark_are_no_gap() -> None:
    link = LinkState()
    assert record_arrival(link, 9, INCARNATION, 7) is SequenceStatus.NEW
    assert (link.received_up_to, link.out_of_order) == (6, {9})
    assert record_arrival(link, 5, INCARNATION, 3) is SequenceStatus.DUPLICATE
    assert record_arrival(link, 8, INCARNATION, 8) is SequenceStatus.NEW
    assert (link.received_up_to, link.out_of_order) == (9, set())
    assert record_arrival(link, 12, INCARNATION) is SequenceStatus.NEW
    assert record_arrival(link, 13, INCARNATION, 12) is SequenceStatus.NEW
    assert link == LinkState(received_up_to=13)
    assert record_arrival(link, 10**15, INCARNATION, 10**15) is SequenceStatus.NEW
    assert link == LinkState(received_up_to=10**15)


@pytest.mark.rule("AACP-69")
def test_low_watermark_never_passes_its_own_number() -> None:
    link = received(4, 5, 8)
    assert record_arrival(link, 5, INCARNATION, 4) is SequenceStatus.DUPLICATE
    assert (link.received_up_to, link.out_of_order) == (5, {8})
    assert record_arrival(link, 7, INCARNATION, 2**63 - 1) is SequenceStatus.NEW
    assert (link.received_up_to, link.out_of_order) == (8, set())


@pytest.mark.rule("AACP-68", "AACP-42")
def test_number_given_out_in_ledger_of_target_is_of_that_ledger() -> None:
    link = LinkState(last_seq=3, acked=3, received_up_to=9, out_of_order={11}, incarnation=20)
    record_local_arrival(link, allocate(link), 10)
    assert link == LinkState(last_seq=4, acked=4, received_up_to=4, incarnation=10)
    link = LinkState(last_seq=3, acked=1, received_up_to=1, incarnation=10)
    record_local_arrival(link, allocate(link), 10)
    assert link == LinkState(
        last_seq=4, acked=1, received_up_to=1, out_of_order={4}, incarnation=10
    )
