"""Requests of a task to its client: the handler waits for the answer (TASK-08).

Until its call becomes a task, a handler asks in rounds, as every stateless call does. From then on
there is no request to end and none to come again: the requests stand in the task, and
`tasks/update` answers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define

from ...abort import Waiter
from ...server_requests.errors import InvalidClientResult
from ...server_requests.round_trips import InputRequired

if TYPE_CHECKING:
    from ...abort import AbortSignal
    from ...server_requests.requests import PreparedRequest
    from ...server_requests.round_trips import MultiRoundTrip
    from .manager import RunningTask, TaskManager
    from .promotion import Promotion


@define(eq=False, repr=False)
class TaskRequests:
    """A `RequestStrategy` for a call that may become a task.

    Args:
        rounds: has the answers that came with the request.
        signal: the call's; a handler that waits for an answer is unwound when it fires.
    """

    promotion: Promotion
    rounds: MultiRoundTrip
    signal: AbortSignal

    async def exchange(self, questions: Mapping[str, PreparedRequest]) -> dict[str, Any]:
        """The answers to `questions`, however long they take.

        Raises:
            InputRequired: the call is no task, and has not been given them.
            AbortError: the task has ended meanwhile.
            LimitReached: too many questions are open.
        """
        answers: dict[str, Any] = {}
        lacking = dict(questions)
        for key, question in questions.items():
            try:
                answers |= await self.rounds.exchange({key: question})
            except InputRequired:
                continue
            del lacking[key]
        if lacking and self.promotion.stay_plain():
            raise InputRequired(lacking)
        task, manager = self.promotion.task, self.promotion.manager
        while lacking:
            assert task is not None
            responses = await self._ask(task, manager, lacking)
            for key, response in responses.items():
                try:
                    answers[key] = lacking[key].read(response)
                except InvalidClientResult:
                    continue  # it is asked again, under a new key
                del lacking[key]
        return answers

    async def _ask(
        self, task: RunningTask, manager: TaskManager, questions: Mapping[str, PreparedRequest]
    ) -> dict[str, Any]:
        """One response to each of `questions`, as the client sent it (RES-17)."""
        waiter = Waiter[None]()
        responses: dict[str, Any] = {}

        def respond(key: str, response: Any) -> None:
            responses[key] = response
            if len(responses) == len(questions):
                waiter.resolve(None)

        shown = {key: question.to_wire() for key, question in questions.items()}
        manager.questions.take(task.owner, len(questions))
        keys: list[str] = []
        try:
            keys = manager.ask(task, shown, respond)
            if keys:
                await waiter.wait(self.signal)
            self.signal.raise_if_aborted()
        finally:
            manager.withdraw(task, keys)
            manager.questions.give_back(task.owner, len(questions))
        return responses
