"""What of a history a model reads, for any history and any budget."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.chat import ChatMessage, Role, ToolPhase
from foundation_rt.apps.host.orchestrator.pruning import (
    CUT,
    NOTICE,
    SUMMARY,
    UNKNOWN_OUTCOME,
    HistoryReader,
    cut_text,
    prune,
    tokens_of_all,
)

PLENTY = 10**9


def count(text: str) -> int:
    return (len(text.encode()) + 3) // 4


def message(at: int, role: Role, content: str = "", **more: object) -> ChatMessage:
    return ChatMessage(id=f"m{at}", role=role, content=content or f"{role} {at}", **more)  # type: ignore[arg-type]


def called(at: int, size: int = 0) -> ChatMessage:
    data = {"arguments": {"text": "x" * size}}
    return ChatMessage(
        id=f"m{at}", role=Role.ASSISTANT, data=data, tool_name="s:t", call_id=f"c{at}"
    )


def outcome(at: int, size: int = 0, **metadata: object) -> ChatMessage:
    return ChatMessage(
        id=f"o{at}",
        role=Role.TOOL,
        content=f"result {at} " + "y" * size,
        tool_name="s:t",
        call_id=f"c{at}",
        kind=ToolPhase.COMPLETE,
        metadata=metadata,
    )


sizes = st.sampled_from([0, 10, 200, 3000])


@st.composite
def histories(draw: st.DrawFn) -> list[ChatMessage]:
    """Return a history as turns make it: outcomes may lack, and come in any order."""
    found: list[ChatMessage] = []
    for turn in range(draw(st.integers(1, 5))):
        at = 100 * turn
        found.append(message(at, Role.USER, "question " + "q" * draw(sizes)))
        for _ in range(draw(st.integers(0, 3))):
            at += 10
            if draw(st.booleans()):
                found.append(message(at, Role.ASSISTANT, "text " + "t" * draw(sizes)))
            numbers = range(at + 1, at + 1 + draw(st.integers(0, 3)))
            found += [called(number, draw(sizes)) for number in numbers]
            ended = draw(st.permutations(numbers))[: draw(st.integers(0, len(numbers)))]
            pictures = draw(st.sampled_from([{}, {"pictures": [{"mimeType": "a", "data": "b"}]}]))
            found += [outcome(number, draw(sizes), **pictures) for number in ended]
            if draw(st.integers(0, 9)) == 0:
                found.append(message(at + 9, Role.SYSTEM, "a call could not be read"))
            if draw(st.integers(0, 9)) == 0:
                found.append(message(at + 8, Role.ASSISTANT, metadata={NOTICE: True}))
    return found


budgets = st.sampled_from([0, 40, 300, 1000, 3000, PLENTY])


def least(history: Sequence[ChatMessage]) -> int:
    """Return the tokens below which nothing can be cut."""
    return 40 * (len(prune(history, 0, count)) + 1)


@pytest.mark.rule("TURN-50", "TURN-51", "TURN-52", "TURN-53", "TURN-54", "TURN-57")
@given(histories(), budgets)
def test_what_is_kept_fits_is_the_newest_and_parts_no_call(
    history: list[ChatMessage], budget: int
) -> None:
    kept = prune(history, budget, count)
    assert tokens_of_all(kept, count) <= max(budget, least(history))
    # Each outcome follows the calls of its answer, in their order; each call has one.
    waiting: list[str | None] = []
    for each in kept:
        if each.role is Role.TOOL:
            assert waiting.pop(0) == each.call_id
        else:
            assert not waiting or each.role is Role.ASSISTANT
            if each.is_call:
                waiting.append(each.call_id)
    assert not waiting
    assert not any(each.metadata.get(NOTICE) for each in kept)
    assert kept[0].role is Role.USER
    # They are the newest: with the last question, without a gap but behind that.
    whole = prune(history, PLENTY, count)
    ids, all_ids = [each.id for each in kept], [each.id for each in whole]
    assert ids == [each for each in all_ids if each in ids]
    question = max(at for at, each in enumerate(whole) if each.role is Role.USER)
    assert whole[question].id in ids
    tail = [each for each in ids if all_ids.index(each) > question]
    assert tail == all_ids[len(all_ids) - len(tail) :]
    older = [each for each in ids if all_ids.index(each) < question]
    assert older == all_ids[question - len(older) : question]
    if older:
        assert len(tail) == len(all_ids) - question - 1


@given(histories())
def test_pruned_again_it_is_the_same(history: list[ChatMessage]) -> None:
    kept = prune(history, 1000, count)
    assert prune(kept, 1000, count) == kept


@given(histories(), st.lists(st.integers(0, 60), max_size=6), budgets)
def test_reading_while_it_grows_and_changes_is_reading_it_once(
    history: list[ChatMessage], lengths: list[int], budget: int
) -> None:
    reader = HistoryReader()
    for length in lengths:
        part = history[:length]
        if part and length % 2:  # the last message was replaced, as streamed text is
            part[-1] = evolve(part[-1], content="other")
        reader.read(part)
        assert reader.prune(budget, count) == prune(part, budget, count)
    reader.read(history)
    assert reader.prune(budget, count) == prune(history, budget, count)


@pytest.mark.rule("TURN-53")
def test_call_without_outcome_is_unknown() -> None:
    kept = prune([message(1, Role.USER), called(2), message(3, Role.USER)], PLENTY, count)
    assert [each.content for each in kept if each.role is Role.TOOL] == [UNKNOWN_OUTCOME]


@pytest.mark.rule("TURN-55")
def test_newest_is_cut_where_it_does_not_fit_alone() -> None:
    pictures = {"pictures": [{"mimeType": "image/png", "data": "AA=="}]}
    history = [
        message(1, Role.USER, "short"),
        called(2, 8000),
        called(3),
        outcome(2, 40_000, **pictures),
        outcome(3),
    ]
    kept = prune(history, 500, count)
    assert tokens_of_all(kept, count) <= 500
    question, first, _, cut, other = kept
    assert question.content == "short"
    assert first.data == {"arguments": {}}
    assert cut.content is not None
    assert cut.content.startswith("result 2")
    assert cut.content.endswith(CUT)
    assert not cut.metadata
    assert other == history[-1]


@pytest.mark.rule("TURN-56")
def test_reader_forgets_a_summary_that_is_not_in_the_history_any_more() -> None:
    old, new = message(1, Role.USER, "a"), message(3, Role.USER, "b")
    summary = message(2, Role.SYSTEM, "before", metadata={SUMMARY: "m1"})
    lost, other = outcome(9), message(3, Role.USER, "c")
    reader = HistoryReader()
    for history, kept in (
        ([old, summary, new], [summary, new]),
        ([old, summary, other], [summary, other]),
        ([old, new, lost], [old, new]),  # an outcome of no call is left out
        ([old, summary], [summary]),
    ):
        reader.read(history)
        assert reader.prune(PLENTY, count) == kept


@pytest.mark.rule("TURN-56")
def test_summary_stands_for_what_it_summarises() -> None:
    old = [message(1, Role.USER), message(2, Role.ASSISTANT)]
    new = [message(3, Role.USER), message(4, Role.ASSISTANT)]
    summary = message(9, Role.SYSTEM, "before", metadata={SUMMARY: "m2"})
    assert prune([*old, *new, summary], PLENTY, count) == [summary, *new]
    # A summary of summaries.
    again = evolve(summary, id="m10", metadata={SUMMARY: "m3"})
    assert prune([*old, *new, summary, again], PLENTY, count) == [again, new[1]]


@given(st.text(max_size=300), st.integers(0, 60))
def test_cut_text_fits_and_is_the_beginning(text: str, tokens: int) -> None:
    text = text.encode("utf-8", "ignore").decode()
    cut = cut_text(text, tokens, count, "[cut]")
    assert count(cut) <= tokens
    if count(text) <= tokens:
        assert cut == text
    elif cut:
        assert cut.endswith("[cut]")
        assert text.startswith(cut.removesuffix("[cut]"))
