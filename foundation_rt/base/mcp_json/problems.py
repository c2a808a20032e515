"""The errors of files of servers."""

from __future__ import annotations

from ...errors import UsageError


class ServerFileError(UsageError):
    """A file of servers, or one entry of it, cannot be used; the message names place and cause."""


class NotYetError(ServerFileError):
    """An entry can be used as soon as a variable is set that it needs."""
