"""One conversation with one server, over one channel, from its handshake to its end.

What is decided, others decide (`conversation`, `handshake`); here it is performed: futures,
tasks and time. A session that has lost its channel is over; the client makes another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ..errors import JsonRpcErrorCode
from ..protocol.http_headers import NAME_SOURCES
from ..protocol.jsonrpc import Request
from ..protocol.peer import LOG_LEVEL_KEY
from .capabilities import ServerDescription
from .channel import Outgoing
from .conversation import (
    Answered,
    Arrival,
    Asked,
    Conversation,
    Stray,
    Told,
    Unusable,
    Waiting,
    answer,
    notification,
)
from .error_mapping import map_mcp_error
from .errors import ConnectionLostError, InvalidAnswerError, MCPError, SessionExpiredError
from .handshake import Handshake, Opening
from .questions import QuestionRefused, Questions

if TYPE_CHECKING:
    from ..protocol.framing import LineTooLong
    from ..protocol.revisions import Revision
    from .channel import Channel
    from .deadline import Deadline

log = logging.getLogger("foundation_rt.client")

ProgressCallback = Callable[[float, float | None, str | None], object]
"""Takes what is done, how much there is to do, and a message; the last two may be None."""

LogCallback = Callable[[str, str | None, Any], object]
"""Takes the level, the name of the logger or None, and the data of a log message."""

_MAX_OPEN_QUESTIONS = 64
# A request that is withdrawn before both sides know what they speak is only forgotten.
_OPENINGS = ("initialize", "server/discover")
_LOG_MESSAGE = "notifications/message"
_NO_PARAMS: Mapping[str, Any] = {}


@define(eq=False, repr=False)
class Attempt:
    """One try of what a caller wants: who hears of it, and how long it may take.

    Attributes:
        is_idempotent: whether it may run twice.
        was_sent: whether anything of it has been handed to a channel.
        session: over which that was.
    """

    deadline: Deadline | None = None
    on_progress: ProgressCallback | None = None
    on_log: LogCallback | None = None
    on_told: Callable[[Told], object] | None = None
    is_idempotent: bool = False
    was_sent: bool = field(default=False, init=False)
    session: Session | None = field(default=None, init=False)
    answer: asyncio.Future[dict[str, Any] | MCPError] = field(init=False)


class Observer(Protocol):
    """Who is told what a session brings unasked."""

    def told(self, session: Session, told: Told) -> None:
        """The server says something that belongs to no single request."""

    def lost(self, session: Session, error: MCPError) -> None:
        """The session has ended by itself."""


@define(eq=False, repr=False)
class Session:
    """A `Receiver` of what a channel brings, and a sender of requests.

    Args:
        probe_timeout: seconds after which a server that leaves the first question unanswered is
            asked `initialize` as well.
        question_timeout: seconds that answering one question of the server's may take.
        log_level: the least severe level of log messages that the server is to send.

    Attributes:
        server: what is known of it, once `start` has returned.
        error: why it is over; None as long as it is not.
        ended: is set when it is over.
        is_expired: whether the server does not know it any more; it ends as soon as what is under
            way has heard the same (CHTTP-18).
        is_failure_counted: whether a circuit breaker has heard of its end.
    """

    channel: Channel
    conversation: Conversation
    handshake: Handshake
    questions: Questions
    observer: Observer
    probe_timeout: float
    question_timeout: float
    log_level: str | None = None
    server: ServerDescription = field(init=False)
    error: MCPError | None = field(default=None, init=False)
    ended: asyncio.Event = field(factory=asyncio.Event, init=False)
    is_expired: bool = field(default=False, init=False)
    is_failure_counted: bool = field(default=False, init=False)
    _revision: Revision | None = field(default=None, init=False)
    _meta: Mapping[str, Any] = field(default=_NO_PARAMS, init=False)
    _answering: dict[Any, asyncio.Task[None]] = field(factory=dict, init=False)

    @property
    def is_usable(self) -> bool:
        """Whether anything can be asked in it."""
        return self.error is None and not self.is_expired

    # -- beginning and end

    async def start(self, required: frozenset[str]) -> None:
        """Open the channel and introduce both sides to each other, step by step (CLIENT-04).

        Args:
            required: capabilities without which the server is of no use.

        Raises:
            MCPError: there is no way to the server, or no common revision, or it lacks something.
        """
        await self.channel.open(self)
        outcome: Opening | ServerDescription = self.handshake.first()
        while isinstance(outcome, Opening):
            outcome = await self._introduce(outcome)
        self.server = outcome
        self.server.check(required)
        revision = self._revision = self.server.revision
        self.channel.agreed(revision)
        if revision.is_stateless:
            self._meta = self._stateless_meta(revision)
        else:
            self.notify("notifications/initialized")
        log.info(
            "connected to %s %s", self.server.name, self.server.version, extra=self._log_fields()
        )

    async def close(self) -> None:
        """End it; whoever waits for an answer gets a `ConnectionLostError`."""
        if self.error is None:
            self.error = ConnectionLostError("the client was closed", may_have_run=False)
        self._abandon("the client was closed")
        await self.channel.close()

    async def _introduce(self, opening: Opening) -> Opening | ServerDescription:
        """Ask `opening`; return what came of it, or what to ask next (CLIENT-02)."""
        asked = {asyncio.create_task(self._say(opening)): opening}
        try:
            if opening.method == "server/discover" and self.handshake.may_fall_back:
                done, _ = await asyncio.wait(asked, timeout=self.probe_timeout)
                if not done:
                    # Of the older kind, or only slow to start: the first good answer decides.
                    other = self.handshake.initialize()
                    asked[asyncio.create_task(self._say(other))] = other
            pending = {*asked}
            while True:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                task = next(iter(done))
                pending |= done - {task}
                try:
                    result = task.result()
                except MCPError as error:
                    if not pending:
                        return self.handshake.refused(asked[task], error)
                else:
                    outcome = self.handshake.answered(asked[task], result)
                    if isinstance(outcome, ServerDescription) or not pending:
                        return outcome
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _say(self, opening: Opening) -> dict[str, Any]:
        self._revision = opening.revision if opening.revision.is_stateless else None
        result = await self.request(opening.method, opening.params, Attempt())
        spoken = result.get("protocolVersion")
        if opening.method == "initialize" and spoken != opening.revision.name:
            said = spoken if isinstance(spoken, str) else None
            fields = {"asked": opening.revision.name, "spoken": said}
            log.warning("the server speaks another revision", extra={"fields": fields})
        return result

    def _stateless_meta(self, revision: Revision) -> dict[str, Any]:
        meta = self.handshake.meta(revision)
        return meta if self.log_level is None else {**meta, LOG_LEVEL_KEY: self.log_level}

    def _log_fields(self) -> dict[str, Any]:
        fields = {"revision": self.server.revision.name, "channel": self.channel.description}
        return {"fields": fields}

    # -- requests

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        attempt: Attempt,
        *,
        meta: Mapping[str, Any] = _NO_PARAMS,
        parameters: Mapping[str, str] = _NO_PARAMS,
    ) -> dict[str, Any]:
        """Ask the server, and wait for its answer; cancelled, the server is told (CLIENT-15).

        Args:
            meta: further members of `_meta`.
            parameters: the arguments that headers repeat.

        Raises:
            MCPError: the server refused, or its answer is none, or it will not come.
        """
        attempt.session = self
        if self.channel.congested:
            await self.channel.drained()
        if self.error is not None:
            raise ConnectionLostError(self.error.message, may_have_run=False)
        attempt.answer = asyncio.get_running_loop().create_future()
        message = self._with_meta(params, meta)
        request, line = self.conversation.ask(
            method, message, attempt, wants_progress=attempt.on_progress is not None
        )
        source = NAME_SOURCES.get(method)
        name = None if source is None or params is None else params.get(source)
        try:
            attempt.was_sent = True
            self.channel.send(Outgoing(line, request.id, method, name, parameters, self._revision))
            outcome = await attempt.answer
        except asyncio.CancelledError:
            self._withdraw(request)
            raise
        finally:
            self.conversation.waiting.pop(request.id, None)
        if isinstance(outcome, MCPError):
            raise outcome
        return outcome

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the server something."""
        line = notification(method, params)
        self.channel.send(Outgoing(line, method=method, revision=self._revision))

    def _with_meta(
        self, params: Mapping[str, Any] | None, meta: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        if not (self._meta or meta):
            return params
        return {**(params or {}), "_meta": {**self._meta, **meta}}

    def _withdraw(self, request: Waiting) -> None:
        """Nobody waits for this answer any more (CLIENT-15)."""
        answer = request.holder.answer
        # Whoever is cancelled while waiting for it has cancelled it.
        if self.error is not None or (answer.done() and not answer.cancelled()):
            return
        is_told = self.channel.closes_exchanges and (self._revision and self._revision.is_stateless)
        if not is_told and request.method not in _OPENINGS:
            params: dict[str, Any] = {
                "requestId": request.id,
                "reason": "the caller does not wait any more",
            }
            if self._meta:
                params["_meta"] = dict(self._meta)
            self.notify("notifications/cancelled", params)
        self.channel.forget(request.id)

    # -- what a channel brings

    def received(self, line: bytes | LineTooLong, request_id: str | None) -> None:
        """A message has come."""
        for arrival in self.conversation.take(line, request_id):
            self._arrived(arrival)

    def failed(self, request_id: str, error: MCPError) -> None:
        """No answer to this request will come."""
        self.is_expired = self.is_expired or isinstance(error, SessionExpiredError)
        request = self.conversation.waiting.get(request_id)
        if request is not None:
            self._settle(request, error)

    def awaits(self, request_id: str) -> bool:
        """Whether a request still waits for its answer."""
        return request_id in self.conversation.waiting

    def lost(self, error: MCPError) -> None:
        """The channel has ended by itself."""
        if self.error is None:
            self.error = error
            self._abandon(error.message)
            self.observer.lost(self, error)

    def _abandon(self, why: str) -> None:
        self.ended.set()
        for task in self._answering.values():
            task.cancel()
        for request in [*self.conversation.waiting.values()]:
            self._settle(request, ConnectionLostError(why, may_have_run=True))

    def _arrived(self, arrival: Arrival) -> None:
        if isinstance(arrival, Answered):
            if arrival.error is None:
                self._settle(arrival.request, arrival.result)
            else:
                error = map_mcp_error(arrival.error, arrival.request.method)
                self._settle(arrival.request, error)
                if isinstance(error, SessionExpiredError):
                    self.lost(error)
        elif isinstance(arrival, Told):
            self._hear(arrival)
        elif isinstance(arrival, Asked):
            self._ask(arrival.question)
        elif isinstance(arrival, Unusable):
            self._settle(arrival.request, InvalidAnswerError(arrival.why))
        elif isinstance(arrival, Stray):
            log.debug("dropped: %s", arrival.reason)

    def _hear(self, told: Told) -> None:
        attempt: Attempt | None = None if told.about is None else told.about.holder
        if told.method == "notifications/progress":
            if attempt is not None and attempt.on_progress is not None:
                _report_progress(attempt.on_progress, told.params)
        elif told.method == "notifications/cancelled":
            self._take_back(told.params.get("requestId"))
        elif attempt is not None and attempt.on_told is not None:
            attempt.on_told(told)
        else:
            if told.method == _LOG_MESSAGE:
                self._report_log(told, attempt)
            self.observer.told(self, told)

    def _report_log(self, told: Told, attempt: Attempt | None) -> None:
        """A log message belongs to the request on whose stream it came, else to all that run."""
        holders = [waiting.holder for waiting in self.conversation.waiting.values()]
        for each in holders if attempt is None else [attempt]:
            if each.on_log is not None:
                call_back(each.on_log, *log_message(told.params))

    # -- what the server asks

    def _ask(self, question: Request) -> None:
        if self._revision is not None and self._revision.is_stateless:
            log.warning("dropped: the server asks %s, which it must not", question.method[:64])
        elif question.method == "ping":
            self._reply(answer(question, result={}))
        elif question.id in self._answering or len(self._answering) >= _MAX_OPEN_QUESTIONS:
            self._refuse(question, JsonRpcErrorCode.INVALID_REQUEST, "Too many open requests")
        else:
            task = asyncio.create_task(self._answer(question))
            self._answering[question.id] = task
            task.add_done_callback(lambda _: self._answering.pop(question.id, None))

    async def _answer(self, question: Request) -> None:
        """Let the caller's handler answer; meanwhile the deadlines stand still (CLIENT-20)."""
        held = [
            waiting.holder.deadline
            for waiting in self.conversation.waiting.values()
            if waiting.holder.deadline is not None
        ]
        for deadline in held:
            deadline.hold()
        try:
            async with asyncio.timeout(self.question_timeout):
                result = await self.questions.answer(
                    question.method, question.params, self.handshake_revision
                )
            self._reply(answer(question, result=result))
        except QuestionRefused as refusal:
            self._reply(answer(question, error=refusal.to_wire()))
        except TimeoutError:
            self._refuse(question, JsonRpcErrorCode.INTERNAL_ERROR, "No answer in time")
        finally:
            for deadline in held:
                deadline.resume()

    @property
    def handshake_revision(self) -> Revision:
        """What is spoken, or proposed as long as nothing is agreed on."""
        return self._revision or self.handshake.initialize().revision

    def _take_back(self, question_id: Any) -> None:
        """The server does not want an answer any more, or ends a stream of its own."""
        try:
            task = self._answering.get(question_id)
            request = self.conversation.waiting.get(question_id)
        except TypeError:  # an id that is no id
            return
        if task is not None:
            task.cancel()
        elif request is not None and request.holder.on_told is not None:
            self._settle(request, ConnectionLostError("the server ended it", may_have_run=True))

    def _settle(self, request: Waiting, outcome: dict[str, Any] | MCPError) -> None:
        """Hand over an answer; as a value, so that one nobody takes is no unretrieved exception."""
        self.conversation.waiting.pop(request.id, None)
        future = request.holder.answer
        if not future.done():
            future.set_result(outcome)

    def _refuse(self, question: Request, code: int, message: str) -> None:
        self._reply(answer(question, error={"code": int(code), "message": message}))

    def _reply(self, line: bytes) -> None:
        self.channel.send(Outgoing(line, revision=self._revision))


def call_back(callback: Callable[..., object], *values: Any) -> None:
    """Call what belongs to the caller; what it raises is logged and harms nobody else."""
    try:
        callback(*values)
    except Exception:
        log.exception("a callback failed")


def log_message(params: Mapping[str, Any]) -> tuple[str, str | None, Any]:
    """Level, logger and data of a `notifications/message`."""
    level, logger = params.get("level"), params.get("logger")
    return (
        level if isinstance(level, str) else "info",
        logger if isinstance(logger, str) else None,
        params.get("data"),
    )


def _report_progress(callback: ProgressCallback, params: Mapping[str, Any]) -> None:
    done, total, message = params.get("progress"), params.get("total"), params.get("message")
    if type(done) in (int, float):
        call_back(
            callback,
            done,
            total if type(total) in (int, float) else None,
            message if isinstance(message, str) else None,
        )
