"""The server that the vectors talk to; spec/vectors/README.md defines its tools.

`foundation-rt serve` serves this file; `tests.support.vectors` embeds it, and scripts the two tools
that take time instead of running them.
"""

from __future__ import annotations

import threading
from typing import Any

from foundation_rt import ErrorCode, Server, ServerOptions, ToolContext, ToolDefinition, ToolError

NAME, VERSION = "vectors", "1.0.0"

_SLEEP_SCHEMA = {
    "type": "object",
    "properties": {
        "ms": {"type": "integer", "minimum": 0},
        "heed": {"type": "boolean"},
        "fail": {"type": "boolean"},
    },
    "required": ["ms"],
    "additionalProperties": False,
}


def make_server(options: ServerOptions | None = None) -> Server:
    """A new server with the tools of the vectors."""
    server = Server(NAME, version=VERSION, options=options)
    _register(server, "crash", "Fail in a way nobody foresaw.", {}, _crash)
    _register(
        server,
        "echo",
        "Send a message back.",
        {"properties": {"message": {"type": "string"}}, "required": ["message"]},
        lambda arguments, context: {"message": arguments["message"]},
    )
    _register(
        server,
        "fail",
        "Fail with the error asked for.",
        {
            "properties": {
                "code": {"enum": [code.value for code in ErrorCode]},
                "message": {"type": "string"},
                "details": {"type": "object"},
            },
            "required": ["code", "message"],
        },
        _fail,
    )
    _register(
        server,
        "mirror",
        "Send all arguments back.",
        {"additionalProperties": True},
        lambda arguments, context: arguments,
    )
    _register(
        server,
        "repeat",
        "Write a text several times.",
        {
            "properties": {
                "text": {"type": "string"},
                "times": {"type": "integer", "minimum": 0, "maximum": 100000},
            },
            "required": ["text", "times"],
        },
        lambda arguments, context: arguments["text"] * int(arguments["times"]),
    )
    _register(server, "unspeakable", "Return what JSON cannot say.", {}, lambda *_: object())
    server.register(ToolDefinition("sleep", "Take some time.", _SLEEP_SCHEMA), sleep)
    server.register(
        ToolDefinition("nap", "Take some time, of which there is little.", _SLEEP_SCHEMA, "2.0.0"),
        sleep,
        timeout_ms=50,
    )
    return server


def _register(
    server: Server, name: str, description: str, schema: dict[str, Any], handler: Any
) -> None:
    whole = {"type": "object", "additionalProperties": False, **schema}
    server.register(ToolDefinition(name, description, whole), handler, inline=True)


def _crash(arguments: dict[str, Any], context: ToolContext) -> None:
    raise RuntimeError("boom")


def _fail(arguments: dict[str, Any], context: ToolContext) -> None:
    raise ToolError(arguments["code"], arguments["message"], arguments.get("details"))


def sleep(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Return after so many ms, or end as soon as the signal fires if it is to be heeded."""
    woken = threading.Event()
    signal = context.abort_signal
    heeded = arguments.get("heed", True)
    if heeded:
        signal.add_callback(woken.set)
    woken.wait(arguments["ms"] / 1000)
    if heeded:
        signal.raise_if_aborted()
    return end_of_sleep(arguments)


def end_of_sleep(arguments: dict[str, Any]) -> dict[str, Any]:
    """What a sleeper returns, or raises, once its time is over."""
    if arguments.get("fail", False):
        raise ToolError(ErrorCode.UNAUTHORIZED, "Slept badly.")
    return {"sleptMs": arguments["ms"]}


server = make_server()
