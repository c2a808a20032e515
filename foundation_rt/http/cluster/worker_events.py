"""Announcements of one worker for the clients of all (SUB-17 to SUB-20).

    server.resource_updated ─► own subscribers
                            └► announced here ─┬─ a datagram to each worker of this host
                                               └─ Redis ─► the workers of other groups

What comes from another worker is told to the own subscribers alone, so nothing goes in circles.
Announcements of one turn of the event loop go together, each once. What a worker does not take at
once waits for it, each once and within a bound; what is beyond that is dropped, and logged once.

All of them are sealed, as the id of a session is: they name sessions and principals.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from ...base.abort import call_in_loop
from ...base.exact_json import dumps
from ...errors import UsageError
from ...features.subscriptions.publisher import KINDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from ...base.logs.logger import StructuredLogger
    from ...features.subscriptions.publisher import Announcement
    from .session_seal import IdSeal

MAX_PENDING = 10_000
"""Announcements that wait for one worker."""

MAX_PENDING_BYTES = 4 * 1024 * 1024
"""Bytes of them, as JSON."""

_MESSAGE_BYTES = 32 * 1024  # before it is sealed; systems take larger datagrams, but not each one
_SUFFIX = ".events"
_RECEIVE_BYTES = 128 * 1024
_MOST_AT_ONCE = 64
_RETRY_SECONDS = 0.05
_BUFFER_BYTES = 1024 * 1024
_CLOSE_SECONDS = 2.0


class _Backlog:
    """Announcements that wait, as JSON: each once, in their order, within the bounds."""

    __slots__ = ("_size", "_texts")

    def __init__(self) -> None:
        self._texts: dict[bytes, None] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: bytes) -> bool:
        """Add one, unless it waits already; return False if there are too many."""
        if text not in self._texts:
            if len(self) >= MAX_PENDING or self._size + len(text) > MAX_PENDING_BYTES:
                return False
            self._texts[text] = None
            self._size += len(text)
        return True

    def take_all(self) -> list[bytes]:
        """Remove and return all of them."""
        taken, self._texts, self._size = [*self._texts], {}, 0
        return taken


@define(eq=False, repr=False)
class WorkerEvents:
    """The announcements that this worker sends and receives; belongs to one event loop.

    Args:
        seal: seals messages.
        folder: of the sockets of this host's workers; None if there is one alone.
        slot: of this worker.
        publish: sends a message to the workers of other groups, and returns whether it could;
            None if there are none.
        logger: logs when announcements are dropped.
    """

    _seal: IdSeal
    _folder: Path | None
    _slot: int
    _publish: Callable[[str], Awaitable[bool]] | None
    _logger: StructuredLogger
    _socket: socket.socket | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _perform: Callable[[Announcement], object] = field(init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _pending: _Backlog = field(factory=_Backlog, init=False)
    _unsent: dict[str, _Backlog] = field(factory=dict, init=False)
    _retry: asyncio.TimerHandle | None = field(default=None, init=False)
    _unpublished: _Backlog = field(factory=_Backlog, init=False)
    _publishing: asyncio.Task[None] | None = field(default=None, init=False)
    _is_dropping: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        if self._folder is not None:
            self._socket = _listen(self._folder / f"{self._slot}{_SUFFIX}")

    @property
    def descriptors(self) -> list[int]:
        """Return the descriptors that no forked child may use."""
        return [] if self._socket is None else [self._socket.fileno()]

    def start(self, perform: Callable[[Announcement], object]) -> None:
        """Call `perform` with each announcement of another worker from now on."""
        self._loop, self._perform = asyncio.get_running_loop(), perform
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._receive_all, self._socket)

    async def close(self) -> None:
        """Send what is pending, unless that takes too long, and receive nothing more."""
        self._flush()
        if self._publishing is not None:
            await asyncio.wait([self._publishing], timeout=_CLOSE_SECONDS)
            self._publishing.cancel()
        if self._retry is not None:
            self._retry.cancel()
        if self._socket is not None and self._folder is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._socket)
            self._socket.close()
            with suppress(OSError):
                (self._folder / f"{self._slot}{_SUFFIX}").unlink()
        self._socket = self._loop = None

    # -- to other workers ------------------------------------------------------------------------

    def announce(self, announcement: Announcement) -> None:
        """Tell the clients of all other workers, soon; from any thread."""
        loop = self._loop
        if loop is None:
            return
        text = dumps(announcement)
        if len(text) > _MESSAGE_BYTES:
            return  # nobody can be subscribed to a name of that length
        with self._lock:
            is_first = not self._pending
            is_added = self._pending.add(text)
        if not is_added:
            self._report_drop()
        elif is_first:
            call_in_loop(loop, self._flush)

    def _flush(self) -> None:
        with self._lock:
            texts = self._pending.take_all()
        if self._publish is not None:
            self._publish_soon(self._publish, texts)
        messages = [*self._messages(texts)]
        for path in self._others():
            if path in self._unsent:
                self._keep(path, texts)
            else:
                self._send(path, messages)

    def _messages(self, texts: list[bytes]) -> Iterator[tuple[list[bytes], bytes]]:
        """Return the texts in sealed messages of a size that every system takes."""
        part: list[bytes] = []
        size = 0
        for text in texts:
            if part and size + len(text) > _MESSAGE_BYTES:
                yield part, self._seal.seal_events(b"[%s]" % b",".join(part))
                part, size = [], 0
            part.append(text)
            size += len(text) + 1
        if part:
            yield part, self._seal.seal_events(b"[%s]" % b",".join(part))

    def _others(self) -> list[str]:
        """Return the paths at which the other workers of this host receive."""
        if self._folder is None:
            return []
        own = f"{self._slot}{_SUFFIX}"
        return [str(each) for each in self._folder.glob(f"*{_SUFFIX}") if each.name != own]

    def _send(self, path: str, messages: list[tuple[list[bytes], bytes]]) -> None:
        """Send messages to one worker; keep what it does not take."""
        takes = True
        for texts, message in messages:
            takes = takes and self._sends(path, message)
            if not takes:
                self._keep(path, texts)

    def _keep(self, path: str, texts: list[bytes]) -> None:
        backlog = self._unsent.setdefault(path, _Backlog())
        if not all(backlog.add(text) for text in texts):
            self._report_drop()
        if self._retry is None and self._loop is not None:
            self._retry = self._loop.call_later(_RETRY_SECONDS, self._send_unsent)

    def _sends(self, path: str, message: bytes) -> bool:
        """Send a message; return False if it is to be tried again."""
        assert self._socket is not None
        try:
            self._socket.sendto(message, path)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            return error.errno != errno.ENOBUFS  # else the worker has gone, and its clients with it
        return True

    def _send_unsent(self) -> None:
        self._retry = None
        unsent, self._unsent = self._unsent, {}
        for path, backlog in unsent.items():
            self._send(path, [*self._messages(backlog.take_all())])
        self._is_dropping = bool(self._unsent) and self._is_dropping

    def _publish_soon(self, publish: Callable[[str], Awaitable[bool]], texts: list[bytes]) -> None:
        """Publish what was announced; together with what is announced until the last is sent."""
        if not all(self._unpublished.add(text) for text in texts):
            self._report_drop()
        if self._publishing is None and self._loop is not None and texts:
            self._publishing = self._loop.create_task(self._publish_all(publish))

    async def _publish_all(self, publish: Callable[[str], Awaitable[bool]]) -> None:
        try:
            while texts := self._unpublished.take_all():
                for _, message in self._messages(texts):
                    if not await publish(message.decode()):
                        break  # Redis is away: the rest would wait as long, for nothing
        finally:
            self._publishing = None
        self._is_dropping = bool(self._unsent) and self._is_dropping

    def _report_drop(self) -> None:
        if not self._is_dropping:
            self._is_dropping = True
            self._logger.warn("announcements for clients of other workers are dropped")

    # -- from other workers ----------------------------------------------------------------------

    def _receive_all(self, opened: socket.socket) -> None:
        for _ in range(_MOST_AT_ONCE):
            try:
                message = opened.recv(_RECEIVE_BYTES)
            except OSError:
                return
            self.receive(message.decode("ascii", "replace"))

    def receive(self, message: str) -> None:
        """Perform the announcements of a message, unless it has another key.

        Kinds of another version of this runtime are left out.
        """
        for announcement in self._seal.read_events(message) or ():
            if announcement[0] in KINDS:
                self._perform(tuple(announcement))


def _listen(path: Path) -> socket.socket:
    opened = bound_at(path, socket.SOCK_DGRAM)
    opened.setblocking(False)
    for each in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        with suppress(OSError):
            opened.setsockopt(socket.SOL_SOCKET, each, _BUFFER_BYTES)
    return opened


def bound_at(path: Path, kind: socket.SocketKind) -> socket.socket:
    """Return a socket at a path, in the place of that of a worker that has died.

    Raises:
        UsageError: it cannot be there; says what to change.
    """
    opened = socket.socket(socket.AF_UNIX, kind)
    try:
        path.unlink(missing_ok=True)
        opened.bind(str(path))
    except OSError as error:
        opened.close()
        raise UsageError(
            f"cannot listen at {path}: {error.strerror or error}; set TMPDIR to a folder of this"
            " user with a short path"
        ) from error
    return opened
