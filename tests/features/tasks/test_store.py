"""Where records of tasks are kept."""

from __future__ import annotations

from collections.abc import Iterator
from threading import RLock

import pytest
from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.principal_shares import Limit, LimitReached, Quota
from foundation_rt.features.tasks.record import TaskEvent, TaskRecord
from foundation_rt.features.tasks.store import MemoryTaskStore
from tests.lab.sizes import examples

TTL_MS = 1_000
MAX_TASKS = 3
MAX_BYTES = 10


def record(task_id: str, owner: str | None = None) -> TaskRecord:
    return TaskRecord(task_id, owner, "then", "then", TTL_MS, 100)


def make_store(
    clock: ManualClock,
    max_tasks: int,
    max_bytes: int = MAX_BYTES,
    config: ServerConfig = ServerConfig(),  # noqa: B008 -- it never changes
) -> MemoryTaskStore:
    room = Limit(max_tasks, "places for tasks", "maxTasks", "task_limit")
    size = Limit(max_bytes, "bytes", "maxResultBytes", "task_limit")
    return MemoryTaskStore(clock, Quota(config, room), Quota(config, size), RLock())


def adds(store: MemoryTaskStore, task: TaskRecord) -> bool:
    try:
        store.add(task)
    except LimitReached:
        return False
    return True


def ended(task: TaskRecord, outcome: bytes) -> TaskRecord:
    following = task.advance(TaskEvent.COMPLETE, "now", outcome=outcome)
    assert following is not None
    return following


@pytest.mark.rule("TASK-12")
def test_task_beyond_limit_is_refused() -> None:
    store = make_store(ManualClock(), 1)
    assert adds(store, record("a"))
    assert not adds(store, record("b"))
    assert store.get("b") is None


@pytest.mark.rule("TASK-12")
def test_task_is_kept_until_it_expires() -> None:
    clock = ManualClock()
    store = make_store(clock, 1)
    store.add(record("a"))
    assert store.replace(ended(record("a"), b"12345"))
    clock.advance(TTL_MS / 1000 - 0.001)
    assert store.get("a") is not None
    clock.advance(0.001)
    assert store.get("a") is None
    assert not store.replace(record("a"))
    assert adds(store, record("b"))
    assert store.replace(ended(record("b"), b"x" * MAX_BYTES))


@pytest.mark.rule("TASK-12")
def test_running_task_is_kept_after_its_expiry() -> None:
    clock = ManualClock()
    store = make_store(clock, 1)
    store.add(record("a"))
    clock.advance(TTL_MS)
    assert store.get("a") is not None


@pytest.mark.rule("TASK-12")
def test_outcome_without_room_is_refused_without_change() -> None:
    store = make_store(ManualClock(), 2)
    store.add(record("a"))
    store.add(record("b"))
    assert store.replace(ended(record("a"), b"x" * MAX_BYTES))
    assert not store.replace(ended(record("b"), b"y"))
    kept = store.get("b")
    assert kept is not None
    assert not kept.is_terminal


TWO_KEYS = ServerConfig(http=HttpSection(api_keys=("alice:" + "a" * 16, "bob:" + "b" * 16)))


@pytest.mark.rule("RES-16")
def test_tasks_of_principal_are_bounded_by_its_share() -> None:
    clock = ManualClock()
    store = make_store(clock, 8, config=TWO_KEYS)
    assert adds(store, record("a", "alice"))
    assert adds(store, record("b", "alice"))
    with pytest.raises(LimitReached) as refused:
        store.add(record("c", "alice"))
    assert refused.value.details == {"reason": "principal_share", "maxTasks": 8, "share": 2}
    assert adds(store, record("d", "bob"))
    for task_id in "ab":
        store.replace(ended(record(task_id, "alice"), b"1"))
    clock.advance(TTL_MS / 1000)
    assert adds(store, record("e", "alice"))
    assert store.record_quota.used() == {"alice": 1, "bob": 1}
    assert store.outcome_bytes.used() == {}


@pytest.mark.rule("RES-16")
def test_outcome_bytes_of_principal_are_bounded_by_its_share() -> None:
    store = make_store(ManualClock(), 16, config=TWO_KEYS)
    for task_id, owner in zip("abcd", ("alice", "alice", "alice", "bob"), strict=True):
        store.add(record(task_id, owner))
    assert store.replace(ended(record("a", "alice"), b"x" * 2))
    assert not store.replace(ended(record("b", "alice"), b"x" * 2))
    assert store.replace(ended(record("b", "alice"), b"x"))
    assert store.replace(ended(record("d", "bob"), b"x" * 3))


class StoreMachine(RuleBasedStateMachine):
    """The store beside a dict that forgets nothing it should keep."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = make_store(self.clock, MAX_TASKS)
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
        assert adds(self.store, task) is room
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
TestStore.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
