"""One peer: bytes in, lines out, and the lock that puts its decisions in an order.

`feed` is called from one thread at a time. Handlers may end in any thread, so every decision about
the session is taken under `lock`, and so is every line handed to `send`: lines never overlap, and
none follows after `close` has returned (LIFE-06).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from attrs import define, field

from ..core.effects import Abort, Event, Extend, Log, Notify, Reply
from ..core.invocation import Invocation
from ..core.session import Session, State
from ..errors import describe_exception
from ..protocol.framing import LineReader, LineTooLong
from ..protocol.jsonrpc import Message, Request, parse

if TYPE_CHECKING:
    from ..abort import AbortSignal
    from ..core.dispatcher import Dispatcher
    from ..core.effects import Effect, Performed
    from ..core.subscriptions import Subscriber
    from ..protocol.jsonrpc import RequestId
    from ..server_requests.requester import ServerRequester
    from ..server_requests.requests import PreparedRequest
    from ..server_requests.session_requests import OnResponse
    from .executor import Engine
    from .scheduling import Scheduler

_MESSAGES = (Reply, Notify)  # a union would be made anew for each look at an effect

Send = Callable[[bytes], object]
"""Takes an outgoing line, without its newline."""

Deliver = Callable[["Reply | Notify"], object]
"""Takes an outgoing message, with what it belongs to."""

Observe = Callable[[Session, Event], object]
"""Is given the records of calls and handshakes with their session; under a lock, in any thread."""


@define(eq=False, repr=False)
class Connection:
    """A peer of the server, whatever carries its bytes.

    Args:
        reader: splits what is fed into lines.
        deliver: is given every outgoing message; it should not block. One that raises has lost
            its peer: the connection is closed.
        observers: are given the records of calls and handshakes.

    Attributes:
        close_response: ends the response that carries what belongs to a request, for transports
            whose clients come back for the rest of it.
    """

    session: Session
    dispatcher: Dispatcher
    engine: Engine
    scheduler: Scheduler
    reader: LineReader
    _deliver: Deliver
    observers: list[Observe] = field(factory=list)
    lock: threading.RLock = field(factory=threading.RLock, init=False)
    close_response: Callable[[RequestId], object] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.session.connection = ref(self)

    @property
    def closed(self) -> bool:
        """Return whether the session has ended."""
        return self.session.state is State.CLOSED

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer, cut anywhere; answers go to `send` (EMBED-01)."""
        for line in self.reader.feed(data):
            self.receive(line)

    def end(self) -> None:
        """The peer sends no more: a last line without a newline still counts (FRAME-05)."""
        for line in self.reader.end():
            self.receive(line)

    def receive(self, line: bytes | LineTooLong) -> None:
        """Decide and perform what one line leads to."""
        self.take(line if isinstance(line, LineTooLong) else parse(line))

    def take(self, message: Message | LineTooLong) -> None:
        """`receive`, for a transport that has looked into the line already."""
        effects: list[Effect] | None = None
        try:
            with self.lock:
                effects = self.dispatcher.dispatch(self.session, message)
                rest = self.tell(effects)
            if rest:
                self.perform(rest)
        except BaseException as error:
            self._recover(message, effects, error)
            if not isinstance(error, Exception):
                raise

    def _recover(
        self, message: Message | LineTooLong, effects: list[Effect] | None, error: BaseException
    ) -> None:
        """Perform what a bug, or an exception of another thread, kept a message from (ERR-07).

        Args:
            effects: what was decided about the message; None if that was interrupted.
        """
        dispatcher, session = self.dispatcher, self.session
        with self.lock:
            call = session.in_flight.get(message.id) if isinstance(message, Request) else None
            if effects is None and call is None:
                effects = dispatcher.report_bug(session, message, error)
            elif call is not None and not self.engine.has_started(call):
                effects = [*(effects or ()), *dispatcher.break_off(call, error, 0.0)]
            else:
                described = {"error": describe_exception(error)}
                effects = [*(effects or ()), Log("error", "internal error", described)]
            # Calls that were to be started have been, or are broken off.
            rest = self.tell(effects)
        self.perform([each for each in rest if not isinstance(each, Invocation)])

    def close(self, reason: str = "disconnected") -> None:
        """The peer has gone: abort what runs, send nothing more. A second time does nothing.

        Handlers go on until they end; their slots come back and their records are written then.
        """
        with self.lock:
            rest = self.tell(self.dispatcher.close(self.session, reason))
        self.perform(rest)

    def tell(self, effects: list[Effect]) -> list[Performed]:
        """Write replies and records, under the lock under which they were decided.

        Returns:
            The other effects, for `perform`: they run code of others, and so not under the lock.
        """
        rest: list[Performed] = []
        for effect in effects:
            if isinstance(effect, _MESSAGES):
                if not effect.done and not self._write(effect):
                    rest += self.tell(self.dispatcher.close(self.session))
            elif isinstance(effect, Log):
                if effect.done:
                    continue
                effect.done = True
                self.session.logger.log(effect.level, effect.message, effect.fields)
                if self.observers and isinstance(effect, Event):
                    self._show_observers(effect)
            else:
                rest.append(effect)
        return rest

    def tell_from_thread(self, effects: list[Effect]) -> list[Performed]:
        """`tell`, for a worker thread: records at once, replies where the host expects them."""
        messages: list[Effect] = []
        others: list[Effect] = []
        for effect in effects:
            (messages if isinstance(effect, _MESSAGES) else others).append(effect)
        self.scheduler.return_to_host(partial(self._tell_and_perform, messages))
        return self.tell(others)

    def notify(self, call: Invocation, method: str, params: dict[str, Any]) -> None:
        """Send a notification that belongs to a call, from whichever thread its handler runs in.

        Whether it is still waited for is decided now; it is sent before what is decided later.
        """
        with self.lock:
            rest = self._tell_from_handler(self.dispatcher.notify(call, method, params))
        self.perform(rest)

    def close_stream(self, call: Invocation) -> None:
        """End the response of a call that goes on; safe from any thread."""
        if self.close_response is not None:
            self.scheduler.return_to_host(partial(self.close_response, call.request_id))

    def converse(self, call: Invocation, signal: AbortSignal) -> ServerRequester:
        """What the handler of `call` asks the peer with; raises `UsageError` if it cannot."""
        return self.dispatcher.client_input.converse(call, self, signal)

    def request(
        self, call: Invocation, question: PreparedRequest, settle: OnResponse
    ) -> str | None:
        """Ask the peer something for a call; `settle` is given the response (ASK-17).

        Returns:
            The id of the request, or None if the call is not waited for any more.

        Raises:
            ToolError: too many questions are open.
        """
        with self.lock:
            request_id, effects = self.dispatcher.ask(call, question, settle)
            rest = self._tell_from_handler(effects)
        self.perform(rest)
        return request_id

    def withdraw(self, call: Invocation, request_ids: list[str]) -> None:
        """Take back those requests of a call's that have not been answered."""
        with self.lock:
            rest = self._tell_from_handler(self.dispatcher.withdraw(call, request_ids))
        self.perform(rest)

    def give_up_questions(self, away_ms: int) -> None:
        """Nobody can answer what the peer was asked: it has been away for `away_ms` (ASK-19)."""
        self._decide(partial(self.dispatcher.give_up_questions, self.session, away_ms))

    def hold(self, call: Invocation) -> None:
        """A call waits for the peer: its deadline stands still until `resume` (ASK-17)."""
        self.engine.hold(call)

    def resume(self, call: Invocation) -> None:
        """A call does not wait for the peer any more."""
        self.engine.resume(call)

    def cancel(self, request_id: RequestId) -> None:
        """The peer wants no answer to a request any more, as the transport knows (TIME-05)."""
        with self.lock:
            rest = self.tell(self.dispatcher.cancel(self.session, request_id))
        self.perform(rest)

    def list_changed(self, kind: str) -> None:
        """Tell the peer that a list is another one than before; safe from any thread (LIFE-10)."""
        self.scheduler.return_to_host(
            lambda: self._decide(partial(self.dispatcher.list_changed, self.session, kind))
        )

    def tell_listening(self, listening: Subscriber, message: Notify) -> None:
        """Tell the peer what it listens to, if it still does; safe from any thread (SUB-02)."""
        # In place where that may be: on their way, the events of one turn for thousands of
        # listeners took 5 KB each.
        tell = partial(self._decide, partial(self.dispatcher.tell_listening, listening, message))
        if self.scheduler.is_here():
            tell()
        else:
            self.scheduler.return_to_host(tell)

    def end_listening(self) -> None:
        """The server ends: let those who listen know that nothing more will come (SUB-08)."""
        self._decide(partial(self.dispatcher.end_listening, self.session))

    def _decide(self, decide: Callable[[], list[Effect]]) -> None:
        with self.lock:
            rest = self.tell(decide())
        self.perform(rest)

    def _tell_from_handler(self, effects: list[Effect]) -> list[Performed]:
        """`tell`, under the lock, so that it is sent before what is decided later."""
        if self.scheduler.is_here():
            return self.tell(effects)
        self.scheduler.return_to_host(partial(self._tell_and_perform, effects))
        return []

    def _tell_and_perform(self, effects: list[Effect]) -> None:
        with self.lock:
            rest = self.tell(effects)
        self.perform(rest)

    def perform(self, effects: Sequence[Performed]) -> None:
        """Start handlers, fire abort signals and so on, in their order."""
        for effect in effects:
            if isinstance(effect, Invocation):
                self.engine.start(self, effect)
            elif isinstance(effect, Abort):
                self.engine.abort(effect.invocation, effect.reason)
            elif isinstance(effect, Extend):
                self.engine.extend(effect.invocation, effect.timeout_ms)
            else:
                effect.tell()

    def _show_observers(self, record: Event) -> None:
        for observe in self.observers:
            try:
                observe(self.session, record)
            except BaseException as error:
                described = {"error": describe_exception(error)}
                self.session.logger.error("observer failed", described)

    def _write(self, message: Reply | Notify) -> bool:
        """Hand a message to the host, under the lock; return whether the host took it."""
        if self.session.state is not State.CLOSED:
            message.done = True
            try:
                self._deliver(message)
            except Exception as error:
                described = {"error": describe_exception(error)}
                self.session.logger.error("send failed: connection closed", described)
                return False
        return True
