"""Python's log records of libraries of the runtime, in the log of an application (GATE-44).

Client, coordinator and gateway are libraries: they log as Python's libraries do. A gateway or a
host is a program, whose one log is structured and has no secrets; so what they log goes there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import describe_exception

if TYPE_CHECKING:
    from .logger import StructuredLogger

_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warn"), (logging.INFO, "info"))


class StructuredLogHandler(logging.Handler):
    """Writes Python's log records to a structured log: level, message, fields.

    The fields of a record are those of its attribute `fields`, the name of its logger, and its
    exception.

    Args:
        logger: writes them, without secrets.
    """

    def __init__(self, logger: StructuredLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            self._logger.log(_level_of(record), record.getMessage(), _fields_of(record))
        except Exception:
            self.handleError(record)


@contextmanager
def records_written_to(logger: StructuredLogger, names: Iterable[str]) -> Iterator[None]:
    """Write the records of some of Python's loggers to `logger` within the block.

    Args:
        logger: writes them.
        names: of Python's loggers; those below them are included.
    """
    handler = StructuredLogHandler(logger)
    before = [(found, found.level) for found in map(logging.getLogger, names)]
    lowest = logging.DEBUG if logger.is_enabled("debug") else logging.INFO
    for found, _ in before:
        found.addHandler(handler)
        found.setLevel(lowest)
    try:
        yield
    finally:
        for found, level in before:
            found.removeHandler(handler)
            found.setLevel(level)


def _level_of(record: logging.LogRecord) -> str:
    return next((name for level, name in _LEVELS if record.levelno >= level), "debug")


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    given = getattr(record, "fields", None)
    fields = dict(given) if isinstance(given, Mapping) else {}
    if record.exc_info and record.exc_info[1] is not None:
        fields["error"] = describe_exception(record.exc_info[1])
    return {**fields, "logger": record.name}
