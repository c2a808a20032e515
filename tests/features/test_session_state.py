"""The state that handlers keep for a session, or for a principal without one."""

from __future__ import annotations

import math
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import Principal, Server, ToolContext, ToolError
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.logs.redaction import REDACTED, Redactor
from foundation_rt.features.state.handler_state import HandlerState
from foundation_rt.features.state.states import OwnState, PrincipalStates, States
from foundation_rt.testing import TestClient

STATELESS = "2026-07-28"


def counting(**settings: Any) -> Server:
    server = Server("counting", config={"server": settings})

    @server.tool
    def count(ctx: ToolContext) -> int:
        ctx.session_state["count"] = ctx.session_state.get("count", 0) + 1
        return int(ctx.session_state["count"])

    @server.tool
    async def append(size: int, ctx: ToolContext) -> list[str]:
        ctx.session_state.setdefault("list", []).append("x" * size)
        return list(ctx.session_state)

    return server


@pytest.mark.rule("CALL-30", "LOG-13")
@pytest.mark.parametrize("revision", ["2025-11-25", STATELESS])
async def test_state_is_that_of_one_client(revision: str) -> None:
    server = counting()
    async with TestClient(server, revision=revision) as ann:
        assert [await ann.call("count") for _ in range(3)] == [1, 2, 3]
        async with TestClient(server, revision=revision) as bob:
            assert await bob.call("count") == 1
        assert await ann.call("append", size=1) == ["count", "list"]
        state = ann.connection.session.parts[OwnState].state
    assert "x" not in repr(state)
    assert Redactor().for_log(state) == {"count": REDACTED, "list": REDACTED}
    async with TestClient(server, revision=revision) as idle:
        await idle.request("tools/list")
        assert not idle.connection.session.parts


@pytest.mark.rule("CALL-30", "CALL-33")
async def test_state_of_a_principal_without_a_session() -> None:
    server, ann = counting(), Principal("ann", frozenset(("a",)))

    async def count(principal: Principal | None) -> Any:
        async with TestClient(server, revision=STATELESS) as client:
            client.connection.session.transport_type = "http"
            client.connection.session.principal = principal
            return await client.call("count")

    assert await count(ann) == 1
    assert await count(Principal("ann", frozenset(("b",)))) == 2
    assert await count(Principal("bob")) == 1
    assert await count(Principal("ann", client_id="other")) == 1
    for problem in ("principal", "--workers"):
        with pytest.raises(ToolError):
            await count(None if problem == "principal" else ann)
        with pytest.raises(Exception, match=problem):
            server.runtime.engine.part(States).of_principal(None if problem == "principal" else ann)
        server.runtime.engine.is_one_of_several = True


@pytest.mark.rule("CALL-31", "CALL-39")
async def test_state_is_bounded() -> None:
    async with TestClient(counting(session_state_bytes=1_024)) as client:
        await client.call("append", size=600)
        for size in (600, 1, None):
            with pytest.raises(ToolError, match="session_state_bytes") as raised:
                await (client.call("append", size=size) if size else client.call("count"))
            assert raised.value.code == "RESOURCE_EXHAUSTED"


NAMES = st.sampled_from(["a", "b", "c"])
JSON = st.recursive(st.none() | st.integers(-9, 9) | st.text(max_size=9), st.lists, max_leaves=4)


@pytest.mark.rule("CALL-31")
@given(st.lists(st.tuples(NAMES, JSON | st.just(...)), max_size=20))
def test_state_is_a_dict_that_refuses_what_is_too_large(steps: list[tuple[str, Any]]) -> None:
    state, model = HandlerState(60), dict[str, Any]()
    for name, value in steps:
        if value is ...:
            assert state.pop(name, None) == model.pop(name, None)
            continue
        try:
            state[name] = value
        except ToolError:
            assert len(repr({**model, name: value})) > 20
        else:
            model[name] = value
        assert dict(state) == model and len(state) == len(model)
        state.check_size()


@pytest.mark.rule("CALL-31")
def test_writing_many_names_counts_all_of_them_seldom() -> None:
    class Counted(HandlerState):
        counts = 0

        def _check(self, values: dict[str, Any]) -> None:
            self.counts += 1
            super()._check(values)

    state = Counted(64_000)
    with pytest.raises(ToolError):
        for number in range(64_000):
            state[f"name {number}"] = number
    assert len(state) > 1_000 and state.counts <= 3
    state.clear()
    assert not state
    state["name"] = "x" * 63_000


@pytest.mark.rule("CALL-31")
@pytest.mark.parametrize(
    "wrong",
    [object(), b"bytes", {5: 1}, {"a": {1, 2}}, ManualClock().now(), (1, 2), [math.nan], uuid4()],
)
def test_what_is_not_json_is_refused(wrong: Any) -> None:
    state = HandlerState(1_000)
    with pytest.raises(TypeError, match="keep None, bool, int"):
        state["a"] = wrong
    with pytest.raises(TypeError):
        state[5] = 1  # type: ignore[index]
    assert not state


@pytest.mark.rule("CALL-32")
def test_number_of_principals_is_bounded() -> None:
    now = [0.0]
    states = PrincipalStates(1_000, max_states=2, idle_seconds=10, now=lambda: now[0])
    states.state_of("a")["x"] = 1
    now[0] = 5
    states.state_of("b")["x"] = 2
    with pytest.raises(ToolError, match="session_states"):
        states.state_of("c")
    assert dict(states.state_of("a")) == {"x": 1}
    now[0] = 15
    states.state_of("c")  # `b` has been idle for 10 s, `a` used 10 s ago as well
    assert dict(states.state_of("a")) == {}
