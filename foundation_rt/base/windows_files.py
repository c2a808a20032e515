"""Files as Windows has them: opened so that others may rename them, rights, locks (WIN-40 to -43).

What Python's own `open` does not do there: it opens without FILE_SHARE_DELETE, so that nobody can
replace or move the file meanwhile; it gives a new file the rights of its folder; and `msvcrt` has
no shared locks. Imported on Windows only.
"""

from __future__ import annotations

import ctypes
import msvcrt
import os
import re
import sys
import time
from ctypes import wintypes
from functools import cache
from typing import Any

assert sys.platform == "win32"

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
_kernel32.CreateFileW.restype = wintypes.HANDLE
_kernel32.GetCurrentProcess.restype = wintypes.HANDLE
_kernel32.LocalFree.argtypes = [ctypes.c_void_p]

_GENERIC_READ, _GENERIC_WRITE = 0x80000000, 0x40000000
_SHARE_ALL = 7  # read, write, delete
_CREATE_NEW, _OPEN_EXISTING, _OPEN_ALWAYS = 1, 3, 4
_OPEN_THE_LINK = 0x00200000  # FILE_FLAG_OPEN_REPARSE_POINT
_INVALID_HANDLE = wintypes.HANDLE(-1).value
_REPARSE_POINT = 0x400

_FAIL_IMMEDIATELY, _EXCLUSIVE = 1, 2
_ACCESS_DENIED, _SHARING_VIOLATION, _LOCK_VIOLATION = 5, 32, 33
_REPLACE_S = 0.5  # to replace a file takes less
_PAUSE_S = 0.005
_SDDL_REVISION = 1
_FILE_OBJECT = 1
_OWNER_AND_DACL = 1 | 4
_PROTECTED_DACL = 0x80000000 | 4
_TOKEN_QUERY, _TOKEN_USER = 8, 1

_ACE = re.compile(r"\((\w+);([^;]*);[^;]*;[^;]*;[^;]*;([^;)]*)[^)]*\)")
_ALLOWS = ("A", "XA", "OA")
_SYSTEM = {"SY", "BA", "LA", "S-1-5-18", "S-1-5-32-544"}  # what root is elsewhere


class _SecurityAttributes(ctypes.Structure):
    _fields_ = [
        ("size", wintypes.DWORD),
        ("descriptor", ctypes.c_void_p),
        ("inherits", wintypes.BOOL),
    ]


class _Overlapped(ctypes.Structure):
    _fields_ = [
        ("internal", ctypes.c_void_p),
        ("internal_high", ctypes.c_void_p),
        ("offset", wintypes.DWORD),
        ("offset_high", wintypes.DWORD),
        ("event", wintypes.HANDLE),
    ]


def _check(done: Any, path: str | os.PathLike[str] | None = None) -> None:
    if not done:
        raise ctypes.WinError(ctypes.get_last_error(), None if path is None else os.fspath(path))


def open_file(path: str | os.PathLike[str], flags: int, *, follow: bool) -> int:
    """Open a file as `os.open` does; others may rename, replace or delete it meanwhile.

    Args:
        path: of the file; one that this makes is its owner's alone.
        flags: of `os.open`: how it is opened, O_CREAT, O_EXCL, O_APPEND.
        follow: whether through a link.

    Raises:
        OSError: it cannot be opened, or is a link and not to be followed.
    """
    access = _GENERIC_READ
    if flags & (os.O_WRONLY | os.O_RDWR):
        access |= _GENERIC_WRITE
    how = _OPEN_EXISTING
    if flags & os.O_CREAT:
        how = _CREATE_NEW if flags & os.O_EXCL else _OPEN_ALWAYS
    descriptor = ctypes.c_void_p()
    _check(_descriptor_of(_owner_only(""), descriptor))
    attributes = _SecurityAttributes(ctypes.sizeof(_SecurityAttributes), descriptor, False)
    try:
        deadline = time.monotonic() + _REPLACE_S
        while True:
            handle = _kernel32.CreateFileW(
                os.fspath(path),
                access,
                _SHARE_ALL,
                ctypes.byref(attributes),
                how,
                0 if follow else _OPEN_THE_LINK,
                None,
            )
            if handle != _INVALID_HANDLE:
                break
            # While a file is replaced it cannot be opened.
            waits = ctypes.get_last_error() in (_ACCESS_DENIED, _SHARING_VIOLATION)
            _check(waits and time.monotonic() < deadline, path)
            time.sleep(_PAUSE_S)
    finally:
        _kernel32.LocalFree(descriptor)
    opened = msvcrt.open_osfhandle(handle, flags | os.O_BINARY | os.O_NOINHERIT)
    if not follow and os.fstat(opened).st_file_attributes & _REPARSE_POINT:
        os.close(opened)
        raise OSError(40, "it is a link", os.fspath(path))
    return opened


def is_owners_alone(descriptor: int) -> bool:
    """Return whether nobody but this user, the system and its administrators may use a file."""
    owner, entries = _rights(msvcrt.get_osfhandle(descriptor))
    return owner in {*_SYSTEM, _user()} and all(
        trustee in {*_SYSTEM, _user(), "OW", "CO"}
        for kind, _, trustee in entries
        if kind in _ALLOWS
    )


def make_owners_alone(folder: str | os.PathLike[str]) -> None:
    """Let nobody but this user, the system and administrators use a folder, and what is made in it.

    Raises:
        OSError: its rights cannot be changed.
    """
    descriptor, rights = ctypes.c_void_p(), ctypes.c_void_p()
    _check(_descriptor_of(_owner_only("OICI"), descriptor))
    try:
        there, defaulted = wintypes.BOOL(), wintypes.BOOL()
        _check(
            _advapi32.GetSecurityDescriptorDacl(
                descriptor, ctypes.byref(there), ctypes.byref(rights), ctypes.byref(defaulted)
            )
        )
        error = _advapi32.SetNamedSecurityInfoW(
            os.fspath(folder), _FILE_OBJECT, _PROTECTED_DACL, None, None, rights, None
        )
        if error:
            raise ctypes.WinError(error, os.fspath(folder))
    finally:
        _kernel32.LocalFree(descriptor)


def try_lock(descriptor: int, offset: int, *, shared: bool) -> bool:
    """Lock one byte, which may lie beyond the end; return False if somebody else has.

    Raises:
        OSError: the file cannot be locked.
    """
    flags = _FAIL_IMMEDIATELY | (0 if shared else _EXCLUSIVE)
    handle, place = wintypes.HANDLE(msvcrt.get_osfhandle(descriptor)), _place(offset)
    if _kernel32.LockFileEx(handle, flags, 0, 1, 0, ctypes.byref(place)):
        return True
    _check(ctypes.get_last_error() == _LOCK_VIOLATION)
    return False


def unlock(descriptor: int, offset: int) -> None:
    """Undo one lock of a byte: an exclusive one first, if the file has both."""
    handle, place = wintypes.HANDLE(msvcrt.get_osfhandle(descriptor)), _place(offset)
    _check(_kernel32.UnlockFileEx(handle, 0, 1, 0, ctypes.byref(place)))


def real_path(descriptor: int) -> str:
    """Return the path of an open file, without links, short names and `..`."""
    handle = wintypes.HANDLE(msvcrt.get_osfhandle(descriptor))
    room = ctypes.create_unicode_buffer(32_768)
    _check(_kernel32.GetFinalPathNameByHandleW(handle, room, len(room), 0))
    path = room.value.removeprefix("\\\\?\\")
    return "\\\\" + path.removeprefix("UNC\\") if path.startswith("UNC\\") else path


def _place(offset: int) -> _Overlapped:
    return _Overlapped(None, None, offset & 0xFFFFFFFF, offset >> 32, None)


def _owner_only(inherited: str) -> str:
    """Return the rights of this user, the system and administrators, as SDDL."""
    return "D:P" + "".join(f"(A;{inherited};FA;;;{each})" for each in ("SY", "BA", _user()))


def _descriptor_of(sddl: str, descriptor: ctypes.c_void_p) -> Any:
    convert = _advapi32.ConvertStringSecurityDescriptorToSecurityDescriptorW
    return convert(sddl, _SDDL_REVISION, ctypes.byref(descriptor), None)


def _rights(handle: int) -> tuple[str, list[tuple[str, str, str]]]:
    """Return the owner of a file, and the kind, flags and trustee of each entry of its rights."""
    descriptor = ctypes.c_void_p()
    error = _advapi32.GetSecurityInfo(
        wintypes.HANDLE(handle),
        _FILE_OBJECT,
        _OWNER_AND_DACL,
        None,
        None,
        None,
        None,
        ctypes.byref(descriptor),
    )
    if error:
        raise ctypes.WinError(error)
    text = ctypes.c_wchar_p()
    try:
        convert = _advapi32.ConvertSecurityDescriptorToStringSecurityDescriptorW
        _check(convert(descriptor, _SDDL_REVISION, _OWNER_AND_DACL, ctypes.byref(text), None))
        owner, _, rights = (text.value or "").removeprefix("O:").partition("D:")
    finally:
        _kernel32.LocalFree(descriptor)
        _kernel32.LocalFree(ctypes.cast(text, ctypes.c_void_p))
    if not rights or "NO_ACCESS_CONTROL" in rights:
        return owner, [("A", "", "WD")]  # everybody
    return owner, _ACE.findall(rights)


@cache
def _user() -> str:
    """Return the identifier of the user of this process."""
    token, size = wintypes.HANDLE(), wintypes.DWORD()
    process = wintypes.HANDLE(_kernel32.GetCurrentProcess())
    _check(_advapi32.OpenProcessToken(process, _TOKEN_QUERY, ctypes.byref(token)))
    try:
        _advapi32.GetTokenInformation(token, _TOKEN_USER, None, 0, ctypes.byref(size))
        room = ctypes.create_string_buffer(size.value)
        _check(_advapi32.GetTokenInformation(token, _TOKEN_USER, room, size, ctypes.byref(size)))
    finally:
        _kernel32.CloseHandle(token)
    text = ctypes.c_wchar_p()
    identifier = ctypes.cast(room, ctypes.POINTER(ctypes.c_void_p))[0]  # TOKEN_USER begins with it
    _check(_advapi32.ConvertSidToStringSidW(ctypes.c_void_p(identifier), ctypes.byref(text)))
    try:
        return text.value or ""
    finally:
        _kernel32.LocalFree(ctypes.cast(text, ctypes.c_void_p))
