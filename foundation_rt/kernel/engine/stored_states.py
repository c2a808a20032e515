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
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...errors import ToolError, UsageError
from ..registry.tools import ExecutionMode
from ..session_state import StoredState
from .state_store_redis import RedisStateStore, StateName
from .worker_threads import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..invocation import Invocation
    from .executor import RunningCall

_MOST_HANDLERS = 10_000
_MOST_FORGOTTEN = 1_000


@define(eq=False, repr=False)
class StoredStates:
    """The states of the calls that run now; safe from any thread.

    Args:
        max_bytes: of each state.
    """

    _store: RedisStateStore
    _max_bytes: int
    _lookers: set[int] = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _forgotten: deque[StateName] = field(factory=deque, init=False)
    _forgetting: threading.Lock = field(factory=threading.Lock, init=False)
    _thread: WorkerPool = field(factory=lambda: WorkerPool(1), init=False)

    def state_of(self, run: RunningCall, name: StateName) -> StoredState:
        """Return the state of a call; load it when it is first read.

        Raises:
            ToolError: INTERNAL, the store does not answer.
            UsageError: the handler runs in place, where nothing may wait.
        """
        if run.state is None:
            call = run.call
            if call.execution is ExecutionMode.INLINE:
                raise UsageError(
                    "a handler that runs in place cannot wait for a session state in Redis: leave"
                    " inline=True out"
                )
            self._note(call)
            self._load(run, name)
        assert run.state is not None
        return run.state

    def expects(self, run: RunningCall) -> bool:
        """Return whether the handler of a call has looked at its state, but in an earlier one."""
        return run.state is None and id(run.call.handler) in self._lookers

    async def prepare(
        self, run: RunningCall, run_in_worker: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> None:
        """Load the state of a call that will probably look at it; else its look will fail."""
        name = run.connection.state_name(run.call)
        if name is not None:
            with suppress(ToolError):
                await run_in_worker(partial(self._load, run, name))

    def save(self, run: RunningCall) -> None:
        """Write what a call has changed.

        Raises:
            ToolError: the store does not answer, or a limit is reached; nothing was written.
            TypeError: a value was changed in place to what JSON cannot keep.
        """
        name = run.connection.state_name(run.call)
        if run.state is None or name is None:
            return
        if name.is_principal or not run.connection.closed:  # else it would never be forgotten
            changes = run.state.take_changes()
            if changes:
                self._store.save(name, changes)

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
        loaded = StoredState(self._max_bytes, self._store.load(name))
        with self._lock:  # the first one wins, should two threads of a handler look at once
            if run.state is None:
                run.state = loaded

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
