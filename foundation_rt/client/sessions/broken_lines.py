"""Lines of a server that are not JSON: what can be read of them all the same. Pure.

JavaScript cuts strings between the halves of a character, and writes the half as an escape that
JSON readers refuse: a lone surrogate. NaN, Latin-1 and debug text before an answer make a line that
nothing can read, but the id in it says which request waits in vain (CLIENT-13).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

MAX_MENDED_BYTES: Final = 8 * 1024 * 1024
"""Longest line whose surrogates are replaced: the search takes 0.1 s for it at most."""

_MAX_MENDED = 10_000  # surrogates of one line
_MAX_IDS = 1_000  # of one line that are looked at

# Each begins with what is searched for fast; what stands before that is looked at afterwards. A
# backslash before it makes it plain text, unless that is itself escaped.
_LONE_SURROGATE = re.compile(
    rb"\\u(?:(?<!\\\\u)|(?<=[^\\]\\\\\\u))[dD](?:"
    rb"[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|[c-fC-F][0-9a-fA-F]{2}(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb")"
)
_ID = re.compile(rb'"id"\s{0,8}:\s{0,8}"([^"\\]{1,128})"')
_METHOD = re.compile(rb'"method"\s{0,8}:\s{0,8}"([^"\\]{1,128})"')


def without_lone_surrogates(line: bytes) -> bytes:
    """Return the line with U+FFFD for every escape that is half a character."""
    if len(line) > MAX_MENDED_BYTES:
        return line
    return _LONE_SURROGATE.sub(rb"\\ufffd", line, count=_MAX_MENDED)


def ids_in(line: bytes) -> Iterator[str]:
    """Return the ids that stand in a line, those of requests and of answers alike.

    A line that does not end as an answer does was cut off, by the end of its server, say.
    """
    if not line.rstrip().endswith((b"}", b"]")):
        return iter(())
    return (text for text, _ in zip(_texts(_ID, line), range(_MAX_IDS), strict=False))


def repeats_request(line: bytes, method: str) -> bool:
    """Return whether a line may repeat a request, as a server does that prints what it reads."""
    if b'"result"' not in line and b'"error"' not in line:
        return True
    found = zip(_texts(_METHOD, line), range(_MAX_IDS), strict=False)
    return any(text == method for text, _ in found)


def _texts(pattern: re.Pattern[bytes], line: bytes) -> Iterator[str]:
    return (match[1].decode("utf-8", "replace") for match in pattern.finditer(line))
