"""One peer: bytes in, lines out, and the lock that orders its decisions.

`feed` is called from one thread at a time. Handlers may end in any thread, so every decision about
the session is taken under `lock`, and every line is handed to the host under it: lines never
overlap, and none follows after `close` has returned (LIFE-06).

Effects go one way: a decision is made, `emit` writes its messages and records under the same lock,
and `perform` runs the rest without it, since that calls other code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import describe_exception
from ...protocol.framing import LineReader, LineTooLong
from ...protocol.jsonrpc import Message, Request, parse
from ..effects import Abort, Attach, Event, Extend, Log, Notify, Reply, SessionEnded
from ..invocation import Invocation
from ..session import CLOSED, NO_HEADERS, Session

if TYPE_CHECKING:
    from ...protocol.jsonrpc import RequestId
    from ..dispatcher import Dispatcher
    from ..effects import Effect, Performed
    from .executor import Engine
    from .scheduling import Scheduler

_MESSAGES = (Reply, Notify)  # a union would be made for each look at an effect

Send = Callable[[bytes], object]
"""Takes an outgoing line, without its newline."""

Deliver = Callable[["Reply | Notify"], object]
"""Takes an outgoing message, with the request that it belongs to."""

Observe = Callable[[Session, Event], object]
"""Is given the records of calls and handshakes with their session; under a lock, in any thread."""


def _random_key() -> str:
    """Return 256 random bits in hexadecimal."""
    from secrets import token_hex

    return token_hex(32)


class Connection:
    """A peer of the server, on any transport.

    Args:
        reader: splits the bytes that are fed into lines.
        deliver: is given every outgoing message; it should not block. If it raises, the peer is
            lost and the connection is closed.
        observers: are given the records of calls and handshakes.

    Attributes:
        close_response: ends the response that carries the messages of a request, for transports
            whose clients come back for the rest of it.
        make_key: makes the key of the session (LIFE-16).
        shared_id: returns the id of the session, which is the same in every worker; None if the
            session can be in this process alone.
    """

    def __init__(
        self,
        session: Session,
        dispatcher: Dispatcher,
        engine: Engine,
        scheduler: Scheduler,
        reader: LineReader,
        deliver: Deliver,
        observers: list[Observe],
    ) -> None:
        self.session = session
        self.dispatcher = dispatcher
        self.engine = engine
        self.scheduler = scheduler
        self.reader = reader
        self._deliver = deliver
        self.observers = observers
        self.lock = threading.RLock()
        self.close_response: Callable[[RequestId], object] | None = None
        self.make_key: Callable[[], str] = _random_key
        self.shared_id: Callable[[], str] | None = None

    @property
    def closed(self) -> bool:
        """Return whether the session has ended."""
        return self.session.state is CLOSED

    # -- from the peer -----------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer, cut anywhere; answers go to `deliver` (EMBED-01)."""
        for line in self.reader.feed(data):
            self.receive(line)

    def end(self) -> None:
        """Take the end of the input: a last line without a newline still counts (FRAME-05)."""
        for line in self.reader.end():
            self.receive(line)

    def receive(self, line: bytes | LineTooLong) -> None:
        """Handle the message of one line."""
        self.handle(line if isinstance(line, LineTooLong) else parse(line))

    def handle(self, message: Message | LineTooLong) -> None:
        """Decide about a parsed message, and perform the decision."""
        effects: list[Effect] | None = None
        try:
            with self.lock:
                effects = self.dispatcher.dispatch(self.session, message)
                rest = self.emit(effects)
            if rest:
                self.perform(rest)
        except BaseException as error:
            self._recover(message, effects, error)
            if not isinstance(error, Exception):
                raise

    def handle_with(self, message: Message, headers: Mapping[str, str]) -> None:
        """Handle a message that came with headers which its handlers get (HEAD-16).

        They are kept with its calls alone: a session lives longer than they are needed.
        """
        self.session.headers = headers
        try:
            self.handle(message)
        finally:
            self.session.headers = NO_HEADERS

    def _recover(
        self, message: Message | LineTooLong, effects: list[Effect] | None, error: BaseException
    ) -> None:
        """Perform the rest for a message that a bug or another thread interrupted (ERR-07).

        Args:
            message: the message.
            effects: the decision about the message; None if that was interrupted.
            error: the interruption.
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
            rest = self.emit(effects)
        self.perform([each for each in rest if not isinstance(each, Invocation)])

    def cancel(self, request_id: RequestId) -> None:
        """Cancel a request of the peer's, as the transport has learned of it (TIME-05)."""
        self.apply(self.dispatcher.cancel, request_id)

    def close(self, reason: str = "disconnected") -> None:
        """Abort the handlers of a peer that has gone, and send nothing more; idempotent.

        Handlers go on until they end; their slots come back and their records are written then.
        """
        self.apply(self.dispatcher.close, reason)

    def prepare_stop(self) -> None:
        """End what is open beside the calls in flight: the server stops."""
        self.apply(self.dispatcher.prepare_stop)

    # -- to the peer, from handlers in any thread --------------------------------------------

    def notify(self, call: Invocation, method: str, params: dict[str, Any]) -> None:
        """Send a notification that belongs to a call; safe from any thread.

        It is decided now whether the call is still open. The notification is sent before every
        message that is decided later.
        """
        with self.lock:
            rest = self.emit_from_thread(self.dispatcher.notify(call, method, params))
        self.perform(rest)

    def close_stream(self, call: Invocation) -> None:
        """End the response of a call that goes on; safe from any thread."""
        if self.close_response is not None:
            self.scheduler.return_to_host(partial(self.close_response, call.request_id))

    def session_key(self, call: Invocation) -> str | None:
        """Return the key of the session that made `call`; made when it is first read (LIFE-16).

        None in the stateless mode, and for a session that has ended and whose key nothing knows.
        """
        if call.peer.revision.is_stateless:
            return None
        return self.session.key or self._make_session_key()

    def _make_session_key(self) -> str | None:
        with self.lock:
            if self.session.key is None and not self.closed:
                key = self.make_key()
                self.session.set_key(key)
                self.engine.directory.name_session(key, self.session.id)
            return self.session.key

    # -- effects -----------------------------------------------------------------------------

    def apply(self, decide: Callable[..., list[Effect]], *arguments: Any) -> None:
        """Call `decide(session, *arguments)` under the lock, and perform the decision."""
        with self.lock:
            rest = self.emit(decide(self.session, *arguments))
        self.perform(rest)

    def emit(self, effects: list[Effect]) -> list[Performed]:
        """Write messages and records, under the lock under which they were decided.

        Returns:
            The other effects, for `perform`: they run other code, and so not under the lock.
        """
        rest: list[Performed] = []
        for effect in effects:
            if isinstance(effect, Invocation):  # first, because every call has one
                rest.append(effect)
            elif isinstance(effect, _MESSAGES):
                if not effect.done and not self._write(effect):
                    rest += self.emit(self.dispatcher.close(self.session))
            elif isinstance(effect, Log):
                if effect.done:
                    continue
                effect.done = True
                self.session.logger.log(effect.level, effect.message, effect.fields)
                if self.observers and isinstance(effect, Event):
                    self._notify_observers(effect)
            elif isinstance(effect, Attach):
                self.engine.directory.attach(self)
            else:
                rest.append(effect)
        return rest

    def emit_from_thread(self, effects: list[Effect]) -> list[Performed]:
        """Write records at once, and messages where the host expects them; from any thread."""
        if self.scheduler.is_here():
            return self.emit(effects)
        messages: list[Effect] = []
        others: list[Effect] = []
        for effect in effects:
            (messages if isinstance(effect, _MESSAGES) else others).append(effect)
        if messages:
            self.scheduler.return_to_host(partial(self._emit_and_perform, messages))
        return self.emit(others)

    def _emit_and_perform(self, effects: list[Effect]) -> None:
        with self.lock:
            rest = self.emit(effects)
        self.perform(rest)

    def perform(self, effects: Sequence[Performed]) -> None:
        """Start handlers, fire abort signals and so on, in their order; without the lock."""
        for effect in effects:
            if isinstance(effect, Invocation):
                self.engine.start(self, effect)
            elif isinstance(effect, Abort):
                self.engine.abort(effect.invocation, effect.reason)
            elif isinstance(effect, Extend):
                self.engine.extend(effect.invocation, effect.timeout_ms)
            elif isinstance(effect, SessionEnded):
                self.engine.end_session(self, effect.key)
            else:
                effect.function()

    def _notify_observers(self, event: Event) -> None:
        for observe in self.observers:
            try:
                observe(self.session, event)
            except BaseException as error:
                described = {"error": describe_exception(error)}
                self.session.logger.error("observer failed", described)

    def _write(self, message: Reply | Notify) -> bool:
        """Hand a message to the host, under the lock; return whether the host took it."""
        if self.session.state is not CLOSED:
            message.done = True
            try:
                self._deliver(message)
            except Exception as error:
                described = {"error": describe_exception(error)}
                self.session.logger.error("send failed: connection closed", described)
                return False
        return True
