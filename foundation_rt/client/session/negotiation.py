"""Perform the handshake: send its requests until a revision is agreed on."""

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
"""Sends a request of the handshake; returns its result, or raises the server's `MCPError`."""


async def negotiate(
    handshake: Handshake, say: SendHandshake, probe_timeout: float
) -> ServerDescription:
    """Agree on a revision; return the description of the server (CLIENT-01, CLIENT-02).

    Args:
        handshake: decides which request is next.
        say: sends a request.
        probe_timeout: seconds after which a server that does not answer `server/discover` gets
            `initialize` as well.

    Raises:
        MCPError: there is no common revision, or it cannot be found.
    """
    outcome: HandshakeRequest | ServerDescription = handshake.first()
    while isinstance(outcome, HandshakeRequest):
        outcome = await _ask(handshake, say, outcome, probe_timeout)
    return outcome


async def _ask(
    handshake: Handshake, say: SendHandshake, opening: HandshakeRequest, probe_timeout: float
) -> HandshakeRequest | ServerDescription:
    """Send `opening`; return the description of the server, or the next request."""
    asked = {asyncio.ensure_future(_send_handshake(say, opening)): opening}
    try:
        if opening.method == "server/discover" and handshake.may_fall_back:
            done, _ = await asyncio.wait(asked, timeout=probe_timeout)
            if not done:
                # The server is an older one, or slow to start: the first good response decides.
                other = handshake.initialize()
                asked[asyncio.ensure_future(_send_handshake(say, other))] = other
        pending = {*asked}
        while True:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            # A server that was slow to start has answered both: `server/discover` counts.
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


async def _send_handshake(say: SendHandshake, opening: HandshakeRequest) -> dict[str, Any]:
    result = await say(opening)
    spoken = result.get("protocolVersion")
    if opening.method == "initialize" and spoken != opening.revision.name:
        said = spoken if isinstance(spoken, str) else None
        fields = {"asked": opening.revision.name, "spoken": said}
        text = "the server was asked for revision %s, and speaks %.100r"
        log.warning(text, opening.revision.name, spoken, extra={"fields": fields})
    return result
