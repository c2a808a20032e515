"""What the fuzzer feeds with bytes, and what has to hold of each.

A target is a function of bytes that returns, or raises: anything that it raises is a fault. The
errors that a reader promises are caught here, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from io import BytesIO
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import orjson

from foundation_rt.base.config.loading import load_config
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.http_client.connection import HttpConnection
from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.base.logs.redaction import Redactor, line_may_hold_secret, mask_secrets
from foundation_rt.base.mcp_json.editing import remove_member, set_member
from foundation_rt.base.mcp_json.files import ServerFile
from foundation_rt.base.mcp_json.json_text import parse_object
from foundation_rt.base.mcp_json.problems import ServerFileError
from foundation_rt.base.skill_format import read_front_matter
from foundation_rt.errors import ConfigError, RegistrationError
from foundation_rt.features.openapi.api import read_api
from foundation_rt.features.openapi.documents import OpenApiError
from foundation_rt.protocol.framing import LineReader, LineTooLong
from foundation_rt.protocol.jsonrpc import Batch, Malformed, Notification, Request, parse
from tests.lab.values.hostile_bytes import assert_survived, feed_in_pieces, one_rig
from tests.lab.waiting import settle

LONGEST_LINE = 64
STEPS = 20_000
SECRET = "hush-7f3a9c"
FILE = Path("servers.json")

Target = Callable[[bytes], None]


def pieces(data: bytes) -> Iterator[bytes]:
    """Yield `data` in pieces, whose sizes its first bytes give."""
    sizes = [1 + size % 32 for size in data[:4]] or [1]
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        turn += 1
        yield data[at : at + size]
        at += size


def framing(data: bytes) -> None:
    """Cut a stream into lines: however it comes, they are the same, and what is kept is bounded."""
    whole = LineReader(LONGEST_LINE)
    expected = [*whole.feed(data), *whole.end()]
    reader, found = LineReader(LONGEST_LINE), []
    for piece in pieces(data):
        found += reader.feed(piece)
        assert reader.pending_bytes <= LONGEST_LINE + 1
    assert [*found, *reader.end()] == expected
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    assert expected == [
        line if len(line) <= LONGEST_LINE else LineTooLong(LONGEST_LINE)
        for line in lines
        if len(line) > LONGEST_LINE or (line and not line.isspace())
    ]


def json_rpc(data: bytes) -> None:
    """Read a line: it is malformed, or Python's own parser reads it alike."""
    message = parse(data)
    if isinstance(message, Request | Notification):
        read = json.loads(data.decode())
        assert read["jsonrpc"] == "2.0"
        assert read["method"] == message.method
        assert isinstance(message, Request) == ("id" in read)
        if isinstance(message, Request):
            assert read["id"] == message.id
            assert type(read["id"]) is type(message.id)
    elif isinstance(message, Batch):
        assert isinstance(json.loads(data.decode()), list)
    elif isinstance(message, Malformed) and message.reason == "parse_error":
        with suppress(RecursionError, UnicodeDecodeError, json.JSONDecodeError):
            # What only Python takes: numbers without bound, NaN, and lone surrogates.
            read = json.loads(
                data.decode(), parse_constant=_refused, parse_int=_small, parse_float=_finite
            )
            orjson.dumps(read)
            raise AssertionError(f"refused, although it is JSON: {data!r}")


def _refused(word: str) -> Any:
    raise json.JSONDecodeError("no JSON", word, 0)


def _small(digits: str) -> int:
    if len(digits) > 18:
        raise json.JSONDecodeError("no integer of 64 bits", digits, 0)
    return int(digits)


def _finite(text: str) -> float:
    if float(text) in (inf, -inf):
        raise json.JSONDecodeError("no double", text, 0)
    return float(text)


def dispatch(data: bytes) -> None:
    """Feed a whole server: it answers by the rules, and lives on."""
    made = one_rig()
    made.sink.clear()
    peer = made.connect(handshake=data[:1] < b"\x80")
    feed_in_pieces(peer, data, [1 + size for size in data[:3]])
    assert_survived(made, peer, data)


class FakeTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = BytesIO()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.write(data)

    def writelines(self, several: Any) -> None:
        self.written.writelines(several)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default


@cache
def loop() -> asyncio.AbstractEventLoop:
    """Return a loop whose errors are raised."""
    made = asyncio.new_event_loop()
    made.set_exception_handler(lambda _, context: ERRORS.append(context))
    return made


ERRORS: list[dict[str, Any]] = []


def http_response(data: bytes) -> None:
    """Read a response: however it comes, it is read alike, and nothing raises."""

    async def read(parts: list[bytes]) -> tuple[int, Any, bytes, bool]:
        connection = HttpConnection()
        transport = FakeTransport()
        connection.connection_made(transport)
        connection.send(b"")
        body = b""
        for part in parts:
            if transport.closed:
                break
            connection.data_received(part)
            body += b"".join(connection.take())
        failed = transport.closed and not connection.is_complete
        connection.eof_received()
        connection.connection_lost(None)
        headers = None if failed else list(connection.headers)
        return (0 if failed else connection.status), headers, b"" if failed else body, failed

    once = loop().run_until_complete(read([data]))
    assert loop().run_until_complete(read(list(pieces(data)))) == once


@cache
def _protocol() -> Callable[[], Any]:
    import uvicorn
    from uvicorn.server import ServerState

    from foundation_rt.http.uvicorn_protocol import BoundedProtocol, ConnectionLimits, UnreadBytes

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            more = event["more_body"]
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(app, ws="none", log_config=None)
    config.load()
    return partial(
        BoundedProtocol,
        ConnectionLimits(60_000, 10, 60_000),
        UnreadBytes(1 << 20, monotonic),
        config=config,
        server_state=ServerState(),
        app_state={},
    )


def http_request(data: bytes) -> None:
    """Feed the server's side of HTTP: it answers in HTTP, once a request, and leaves no task."""

    async def serve() -> bytes:
        connection, transport = _protocol()(), FakeTransport()
        connection.connection_made(transport)
        for part in pieces(data):
            if transport.closed:
                break
            connection.data_received(part)
            await asyncio.sleep(0)
        await settle(5)
        connection.connection_lost(None)
        for _ in range(20):
            if not (tasks := connection.tasks):
                break
            await asyncio.sleep(0)
        assert not tasks
        return transport.written.getvalue()

    ERRORS.clear()
    written = loop().run_until_complete(serve())
    assert not ERRORS, ERRORS
    assert not written or written.startswith(b"HTTP/1.1 ")
    assert written.count(b"HTTP/1.1 ") <= data.count(b"\n") + 1


VALUES = (None, {}, {"a": 1}, {"a": "b", "c": [1, 2.5]}, [], "2020-01-01", 0.1, {"a": {"a": {}}})


def schema(data: bytes) -> None:
    """Compile a schema: it is refused, or checks any value."""
    read = _json(data)
    if not isinstance(read, dict):
        return
    for given in (read, {"type": "object", "properties": {"a": read}}):
        try:
            compiled = compile_schema(given, any_root=True, linear=True, max_steps=STEPS)
        except RegistrationError:
            continue
        for value in VALUES:
            compiled.validate(value)


def configuration(data: bytes) -> None:
    """Load a file of settings: it is a configuration, or an error with its problems."""
    file = _file("settings.json" if data[:1] == b"{" else "settings.toml", data)
    try:
        assert isinstance(load_config(file=file), ServerConfig)
    except ConfigError as error:
        assert error.problems
        str(error).encode()


def server_file(data: bytes) -> None:
    """Read `mcp.json`: it gives entries, or an error; an edit changes one member and no other."""
    text = data.decode(errors="replace")
    try:
        content = parse_object(FILE, text)
        listed = ServerFile.of(FILE, content)
    except ServerFileError:
        return
    for name in listed.entries:
        with suppress(ServerFileError):
            listed.entry(name, {"A": "a"})
    if not isinstance(content.get("mcpServers", {}), dict):
        return
    edited = set_member(text, "mcpServers", "added", {"command": "a"})
    expected = {name: each for name, each in content.items() if name != "mcpServers"}
    members = {**content.get("mcpServers", {}), "added": {"command": "a"}}
    assert parse_object(FILE, edited) == {**expected, "mcpServers": members}
    del members["added"]
    removed = parse_object(FILE, remove_member(edited, "mcpServers", "added"))
    assert removed == {**expected, "mcpServers": members}


def openapi(data: bytes) -> None:
    """Read a document of an API: it gives tools, or is refused."""
    with suppress(OpenApiError, RegistrationError):
        read_api(data, {"base_url": "http://api.example"})


def front_matter(data: bytes) -> None:
    """Read the front matter of a skill: it is JSON with a name, or is refused."""
    with suppress(ValueError):
        found = read_front_matter(b"---\n" + data if data[:3] != b"---" else data)
        assert found["name"]
        json.dumps(found, allow_nan=False)


_redactor = Redactor()


def redaction(data: bytes) -> None:
    """Redact: nothing under a secret name is shown, and the quick look overlooks nothing."""
    text = data.decode(errors="replace")
    assert SECRET not in mask_secrets(f"{text}\npassword={SECRET}", _redactor.is_secret)
    read = _json(data)
    planted = {"token": SECRET, "beside": read}
    assert SECRET not in repr(_redactor.redact(planted))
    line = orjson.dumps(_redactor.for_log(planted))
    assert SECRET.encode() not in line
    shown = orjson.dumps(read)
    if shown.isascii() and b"\\" not in shown and not line_may_hold_secret(shown):
        for each in _texts(read):
            assert _redactor.mask(each) == each


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


@cache
def _folder() -> Path:
    import tempfile

    return Path(tempfile.mkdtemp(prefix="foundation-rt-fuzz-"))


def _file(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


TARGETS: dict[str, Target] = {
    each.__name__: each
    for each in (
        framing,
        json_rpc,
        dispatch,
        http_request,
        http_response,
        schema,
        configuration,
        server_file,
        openapi,
        front_matter,
        redaction,
    )
}
