"""The pages of the authorization server: consent, and why there is none (AUTHZ-16 to AUTHZ-19).

No script, no image, nothing from elsewhere; nobody may put them into a frame. Whatever a client
says of itself is text. The policy does not name where the form leads: browsers hold that against
every redirect that follows, and those behind the provider are the provider's.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape

from ..asgi import RawHeaders

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:3rem auto;padding:0 1rem;"
    "color:#1a1a1a;background:#fff}h1{font-size:1.4rem}dt{font-weight:600;margin-top:.75rem}"
    "dd{margin:0;overflow-wrap:anywhere}button{font:inherit;padding:.5rem 1rem;margin:1.5rem "
    ".5rem 0 0;border:1px solid #555;border-radius:.4rem;background:#fff;color:#1a1a1a}"
    "button.yes{background:#14532d;border-color:#14532d;color:#fff}"
)
_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()

HTML = b"text/html; charset=utf-8"
HEADERS: RawHeaders = (
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none';"
        " base-uri 'none'".encode(),
    ),
    # With `no-referrer` the form would come with the origin `null`.
    (b"referrer-policy", b"same-origin"),
)


def consent_page(
    action: str,
    transaction: str,
    server: str,
    client: str,
    client_id: str,
    host: str,
    scopes: tuple[str, ...],
    provider: str,
) -> bytes:
    """Return the page that asks a person whether a client may act for them.

    Args:
        action: the path that the form is sent to.
        transaction: what the form carries, sealed.
        server: the name of this server.
        client: the name that the client gives itself; may be empty.
        client_id: of the client.
        host: where the browser will be sent.
        scopes: those that are asked for.
        provider: where the person will log in.
    """
    called = client or "A program without a name"
    facts = {
        "Server": server,
        "Program": f"{called} (not verified: any program can call itself so)",
        "Its description": client_id if client_id.startswith("https://") else "",
        "You will be sent back to": host,
        "It may": ", ".join(scopes) or "use the server as you",
    }
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items() if value
    )
    return _page(
        f"Let {called} use {server}?",
        f"<dl>{rows}</dl><p>Go on only if you have just started this yourself, in that program."
        f'</p><form method="post" action="{escape(action)}">'
        f'<input type="hidden" name="transaction" value="{escape(transaction)}">'
        f'<button class="yes" name="answer" value="yes">Continue with {escape(provider)}</button>'
        '<button name="answer" value="no">Cancel</button></form>',
    )


def problem_page(title: str, text: str) -> bytes:
    """Return a page that says why a login has ended."""
    return _page(title, f"<p>{escape(text)}</p>")


def _page(title: str, body: str) -> bytes:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    ).encode()
