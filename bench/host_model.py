"""A fake of OpenAI's wire that streams as fast as it can, for the bench of the host.

    python -m bench.host_model PORT

A message `pieces=N` is answered with N pieces of text.
"""

from __future__ import annotations

import asyncio
import re
import sys

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"fake","choices":'
    b'[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
)
_LAST = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"fake","choices":'
    b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
_PIECES = re.compile(rb"pieces=(\d+)")
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    event = _chunk(_EVENT)
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head)
            body = await reader.readexactly(int(found[1]) if found else 0)
            pieces = int(_PIECES.findall(body)[-1])
            writer.write(_HEAD)
            for _ in range(pieces):
                writer.write(event)  # each of its own, as tokens come
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(_chunk(_LAST) + b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _main(port: int) -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
