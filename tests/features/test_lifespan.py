"""What lives as long as a server serves: in which order, for whom, and what when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foundation_rt import RegistrationError, Server, UsageError
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.lifespan import Lifespan, LifespanError
from tests.lab.clock.virtual_loop import run_bounded
from tests.lab.waiting import PATIENCE, until


class Diary:
    """Hooks that write down what happens to them, and the lifespan they belong to."""

    def __init__(self) -> None:
        self.server = Server("diary")
        self.sink = MemorySink()
        self.entries: list[str] = []
        self.lifespan = Lifespan(self.server)
        self.lifespan.attach_logger(StructuredLogger(self.sink, ManualClock()))

    def hook(
        self,
        name: str,
        value: Any = None,
        *,
        entering: Callable[[], Any] = lambda: None,
        leaving: Callable[[], Any] = lambda: None,
    ) -> None:
        async def hook(server: Server) -> AsyncIterator[Any]:
            assert server is self.server
            self.entries.append(f"+{name}")
            await _settle(entering())
            try:
                yield value
            finally:
                self.entries.append(f"-{name}")
                await _settle(leaving())

        hook.__qualname__ = name
        self.lifespan.add(hook)

    @property
    def messages(self) -> list[str]:
        return [line["message"] for line in self.sink.lines]


async def _settle(value: Any) -> None:
    if asyncio.iscoroutine(value):
        await value


def fail(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.mark.rule("OPS-20", "OPS-02")
def test_hooks_nest_in_order_and_their_state_is_there_in_between(diary: Diary) -> None:
    diary.hook("outer", {"database": 1})
    diary.hook("silent")
    diary.hook("inner", {"cache": 2})
    seen = []

    async def main() -> None:
        assert not diary.lifespan.is_open
        await diary.lifespan.start()
        assert diary.lifespan.is_open
        seen.append(diary.lifespan.state)
        await diary.lifespan.stop(PATIENCE)
        assert not diary.lifespan.is_open

    run_bounded(main)
    assert diary.entries == ["+outer", "+silent", "+inner", "-inner", "-silent", "-outer"]
    assert seen == [{"database": 1, "cache": 2}]
    assert diary.lifespan.state is None
    assert diary.messages == []


@pytest.mark.rule("OPS-02")
@pytest.mark.parametrize("values", [(), (None,), (7,), (None, 7, None), ([1],)])
def test_value_of_a_single_hook_is_the_state(diary: Diary, values: tuple[Any, ...]) -> None:
    for number, value in enumerate(values):
        diary.hook(str(number), value)

    async def main() -> Any:
        await diary.lifespan.start()
        state = diary.lifespan.state
        await diary.lifespan.stop(PATIENCE)
        return state

    given = [value for value in values if value is not None]
    assert run_bounded(main) == (given[0] if given else None)


@pytest.mark.rule("OPS-02", "OPS-03")
@pytest.mark.parametrize(
    ("second", "why"), [(5, "must yield a mapping, not int"), ({"a": 2}, "yield ['a']")]
)
def test_states_that_cannot_be_merged_are_refused(diary: Diary, second: Any, why: str) -> None:
    diary.hook("first", {"a": 1})
    diary.hook("second", second)
    with pytest.raises(LifespanError) as raised:
        run_bounded(diary.lifespan.start)
    assert why in str(raised.value)
    assert diary.entries == ["+first", "+second", "-second", "-first"]


@pytest.mark.rule("OPS-03")
def test_hook_that_says_what_to_change_is_quoted(diary: Diary) -> None:
    diary.hook("queue", entering=fail(UsageError("set queue.url")))
    with pytest.raises(LifespanError, match=r"^set queue\.url$"):
        run_bounded(diary.lifespan.start)
    assert diary.sink.lines[0]["hook"] == "queue"


@pytest.mark.rule("OPS-03")
@pytest.mark.parametrize(
    "error", [OSError("refused"), SystemExit(3), KeyboardInterrupt()], ids=repr
)
def test_failed_hook_is_named_and_entered_hooks_are_left(
    diary: Diary, error: BaseException
) -> None:
    diary.hook("database")
    diary.hook("queue", entering=fail(error))
    diary.hook("never")
    with pytest.raises(LifespanError, match="'queue' failed to start") as raised:
        run_bounded(diary.lifespan.start)
    assert raised.value.__cause__ is error
    assert diary.entries == ["+database", "+queue", "-database"]
    [line] = diary.sink.lines
    assert (line["message"], line["hook"]) == ("lifespan hook failed to start", "queue")
    assert line["error"]["type"] == type(error).__name__
    assert not diary.lifespan.is_open


@pytest.mark.rule("OPS-03")
async def test_after_a_failure_it_can_be_started_again(diary: Diary) -> None:
    errors = [OSError("not yet")]

    def once() -> None:
        if errors:
            raise errors.pop()

    diary.hook("database", 1, entering=once)

    with pytest.raises(LifespanError):
        await diary.lifespan.start()
    await diary.lifespan.start()
    assert diary.lifespan.state == 1
    await diary.lifespan.stop(PATIENCE)


@pytest.mark.rule("OPS-20")
async def test_holders_share_it_and_the_last_one_leaves(diary: Diary) -> None:
    entered = asyncio.Event()
    diary.hook("database", 1, entering=entered.wait)

    lifespan = diary.lifespan
    starts = [asyncio.ensure_future(lifespan.start()) for _ in range(3)]
    await asyncio.sleep(0)
    entered.set()
    await asyncio.gather(*starts)
    await lifespan.stop(PATIENCE)
    await lifespan.stop(PATIENCE)
    assert lifespan.is_open
    assert diary.entries == ["+database"]
    await lifespan.stop(PATIENCE)
    assert diary.entries == ["+database", "-database"]
    await lifespan.stop(PATIENCE)  # once too often does nothing


@pytest.mark.rule("OPS-20")
def test_start_during_the_exit_waits_and_enters_the_hooks_again(diary: Diary) -> None:
    gone = asyncio.Event()
    diary.hook("database", leaving=gone.wait)

    async def main() -> None:
        lifespan = diary.lifespan
        await lifespan.start()
        stopping = asyncio.ensure_future(lifespan.stop(PATIENCE))
        await asyncio.sleep(0)
        starting = asyncio.ensure_future(lifespan.start())
        await asyncio.sleep(0)
        gone.set()
        await asyncio.gather(stopping, starting)
        assert lifespan.is_open
        await lifespan.stop(PATIENCE)

    run_bounded(main)
    assert diary.entries == ["+database", "-database"] * 2


@pytest.mark.rule("OPS-04")
@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3)], ids=repr)
def test_hook_that_fails_to_stop_is_logged_and_the_others_are_left(
    diary: Diary, error: BaseException
) -> None:
    diary.hook("database")
    diary.hook("queue", leaving=fail(error))

    async def main() -> None:
        await diary.lifespan.start()
        await diary.lifespan.stop(PATIENCE)

    run_bounded(main)
    assert diary.entries == ["+database", "+queue", "-queue", "-database"]
    [line] = diary.sink.lines
    assert (line["level"], line["message"]) == ("error", "lifespan hook failed to stop")
    assert line["error"]["type"] == type(error).__name__


@pytest.mark.rule("OPS-04")
@pytest.mark.virtual_time
async def test_hook_that_hangs_is_cancelled_and_the_others_are_left(diary: Diary) -> None:
    diary.hook("database")
    diary.hook("queue", leaving=lambda: asyncio.Event().wait())
    await diary.lifespan.start()
    await diary.lifespan.stop(1)
    assert diary.entries == ["+database", "+queue", "-queue", "-database"]
    assert diary.messages == ["lifespan hook takes too long to stop: cancelled"]


@pytest.mark.rule("OPS-04")
async def test_hook_that_ignores_cancellation_is_left_behind(diary: Diary) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    diary.hook("stubborn", 1, leaving=stubborn)

    await diary.lifespan.start()
    await diary.lifespan.stop(0.05)
    assert diary.lifespan.state is None
    await diary.lifespan.start()  # a new one
    assert diary.lifespan.state == 1
    release.set()
    await diary.lifespan.stop(PATIENCE)
    assert diary.lifespan.state is None


@pytest.mark.rule("OPS-03")
def test_start_that_is_cancelled_cancels_the_hook_that_is_being_entered(diary: Diary) -> None:
    diary.hook("database")
    diary.hook("queue", entering=lambda: asyncio.Event().wait())

    async def main() -> None:
        starting = asyncio.ensure_future(diary.lifespan.start())
        await until(lambda: "+queue" in diary.entries, "the queue is entered")
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await until(lambda: "-database" in diary.entries, "the database is left")

    run_bounded(main)
    assert diary.entries == ["+database", "+queue", "-database"]


@pytest.mark.rule("OPS-20")
def test_cancelled_start_does_not_affect_another_holder(diary: Diary) -> None:
    entered = asyncio.Event()
    diary.hook("database", entering=entered.wait)

    async def main() -> None:
        starts = [asyncio.ensure_future(diary.lifespan.start()) for _ in range(2)]
        await asyncio.sleep(0)
        starts[0].cancel()
        await asyncio.wait([starts[0]])
        entered.set()
        await starts[1]
        assert diary.lifespan.is_open
        await diary.lifespan.stop(PATIENCE)

    run_bounded(main)
    assert diary.entries == ["+database", "-database"]


@pytest.mark.rule("OPS-03")
def test_start_that_is_cancelled_when_it_is_done_leaves_the_hooks(diary: Diary) -> None:
    entered = asyncio.Event()
    diary.hook("database", entering=entered.wait)

    async def main() -> None:
        starting = asyncio.ensure_future(diary.lifespan.start())
        entered.set()
        await until(lambda: diary.lifespan.is_open, "the hooks are entered")
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        await diary.lifespan.stop(PATIENCE)

    run_bounded(main)
    assert diary.entries == ["+database", "-database"]
    assert diary.messages == []


@pytest.mark.rule("OPS-04")
async def test_surplus_stop_waits_for_the_end(diary: Diary) -> None:
    gone = asyncio.Event()
    diary.hook("database", leaving=gone.wait)

    await diary.lifespan.start()
    stops = [asyncio.ensure_future(diary.lifespan.stop(PATIENCE)) for _ in range(2)]
    await asyncio.sleep(0)
    gone.set()
    await asyncio.gather(*stops)
    assert diary.entries == ["+database", "-database"]


@pytest.mark.rule("OPS-03")
def test_without_a_logger_the_failure_is_still_raised(diary: Diary) -> None:
    lifespan = Lifespan(diary.server)
    lifespan.add(dict)
    with pytest.raises(LifespanError):
        run_bounded(lifespan.start)


@pytest.mark.rule("OPS-04")
def test_host_that_cancels_all_tasks_leaves_the_hooks_silently(diary: Diary) -> None:
    diary.hook("database")
    run_bounded(diary.lifespan.start)  # asyncio.run cancels what is left
    assert diary.entries == ["+database", "-database"]
    assert diary.messages == []
    assert not diary.lifespan.is_open


@pytest.mark.rule("OPS-04")
def test_hook_that_ends_by_itself_is_logged(diary: Diary) -> None:
    crash = asyncio.Event()

    async def job() -> None:
        await crash.wait()
        raise OSError("lost")

    async def with_task_group(server: Server) -> AsyncIterator[int]:
        async with asyncio.TaskGroup() as group:
            group.create_task(job())
            yield 1

    diary.lifespan.add(with_task_group)

    async def main() -> None:
        await diary.lifespan.start()
        crash.set()
        await until(lambda: not diary.lifespan.is_open, "the hooks are left")
        assert diary.lifespan.state is None
        await diary.lifespan.stop(PATIENCE)

    run_bounded(main)
    assert diary.messages == ["lifespan hook ended before the server"]


@pytest.mark.rule("OPS-20")
def test_task_group_of_a_hook_is_closed_in_the_task_that_opened_it(diary: Diary) -> None:
    tasks = []

    async def with_scope(server: Server) -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        async with asyncio.timeout(PATIENCE):
            yield
        tasks.append(asyncio.current_task())

    diary.lifespan.add(with_scope)

    async def main() -> None:
        await asyncio.create_task(diary.lifespan.start())
        await asyncio.create_task(diary.lifespan.stop(PATIENCE))

    run_bounded(main)
    assert tasks[0] is tasks[1]


@pytest.mark.rule("OPS-20")
def test_lifespan_is_held_on_one_event_loop(diary: Diary) -> None:
    diary.hook("database")
    first = asyncio.new_event_loop()
    try:
        first.run_until_complete(diary.lifespan.start())
        with pytest.raises(UsageError, match="another event loop"):
            run_bounded(diary.lifespan.start)
        first.run_until_complete(diary.lifespan.stop(PATIENCE))
    finally:
        first.close()


# -- what can be a hook


def _plain_generator(server: Server) -> Any:
    yield


async def _coroutine(server: Server) -> None: ...


async def _without_parameter() -> AsyncIterator[None]:
    yield


async def _with_two(server: Server, other: int) -> AsyncIterator[None]:
    yield


@pytest.mark.rule("OPS-01")
@pytest.mark.parametrize("hook", [_plain_generator, _coroutine, _without_parameter, _with_two])
def test_invalid_hook_is_refused_with_advice(diary: Diary, hook: Any) -> None:
    with pytest.raises(RegistrationError, match=rf"write `async def {hook.__name__}\(server\)`"):
        diary.lifespan.add(hook)


@pytest.mark.rule("OPS-01")
def test_function_that_makes_a_context_manager_is_a_hook(diary: Diary) -> None:
    @asynccontextmanager
    async def managed(server: Server) -> AsyncIterator[int]:
        diary.entries.append("entered")
        yield 5

    diary.lifespan.add(managed)
    diary.lifespan.add(dict)  # tells no parameters: it fails when it is started
    with pytest.raises(LifespanError, match="'dict' failed to start: TypeError"):
        run_bounded(diary.lifespan.start)
    assert diary.entries == ["entered"]
