"""Processes of Windows, as tests see those of Linux in /proc (Win32 API)."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from ctypes import wintypes
from typing import Any

if sys.platform == "win32":
    _QUERY, _SYNCHRONIZE, _LIST_PROCESSES = 0x1000, 0x100000, 2
    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    _library = ctypes.CDLL("ucrtbase")
    for _name in ("OpenProcess", "CreateToolhelp32Snapshot", "CreateRemoteThread"):
        getattr(_kernel, _name).restype = wintypes.HANDLE

    SIGNALS = {signal.SIGINT: signal.SIGINT, signal.SIGTERM: signal.SIGBREAK}
    """What Ctrl-C and Ctrl-Break become in the C library (spec/windows.md)."""

    class _Entry(ctypes.Structure):
        """PROCESSENTRY32."""

        _fields_ = [
            *((name, wintypes.DWORD) for name in ("size", "uses", "pid")),
            ("heap", ctypes.c_size_t),
            *((name, wintypes.DWORD) for name in ("module", "threads", "parent")),
            ("priority", wintypes.LONG),
            ("flags", wintypes.DWORD),
            ("file", ctypes.c_char * 260),
        ]

    def started(pid: int) -> str | None:
        """Return when a process was started, which makes its id unique; None if it has ended."""
        process = _kernel.OpenProcess(_QUERY | _SYNCHRONIZE, False, pid)
        if not process:
            return None
        times = [wintypes.FILETIME() for _ in range(4)]
        try:
            if not _kernel.WaitForSingleObject(wintypes.HANDLE(process), 0):
                return None
            _kernel.GetProcessTimes(wintypes.HANDLE(process), *map(ctypes.byref, times))
            return f"{times[0].dwHighDateTime} {times[0].dwLowDateTime}"
        finally:
            _kernel.CloseHandle(wintypes.HANDLE(process))

    def send_signal(process: subprocess.Popen[Any], number: signal.Signals) -> None:
        """Raise a signal in a process as its console would: Windows starts a thread in it."""
        thread = _kernel.CreateRemoteThread(
            wintypes.HANDLE(int(process._handle)),
            *(None, 0, ctypes.cast(getattr(_library, "raise"), ctypes.c_void_p)),
            ctypes.c_void_p(SIGNALS[number]),
            *(0, None),
        )
        if thread:  # it has not ended
            _kernel.CloseHandle(wintypes.HANDLE(thread))

    def has_ended(pid: int, seconds: float) -> bool:
        """Return whether a process ends within this time."""
        process = _kernel.OpenProcess(_SYNCHRONIZE, False, pid)
        if not process:
            return True
        try:
            return not _kernel.WaitForSingleObject(wintypes.HANDLE(process), int(seconds * 1000))
        finally:
            _kernel.CloseHandle(wintypes.HANDLE(process))

    def children(pid: int) -> frozenset[int]:
        """Return the processes that a process has started and that still run."""
        found = set()
        entry = _Entry(size=ctypes.sizeof(_Entry))
        snapshot = wintypes.HANDLE(_kernel.CreateToolhelp32Snapshot(_LIST_PROCESSES, 0))
        try:
            more = _kernel.Process32First(snapshot, ctypes.byref(entry))
            while more:
                if entry.parent == pid and started(entry.pid) is not None:
                    found.add(entry.pid)
                more = _kernel.Process32Next(snapshot, ctypes.byref(entry))
        finally:
            _kernel.CloseHandle(snapshot)
        return frozenset(found)
