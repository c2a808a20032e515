"""An identity provider on a port of this machine: OpenID Connect, OAuth alone, or GitHub.

Who logs in is whom the test names; nobody is asked. Refresh tokens rotate, and one that is used
twice ends the login.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from attrs import define, field
from joserfc import jwt

from foundation_rt.client.auth.grants import challenge_of

from .issuer import EC
from .oauth_world import Asked

CLIENT_ID, CLIENT_SECRET = "server-at-provider", "secret-of-the-server-at-the-provider"


@define(eq=False)
class IdentityProviderFake:
    """The provider.

    Attributes:
        claims: of the person who logs in.
        metadata: members that replace those of its metadata.
        id_token: claims that replace those of the next ID tokens; None takes one away.
        answer: parameters that replace those of its next answers to the browser.
        lifetime: of its access tokens, in seconds.
        gives_refresh: whether it gives refresh tokens.
        is_down: every request ends with 503.
        down: what it answers at some paths instead: status and body.
        has_left: refreshes are refused: the person is not there any more.
        asked: all requests.
        used: refresh tokens that were used.
    """

    url: str = ""
    claims: dict[str, Any] = field(factory=dict)
    metadata: dict[str, Any] = field(factory=dict)
    id_token: dict[str, Any] = field(factory=dict)
    answer: dict[str, str | None] = field(factory=dict)
    lifetime: int = 3600
    gives_refresh: bool = True
    is_down: bool = False
    down: dict[str, tuple[int, bytes]] = field(factory=dict)
    has_left: bool = False
    asked: list[Asked] = field(factory=list)
    used: list[str] = field(factory=list)
    codes: dict[str, dict[str, str]] = field(factory=dict)
    valid: set[str] = field(factory=set)
    numbers: Iterator[int] = field(factory=lambda: count(1))
    lock: threading.Lock = field(factory=threading.Lock)

    def reset(self) -> None:
        """Be as it was at first."""
        self.claims = {"sub": "person-1", "email": "ann@x.org", "email_verified": True}
        self.claims |= {"name": "Ann", "login": "ann", "id": 7}
        self.metadata, self.id_token, self.answer = {}, {}, {}
        self.lifetime, self.gives_refresh = 3600, True
        self.is_down = self.has_left = False
        self.down.clear()
        self.asked.clear()
        self.used.clear()

    def paths(self, path: str) -> list[Asked]:
        """Return the requests of one path."""
        return [each for each in self.asked if each.path == path]

    def respond(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(asked)
        if self.is_down or asked.path in self.down:
            status, body = self.down.get(asked.path, (503, b"down"))
            return status, {}, body
        match asked.path:
            case "/.well-known/openid-configuration" | "/.well-known/oauth-authorization-server":
                return 200, {}, json.dumps(self._described()).encode()
            case "/keys":
                return 200, {}, json.dumps({"keys": [EC.as_dict(False)]}).encode()
            case "/authorize" | "/login/oauth/authorize":
                return self._authorize(asked.form)
            case "/token" | "/login/oauth/access_token":
                status, answer = self._token(asked.form)
                return status, {}, json.dumps(answer).encode()
            case "/userinfo" | "/api/v3/user":
                token = asked.headers.get("authorization", "").removeprefix("Bearer ")
                if token not in self.valid:
                    return 401, {}, b"{}"
                return 200, {}, json.dumps(self.claims).encode()
            case "/api/v3/user/emails":
                primary = {"email": self.claims["email"], "primary": True, "verified": True}
                others = {"email": "boss@x.org", "primary": False, "verified": False}
                return 200, {}, json.dumps([others, primary]).encode()
            case "/api/v3/user/orgs":
                names = [*(f"club-{number}" for number in range(100)), "Acme"]
                begin = 100 * (int(asked.form["page"]) - 1)
                listed = [{"login": each} for each in names[begin : begin + 100]]
                return 200, {}, json.dumps(listed).encode()
        return 404, {}, b"nothing here"

    def _described(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}/keys",
            "scopes_supported": ["openid", "email", "profile", "offline_access"],
            **self.metadata,
        }

    def _authorize(self, form: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        code = f"provider-code-{next(self.numbers)}"
        self.codes[code] = form
        said: dict[str, str | None] = {"code": code, "state": form["state"], **self.answer}
        query = urlencode({name: value for name, value in said.items() if value is not None})
        return 302, {"Location": f"{form['redirect_uri']}?{query}"}, b""

    def _token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        with self.lock:
            if form["grant_type"] == "refresh_token":
                old = form["refresh_token"]
                if self.has_left or old in self.used:
                    return 400, {"error": "invalid_grant"}
                self.used.append(old)
                nonce = None
            else:
                asked = self.codes.pop(form.get("code", ""), None)
                if asked is None:
                    return 400, {"error": "invalid_grant"}
                if challenge_of(form["code_verifier"]) != asked["code_challenge"]:
                    return 400, {"error": "invalid_grant"}
                nonce = asked.get("nonce")
            number = next(self.numbers)
        token = f"provider-access-token-{number}"
        self.valid.add(token)
        answer = {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": self.lifetime,
            "id_token": self._id_token(nonce),
        }
        if self.gives_refresh:
            answer["refresh_token"] = f"provider-refresh-token-{number}"
        return 200, answer

    def _id_token(self, nonce: str | None) -> str:
        claims = {"iss": self.url, "aud": CLIENT_ID, "exp": int(time.time()) + 600}
        claims |= {**self.claims, "nonce": nonce, **self.id_token}
        kept = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode({"alg": "ES256", "kid": "ec"}, kept, EC, ["ES256"])


@contextmanager
def running_provider() -> Iterator[IdentityProviderFake]:
    """Run a provider until the end of the block."""
    it = IdentityProviderFake()
    it.reset()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            place = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            asked = Asked(
                self.command,
                place.path,
                {name.lower(): value for name, value in self.headers.items()},
                dict(parse_qsl(body.decode() if body else place.query)),
                body,
            )
            status, headers, sent = it.respond(asked)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    it.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield it
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
