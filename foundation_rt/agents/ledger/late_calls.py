"""Tool calls that outlived their answer, recorded in the ledger so that clients can look them up.

A client that got TIMEOUT has the `runId` of its call. Under that id, owned by the caller, the
ledger has the call as a request: UNKNOWN from the moment at which the client was left without an
answer, and COMPLETED or FAILED once the handler has ended (AACP-28). Arguments are not kept.

While a ledger cannot be written to, notes of such calls wait, in bounded number and bytes
(AACP-52). Outcomes are encoded before they wait, so that their size is known.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from ...errors import ErrorCode, StructuredError, ToolError, describe_exception
from ...kernel.invocation import CallOutcome, Invocation, Raised, Returned
from ...kernel.records import identity_fields
from ...protocol.principal import identity_of
from ..persistence import LedgerFullError
from .ownership import owned_id
from .payloads import encode_result
from .rules import digest_of
from .types import VOID_PAYLOAD, MessageType, RequestRecord, RequestState

if TYPE_CHECKING:
    from ...base.logs.logger import StructuredLogger
    from ..persistence import AACPPersistenceAdapter
    from ..stores.memory_usage import Usage
    from .runner import NodeClock

_ATTEMPTS = 5
_RETRY_SECONDS = 0.5
_FINISH_SECONDS = 2.0
_FINAL_NOTES_SECONDS = 0.2
_POLL_SECONDS = 0.01


@frozen(eq=False, repr=False)
class _Note:
    """A call that was left without an answer, and its outcome if it has ended.

    Attributes:
        key: the id under which the ledger keeps it.
        names: the fields by which log lines name it.
        result: JSON in UTF-8; None if there is none, or it is not kept.
        error: why it failed; None if it did not fail.
    """

    key: str
    names: dict[str, Any]
    tool: str
    has_ended: bool
    result: bytes | None = None
    error: StructuredError | None = None

    @property
    def size(self) -> int:
        """The number of bytes that it counts for."""
        message = "" if self.error is None else self.error.message
        return len(self.result or b"") + len(message.encode("utf-8", "replace"))

    def shorten(self) -> _Note:
        """Return a note without the result or the error's message, which is smaller (AACP-49)."""
        if self.error is None:
            return evolve(self, result=None)
        return evolve(self, error=StructuredError(self.error.code, "The tool failed."))


@define(eq=False, repr=False)
class LateCalls:
    """Writes notes of late calls into a ledger, in the order in which they were made.

    Args:
        source: the source of the requests that are entered for them.
        ttl_ms: how long they are kept.
        max_result_bytes: a larger result is not kept, nor one for which the ledger has no room;
            the call is COMPLETED all the same.
        waiting: counts the notes that wait, and their bytes, of all principals and of each.
    """

    store: AACPPersistenceAdapter
    now_ms: NodeClock
    logger: StructuredLogger
    loop: asyncio.AbstractEventLoop
    source: str
    ttl_ms: int
    max_result_bytes: int
    waiting: Usage
    _queue: deque[_Note] = field(factory=deque, init=False)
    # Calls that are noted and not written, with how many notes there are of each.
    _unwritten: dict[str, int] = field(factory=dict, init=False)
    # Calls that were left without an answer and whose handlers run.
    _running: set[str] = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def note(self, call: Invocation, outcome: CallOutcome | None) -> None:
        """Record a call that was left without an answer (None), or has ended; from any thread."""
        if self.loop.is_closed():
            return
        note = self._make_note(call, outcome)
        key = note.key
        with self._lock:
            if outcome is None:
                if key in self._running:
                    return  # an expired call was aborted: nothing new
                self._running.add(key)
            else:
                self._running.discard(key)
            if not self.waiting.has_room(key, 1, note.size):
                note = note.shorten()
            has_room = self.waiting.has_room(key, 1, note.size)
            if has_room:
                self.waiting.change(key, 1, note.size)
                self._unwritten[key] = self._unwritten.get(key, 0) + 1
        if has_room:
            self.loop.call_soon_threadsafe(self._add, note)
        else:
            self.logger.error("late tool call not recorded: too many wait", note.names)

    def is_unwritten(self, key: str) -> bool:
        """Return whether the call with this key is still to be written into the ledger."""
        return key in self._unwritten

    async def finish(self) -> None:
        """Write the notes that wait, as far as the ledger takes them within 2 s.

        Handlers that end just now, because the server does, get 0.2 s to be noted.
        """
        begin = self.loop.time()
        while (waited := self.loop.time() - begin) < _FINISH_SECONDS:
            if not self._unwritten and (not self._running or waited > _FINAL_NOTES_SECONDS):
                return
            self._start_writing()
            await asyncio.sleep(_POLL_SECONDS)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.logger.error("late tool calls not recorded", {"n": len(self._unwritten)})

    def _make_note(self, call: Invocation, outcome: CallOutcome | None) -> _Note:
        key = owned_id(call.run_id, identity_of(call.principal))
        note = _Note(key, identity_fields(call), call.name, outcome is not None)
        if outcome is None:
            return note
        if isinstance(outcome, Returned):
            return evolve(note, result=self._encode(outcome.value))
        return evolve(note, error=_describe(outcome))

    def _add(self, note: _Note) -> None:
        self._queue.append(note)
        self._start_writing()

    def _start_writing(self) -> None:
        # A task that was cancelled before its first step has not said that it ended.
        if self._queue and (self._task is None or self._task.done()):
            self._task = self.loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._queue:
                note = self._queue[0]
                await self._write_patiently(note)
                self._queue.popleft()
                self._forget(note)
        finally:
            self._task = None

    def _forget(self, note: _Note) -> None:
        with self._lock:
            self.waiting.change(note.key, -1, -note.size)
            self._unwritten[note.key] -= 1
            if not self._unwritten[note.key]:
                del self._unwritten[note.key]

    async def _write_patiently(self, note: _Note) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                await self._write(note)
                return
            except LedgerFullError:
                self.logger.warn("late tool call not recorded: the ledger is full", note.names)
                return
            except Exception as error:
                described = {**note.names, "error": describe_exception(error)}
                self.logger.error("late tool call not recorded", described)
            if attempt < _ATTEMPTS - 1:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _write(self, note: _Note) -> None:
        now_ms = self.now_ms()
        await self.store.put_request_record(note.key, self._record(note.key, note.tool, now_ms))
        if not note.has_ended:
            return
        try:
            await self._write_end(note, now_ms)
        except LedgerFullError:
            await self._write_end(note.shorten(), now_ms)

    async def _write_end(self, note: _Note, now_ms: int) -> None:
        if note.error is None:
            await self.store.mark_completed(note.key, note.result, now_ms)
        else:
            await self.store.mark_failed(note.key, note.error, now_ms)

    def _record(self, key: str, tool: str, now_ms: int) -> RequestRecord:
        target = f"tool:{tool}"
        return RequestRecord(
            key,
            MessageType.REQUEST,
            self.source,
            target,
            0,
            digest_of(self.source, target, MessageType.REQUEST, key.encode()),
            VOID_PAYLOAD,
            RequestState.SENT,
            now_ms,
            now_ms + self.ttl_ms,
        )

    def _encode(self, value: object) -> bytes | None:
        try:
            return encode_result(value, self.max_result_bytes)
        except BaseException:  # the value's own code, too: it may raise anything (ERR-07)
            return None


def _describe(outcome: CallOutcome) -> StructuredError:
    """Return the error that a client may read, as in an answer (ERR-05)."""
    if isinstance(outcome, Raised):
        if isinstance(outcome.error, ToolError):
            error = outcome.error
            return StructuredError(error.code, error.message)
        return StructuredError(ErrorCode.INTERNAL, "The tool failed.")
    return StructuredError(
        ErrorCode.TIMEOUT, "The tool stopped because its call was aborted.", {"reason": "aborted"}
    )
