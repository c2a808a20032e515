"""What the handler of one call asks its client, whichever way the questions travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ..errors import UsageError
from .errors import ClientCapabilityError, merge_capabilities

if TYPE_CHECKING:
    from ..abort import AbortSignal
    from ..protocol.peer import Peer
    from .forms import Forms
    from .requests import PreparedRequest, ServerRequest


class RequestStrategy(Protocol):
    """A way for questions to reach the client, and for its answers to come back."""

    async def exchange(self, questions: Mapping[str, PreparedRequest]) -> dict[str, Any]:
        """The answers to `questions`, by key."""
        ...


@define(eq=False, repr=False)
class ServerRequester:
    """Asks the client of one call; made when its handler asks for the first time.

    Every question has a key that no other question of the call has: the handler gives it, or it is
    numbered. In the stateless mode answers are found by it when the handler runs again (ASK-13).

    Args:
        name: of the call; unique.
        signal: the call's.
    """

    name: str
    peer: Peer
    forms: Forms
    exchange: RequestStrategy
    signal: AbortSignal
    _keys: set[str] = field(factory=set, init=False)
    _numbered: int = field(default=0, init=False)

    async def ask(self, questions: Mapping[str, ServerRequest]) -> dict[str, Any]:
        """The answers to all of `questions`, by key (ASK-03).

        Raises:
            ClientCapabilityError: the client cannot be asked one of them; none was asked.
            AbortError: the call has been aborted.
            UsageError: a question is no proper one, or its key was used before.
            ServerRequestError: the client refused, or its answer cannot be used.
        """
        self.signal.raise_if_aborted()
        prepared: dict[str, PreparedRequest] = {}
        lacking: list[ClientCapabilityError] = []
        for key, question in questions.items():
            self._take_key(key)
            try:
                prepared[key] = question.prepare(self.peer, self.forms, f"{self.name}/{key}")
            except ClientCapabilityError as error:
                lacking.append(error)
        if len(lacking) == 1:
            raise lacking[0]
        if lacking:
            required = [error.required_capabilities for error in lacking]
            raise ClientCapabilityError(merge_capabilities(*required))
        return await self.exchange.exchange(prepared) if prepared else {}

    async def ask_one(self, question: ServerRequest, key: str | None) -> Any:
        """The answer to `question`; raises as `ask` does."""
        if key is None:
            self._numbered += 1
            key = str(self._numbered)
        return (await self.ask({key: question}))[key]

    def _take_key(self, key: str) -> None:
        if type(key) is not str or not key:
            raise UsageError(f"the key of a question is a non-empty string, not {key!r}")
        if key in self._keys:
            raise UsageError(f"there is a question {key!r} already: give each a key of its own")
        self._keys.add(key)
