"""Slots, sizes, the count of rejections, telemetry and health."""

from __future__ import annotations

import builtins
import io
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.kernel.execution_limits import RETRY_HINT, ResourceManager, Slot
from foundation_rt.kernel.invocation import Raised, Returned
from foundation_rt.kernel.telemetry import resident_memory_bytes
from tests.lab.servers.core import completions, make_config, make_core, request

PATIENCE = 60.0


def manager(max_slots: int = 10, **tools: Any) -> ResourceManager:
    config = make_config({"resources": {"max_concurrent_executions": max_slots}, "tools": tools})
    return ResourceManager(config, lambda: 1234)


def take(resources: ResourceManager, count: int) -> list[Slot]:
    slots = [resources.try_acquire_slot() for _ in range(count)]
    assert None not in slots
    return [slot for slot in slots if slot is not None]


# -- slots


class Slots(RuleBasedStateMachine):
    """Any order of takes and releases: slots in use are those taken and not released."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = manager(3)
        self.held: list[Slot] = []
        self.released: list[Slot] = []

    @rule()
    def try_to_take(self) -> None:
        slot = self.resources.try_acquire_slot()
        assert (slot is None) == (len(self.held) == 3)
        if slot is not None:
            self.held.append(slot)

    @precondition(lambda self: len(self.held) < 3)
    @rule()
    def wait_for_one_that_is_free(self) -> None:
        slot = self.resources.acquire_slot(PATIENCE)
        assert slot is not None
        self.held.append(slot)

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0))
    def release(self, which: int) -> None:
        slot = self.held.pop(which % len(self.held))
        slot.release()
        self.released.append(slot)

    @precondition(lambda self: self.released)
    @rule(which=st.integers(0))
    def release_again(self, which: int) -> None:
        self.released[which % len(self.released)].release()

    @invariant()
    def in_use_is_what_is_held(self) -> None:
        assert self.resources.concurrent_executions == len(self.held)


TestSlots = pytest.mark.rule("RES-01", "RES-03")(Slots.TestCase)


@pytest.mark.rule("RES-01")
def test_threads_never_exceed_slots_and_leak_none() -> None:
    resources = manager(4)
    most = 0
    start = threading.Barrier(8)

    def work() -> None:
        nonlocal most
        start.wait(PATIENCE)
        for _ in range(500):
            slot = resources.try_acquire_slot()
            if slot is not None:
                most = max(most, resources.concurrent_executions)
                slot.release()

    run_in_threads(work, 8)
    assert most <= 4
    assert resources.concurrent_executions == 0


@pytest.mark.rule("RES-02")
def test_waiting_ends_when_slot_is_released() -> None:
    resources = manager(1)
    [held] = take(resources, 1)
    got: list[Slot | None] = []
    waiting = threading.Thread(target=lambda: got.append(resources.acquire_slot(PATIENCE)))
    waiting.start()
    held.release()
    waiting.join(PATIENCE)
    assert len(got) == 1
    assert got[0] is not None
    assert resources.concurrent_executions == 1


@pytest.mark.rule("RES-02")
def test_waiting_for_slot_times_out() -> None:
    resources = manager(1)
    [held] = take(resources, 1)
    assert resources.acquire_slot(0) is None
    assert resources.acquire_slot(0.001) is None
    held.release()
    assert resources.acquire_slot(0) is not None


@pytest.mark.rule("RES-02")
def test_every_waiting_thread_gets_slot() -> None:
    resources = manager(2)
    turns: list[int] = []

    def work() -> None:
        for _ in range(50):
            slot = resources.acquire_slot(PATIENCE)
            assert slot is not None
            turns.append(1)
            slot.release()

    run_in_threads(work, 6)
    assert len(turns) == 300
    assert resources.concurrent_executions == 0


def run_in_threads(work: Any, count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.rule("RES-02")
def test_slot_of_host_counts_against_calls() -> None:
    core = make_core({"resources": {"max_concurrent_executions": 1}}).handshake()
    core.add("tool")
    held = core.resources.acquire_slot()
    assert held is not None
    [record] = completions(core.call("tool"))
    assert record.fields["errorCode"] == "RESOURCE_EXHAUSTED"
    held.release()
    core.begin("tool")


# -- sizes


@pytest.mark.rule("RES-04")
@pytest.mark.parametrize(
    ("payload", "size"),
    [({}, 2), ({"a": 1}, 7), ({"a": "ä"}, 10), ({"a": "\U0001f600"}, 12), ([1, 2], 5), ("\n", 4)],
)
def test_payload_is_measured_as_compact_json_in_utf8(payload: Any, size: int) -> None:
    assert manager().payload_size(payload) == size


@pytest.mark.rule("RES-04")
@given(st.dictionaries(st.text(), st.integers(0, 9) | st.text(), max_size=5))
def test_payload_may_reach_but_not_exceed_limit(payload: dict[str, Any]) -> None:
    size = len(orjson.dumps(payload))
    assert manager(max_payload_bytes=size).validate_payload_size(payload).valid
    if size > 1:
        refused = manager(max_payload_bytes=size - 1).validate_payload_size(payload)
        assert not refused.valid
        [issue] = refused.errors
        assert issue.message == f"must be at most {size - 1} bytes as JSON; it is {size}"


@pytest.mark.rule("RES-04")
def test_non_json_payload_is_refused_without_exception() -> None:
    refused = manager().validate_payload_size({"a": object()})
    assert not refused.valid
    assert refused.errors[0].message == "must be JSON-serializable"


# -- thresholds


@pytest.mark.rule("RES-05")
@pytest.mark.parametrize("slots", [1, 2, 3, 4, 5, 9, 10, 15, 25, 35, 55, 100])
def test_limits_are_approached_beyond_eighty_percent_exactly(slots: int) -> None:
    resources = manager(slots)
    for in_use in range(slots + 1):
        assert resources.is_approaching_limits() == (in_use * 10 > slots * 8)
        resources.try_acquire_slot()


HEALTH = [
    # in use of 10, delay in ms, rejections in a row
    (0, 0.0, 0, "healthy"),
    (8, 100.0, 2, "healthy"),
    (9, 0.0, 0, "degraded"),
    (9, 100.0, 2, "degraded"),
    (0, 100.001, 0, "degraded"),
    (8, 500.0, 2, "degraded"),
    (9, 500.0, 0, "degraded"),
    (0, 500.001, 0, "unhealthy"),
    (10, 0.0, 0, "unhealthy"),
    (0, 0.0, 3, "unhealthy"),
    (0, 0.0, 4, "unhealthy"),
    (10, 501.0, 3, "unhealthy"),
]


@pytest.mark.rule("RES-08")
@pytest.mark.parametrize(("in_use", "delay_ms", "rejections", "status"), HEALTH)
def test_health_follows_the_thresholds(
    in_use: int, delay_ms: float, rejections: int, status: str
) -> None:
    resources = manager(10)
    resources.event_loop_delay = lambda: delay_ms
    take(resources, in_use)
    for _ in range(rejections):
        resources.record_rejection()
    assert resources.get_health_status() == status


@pytest.mark.rule("RES-08")
@pytest.mark.parametrize(("slots", "in_use", "status"), [(1, 0, "healthy"), (1, 1, "unhealthy")])
def test_server_with_one_slot_is_never_degraded_by_load(
    slots: int, in_use: int, status: str
) -> None:
    resources = manager(slots)
    take(resources, in_use)
    assert resources.get_health_status() == status


@pytest.mark.rule("RES-11")
def test_telemetry_reads_memory_delay_and_slots() -> None:
    resources = manager(3)
    resources.event_loop_delay = lambda: 12.34567
    take(resources, 2)
    assert resources.get_telemetry().to_wire() == {
        "memoryUsageBytes": 1234,
        "eventLoopDelayMs": 12.346,
        "concurrentExecutions": 2,
        "maxConcurrentExecutions": 3,
    }


@pytest.mark.rule("RES-11", "RES-10")
def test_delay_is_zero_without_watched_loop() -> None:
    assert manager().get_telemetry().event_loop_delay_ms == 0.0


def peak_memory_bytes() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory_by_the_kernel() -> int:
    """Another way to ask the same: the line `VmRSS: N kB`."""
    [line] = [
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line
    ]
    return int(line.split()[1]) * 1024


@pytest.mark.rule("RES-11")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the kernel's account")
def test_resident_memory_is_of_this_process_in_bytes() -> None:
    assert resident_memory_bytes() == pytest.approx(memory_by_the_kernel(), rel=0.05)


@pytest.mark.rule("RES-11")
@pytest.mark.parametrize("statm", [None, b"", b"12", b"a b c"])
def test_memory_is_peak_if_kernel_reports_no_other(
    statm: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_instead(*arguments: Any, **options: Any) -> Any:
        if statm is None:
            raise FileNotFoundError("/proc is not mounted")
        return io.BytesIO(statm)

    monkeypatch.setattr(builtins, "open", open_instead)
    at_least = peak_memory_bytes()
    assert at_least <= resident_memory_bytes() <= peak_memory_bytes()


# -- consecutive rejections


@pytest.mark.rule("RES-06", "RES-07")
def test_consecutive_rejections_are_counted_and_have_retry_hint() -> None:
    core = make_core({"tools": {"max_payload_bytes": 10}}).handshake()
    core.add("tool")
    for _ in range(3):
        assert core.resources.get_health_status() == "healthy"
        [record] = completions(core.call("tool", {"a": "x" * 10}))
        assert record.fields["retryHint"] == RETRY_HINT
        assert "backoff" in RETRY_HINT
        assert "jitter" in RETRY_HINT
    assert core.resources.get_health_status() == "unhealthy"


def unhealthy_core() -> Any:
    core = make_core({"tools": {"max_payload_bytes": 20}}).handshake()
    core.add("tool", {"type": "object", "properties": {"a": {"type": "integer"}}})
    for number in range(3):
        core.call("tool", {"a": "x" * 30}, number)
    assert core.resources.get_health_status() == "unhealthy"
    return core


@pytest.mark.rule("RES-06")
@pytest.mark.parametrize(
    "outcome",
    [
        Returned(1),
        Raised(ValueError()),
        Raised(ToolError(ErrorCode.RESOURCE_EXHAUSTED, "the tool's own")),
    ],
    ids=["a result", "an exception", "a handler's own RESOURCE_EXHAUSTED"],
)
@pytest.mark.parametrize("late", [False, True])
def test_other_completion_ends_row_of_rejections(outcome: Any, late: bool) -> None:
    core = unhealthy_core()
    call = core.begin("tool")
    if late:
        core.dispatcher.expire(call)
        assert core.resources.get_health_status() == "unhealthy"
    core.conclude(call, outcome)
    assert core.resources.get_health_status() == "healthy"


@pytest.mark.rule("RES-06", "RES-08")
def test_new_row_of_rejections_starts_at_zero() -> None:
    core = unhealthy_core()
    core.conclude(core.begin("tool"), Returned(1))
    for status in ("healthy", "healthy", "unhealthy"):
        core.call("tool", {"a": "x" * 30})
        assert core.resources.get_health_status() == status


@pytest.mark.rule("RES-06")
@pytest.mark.parametrize(("tool", "arguments"), [("unknown", {}), ("tool", {"a": "x"})])
def test_other_refusal_ends_row_of_rejections(tool: str, arguments: Any) -> None:
    core = unhealthy_core()
    core.call(tool, arguments)
    assert core.resources.get_health_status() == "healthy"


@pytest.mark.rule("RES-06")
def test_protocol_error_does_not_affect_row_of_rejections() -> None:
    core = unhealthy_core()
    core.dispatch(request("tools/call", {"name": 5}))
    core.dispatch(request("unknown"))
    core.dispatch(b"no JSON")
    core.dispatch(request("ping"))
    assert core.resources.get_health_status() == "unhealthy"
