"""The state that handlers keep in Redis, for a session or a principal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import Principal, Server, ToolContext, ToolError, UsageError
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.state import redis_store
from foundation_rt.features.state.handler_state import StateChanges, StoredState
from foundation_rt.features.state.redis_store import StateName
from foundation_rt.features.state.states import States
from foundation_rt.testing import ManualClock, TestClient
from tests.lab.places.processes import redis_server
from tests.lab.places.services import need_redis, unique_name
from tests.lab.servers.http_server import free_port
from tests.lab.waiting import until

STATELESS = "2026-07-28"
HANDSHAKE = "2025-11-25"
ANN, BOB = Principal("ann"), Principal("bob")


class Held:
    """Calls that wait until the test lets them go."""

    def __init__(self) -> None:
        self.entered, self.failing, self.go = (asyncio.Event() for _ in range(3))


def make_server(name: str, url: str, held: Held | None = None, **settings: Any) -> Server:
    server = Server(name, config={"server": {**settings, "session_state_store": url}})

    @server.tool
    async def put(name: str, value: Any, ctx: ToolContext) -> None:
        ctx.session_state[name] = value

    @server.tool
    def put_in_thread(name: str, value: Any, ctx: ToolContext) -> None:
        ctx.session_state[name] = value

    @server.tool
    async def everything(ctx: ToolContext) -> dict[str, Any]:
        return dict(ctx.session_state)

    @server.tool
    def append(name: str, value: Any, ctx: ToolContext) -> None:
        ctx.session_state[name]["list"].append(value)

    @server.tool
    async def drop(name: str, ctx: ToolContext) -> None:
        del ctx.session_state[name]

    @server.tool
    async def fail(ctx: ToolContext) -> None:
        ctx.session_state["failed"] = True
        raise ValueError("after a change")

    @server.tool
    async def spoil(ctx: ToolContext) -> None:
        ctx.session_state["spoilt"] = []
        ctx.session_state["spoilt"].append({1, 2})

    @server.tool
    async def put_later(name: str, ctx: ToolContext) -> dict[str, Any]:
        seen = dict(ctx.session_state)
        ctx.session_state[name] = len(seen)
        assert held is not None
        held.entered.set()
        await held.go.wait()
        return seen

    @server.tool
    async def fail_later(ctx: ToolContext) -> None:
        ctx.session_state["failed"] = True
        assert held is not None
        held.failing.set()
        await held.go.wait()
        raise ToolError("NOT_FOUND", "the error of the handler")

    @server.tool(inline=True)
    def in_place(ctx: ToolContext) -> int:
        return len(ctx.session_state)

    return server


@asynccontextmanager
async def client_of(
    server: Server, who: Principal | str, transport: str = "http"
) -> AsyncIterator[TestClient]:
    """Connect as a principal of the stateless mode, or as the session of an id."""
    revision = STATELESS if isinstance(who, Principal) else HANDSHAKE
    async with TestClient(server, revision=revision) as client:
        connection = client.connection
        connection.session.transport_type = transport  # type: ignore[assignment]
        if isinstance(who, Principal):
            connection.session.principal = who
        else:
            connection.shared_id = lambda: who
        yield client


@contextmanager
def redis_name() -> Iterator[tuple[str, str]]:
    """Yield the name of a server that no other test has, and the URL of Redis."""
    url, name = need_redis(), unique_name()
    try:
        yield name, url
    finally:
        import redis

        tag = make_server(name, url).runtime.engine.part(States).stored._store._tag  # type: ignore[union-attr]
        with redis.Redis.from_url(url) as client:
            for key in client.keys(f"foundation-rt:state:{tag}:*"):
                client.delete(key)


@pytest.mark.rule("CALL-34", "CALL-35")
@pytest.mark.parametrize("who", [ANN, "one session"], ids=["principal", "session"])
async def test_state_in_redis_is_that_of_all_processes(who: Principal | str) -> None:
    with redis_name() as (name, url):
        here, there = make_server(name, url), make_server(name, url)
        async with client_of(here, who) as first, client_of(there, who) as second:
            await first.call("put", name="a", value={"list": [1]})
            await second.call("put_in_thread", name="b", value="ü")
            await first.call("append", name="a", value=2)  # in place
            expected = {"a": {"list": [1, 2]}, "b": "ü"}
            assert await second.call("everything") == expected
            await second.call("drop", name="a")
            assert await first.call("everything") == {"b": "ü"}
            await first.call("drop", name="b")
            assert await second.call("everything") == {}


@pytest.mark.rule("CALL-35")
async def test_state_in_redis_is_that_of_one_principal_or_session_of_one_server() -> None:
    with redis_name() as (name, url):
        server = make_server(name, url)
        async with client_of(server, ANN) as ann:
            await ann.call("put", name="a", value=1)
        others = [BOB, Principal("ann", client_id="other"), "ann", ANN.identity]
        for other in others:
            async with client_of(server, other) as client:
                assert await client.call("everything") == {}
        async with client_of(make_server(f"{name}2", url), ANN) as elsewhere:
            assert await elsewhere.call("everything") == {}
        async with client_of(server, ANN, "memory") as local:
            assert await local.call("everything") == {}
        keys = _keys(server)
        assert keys and not any(b"ann" in key for key in keys)


@pytest.mark.rule("CALL-36")
async def test_calls_at_the_same_time_keep_what_each_has_changed() -> None:
    held = Held()
    with redis_name() as (name, url):
        server = make_server(name, url, held)
        async with client_of(server, ANN) as client:
            await client.call("put", name="same", value="before")
            waiting = asyncio.create_task(client.call("put_later", name="mine"))
            await held.entered.wait()
            await client.call("put", name="same", value="after")
            assert await client.call("everything") == {"same": "after"}
            held.go.set()
            assert await waiting == {"same": "before"}
            assert await client.call("everything") == {"same": "after", "mine": 1}


@pytest.mark.rule("CALL-36")
async def test_changes_of_a_handler_that_fails_are_kept_unless_they_are_no_json() -> None:
    with redis_name() as (name, url):
        async with client_of(make_server(name, url), ANN) as client:
            with pytest.raises(ToolError):
                await client.call("fail")
            with pytest.raises(ToolError):
                await client.call("spoil")
            assert await client.call("everything") == {"failed": True}
            with pytest.raises(ToolError):
                await client.call("in_place")


@pytest.mark.rule("CALL-37")
async def test_states_in_redis_are_bounded_whoever_writes() -> None:
    held = Held()
    with redis_name() as (name, url):
        server = make_server(name, url, held, session_state_bytes=1_024, session_states=2)
        async with client_of(server, ANN) as ann, client_of(server, BOB) as bob:
            await ann.call("put", name="a", value="x" * 500)
            for size, refused in ((500, True), (400, False)):
                held.entered.clear(), held.go.clear()
                waiting = asyncio.create_task(ann.call("put_later", name="z" * 90))
                await held.entered.wait()
                await ann.call("put", name="b", value="x" * size)
                held.go.set()
                if refused:
                    with pytest.raises(ToolError, match="session_state_bytes"):
                        await waiting
                else:
                    await waiting
                await ann.call("drop", name="b")
            await bob.call("put", name="a", value=1)
            async with client_of(server, Principal("eve")) as eve:
                with pytest.raises(ToolError, match="session_states"):
                    await eve.call("put", name="a", value=1)
                await bob.call("drop", name="a")
                await eve.call("put", name="a", value=1)
            async with client_of(server, "a session") as session:
                await session.call("put", name="a", value=1)  # bounded by http.max_sessions


@pytest.mark.rule("CALL-37")
async def test_unused_states_in_redis_expire_and_those_of_ended_sessions_are_removed() -> None:
    with redis_name() as (name, url):
        server = make_server(name, url, session_state_idle_ms=60_000)
        states = server.runtime.engine.part(States).stored
        assert states is not None
        store = states._store
        for who in (ANN, "one", "two"):
            async with client_of(server, who) as client:
                await client.call("put", name="a", value=1)
        for principal, longest in ((True, 60_000), (False, redis_store.SESSION_TTL_MS)):
            state = StateName(ANN.identity if principal else "one", principal)
            key, client = store._key(state), store._redis
            client.pexpire(key, 5_000)
            assert store.load(state) == {"a": b"1"}
            assert 5_000 < client.pttl(key) <= longest  # type: ignore[operator]
        states.forget("one")
        states.forget("two")
        await until(
            lambda: not any(b":session:" in key for key in _keys(server)),
            "the states of sessions are removed",
        )
        store.save(StateName("three", False), StateChanges({"a": b"1"}, ()))
        states.forget("three")
        states.close()  # the server stops
        assert not any(b":session:" in key for key in _keys(server))


@pytest.mark.rule("CALL-38")
async def test_calls_that_need_a_state_fail_while_redis_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis_store, "_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(redis_store, "_RETRY_SECONDS", 0.0)
    held = Held()
    with redis_server() as redis:
        server = make_server("faults", redis.url, held)
        async with client_of(server, ANN) as client:
            await client.call("put", name="a", value=1)
            waiting = asyncio.create_task(client.call("put_later", name="b"))
            failing = asyncio.create_task(client.call("fail_later"))
            await held.entered.wait()
            await held.failing.wait()
            redis.freeze()
            held.go.set()
            with pytest.raises(ToolError, match="the error of the handler"):
                await failing
            with pytest.raises(ToolError) as raised:
                await waiting
            assert raised.value.details["reason"] == "session_state_not_stored"  # type: ignore[index]
            for tool in ("everything", "put_in_thread"):
                with pytest.raises(ToolError) as raised:
                    await client.call(
                        tool, **({} if tool == "everything" else {"name": "a", "value": 2})
                    )
                assert raised.value.details["reason"] == "session_state_unavailable"  # type: ignore[index]
            redis.thaw()
            assert (await client.call("everything"))["a"] == 1
            redis.kill()
            with pytest.raises(ToolError, match="try again later"):
                await client.call("everything")
            redis.start()
            assert await client.call("everything") == {}


@pytest.mark.rule("CALL-38")
def test_store_that_is_away_is_left_alone_for_a_while() -> None:
    sink, limits = MemorySink(), Server("away").load_config().server
    logger = StructuredLogger(sink, clock := ManualClock())
    url = f"redis://127.0.0.1:{free_port()}"
    store = redis_store.RedisStateStore(url, "away", limits, clock, logger)
    one = StateName("1", is_principal=False)
    store.forget([one])  # it expires
    for _ in range(2):
        with pytest.raises(ToolError, match="try again later"):
            store.load(one)
        store.forget([one])
    store.close()
    assert [line["level"] for line in sink.lines] == ["warn"]


@pytest.mark.rule("CALL-36")
async def test_state_of_a_session_that_has_ended_is_not_stored() -> None:
    held, contexts = Held(), []
    with redis_name() as (name, url):
        server = make_server(name, url, held)

        @server.tool
        async def keep(ctx: ToolContext) -> None:
            contexts.append(ctx)

        async with client_of(server, "one") as client:
            await client.call("keep")
            with pytest.raises(UsageError, match="before the call has ended"):
                _ = contexts[0].session_state
            waiting = asyncio.create_task(client.call("put_later", name="a"))
            await held.entered.wait()
        await asyncio.wait([waiting])
        engine = server.runtime.engine
        held.go.set()
        await until(lambda: not engine.running, "the call ends")
        assert _keys(server) == []


VALUES = st.recursive(st.integers(-9, 9) | st.text(max_size=3), st.lists, max_leaves=4)
STEPS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), VALUES | st.just(...)), max_size=9)


@pytest.mark.rule("CALL-36")
@given(STEPS, STEPS)
def test_changes_are_those_of_the_call_and_no_others(before: Any, during: Any) -> None:
    def play(state: Any, steps: Any) -> None:
        for name, value in steps:
            if value is ...:
                state.pop(name, None)
            elif isinstance(value, list) and isinstance(state.get(name), list):
                state[name].extend(value)
            else:
                state[name] = value

    first = StoredState(10_000, {})
    play(first, before)
    stored = dict(first.take_changes().written)
    state, model = StoredState(10_000, dict(stored)), StoredState(10_000, dict(stored))
    play(state, during)
    play(model, during)
    changes = state.take_changes()
    assert set(changes.written) | set(changes.removed) == {
        name for name in "abc" if state.get(name, ...) != _loaded(stored).get(name, ...)
    }
    for name in changes.removed:
        del stored[name]
    stored.update(changes.written)
    assert dict(_loaded(stored)) == dict(model)
    assert state.take_changes() == StateChanges({}, ()) and not state.take_changes()


def _loaded(stored: dict[str, bytes]) -> StoredState:
    return StoredState(10_000, stored)


def _keys(server: Server) -> list[bytes]:
    states = server.runtime.engine.part(States).stored
    assert states is not None
    store = states._store
    return store._redis.keys(f"foundation-rt:state:{store._tag}:*")  # type: ignore[return-value]
