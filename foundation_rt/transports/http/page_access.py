"""Access of people to a page of the application: a token in a URL, then a cookie (HTTP-43).

A browser cannot send a key in a header of its own. So the URL that the server prints has a token,
`/?token=...`, which is answered with a cookie and a redirect to the same URL without it. The cookie
is derived from the key and does not reveal it. It is the same after a restart, and in every worker.

Cookies are sent to every port of a host, and a page at another port counts as the same site. So a
request that is authenticated by the cookie alone has to come from a page of this very origin.
"""

from __future__ import annotations

import os
import re
import secrets
from hashlib import sha256
from hmac import compare_digest, digest
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from attrs import define, field, frozen

from ...errors import UsageError
from .asgi import HttpRefusal, RawHeaders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...protocol.principal import Principal
    from .asgi import Scope
    from .authentication import ApiKeys

TOKEN = "token"
COOKIE = "foundation_rt_page"
LIFETIME_SECONDS = 30 * 24 * 3600

_PURPOSE = b"foundation-rt page"
_FILE = "page-token"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,128}")
_MAX_QUERY = 8192
_SAFE_METHODS = ("GET", "HEAD")
_OWN_SITES = (None, "same-origin", "none")
_UNQUOTED = "/:@!$&'()*+,;=~-._"


@frozen(eq=False)
class PageAccess:
    """The token with which people open the application's page, as `key:page` (HTTP-43).

    Attributes:
        token: 32 to 128 letters, digits, `-` and `_`; a secret. Programs may send it as an API key.

    Raises:
        UsageError: the token is none.
    """

    token: str = field(repr=False)

    def __attrs_post_init__(self) -> None:
        if _TOKEN.fullmatch(self.token) is None:
            raise UsageError("PageAccess: a token has 32 to 128 letters, digits, - and _")

    @classmethod
    def of_user(cls, state_key: str | None = None) -> PageAccess:
        """Return the access with a token that is the same after a restart (HTTP-45).

        Args:
            state_key: `security.state_key`, from which the token is derived; None: the token is
                read from `$XDG_DATA_HOME/foundation-rt/page-token`, which is made if it is not
                there.

        Raises:
            UsageError: the file cannot be used; says why.
        """
        if state_key is not None:
            return cls(digest(bytes.fromhex(state_key), _PURPOSE, "sha256").hex())
        return cls(_token_of_user())

    def url(self, base: str) -> str:
        """Return the URL with which a person opens the page at `base`."""
        return f"{base}?{TOKEN}={self.token}"


def _token_of_user() -> str:
    """Return the token in the file of the user; make both if they are not there."""
    home = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not home.is_absolute():  # a relative one is to be ignored, says its specification
        home = Path.home() / ".local" / "share"
    path = home / "foundation-rt" / _FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return _read_token(path) or _write_token(path)
    except OSError as error:
        raise UsageError(
            f"the token of the page cannot be kept in {path} ({error.strerror}): set XDG_DATA_HOME"
            " to a folder that can be written, or security.state_key"
        ) from None


def _read_token(path: Path) -> str | None:
    """Return the token of a file that its owner alone can read; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        text = file.read(256).decode("ascii", "replace").strip()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        return None  # somebody else may know it
    return text if _TOKEN.fullmatch(text) else None


def _write_token(path: Path) -> str:
    """Put a new token in the place of the file, whole, and return what is there then."""
    token = secrets.token_urlsafe(32)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{token}\n")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return _read_token(path) or token  # of two processes that start at once, the last one's


@define(eq=False, repr=False)
class PageCookies:
    """Turns tokens into cookies, and cookies into principals.

    Args:
        keys: the keys of the server, the token of the page among them.
        origins: those that the operator serves, in lower case, besides the origin of the request.
    """

    _keys: ApiKeys
    _origins: frozenset[str]
    _principals: list[tuple[bytes, Principal]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._principals = [
            (sha256(_cookie_of(each)).digest(), principal)
            for each, principal in self._keys.principals.items()
        ]

    def log_in(self, scope: Scope) -> RawHeaders | HttpRefusal | None:
        """Return the headers of the redirect that sets the cookie; None without a token.

        Args:
            scope: of a request; its query may have the token, or any API key in its place.
        """
        query: bytes = scope.get("query_string", b"")
        if b"token=" not in query or len(query) > _MAX_QUERY or scope["method"] != "GET":
            return None
        fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in fields if name == TOKEN), None)
        if token is None:
            return None
        if self._keys.find(token) is None:
            return HttpRefusal(
                401,
                "Unauthorized: the token in the URL is wrong; take the URL that the server has"
                " printed",
                reason="unauthorized",
            )
        rest = urlencode([each for each in fields if each[0] != TOKEN])
        # One slash: of two, a browser would read the name of another host.
        path = "/" + quote(str(scope["path"]).lstrip("/"), safe=_UNQUOTED)
        location = f"{path}?{rest}" if rest else path
        return (
            (b"location", location.encode()),
            (b"set-cookie", self._set_cookie(scope, token).encode()),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
        )

    def find(self, scope: Scope) -> Principal | HttpRefusal | None:
        """Return the principal of the cookie; None without one that is known (HTTP-44)."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        value = _read_cookie(headers.get(b"cookie"), _cookie_name(headers.get(b"host", "")))
        if value is None:
            return None
        principal = self._principal_of(value)
        if principal is not None and not self._is_from_own_page(scope, headers):
            return HttpRefusal(
                403,
                "Forbidden: the cookie of the page counts for requests of this page alone; send an"
                " API key in X-API-Key",
                reason="origin_not_allowed",
            )
        return principal

    def _principal_of(self, value: str) -> Principal | None:
        given = sha256(value.encode()).digest()
        found = None
        for each, principal in self._principals:
            if compare_digest(each, given):
                found = principal
        return found

    def _is_from_own_page(self, scope: Scope, headers: Mapping[bytes, str]) -> bool:
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if origin is not None and not self._is_own_origin(origin, headers.get(b"host", "")):
            return False
        if scope["type"] == "http" and scope["method"] in _SAFE_METHODS:
            return site in _OWN_SITES or headers.get(b"sec-fetch-mode") == "navigate"
        return origin is not None or site == "same-origin"

    def _is_own_origin(self, origin: str, host: str) -> bool:
        origin, host = origin.lower(), host.lower()
        return origin in (f"http://{host}", f"https://{host}") or origin in self._origins

    def _set_cookie(self, scope: Scope, token: str) -> str:
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        words = [
            f"{_cookie_name(host.decode('latin-1'))}={_cookie_of(sha256(token.encode()).digest()).decode()}",
            f"Path={quote(str(scope.get('root_path') or '/'), safe=_UNQUOTED)}",
            f"Max-Age={LIFETIME_SECONDS}",
            "HttpOnly",
            "SameSite=Strict",
        ]
        if scope.get("scheme") == "https":
            words.append("Secure")
        return "; ".join(words)


def _cookie_of(key_digest: bytes) -> bytes:
    """Return the cookie for a key, which does not tell the key."""
    return digest(key_digest, _PURPOSE, "sha256").hex().encode()


def _cookie_name(host: str) -> str:
    """Return the name of the cookie: those of two ports of one host must not be the same."""
    port = host.rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def _read_cookie(header: str | None, name: str) -> str | None:
    if header is None or name not in header:
        return None
    for part in header.split(";"):
        found, _, value = part.strip(" \t").partition("=")
        if found == name:
            return value
    return None
