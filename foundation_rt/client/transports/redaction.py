"""Remove the client's secrets from the errors of a server (CHTTP-03).

A server, or a proxy before it, may repeat a refused request in its error, including the token and
the URL; and errors end up in logs and reports. Results are never changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from attrs import define, frozen

from ...base.exact_json import dumps, loads
from ..session.pending_requests import without_lone_surrogates

if TYPE_CHECKING:
    from ...protocol.framing import LineTooLong
    from ..errors import MCPError
    from .transport import Receiver

MASK: Final = "***"
"""Replaces a secret."""

_SHORTEST = 8  # characters; shorter values are no secrets, and common in texts
_DEEPEST = 100  # levels of an error's data that are kept
_NOT_SECRET = (b"user-agent", b"host", b"accept-encoding")


@frozen(eq=False, repr=False)
class Secrets:
    """The secrets that are sent to a server; made by `of`."""

    _pattern: re.Pattern[str] | None
    _of_tokens: Callable[[], Iterable[str]] = tuple

    @classmethod
    def of(
        cls,
        url: str,
        headers: Iterable[tuple[bytes, bytes]],
        of_tokens: Callable[[], Iterable[str]] = tuple,
    ) -> Secrets:
        """Collect the secrets in the URL of a server, and in the headers of every request.

        These are the values of the headers and each word of them; and of the URL the user, the
        password, the query and each value in it. Each has at least 8 characters.

        Args:
            of_tokens: returns those of tokens, which change.
        """
        found = {text for text in _candidates(url, headers) if len(text) >= _SHORTEST}
        if not found:
            return cls(None, of_tokens)
        longest_first = sorted(found, key=len, reverse=True)
        return cls(re.compile("|".join(map(re.escape, longest_first))), of_tokens)

    def redact(self, text: str) -> str:
        """Return `text` with `MASK` for every secret in it."""
        for secret in self._of_tokens():
            text = text.replace(secret, MASK)
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def redact_all(self, value: Any, depth: int = 0) -> Any:
        """Return a JSON value with every text redacted; null for values nested too deeply."""
        if isinstance(value, str):
            return self.redact(value)
        if depth > _DEEPEST:
            return None
        if isinstance(value, list):
            return [self.redact_all(each, depth + 1) for each in value]
        if isinstance(value, dict):
            return {self.redact(n): self.redact_all(each, depth + 1) for n, each in value.items()}
        return value


@define(eq=False, repr=False)
class RedactingReceiver:
    """A `Receiver` that passes all on to another one, errors without secrets."""

    receiver: Receiver
    secrets: Secrets

    def received(self, line: bytes | LineTooLong, request_id: str | None) -> None:
        """See `Receiver`."""
        if isinstance(line, bytes) and b'"error"' in line:
            line = self._redacted(line)
        self.receiver.received(line, request_id)

    def awaits(self, request_id: str) -> bool:
        """See `Receiver`."""
        return self.receiver.awaits(request_id)

    def failed(self, request_id: str, error: MCPError) -> None:
        """See `Receiver`."""
        self.receiver.failed(request_id, error)

    def lost(self, error: MCPError) -> None:
        """See `Receiver`."""
        self.receiver.lost(error)

    def _redacted(self, line: bytes) -> bytes:
        try:
            said = _loads(line)
            if isinstance(said, list):
                return dumps([self._without_secrets(each) for each in said])
            redacted = self._without_secrets(said)
            return line if redacted is said else dumps(redacted)
        except (TypeError, ValueError):  # no JSON, or deeper than it is written: no error to raise
            return line

    def _without_secrets(self, message: Any) -> Any:
        """Return an error response, redacted; any other message as it is."""
        if not isinstance(message, dict) or "method" in message or message.get("error") is None:
            return message
        kept = {name: message[name] for name in ("jsonrpc", "id") if name in message}
        return {**kept, "error": self.secrets.redact_all(message["error"])}


def _loads(line: bytes) -> Any:
    """Return a line as `PendingRequests` reads it (CLIENT-13)."""
    try:
        return loads(line)
    except ValueError:
        return loads(without_lone_surrogates(line))


def _candidates(url: str, headers: Iterable[tuple[bytes, bytes]]) -> Iterator[str]:
    for name, value in headers:
        if name not in _NOT_SECRET:
            text = value.decode("latin-1")
            yield text
            yield from text.split()
    parts = urlsplit(url)
    yield parts.query
    for part in (parts.username, parts.password):
        if part is not None:
            yield part
            yield unquote(part)
    for pair in parts.query.split("&"):
        yield pair.partition("=")[2]
    for _, text in parse_qsl(parts.query):
        yield text
