"""A log that can be waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from foundation_rt.base.clock import SystemClock
from foundation_rt.base.logs.logger import StructuredLogger


class RecordedLog:
    """Keeps the records that its loggers write."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self._news = asyncio.Event()

    def write(self, line: bytes) -> None:
        self.records.append(orjson.loads(line))
        self._news.set()

    def logger(self) -> StructuredLogger:
        return StructuredLogger(self, SystemClock(), "debug")

    def said(self, message: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["message"] == message]

    async def says(self, message: str, times: int = 1) -> None:
        while len(self.said(message)) < times:
            self._news.clear()
            await self._news.wait()
