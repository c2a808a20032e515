"""Forwarders for tests: a scripted one, and one that hands on to another server of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from attrs import define, field

from foundation_rt import ForwardedError, ForwardedRequest, ForwardTarget, ToolContext
from foundation_rt.client import Client, MCPError

CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}

Answer = Callable[[ForwardedRequest, ToolContext], Any]


@define(eq=False)
class ScriptedForwarder:
    """Answers with what a test says.

    Attributes:
        answer: takes a request and its context; returns the result, or an awaitable of it.
        lists: the definitions, by kind.
        targets: the server behind each name.
        requests: those that it was given.
        ended: the requests whose subscriptions have ended.
    """

    answer: Answer = field(default=lambda request, context: {})
    lists: dict[str, Any] = field(factory=dict)
    targets: dict[str, ForwardTarget] = field(factory=dict)
    capabilities: Mapping[str, Any] = field(factory=lambda: CAPABILITIES)
    instructions: str | None = None
    requests: list[ForwardedRequest] = field(factory=list)
    ended: list[ForwardedRequest] = field(factory=list)

    def subscription_ended(self, request: ForwardedRequest) -> None:
        self.ended.append(request)

    def target(self, request: ForwardedRequest) -> ForwardTarget | None:
        return self.targets.get(request.name)

    def list_entries(self, kind: str, context: ToolContext) -> Any:
        return self.lists.get(kind, ())

    async def forward(self, request: ForwardedRequest, context: ToolContext) -> Any:
        self.requests.append(request)
        answer = self.answer(request, context)
        return await answer if isinstance(answer, Awaitable) else answer


_METHODS = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}


@define(eq=False)
class ClientForwarder:
    """Hands on to the server of a client of ours.

    Attributes:
        cancelled: the names of the requests that were cancelled while the server had them.
    """

    client: Client
    capabilities: Mapping[str, Any] = field(factory=lambda: CAPABILITIES)
    instructions: str | None = None
    cancelled: list[str] = field(factory=list)

    def target(self, request: ForwardedRequest) -> ForwardTarget | None:
        return ForwardTarget("behind", 20_000)

    def subscription_ended(self, request: ForwardedRequest) -> None: ...

    async def list_entries(self, kind: str, context: ToolContext) -> Any:
        return await self.client.request_all(_METHODS[kind])

    async def forward(self, request: ForwardedRequest, context: ToolContext) -> Any:
        def progress(done: float, total: float | None, message: str | None) -> None:
            context.report_progress(done, total, message)

        asked = asyncio.ensure_future(
            self.client.request(request.method, own_params(request.params), on_progress=progress)
        )
        remove = context.abort_signal.add_callback(asked.cancel)
        try:
            return await asked
        except asyncio.CancelledError:
            self.cancelled.append(request.name)
            raise
        except MCPError as error:
            if error.wire is None:
                raise
            wire = error.wire
            raise ForwardedError(wire["code"], wire["message"], wire.get("data")) from None
        finally:
            remove()


def own_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return `params` without what a client says of itself in `_meta`, and its progress token."""
    kept = dict(params)
    meta = {
        name: value
        for name, value in kept.pop("_meta", {}).items()
        if not name.startswith("io.modelcontextprotocol/") and name != "progressToken"
    }
    return {**kept, "_meta": meta} if meta else kept
