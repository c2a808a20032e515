"""The patterns of secrets in texts, and their replacement (LOG-27).

A text is searched for what precedes a secret: a secret key with ``=`` or ``:``, an option on a
command line, ``Bearer``, the user of a URL, or the first of two quoted texts. The value after it is
replaced. Other keys are skipped without their values, which can hold further secrets.

Few texts have any of these. `redaction` first searches for marks that occur in all patterns, and
imports this module when it finds one.

Texts come from anywhere. Every repetition in these expressions is possessive, bounded, or ends at a
character that it cannot contain, so a search takes time linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .redaction import REDACTED

# A quote, or an escaped one as in JSON inside JSON.
_QUOTE = r"\\{0,7}[\"']"
_STARTS = re.compile(
    rf"""
    (?<![\w.\-]) (?P<key> [\w.\-]++ )
        (?: (?:{_QUOTE})? \s{{0,8}} (?: :?=>? | :(?=[\s"'\\]) ) | {_QUOTE} \s{{0,8}} : ) \s{{0,8}}
    | (?<![\w\-]) -- (?P<option> [A-Za-z][\w.\-]*+ ) (?:{_QUOTE})? ,? \s{{1,8}}
    | (?P<bearer> [Bb]earer | BEARER ) \s{{1,8}}
    | (?P<url> :// ) [^\s/?\#:@]*+ :
    | {_QUOTE} (?P<first> [\w.\-]++ ) {_QUOTE} , \s{{0,8}} (?= b?{_QUOTE} )
        (?: {_QUOTE} (?: [Vv]alues? | VALUES? | val | default ) {_QUOTE} \s{{0,8}} : \s{{0,8}} )?
    """,
    re.VERBOSE,
)
_QUOTED = r"""
    b?" (?: [^"\\]++ | \\. )*+ "?
    | b?' (?: [^'\\]++ | \\. )*+ '?
    | b?(?P<escaped> \\{1,7}["'] ) (?: (?! (?P=escaped) ) . )*+ (?: (?P=escaped) )?
"""
_BRACKETED = r"\[ [^\]]*+ \S*+ | \{ [^}]*+ \S*+ | \( [^)]*+ \S*+"
_VALUE = re.compile(rf"{_QUOTED} | {_BRACKETED} | \S++", re.VERBOSE | re.DOTALL)
# With a scheme, or with many parameters, up to the end of the line.
_HEADER = re.compile(rf"{_QUOTED} | [^\r\n]++", re.VERBOSE | re.DOTALL)
_PASSWORD = re.compile(r"[^\s/?#]*@")
_IS_HEADER = re.compile(r"authorization|cookie", re.IGNORECASE)


def replace_secrets(text: str, is_secret: Callable[[str], bool], enough: int | None) -> str:
    """Return `text` with `REDACTED` for each secret in it; see `redaction.mask_secrets`."""
    parts: list[str] = []
    length = at = 0
    for found in _STARTS.finditer(text):
        if enough is not None and length + found.start() - at > enough:
            break
        if found.end() < at - 1:
            continue
        end = _end_of_secret(text, found, is_secret)
        if end is None or end <= at:
            continue
        if found.end() >= at:
            parts += (text[at : found.end()], REDACTED)
            length += found.end() - at + len(REDACTED)
        at = end  # else the closing quote of one secret opens another
    if not parts:
        return text
    parts.append(text[at:])
    return "".join(parts)


def _end_of_secret(text: str, found: re.Match[str], is_secret: Callable[[str], bool]) -> int | None:
    """Return the end of the secret after a match; None if there is none."""
    kind = found.lastgroup
    if kind == "url":
        password = _PASSWORD.match(text, found.end())
        return password and password.end() - 1
    key = found[kind or 0]
    if kind != "bearer" and not is_secret(key):
        return None
    if kind == "option" and text.startswith("-", found.end()):
        return None  # the next option
    pattern = _HEADER if _IS_HEADER.search(key) else _VALUE
    value = pattern.match(text, found.end())
    return value and value.end()
