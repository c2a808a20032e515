"""An authorization server, reduced to its keys and its tokens."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from attrs import define, field
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from foundation_rt.base.clock import ManualClock

AUDIENCE = "https://mcp.example.com/mcp"
NOW = ManualClock().now().timestamp()

RSA = RSAKey.generate_key(2048, {"kid": "rsa"}, auto_kid=False)
OTHER_RSA = RSAKey.generate_key(2048, {"kid": "other"}, auto_kid=False)
EC = ECKey.generate_key("P-256", {"kid": "ec"}, auto_kid=False)
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"}, auto_kid=False)


@define(eq=False)
class Issuer:
    """Publishes its keys, and counts who asks for them.

    Attributes:
        documents: what it publishes, by path.
        statuses: other than 200 and 404, by path.
        asked: the paths, in order.
        forms: the bodies of requests to `/introspect`, with their Authorization.
        active: what is answered there, by token; any other is not active.
    """

    documents: dict[str, Any] = field(factory=dict)
    statuses: dict[str, int] = field(factory=dict)
    asked: list[str] = field(factory=list)
    forms: list[tuple[str | None, dict[str, str]]] = field(factory=list)
    active: dict[str, dict[str, Any]] = field(factory=dict)
    url: str = ""

    def publish(self, *keys: Any) -> None:
        self.documents["/keys"] = {
            "keys": [each if isinstance(each, dict) else each.as_dict(False) for each in keys]
        }

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(handler.path)
        document = self.documents.get(handler.path)
        if handler.command == "POST":
            body = handler.rfile.read(int(handler.headers["content-length"])).decode()
            form = dict(parse_qsl(body))
            self.forms.append((handler.headers["authorization"], form))
            document = document or {"active": False, **self.active.get(form["token"], {})}
        status = self.statuses.get(handler.path, 404 if document is None else 200)
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        handler.send_response(status)
        if status == 302:
            handler.send_header("Location", "/keys")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    """Run an issuer that answers on a port of this machine."""
    it = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            it.answer(self)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    it.url = f"http://127.0.0.1:{server.server_address[1]}"
    it.publish(RSA, EC, ED)
    it.documents["/.well-known/oauth-authorization-server"] = {
        "issuer": it.url,
        "jwks_uri": f"{it.url}/keys",
    }
    try:
        yield it
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def token(issuer: Issuer, key: Any = RSA, header: Any = None, **claims: Any) -> str:
    """Return a valid token, but for `claims`; None takes one away."""
    algorithm = {"RSA": "RS256", "EC": "ES256", "OKP": "Ed25519"}[key.key_type]
    right = {"iss": issuer.url, "aud": AUDIENCE, "sub": "alice", "exp": NOW + 60, "nbf": NOW}
    kept = {name: value for name, value in (right | claims).items() if value is not None}
    head = {"alg": algorithm, "kid": key.kid, **(header or {})}
    head = {name: value for name, value in head.items() if value is not None}
    return jwt.encode(head, kept, key, [head["alg"]], default_type=None)
