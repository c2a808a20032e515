"""What is kept for later takes the memory that it is counted for, and not its encoder's buffer."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from statistics import median
from threading import RLock
from types import SimpleNamespace
from typing import Any

import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import TasksSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.exact_json import compact
from foundation_rt.base.logs.logger import StderrSink, StructuredLogger
from foundation_rt.base.principal_shares import Limit, Quota
from foundation_rt.features.batches import PendingBatch
from foundation_rt.features.server_requests.forms import Forms
from foundation_rt.features.tasks.manager import TaskManager
from foundation_rt.features.tasks.store import MemoryTaskStore
from foundation_rt.kernel.effects import Reply
from foundation_rt.kernel.registry.catalog import ChangeNotifier, Registry
from foundation_rt.protocol.jsonrpc import encode
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.programs.pipes import fill, pipe

N = 500
BATCH = 100
MESSAGE = {"text": "x" * 500}
LENGTH = len(encode(MESSAGE))
BESIDE = 2_000
"""More than any place takes for one message besides its bytes; an encoder's buffer has 8 KiB."""


def taken_by(keep: Callable[[int], object]) -> float:
    """Return the bytes that are kept of each of `N` messages after `keep(number)`.

    It is the median of batches: a table of the interpreter, such as that of interned strings, grows
    now and then by megabytes at once.
    """
    keep(0)
    gc.collect()
    taken = []
    tracemalloc.start()
    try:
        for first in range(1, N + 1, BATCH):
            before = tracemalloc.get_traced_memory()[0]
            for number in range(first, first + BATCH):
                keep(number)
            gc.collect()
            taken.append((tracemalloc.get_traced_memory()[0] - before) / BATCH)
        return median(taken)
    finally:
        tracemalloc.stop()


@pytest.mark.rule("RES-19")
@pytest.mark.parametrize("length", [0, 1, 500, 5_000, 100_000])
def test_a_copy_takes_as_much_memory_as_it_is_long(length: int) -> None:
    text = encode("x" * length)
    copies: list[bytes] = []
    assert taken_by(lambda _: copies.append(compact(encode("x" * length)))) < len(text) + 100
    assert set(copies) == {text}


@pytest.mark.rule("RES-19", "TASK-12")
@pytest.mark.parametrize("member", ["result", "error"])
def test_the_outcome_of_a_task_takes_what_it_is_counted_for(member: str) -> None:
    def quota() -> Quota:
        return Quota(ServerConfig(), Limit(10_000_000, "things", "maxTasks", "task_limit"))

    clock = ManualClock()
    room = quota()
    store = MemoryTaskStore(clock, room, quota(), RLock())
    ids = map(str, range(N + 1))
    manager = TaskManager(clock, TasksSection(), store, quota(), ids.__next__, lambda record: [])
    call: Any = SimpleNamespace(principal=None)
    outcome = {**MESSAGE, "resultType": "complete", "message": "failed"}

    def settle(number: int) -> None:
        task = manager.open(call, RLock())
        manager.settle(task, Reply(encode({"id": number, member: outcome}), number))

    assert taken_by(settle) < LENGTH + BESIDE
    assert len(store) == N + 1


@pytest.mark.rule("RES-19", "RESUME-04")
def test_events_in_memory_take_what_they_are_counted_for() -> None:
    from foundation_rt.http.event_store import MemoryEventStore, SessionRecord

    store = MemoryEventStore(ManualClock(), 10_000, 60_000)
    store.open("session", SessionRecord(None, "2025-11-25"))
    trail = store.begin("session")
    each = taken_by(lambda _: trail.record(encode(MESSAGE)))
    assert each <= store.size / (N + 1)


@pytest.mark.rule("RES-19", "RESUME-06")
def test_events_that_wait_for_redis_take_what_they_are_counted_for() -> None:
    pytest.importorskip("redis")
    from foundation_rt.http.event_store import SessionRecord
    from foundation_rt.http.event_store_redis import RedisEventStore

    logger: Any = None
    store = RedisEventStore("redis://127.0.0.1:1", logger, 10_000, 60_000, 60_000)
    store.open("session", SessionRecord(None, "2025-11-25"))
    trail = store.begin("session")
    assert taken_by(lambda _: trail.record(encode(MESSAGE))) < LENGTH + BESIDE
    assert store.backlog_bytes > (N + 1) * LENGTH


@pytest.mark.rule("RES-19")
def test_entries_of_a_list_are_kept_in_their_own_size() -> None:
    thing: Any = SimpleNamespace(scopes=frozenset(), visible=None, wire=lambda revision: MESSAGE)
    table: Registry[Any] = Registry(ChangeNotifier("things"))
    revision = REVISIONS["2025-11-25"]

    def add_and_show(number: int) -> None:
        table.put(f"{number:04}", thing)
        table.page(None, 10_000, revision)

    add_and_show(0)
    for number in range(1, N + 2):
        table.put(f"{number:04}", thing)
    taken = taken_by(lambda number: table.page(None, number + 1, revision))
    assert taken < LENGTH + BESIDE


@pytest.mark.rule("RES-19")
def test_forms_are_found_by_schemas_kept_in_their_own_size() -> None:
    # A form takes more than its schema, so the keys are weighed alone.
    forms = Forms()
    field = {"type": "string", "description": "x" * 500}
    keys: list[bytes] = []

    def keep(number: int) -> None:
        forms.form({"type": "object", "properties": {f"{number:04}": field}})
        keys.append(forms._made.popitem()[0])

    assert taken_by(keep) < LENGTH + BESIDE
    assert len({*keys}) == N + 1


@pytest.mark.rule("RES-19", "RPC-14")
def test_replies_that_wait_for_the_rest_of_their_batch_are_kept_in_their_own_size() -> None:
    batch = PendingBatch()
    taken = taken_by(lambda number: batch.keep_replies([Reply(encode(MESSAGE), number)]))
    assert taken < LENGTH + BESIDE
    assert len(batch.lines) == N + 1


@pytest.mark.rule("RES-19", "LOG-16")
def test_log_lines_that_nobody_reads_take_what_the_buffer_counts() -> None:
    with pipe() as (_, end):
        fill(end)
        sink = StderrSink(fd=end)
        sink.write(b"first")
        while sink._writer._queue:
            sink._writer.flush(0.01)  # until the thread has taken it, and waits for the reader
        logger = StructuredLogger(sink, ManualClock())
        taken = taken_by(lambda _: logger.info("kept", MESSAGE))
        assert taken < LENGTH + BESIDE
        assert sink.dropped == 0
