"""Where records of tasks are kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from foundation_rt.clock import ManualClock
from foundation_rt.extensions.tasks.record import Event, TaskRecord
from foundation_rt.extensions.tasks.store import MemoryTaskStore

TTL_MS = 1_000
MAX_TASKS = 3
MAX_BYTES = 10


def record(task_id: str) -> TaskRecord:
    return TaskRecord(task_id, None, "then", "then", TTL_MS, 100)


def ended(task: TaskRecord, outcome: bytes) -> TaskRecord:
    following = task.advance(Event.COMPLETE, "now", outcome=outcome)
    assert following is not None
    return following


@pytest.mark.rule("TASK-12")
def test_no_more_tasks_are_kept_than_may_be() -> None:
    store = MemoryTaskStore(ManualClock(), 1, MAX_BYTES)
    assert store.add(record("a"))
    assert not store.add(record("b"))
    assert store.get("b") is None


@pytest.mark.rule("TASK-12")
def test_a_task_is_kept_for_its_time_and_no_longer() -> None:
    clock = ManualClock()
    store = MemoryTaskStore(clock, 1, MAX_BYTES)
    store.add(record("a"))
    assert store.replace(ended(record("a"), b"12345"))
    clock.advance(TTL_MS / 1000 - 0.001)
    assert store.get("a") is not None
    clock.advance(0.001)
    assert store.get("a") is None
    assert not store.replace(record("a"))
    assert store.add(record("b"))
    assert store.replace(ended(record("b"), b"x" * MAX_BYTES))


@pytest.mark.rule("TASK-12")
def test_a_task_that_has_not_ended_is_kept_though_its_time_is_over() -> None:
    clock = ManualClock()
    store = MemoryTaskStore(clock, 1, MAX_BYTES)
    store.add(record("a"))
    clock.advance(TTL_MS)
    assert store.get("a") is not None


@pytest.mark.rule("TASK-12")
def test_an_outcome_without_room_changes_nothing() -> None:
    store = MemoryTaskStore(ManualClock(), 2, MAX_BYTES)
    store.add(record("a"))
    store.add(record("b"))
    assert store.replace(ended(record("a"), b"x" * MAX_BYTES))
    assert not store.replace(ended(record("b"), b"y"))
    kept = store.get("b")
    assert kept is not None
    assert not kept.is_terminal


class StoreMachine(RuleBasedStateMachine):
    """The store beside a dict that forgets nothing it should keep."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = MemoryTaskStore(self.clock, MAX_TASKS, MAX_BYTES)
        self.model: dict[str, tuple[float, TaskRecord]] = {}
        self.count = 0

    def alive(self) -> Iterator[str]:
        now = self.clock.monotonic()
        # Those behind an unfinished task stay until it is over.
        held = False
        for task_id, (expires, task) in self.model.items():
            held = held or expires > now or not task.is_terminal
            if held:
                yield task_id

    @rule()
    def add(self) -> None:
        self.count += 1
        task = record(str(self.count))
        room = len(list(self.alive())) < MAX_TASKS
        self.model = {each: self.model[each] for each in self.alive()}
        assert self.store.add(task) is room
        if room:
            self.model[task.task_id] = (self.clock.monotonic() + TTL_MS / 1000, task)

    @rule(size=st.integers(0, MAX_BYTES + 1), which=st.integers(0, 5))
    def end(self, size: int, which: int) -> None:
        self.model = {each: self.model[each] for each in self.alive()}
        for task_id in list(self.model)[which : which + 1]:
            expires, task = self.model[task_id]
            if task.is_terminal:
                return
            others = sum(len(each.outcome or b"") for _, each in self.model.values())
            outcome = ended(task, b"x" * size)
            fits = others + size <= MAX_BYTES
            assert self.store.replace(outcome) is fits
            if fits:
                self.model[task_id] = (expires, outcome)

    @rule(which=st.integers(0, 5), message=st.text(max_size=3))
    def describe(self, which: int, message: str) -> None:
        self.model = {each: self.model[each] for each in self.alive()}
        for task_id in list(self.model)[which : which + 1]:
            expires, task = self.model[task_id]
            described = evolve(task, message=message)
            assert self.store.replace(described)
            self.model[task_id] = (expires, described)

    @rule(milliseconds=st.sampled_from([1, 400, 999, 1000]))
    def wait(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)

    @invariant()
    def shows_what_was_kept(self) -> None:
        alive = list(self.alive())
        for task_id in map(str, range(1, self.count + 1)):
            expected = self.model[task_id][1] if task_id in alive else None
            assert self.store.get(task_id) is expected
        assert len(self.store) == len(alive) <= MAX_TASKS


TestStore = pytest.mark.rule("TASK-12")(StoreMachine.TestCase)
TestStore.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
