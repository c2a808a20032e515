"""The document in which a page shows an app of a server (HAPP-01 to HAPP-04).

The page gives it the app's HTML by a message, and the document becomes that. So no address has the
HTML, and the policy is that of a response, which the HTML cannot take back. It is the same for
everybody but for the origins in its query, and knows no secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qs

from .requests import PageRequest
from .responses import send_response

FRAME_PATH = "/app-frame"
"""The path of the document; its query has `connect`, `resource`, `frame` and `base`."""

MAX_ORIGINS = 32
"""Of each kind; further ones are left out."""

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ORIGIN = re.compile(
    rf"(https|wss)://((?:\*\.)?(?:{_LABEL}\.)+[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9]))(?::[0-9]{{1,5}})?/?"
)
_MAX_ORIGIN = 300
_LOCAL = (".localhost", ".local", ".internal", ".home.arpa", ".lan", ".test", ".invalid")

_NONE = "'none'"
_SANDBOX = "allow-scripts allow-forms"
"""Forms, since without it a page gets no `submit` event; `form-action` sends none."""

_DOCUMENT = b"""<!doctype html>
<meta charset="utf-8">
<title>App</title>
<script>
addEventListener("message", ({ source, data }) => {
  if (source !== parent || parent === self || typeof data?.html !== "string") return;
  document.open();
  document.write(data.html);
  document.close();
});
parent.postMessage("app-frame-ready", "*");
</script>
"""


def allowed_origins(
    asked: Iterable[str], own_host: str = "", schemes: tuple[str, ...] = ("https",)
) -> list[str]:
    """Return those of the asked origins that an app may have (HAPP-03).

    Args:
        asked: as the app's metadata names them.
        own_host: the name by which the page is reached.
        schemes: that this use can have.
    """
    found: dict[str, None] = {}
    for each in asked:
        match = _ORIGIN.fullmatch(each.lower()) if len(each) <= _MAX_ORIGIN else None
        if match is None or match[1] not in schemes:
            continue
        host = match[2]
        is_wide = host.startswith("*.") and host.count(".") < 2
        is_own = host == own_host or (host.startswith("*.") and own_host.endswith(host[1:]))
        if not (is_wide or is_own or host.endswith(_LOCAL)):
            found[each.lower().rstrip("/")] = None
    return [*found][:MAX_ORIGINS]


def frame_policy(query: str, own_host: str = "") -> str:
    """Return the policy of the document for a query (HAPP-02)."""
    try:
        asked = parse_qs(query, max_num_fields=4 * MAX_ORIGINS)
    except ValueError:  # more fields than that
        asked = {}
    resources, frames, bases = (
        allowed_origins(asked.get(each, ()), own_host) for each in ("resource", "frame", "base")
    )
    connections = allowed_origins(asked.get("connect", ()), own_host, ("https", "wss"))
    directives = {
        "sandbox": [_SANDBOX],
        "default-src": [],
        "script-src": ["'unsafe-inline'", *resources],
        "style-src": ["'unsafe-inline'", *resources],
        "img-src": ["data:", "blob:", *resources],
        "font-src": ["data:", *resources],
        "media-src": ["data:", "blob:", *resources],
        "worker-src": ["blob:"],
        "connect-src": connections,
        "frame-src": frames,
        "base-uri": bases,
        "form-action": [],
        "frame-ancestors": ["'self'"],
    }
    return "; ".join(f"{name} {' '.join(each) or _NONE}" for name, each in directives.items())


async def send_frame(request: PageRequest) -> None:
    """Answer a request for the document."""
    query = request.scope.get("query_string", b"").decode("latin-1")
    own_host = (request.header(b"host") or "").rpartition(":")
    policy = frame_policy(query, (own_host[0] or own_host[2]).lower())
    headers = (
        (b"content-security-policy", policy.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
        (b"x-content-type-options", b"nosniff"),
        (b"x-dns-prefetch-control", b"off"),
        (b"cache-control", b"no-store"),
    )
    await send_response(request.send, 200, _DOCUMENT, b"text/html; charset=utf-8", headers)
