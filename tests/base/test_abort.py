"""The abort signal: it fires once, tells everybody, and survives what callbacks do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.abort import AbortSignal
from foundation_rt.errors import AbortError

PATIENCE = 60.0


class Alarm(BaseException):
    """What only a bare `except` or `except BaseException` catches."""


@pytest.mark.rule("TIME-11")
def test_signal_that_has_not_fired_says_so_and_raises_nothing() -> None:
    signal = AbortSignal()
    assert not signal.aborted
    assert signal.reason is None
    signal.raise_if_aborted()


@pytest.mark.rule("TIME-11")
@pytest.mark.parametrize("reason", ["deadline", "cancelled", "disconnected", "shutdown"])
def test_fired_signal_says_why_and_raises(reason: str) -> None:
    signal = AbortSignal()
    assert signal.fire(reason) == []
    assert signal.aborted
    assert signal.reason == reason
    with pytest.raises(AbortError, match=reason):
        signal.raise_if_aborted()


@pytest.mark.rule("TIME-11")
def test_signal_fires_once_and_keeps_its_first_reason() -> None:
    signal = AbortSignal()
    calls: list[str] = []
    signal.add_callback(lambda: calls.append("called"))
    signal.fire("deadline")
    assert signal.fire("disconnected") == []
    assert signal.reason == "deadline"
    assert calls == ["called"]


@pytest.mark.rule("TIME-11")
def test_callbacks_run_in_the_order_in_which_they_came_and_see_the_reason() -> None:
    signal = AbortSignal()
    seen: list[tuple[int, str | None]] = []
    for number in range(3):
        signal.add_callback(lambda number=number: seen.append((number, signal.reason)))  # type: ignore[misc]
    assert seen == []
    signal.fire("cancelled")
    assert seen == [(0, "cancelled"), (1, "cancelled"), (2, "cancelled")]


@pytest.mark.rule("TIME-11")
def test_callback_added_after_firing_runs_at_once_and_once() -> None:
    signal = AbortSignal()
    signal.fire("deadline")
    calls: list[str] = []
    remove = signal.add_callback(lambda: calls.append("called"))
    assert calls == ["called"]
    remove()
    signal.fire("deadline")
    assert calls == ["called"]


@pytest.mark.rule("TIME-11")
def test_callback_can_be_removed_until_it_has_run() -> None:
    signal = AbortSignal()
    calls: list[str] = []
    remove = signal.add_callback(lambda: calls.append("taken back"))
    keep = signal.add_callback(lambda: calls.append("kept"))
    remove()
    remove()
    signal.fire("deadline")
    keep()
    assert calls == ["kept"]


@pytest.mark.rule("TIME-11")
def test_callback_added_twice_is_removed_once() -> None:
    signal = AbortSignal()
    calls: list[str] = []

    def callback() -> None:
        calls.append("called")

    signal.add_callback(callback)
    remove = signal.add_callback(callback)
    remove()
    signal.fire("deadline")
    assert calls == ["called"]


@pytest.mark.rule("TIME-11")
@pytest.mark.parametrize("error", [ValueError("v"), SystemExit(3), Alarm()])
def test_callback_that_raises_does_not_stop_the_others(error: BaseException) -> None:
    signal = AbortSignal()
    calls: list[str] = []

    def raises() -> None:
        raise error

    signal.add_callback(lambda: calls.append("before"))
    signal.add_callback(raises)
    signal.add_callback(lambda: calls.append("after"))
    assert signal.fire("deadline") == [error]
    assert calls == ["before", "after"]


@pytest.mark.rule("TIME-11")
def test_callback_may_use_its_signal() -> None:
    signal = AbortSignal()
    seen: list[str] = []
    removers: list[Callable[[], None]] = []

    def callback() -> None:
        removers[0]()
        signal.fire("again")
        signal.add_callback(lambda: seen.append("added while firing"))
        seen.append("done")

    removers.append(signal.add_callback(callback))
    signal.fire("deadline")
    assert seen == ["added while firing", "done"]


@pytest.mark.rule("TIME-11")
def test_waiting_ends_with_the_reason_when_another_thread_fires() -> None:
    async def main() -> str:
        signal = AbortSignal()
        waiting = asyncio.create_task(signal.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        threading.Thread(target=signal.fire, args=("deadline",)).start()
        async with asyncio.timeout(PATIENCE):
            return await waiting

    assert asyncio.run(main()) == "deadline"


@pytest.mark.rule("TIME-11")
def test_waiting_for_a_signal_that_has_fired_ends() -> None:
    async def main() -> tuple[str, str]:
        signal = AbortSignal()
        signal.fire("cancelled")
        async with asyncio.timeout(PATIENCE):
            return await signal.wait(), await signal.wait()

    assert asyncio.run(main()) == ("cancelled", "cancelled")


@pytest.mark.rule("TIME-11")
def test_all_waiting_coroutines_are_woken() -> None:
    async def main() -> list[str]:
        signal = AbortSignal()
        waiting = [asyncio.create_task(signal.wait()) for _ in range(5)]
        await asyncio.sleep(0)
        signal.fire("shutdown")
        async with asyncio.timeout(PATIENCE):
            return await asyncio.gather(*waiting)

    assert asyncio.run(main()) == ["shutdown"] * 5


@pytest.mark.rule("TIME-11")
def test_removed_waiter_is_not_woken() -> None:
    async def main() -> list[BaseException]:
        signal = AbortSignal()
        given_up = asyncio.create_task(signal.wait())
        leaving = asyncio.create_task(signal.wait())
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        raised = list[BaseException](signal.fire("deadline"))
        # Fired, but cancelled before the loop could say so.
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        return raised

    assert asyncio.run(main()) == []


@pytest.mark.rule("TIME-11")
def test_signal_outlives_the_loop_that_waited_for_it() -> None:
    signal = AbortSignal()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(signal.wait())
    loop.call_soon(loop.stop)
    loop.run_forever()
    waiting.cancel()
    loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
    loop.close()
    assert signal.fire("disconnected") == []


@pytest.mark.rule("TIME-11")
@given(st.integers(1, 4), st.integers(0, 20))
def test_every_callback_runs_exactly_once_whichever_threads_add_and_fire(
    firing: int, adding: int
) -> None:
    signal = AbortSignal()
    start = threading.Barrier(firing + 1)
    ran: list[int] = []

    def fire() -> None:
        start.wait(PATIENCE)
        signal.fire("deadline")

    threads = [threading.Thread(target=fire) for _ in range(firing)]
    for thread in threads:
        thread.start()
    start.wait(PATIENCE)
    for number in range(adding):
        signal.add_callback(lambda number=number: ran.append(number))  # type: ignore[misc]
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert sorted(ran) == list(range(adding))
