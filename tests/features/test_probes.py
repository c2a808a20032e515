"""Functions of an application that are asked for a value: slow, failing, and hanging ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from foundation_rt import UsageError
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.probes import KEEP_SECONDS, Probe, ProbeAnswer
from tests.lab.waiting import block_until, until

PATIENCE_MS = 20_000


def make(function: Any, timeout_ms: int = PATIENCE_MS, accept: Any = None) -> tuple[Any, Any, Any]:
    """Return a probe with its clock and its log."""
    clock, sink = ManualClock(), MemorySink()
    probe = Probe("probe 'it'", function, timeout_ms, accept or (lambda value: value))
    probe.attach(clock, StructuredLogger(sink, clock))
    return probe, clock, sink


def as_coroutine(function: Callable[[], Any]) -> Callable[[], Any]:
    async def coroutine() -> Any:
        await asyncio.sleep(0)
        return function()

    return coroutine


def ask(probe: Probe) -> ProbeAnswer:
    return asyncio.run(probe.ask())


@pytest.mark.rule("OPS-35")
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_answer_is_kept_for_a_second(is_coroutine: bool) -> None:
    values = iter(range(10))

    def function() -> int:
        return next(values)

    probe, clock, sink = make(as_coroutine(function) if is_coroutine else function)
    assert [ask(probe).value for _ in range(3)] == [0, 0, 0]
    clock.advance(KEEP_SECONDS / 2)
    assert ask(probe).value == 0
    clock.advance(KEEP_SECONDS)
    assert ask(probe).value == 1
    assert sink.lines == []


@pytest.mark.rule("OPS-35")
def test_those_who_ask_at_once_share_one_run() -> None:
    go, runs = threading.Event(), []

    def function() -> str:
        runs.append(threading.current_thread())
        assert go.wait(PATIENCE_MS / 1000)
        return "shared"

    async def scenario() -> list[ProbeAnswer]:
        probe, _, _ = make(function)
        asking = [asyncio.ensure_future(probe.ask()) for _ in range(200)]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(*asking)

    assert {answer.value for answer in asyncio.run(scenario())} == {"shared"}
    [thread] = runs
    assert thread.daemon
    assert thread is not threading.current_thread()


@pytest.mark.rule("OPS-35")
def test_function_that_hangs_costs_one_thread_and_no_time() -> None:
    go, runs = threading.Event(), []

    def function() -> str:
        runs.append(1)
        assert go.wait(PATIENCE_MS / 1000)
        return "late"

    probe, clock, sink = make(function, timeout_ms=1)
    before = threading.active_count()
    try:
        for _ in range(100):
            assert ask(probe).problem == "timeout"
            assert probe.ask_blocking().problem == "timeout"
            clock.advance(10)
        assert len(runs) == 1
        assert threading.active_count() == before + 1
    finally:
        go.set()
    answer = block_until(probe.ask_blocking, "it recovers", lambda found: found.problem is None)
    assert answer.value == "late"
    assert [line["message"] for line in sink.lines] == [
        "probe 'it' takes too long",
        "probe 'it' has recovered",
    ]
    assert sink.lines[0]["timeoutMs"] == 1


@pytest.mark.rule("OPS-35")
def test_coroutine_that_takes_too_long_is_cancelled() -> None:
    ended = []

    async def function() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async def scenario() -> None:
        probe, _, _ = make(function, timeout_ms=1)
        assert (await probe.ask()).problem == "timeout"
        await until(lambda: ended, "the function is cancelled")
        assert (await probe.ask()).problem == "timeout"

    asyncio.run(scenario())


@pytest.mark.rule("OPS-35")
def test_coroutine_of_a_closed_event_loop_is_run_again() -> None:
    probe, _, _ = make(as_coroutine(lambda: 5))
    loop = asyncio.new_event_loop()
    asking = loop.create_task(probe.ask())
    loop.call_soon(loop.stop)
    loop.run_forever()  # one turn: it has been started
    run = probe._run
    assert run is not None
    assert run.answer is None
    tasks = [asking, run.task]
    loop.close()
    assert ask(probe).value == 5
    for task in tasks:
        task._log_destroy_pending = False
        task.get_coro().close()


@pytest.mark.rule("OPS-35")
@pytest.mark.parametrize("is_coroutine", [False, True])
@pytest.mark.parametrize(
    "error", [LookupError("secret=hunter2"), SystemExit(3), TimeoutError()], ids=repr
)
def test_failure_is_logged_once_and_so_is_its_end(error: BaseException, is_coroutine: bool) -> None:
    failing = [True]

    def function() -> int:
        if failing[0]:
            raise error
        return 1

    probe, clock, sink = make(as_coroutine(function) if is_coroutine else function)
    for _ in range(3):
        answer = ask(probe)
        assert (answer.problem, answer.error) == ("failed", error)
        clock.advance(10)
    failing[0] = False
    assert [ask(probe).value for _ in range(2)] == [1, 1]
    failed, recovered = sink.lines
    assert (failed["level"], failed["message"]) == ("warn", "probe 'it' failed")
    assert failed["error"]["type"] == type(error).__name__
    assert "hunter2" not in str(failed)
    assert (recovered["level"], recovered["message"]) == ("info", "probe 'it' has recovered")


@pytest.mark.rule("OPS-35")
def test_value_that_is_not_accepted_is_a_failure() -> None:
    def accept(value: Any) -> Any:
        raise ValueError(f"{value} is no number")

    probe, _, sink = make(lambda: "text", accept=accept)
    assert ask(probe).problem == "failed"
    assert "text is no number" in str(sink.lines)


@pytest.mark.rule("OPS-35")
def test_without_a_thread_it_fails_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    probe, clock, _ = make(lambda: 1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert probe.ask_blocking().problem == "failed"
    assert probe.ask_blocking().problem == "failed"
    clock.advance(10)
    assert probe.ask_blocking().value == 1


@pytest.mark.rule("OPS-33")
def test_without_an_event_loop_a_coroutine_has_its_latest_answer() -> None:
    probe, clock, _ = make(as_coroutine(lambda: 7))
    assert probe.ask_blocking().problem == "timeout"
    assert ask(probe).value == 7
    clock.advance(100)
    assert probe.ask_blocking().value == 7


@pytest.mark.rule("OPS-35")
def test_asker_that_is_cancelled_leaves_nothing_behind() -> None:
    go = threading.Event()

    async def scenario() -> Probe:
        probe, _, _ = make(lambda: go.wait(PATIENCE_MS / 1000))
        asking = [asyncio.ensure_future(probe.ask()) for _ in range(10)]
        await asyncio.sleep(0)
        for each in asking:
            each.cancel()
        await asyncio.wait(asking)
        return probe  # type: ignore[no-any-return]

    probe = asyncio.run(scenario())
    assert probe._run is not None
    assert probe._run.waiters == []
    go.set()
    assert probe.ask_blocking().value is True


@pytest.mark.rule("OPS-33")
@pytest.mark.parametrize(("function", "timeout_ms"), [(None, 5), (print, 0), (print, 60_001)])
def test_what_is_no_function_or_time_is_refused(function: Any, timeout_ms: int) -> None:
    with pytest.raises(UsageError, match=r"^probe 'it'"):
        make(function, timeout_ms)
