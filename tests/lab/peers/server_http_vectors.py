"""The server's conversations over HTTP: reading them, and holding them with an ASGI application.

`spec/vectors/README.md` says what the lines mean.
"""

from __future__ import annotations

from typing import Any

import orjson
from attrs import define, field

from foundation_rt import Server, ServerOptions
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.settings import LoggingSection, ServerConfig
from tests.lab.apps.vector_app import SERVERS
from tests.lab.peers.conversations import compare, fill, octets, read
from tests.lab.peers.vectors import FOLDER
from tests.lab.servers.asgi import META, REVISION, Visit, open_session, visit

STOP_SECONDS = 10.0

DEFAULTS = {"method": "POST", "path": "/mcp", "scheme": "http"}
"""Of a request that does not say so."""


@define
class ServerHttpVector:
    """One conversation; the attributes from `name` on are its header's."""

    file: str
    id: str
    lines: list[tuple[int, dict[str, Any]]]
    name: str
    rules: list[str]
    server: str = "server"
    http: dict[str, Any] = field(factory=dict)
    session: str = ""

    def make_server(self) -> Server:
        """Return the server that it is held with."""
        http = {"no_auth": "api_keys" not in self.http, **self.http}
        http = {name: tuple(v) if isinstance(v, list) else v for name, v in http.items()}
        config = ServerConfig(http=HttpSection(**http), logging=LoggingSection(level="error"))
        return SERVERS[self.server](ServerOptions(config=config))


def load() -> list[ServerHttpVector]:
    """All conversations, in the order of files and lines."""
    return [ServerHttpVector(**each) for each in read(FOLDER / "http")]


async def hold(vector: ServerHttpVector) -> None:
    """Hold the conversation.

    Raises:
        AssertionError: the server does something else; a note names the line.
    """
    server = vector.make_server()
    app = server.asgi_app()
    await app.start()
    try:
        names: dict[str, Any] = {"$meta": META, "$revision": REVISION}
        if vector.session:
            names["$session"] = (await open_session(app, vector.session)).session_id
        for number, line in vector.lines:
            try:
                await _exchange(app, fill(line, names), names)
            except BaseException as error:
                error.add_note(f"{vector.file}.jsonl:{number}")
                raise
    finally:
        app.begin_stop()
        await app.stop(STOP_SECONDS)
        server.runtime.close_logs(1.0)


async def _exchange(app: Any, line: dict[str, Any], names: dict[str, Any]) -> None:
    """Send a request, compare its response, and keep what later lines name."""
    found = _send(app, line)
    expected = line["response"]
    if "open" in expected:
        await found.until(lambda: found.status is not None)
        found.leave()
    await found.finish()
    compare(found.status, expected["status"])
    headers = expected.get("headers", {})
    compare({name: found.headers.get(name) for name in headers}, headers)
    if "body" in expected:
        compare(found.body, octets(expected["body"]))
    text = found.body.decode()
    assert not [each for each in expected.get("holds", ()) if each not in text], text
    assert not [each for each in expected.get("lacks", ()) if each in text], text
    if "json" in expected:
        compare(_named(found.json, expected["json"]), expected["json"])
    for name, header in line.get("keep", {}).items():
        names[name] = found.headers[header]


def _send(app: Any, line: dict[str, Any]) -> Visit:
    headers, body = {}, line.get("body", "")
    if "ask" in line:
        method, params = line["ask"], {"_meta": META, **line.get("params", {})}
        headers = {"mcp-protocol-version": REVISION, "mcp-method": method}
        headers["mcp-name"] = params.get("name") or params.get("uri")
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    elif "json" in line:
        body = orjson.dumps(line["json"])
    data = body if isinstance(body, bytes) else octets(body)
    headers |= line.get("headers", {})
    method, path, scheme = (line.get(*each) for each in DEFAULTS.items())
    return visit(app, method, path, headers, data, scheme=scheme)


def _named(found: Any, expected: Any) -> Any:
    """Return a JSON value without the members of objects that the expected one does not name."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return {name: _named(found.get(name), each) for name, each in expected.items()}
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [_named(*pair) for pair in zip(found, expected, strict=True)]
    return found
