"""Thousands of histories with faults: what is promised holds in all, and planted bugs show."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import orjson
import pytest

from tests.lab.sizes import examples, size
from tests.simulation import plants
from tests.simulation.accounts import Violation
from tests.simulation.faults import Fault
from tests.simulation.runner import digest_of, run_some, tell
from tests.simulation.simulator import Simulator

SEEDS = size(examples(1_500), 30_000)
PATIENCE = 3_000.0
CAUGHT_WITHIN = 1_000

Plant = Callable[[pytest.MonkeyPatch], None]

PLANTED: dict[Plant, int] = {
    plants.requests_not_deduplicated: 0,
    plants.numbers_not_deduplicated: 2,
    plants.conflicts_not_seen: 2,
    plants.ack_over_a_gap: 2,
    plants.ack_before_the_ledger: 0,
    plants.outcome_before_the_ledger: 0,
    plants.send_before_the_ledger: 0,
    plants.fence_removed: 95,
    plants.outcome_overwritten: 52,
    plants.lease_ignored: 0,
    plants.lease_not_renewed: 158,
    plants.wall_clock_trusted: 1,
    plants.wrong_clock_ignored: 1,
    plants.seq_reused_after_a_crash: 1,
    plants.tombstone_not_sent: 2,
    plants.tombstone_executed: 2,
    plants.held_not_held: 2,
    plants.incarnation_ignored: 88,
    plants.floor_ignored: 25,
    # of options and schedules
    plants.delay_ignored: 4,
    plants.delayed_request_forgotten: 1,
    plants.urgent_request_beside_another: 24,
    plants.runs_of_a_schedule_left_out: 2,
    # of limits
    plants.workers_counted_for_each_owner: 9,
    plants.lapsed_claims_not_counted: 9,
    plants.rate_by_the_clock_of_a_process: 4,
    plants.starts_counted_from_a_windows_part: 4,
    # found by the simulation
    plants.lost_claim_passed_over: 9,
    plants.doubt_not_followed_up: 306,
    plants.retried_request_overtaken: 35,
    plants.claims_cross_releases: 94,
    plants.entered_request_passed_over: 18,
    plants.entered_request_never_given_back: 18,
    # found in PostgreSQL
    plants.late_release_taken_for_a_failure: 33,  # its failure is a TimeoutError
    plants.stall_taken_for_a_failure: 33,
}
"""And the first seed that catches each. Where a change has moved it, it is hunted again."""

CAUGHT_BY_ONE_FAULT: dict[Plant, tuple[int, tuple[Fault, ...]]] = {
    plants.locked_item_dropped: (5, (Fault.FROZEN,)),
    plants.unanswered_operation_not_repeated: (0, (Fault.CUT_OFF,)),
    plants.lapsed_claim_taken_before_a_live_one: (2074, (Fault.SHORT_HOLE, Fault.SLOW_STORE)),
    plants.lapsed_claims_left_to_their_owner: (69, (Fault.SHORT_HOLE, Fault.SLOW_STORE)),
    plants.leases_renewed_on_the_loop_only: (5, (Fault.BLOCKED, Fault.SLOW_EXECUTOR)),
    plants.wall_clock_trusted: (4, (Fault.CLOCK_FORWARD,)),
    plants.cancelled_claim_not_fenced: (12, (Fault.CANCELLED,)),
    plants.finished_request_cancelled: (0, (Fault.CANCELLED,)),
    plants.requeued_under_its_old_epoch: (2, (Fault.REQUEUED,)),
}
"""And the seed, and the faults of sick processes and of an operator that catch each alone."""


def simulate(*words: str, hash_seed: str = "random") -> str:
    """Return the output of `python -m tests.simulation`, without coverage, which is slow."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *words],
        capture_output=True,
        env=environment | {"PYTHONHASHSEED": hash_seed},
        timeout=PATIENCE,
        text=True,
    )
    assert not done.stderr
    return done.stdout


@pytest.mark.rule("AACP-01", "AACP-02", "AACP-03", "AACP-04", "AACP-10", "AACP-11", "AACP-12")
@pytest.mark.rule(
    "AACP-13", "AACP-63", "AACP-14", "AACP-16", "AACP-17", "AACP-18", "AACP-19", "AACP-20"
)
@pytest.mark.rule("AACP-21", "AACP-22", "AACP-23", "AACP-24", "AACP-25", "AACP-26", "AACP-27")
@pytest.mark.rule("AACP-07", "AACP-56", "AACP-30", "AACP-41", "AACP-46")
@pytest.mark.rule("AACP-120", "AACP-121", "AACP-122", "AACP-123", "AACP-124", "AACP-140")
def test_what_is_promised_holds_whatever_goes_wrong() -> None:
    report = orjson.loads(simulate("--json", "--seeds", str(SEEDS)))
    assert report["failures"] == []
    assert report["seeds"] == SEEDS
    never = [fault for fault, strikes in report["strikes"].items() if not strikes]
    assert not never
    assert len(report["strikes"]) == len(Fault) >= 15


def test_some_histories_under_measurement() -> None:
    assert run_some(range(20)).failures == []


def test_a_long_history() -> None:
    assert run_some(range(3), requests=200).failures == []


def test_a_seed_says_everything() -> None:
    seeds = size(10, 40)
    words = ("--digests", "--seeds", str(seeds))
    once, again = (simulate(*words, hash_seed=each) for each in ("1", "2"))
    assert once == again
    digests = once.split()
    assert len(set(digests)) == seeds
    assert [digest_of(seed) for seed in range(3)] == digests[:3]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda each: each.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    seed, violation = first_violation(PLANTED[plant])
    if plant in (plants.late_release_taken_for_a_failure, plants.stall_taken_for_a_failure):
        assert violation.invariant == "stall"
    again = violation_of(seed)
    assert str(again) == str(violation)


@pytest.mark.rule("AACP-90", "AACP-112", "AACP-114")
@pytest.mark.parametrize("plant", CAUGHT_BY_ONE_FAULT, ids=lambda each: each.__name__)
def test_a_planted_bug_is_caught_by_its_fault_alone(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, faults = CAUGHT_BY_ONE_FAULT[plant]
    with monkeypatch.context() as patch:
        plant(patch)
        seed, violation = first_violation(recorded, faults)
        assert str(violation_of(seed, faults)) == str(violation)
    assert violation_of(seed, faults) is None


def first_violation(
    recorded: int, faults: tuple[Fault, ...] | None = None
) -> tuple[int, Violation]:
    """Return what a recorded seed violates, or else the first seed that violates anything."""
    for seed in (recorded, *range(CAUGHT_WITHIN)):
        violation = violation_of(seed, faults)
        if violation is not None:
            return seed, violation
    pytest.fail(f"not caught within {CAUGHT_WITHIN} seeds")


def violation_of(seed: int, faults: tuple[Fault, ...] | None = None) -> Violation | None:
    try:
        Simulator(seed, faults=faults).run()
    except Violation as violation:
        return violation
    return None


def test_a_failing_seed_is_told_and_can_be_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    plants.ack_over_a_gap(monkeypatch)
    seed, violation = first_violation(PLANTED[plants.ack_over_a_gap])
    story = tell(seed)
    assert f"make simulate SEED={seed}" in story
    assert f"Violation: {violation}" in story
    assert "topology" in story
    assert " receive " in story
    assert run_some([seed]).failures[0].why == f"Violation: {violation}"


def test_a_seed_that_holds_is_told_as_well() -> None:
    assert "all that must hold held" in simulate("--seed", "1")
