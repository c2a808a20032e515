"""Tokens of the identity provider for handlers, where the server is its own authorization server.

Whoever has them says how they are found (`http/authorization_server/`); nothing else knows of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from ..kernel.engine.executor import Engine
    from ..protocol.principal import Principal


async def _none(principal: Principal) -> str | None:
    return None


@define(eq=False, repr=False)
class ProviderTokens:
    """Finds the token of a principal at the provider.

    Attributes:
        find: returns it; None if there is none.
    """

    _engine: Engine
    find: Callable[[Principal], Awaitable[str | None]] = field(default=_none, init=False)
