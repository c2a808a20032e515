"""Tool calls that nobody waited for to the end, in the ledger: so that a client can find out.

A client that was told TIMEOUT has the `runId` of its call. Under that id the ledger has the call as
a request: UNKNOWN from the moment in which the client was left without an answer, and COMPLETED or
FAILED once the handler has ended (AACP-28). Arguments are not kept.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING

from attrs import define, field

from ..calls.invocation import Invocation, Outcome, Raised, Returned
from ..errors import ErrorCode, StructuredError, ToolError, describe_exception
from .encoder import PayloadError, encode_payload
from .ledger import digest_of
from .types import VOID_PAYLOAD, MessageType, RequestRecord, RequestState

if TYPE_CHECKING:
    from ..logs.logger import StructuredLogger
    from .driver import NodeClock
    from .persistence import AACPPersistenceAdapter

_MAX_WAITING = 10_000
_ATTEMPTS = 5
_RETRY_SECONDS = 0.5
_FINISH_SECONDS = 2.0
_LAST_MOMENTS_SECONDS = 0.2
_GLANCE_SECONDS = 0.01


@define(eq=False, repr=False)
class LateCalls:
    """Writes them into a ledger, in the order in which things happened.

    Args:
        source: as whose requests they are entered.
        ttl_ms: how long they are kept.
        max_result_bytes: a larger result is not kept; that it was COMPLETED is.
    """

    store: AACPPersistenceAdapter
    now_ms: NodeClock
    logger: StructuredLogger
    loop: asyncio.AbstractEventLoop
    source: str
    ttl_ms: int
    max_result_bytes: int
    _waiting: deque[tuple[Invocation, Outcome | None]] = field(factory=deque, init=False)
    # Calls that are noted and not written, with how many notes there are of each.
    _unwritten: dict[str, int] = field(factory=dict, init=False)
    # Calls that were left without an answer and whose handlers run.
    _running: set[str] = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def note(self, call: Invocation, outcome: Outcome | None) -> None:
        """A call was left without an answer (None), or has ended after that; from any thread."""
        if self.loop.is_closed():
            return
        with self._lock:
            self._unwritten[call.run_id] = self._unwritten.get(call.run_id, 0) + 1
            if outcome is None:
                self._running.add(call.run_id)
            else:
                self._running.discard(call.run_id)
        self.loop.call_soon_threadsafe(self._add, call, outcome)

    def is_unwritten(self, run_id: str) -> bool:
        """Whether the ledger is still to be told of a call."""
        return run_id in self._unwritten

    async def finish(self) -> None:
        """Have what was noted written, as far as the ledger takes it within 2 s.

        Handlers that end just now, because everything does, are waited for as well; but not long.
        """
        begin = self.loop.time()
        while (waited := self.loop.time() - begin) < _FINISH_SECONDS:
            if not self._unwritten and (not self._running or waited > _LAST_MOMENTS_SECONDS):
                return
            self._start_writing()
            await asyncio.sleep(_GLANCE_SECONDS)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.logger.error("late tool calls not recorded", {"n": len(self._unwritten)})

    def _add(self, call: Invocation, outcome: Outcome | None) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            self.logger.error("late tool call not recorded: too many wait", {"runId": call.run_id})
            self._forget(call.run_id)
            return
        self._waiting.append((call, outcome))
        self._start_writing()

    def _start_writing(self) -> None:
        # A task that was cancelled before its first step has not said that it ended.
        if self._waiting and (self._task is None or self._task.done()):
            self._task = self.loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                call, outcome = self._waiting[0]
                await self._write_patiently(call, outcome)
                self._waiting.popleft()
                self._forget(call.run_id)
        finally:
            self._task = None

    def _forget(self, run_id: str) -> None:
        with self._lock:
            self._unwritten[run_id] -= 1
            if not self._unwritten[run_id]:
                del self._unwritten[run_id]

    async def _write_patiently(self, call: Invocation, outcome: Outcome | None) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                await self._write(call, outcome)
                return
            except Exception as error:
                described = {"runId": call.run_id, "error": describe_exception(error)}
                self.logger.error("late tool call not recorded", described)
            if attempt < _ATTEMPTS - 1:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _write(self, call: Invocation, outcome: Outcome | None) -> None:
        now_ms = self.now_ms()
        await self.store.put_request_record(call.run_id, self._record(call, now_ms))
        if outcome is None:
            return
        if isinstance(outcome, Returned):
            result = self._encode(outcome.value)
            await self.store.mark_completed(call.run_id, result, now_ms)
        else:
            await self.store.mark_failed(call.run_id, _describe(outcome), now_ms)

    def _record(self, call: Invocation, now_ms: int) -> RequestRecord:
        target = f"tool:{call.name}"
        return RequestRecord(
            call.run_id,
            MessageType.REQUEST,
            self.source,
            target,
            0,
            digest_of(self.source, target, MessageType.REQUEST, call.run_id.encode()),
            VOID_PAYLOAD,
            RequestState.SENT,
            now_ms,
            now_ms + self.ttl_ms,
        )

    def _encode(self, value: object) -> bytes | None:
        try:
            result = encode_payload(value)
        except PayloadError:
            return None
        return result if len(result) <= self.max_result_bytes else None


def _describe(outcome: Outcome) -> StructuredError:
    """What a client may read of it, as it would have (ERR-05)."""
    if isinstance(outcome, Raised):
        if isinstance(outcome.error, ToolError):
            error = outcome.error
            return StructuredError(error.code, error.message)
        return StructuredError(ErrorCode.INTERNAL, "The tool failed.")
    return StructuredError(
        ErrorCode.TIMEOUT, "The tool stopped because its call was aborted.", {"reason": "aborted"}
    )
