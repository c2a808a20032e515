"""The models that people may choose from: those that the provider lists (HOST-61)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field

if TYPE_CHECKING:
    from ..llm.service import LLMService

log = logging.getLogger("foundation_rt.host.web")

MAX_MODELS = 500
_MAX_NAME = 256
_TIMEOUT_S = 10.0
_KEPT_S, _FAILURE_KEPT_S = 600.0, 30.0


@define(eq=False)
class ModelList:
    """The list of one provider. It is asked for when somebody wants it, and kept for 10 minutes."""

    _llm: LLMService
    _names: tuple[str, ...] = field(default=(), init=False)
    _good_until: float = field(default=0.0, init=False)
    _asking: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    @property
    def is_known(self) -> bool:
        """Return whether `names` returns at once."""
        return asyncio.get_running_loop().time() < self._good_until

    async def names(self) -> tuple[str, ...]:
        """Return the names, sorted, at most 500; () if the provider does not list them."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if now >= self._good_until:
                kept = _KEPT_S
                try:
                    self._names = await self._ask()
                except Exception as error:
                    log.warning(
                        "the models cannot be listed: %s", str(error) or type(error).__name__
                    )
                    kept = _FAILURE_KEPT_S
                self._good_until = asyncio.get_running_loop().time() + kept
            return self._names

    async def _ask(self) -> tuple[str, ...]:
        async with asyncio.timeout(_TIMEOUT_S):
            listed: Sequence[Any] = await self._llm.list_models()  # None where an entry has no id
        names = {each for each in listed if isinstance(each, str) and 0 < len(each) <= _MAX_NAME}
        return tuple(sorted(each for each in names if each.isprintable())[:MAX_MODELS])
