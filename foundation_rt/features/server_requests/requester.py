"""The server requests of one call, however they reach the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ...base.shown import Shown
from ...errors import UsageError
from .errors import ClientCapabilityError, merge_capabilities

if TYPE_CHECKING:
    from ...base.abort import AbortSignal
    from ...protocol.peer import Peer
    from .forms import Forms
    from .requests import PreparedRequest, ServerRequest


class RequestStrategy(Protocol):
    """A way for requests to reach the client, and for its results to come back."""

    async def exchange(self, requests: Mapping[str, PreparedRequest]) -> dict[str, Any]:
        """Return the values of the results of `requests`, by key."""
        ...


@define(eq=False, repr=False)
class ServerRequester(Shown):
    """Sends requests to the client of one call; made for the handler's first request.

    Every request has a key that no other request of the call has. The handler gives it, or the
    request is numbered. In the stateless mode the key identifies the answer when the handler runs
    again (ASK-13).

    Args:
        name: identifies the call.
        signal: the call's.
    """

    name: str
    peer: Peer
    forms: Forms
    strategy: RequestStrategy
    signal: AbortSignal
    _keys: set[str] = field(factory=set, init=False)
    _numbered: int = field(default=0, init=False)

    async def ask(self, requests: Mapping[str, ServerRequest]) -> dict[str, Any]:
        """Send all of `requests`; return the values of their results, by key (ASK-03).

        Raises:
            ClientCapabilityError: the client lacks a capability for one of them; none was sent.
            AbortError: the call has been aborted.
            UsageError: a request is invalid, or its key was used before.
            ServerRequestError: the client sent an error, or an invalid result.
        """
        self.signal.raise_if_aborted()
        prepared: dict[str, PreparedRequest] = {}
        missing: list[ClientCapabilityError] = []
        for key, request in requests.items():
            self._take_key(key)
            try:
                prepared[key] = request.prepare(self.peer, self.forms, f"{self.name}/{key}")
            except ClientCapabilityError as error:
                missing.append(error)
        if len(missing) == 1:
            raise missing[0]
        if missing:
            required = [error.required_capabilities for error in missing]
            raise ClientCapabilityError(merge_capabilities(*required))
        return await self.strategy.exchange(prepared) if prepared else {}

    async def ask_one(self, request: ServerRequest, key: str | None) -> Any:
        """Send `request`; return the value of its result. Raises as `ask`."""
        if key is None:
            self._numbered += 1
            key = str(self._numbered)
        return (await self.ask({key: request}))[key]

    def _take_key(self, key: str) -> None:
        if type(key) is not str or not key:
            raise UsageError(f"the key of a request is a non-empty string, not {key!r}")
        if key in self._keys:
            raise UsageError(f"there is a request {key!r} already: give each a key of its own")
        self._keys.add(key)
