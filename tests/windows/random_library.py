"""`bcryptprimitives.dll`, which Wine 8 has not: Rust's standard library asks it for random bytes.

It has no code: its one function, `ProcessPrng(bytes, length)`, is exported as a forward to
`SystemFunction036` of `advapi32.dll`, which does the same (PE format, "Export Section").
"""

from __future__ import annotations

from struct import pack

NAME = b"bcryptprimitives.dll"

_FUNCTION = b"ProcessPrng"
_FORWARDS_TO = b"ADVAPI32.SystemFunction036"

_SECTION = 0x1000  # where it is in memory; the next one would be a page later
_FILE = 0x200  # where it is in the file, and its size there


def library() -> bytes:
    """Return the content of the file."""
    exports = _exports().ljust(_FILE, b"\0")
    return _headers(len(exports)).ljust(_FILE, b"\0") + exports


def _exports() -> bytes:
    """Return the export directory, the three tables of one entry each, and the texts."""
    functions = _SECTION + 40
    names, ordinals = functions + 4, functions + 8
    name = ordinals + 2
    function = name + len(NAME) + 1
    forward = function + len(_FUNCTION) + 1
    directory = pack("<IIHHIIIIIII", 0, 0, 0, 0, name, 1, 1, 1, functions, names, ordinals)
    tables = pack("<IIH", forward, function, 0)
    return directory + tables + b"\0".join((NAME, _FUNCTION, _FORWARDS_TO, b""))


def _headers(size: int) -> bytes:
    """Return the headers of a library for x64 with one read-only section and no entry point."""
    dos = b"MZ".ljust(60, b"\0") + pack("<I", 64)
    file = b"PE\0\0" + pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, 240, 0x2022)
    code = pack("<HBBIIIII", 0x20B, 0, 0, 0, size, 0, 0, 0)
    image = pack("<QII", 0x1_8000_0000, 0x1000, _FILE)
    versions = pack("<HHHHHHI", 6, 0, 0, 0, 6, 0, 0)
    sizes = pack("<IIIHH", 2 * _SECTION, _FILE, 0, 2, 0x0160)
    memory = pack("<QQQQII", 0x10_0000, 0x1000, 0x10_0000, 0x1000, 0, 16)
    directories = pack("<II", _SECTION, len(_exports())) + bytes(15 * 8)
    section = b".rdata\0\0" + pack(
        "<IIIIIIHHI", size, _SECTION, size, _FILE, 0, 0, 0, 0, 0x40000040
    )
    return dos + file + code + image + versions + sizes + memory + directories + section
