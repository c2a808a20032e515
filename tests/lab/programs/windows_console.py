"""A program of Windows at a console of its own, without a window (a pseudo-console)."""

from __future__ import annotations

import ctypes
import msvcrt
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from ctypes import wintypes
from typing import Any

assert sys.platform == "win32"

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_kernel32.CreatePseudoConsole.argtypes = [
    *(wintypes.DWORD, wintypes.HANDLE, wintypes.HANDLE, wintypes.DWORD),
    ctypes.POINTER(wintypes.HANDLE),
]
_SIZE = 100 | 30 << 16  # columns and lines
_EXTENDED_STARTUP, _PSEUDO_CONSOLE = 0x80000, 0x20016
_PATIENCE_S = 60.0

# A program inherits our pipes, even at a console; this one begins another, which has the console.
_AT_THE_CONSOLE = """
import os, subprocess, sys
typed, shown = (os.open(each, os.O_RDWR) for each in ("CONIN$", "CONOUT$"))
for theirs, ours in enumerate((typed, shown, shown)):
    os.dup2(ours, theirs)
print("ended with", subprocess.call(sys.argv[1:]), flush=True)
sys.stdin.readline()
"""


class _StartupInfo(ctypes.Structure):
    """STARTUPINFOEXW."""

    _fields_ = [
        ("size", wintypes.DWORD),
        ("names", ctypes.c_void_p * 3),
        ("numbers", wintypes.DWORD * 8),
        ("words", wintypes.WORD * 2),
        ("handles", ctypes.c_void_p * 4),
        ("attributes", ctypes.c_void_p),
    ]


class _ProcessInformation(ctypes.Structure):
    """PROCESS_INFORMATION."""

    _fields_ = [
        ("process", wintypes.HANDLE),
        ("thread", wintypes.HANDLE),
        ("ids", wintypes.DWORD * 2),
    ]


class WindowsConsole:
    """A program at a console.

    Args:
        words: the arguments of Python.

    Attributes:
        text: what the console has shown, with its escape sequences.
    """

    def __init__(self, *words: str) -> None:
        self.text = ""
        self._grown = threading.Condition()
        self._console = wintypes.HANDLE()
        theirs_in, ours_in = _pipe()
        ours_out, theirs_out = _pipe()
        failed = _kernel32.CreatePseudoConsole(
            _SIZE, theirs_in, theirs_out, 0, ctypes.byref(self._console)
        )
        assert not failed, hex(failed)
        _kernel32.CloseHandle(theirs_in)
        _kernel32.CloseHandle(theirs_out)
        self._process = _start(
            [sys.executable, "-c", _AT_THE_CONSOLE, sys.executable, *words], self._console
        )
        assert ours_in.value is not None and ours_out.value is not None
        self._input = msvcrt.open_osfhandle(ours_in.value, os.O_BINARY)
        self._output = msvcrt.open_osfhandle(ours_out.value, os.O_RDONLY | os.O_BINARY)
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> WindowsConsole:
        return self

    def __exit__(self, *exception: object) -> None:
        _kernel32.TerminateProcess(self._process, 1)
        _kernel32.CloseHandle(self._process)
        _kernel32.ClosePseudoConsole(self._console)
        os.close(self._input)

    def type(self, text: str) -> None:
        """Type text; Enter is a carriage return."""
        os.write(self._input, text.encode())

    def wait_for(self, text: str) -> str:
        """Wait until the console has shown a text; return all that it has shown."""
        with self._grown:
            assert self._grown.wait_for(lambda: text in self.text, _PATIENCE_S), self.text
            return self.text

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._output, 65_536)
            except OSError:
                return
            if not data:
                return
            with self._grown:
                self.text += data.decode("utf-8", "replace")
                self._grown.notify_all()


def _pipe() -> tuple[wintypes.HANDLE, wintypes.HANDLE]:
    reads, writes = wintypes.HANDLE(), wintypes.HANDLE()
    _kernel32.CreatePipe(ctypes.byref(reads), ctypes.byref(writes), None, 0)
    return reads, writes


def _start(words: Sequence[str], console: wintypes.HANDLE) -> wintypes.HANDLE:
    """Start a program at a console; return the handle of its process."""
    size = ctypes.c_size_t()
    _kernel32.InitializeProcThreadAttributeList(None, 1, 0, ctypes.byref(size))
    attributes: Any = ctypes.create_string_buffer(size.value)
    _kernel32.InitializeProcThreadAttributeList(attributes, 1, 0, ctypes.byref(size))
    _kernel32.UpdateProcThreadAttribute(
        *(attributes, 0, ctypes.c_size_t(_PSEUDO_CONSOLE), console),
        *(ctypes.c_size_t(ctypes.sizeof(console)), None, None),
    )
    started = _ProcessInformation()
    startup = _StartupInfo(size=ctypes.sizeof(_StartupInfo))
    startup.attributes = ctypes.cast(attributes, ctypes.c_void_p)
    done = _kernel32.CreateProcessW(
        *(None, ctypes.create_unicode_buffer(subprocess.list2cmdline(words))),
        *(None, None, False, _EXTENDED_STARTUP, None, None),
        *(ctypes.byref(startup), ctypes.byref(started)),
    )
    if not done:
        raise ctypes.WinError(ctypes.get_last_error())
    _kernel32.CloseHandle(wintypes.HANDLE(started.thread))
    return wintypes.HANDLE(started.process)
