"""Worker threads: as many as there is work for, and no more than there are slots."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.kernel.engine.worker_threads import WorkerPool
from tests.lab.sizes import examples

PATIENCE = 60.0


class Gate:
    """Work that says when it has begun and ends when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self) -> None:
        self.thread = threading.current_thread()
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        self.ended.set()

    def pass_through(self) -> None:
        """Let it end, and wait until it has."""
        self.go_on.set()
        assert self.ended.wait(PATIENCE)


@pytest.mark.rule("CALL-12", "EMBED-03")
def test_pool_without_work_has_no_thread() -> None:
    before = set(threading.enumerate())
    WorkerPool(4)
    assert set(threading.enumerate()) == before


@pytest.mark.rule("CALL-12")
def test_as_many_run_at_once_as_there_may_be_threads_and_the_rest_wait_in_order() -> None:
    pool = WorkerPool(3)
    gates = [Gate() for _ in range(5)]
    for gate in gates:
        pool.submit(gate)
    for gate in gates[:3]:
        assert gate.begun.wait(PATIENCE)
    assert not gates[3].begun.is_set()
    gates[1].pass_through()
    assert gates[3].begun.wait(PATIENCE)
    assert gates[3].thread is gates[1].thread
    assert not gates[4].begun.is_set()
    for gate in gates:
        gate.pass_through()
    assert len({gate.thread for gate in gates}) == 3


@pytest.mark.rule("CALL-12")
def test_thread_that_is_free_is_used_again() -> None:
    pool = WorkerPool(8)
    threads: SimpleQueue[threading.Thread] = SimpleQueue()
    for _ in range(50):
        first = Gate()
        pool.submit(first)
        first.pass_through()
        # It is free once it has said so itself, which a second piece of work does not wait for.
        assert first.thread is not None
        threads.put(first.thread)
    used = {threads.get() for _ in range(50)}
    assert 1 <= len(used) <= 8


@pytest.mark.rule("CALL-12")
@settings(max_examples=examples(30))
@given(limit=st.integers(1, 6), amount=st.integers(0, 40), submitters=st.integers(1, 3))
def test_every_function_runs_once_within_the_thread_limit(
    limit: int, amount: int, submitters: int
) -> None:
    pool = WorkerPool(limit)
    done: SimpleQueue[tuple[int, threading.Thread]] = SimpleQueue()

    def work(number: int) -> Callable[[], None]:
        return lambda: done.put((number, threading.current_thread()))

    def submit(first: int) -> None:
        for number in range(first, amount, submitters):
            pool.submit(work(number))

    threads = [threading.Thread(target=submit, args=(first,)) for first in range(submitters)]
    for thread in threads:
        thread.start()
    finished = [done.get(timeout=PATIENCE) for _ in range(amount)]
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(number for number, _ in finished) == list(range(amount))
    assert len({thread for _, thread in finished}) <= limit
    assert done.empty()


def refuse_to_start(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.rule("ERR-06", "CALL-12")
def test_failure_to_start_a_thread_is_raised_and_later_work_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = WorkerPool(1)
    never: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse_to_start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(lambda: never.append("ran"))
    done = threading.Event()
    pool.submit(done.set)
    assert done.wait(PATIENCE)
    assert never == []


@pytest.mark.rule("ERR-06", "CALL-12")
def test_work_waits_for_existing_threads_when_none_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = WorkerPool(2)
    first, second, third = Gate(), Gate(), Gate()
    pool.submit(first)
    assert first.begun.wait(PATIENCE)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse_to_start)
        pool.submit(second)
    first.pass_through()
    assert second.begun.wait(PATIENCE)
    pool.submit(third)  # the system has recovered
    assert third.begun.wait(PATIENCE)
    assert third.thread is not second.thread is first.thread
    for gate in (second, third):
        gate.pass_through()
