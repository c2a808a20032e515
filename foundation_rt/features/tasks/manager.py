"""The manager of tasks: their records, and the calls behind them.

Every change of a task is made under its own lock: the handler ends on one connection while its
client reads, responds or cancels on another. The lock is held for a few steps, and nothing that
could wait is called under it. Subscribers are notified after the lock is released.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from ...base.exact_json import compact, dumps, loads
from ...base.principal_shares import Limit, Quota
from ...base.shown import Shown
from ...protocol.principal import identity_of
from .record import TaskEvent, TaskRecord
from .store import MemoryTaskStore

if TYPE_CHECKING:
    from ...base.clock import Clock
    from ...base.config.feature_sections import TasksSection
    from ...base.config.settings import ServerConfig
    from ...kernel.effects import Effect, FeatureCallback, Reply
    from ...kernel.invocation import Invocation
    from ...protocol.principal import Principal

MAX_MESSAGE_LENGTH = 1024
"""Characters of a status message; the rest is cut off."""


@define(eq=False, repr=False)
class RunningTask(Shown):
    """A task that has not ended; it does not refer to its call.

    Attributes:
        owner: the identity of its principal.
        record: the state that its client sees.
        lock: held for every change.
        responders: the functions that take the client's responses, by key.
        last_key: how many keys have been used: each is used once (TASK-08).
    """

    owner: str | None
    record: TaskRecord
    lock: AbstractContextManager[Any]
    responders: dict[str, Callable[[Any], object]] = field(factory=dict, init=False)
    last_key: int = field(default=0, init=False)


@define(eq=False, repr=False)
class TaskManager:
    """The tasks of a server.

    Args:
        new_id: makes ids that cannot be guessed (TASK-10).
        open_requests: counts the open requests to clients, of tasks and of other calls.
        announce: returns the effects that notify clients of a changed record (TASK-11).
    """

    clock: Clock
    limits: TasksSection
    store: MemoryTaskStore
    open_requests: Quota
    new_id: Callable[[], str]
    announce: Callable[[TaskRecord], list[FeatureCallback]]
    # The only reference from a task to its call. The call refers to its task: a reference
    # back would make a cycle, which keeps the arguments alive.
    _running: dict[str, tuple[RunningTask, Invocation]] = field(factory=dict, init=False)

    # -- a task begins and ends ----------------------------------------------------------------

    def open(self, call: Invocation, lock: AbstractContextManager[Any]) -> RunningTask:
        """Make a task of `call` (TASK-12).

        Raises:
            LimitReached: there is no room for one.
        """
        now = self.clock.timestamp()
        record = TaskRecord(
            self.new_id(),
            identity_of(call.principal),
            now,
            now,
            self.limits.max_run_ms + self.limits.keep_ms,
            self.limits.poll_interval_ms,
        )
        self.store.add(record)
        task = RunningTask(record.owner, record, lock)
        self._running[record.task_id] = (task, call)
        return task

    def settle(self, task: RunningTask, reply: Reply) -> list[Effect]:
        """Keep the result or the error of `reply` as the outcome; under the lock (TASK-06)."""
        message = loads(reply.line)
        if "result" in message:
            result = message["result"]
            if result["resultType"] != "input_required":
                return self._end(task, TaskEvent.COMPLETE, compact(dumps(result)))
            # Its handler ended with an exception of its own instead of asking (ASK-18).
            return self._end(task, TaskEvent.FAIL, None, _CANNOT_ASK)
        error = message["error"]
        return self._end(task, TaskEvent.FAIL, compact(dumps(error)), error["message"])

    def give_up(self, task: RunningTask, message: str | None = None) -> list[Effect]:
        """End a task without an outcome; under the lock."""
        return self._end(task, TaskEvent.CANCEL, None, message)

    def _end(
        self, task: RunningTask, event: TaskEvent, outcome: bytes | None, message: str | None = None
    ) -> list[Effect]:
        task.responders.clear()
        self._running.pop(task.record.task_id, None)
        changes: dict[str, Any] = {"outcome": outcome}
        if message is not None:
            changes["message"] = message[:MAX_MESSAGE_LENGTH]
        now = self.clock.timestamp()
        record = task.record.advance(event, now, **changes)
        if record is None:
            return []
        if not self.store.replace(record):
            record = task.record.advance(TaskEvent.FAIL, now, message=_NO_ROOM)
            assert record is not None  # a task that can complete can fail
            self.store.replace(record)
        task.record = record
        return [*self.announce(record)]

    # -- in between ----------------------------------------------------------------------------

    def add_requests(
        self, task: RunningTask, requests: Mapping[str, Any], respond: Callable[[str, Any], object]
    ) -> list[str]:
        """Show `requests` to the client; each response goes to `respond(name, response)`.

        Returns:
            The keys of the requests, for `remove_requests`; none where the task has ended.
        """
        with task.lock:
            if task.record.is_terminal:
                return []
            shown = dict(task.record.input_requests)
            keys = []
            for name, request in requests.items():
                task.last_key += 1
                key = str(task.last_key)
                keys.append(key)
                shown[key] = request
                task.responders[key] = partial(respond, name)
            record = self._step(task, TaskEvent.ASK, input_requests=shown)
        self._notify(record)
        return keys

    def remove_requests(self, task: RunningTask, keys: Iterable[str]) -> None:
        """Remove the requests of these keys that have no response yet."""
        with task.lock:
            dropped = [task.responders.pop(key) for key in keys if key in task.responders]
            if not dropped:
                return
            record = self._show_open_requests(task)
        self._notify(record)

    def _notify(self, record: TaskRecord) -> None:
        for effect in self.announce(record):
            effect.function()

    def respond(self, task: RunningTask, responses: Mapping[str, Any]) -> list[Effect]:
        """Pass each response on to the request of its key; ignore unknown keys (TASK-08)."""
        with task.lock:
            keys = [key for key in task.responders if key in responses]
            if not keys:
                return []
            answered = [(task.responders.pop(key), responses[key]) for key in keys]
            record = self._show_open_requests(task)
        for respond, response in answered:
            respond(response)
        return [*self.announce(record)]

    def _show_open_requests(self, task: RunningTask) -> TaskRecord:
        """Leave only the open requests in the record; under the lock."""
        shown = task.record.input_requests
        still_open = {key: shown[key] for key in shown if key in task.responders}
        if still_open:
            return self._step(task, TaskEvent.ASK, input_requests=still_open)
        return self._step(task, TaskEvent.ANSWERED)

    def set_message(self, task: RunningTask, message: str) -> None:
        """Set the status message (TASK-07)."""
        with task.lock:
            if not task.record.is_terminal:
                now = self.clock.timestamp()
                short = message[:MAX_MESSAGE_LENGTH]
                task.record = evolve(task.record, message=short, updated_at=now)
                self.store.replace(task.record)

    def _step(self, task: RunningTask, event: TaskEvent, **changes: Any) -> TaskRecord:
        """Change a task that has not ended; under the lock."""
        record = task.record.advance(event, self.clock.timestamp(), **changes)
        assert record is not None  # the callers look at its status first
        task.record = record
        self.store.replace(record)
        return record

    # -- lookups -------------------------------------------------------------------------------

    def find(self, task_id: str, principal: Principal | None) -> TaskRecord | None:
        """Return the task of that id, if it belongs to this principal (TASK-10)."""
        record = self.store.get(task_id)
        if record is None or record.owner != identity_of(principal):
            return None
        return record

    def running(self, task_id: str) -> RunningTask | None:
        """Return the task of that id; None once it has ended."""
        found = self._running.get(task_id)
        return None if found is None else found[0]

    def call_of(self, task_id: str) -> Invocation | None:
        """Return the call behind the task of that id; None once the task has ended."""
        found = self._running.get(task_id)
        return None if found is None else found[1]

    def calls(self) -> list[Invocation]:
        """Return the calls behind all tasks that have not ended."""
        return [call for _, call in list(self._running.values())]


_CANNOT_ASK = "The tool ended with a request to the client, which a task cannot do."
_NO_ROOM = "There was no room to keep the outcome."


def make_manager(
    config: ServerConfig,
    clock: Clock,
    open_requests: Quota,
    new_id: Callable[[], str],
    announce: Callable[[TaskRecord], list[FeatureCallback]],
) -> TaskManager:
    """Return the manager of the tasks of a server, which are kept in memory; see `TaskManager`."""
    limits = config.tasks
    records = Limit(limits.max_tasks, "places for tasks", "maxTasks", "task_limit")
    size = Limit(limits.max_result_bytes, "bytes of results", "maxResultBytes", "task_limit")
    quotas = Quota(config, records), Quota(config, size)
    store = MemoryTaskStore(clock, *quotas, threading.RLock())
    return TaskManager(clock, limits, store, open_requests, new_id, announce)
