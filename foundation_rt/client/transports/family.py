"""A child process and all that it starts: started as one, asked to end, killed as one.

On POSIX it is a process group, which has the pid of its leader as its id; `orphan_guard` ends it
should this process be killed. On Windows it is a job, which Windows ends when this process, the
only one with a handle of it, has ended in whatever way. There the child is suspended until it is in
its job, so that nothing that it starts is outside.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import define, field

if sys.platform == "win32":
    import ctypes
    import logging
    from ctypes import wintypes

    from .windows_command import PERCENT, command_line

    log = logging.getLogger("foundation_rt.client")
    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _ntdll = ctypes.WinDLL("ntdll")
    _kernel32.CreateJobObjectW.restype = wintypes.HANDLE
    _kernel32.OpenProcess.restype = wintypes.HANDLE

    _SUSPENDED, _NEW_GROUP, _NO_WINDOW = 0x4, 0x200, 0x08000000
    _KILL_ON_CLOSE = 0x2000
    _ACCOUNTING, _EXTENDED_LIMITS = 1, 9
    _TERMINATE, _SET_QUOTA, _SUSPEND_RESUME = 0x1, 0x100, 0x800

    class _BasicLimits(ctypes.Structure):
        """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

        _fields_ = [
            ("times", ctypes.c_int64 * 2),
            ("flags", wintypes.DWORD),
            ("working_sets", ctypes.c_size_t * 2),
            ("processes", wintypes.DWORD),
            ("affinity", ctypes.c_size_t),
            ("classes", wintypes.DWORD * 2),
        ]

    class _ExtendedLimits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

        _fields_ = [
            ("basic", _BasicLimits),
            ("io", ctypes.c_uint64 * 6),
            ("memory", ctypes.c_size_t * 4),
        ]

    class _Accounting(ctypes.Structure):
        """JOBOBJECT_BASIC_ACCOUNTING_INFORMATION."""

        _fields_ = [
            ("times", ctypes.c_int64 * 4),
            ("faults", wintypes.DWORD),
            ("total", wintypes.DWORD),
            ("active", wintypes.DWORD),
            ("terminated", wintypes.DWORD),
        ]

    @define(eq=False)
    class Family:
        _job: wintypes.HANDLE | None = field(default=None, init=False)

        ENDING = (signal.SIGTERM,)  # there is nothing that asks: it is terminated

        def spawn(
            self,
            factory: Callable[[], asyncio.SubprocessProtocol],
            words: Sequence[str],
            env: Mapping[str, str],
            cwd: str | os.PathLike[str] | None,
        ) -> Coroutine[Any, Any, object]:
            folder = os.path.abspath(cwd or os.curdir)  # noqa: PTH100
            line = command_line(words, env, folder, os.path.isfile)
            loop = asyncio.get_running_loop()
            options: dict[str, Any] = {
                "env": {**env},
                "cwd": cwd,
                "creationflags": _SUSPENDED | _NEW_GROUP | _NO_WINDOW,
            }
            if not isinstance(line, str):
                return loop.subprocess_exec(factory, *line, **options)
            options["env"].update(PERCENT)
            system = os.environ.get("SYSTEMROOT", r"C:\Windows")
            shell = os.path.join(system, "System32", "cmd.exe")  # noqa: PTH118
            return loop.subprocess_shell(factory, line, executable=shell, **options)

        def started(self) -> None:
            pass

        def adopt(self, pid: int) -> None:
            access = _TERMINATE | _SET_QUOTA | _SUSPEND_RESUME
            process = wintypes.HANDLE(_kernel32.OpenProcess(access, False, pid))
            job = wintypes.HANDLE(_kernel32.CreateJobObjectW(None, None))
            limits = _ExtendedLimits()
            limits.basic.flags = _KILL_ON_CLOSE
            size = ctypes.sizeof(limits)
            try:
                if (
                    _kernel32.SetInformationJobObject(
                        job, _EXTENDED_LIMITS, ctypes.byref(limits), size
                    )
                    and _kernel32.AssignProcessToJobObject(job, process)
                    and not _ntdll.NtResumeProcess(process)
                ):
                    self._job = job
                    return
                error = ctypes.WinError(ctypes.get_last_error())
                log.warning("a server cannot be guarded: %s", error)
                _kernel32.TerminateProcess(process, 1)
                _kernel32.CloseHandle(job)
            finally:
                _kernel32.CloseHandle(process)

        def send(self, number: int) -> bool:
            if self._job is not None and number:
                _kernel32.TerminateJobObject(self._job, 1)
            return not self.has_gone()

        def has_gone(self) -> bool:
            counts = _Accounting()
            if self._job is None:
                return True
            size = ctypes.sizeof(counts)
            _kernel32.QueryInformationJobObject(
                self._job, _ACCOUNTING, ctypes.byref(counts), size, None
            )
            return not counts.active

        def release(self) -> None:
            if self._job is not None:
                _kernel32.CloseHandle(self._job)
                self._job = None

    def watched(pipe: Any) -> int | None:
        return None

    def is_unread(descriptor: int, written: int) -> bool:
        return False

else:
    import errno
    import fcntl
    import select
    import socket
    import stat
    import termios

    from .orphan_guard import orphan_guard

    @define(eq=False)
    class Family:
        """The process group of a child, which leads it.

        A group may outlive its leader and keeps its id: while one process is left, the id is not
        reused. So it is never signalled after it was empty.

        Attributes:
            ENDING: what is sent to end it, in order, with a grace between.
        """

        _mark: dict[str, str] = field(factory=dict, init=False)
        _pid: int = field(default=0, init=False)
        _is_gone: bool = field(default=False, init=False)

        ENDING = (signal.SIGTERM, signal.SIGKILL)

        def spawn(
            self,
            factory: Callable[[], asyncio.SubprocessProtocol],
            words: Sequence[str],
            env: Mapping[str, str],
            cwd: str | os.PathLike[str] | None,
        ) -> Coroutine[Any, Any, object]:
            """Return the coroutine that starts the child, with three pipes.

            Args:
                factory: of its protocol.
                words: the command and its arguments.
                env: its environment, all of it.
                cwd: its working directory; None: that of this process.

            Raises:
                OSError: also by the coroutine: it cannot be started.
            """
            self._mark = orphan_guard.begin_start()
            loop = asyncio.get_running_loop()
            return loop.subprocess_exec(
                factory, *words, env={**env, **self._mark}, cwd=cwd, start_new_session=True
            )

        def started(self) -> None:
            """Note that the child was started and adopted, or will not be."""
            orphan_guard.end_start(self._mark)

        def adopt(self, pid: int) -> None:
            """Guard the child from now on: its family ends with this process."""
            self._pid = pid
            orphan_guard.add(pid)

        def send(self, number: int) -> bool:
            """Send a signal to all; return whether any is left."""
            if not self._is_gone:
                try:
                    os.killpg(self._pid, number)
                except (ProcessLookupError, PermissionError):  # macOS: only zombies are left
                    self._is_gone = True
            return not self._is_gone

        def has_gone(self) -> bool:
            """Return whether none is left; the child itself has exited."""
            if self.send(0):
                if _has_living(self._pid):
                    return False
                # In the first process of a container, orphans become our children.
                with suppress(ChildProcessError):
                    while os.waitpid(-self._pid, os.WNOHANG)[0]:
                        pass
            return True

        def release(self) -> None:
            """Send nothing any more, and guard it no more."""
            self._is_gone = True
            orphan_guard.discard(self._pid)

    def watched(pipe: Any) -> int | None:
        """Return a descriptor of our own of a child's input; None if it is closed."""
        with suppress(ValueError):  # the child has ended, and asyncio has closed the pipe
            return os.dup(pipe.fileno())
        return None

    def is_unread(descriptor: int, written: int) -> bool:
        """Return whether an input was never read and nobody can read it any more, on Linux.

        Its end is asked here, not the exit of the child: that may be noted later, on a busy
        machine. The input is a pipe from Python 3.12 on, and a socket before: a pipe without
        readers reports POLLERR, and a socket whose peer was closed with unread bytes ECONNRESET.
        """
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            poll = select.poll()
            poll.register(descriptor, 0)
            if not poll.poll(0):
                return False
            unread = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
            return written == int.from_bytes(unread, sys.byteorder)
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            return error == errno.ECONNRESET

    def _has_living(group: int) -> bool:
        """Return whether a group has a process that is no zombie.

        The first process of many containers never does, and only /proc tells. It takes 25 us for
        each process of the machine.
        """
        try:
            found = [entry.path for entry in os.scandir("/proc") if entry.name.isdecimal()]
        except FileNotFoundError:
            return True  # macOS: there zombies cannot be signalled
        for path in found:
            with suppress(OSError):
                # pid (name) state parent group ...; a name may have spaces and parentheses
                state, _, its_group = (
                    Path(path, "stat").read_bytes().rpartition(b")")[2].split()[:3]
                )
                if int(its_group) == group and state not in b"ZX":
                    return True
        return False
