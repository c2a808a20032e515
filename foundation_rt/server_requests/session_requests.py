"""The handshake era: a question is a request of the server's, answered by a response (ASK-17).

The handler stays where it is until the answer has come, or until its call is aborted: then what is
still open is taken back, and the handler is unwound. A user may take longer than a call may: its
deadline stands still meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define

from ..protocol.principal import identity_of
from .errors import AnswerTimeoutError, ClientErrorResponse, ServerRequestError

if TYPE_CHECKING:
    from ..abort import AbortSignal
    from ..core.invocation import Invocation
    from ..shares import Quota
    from .requests import PreparedRequest

OnResponse = Callable[[Any, Any], object]
"""Takes the result and the error of a response, one of which is None; from any thread.

Instead of a response's error it takes an `ServerRequestError` where there will be no response.
"""


class RequestChannel(Protocol):
    """The way to a client that takes requests."""

    def request(
        self, call: Invocation, question: PreparedRequest, settle: OnResponse
    ) -> str | None:
        """Ask `question`; return the id of the request, or None if `call` has been aborted."""

    def withdraw(self, call: Invocation, request_ids: list[str]) -> None:
        """Take back those requests that have not been answered."""

    def hold(self, call: Invocation) -> None:
        """Let the deadline of `call` stand still until `resume`."""

    def resume(self, call: Invocation) -> None:
        """Let it go on."""


@define(eq=False, repr=False)
class SessionRequests:
    """A `RequestStrategy` for one call.

    Args:
        signal: the call's.
        ttl_ms: how long an answer is waited for, in ms.
        quota: counts the questions that are open.
    """

    channel: RequestChannel
    call: Invocation
    signal: AbortSignal
    ttl_ms: int
    quota: Quota

    async def exchange(self, questions: Mapping[str, PreparedRequest]) -> dict[str, Any]:
        """The answers to `questions`.

        Raises:
            AbortError: the call has been aborted meanwhile.
            ServerRequestError: the client refused to answer one of them, or its answer cannot be
                used, or there was none in time.
            LimitReached: too many questions are open; none of these was asked (RES-17).
        """
        import asyncio

        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        answers: dict[str, Any] = {}
        failures: list[ServerRequestError] = []

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        def receive(key: str, result: Any, error: Any) -> None:
            try:
                answers[key] = _read(questions[key], result, error)
            except ServerRequestError as failure:
                failures.append(failure)
            if failures or len(answers) == len(questions):
                wake()

        def give_up() -> None:
            failures.append(AnswerTimeoutError(self.ttl_ms))
            wake()

        def in_loop(callback: Callable[..., object], *arguments: Any) -> None:
            with suppress(RuntimeError):  # the loop has been closed: nobody waits there any more
                loop.call_soon_threadsafe(callback, *arguments)

        identity = identity_of(self.call.principal)
        self.quota.take(identity, len(questions))
        remove = self.signal.add_callback(partial(in_loop, wake))
        asked: list[str] = []
        patience = loop.call_later(self.ttl_ms / 1000, give_up)
        self.channel.hold(self.call)
        try:
            for key, question in questions.items():
                request_id = self.channel.request(
                    self.call, question, partial(in_loop, receive, key)
                )
                if request_id is None:
                    await self.signal.wait()
                    break
                asked.append(request_id)
            else:
                await woken
        finally:
            remove()
            patience.cancel()
            self.channel.withdraw(self.call, asked)
            self.channel.resume(self.call)
            self.quota.give_back(identity, len(questions))
        if failures:
            raise failures[0]
        if len(answers) < len(questions):
            self.signal.raise_if_aborted()
        return answers


def _read(question: PreparedRequest, result: Any, error: Any) -> Any:
    if error is None:
        return question.read(result)
    if isinstance(error, ServerRequestError):
        raise error
    code = error.get("code") if type(error) is dict else None
    message = error.get("message") if type(error) is dict else None
    raise ClientErrorResponse(
        code if type(code) is int else None,
        message if type(message) is str else "no reason was given",
    )
