r"""The translation of JSON Schema's regular expressions, which are ECMA-262's, to Python's.

Python's `re` gives many patterns another meaning: `\d` and `\w` match all of Unicode, `$` matches
before a last newline, `.` matches a carriage return, and `(?i)`, `\Z`, `a++`, `[[:x:]]` mean
something that ECMA-262 does not have. So a pattern is parsed as ECMA-262 (with code points as
characters, as its `u` flag does; SCHEMA-12) and rewritten in a form with the same meaning in both.
A pattern without such a form is refused, never approximated.

The result has no bare `$`: fastjsonschema replaces those itself, wrongly within a class.
"""

from __future__ import annotations

import re
from typing import Final

_LIMIT: Final = r"\U0010ffff"
_SPACE: Final = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SETS: Final = {
    "d": "0-9",
    "D": rf"\x00-/:-{_LIMIT}",
    "w": "0-9A-Z_a-z",
    "W": rf"\x00-/:-@\[-\^`{{-{_LIMIT}",
    "s": _SPACE,
    "S": r"\x00-\x08\x0e-\x1f\x21-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e"
    rf"\u2030-\u205e\u2060-\u2fff\u3001-\ufefe\uff00-{_LIMIT}",
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}
_UNSUPPORTED: Final = {"p": "a Unicode property", "P": "a Unicode property"}
_ASSERTIONS: Final = {"b": r"(?a:\b)", "B": r"(?!(?a:\b))"}
_PLAIN: Final = {"^": "^", "$": r"\Z", ".": r"[^\n\r\u2028\u2029]", "|": "|", ")": ")"}

_MAX_BOUND_DIGITS: Final = 9  # Python takes less than 2**32

_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??")
_GROUP: Final = re.compile(r"\((?:\?(?::|=|!|<=|<!|(<[A-Za-z_$][\w$]*>)))?(?!\?)")
_ESCAPE: Final = re.compile(
    r"\\(?:u\{(?P<point>[0-9A-Fa-f]{1,6})\}"
    r"|u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})"
    r"|u(?P<unit>[0-9A-Fa-f]{4})|x(?P<byte>[0-9A-Fa-f]{2})|c(?P<control>[A-Za-z])"
    r"|(?P<plain>.))",
    re.DOTALL,
)


class PatternError(ValueError):
    """The pattern is not ECMA-262; the message says why."""


class UnsupportedPatternError(PatternError):
    """Python cannot match the ECMA-262 pattern exactly; the message names the feature."""


def translate(pattern: str) -> str:
    """Return the Python pattern for `re.search` that is equivalent to an ECMA-262 `pattern`.

    Raises:
        PatternError: the pattern is not ECMA-262.
        UnsupportedPatternError: it uses Unicode properties, back-references or a look-behind of
            variable length.
    """
    translated = _rewrite(pattern)
    try:
        re.compile(translated)
    except (re.error, OverflowError) as error:
        if "look-behind" in str(error):
            raise UnsupportedPatternError("a look-behind of variable length") from None
        raise PatternError(str(error)) from None
    return translated


def is_pattern(text: str) -> bool:
    """Return whether `text` is an ECMA-262 pattern, even one that Python cannot match.

    Nothing is compiled: compiling takes 50 times as long, and Python caches its result.
    """
    try:
        _rewrite(text)
    except UnsupportedPatternError:
        return True
    except PatternError:
        return False
    return True


def _rewrite(pattern: str) -> str:
    """Return `pattern` in Python's syntax.

    Raises:
        PatternError: see `translate`.
        UnsupportedPatternError: see `translate`; not for look-behinds.
    """
    written: list[str] = []
    at = groups = 0
    repeatable = False
    while at < len(pattern):
        quantifier = _QUANTIFIER.match(pattern, at)
        if quantifier:
            if not repeatable:
                raise PatternError(f"there is nothing to repeat at character {at}")
            _check_bounds(quantifier[0])
            text, end = quantifier[0], quantifier.end()
        else:
            text, end = _atom(pattern, at)
            groups += (pattern[at] == "(") - (pattern[at] == ")")
            if groups < 0:
                raise PatternError(f"a group is closed that is not open, at character {at}")
        repeatable = quantifier is None and pattern[at] not in "(|^$"
        at = end
        written.append(text)
    if groups:
        raise PatternError("a group is not closed")
    return "".join(written)


def _check_bounds(quantifier: str) -> None:
    least, comma, most = quantifier.strip("{}?*+").partition(",")
    if max(len(least), len(most)) > _MAX_BOUND_DIGITS:
        raise PatternError(f"{quantifier[:20]}... repeats too often")
    if comma and most and int(least) > int(most):
        raise PatternError(f"{quantifier} ends before it begins")


def _atom(pattern: str, at: int) -> tuple[str, int]:
    """Return the translation of the term at `at`, and the position of the next one."""
    character = pattern[at]
    if character == "\\":
        return _escape(pattern, at)
    if character == "[":
        return _class(pattern, at + 1)
    if character == "(":
        group = _GROUP.match(pattern, at)
        if not group:
            raise PatternError(f"unknown kind of group at character {at}")
        return "(" if group[1] else group[0], group.end()
    return _PLAIN.get(character) or re.escape(character), at + 1


def _escape(pattern: str, at: int) -> tuple[str, int]:
    """Translate an escape outside of a class."""
    letter = pattern[at + 1 : at + 2]
    if letter in _ASSERTIONS:
        return _ASSERTIONS[letter], at + 2
    if letter in _SETS:
        return f"[{_SETS[letter]}]", at + 2
    character, end = _escaped_character(pattern, at)
    return re.escape(character), end


def _escaped_character(pattern: str, at: int) -> tuple[str, int]:
    """Return the character that the escape at `at` stands for, and the next position."""
    escape = _ESCAPE.match(pattern, at)
    if not escape:
        raise PatternError("it ends in a backslash")
    plain = escape["plain"]
    if plain is None:
        return _coded_character(escape), escape.end()
    if plain in _CONTROLS and not (plain == "0" and pattern[at + 2 : at + 3].isdecimal()):
        return _CONTROLS[plain], escape.end()
    if plain in "pPk123456789":
        raise UnsupportedPatternError(_UNSUPPORTED.get(plain, "a back-reference"))
    if plain.isalnum():
        raise PatternError(f"there is no escape \\{plain}")
    return plain, escape.end()


def _coded_character(escape: re.Match[str]) -> str:
    if escape["control"]:
        return chr(ord(escape["control"]) % 32)
    if escape["high"]:
        high, low = int(escape["high"], 16), int(escape["low"], 16)
        return chr(0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00)
    code = int(escape["point"] or escape["unit"] or escape["byte"], 16)
    if code > 0x10FFFF:
        raise PatternError(f"{escape[0]} is beyond the last character, \\u{{10FFFF}}")
    return chr(code)


def _class(pattern: str, at: int) -> tuple[str, int]:
    """Translate a character class, from after its opening bracket."""
    negated = pattern.startswith("^", at)
    at += negated
    members: list[str] = []
    while not pattern.startswith("]", at):
        member, single, at = _class_atom(pattern, at)
        if pattern.startswith("-", at) and not pattern.startswith("]", at + 1):
            last, last_single, at = _class_atom(pattern, at + 1)
            if single and last_single and _character(member) > _character(last):
                raise PatternError(f"a range in a character class ends before it begins, at {at}")
            # With a set on either side the dash is a character of its own, as in `[\w-.]`.
            member += ("-" if single and last_single else r"\-") + last
        members.append(member)
    if not members:
        return ("(?s:.)" if negated else "(?!)"), at + 1
    return f"[{'^' if negated else ''}{''.join(members)}]", at + 1


def _character(member: str) -> str:
    """Return the character that a single member of a class stands for."""
    return "\b" if member == r"\x08" else member[-1]


def _class_atom(pattern: str, at: int) -> tuple[str, bool, int]:
    """Return one member of a class, whether it is a single character, and the next position."""
    if at >= len(pattern):
        raise PatternError("a character class is not closed")
    if pattern[at] != "\\":
        return re.escape(pattern[at]), True, at + 1
    letter = pattern[at + 1 : at + 2]
    if letter == "b":
        return r"\x08", True, at + 2
    if letter in _SETS:
        return _SETS[letter], False, at + 2
    character, end = _escaped_character(pattern, at)
    return re.escape(character), True, end
