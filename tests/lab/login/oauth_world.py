"""A server that wants tokens, and its authorization server, on ports of this machine.

What a test sets decides how strict they are, and what peculiarities they have; what they were asked
is kept. Refresh tokens rotate, and one that is used twice ends the login, as RFC 9700 wants.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

from attrs import define, field
from joserfc import jws, jwt
from joserfc.jwk import ECKey

from foundation_rt.client.auth.descriptions import LoginRequest
from foundation_rt.client.auth.grants import challenge_of


@define(eq=False)
class Asked:
    """One request.

    Attributes:
        form: the parameters of its body, or of its query.
    """

    method: str
    path: str
    headers: dict[str, str]
    form: dict[str, str]
    body: bytes


@define(eq=False)
class World:
    """The server at `url`, and the authorization server at `issuer`.

    Attributes:
        asked: all requests of the authorization server, in order.
        calls: the headers of all requests of the server.
        resource: members of the resource metadata; None: there is none.
        server: members of the authorization server's metadata; None: there is none.
        challenge: parameters of the challenge, besides `resource_metadata`.
        scopes_needed: by the method of JSON-RPC.
        granted: the scopes of every token, whatever is asked for; None: as it is asked for.
        token_lifetime: seconds.
        callback: changes the parameters with which the browser comes back.
        on_token: answers requests for tokens instead.
        answers: what a path of the authorization server answers instead: status, body.
        nonces: that proofs need, at the authorization server and at the server; with them, tokens
            are bound to a key (DPoP).
        is_content: whether the right nonce is enough.
        proofs: the claims of all proofs, with the `key` that signed them.
    """

    url: str = ""
    issuer: str = ""
    asked: list[Asked] = field(factory=list)
    calls: list[dict[str, str]] = field(factory=list)
    resource: dict[str, Any] | None = field(factory=dict)
    server: dict[str, Any] | None = field(factory=dict)
    challenge: dict[str, str] = field(factory=dict)
    scopes_needed: dict[str, str] = field(factory=dict)
    granted: str | None = None
    token_lifetime: int | None = 3600
    callback: dict[str, str | None] = field(factory=dict)
    answers: dict[str, tuple[int, bytes]] = field(factory=dict)
    on_token: Callable[[dict[str, str]], tuple[int, dict[str, Any]]] | None = None
    is_revoked: bool = False
    nonces: tuple[str, str] | None = None
    is_content: bool = True
    proofs: list[dict[str, Any]] = field(factory=list)
    valid: dict[str, str] = field(factory=dict)  # the scopes of access tokens
    refreshable: dict[str, str] = field(factory=dict)  # the scopes of refresh tokens
    used: set[str] = field(factory=set)
    challenges: dict[str, tuple[str, str]] = field(factory=dict)  # by code: PKCE, scopes
    numbers: Iterator[int] = field(factory=lambda: count(1))
    lock: threading.Lock = field(factory=threading.Lock)

    def paths(self, path: str) -> list[Asked]:
        """Return the requests of one path."""
        return [each for each in self.asked if each.path == path]

    # -- the authorization server

    def metadata(self) -> dict[str, Any] | None:
        if self.server is None:
            return None
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "device_authorization_endpoint": f"{self.issuer}/device",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
            **self.server,
        }
        return {name: value for name, value in found.items() if value is not None}

    def authorize(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        code = f"code-{next(self.numbers)}-of-this-login"
        self.challenges[code] = (asked.form["code_challenge"], asked.form.get("scope", ""))
        back: dict[str, str | None] = {
            "code": code,
            "state": asked.form["state"],
            "iss": self.issuer,
            **self.callback,
        }
        query = urlencode({name: value for name, value in back.items() if value is not None})
        return 302, {"Location": f"{asked.form['redirect_uri']}?{query}"}, b""

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        kind = form.get("grant_type")
        if kind == "refresh_token":
            old = form["refresh_token"]
            if old in self.used:  # somebody has a copy: nobody may use what came of it
                self.refreshable.clear()
                self.valid.clear()
                return 400, {"error": "invalid_grant", "error_description": f"reused {old}"}
            if old not in self.refreshable:
                return 400, {"error": "invalid_grant"}
            self.used.add(old)
            scope = self.refreshable.pop(old)
        elif kind == "authorization_code":
            challenge, scope = self.challenges.pop(form["code"], ("", ""))
            if challenge_of(form.get("code_verifier", "")) != challenge:
                return 400, {"error": "invalid_grant", "error_description": form["code"]}
        else:
            scope = form.get("scope", "")
        number = next(self.numbers)
        scope = scope if self.granted is None else self.granted
        answer: dict[str, Any] = {
            "access_token": f"access-token-{number}",
            "token_type": "Bearer",
            "refresh_token": f"refresh-token-{number}",
            "scope": scope,
        }
        if self.token_lifetime is not None:
            answer["expires_in"] = self.token_lifetime
        self.valid[answer["access_token"]] = scope
        self.refreshable[answer["refresh_token"]] = scope
        return 200, answer

    def answer_issuer(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        with self.lock:
            self.asked.append(asked)
            if asked.path in self.answers:
                status, body = self.answers[asked.path]
                return status, {}, body
            match asked.path:
                case "/.well-known/oauth-authorization-server" if self.metadata() is not None:
                    return 200, {}, json.dumps(self.metadata()).encode()
                case "/authorize":
                    return self.authorize(asked)
                case "/register":
                    named = {"client_id": f"client-{next(self.numbers)}"}
                    return 201, {}, json.dumps({**json.loads(asked.body), **named}).encode()
                case "/token":
                    named = {} if self.nonces is None else {"DPoP-Nonce": self.nonces[0]}
                    if self.lacks_nonce(asked, 0):
                        return 400, named, b'{"error": "use_dpop_nonce"}'
                    status, answer = (self.on_token or self.token)(asked.form)
                    if self.nonces is not None:
                        answer["token_type"] = "DPoP"
                    return status, named, json.dumps(answer).encode()
                case "/revoke":
                    self.is_revoked = True
                    return 200, {}, b""
                case "/device":
                    answer = {
                        "device_code": "device-code-1",
                        "user_code": "ABCD-EFGH",
                        "verification_uri": f"{self.issuer}/enter",
                        "interval": 0.01,
                    }
                    return 200, {}, json.dumps(answer).encode()
        return 404, {}, b"<html>nothing here</html>"

    # -- the server

    def lacks_nonce(self, asked: Asked, place: int) -> bool:
        """Note the proof of a request; return whether its nonce is not that of the place."""
        if self.nonces is None:
            return False
        proof = asked.headers["dpop"]
        key = ECKey.import_key(jws.extract_compact(proof.encode()).headers()["jwk"])
        claims = jwt.decode(proof, key, ["ES256"]).claims
        self.proofs.append({**claims, "key": key.thumbprint()})
        return not self.is_content or claims.get("nonce") != self.nonces[place]

    def answer_server(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        if asked.method == "GET":
            is_place = asked.path == "/.well-known/oauth-protected-resource/mcp"
            if self.resource is None or not is_place:
                return 404, {}, b"no"
            found = {"resource": self.url, "authorization_servers": [self.issuer], **self.resource}
            return 200, {}, json.dumps(found).encode()
        self.calls.append(asked.headers)
        message = json.loads(asked.body)
        scheme = "Bearer" if self.nonces is None else "DPoP"
        token = asked.headers.get("authorization", "").removeprefix(f"{scheme} ")
        with self.lock:
            scopes = self.valid.get(token)
        if scopes is not None and self.nonces is not None and self.lacks_nonce(asked, 1):
            said = 'DPoP error="use_dpop_nonce"'
            return 401, {"WWW-Authenticate": said, "DPoP-Nonce": self.nonces[1]}, b"no"
        needed = self.scopes_needed.get(message["method"], "")
        if scopes is None or not {*needed.split()} <= {*scopes.split()}:
            place = self.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
            named = {} if self.resource is None else {"resource_metadata": place}
            named |= self.challenge
            if scopes is not None:
                named |= {"error": "insufficient_scope", "scope": needed}
            said = ", ".join(f'{name}="{value}"' for name, value in named.items())
            status = 401 if scopes is None else 403
            return status, {"WWW-Authenticate": f"{scheme} {said}"}, f"no: {token}".encode()
        result: dict[str, Any] = {
            "server/discover": {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "world", "version": "1"},
            },
            "ping": {},
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "done"}]},
        }[message["method"]]
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return 200, {"Content-Type": "application/json"}, json.dumps(reply).encode()


@contextmanager
def running_world() -> Iterator[World]:
    """Run both until the end of the block."""
    world = World()

    class OfIssuer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _handle(self, world.answer_issuer)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    class OfServer(OfIssuer):
        def do_GET(self) -> None:
            _handle(self, world.answer_server)

        do_POST = do_GET

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), each) for each in (OfIssuer, OfServer)]
    threads = [threading.Thread(target=each.serve_forever, args=(0.01,)) for each in servers]
    for server, thread in zip(servers, threads, strict=True):
        server.daemon_threads = True
        thread.start()
    world.issuer, base = (f"http://127.0.0.1:{each.server_address[1]}" for each in servers)
    world.url = f"{base}/mcp"
    try:
        yield world
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


def _handle(handler: BaseHTTPRequestHandler, answer: Any) -> None:
    place = urlsplit(handler.path)
    body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
    is_form = "form" in handler.headers.get("content-type", "")
    asked = Asked(
        handler.command,
        place.path,
        {name.lower(): value for name, value in handler.headers.items()},
        dict(parse_qsl(body.decode() if is_form else place.query)),
        body,
    )
    status, headers, sent = answer(asked)
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(sent)))
    handler.end_headers()
    handler.wfile.write(sent)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


async def log_in(request: LoginRequest) -> str:
    """Be the browser of a person who agrees."""
    import asyncio

    return await asyncio.to_thread(where_it_leads, request.url)


def where_it_leads(url: str) -> str:
    """Return the URL that a page of the authorization server sends the browser to."""
    try:
        build_opener(_NoRedirects).open(url, timeout=20).close()
    except HTTPError as page:
        page.close()
        return str(page.headers["Location"])
    raise AssertionError("the page leads nowhere")


def parameters_of(url: str) -> dict[str, str]:
    """Return the query of a URL."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
