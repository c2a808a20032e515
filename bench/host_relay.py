"""The floor of the host: the same SDK in, a WebSocket of Starlette out, and nothing between.

python -m bench.host_relay PORT    # with LLM_BASE_URL
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import uvicorn
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

_client = AsyncOpenAI(api_key="none", base_url=os.environ["LLM_BASE_URL"], max_retries=0)


async def _relay(socket: WebSocket) -> None:
    await socket.accept()
    try:
        while True:
            frame = json.loads(await socket.receive_text())
            messages: Any = [{"role": "user", "content": frame["payload"]["text"]}]
            stream = await _client.chat.completions.create(
                model="fake",
                messages=messages,
                stream=True,
            )
            async for chunk in stream:
                text = chunk.choices[0].delta.content if chunk.choices else None
                if text:
                    payload = {"content": text}
                    await socket.send_text(json.dumps({"type": "text", "payload": payload}))
            await socket.send_text('{"type":"turn","payload":{"state":"finished"}}')
    except WebSocketDisconnect:
        return


if __name__ == "__main__":
    uvicorn.run(
        Starlette(routes=[WebSocketRoute("/ws", _relay)]),
        port=int(sys.argv[1]),
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        loop="uvloop",
        log_level="error",
    )
