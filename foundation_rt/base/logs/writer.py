"""A writer to a descriptor that never blocks its caller, however slow the reader is.

`BackgroundWriter` serves standard output (replies) and, with other settings, standard error (log
lines). Its invariants (LOG-20 to LOG-27):

* Bytes arrive in the order of the `write` calls, and those of one call are never interleaved with
  those of another, in whichever threads.
* `write` does not block: not on a full pipe, not on a stopped terminal. Bytes that the descriptor
  does not take at once wait in memory for a daemon thread, which is started when first needed and
  sleeps without a timeout while there is nothing to do: an idle process is never woken.
* The flags of the descriptor are never changed. O_NONBLOCK belongs to the open file, which is
  shared with the parent process, so `poll` and the thread keep it from blocking. A descriptor that
  another process has made non-blocking works as well.
* Once the other side is gone, or `close` has returned, no further write is begun: the number of
  the descriptor may by then belong to another file.

The caller controls the backlog: `pending_bytes` is its size, `on_drained` is called when it has
fallen, and `limit` makes the writer refuse further bytes, count them, and report them by `notice`.

A signal handler or a finalizer that writes, in a thread that is inside `write`, would wait for
itself: hence the RLock, and a nested write queues up behind the direct write under way. A forked
child has none of the threads and must not write its parent's bytes: it starts with nothing pending.
"""

from __future__ import annotations

import os
import select
import sys
import weakref
from collections import deque
from collections.abc import Callable
from threading import Condition, RLock, Thread

# One system call of the thread writes at most this many bytes: the default capacity of a pipe. Each
# call costs a round trip of the interpreter lock, and `pending_bytes` falls in these steps.
_CHUNK = 65_536

_MOST_DIRECT = 65_536
"""The longest data that the caller's thread writes itself."""


class BackgroundWriter:
    """Writes bytes to a descriptor, in order, without blocking the caller.

    A plain class: as an attrs class, its many fields cost 0.9 ms of every start.

    Args:
        fd: the descriptor; the caller keeps it, and may close it after `close`.
        name: the name of the thread.
        on_broken: called once, in the thread that noticed, when the other side is gone (EPIPE,
            ECONNRESET, EBADF or any other error of the descriptor); `on_drained` is not called
            afterwards.
        on_drained: called in the writer's thread when `pending_bytes` falls to `low_water` or
            below after it had exceeded `high_water`.
        high_water: in bytes; see `on_drained`.
        low_water: in bytes; see `on_drained`.
        limit: the most bytes that may be pending; a write beyond is refused. None: no limit.
        notice: returns a report of a number of refused writes, which is written before the next
            accepted write, and at `close`.
        delay: how long the thread waits for more bytes before it writes, in seconds. With 0 a
            write of up to 64 KiB happens in the caller's thread as far as that cannot block.

    Callbacks must not raise, and must not call `flush` or `close`. `on_broken` and `on_drained` may
    be set later, before the first write.

    Attributes, read only:
        fd: the descriptor.
        pending_bytes: bytes accepted and not yet written.
        broken: whether the other side is gone.
        lost_writes: writes refused, or accepted and not (wholly) written.
    """

    def __init__(
        self,
        fd: int,
        *,
        name: str,
        on_broken: Callable[[], None] | None = None,
        on_drained: Callable[[], None] | None = None,
        high_water: int = 1_048_576,
        low_water: int = 262_144,
        limit: int | None = None,
        notice: Callable[[int], bytes] | None = None,
        delay: float = 0.0,
    ) -> None:
        self.fd = fd
        self._name = name
        self.on_broken = on_broken
        self.on_drained = on_drained
        self._high_water = high_water
        self._low_water = low_water
        self._limit = limit
        self._notice = notice
        self._delay = delay
        self.broken = False
        self.lost_writes = 0
        self._open = True  # takes writes
        self._stopped = False  # writes nothing any more
        self._reset()
        this = weakref.ref(self)

        def reset() -> None:
            if (writer := this()) is not None:
                writer._reset()

        if sys.platform != "win32":
            os.register_at_fork(after_in_child=reset)

    def _reset(self) -> None:
        """Set the part of the state that a forked child does not inherit.

        The child has no thread, and the parent writes the pending bytes. Another thread may have
        held the locks or used the poll object during the fork, so the child makes its own.
        """
        self._lock = RLock()
        self._work = Condition(self._lock)
        self._settled = Condition(self._lock)
        self._queue: deque[bytes] = deque()
        self.pending_bytes = 0
        self._taken = 0  # writes that the thread has taken and not finished
        self._unreported = 0  # writes refused since the last notice
        self._above_high_water = False
        self._writing_directly = False
        self._running = False  # there is a thread
        self._idle = True  # the thread looks at the queue only when woken
        self._hurry = False  # a caller waits for the delay to end
        self._poller: select.poll | None = None  # None: never write directly
        # A terminal that polls writable may take fewer bytes than PIPE_BUF; Windows has no poll.
        if not self._delay and not os.isatty(self.fd) and sys.platform != "win32":
            self._poller = select.poll()
            self._poller.register(self.fd, select.POLLOUT)

    def write(self, data: bytes) -> None:
        """Write `data` after everything written before; never blocks (LOG-20, LOG-21).

        On a writer that is broken or closed, and beyond the limit, `data` is dropped and counted.
        """
        if not self._open:
            # No lock: the end of the interpreter may have stopped a thread that holds it.
            self.lost_writes += 1
            return
        try:
            with self._lock:
                if not self._open:  # another thread has closed it since
                    self.lost_writes += 1  # type: ignore[unreachable]
                elif self._limit is not None and self.pending_bytes + len(data) > self._limit:
                    self.lost_writes += 1
                    self._unreported += 1
                elif (
                    self._poller is not None
                    and not self.pending_bytes
                    and not self._writing_directly
                    and not self._unreported
                    and len(data) <= _MOST_DIRECT
                ):
                    if rest := self._write_directly(self._poller, data):
                        self._enqueue(rest, self._queue.appendleft)
                else:
                    if self._unreported:
                        self._report()
                    self._enqueue(data, self._queue.append)
        except OSError:
            self._break()

    def flush(self, timeout: float) -> bool:
        """Wait until nothing is pending, `timeout` seconds at most.

        Returns:
            Whether everything written so far has reached the descriptor.
        """
        with self._lock:
            if self.pending_bytes:
                self._hurry = True
                self._wake()
            return self._settled.wait_for(self._is_settled, timeout) and not self.broken

    def close(self, timeout: float) -> None:
        """Take no more writes, wait `timeout` seconds at most for the pending ones, drop the rest.

        A system call that is under way in the thread cannot be undone; no other is begun afterwards
        (LOG-26). Closing again also waits for the bytes that are still pending.
        """
        with self._lock:
            if self._open and self._unreported:
                self._report()
            self._open = False
        self.flush(timeout)
        with self._lock:
            self._stop()

    def _is_settled(self) -> bool:
        return not self.pending_bytes

    def _report(self) -> None:
        """Enqueue the report of refused writes, if there is a `notice`; the lock is held."""
        if self._notice is not None:
            self._enqueue(self._notice(self._unreported), self._queue.append)
        self._unreported = 0

    def _write_directly(self, poller: select.poll, data: bytes) -> bytes:
        """Write the bytes that do not block; return the rest. The lock is held.

        A pipe that polls writable takes PIPE_BUF bytes at once (POSIX). A socket that does has a
        third of its buffer free, which is more unless the buffer was made tiny (Linux). So longer
        data is written in pieces: each costs 3 us, and a hand-over to the thread 100 us.
        """
        self._writing_directly = True
        try:
            while data and poller.poll(0):
                data = data[os.write(self.fd, data[: select.PIPE_BUF]) :]
        except BlockingIOError:
            pass
        finally:
            self._writing_directly = False
        return data

    def _enqueue(self, data: bytes, put: Callable[[bytes], None]) -> None:
        """Leave `data` to the thread; the lock is held."""
        put(data)
        self.pending_bytes += len(data)
        if self.pending_bytes > self._high_water:
            self._above_high_water = True
        if self._idle:
            self._wake()

    def _wake(self) -> None:
        """Make the thread look at the queue now; the lock is held."""
        if self._running:
            self._work.notify()
        else:
            try:
                Thread(target=self._run, name=self._name, daemon=True).start()
            except RuntimeError:
                return  # no thread is available at the moment: the next write tries again
            self._running = True
        self._idle = False

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._write_blocking(batch)
            del batch  # up to 64 MiB, which a thread that waits would keep (LOG-42)

    def _next_batch(self) -> bytes | None:
        """Return all queued bytes, once there are any; None when there will be no more."""
        with self._lock:
            while not self._queue:
                if not self._open:
                    self._running = False
                    return None
                self._idle = True
                self._work.wait()
            if self._delay and not self._hurry:
                self._work.wait(self._delay)
            self._hurry = False
            queue, self._queue = self._queue, deque()
            self._taken = len(queue)
            return b"".join(queue)

    def _write_blocking(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and not self._stopped:
            try:
                written = os.write(self.fd, rest[:_CHUNK])
            except BlockingIOError:  # another process has set O_NONBLOCK
                waiting = select.poll()
                waiting.register(self.fd, select.POLLOUT)
                waiting.poll()
            except OSError:
                self._break()
            else:
                rest = rest[written:]
                self._settle(written, finished=not rest)

    def _settle(self, written: int, *, finished: bool) -> None:
        with self._lock:
            if self._stopped:
                return
            if finished:
                self._taken = 0
            self.pending_bytes -= written
            if not self.pending_bytes:
                self._settled.notify_all()
            drained = self._above_high_water and self.pending_bytes <= self._low_water
            if drained:
                self._above_high_water = False
        if drained and self.on_drained is not None:
            self.on_drained()

    def _break(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self.broken = True
            self._stop()
        if self.on_broken is not None:
            self.on_broken()

    def _stop(self) -> None:
        """Write nothing more, and drop the pending bytes; the lock is held."""
        self._open = False
        self._stopped = True
        self.lost_writes += len(self._queue) + self._taken
        self._queue.clear()
        self.pending_bytes = self._taken = 0
        self._settled.notify_all()
        self._work.notify()
