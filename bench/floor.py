"""The floors: what the work costs when nothing but the work is done.

As a program it is the floor over stdio: a bare blocking loop with orjson that checks nothing. Its
function `straight_line` is the floor in process: the mandatory work of one `tools/call` (parse,
shape, size, two ids, validation, result, reply and record) in one piece.
"""

import os

import orjson


def serve() -> None:
    """Answer every line with the same result, checking nothing."""
    pending = b""
    while data := os.read(0, 65_536):
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            message = orjson.loads(line)
            reply = {
                "jsonrpc": "2.0",
                "id": message.get("id"),
                "result": {"content": [{"type": "text", "text": "null"}], "isError": False},
            }
            os.write(1, orjson.dumps(reply) + b"\n")


def make_straight_line():
    """Return the in-process floor, with a validator made as the runtime makes its own."""
    import time
    import uuid
    from datetime import UTC, datetime

    import fastjsonschema

    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    validate = fastjsonschema.compile(schema, use_default=False)

    def straight_line(line: bytes) -> tuple[bytes, bytes]:
        message = orjson.loads(line)
        if type(message) is not dict or message.get("jsonrpc") != "2.0":
            raise ValueError
        if type(message.get("method")) is not str or type(message.get("id")) not in (int, str):
            raise ValueError
        params = message["params"]
        if type(params) is not dict or type(params["name"]) is not str:
            raise ValueError
        arguments = params.get("arguments", {})
        if type(arguments) is not dict:
            raise ValueError
        payload_bytes = len(orjson.dumps(arguments))
        if payload_bytes > 1_048_576:
            raise ValueError
        run_id, correlation_id = str(uuid.uuid4()), str(uuid.uuid4())
        started = time.perf_counter()
        validate(arguments)
        text = orjson.dumps(None).decode()
        duration_ms = (time.perf_counter() - started) * 1000
        reply = orjson.dumps(
            {
                "jsonrpc": "2.0",
                "id": message["id"],
                "result": {"content": [{"type": "text", "text": text}], "isError": False},
            }
        )
        record = orjson.dumps(
            {
                "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "level": "info",
                "message": "tool call completed",
                "runId": run_id,
                "correlationId": correlation_id,
                "toolName": params["name"],
                "durationMs": duration_ms,
                "outcome": "success",
                "payloadBytes": payload_bytes,
            }
        )
        return reply, record

    return straight_line


if __name__ == "__main__":
    serve()
