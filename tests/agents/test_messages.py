"""What a handler is given: messages, states that notice changes, contexts."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from attrs import define
from attrs.exceptions import FrozenInstanceError
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.agents.errors import AgentStateTooLargeError
from foundation_rt.agents.messages import AgentContext, AgentMessage
from foundation_rt.agents.state import AgentState
from foundation_rt.base.abort import AbortSignal
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.errors import ErrorCode


@pytest.mark.rule("AGENT-03")
def test_a_message_is_a_value() -> None:
    message = AgentMessage("greet", {"to": "world"}, "a")
    assert (message.type, message.payload, message.source_agent_id) == (
        "greet",
        {"to": "world"},
        "a",
    )
    assert message == AgentMessage("greet", {"to": "world"}, "a")
    assert AgentMessage("x") == AgentMessage("x", None, None)
    with pytest.raises(FrozenInstanceError):
        message.type = "other"


@define
class Point:
    """What orjson does not know by itself."""

    x: list[int]


KEYS = st.sampled_from("abc")
CHANGES = st.one_of(
    st.tuples(st.just("set"), KEYS, st.integers(0, 3)),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("pop"), KEYS),
    st.tuples(st.just("pop or"), KEYS),
    st.tuples(st.just("popitem")),
    st.tuples(st.just("clear")),
    st.tuples(st.just("setdefault"), KEYS, st.integers(0, 3)),
    st.tuples(st.just("update"), st.dictionaries(KEYS, st.integers(0, 3))),
    st.tuples(st.just("update pairs"), st.dictionaries(KEYS, st.integers(0, 3))),
    st.tuples(st.just("|="), st.dictionaries(KEYS, st.integers(0, 3))),
    st.tuples(st.just("get"), KEYS),
)


def apply(state: dict[str, Any], change: tuple[Any, ...]) -> Any:
    match change:
        case ("set", key, value):
            state[key] = value
        case ("delete", key):
            del state[key]
        case ("pop", key):
            return state.pop(key)
        case ("pop or", key):
            return state.pop(key, None)
        case ("popitem",):
            return state.popitem()
        case ("clear",):
            state.clear()
        case ("setdefault", key, value):
            return state.setdefault(key, value)
        case ("update", members):
            state.update(members)
        case ("update pairs", members):
            state.update(list(members.items()), d=1)
        case ("|=", members):
            same = state
            state |= members
            assert state is same
        case ("get", key):
            return state.get(key)
    return None


def attempt(state: dict[str, Any], change: tuple[Any, ...]) -> Any:
    try:
        return apply(state, change)
    except KeyError as error:
        return repr(error)


@pytest.mark.rule("AGENT-13")
@given(st.lists(CHANGES))
def test_a_state_is_a_dict_that_notices_every_change(changes: list[tuple[Any, ...]]) -> None:
    state, model = AgentState(), dict[str, Any]()
    for change in changes:
        before = dict(model)
        state.changed = False
        assert attempt(state, change) == attempt(model, change)
        assert state == model
        assert list(state) == list(model)
        assert state.changed or before == model


@pytest.mark.rule("AGENT-20")
@given(st.lists(CHANGES), st.integers(2, 24))
def test_a_state_is_never_larger_than_its_limit(changes: list[tuple[Any, ...]], most: int) -> None:
    state = AgentState(most)
    for change in changes:
        before = dict(state)
        try:
            attempt(state, change)
        except AgentStateTooLargeError as error:
            assert error.code is ErrorCode.RESOURCE_EXHAUSTED
            assert error.details == {"reason": "state_too_large", "maxStateBytes": most}
            if change[0] != "update" and "|" not in change[0] and "pairs" not in change[0]:
                assert state == before
        assert len(orjson.dumps(dict(state))) <= most


@pytest.mark.rule("AGENT-20")
def test_state_size_is_that_of_its_json() -> None:
    state = AgentState(len(b'{"a":"\xc3\xa4","b":[1,2]}'))
    state["a"] = "ä"
    state["b"] = [1, 2]
    for key, value in (("c", 1), ("b", [1, 22]), ("a", "äb")):
        with pytest.raises(AgentStateTooLargeError):
            state[key] = value
    state["b"].append(3)  # not noticed, and not measured, until it is assigned again
    with pytest.raises(AgentStateTooLargeError):
        state["b"] = state["b"]
    del state["a"]
    state["a"] = 1
    state.clear()
    state["b"] = "x" * 10


@pytest.mark.rule("AGENT-20")
def test_state_members_that_are_not_json_count_as_null() -> None:
    circle: list[Any] = []
    circle.append(circle)
    state = AgentState(len(b'{"a":null,"b":{"x":[1]},"c":null}'))
    state["a"], state["c"] = object(), circle
    state["b"] = Point([1])
    with pytest.raises(AgentStateTooLargeError):
        state["b"] = Point([1, 2])


@pytest.mark.rule("AGENT-13", "AGENT-28")
def test_a_state_notices_only_what_is_assigned_or_deleted() -> None:
    state = AgentState()
    assert not state.changed
    state["list"] = []
    state.changed = False
    state["list"].append(1)
    state.pop("no such", None)
    state.setdefault("list", 5)
    state.update()
    state.get("list")
    assert not state.changed
    state["list"] = state["list"]
    assert state.changed
    assert orjson.dumps(state) == b'{"list":[1]}'


@pytest.mark.rule("AGENT-13")
def test_an_empty_state_that_is_cleared_has_not_changed() -> None:
    state = AgentState()
    state.clear()
    assert not state.changed
    with pytest.raises(KeyError):
        state.popitem()
    assert not state.changed


@pytest.mark.rule("AGENT-13")
@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.__setitem__(5, 1),
        lambda state: state.update({None: 1}),
        lambda state: state.setdefault((1, 2)),
        lambda state: state.__ior__({b"x": 1}),
    ],
)
def test_the_keys_of_a_state_are_strings(change: Any) -> None:
    state = AgentState()
    with pytest.raises(TypeError, match="the keys of an agent's state are strings, not "):
        change(state)
    assert state == {}


@pytest.mark.rule("AGENT-04")
def test_context_logger_names_agent_and_correlation_id() -> None:
    sink = MemorySink()
    base = StructuredLogger(sink, ManualClock()).child({"runId": "r", "correlationId": "of a call"})
    context = AgentContext("a", AgentState(), AbortSignal(), "c", base)
    context.logger.info("hello", {"x": 1})
    assert context.logger is context.logger
    assert context.base_logger is base
    [line] = sink.lines
    assert line | {"timestamp": ""} == {
        "timestamp": "",
        "level": "info",
        "message": "hello",
        "runId": "r",
        "correlationId": "c",
        "agentId": "a",
        "x": 1,
    }
