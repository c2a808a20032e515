"""Requests of a task to its client: the handler waits for the answer (TASK-08).

Until its call becomes a task, a handler asks in rounds, as every stateless call does. From then on
no request is left to end, and the client sends none again: the record of the task lists the
requests, and `tasks/update` answers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define

from ...base.waiter import Waiter
from ..server_requests.errors import InvalidClientResult
from ..server_requests.round_trips import InputRequired

if TYPE_CHECKING:
    from ...base.abort import AbortSignal
    from ..server_requests.requests import PreparedRequest
    from ..server_requests.round_trips import MultiRoundTrip
    from .manager import RunningTask, TaskManager
    from .promotion import Promotion


@define(eq=False, repr=False)
class TaskRequests:
    """A `RequestStrategy` for a call that may become a task.

    Args:
        rounds: the answers that came with the request.
        signal: fires when the call is aborted; ends the wait for an answer.
    """

    promotion: Promotion
    rounds: MultiRoundTrip
    signal: AbortSignal

    async def exchange(self, requests: Mapping[str, PreparedRequest]) -> dict[str, Any]:
        """Return the answers to `requests`, however long the client takes.

        Raises:
            InputRequired: the call is not a task, and its request did not bring them.
            AbortError: the task has ended meanwhile.
            LimitReached: too many requests are open.
        """
        answers: dict[str, Any] = {}
        missing = dict(requests)
        for key, request in requests.items():
            try:
                answers |= await self.rounds.exchange({key: request})
            except InputRequired:
                continue
            del missing[key]
        if missing and self.promotion.stay_plain():
            raise InputRequired(missing)
        task, manager = self.promotion.task, self.promotion.manager
        while missing:
            assert task is not None
            responses = await self._ask(task, manager, missing)
            for key, response in responses.items():
                try:
                    answers[key] = missing[key].read(response)
                except InvalidClientResult:
                    continue  # sent again, under a new key
                del missing[key]
        return answers

    async def _ask(
        self, task: RunningTask, manager: TaskManager, requests: Mapping[str, PreparedRequest]
    ) -> dict[str, Any]:
        """Return one response to each of `requests`, as the client sent it (RES-17)."""
        waiter = Waiter[None]()
        responses: dict[str, Any] = {}

        def respond(key: str, response: Any) -> None:
            responses[key] = response
            if len(responses) == len(requests):
                waiter.resolve(None)

        shown = {key: request.to_wire() for key, request in requests.items()}
        manager.open_requests.take(task.owner, len(requests))
        keys: list[str] = []
        try:
            keys = manager.add_requests(task, shown, respond)
            if keys:
                await waiter.wait(self.signal)
            self.signal.raise_if_aborted()
        finally:
            manager.remove_requests(task, keys)
            manager.open_requests.give_back(task.owner, len(requests))
        return responses
