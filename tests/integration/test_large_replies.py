"""Large replies at once, over HTTP: others have their turn between two of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt import Server
from foundation_rt.client import connect
from foundation_rt.http.serve import make_serving
from foundation_rt.kernel.engine.coroutines import LARGE_REPLY_BYTES
from foundation_rt.kernel.engine.executor import Engine

CALLS = 8


@pytest.mark.rule("RES-24")
@pytest.mark.parametrize(("size", "shares_turn"), [(LARGE_REPLY_BYTES, False), (10, True)])
async def test_large_replies_leave_turns_to_others(
    size: int, shares_turn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, replied = 0, []
    finish, ready = Engine.finish, asyncio.Barrier(CALLS)

    def note(self: Engine, *given: Any) -> None:
        finish(self, *given)
        replied.append(turns)

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(replied) < CALLS:
            asyncio.get_running_loop().call_soon(turn)

    server = Server("s", config={"http": {"port": 0, "no_auth": True}})

    @server.tool
    async def text() -> str:
        await ready.wait()
        return "x" * size

    serving = make_serving(server.runtime)
    task = asyncio.create_task(serving.run())
    monkeypatch.setattr(Engine, "finish", note)
    try:
        async with connect(serving.url) as client:
            turn()
            calls = [client.call("text") for _ in range(CALLS)]
            for result in await asyncio.gather(*calls):
                assert len(result.text) == size
    finally:
        serving.stop()
        await task
        server.runtime.close_logs(1.0)
    assert (len(set(replied)) < CALLS) is shares_turn
