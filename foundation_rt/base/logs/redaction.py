"""The redaction of log lines: no secrets, no control characters, bounded size.

Three operations, none of which changes its argument:

* `Redactor.redact` replaces the values under secret keys, anywhere in a structure, and the secrets
  in texts that match a pattern (`secret_patterns`). It copies on write: if nothing was replaced,
  the same object is returned.
* `traversal.sanitize` makes a text safe to show on one line of a terminal and bounds its length.
* `Redactor.for_log` does both to a whole structure and turns every leaf into a JSON value.

The first and the third go through a structure (`traversal`), which few records need.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ...errors import UsageError

DEFAULT_REDACT_KEYS: tuple[str, ...] = (
    "token",
    "key",
    "secret",
    "password",
    "apiKey",
    "authorization",
    "bearer",
    "session",
    "cookie",
    "passwd",
    "pwd",
    "passphrase",
    "pass",
    "passcode",
    "auth",
    "jwt",
    "authToken",
    "refreshToken",
    "sessionId",
    "credential",
    "clientSecret",
    "dbPassword",
    "privateKey",
    "dsn",
    "databaseUrl",
    "connectionString",
    "signature",
    "otp",
    "pin",
    "ssn",
)
# A word with such an ending is secret as well: PGPASSWORD, accesstoken. Other words do not have it.
_ENDINGS: tuple[str, ...] = ("password", "passwd", "passphrase", "secret", "token", "credential")
_ENDINGS += tuple(f"{ending}s" for ending in _ENDINGS)

# Members that hold the value of what another member of the same object names (LOG-28).
_VALUES = ("value", "values", "val", "default")
VALUE_KEYS = frozenset(each for key in _VALUES for each in (key, key.capitalize(), key.upper()))

REDACTED = "[REDACTED]"
MAX_TEXT = 1024  # characters of one string in a log line (LOG-12)
MAX_KEY = 256  # characters; no name is longer, so a longer key counts as secret (LOG-07)
_MAX_VERDICTS = 4096  # keys remembered; they can come from outside

_UPPER, _LOWER, _DIGIT, _OTHER = range(4)


# A search for a mark that occurs in every text with a secret pattern; a third of the time of one
# for the patterns.
_MARK = re.compile(r"""[=@] | :[\s"'\\] | ["'][:,\s] | -- | earer\s | EARER\s""", re.VERBOSE)
may_hold_secret = _MARK.search
"""Returns None for a text that holds no secret by its pattern (LOG-27)."""


def line_may_hold_secret(line: bytes) -> bool:
    """Return the same for an ASCII line of JSON without backslashes, whose syntax has marks.

    A chain of searches takes a tenth of the time of one for a regular expression.
    """
    return (
        b"=" in line
        or b"@" in line
        or b": " in line
        or b"--" in line
        or b"earer " in line
        or b"EARER " in line
        or (b"'" in line and (b"'," in line or b"':" in line or b":'" in line or b"' " in line))
    )


def mask_secrets(text: str, is_secret: Callable[[str], bool], enough: int | None = None) -> str:
    """Return `text` with `REDACTED` for each secret in it; the same object if there is none.

    Args:
        text: any text.
        is_secret: decides about keys.
        enough: how many characters of the result are needed; later ones may be left out.
    """
    if may_hold_secret(text) is None:
        return text
    from .secret_patterns import replace_secrets  # saves 1.4 ms at start

    return replace_secrets(text, is_secret, enough)


def _kind(char: str) -> int:
    if char.isupper():
        return _UPPER
    if char.isdigit():
        return _DIGIT
    return _LOWER if char.isalnum() else _OTHER


def _words(key: str) -> list[str]:
    """Return the words of a key, case folded: ``APIKey2`` is ``api``, ``key``, ``2`` (LOG-07)."""
    words: list[str] = []
    before = _OTHER
    for char in key:
        kind = _kind(char)
        if kind == before != _OTHER:
            words[-1] += char
        elif kind == _LOWER and before == _UPPER:
            # The last of several capitals may begin this word (APIKey) or end its own
            # (SECRETtoken): it stands alone, and a search over runs of words finds both readings.
            if len(words[-1]) == 1:
                words[-1] += char
            else:
                words[-1:] = [words[-1][:-1], words[-1][-1], char]
        elif kind != _OTHER:
            words.append(char)
        before = kind
    return [word.casefold() for word in words]


def _name(key: str) -> str:
    name = "".join(_words(key))
    if not name:
        raise UsageError(f"redact_keys: {key!r} has no letter or digit, so it can match no key")
    return name


# Text that looks like a key: no white space, and not a whole sentence.
_IS_WORD = re.compile(rf"\S{{1,{MAX_KEY}}}").fullmatch


class Redactor:
    """Knows the secret keys, and removes their values from structures.

    Args:
        keys: names of secrets, in addition to `DEFAULT_REDACT_KEYS`.

    Raises:
        UsageError: a name can match no key, because it has neither letter nor digit.
    """

    __slots__ = ("_longest", "_names", "_verdicts")

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._names = frozenset(map(_name, (*DEFAULT_REDACT_KEYS, *keys)))
        self._longest = max(map(len, self._names))
        self._verdicts: dict[str, bool] = {}

    def is_secret(self, key: str) -> bool:
        """Return whether a value under `key` must be replaced (LOG-07).

        True if some run of consecutive words of `key`, joined, is one of the names, or one followed
        by ``s``, or if a word ends in ``password``, ``token`` or the like. Words end at characters
        that are neither letters nor digits, at a change of case, and between letters and digits.
        """
        if len(key) > MAX_KEY:
            return True
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= _MAX_VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[key] = self._matches(_words(key))
        return verdict

    def _matches(self, words: list[str]) -> bool:
        if any(word.endswith(_ENDINGS) for word in words):
            return True
        for start in range(len(words)):
            run = ""
            for end in range(start, len(words)):
                run += words[end]
                if run in self._names or (run.endswith("s") and run[:-1] in self._names):
                    return True
                if len(run) > self._longest:
                    break
        return False

    def names_secret(self, text: Any) -> bool:
        """Return whether a text is a secret key, so that its value must be replaced (LOG-28)."""
        if isinstance(text, bytes):
            text = text[: MAX_KEY + 1].decode("latin-1")
        return isinstance(text, str) and _IS_WORD(text) is not None and self.is_secret(text)

    def mask(self, text: str, enough: int | None = None) -> str:
        """Return `text` without secrets; the same object if it has none; see `mask_secrets`."""
        return mask_secrets(text, self.is_secret, enough)

    def redact(self, value: Any) -> Any:
        """Return `value` without secrets; the same object if it has none (LOG-06, LOG-08).

        Mappings, attrs and dataclass instances and named tuples with a secret become dicts, tuples
        remain tuples, other collections become lists.
        """
        from .traversal import redact

        return redact(self, value)

    def for_log(self, value: Any) -> Any:
        """Return a copy of `value` as JSON values: without secrets, sanitized, of bounded size.

        It shares no mutable object with `value`. Rules: LOG-06 to LOG-15.
        """
        from .traversal import for_log

        return for_log(self, value)
