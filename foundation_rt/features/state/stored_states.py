"""States of handlers that are in a store: loaded once for a call, written when it ends (CALL-34).

A store is asked in worker threads. A `def` handler is in one: its first look loads the state. An
`async def` handler cannot wait where it only reads an attribute, so its state is loaded before it
starts, if a call of it has looked at its state before. The first call of all loads where it looks,
and holds its event loop up for that one time.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from ...errors import ToolError, UsageError, describe_exception
from ...kernel.engine.worker_threads import WorkerPool
from ...kernel.feature import RuntimeFeature
from ...kernel.invocation import Raised, Returned
from ...kernel.registry.tools import ExecutionMode
from .handler_state import StoredState
from .redis_store import RedisStateStore, StateName
from .states import States

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ...base.clock import Clock
    from ...base.config.settings import ServerSection
    from ...base.logs.logger import StructuredLogger
    from ...kernel.engine.connection import Connection
    from ...kernel.engine.executor import Engine, RunningCall
    from ...kernel.invocation import CallOutcome, Invocation

_MOST_HANDLERS = 10_000
_MOST_FORGOTTEN = 1_000


@define(eq=False, repr=False)
class StoredStates(RuntimeFeature):
    """The states of the calls that run now; safe from any thread.

    Args:
        limits: the `server` section of the configuration.
    """

    _limits: ServerSection
    _clock: Clock
    _logger: StructuredLogger
    _store: RedisStateStore = field(init=False)
    _lookers: set[int] = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _forgotten: deque[StateName] = field(factory=deque, init=False)
    _forgetting: threading.Lock = field(factory=threading.Lock, init=False)
    _thread: WorkerPool = field(factory=lambda: WorkerPool(1), init=False)

    def __attrs_post_init__(self) -> None:
        limits = self._limits
        url = limits.session_state_store
        self._store = RedisStateStore(url, limits.name, limits, self._clock, self._logger)

    def join(self, engine: Engine) -> None:
        """Have the calls of a server find their states here."""
        engine.part(States).stored = self

    def state_of(self, run: RunningCall, name: StateName) -> StoredState:
        """Return the state of a call; load it when it is first read.

        Raises:
            ToolError: INTERNAL, the store does not answer.
            UsageError: the handler runs in place, where nothing may wait.
        """
        call = run.call
        if StoredState not in call.parts:
            if call.execution is ExecutionMode.INLINE:
                raise UsageError(
                    "a handler that runs in place cannot wait for a session state in Redis: leave"
                    " inline=True out"
                )
            self._note(call)
            self._load(run, name)
        state: StoredState = call.parts[StoredState]
        return state

    def starting(self, run: RunningCall) -> Awaitable[None] | None:
        """Load the state first, if the handler has looked at its state in an earlier call."""
        call = run.call
        if StoredState in call.parts or id(call.handler) not in self._lookers:
            return None
        name = name_of(call, run.connection)
        return None if name is None else self._prepare(run, name)

    async def _prepare(self, run: RunningCall, name: StateName) -> None:
        with suppress(ToolError):  # its look will fail
            await run.connection.engine.coroutines.run_in_worker(partial(self._load, run, name))

    def _save(
        self, run: RunningCall, name: StateName, state: StoredState, outcome: CallOutcome
    ) -> CallOutcome:
        """Write what a call has changed; return how the call ends (CALL-36)."""
        if not name.is_principal and run.connection.closed:
            return outcome  # it would never be forgotten
        try:
            changes = state.take_changes()
            if changes:
                self._store.save(name, changes)
        except Exception as error:
            if isinstance(outcome, Returned):
                return Raised(error)
            described = {"error": describe_exception(error)}
            run.context.logger.warn("the session state was not stored", described)
        return outcome

    def forget(self, session_id: str) -> None:
        """Remove the state of a session that has ended, soon."""
        self._forgotten.append(StateName(session_id, is_principal=False))
        if len(self._forgotten) == 1:
            self._thread.submit(self._forget_all)

    def close(self) -> None:
        """Remove the states of sessions that have ended, and close the connections of the store."""
        self._forget_all()
        self._store.close()

    def _load(self, run: RunningCall, name: StateName) -> None:
        state = StoredState(self._limits.session_state_bytes, self._store.load(name))
        with self._lock:  # the first one wins, should two threads of a handler look at once
            if StoredState not in run.call.parts:
                run.call.keep(state)
                run.finishers = (*run.finishers, partial(self._save, run, name, state))

    def _note(self, call: Invocation) -> None:
        if call.execution is ExecutionMode.ASYNC:
            if len(self._lookers) >= _MOST_HANDLERS:
                self._lookers.clear()  # those of handlers that were replaced
            self._lookers.add(id(call.handler))

    def _forget_all(self) -> None:
        with self._forgetting:
            while self._forgotten:
                most = min(len(self._forgotten), _MOST_FORGOTTEN)
                names = [self._forgotten.popleft() for _ in range(most)]
                self._store.forget(names)


def name_of(call: Invocation, connection: Connection) -> StateName | None:
    """Return the name of the stored state of `call`; None if its state is in memory."""
    if not call.peer.revision.is_stateless:
        return None if connection.shared_id is None else StateName(connection.shared_id(), False)
    if call.principal is None or connection.session.transport_type not in ("http", "sse"):
        return None
    return StateName(call.principal.identity, True)
