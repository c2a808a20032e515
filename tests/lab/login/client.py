"""A client and a browser, step by step, for the authorization server of a server."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
from attrs import define, field

from foundation_rt.client.auth.grants import challenge_of

PATIENCE = 60.0
PLAIN: dict[str, Any] = {"timeout": PATIENCE, "trust_env": False, "verify": False}
"""Of requests to this machine, without TLS: to read what is trusted takes 24 ms of CPU each."""

CALLBACK = "http://127.0.0.1:7777/back"
VERIFIER = "v" * 43


@define(eq=False)
class Browser:
    """Keeps cookies; follows no redirect, and has no open connection."""

    cookies: httpx2.Cookies = field(factory=httpx2.Cookies)

    def get(self, url: str, **given: Any) -> httpx2.Response:
        return self._send("GET", url, given)

    def post(self, url: str, **given: Any) -> httpx2.Response:
        return self._send("POST", url, given)

    def _send(self, method: str, url: str, given: dict[str, Any]) -> httpx2.Response:
        with httpx2.Client(cookies=self.cookies, **PLAIN) as client:
            answer = client.request(method, url, **given)
            self.cookies = client.cookies
        return answer


@define(eq=False)
class LoginClient:
    """One client with its browser.

    Attributes:
        url: of the authorization server, without a slash at its end.
        browser: of the person.
        client_id: of the client.
    """

    url: str
    browser: Browser = field(factory=Browser)
    client_id: str = ""

    def register(self, *uris: str, **more: Any) -> httpx2.Response:
        """Register, and keep the id."""
        body = {"redirect_uris": list(uris or (CALLBACK,)), "client_name": "Desk", **more}
        answer = httpx2.post(f"{self.url}/oauth/register", json=body, **PLAIN)
        self.client_id = answer.json().get("client_id", "")
        return answer

    def authorize(self, **changes: str | None) -> httpx2.Response:
        """Open the page that asks for consent; None takes a parameter away."""
        asked: dict[str, str | None] = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": CALLBACK,
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            "state": "the-state",
            **changes,
        }
        given = {name: value for name, value in asked.items() if value is not None}
        return self.browser.get(f"{self.url}/oauth/authorize", params=given)

    def answer(self, page: httpx2.Response, answer: str = "yes") -> httpx2.Response:
        """Send the form of the page."""
        form = {"transaction": transaction_of(page), "answer": answer}
        return self.browser.post(f"{self.url}/oauth/consent", data=form)

    def log_in(self, **changes: str | None) -> httpx2.Response:
        """Agree, log in at the provider, and come back; return the last answer of our server."""
        at_provider = self.answer(self.authorize(**changes))
        return self.come_back(at_provider)

    def come_back(self, at_provider: httpx2.Response) -> httpx2.Response:
        """Log in at the provider, and come back."""
        page = httpx2.get(at_provider.headers["location"], **PLAIN)
        return self.browser.get(page.headers["location"])

    def token(self, **form: str | None) -> httpx2.Response:
        """Ask for tokens."""
        given = {"client_id": self.client_id, **form}
        kept = {name: value for name, value in given.items() if value is not None}
        return httpx2.post(f"{self.url}/oauth/token", data=kept, **PLAIN)

    def redeem(self, back: httpx2.Response, **changes: str | None) -> httpx2.Response:
        """Ask for the tokens of a code."""
        form: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "code": said(back)["code"],
            "redirect_uri": CALLBACK,
            "code_verifier": VERIFIER,
        }
        return self.token(**{**form, **changes})

    def refresh(self, tokens: dict[str, Any], **more: str) -> httpx2.Response:
        """Use a refresh token."""
        given = {"refresh_token": tokens["refresh_token"], **more}
        return self.token(grant_type="refresh_token", **given)


def transaction_of(page: httpx2.Response) -> str:
    """Return what the form of a page carries."""
    found = re.search(r'name="transaction" value="([^"]*)"', page.text)
    assert found is not None, page.text
    return unescape(found[1])


def said(back: httpx2.Response) -> dict[str, str]:
    """Return the parameters of a redirect."""
    return dict(parse_qsl(urlsplit(back.headers["location"]).query))
