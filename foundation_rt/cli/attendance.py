"""The person who waits for a request: sees how it goes on, and answers what the server asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field

from .live_view import LiveView
from .person import Person
from .questions import answer_as_model, ask_form, ask_page

if TYPE_CHECKING:
    from ..client.handlers.elicitation import ElicitationRequest, ElicitationUrlRequest
    from ..client.handlers.sampling import SamplingRequest
    from ..features.server_requests.elicitation import ElicitResult
    from ..features.server_requests.sampling import SampleResult

_HOUR = 3600.0
"""Seconds that a person has for an answer; meanwhile no deadline of the client runs."""

_WHO = "the server"


@define(eq=False)
class Attendance:
    """Asks the person in turn, and shows the request meanwhile.

    Args:
        view: of the request.
    """

    view: LiveView
    _person: Person = field(factory=Person)
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def settings(self) -> Mapping[str, Any]:
        """Return the options of `connect` with which the server can ask and report."""
        return {
            "elicitation": self._fill_in,
            "elicitation_url": self._visit,
            "sampling": self._sample,
            "handler_timeout": _HOUR,
            "on_log": self.view.log,
            "log_level": "info",
        }

    async def _fill_in(self, request: ElicitationRequest) -> ElicitResult[Any]:
        async with self._asking():
            return await ask_form(self._person, _WHO, request.message, request.schema)

    async def _visit(self, request: ElicitationUrlRequest) -> ElicitResult[Any]:
        async with self._asking():
            return await ask_page(self._person, _WHO, request)

    async def _sample(self, request: SamplingRequest) -> SampleResult | None:
        async with self._asking():
            return await answer_as_model(self._person, _WHO, request)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Leave the terminal to one question at a time."""
        async with self._turn:
            self.view.pause()
            try:
                yield
            finally:
                self.view.begin()
