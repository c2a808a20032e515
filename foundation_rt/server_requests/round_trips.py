"""The stateless mode: a call ends with what it lacks, and comes again with it (ASK-10 to ASK-13).

A handler that asks something unanswered is unwound by `InputRequired`; the client is told what to
find out, and retries the call. The handler then runs again from its start, and every question that
has an answer by now returns it at once. So a handler must ask the same things in the same order,
and do nothing that may not be done twice before its last question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from ..errors import has_type
from .errors import InvalidClientResult
from .request_state import CallState, StateScope
from .requests import PreparedRequest


class InputRequired(BaseException):
    """Unwinds a handler that lacks an answer; not an error, and not to be caught.

    Attributes:
        questions: what is lacking, by key.
    """

    def __init__(self, questions: Mapping[str, PreparedRequest]) -> None:
        super().__init__(", ".join(questions))
        self.questions = dict(questions)


@define(eq=False, repr=False)
class MultiRoundTrip:
    """The rounds of one call so far: a `RequestStrategy` that answers out of what the client sent.

    Args:
        good_for: what a state of this call is good for.
        earlier: what the state that came with the call says of earlier rounds; None if none came.
        responses: the answers that came with the call, by key; not looked at yet.
    """

    good_for: StateScope
    earlier: CallState | None
    responses: Mapping[str, Any]
    _answered: dict[str, tuple[str, Any]] = field(factory=dict, init=False)

    async def exchange(self, questions: Mapping[str, PreparedRequest]) -> dict[str, Any]:
        """The answers to `questions`, if all of them are there.

        Raises:
            InputRequired: they are not.
        """
        answers: dict[str, Any] = {}
        lacking: dict[str, PreparedRequest] = {}
        for key, question in questions.items():
            try:
                answers[key] = self._answer(key, question)
            except (LookupError, InvalidClientResult):
                # ASK-12: what is missing or cannot be used is asked for again.
                lacking[key] = question
        if lacking:
            raise InputRequired(lacking)
        return answers

    def state_after(self, lacking: Mapping[str, PreparedRequest]) -> CallState:
        """What has to be remembered when the call ends with questions that lack an answer."""
        asked = {key: question.digest() for key, question in lacking.items()}
        earlier = {} if self.earlier is None else self.earlier.answers
        answers = {**earlier, **self._answered}
        return CallState(asked, {key: answers[key] for key in answers if key not in lacking})

    def _answer(self, key: str, question: PreparedRequest) -> Any:
        """The value for one question; raises `KeyError` or `InvalidClientResult`.

        An answer counts for the question it was given to, and for no other that has got its key
        since (ASK-13): consent to one thing is not consent to the next.
        """
        digest = question.digest()
        if self.earlier is not None:
            remembered = self.earlier.answers.get(key)
            if remembered is not None and remembered[0] == digest:
                return question.read(remembered[1])
            # ASK-11: a state names what was asked; an answer to anything else is dropped.
            if remembered is not None or self.earlier.asked.get(key) != digest:
                raise KeyError(key)
        response = self.responses[key]
        value = question.read(response)
        self._answered[key] = digest, response
        return value


def missing_in(error: BaseException) -> dict[str, PreparedRequest] | None:
    """What a handler that ended with `error` lacks, if that is why it ended.

    Questions asked side by side in a task group come as a group.
    """
    if has_type(error, InputRequired):
        return error.questions
    if not has_type(error, BaseExceptionGroup):
        return None
    found: dict[str, PreparedRequest] = {}
    for one in error.exceptions:
        lacking = missing_in(one)
        if lacking is None:
            return None
        found |= lacking
    return found
