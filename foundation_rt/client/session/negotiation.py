"""The handshake, performed: what `handshake` wants to ask is asked, until both sides are known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import MCPError
from .handshake import Handshake, HandshakeRequest
from .server_description import ServerDescription

log = logging.getLogger("foundation_rt.client")

SendHandshake = Callable[[HandshakeRequest], Awaitable[dict[str, Any]]]
"""Sends an opening; returns the result, or raises the `MCPError` that the server answered with."""


async def negotiate(
    handshake: Handshake, say: SendHandshake, probe_timeout: float
) -> ServerDescription:
    """What is known of the server, once both sides know what they speak (CLIENT-01, CLIENT-02).

    Args:
        probe_timeout: seconds after which a server that leaves the first question unanswered is
            asked `initialize` as well.

    Raises:
        MCPError: there is no common revision, or no way to find one.
    """
    outcome: HandshakeRequest | ServerDescription = handshake.first()
    while isinstance(outcome, HandshakeRequest):
        outcome = await _ask(handshake, say, outcome, probe_timeout)
    return outcome


async def _ask(
    handshake: Handshake, say: SendHandshake, opening: HandshakeRequest, probe_timeout: float
) -> HandshakeRequest | ServerDescription:
    """Ask `opening`; return what came of it, or what to ask next."""
    asked = {asyncio.ensure_future(_say(say, opening)): opening}
    try:
        if opening.method == "server/discover" and handshake.may_fall_back:
            done, _ = await asyncio.wait(asked, timeout=probe_timeout)
            if not done:
                # Of the older kind, or only slow to start: the first good answer decides.
                other = handshake.initialize()
                asked[asyncio.ensure_future(_say(say, other))] = other
        pending = {*asked}
        while True:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            # A server that was slow to start has answered both: the newer kind counts.
            task = next(each for each in asked if each in done)
            pending |= done - {task}
            try:
                result = task.result()
            except MCPError as error:
                if not pending:
                    return handshake.refused(asked[task], error)
            else:
                outcome = handshake.answered(asked[task], result)
                if isinstance(outcome, ServerDescription) or not pending:
                    return outcome
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _say(say: SendHandshake, opening: HandshakeRequest) -> dict[str, Any]:
    result = await say(opening)
    spoken = result.get("protocolVersion")
    if opening.method == "initialize" and spoken != opening.revision.name:
        said = spoken if isinstance(spoken, str) else None
        fields = {"asked": opening.revision.name, "spoken": said}
        text = "the server was asked for revision %s, and speaks %.100r"
        log.warning(text, opening.revision.name, spoken, extra={"fields": fields})
    return result
