"""MultiRoundTrip: a handler that is run again and again gets what it would have got by waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.abort import AbortSignal
from foundation_rt.errors import UsageError
from foundation_rt.features.server_requests.elicitation import Elicit
from foundation_rt.features.server_requests.forms import Forms
from foundation_rt.features.server_requests.request_state import seal, state_scope, unseal
from foundation_rt.features.server_requests.requester import ServerRequester
from foundation_rt.features.server_requests.requests import PreparedRequest
from foundation_rt.features.server_requests.roots import Roots
from foundation_rt.features.server_requests.round_trips import (
    InputRequired,
    MultiRoundTrip,
    missing_in,
)
from tests.lab.peers.clients import peer

KEY = bytes(32)
CALL = state_scope("tools/call", "book", {}, None)
Handler = Callable[[ServerRequester], Awaitable[Any]]


def form(name: str) -> Elicit:
    return Elicit(f"{name}?", {"type": "object", "properties": {name: {"type": "integer"}}})


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


class Ended:
    """How one run of a handler ended: with a value, or with what it lacks and a state."""

    def __init__(
        self, value: Any, lacking: Mapping[str, PreparedRequest] | None, state: str
    ) -> None:
        self.value = value
        self.lacking = None if lacking is None else {*lacking}
        self.state = state


def run(handler: Handler, state: str = "", responses: Mapping[str, Any] | None = None) -> Ended:
    """One round, as a call of the stateless mode makes it."""
    earlier = unseal(KEY, state, CALL, 0) if state else None
    rounds = MultiRoundTrip(CALL, earlier, responses or {})
    talk = ServerRequester("run", peer("2026-07-28"), Forms(), rounds, AbortSignal())
    try:
        return Ended(asyncio.run(_await(handler(talk))), None, "")
    except BaseException as error:
        lacking = missing_in(error)
        if lacking is None:
            raise
        return Ended(None, lacking, seal(KEY, rounds.state_after(lacking), CALL, 1))


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def two_requests(talk: ServerRequester) -> Any:
    first = await talk.ask_one(form("a"), None)
    second = await talk.ask_one(form("b"), "b")
    return first.content, second.content


@pytest.mark.rule("ASK-30", "ASK-13")
def test_handler_runs_again_until_it_has_all_answers() -> None:
    first = run(two_requests)
    assert first.lacking == {"1"}
    second = run(two_requests, first.state, {"1": accepted(a=1)})
    assert second.lacking == {"b"}
    third = run(two_requests, second.state, {"b": accepted(b=2)})
    assert third.value == ({"a": 1}, {"b": 2})


@pytest.mark.rule("ASK-11")
def test_answers_without_a_state_are_taken_and_others_are_ignored() -> None:
    responses = {"1": accepted(a=1), "b": accepted(b=2), "c": 5, "": None}
    assert run(two_requests, "", responses).value == ({"a": 1}, {"b": 2})


@pytest.mark.rule("ASK-20")
def test_answers_that_the_state_did_not_ask_for_are_dropped() -> None:
    responses = {"1": accepted(a=1), "b": accepted(b=2), "c": 5, "": None}
    first = run(two_requests)
    second = run(two_requests, first.state, responses)
    assert second.lacking == {"b"}
    assert run(two_requests, second.state, responses).value == ({"a": 1}, {"b": 2})


@pytest.mark.rule("ASK-12")
@pytest.mark.parametrize(
    "useless", [{}, {"x": accepted(a=1)}, {"1": 12345}, {"1": accepted(a="x")}]
)
def test_missing_or_invalid_answer_is_requested_again(useless: dict[str, Any]) -> None:
    first = run(two_requests)
    again = run(two_requests, first.state, useless)
    assert again.lacking == {"1"}
    assert run(two_requests, again.state, {"1": accepted(a=1)}).lacking == {"b"}


@pytest.mark.rule("ASK-31")
def test_earlier_answer_cannot_be_changed() -> None:
    second = run(two_requests, run(two_requests).state, {"1": accepted(a=1)})
    third = run(two_requests, second.state, {"b": accepted(b=2), "1": accepted(a=9)})
    assert third.value == ({"a": 1}, {"b": 2})


@pytest.mark.rule("ASK-13")
def test_answer_counts_for_one_request_only() -> None:
    """A handler that asks for whatever comes first, while others take things away."""
    queue = ["x", "y"]

    async def handler(talk: ServerRequester) -> Any:
        name = queue[0]
        answer = await talk.ask_one(form(name), "confirm")
        await talk.ask_one(form("later"), None)
        return name, answer.content

    first = run(handler)
    queue.pop(0)
    second = run(handler, first.state, {"confirm": accepted(x=1)})
    assert second.lacking == {"confirm"}  # about y, to which nobody has said anything
    third = run(handler, second.state, {"confirm": accepted(y=2)})
    assert third.lacking == {"1"}
    queue[0] = "z"
    fourth = run(handler, third.state, {"1": accepted(later=0)})
    assert fourth.lacking == {"confirm"}  # an answer of an earlier round does not count either
    fifth = run(handler, fourth.state, {"confirm": accepted(z=3)})
    assert fifth.lacking == {"1"}
    assert run(handler, fifth.state, {"1": accepted(later=0)}).value == ("z", {"z": 3})


@pytest.mark.rule("ASK-03", "ASK-29")
def test_several_requests_take_one_round_trip() -> None:
    async def handler(talk: ServerRequester) -> Any:
        return await talk.ask({"name": form("a"), "roots": Roots(), "more": form("b")})

    first = run(handler)
    assert first.lacking == {"name", "roots", "more"}
    second = run(handler, first.state, {"name": accepted(a=1), "roots": {"roots": []}})
    assert second.lacking == {"more"}
    third = run(handler, second.state, {"more": {"action": "decline"}})
    assert [*third.value] == ["name", "roots", "more"]
    assert third.value["roots"] == ()
    assert run(lambda talk: talk.ask({})).value == {}


@pytest.mark.rule("ASK-29")
def test_concurrent_requests_end_the_call_with_all_of_them() -> None:
    async def handler(talk: ServerRequester) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(talk.ask_one(form(name), name)) for name in "ab"]
        return [task.result().content for task in tasks]

    ended, answers, rounds = run(handler), {"a": accepted(a=1), "b": accepted(b=2)}, 0
    while ended.lacking is not None:
        rounds += 1
        assert rounds < 4
        ended = run(handler, ended.state, {key: answers[key] for key in ended.lacking})
    assert ended.value == [{"a": 1}, {"b": 2}]


def test_missing_in_reads_groups_of_input_required_only() -> None:
    required = InputRequired({})
    assert missing_in(required) == {}
    assert missing_in(ValueError()) is None
    assert missing_in(BaseExceptionGroup("", [required, ValueError()])) is None
    assert missing_in(BaseExceptionGroup("", [required, BaseExceptionGroup("", [required])])) == {}
    assert not isinstance(required, Exception)


@pytest.mark.rule("ASK-03")
@pytest.mark.parametrize("key", ["", 5, None])
def test_key_must_be_a_non_empty_string(key: Any) -> None:
    with pytest.raises(UsageError, match="non-empty"):
        run(lambda talk: talk.ask({key: Roots()}))


@pytest.mark.rule("ASK-03")
def test_key_can_be_used_once() -> None:
    async def handler(talk: ServerRequester) -> None:
        await talk.ask_one(Roots(), None)
        await talk.ask_one(Roots(), "1")

    first = run(handler)
    with pytest.raises(UsageError, match="'1' already"):
        run(handler, first.state, {"1": {"roots": []}})


# -- any handler, any client -----------------------------------------------------------------------


@st.composite
def scripts(draw: st.DrawFn) -> list[list[str]]:
    """Return what a handler asks, step by step; the requests of one step together."""
    names = [f"q{number}" for number in range(draw(st.integers(0, 6)))]
    steps: list[list[str]] = []
    while names:
        count = draw(st.integers(1, len(names)))
        steps.append(names[:count])
        names = names[count:]
    return steps


def handler_of(steps: list[list[str]]) -> Handler:
    async def handler(talk: ServerRequester) -> Any:
        values: dict[str, Any] = {}
        for step in steps:
            answers = await talk.ask({name: form(name) for name in step})
            values |= {name: answer.content for name, answer in answers.items()}
        return values

    return handler


@pytest.mark.rule("ASK-30", "ASK-12", "ASK-13")
@given(scripts(), st.data())
def test_any_handler_gets_the_first_good_answer_to_each_of_its_requests(
    steps: list[list[str]], data: st.DataObject
) -> None:
    handler, given_first = handler_of(steps), {}
    ended = run(handler)
    while ended.lacking is not None:
        responses: dict[str, Any] = {}
        for name in sorted(ended.lacking):
            kind = data.draw(st.sampled_from(["good", "good", "bad", "none"]))
            value = data.draw(st.integers(0, 99))
            if kind == "good":
                given_first.setdefault(name, {name: value})
                responses[name] = accepted(**{name: value})
            elif kind == "bad":
                responses[name] = accepted(**{name: "no number"})
        for name in given_first.keys() - ended.lacking:  # a client may change its mind, in vain
            if data.draw(st.booleans()):
                responses[name] = accepted(**{name: 1000})
        ended = run(handler, ended.state, responses)
    assert ended.value == given_first
