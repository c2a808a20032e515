"""The rules as a provider (LLM-80)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from importlib import import_module

from attrs import define, field

from ..failures import AskedModel
from ..provider import CallPiece, EndPiece, ModelRequest, Piece, TextPiece
from ..service import LLMServiceError


@define(eq=False)
class RulesProvider:
    """Answers by rules: no key, no network, and equal chats give equal answers."""

    name: str = field(default="rules", init=False)
    takes_pictures: bool = field(default=False, init=False)
    hosts: Sequence[str] = field(default=(), init=False)
    notes: Sequence[str] = field(default=(), init=False)
    max_tools: int | None = field(default=None, init=False)

    async def connect(self) -> None:
        """Import the rules in a thread, as the SDK of a vendor is (LLM-03)."""
        await asyncio.to_thread(import_module, ".conversation", __package__)

    async def list_models(self) -> Sequence[str]:
        """Return the only one, which has no name."""
        return [""]

    async def stream(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Answer at once."""
        from .conversation import Call, answer

        found = answer(request.history, request.tools)
        if isinstance(found, Call):
            yield CallPiece(found.tool.name, found.arguments)
        else:
            yield TextPiece(found)
        yield EndPiece()

    def asked(self, model: str) -> AskedModel:
        """Return the rules as people know them."""
        return AskedModel(provider=self.name, model=model)

    def failure_of(self, error: Exception, model: str) -> LLMServiceError | None:
        """Return None: the rules do not fail."""
        return None

    def set_api_key(self, api_key: str) -> None:
        """Ignore the key: the rules need none."""

    async def close(self) -> None:
        """Do nothing."""
