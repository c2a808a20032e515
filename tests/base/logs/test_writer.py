"""The background writer on real descriptors: order, patience, and readers that do not read."""

from __future__ import annotations

import fcntl
import gc
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import tty
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.logs.writer import BackgroundWriter
from tests.lab.programs.pipes import fill, pipe
from tests.lab.waiting import PATIENCE, block_until


def is_writable(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return bool(poller.poll(0))


def read_exactly(fd: int, size: int, chunk: int = 65_536) -> bytes:
    parts = []
    while size:
        part = os.read(fd, min(size, chunk))
        assert part
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def has_thread(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def join_thread(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def in_background(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


# -- what is written -----------------------------------------------------------------------------


@pytest.mark.rule("LOG-21")
@pytest.mark.parametrize("size", [1, select.PIPE_BUF, 3 * select.PIPE_BUF + 1])
def test_write_to_writable_pipe_is_done_on_return(size: int) -> None:
    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="direct")
        writer.write(b"a" * size)
        writer.write(b"bc")
        os.set_blocking(reader, False)
        assert os.read(reader, 100_000) == b"a" * size + b"bc"
        assert writer.pending_bytes == 0
        assert not has_thread("direct")
        writer.close(PATIENCE)


@pytest.mark.rule("LOG-20", "LOG-22")
def test_remaining_bytes_follow_in_order() -> None:
    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="order")
        before = fill(end)
        pieces = [bytes([65 + number]) * (number * 5000) for number in range(20)]
        for piece in pieces:
            writer.write(piece)
        assert writer.pending_bytes == sum(map(len, pieces))
        assert read_exactly(reader, before) == b"." * before
        assert read_exactly(reader, sum(map(len, pieces)), chunk=777) == b"".join(pieces)
        assert writer.flush(PATIENCE)
        assert writer.pending_bytes == 0
        writer.write(b"again")
        assert read_exactly(reader, 5) == b"again"
        writer.close(PATIENCE)
        join_thread("order")


@pytest.mark.rule("LOG-20", "LOG-22")
@given(st.lists(st.binary(min_size=1, max_size=9000), max_size=12), st.integers(1, 5000))
def test_bytes_arrive_as_they_were_written(pieces: list[bytes], chunk: int) -> None:
    whole = b"".join(pieces)
    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="bytes")
        thread = in_background(lambda: [writer.write(piece) for piece in pieces])
        assert read_exactly(reader, len(whole), chunk) == whole
        thread.join(PATIENCE)
        assert writer.flush(PATIENCE)
        writer.close(PATIENCE)


@pytest.mark.rule("LOG-20")
def test_lines_of_threads_are_never_interleaved() -> None:
    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="threads")
        sizes = (10, 3000, 9000, 70_000)
        start = threading.Barrier(len(sizes))

        def write(mark: int, size: int) -> None:
            start.wait()
            for number in range(40):
                writer.write(b"%d %d %s\n" % (mark, number, b"x" * size))

        for mark, size in enumerate(sizes):
            in_background(lambda mark=mark, size=size: write(mark, size))  # type: ignore[misc]
        seen: list[list[int]] = [[] for _ in sizes]
        with os.fdopen(os.dup(reader), "rb") as lines:
            for _ in range(40 * len(sizes)):
                mark, number, rest = lines.readline().split(b" ")
                assert rest == b"x" * sizes[int(mark)] + b"\n"
                seen[int(mark)].append(int(number))
        assert seen == [list(range(40))] * len(sizes)
        writer.close(PATIENCE)


@pytest.mark.rule("LOG-20")
def test_signal_handler_may_write_during_write() -> None:
    class Interrupted(bytes):
        def __len__(self) -> int:
            signal.raise_signal(signal.SIGUSR1)
            return super().__len__()

    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="signal")
        previous = signal.signal(signal.SIGUSR1, lambda *_: writer.write(b"handler\n"))
        try:
            writer.write(Interrupted(b"interrupted\n"))
        finally:
            signal.signal(signal.SIGUSR1, previous)
        writer.close(PATIENCE)
        os.close(end)
        lines = read_to_end(reader).splitlines()
        assert sorted(set(lines)) == [b"handler", b"interrupted"]
        assert lines.count(b"interrupted") == 1


@pytest.mark.rule("LOG-20", "LOG-22")
def test_rest_of_partial_write_precedes_nested_write(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def write_a_part(fd: int, data: bytes) -> int:
        """Stand for a descriptor that takes a part, and for a finalizer that then writes."""
        monkeypatch.setattr(os, "write", write)
        taken = write(fd, data[:4])
        writer.write(b" nested")
        return taken

    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="nested")
        monkeypatch.setattr(os, "write", write_a_part)
        writer.write(b"part rest")
        assert read_exactly(reader, 16) == b"part rest nested"
        writer.close(PATIENCE)


def read_to_end(fd: int) -> bytes:
    with os.fdopen(os.dup(fd), "rb") as file:
        return file.read()


# -- kinds of descriptors ------------------------------------------------------------------------


@pytest.mark.rule("LOG-22")
def test_writes_to_file_and_dev_null(tmp_path: Path) -> None:
    for path in (tmp_path / "out", Path(os.devnull)):
        with path.open("wb") as file:
            writer = BackgroundWriter(file.fileno(), name="file")
            writer.write(b"short\n")
            writer.write(b"l" * 100_000)
            assert writer.flush(PATIENCE)
            writer.close(PATIENCE)
    assert (tmp_path / "out").read_bytes() == b"short\n" + b"l" * 100_000


@pytest.mark.rule("LOG-21", "LOG-22")
@pytest.mark.parametrize("blocking", [True, False])
def test_socket_with_tiny_buffer(blocking: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        ours.setblocking(blocking)
        writer = BackgroundWriter(ours.fileno(), name="socket")
        pieces = [bytes([65 + number % 26]) * 4096 for number in range(100)]
        for piece in pieces:
            writer.write(piece)  # nobody reads: this must come back
        assert writer.pending_bytes
        received = read_exactly(theirs.fileno(), 4096 * 100)
        assert received == b"".join(pieces)
        assert writer.flush(PATIENCE)
        writer.close(PATIENCE)


@pytest.mark.rule("LOG-21", "LOG-22")
def test_stopped_terminal_does_not_block() -> None:
    controller, terminal = pty.openpty()
    try:
        tty.setraw(terminal)
        writer = BackgroundWriter(terminal, name="terminal")
        termios.tcflow(terminal, termios.TCOOFF)
        writer.write(b"a" * 20)
        assert has_thread("terminal")
        termios.tcflow(terminal, termios.TCOON)
        assert read_exactly(controller, 20) == b"a" * 20
        writer.close(PATIENCE)
    finally:
        os.close(terminal)
        os.close(controller)


@pytest.mark.rule("LOG-22")
def test_flags_are_unchanged_and_non_blocking_descriptor_works() -> None:
    for blocking in (True, False):
        with pipe() as (reader, end):
            os.set_blocking(end, blocking)
            flags = fcntl.fcntl(end, fcntl.F_GETFL)
            writer = BackgroundWriter(end, name="flags")
            data = b"abcdefgh" * 50_000
            writer.write(data)
            assert fcntl.fcntl(end, fcntl.F_GETFL) == flags
            assert read_exactly(reader, len(data), chunk=5000) == data
            assert writer.flush(PATIENCE)
            writer.close(PATIENCE)
            assert fcntl.fcntl(end, fcntl.F_GETFL) == flags


@pytest.mark.rule("LOG-21", "LOG-22")
@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="needs eventfd")
def test_descriptor_polls_writable_but_is_not() -> None:
    # An eventfd polls writable while it can take a 1, and refuses what would overflow it.
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        os.eventfd_write(fd, 2**64 - 3)
        writer = BackgroundWriter(fd, name="eventfd")
        writer.write((5).to_bytes(8, sys.byteorder))
        assert writer.pending_bytes == 8
        assert os.eventfd_read(fd) == 2**64 - 3
        assert writer.flush(PATIENCE)
        assert os.eventfd_read(fd) == 5
        writer.close(PATIENCE)
    finally:
        os.close(fd)


# -- the other side goes away --------------------------------------------------------------------


@pytest.mark.rule("LOG-23")
@pytest.mark.parametrize("size", [10, 100_000])
def test_gone_reader_is_reported_once(size: int) -> None:
    with pipe() as (reader, end):
        told: list[str] = []
        done = threading.Event()

        def on_broken() -> None:
            told.append(threading.current_thread().name)
            done.set()

        writer = BackgroundWriter(end, name="gone", on_broken=on_broken)
        os.close(reader)
        for _ in range(3):
            writer.write(b"x" * size)
        assert done.wait(PATIENCE)
        writer.write(b"x")
        assert writer.broken
        assert writer.pending_bytes == 0
        assert not writer.flush(PATIENCE)
        assert writer.lost_writes >= 2
        writer.close(PATIENCE)
        join_thread("gone")
        assert told == ["MainThread" if size == 10 else "gone"]


@pytest.mark.rule("LOG-23")
def test_reader_leaves_while_thread_waits() -> None:
    with pipe() as (reader, end):
        told = threading.Event()
        writer = BackgroundWriter(end, name="leaves", on_broken=told.set)
        fill(end)
        writer.write(b"a" * 10)
        os.close(reader)
        assert told.wait(PATIENCE)
        assert writer.broken
        assert writer.lost_writes == 1


@pytest.mark.rule("LOG-23")
def test_callbacks_are_optional() -> None:
    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="untold")
        os.close(reader)
        writer.write(b"x")
        assert writer.broken


@pytest.mark.rule("LOG-23")
def test_closed_descriptor_and_reset_socket_break_writer() -> None:
    with pipe() as (_, end):
        writer = BackgroundWriter(end, name="closed")
        os.close(end)
        writer.write(b"x")
        assert writer.broken
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        writer = BackgroundWriter(ours.fileno(), name="reset")
        writer.write(b"x")
        assert writer.broken


@pytest.mark.rule("LOG-23")
def test_many_threads_cause_one_break() -> None:
    with pipe() as (reader, end):
        told: list[int] = []
        writer = BackgroundWriter(end, name="many", on_broken=lambda: told.append(1))
        os.close(reader)
        start = threading.Barrier(8)

        def write() -> None:
            start.wait()
            for _ in range(200):
                writer.write(b"x")

        for thread in [in_background(write) for _ in range(8)]:
            thread.join(PATIENCE)
        assert told == [1]
        assert writer.lost_writes >= 1600 - 8


# -- back-pressure -------------------------------------------------------------------------------


@pytest.mark.rule("LOG-24")
def test_on_drained_is_called_at_low_water() -> None:
    with pipe() as (reader, end):
        drained = threading.Semaphore(0)
        writer = BackgroundWriter(
            end, name="marks", on_drained=drained.release, high_water=200_000, low_water=50_000
        )
        for _ in range(2):
            before = fill(end)
            writer.write(b"a" * 100_000)
            writer.write(b"b" * 100_000)
            writer.write(b"c")
            assert writer.pending_bytes == 200_001
            read_exactly(reader, before)
            read_exactly(reader, 200_001)
            assert drained.acquire(timeout=PATIENCE)
            assert writer.flush(PATIENCE)
            assert not drained.acquire(blocking=False)
        writer.close(PATIENCE)


@pytest.mark.rule("LOG-24")
def test_on_drained_is_not_called_below_high_water() -> None:
    with pipe() as (reader, end):
        told: list[int] = []
        writer = BackgroundWriter(
            end, name="below", on_drained=lambda: told.append(1), high_water=10, low_water=0
        )
        before = fill(end)
        writer.write(b"a" * 10)
        read_exactly(reader, before + 10)
        assert writer.flush(PATIENCE)
        writer.on_drained = None
        before = fill(end)
        writer.write(b"a" * 11)
        read_exactly(reader, before + 11)
        assert writer.flush(PATIENCE)
        writer.close(PATIENCE)
        join_thread("below")
        assert told == []


@pytest.mark.rule("LOG-42")
def test_written_bytes_are_not_kept() -> None:
    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="kept")
        data = b"x" * 100_000
        known = sys.getrefcount(data)
        writer.write(data)
        assert read_exactly(reader, len(data)) == data
        assert writer.flush(PATIENCE)
        # The thread drops it after it was flushed.
        block_until(lambda: sys.getrefcount(data) <= known, "it is dropped")
        writer.close(PATIENCE)


@pytest.mark.rule("LOG-16")
def test_writes_beyond_limit_are_refused_counted_and_reported() -> None:
    with pipe() as (reader, end):
        writer = BackgroundWriter(
            end, name="limit", limit=10, notice=lambda refused: b"<%d refused>" % refused
        )
        before = fill(end)
        writer.write(b"a" * 6)
        writer.write(b"b" * 5)
        writer.write(b"c" * 5)
        writer.write(b"d" * 4)
        assert writer.pending_bytes <= 10 + len(b"<2 refused>")
        assert writer.lost_writes >= 2
        read_exactly(reader, before)
        assert read_exactly(reader, 6) == b"a" * 6
        assert writer.flush(PATIENCE)
        writer.write(b"e" * 11)
        writer.close(PATIENCE)
        os.close(end)
        assert read_to_end(reader).endswith(b"refused>")


@pytest.mark.rule("LOG-39", "LOG-20")
def test_report_is_in_place_of_refused_writes() -> None:
    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="where", limit=4, notice=lambda n: b"<%d>" % n)
        writer.write(b"ab")
        writer.write(b"too long")
        writer.write(b"too long")
        writer.write(b"cd")
        assert read_exactly(reader, 7) == b"ab<2>cd"
        writer.close(PATIENCE)


@pytest.mark.rule("LOG-39")
def test_refused_writes_need_no_report() -> None:
    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="quiet", limit=4)
        writer.write(b"too long")
        writer.write(b"cd")
        writer.close(PATIENCE)
        assert read_exactly(reader, 2) == b"cd"
        assert writer.lost_writes == 1


# -- flush and close -----------------------------------------------------------------------------


@pytest.mark.rule("LOG-26")
def test_flush_and_close_respect_timeout() -> None:
    with pipe() as (_, end):
        fill(end)
        writer = BackgroundWriter(end, name="stuck")
        writer.write(b"a" * 10)
        writer.write(b"b" * 10)
        assert not writer.flush(0.01)
        writer.close(0.01)
        assert writer.pending_bytes == 0
        assert writer.lost_writes == 2
        assert not writer.broken
        writer.write(b"c")
        assert writer.lost_writes == 3
        writer.close(PATIENCE)


@pytest.mark.rule("LOG-26")
def test_only_system_call_under_way_continues_after_close() -> None:
    with pipe() as (reader, end):
        before = fill(end)
        writer = BackgroundWriter(end, name="late")
        writer.write(b"a" * 200_000)
        read_exactly(reader, 4096)
        block_until(lambda: not is_writable(end), "its first system call has filled the pipe again")
        writer.close(0.0)
        assert read_exactly(reader, before - 4096) == b"." * (before - 4096)
        join_thread("late")
        os.close(end)
        assert read_to_end(reader) == b"a" * 65_536


@pytest.mark.rule("LOG-26")
def test_close_flushes_ends_thread_and_keeps_descriptor_open() -> None:
    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="ends", delay=3600.0)
        writer.write(b"pending")
        assert writer.pending_bytes == 7
        writer.close(PATIENCE)
        join_thread("ends")
        assert read_exactly(reader, 7) == b"pending"
        assert os.write(end, b"x") == 1


@pytest.mark.rule("LOG-26")
def test_flush_ends_the_delay() -> None:
    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="delay", delay=3600.0)
        for piece in (b"one", b"two"):
            writer.write(piece)
            assert writer.flush(PATIENCE)
            assert read_exactly(reader, 3) == piece
        assert writer.flush(0)
        writer.close(PATIENCE)


@pytest.mark.rule("LOG-17")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_idle_thread_is_never_woken() -> None:
    with pipe() as (_, end):
        writer = BackgroundWriter(end, name="idle", delay=0.02)
        writer.write(b"x")
        assert writer.flush(PATIENCE)
        (thread,) = (thread for thread in threading.enumerate() if thread.name == "idle")
        status = Path(f"/proc/self/task/{thread.native_id}/status")

        def switches() -> list[str]:
            return [line for line in status.read_text().splitlines() if "ctxt_switches" in line]

        # Five of its periods without a wake-up, sooner or later: never, if it woke by itself.
        for _ in range(100):
            before = switches()
            threading.Event().wait(0.1)
            if switches() == before:
                break
        else:
            pytest.fail("the idle thread keeps waking up")
        writer.close(PATIENCE)


# -- threads and processes -----------------------------------------------------------------------


@pytest.mark.rule("LOG-40")
def test_next_write_retries_thread_start() -> None:
    with pipe() as (reader, end):
        writer = BackgroundWriter(end, name="unstartable", delay=0.001)
        previous = threading.stack_size(1 << 46)  # more than there is address space
        try:
            writer.write(b"one ")
            assert not has_thread("unstartable")
            assert writer.pending_bytes == 4
        finally:
            threading.stack_size(previous)
        writer.write(b"two")
        assert read_exactly(reader, 7) == b"one two"
        writer.close(PATIENCE)


FORK = """
import os, sys, threading
from foundation_rt.base.logs.writer import BackgroundWriter

reader, end = os.pipe()
os.set_blocking(end, False)
full = 0
try:
    while True:
        full += os.write(end, b"." * 4096)
except BlockingIOError:
    os.set_blocking(end, True)
writer = BackgroundWriter(end, name="parent")
other = BackgroundWriter(end, name="other")
del other
writer.write(b"P" * 10)  # waits in the parent's thread
out = BackgroundWriter(1, name="out", delay=0.02)
out.write(b"before ")

# Another thread is inside the locks at the fork.
entered, leave = threading.Event(), threading.Event()
def hold():
    with writer._lock, out._lock:
        entered.set()
        leave.wait()
holder = threading.Thread(target=hold)
holder.start()
entered.wait()
child = os.fork()
if child == 0:
    assert writer.pending_bytes == out.pending_bytes == 0
    writer.write(b"C" * 10)
    assert writer.pending_bytes == 10  # the pipe is full: it went to a thread of the child
    out.write(b"child ")
    assert out.flush(30)
    os._exit(0)
leave.set()
holder.join()
assert os.waitpid(child, 0)[1] == 0
os.read(reader, full)
assert os.read(reader, 100) == b"P" * 10
assert out.flush(30)
out.write(b"parent")
out.close(30)
"""


@pytest.mark.rule("LOG-25")
def test_forked_child_starts_with_empty_queue() -> None:
    # Python 3.12 warns of a fork beside threads, which is the point here.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    words = done.stdout.split()
    assert sorted(words[:2]) == ["before", "child"]
    assert words[2:] == ["parent"]


def test_unreferenced_writer_is_freed() -> None:
    with pipe() as (_, end):
        writer = BackgroundWriter(end, name="freed")
        writer.write(b"x")
        trace = weakref.ref(writer)
        del writer
        gc.collect()
        assert trace() is None
