"""Dependencies of handlers: made for a call, shared within it, closed after it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import Depends, ErrorCode, RegistrationError, Server, ToolContext, ToolError
from foundation_rt.base.clock import ManualClock
from foundation_rt.testing import ProtocolError, TestClient
from tests.lab.waiting import until

CLOSED = ("generator", "async_generator", "manager", "async_manager", "partial")
ON_LOOP = ("coroutine", "async_generator", "async_manager")
KINDS = [*CLOSED, "plain", "coroutine"]


class Recorder:
    """Dependencies of every kind, and what they did in which order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.threads: dict[str, str] = {}

    def note(self, event: str) -> str:
        self.events.append(event)
        self.threads[event] = threading.current_thread().name
        return event

    @contextmanager
    def opened(self, name: str) -> Iterator[str]:
        try:
            yield self.note(f"open {name}")
        except BaseException as error:
            self.note(f"{name}: {type(error).__name__}")
            raise
        finally:
            self.note(f"close {name}")

    def of_kind(self, kind: str, name: str, *needs: Callable[..., Any]) -> Callable[..., Any]:
        """Return a dependency that needs those, at most two."""
        a, b = (*map(Depends, needs), None, None)[:2]

        def plain(a: Any = a, b: Any = b) -> str:
            return self.note(f"open {name}")

        async def coroutine(a: Any = a, b: Any = b) -> str:
            await asyncio.sleep(0)
            return self.note(f"open {name}")

        def generator(a: Any = a, b: Any = b) -> Iterator[str]:
            with self.opened(name) as value:
                yield value

        async def async_generator(a: Any = a, b: Any = b) -> AsyncIterator[str]:
            with self.opened(name) as value:
                await asyncio.sleep(0)
                yield value

        kinds: dict[str, Callable[..., Any]] = {
            "plain": plain,
            "coroutine": coroutine,
            "generator": generator,
            "async_generator": async_generator,
            "manager": contextmanager(generator),
            "async_manager": asynccontextmanager(async_generator),
            "partial": functools.partial(generator),
        }
        return kinds[kind]


def tool_that_needs(
    is_async: bool, functions: list[Callable[..., Any]], body: Callable[[], Any]
) -> Server:
    """Return a server with a tool `use`, whose parameters `d0`, `d1`, ... are these."""

    def plain(**values: Any) -> Any:
        return [values, body()]

    async def coroutine(**values: Any) -> Any:
        return [values, body()]

    use: Any = coroutine if is_async else plain
    use.__signature__ = inspect.Signature(
        inspect.Parameter(f"d{n}", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, mark])
        for n, mark in enumerate(map(Depends, functions))
    )
    server = Server("d")
    server.tool(name="use")(use)
    return server


async def run(server: Server) -> Any:
    async with TestClient(server, clock=ManualClock()) as client:
        return await client.call("use")


@pytest.mark.rule("TYPED-70", "TYPED-71", "TYPED-72", "TYPED-73")
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    links=st.lists(st.integers(0, 9), min_size=8, max_size=8),
    is_async=st.booleans(),
    fails=st.booleans(),
)
def test_dependencies_open_once_in_order_and_close_in_reverse(
    kinds: list[str], links: list[int], is_async: bool, fails: bool
) -> None:
    recorder = Recorder()
    functions: list[Callable[..., Any]] = []
    for index, kind in enumerate(kinds):
        needs = [functions[link] for link in links[2 * index : 2 * index + 2] if link < index]
        functions.append(recorder.of_kind(kind, str(index), *needs))

    def body() -> str:
        recorder.note("body")
        if fails:
            raise ToolError(ErrorCode.NOT_FOUND, "no such thing")
        return "done"

    server = tool_that_needs(is_async, [functions[-1], *functions], body)
    if fails:
        with pytest.raises(ToolError, match="no such thing"):
            asyncio.run(run(server))
    else:
        values, _ = asyncio.run(run(server))
        order = [len(kinds) - 1, *range(len(kinds))]
        assert values == {f"d{n}": f"open {index}" for n, index in enumerate(order)}
    start = recorder.events.index("body")
    opened = [int(event.removeprefix("open ")) for event in recorder.events[:start]]
    assert sorted(opened) == [*range(len(kinds))]
    closing = [index for index in opened[::-1] if kinds[index] in CLOSED]
    expected = [(f"{index}: ToolError", f"close {index}")[not fails :] for index in closing]
    assert recorder.events[start + 1 :] == [event for each in expected for event in each]
    for index, kind in enumerate(kinds):
        assert ("worker" in recorder.threads[f"open {index}"]) is (kind not in ON_LOOP)
    assert ("worker" in recorder.threads["body"]) is not is_async


@pytest.mark.rule("TYPED-70", "TYPED-71")
async def test_parameters_of_dependencies_are_not_arguments() -> None:
    server = Server("d")

    def run_of(ctx: ToolContext, word: str = "default", *more: int, **named: int) -> str:
        return f"{ctx.run_id} {word}"

    class Session:
        def __init__(self, run_id: Annotated[str, Depends(run_of)]) -> None:
            self.run_id, self.is_open = run_id, True

        def __enter__(self) -> Session:
            return self

        def __exit__(self, *error: object) -> None:
            self.is_open = False

    class Link:
        async def __aenter__(self) -> str:
            return "linked"

        async def __aexit__(self, *error: object) -> None: ...

    sessions: list[Session] = []

    @server.tool
    def use(
        city: str,
        session: Annotated[Session, Depends(Session)],
        ctx: ToolContext,
        link: Annotated[str, Depends(Link)],
        run_id: str = Depends(run_of),
        days: int = 3,
    ) -> list[Any]:
        sessions.append(session)
        is_shared = {run_id, session.run_id} == {f"{ctx.run_id} default"}
        return [city, days, session.is_open, is_shared, link]

    async with TestClient(server) as client:
        assert await client.call("use", city="Oslo") == ["Oslo", 3, True, True, "linked"]
        [tool] = [each for each in await client.list_tools() if each["name"] == "use"]
        assert [*tool["inputSchema"]["properties"]] == ["city", "days"]
        assert tool["inputSchema"]["required"] == ["city"]
        with pytest.raises(ToolError):
            await client.call("use", city="Oslo", session=1)
    assert not sessions[0].is_open


@pytest.mark.rule("TYPED-70")
async def test_dependencies_of_other_features() -> None:
    server, closed = Server("d"), list[str]()

    async def shelf() -> AsyncIterator[list[str]]:
        yield ["novel", "poem"]
        closed.append("shelf")

    @server.resource("book://{name}")
    def book(name: str, books: Annotated[list[str], Depends(shelf)]) -> str:
        return f"{name} of {len(books)}"

    @server.prompt
    async def read(form: str, books: Annotated[list[str], Depends(shelf)]) -> str:
        return f"Read {books[0]} as {form}"

    @server.completion("read", "form")
    def forms(value: str, *, books: Annotated[list[str], Depends(shelf)]) -> list[str]:
        return [book for book in books if book.startswith(value)]

    async with TestClient(server) as client:
        assert await client.read_resource("book://a") == "a of 2"
        assert "Read novel as x" in str(await client.get_prompt("read", form="x"))
        assert await client.complete("read", "form", "p") == ["poem"]
        [prompt] = await client.list_prompts()
        assert [each["name"] for each in prompt["arguments"]] == ["form"]
    assert closed == ["shelf"] * 3


def raising() -> str:
    raise ToolError(ErrorCode.NOT_FOUND, "no database")


async def failing() -> str:
    raise ValueError("secret")


def swallowing() -> Iterator[str]:
    try:
        yield "value"
    except ToolError:
        return


def refusing() -> Iterator[str]:
    yield "value"
    raise ToolError(ErrorCode.NOT_FOUND, "commit failed")


def late() -> Iterator[str]:
    yield "value"
    raise TimeoutError("secret")


@pytest.mark.rule("TYPED-73", "TYPED-74")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("function", "code", "text"),
    [
        (raising, "NOT_FOUND", "no database"),
        (failing, "INTERNAL", ""),
        (swallowing, "INVALID_ARGUMENT", "of the handler"),
        (refusing, "NOT_FOUND", "commit failed"),
        (late, "INTERNAL", ""),
    ],
)
async def test_error_of_a_dependency_is_that_of_the_call(
    is_async: bool, function: Callable[..., Any], code: str, text: str
) -> None:
    def body() -> None:
        if function not in (refusing, late):
            raise ToolError(ErrorCode.INVALID_ARGUMENT, "of the handler")

    with pytest.raises(ToolError) as raised:
        await run(tool_that_needs(is_async, [function], body))
    assert raised.value.code == code
    assert text in raised.value.message and "secret" not in raised.value.message


@pytest.mark.rule("TYPED-73", "TYPED-74")
async def test_dependency_gets_the_error_of_what_a_handler_has_returned() -> None:
    server, recorder = Server("d"), Recorder()

    async def fail() -> str:
        raise ToolError(ErrorCode.NOT_FOUND, "no such thing")

    @server.tool
    def use(value: Annotated[str, Depends(recorder.of_kind("generator", "a"))]) -> Any:
        return fail()

    async with TestClient(server) as client:
        with pytest.raises(ToolError, match="no such thing"):
            await client.call("use")
    assert recorder.events == ["open a", "a: ToolError", "close a"]


@pytest.mark.rule("TYPED-73", "TYPED-77")
@pytest.mark.parametrize("is_async", [False, True])
async def test_aborted_call_closes_its_dependencies_in_bounded_time(is_async: bool) -> None:
    events: list[str] = []
    waiting, go_on = threading.Event(), threading.Event()

    def in_thread() -> Iterator[int]:
        try:
            yield 1
        finally:
            events.append("thread closed")

    async def on_loop(first: Annotated[int, Depends(in_thread)]) -> AsyncIterator[int]:
        try:
            yield 2
        except BaseException as error:
            events.append(type(error).__name__)
            await asyncio.Event().wait()  # never: the runtime goes on without it

    server = Server("d", config={"tools": {"cancel_grace_ms": 1}})

    async def waits(value: int = Depends(on_loop)) -> None:
        waiting.set()
        await asyncio.Event().wait()

    def blocks(value: int = Depends(on_loop)) -> None:
        waiting.set()
        go_on.wait(20)

    server.tool(name="use")(waits if is_async else blocks)
    async with TestClient(server) as client:
        call = asyncio.create_task(client.call("use"))
        await asyncio.to_thread(waiting.wait, 20)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        if not is_async:
            while not events:  # the thread of the handler ends last
                await asyncio.sleep(0.001)
                go_on.set()
        await until(lambda: not server.runtime.engine.running, "the call ends")
    assert events == ["CancelledError", "thread closed"]


@pytest.mark.rule("TYPED-75")
async def test_overrides_replace_dependencies_and_what_they_need() -> None:
    server = Server("d")

    def never() -> str:
        raise AssertionError("called")

    def address() -> str:
        return "real"

    async def connect(where: Annotated[str, Depends(never)]) -> str:
        return where

    @server.tool
    async def use(link: str = Depends(connect)) -> str:
        return link

    @server.tool
    def in_thread(where: str = Depends(address)) -> str:
        return where

    def fake(where: str = Depends(address)) -> str:
        return f"fake {where}"

    async with TestClient(server, dependency_overrides={connect: fake}) as client:
        assert await client.call("use") == "fake real"
        server.dependency_overrides[address] = lambda: "other"
        assert await client.call("use") == "fake other"
        assert await client.call("in_thread") == "other"
        server.dependency_overrides[address] = failing
        with pytest.raises(ToolError):
            await client.call("in_thread")
    assert server.dependency_overrides == {}


def circle_a(b: Any) -> None: ...


def circle_b(a: Annotated[Any, Depends(circle_a)]) -> None: ...


circle_a.__annotations__["b"] = Annotated[Any, Depends(circle_b)]


def greedy(city: str) -> None: ...


def unknown(city: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.rule("TYPED-76")
def test_what_cannot_be_a_dependency_is_refused_at_registration() -> None:
    server = Server("d")

    def add(function: Any, **options: Any) -> None:
        def use(value: Annotated[Any, Depends(function)]) -> None: ...

        server.tool(**options)(use)

    with pytest.raises(RegistrationError, match="circle_a -> circle_b -> circle_a"):
        add(circle_a)
    with pytest.raises(RegistrationError, match=r"greedy.*'city'.*ToolContext"):
        add(greedy)
    with pytest.raises(RegistrationError, match=r"ToolContext and dependencies alone; .*Nowhere"):
        add(unknown)
    for wrong in (5, None, []):
        with pytest.raises(RegistrationError, match=r"Depends\(open_database\)"):
            Depends(wrong)  # type: ignore[arg-type]
    for function in (swallowing, failing):
        with pytest.raises(RegistrationError, match="inline"):
            add(function, inline=True)
    add(raising, inline=True)


@pytest.mark.rule("TYPED-76")
async def test_plain_dependencies_run_in_place_with_inline_handlers() -> None:
    server = Server("d")

    def here() -> str:
        return threading.current_thread().name

    @server.tool(inline=True)
    def use(thread: str = Depends(here)) -> bool:
        return thread == threading.current_thread().name == threading.main_thread().name

    @server.prompt(inline=True)
    def ask(thread: Annotated[str, Depends(here)]) -> str:
        return thread

    mark = Depends(swallowing)
    with pytest.raises(RegistrationError, match="inline"):
        server.resource("a:b", inline=True)(lambda value=mark: "")
    async with TestClient(server) as client:
        assert await client.call("use") is True
        assert threading.main_thread().name in str(await client.get_prompt("ask"))


@pytest.mark.rule("TYPED-77")
async def test_time_in_dependencies_counts_for_the_deadline() -> None:
    server, reached = Server("d", config={"tools": {"cancel_grace_ms": 0}}), list[str]()

    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    @server.resource("a:b", timeout_ms=20)
    def read(value: Annotated[str, Depends(slow)]) -> str:
        reached.append("handler")
        return value

    async with TestClient(server) as client:
        with pytest.raises(ProtocolError) as raised:
            await client.read_resource("a:b")
        assert raised.value.data["code"] == "TIMEOUT"
        await until(lambda: not server.runtime.engine.running, "the call ends")
    assert not reached
