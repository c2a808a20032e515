"""The lines that a program writes on stderr: log records, reports, anything else. Pure (DEV-23)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson
from attrs import frozen

REPORT_KEY = "foundationRtDev"
"""The member of a line by which the program's loader reports to the front."""

AGENTS_TOOL = "foundation_rt_dev_agents"
"""The tool with which the front reads the agents of a program; no list has it (DEV-32).

No `tools.name_separator` changes this name.
"""

_LEVELS = ("debug", "info", "warn", "error")
_MAX_MESSAGE = 16 * 1024
_OWN = ("timestamp", "level", "message", "runId", "correlationId", "connectionCorrelationId")


@frozen(eq=False)
class LogLine:
    """One line.

    Attributes:
        level: `debug`, `info`, `warn`, `error`; `stderr` for a line that is no record.
        at: Unix time in ms; None where the line has none.
        fields: the further members of the record.
    """

    level: str
    message: str
    at: float | None = None
    run_id: str | None = None
    correlation_id: str | None = None
    fields: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the members of a `log` event that tell of the record itself."""
        return {
            "level": self.level,
            "message": self.message,
            "runId": self.run_id,
            "correlationId": self.correlation_id,
            "fields": self.fields or {},
        }


def read_line(text: str) -> LogLine | dict[str, Any]:
    """Return the record in a line, or the report of the loader that it is."""
    value = _object(text)
    if value is None:
        return LogLine("stderr", text[:_MAX_MESSAGE])
    report = value.get(REPORT_KEY)
    if isinstance(report, dict):
        return report
    level, message = value.get("level"), value.get("message")
    if level not in _LEVELS or not isinstance(message, str):
        return LogLine("stderr", text[:_MAX_MESSAGE])
    if len(text) > _MAX_MESSAGE:
        fields = {"cut": f"the record has {len(text)} characters"}
    else:
        fields = {name: each for name, each in value.items() if name not in _OWN}
    return LogLine(
        level,
        message[:_MAX_MESSAGE],
        _time(value.get("timestamp")),
        _id(value.get("runId")),
        _id(value.get("correlationId")),
        fields,
    )


def _object(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        value = orjson.loads(text.encode("utf-8", "replace"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _time(value: object) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value).timestamp() * 1000
    except ValueError:
        return None


def _id(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= 256 else None
