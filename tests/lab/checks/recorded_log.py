"""Logs that keep what is written: one that can be waited for, and a logger for what takes one."""

from __future__ import annotations

from typing import Any

import orjson

from foundation_rt.base.clock import SystemClock
from foundation_rt.base.logs.logger import StructuredLogger
from tests.lab.waiting import Changing


class RecordedLog(Changing):
    """Keeps the records that its loggers write."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[dict[str, Any]] = []

    def write(self, line: bytes) -> None:
        self.records.append(orjson.loads(line))
        self.has_changed()

    def logger(self) -> StructuredLogger:
        return StructuredLogger(self, SystemClock(), "debug")

    def said(self, message: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["message"] == message]

    async def says(self, message: str, times: int = 1) -> None:
        await self.until(lambda: len(self.said(message)) >= times)


class RecordedLogger:
    """Keeps what it is told.

    Attributes:
        records: the level, and the message with its fields.
        warnings: the message and the fields of each warning.
    """

    def __init__(self) -> None:
        self.records: list[tuple[str, str]] = []
        self.warnings: list[tuple[str, Any]] = []

    def info(self, message: str, fields: Any = None) -> None:
        self.records.append(("info", f"{message} {fields}"))

    def warn(self, message: str, fields: Any = None) -> None:
        self.records.append(("warn", f"{message} {fields}"))
        self.warnings.append((message, fields))

    def child(self, fields: Any) -> RecordedLogger:
        return self
