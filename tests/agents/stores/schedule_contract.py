"""What every ledger does with schedules: a part of the suite that all stores pass."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from foundation_rt.agents.ledger.schedules import (
    Advance,
    EnteredRuns,
    MissedRuns,
    RemoveSchedule,
    Schedule,
    run_id,
)
from foundation_rt.agents.ledger.types import EntryVerdict, RequestState
from tests.agents.stores.contract import NOW, TTL, Ledger, MakeAdapter, outgoing, uuid_of

MINUTE = 60_000


def schedule(name: str = "daily", **more: Any) -> Schedule:
    """Return a schedule that begins now and runs in a minute."""
    made = Schedule(
        name, "* * * * *", "UTC", "b", b'{"n":1}', MissedRuns.ONCE, TTL, NOW, 0, NOW, NOW + MINUTE
    )
    return evolve(made, **more)


def advance(before: Schedule, *runs: int, target: str = "b", local: bool = True) -> Advance:
    """Return the decision to enter runs; the next one follows a minute later."""
    messages = [
        (
            at_ms,
            outgoing(
                run_id(before.name, at_ms),
                "host",
                target,
                local=local,
                message_id=uuid_of(f"{before.name} {at_ms}"),
                expires_at_ms=at_ms + TTL,
            ),
        )
        for at_ms in runs
    ]
    until_ms = runs[-1] if runs else before.decided_until_ms
    return Advance(
        before.name,
        before.revision,
        before.decided_until_ms,
        until_ms,
        until_ms + MINUTE,
        target,
        messages,
    )


def change(ledger: Ledger, *changes: Any) -> list[bool]:
    return ledger.run(ledger.adapter.change_schedules(changes))


def listed(ledger: Ledger, after: str = "", limit: int = 100) -> list[Schedule]:
    return ledger.run(ledger.adapter.list_schedules(after, limit))


def enter(ledger: Ledger, *advances: Advance, now: int = NOW + MINUTE) -> list[EnteredRuns]:
    return list(ledger.run(ledger.adapter.enter_runs(advances, now)))


class ScheduleContract:
    """For every adapter, beside its `StoreContract`."""

    @pytest.mark.rule("AACP-142")
    def test_schedules_are_added_replaced_and_removed(self, ledger: Ledger) -> None:
        assert change(ledger, schedule("b"), schedule("a"), schedule("c")) == [False] * 3
        assert listed(ledger) == [schedule("a"), schedule("b"), schedule("c")]
        assert listed(ledger, "a", 1) == [schedule("b")]
        later = schedule("b", payload=b"2", created_at_ms=NOW + 9, decided_until_ms=NOW + 9)
        assert change(ledger, later, RemoveSchedule("a"), RemoveSchedule("x")) == [
            True,
            True,
            False,
        ]
        assert listed(ledger) == [schedule("b", payload=b"2", revision=1), schedule("c")]

    @pytest.mark.rule("AACP-142")
    def test_changes_of_one_name_happen_in_their_order(self, ledger: Ledger) -> None:
        other = schedule(expression="0 6 * * *")
        assert change(ledger, schedule(), RemoveSchedule("daily"), other) == [False, True, False]
        assert listed(ledger) == [other]
        assert change(ledger, other, RemoveSchedule("daily")) == [True, True]
        assert listed(ledger) == []

    @pytest.mark.rule("AACP-144")
    def test_schedules_are_found_when_they_are_due(self, ledger: Ledger) -> None:
        times = {"late": NOW - 5, "now": NOW, "soon": NOW + 1, "far": NOW + 9, "never": None}
        change(ledger, *(schedule(name, next_run_at_ms=at) for name, at in times.items()))
        due = ledger.run(ledger.adapter.due_schedules(NOW, 100))
        assert [each.name for each in due.schedules] == ["late", "now"]
        assert due.next_at_ms == NOW + 1
        first = ledger.run(ledger.adapter.due_schedules(NOW, 1))
        assert [each.name for each in first.schedules] == ["late"]
        assert ledger.run(ledger.adapter.due_schedules(NOW + 9, 9)).next_at_ms is None

    @pytest.mark.rule("AACP-140", "AACP-143")
    def test_run_is_entered_with_the_schedule_moved_on(self, ledger: Ledger) -> None:
        change(ledger, schedule())
        [entered] = enter(ledger, advance(schedule(), NOW + MINUTE, NOW + 2 * MINUTE))
        assert entered is not None
        assert [(each.verdict, each.seq) for each in entered] == [
            (EntryVerdict.NEW, 1),
            (EntryVerdict.NEW, 2),
        ]
        ids = [run_id("daily", NOW + minutes * MINUTE) for minutes in (1, 2)]
        assert ledger.claim_ids("b") == ids
        [moved] = listed(ledger)
        assert moved == schedule(
            decided_until_ms=NOW + 2 * MINUTE,
            next_run_at_ms=NOW + 3 * MINUTE,
            last_run_at_ms=NOW + 2 * MINUTE,
        )

    @pytest.mark.rule("AACP-140", "AACP-30")
    def test_repeated_and_late_runs_are_refused_and_change_nothing(self, ledger: Ledger) -> None:
        change(ledger, schedule())
        first = advance(schedule(), NOW + MINUTE)
        assert enter(ledger, first, first)[1] is None
        assert enter(ledger, first) == [None]
        assert ledger.last_seq("host", "b") == 1
        # After its record has expired, too: a process was stopped for that long.
        assert ledger.purge(NOW + MINUTE + TTL) == 1
        assert not ledger.has_request(run_id("daily", NOW + MINUTE))
        assert enter(ledger, first, now=NOW + 2 * TTL) == [None]
        assert not ledger.has_request(run_id("daily", NOW + MINUTE))

    @pytest.mark.rule("AACP-140")
    def test_run_of_a_replaced_or_removed_schedule_is_refused(self, ledger: Ledger) -> None:
        change(ledger, schedule(), schedule("other"))
        old = advance(schedule(), NOW + MINUTE)
        change(ledger, schedule(payload=b"2"))
        assert enter(ledger, old) == [None]
        change(ledger, RemoveSchedule("daily"))
        entered = enter(ledger, old, advance(schedule("other"), NOW + MINUTE))
        assert entered[0] is None
        assert entered[1] is not None
        assert ledger.claim_ids("b") == [run_id("other", NOW + MINUTE)]

    @pytest.mark.rule("AACP-144")
    def test_schedule_moves_on_without_runs(self, ledger: Ledger) -> None:
        change(ledger, schedule())
        skipped = evolve(advance(schedule()), until_ms=NOW + 5, next_run_at_ms=None)
        assert enter(ledger, skipped) == [[]]
        [moved] = listed(ledger)
        assert (moved.decided_until_ms, moved.next_run_at_ms) == (NOW + 5, None)
        assert moved.last_run_at_ms is None

    @pytest.mark.rule("AACP-143")
    def test_run_for_another_ledger_is_sent(self, ledger: Ledger) -> None:
        change(ledger, schedule())
        [entered] = enter(ledger, advance(schedule(), NOW + MINUTE, target="far", local=False))
        assert entered is not None
        assert entered[0].message is not None
        assert entered[0].message.request_id == run_id("daily", NOW + MINUTE)
        assert ledger.state(run_id("daily", NOW + MINUTE)) is RequestState.SENT

    @pytest.mark.rule("AACP-143")
    def test_run_whose_id_is_taken_moves_the_schedule_on(self, ledger: Ledger) -> None:
        change(ledger, schedule())
        ledger.append(outgoing(run_id("daily", NOW + MINUTE), payload=b"0", target="c"))
        [entered] = enter(ledger, advance(schedule(), NOW + MINUTE))
        assert entered is not None
        assert entered[0].verdict is EntryVerdict.CONFLICT
        assert enter(ledger, advance(schedule(), NOW + MINUTE)) == [None]


class DurableScheduleContract(ScheduleContract):
    """For adapters whose ledger outlives them."""

    @pytest.mark.rule("AACP-142")
    def test_schedules_outlive_the_adapter(self, ledger: Ledger) -> None:
        change(ledger, schedule(missed=MissedRuns.ALL, timezone="Europe/Berlin"))
        before = listed(ledger)
        ledger.reopen()
        assert listed(ledger) == before


class SharedScheduleContract(DurableScheduleContract):
    """For adapters of which several have one ledger open."""

    @pytest.mark.rule("AACP-140")
    def test_run_is_entered_once_by_many_at_once(self, make: MakeAdapter, ledger: Ledger) -> None:
        change(ledger, *(schedule(f"s{n}") for n in range(5)))
        adapters = [make() for _ in range(4)]

        async def race() -> list[list[EnteredRuns]]:
            import asyncio

            for adapter in adapters:
                await adapter.open()
            advances = [advance(schedule(f"s{n}"), NOW + MINUTE) for n in range(5)]
            results = await asyncio.gather(
                *(adapter.enter_runs(advances, NOW + MINUTE) for adapter in adapters),
                *(adapters[0].change_schedules([schedule(f"s{n}")]) for n in range(5)),
            )
            for adapter in adapters:
                await adapter.close()
            return results[: len(adapters)]

        entered = ledger.run(race())
        wins = [sum(answers[n] is not None for answers in entered) for n in range(5)]
        # All may have passed over a schedule that was just being declared again.
        assert all(count <= 1 for count in wins)
        for n, count in enumerate(wins):
            assert ledger.has_request(run_id(f"s{n}", NOW + MINUTE)) is bool(count)
        assert sum(wins)
