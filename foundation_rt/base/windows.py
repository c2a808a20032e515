"""Functions of Windows itself (Win32 API), for memory, time and consoles."""

from __future__ import annotations

import ctypes
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import wintypes

if sys.platform == "win32":
    _CLOSE, _LOGOFF, _SHUTDOWN = 2, 5, 6  # CTRL_CLOSE_EVENT and its kin
    _ENDLESS = 0xFFFFFFFF
    _READ_WRITE, _SHARED, _OPEN_EXISTING = 0xC0000000, 3, 3
    _ESCAPES = 4  # ENABLE_VIRTUAL_TERMINAL_PROCESSING
    _INVALID = wintypes.HANDLE(-1).value

    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel.GetCurrentProcess.restype = wintypes.HANDLE
    _kernel.GetTickCount64.restype = ctypes.c_uint64
    _kernel.CreateFileW.restype = wintypes.HANDLE
    _Handler = ctypes.WINFUNCTYPE(wintypes.BOOL, wintypes.DWORD)

    _handlers: list[object] = []  # which Windows calls: they must not be collected

    class _MemoryCounters(ctypes.Structure):
        """PROCESS_MEMORY_COUNTERS."""

        _fields_ = [
            ("size", wintypes.DWORD),
            ("page_faults", wintypes.DWORD),
            *((name, ctypes.c_size_t) for name in ("peak_working_set", "working_set")),
            *((f"rest_{number}", ctypes.c_size_t) for number in range(6)),
        ]

    def resident_memory_bytes() -> int:
        """Return the working set of this process, in bytes."""
        counters = _MemoryCounters(size=ctypes.sizeof(_MemoryCounters))
        _kernel.K32GetProcessMemoryInfo(
            wintypes.HANDLE(_kernel.GetCurrentProcess()), ctypes.byref(counters), counters.size
        )
        return int(counters.working_set)

    def since_boot_ms() -> int:
        """Return the milliseconds since the start of the system, also those that it slept."""
        return int(_kernel.GetTickCount64())

    @contextmanager
    def handling_console_end(callback: Callable[[], object]) -> Iterator[None]:
        """Call `callback`, in a thread of its own, when the console is closed or the user logs off.

        Windows ends the process when that thread is done, so it waits; and at the latest after the
        time that the system allows, which is 5 s for a console.
        """

        @_Handler
        def handle(event: int) -> bool:
            if event not in (_CLOSE, _LOGOFF, _SHUTDOWN):
                return False  # another handler has it
            callback()
            _kernel.Sleep(_ENDLESS)
            return True

        _handlers.append(handle)
        _kernel.SetConsoleCtrlHandler(handle, True)
        try:
            yield
        finally:
            _kernel.SetConsoleCtrlHandler(handle, False)
            _handlers.remove(handle)

    def write_utf8() -> None:
        """Have text for people written in UTF-8, as results are, whatever the code page is."""
        for stream in sys.stdout, sys.stderr:
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")

    def takes_escapes() -> bool:
        """Return whether the console takes escape sequences; one that can does from now on.

        Those of Windows 10 can since 2015, but they do not by default.
        """
        console = wintypes.HANDLE(
            _kernel.CreateFileW("CONOUT$", _READ_WRITE, _SHARED, None, _OPEN_EXISTING, 0, None)
        )
        mode = wintypes.DWORD()
        found = _kernel.GetConsoleMode(console, ctypes.byref(mode))
        taken = found and _kernel.SetConsoleMode(console, mode.value | _ESCAPES)
        if console.value != _INVALID:
            _kernel.CloseHandle(console)
        return bool(taken)
