"""Challenges, logins and tokens: what is asked for, what an answer means, when to refresh. Pure.

A `WWW-Authenticate` may hold several challenges, whose parameters are separated by commas as the
challenges are (RFC 9110, 11.6.1).

(CAUTH-12, CAUTH-18, CAUTH-25 to CAUTH-35; RFC 6749, RFC 7636, RFC 8628, RFC 8707, RFC 9207)
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from attrs import asdict, field, fields, frozen

from ..errors import AuthorizationError
from ..safe_text import readable

if TYPE_CHECKING:
    from .discovery import OAuthClient, ResourceMetadata, ServerMetadata

REFRESH_SECONDS = 60.0
"""Seconds before its end at which a token is refreshed; half its life if that is shorter."""

OFFLINE_ACCESS = "offline_access"
_LONGEST = 365 * 24 * 3600.0  # s; of a token that says it lasts longer


@frozen
class Grant:
    """The tokens that a login has brought; a store keeps them.

    Attributes:
        resource: the server's name for itself; it goes with every request for a token.
        expires_at: its end, in seconds since 1970; None if nobody knows.
        refresh_at: the time from which it is refreshed.
        scopes: those that were granted.
        requested: those that were asked for.
        dpop_key: the private key that the token is bound to, a JWK; None if it is bound to none.
    """

    resource: str
    issuer: str
    client_id: str
    method: str
    token_endpoint: str
    access_token: str = field(repr=False)
    token_type: str = "Bearer"
    expires_at: float | None = None
    refresh_at: float | None = None
    refresh_token: str | None = field(default=None, repr=False)
    client_secret: str | None = field(default=None, repr=False)
    revocation_endpoint: str | None = None
    scopes: tuple[str, ...] = ()
    requested: tuple[str, ...] = ()
    dpop_key: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that nobody may see."""
        found = (self.access_token, self.refresh_token, self.client_secret)
        return tuple(each for each in found if each)

    def is_due(self, now: float) -> bool:
        """Return whether the token is to be refreshed (CAUTH-30)."""
        return self.refresh_at is not None and now >= self.refresh_at

    def is_over(self, now: float) -> bool:
        """Return whether the token has ended."""
        return self.expires_at is not None and now >= self.expires_at

    def to_entry(self) -> dict[str, Any]:
        """Return it as a store keeps it."""
        entry = asdict(self)
        return {**entry, "scopes": list(self.scopes), "requested": list(self.requested)}

    @classmethod
    def of_entry(cls, entry: Mapping[str, Any] | None) -> Grant | None:
        """Return the grant of an entry; None if there is none, or it cannot be read."""
        names = ("resource", "issuer", "client_id", "method", "token_endpoint", "access_token")
        if entry is None or not all(isinstance(entry.get(each), str) for each in names):
            return None
        known = {name: entry[name] for name in _GRANT_MEMBERS if name in entry}
        try:
            for name in ("scopes", "requested"):
                known[name] = tuple(map(str, known.get(name, ())))
            return cls(**known)
        except TypeError:
            return None


_GRANT_MEMBERS = tuple(each.name for each in fields(Grant))


def choose_scopes(
    challenged: tuple[str, ...] | None,
    resource: ResourceMetadata,
    server: ServerMetadata,
    wanted: Iterable[str],
    before: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the scopes to ask for (CAUTH-25, CAUTH-26).

    Args:
        challenged: those of the challenge; None if it named none.
        resource: the server.
        server: the authorization server.
        wanted: those of the description.
        before: those that were asked for before, if more are needed now.
    """
    named = challenged if challenged is not None else resource.scopes or ()
    offline = (OFFLINE_ACCESS,) if OFFLINE_ACCESS in server.scopes else ()
    return tuple(dict.fromkeys((*before, *named, *wanted, *offline)))


def challenge_of(verifier: str) -> str:
    """Return the S256 challenge of a verifier (RFC 7636)."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def authorization_url(
    server: ServerMetadata,
    client: OAuthClient,
    redirect_uri: str,
    resource: str,
    scopes: tuple[str, ...],
    state: str,
    verifier: str,
) -> str:
    """Return the URL of the page at which a person logs in.

    Raises:
        AuthorizationError: the authorization server has no such page.
    """
    if server.authorization_endpoint is None:
        raise AuthorizationError(f"{readable(server.issuer)} has no page to log in at")
    asked = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
        "state": state,
        "resource": resource,
    }
    if scopes:
        asked["scope"] = " ".join(scopes)
        if OFFLINE_ACCESS in scopes:
            asked["prompt"] = "consent"  # OpenID Connect, 11: without it the scope is ignored
    # RFC 6749, 3.1: its own query stays, and no parameter comes twice.
    page = urlsplit(server.authorization_endpoint)
    own = [each for each in parse_qsl(page.query, keep_blank_values=True) if each[0] not in asked]
    return page._replace(query=urlencode([*own, *asked.items()])).geturl()


def read_callback(url: str, redirect_uri: str, state: str, server: ServerMetadata) -> str:
    """Return the code with which the browser came back, after every check (CAUTH-18).

    Nothing that stands in the URL is used, or repeated, before `state` and `iss` are right.

    Raises:
        AuthorizationError: the answer is another one's, or the login was refused.
    """
    try:
        parts, wanted = urlsplit(url.strip()), urlsplit(redirect_uri)
        is_ours = (parts.scheme, parts.netloc, parts.path or "/") == (
            wanted.scheme,
            wanted.netloc,
            wanted.path or "/",
        )
        answer = parse_qs(parts.query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        is_ours, answer = False, {}
    again = "Run it again."
    if not is_ours:
        raise AuthorizationError("The browser came back to another address", again)
    if any(len(values) > 1 for values in answer.values()):
        raise AuthorizationError("The answer of the login repeats a parameter", again)
    said = {name: values[0] for name, values in answer.items()}
    if said.get("state") != state:
        raise AuthorizationError("The answer belongs to another login (state)", again)
    issuer = said.get("iss")
    if issuer != server.issuer and (issuer is not None or server.sends_iss):
        came = "nobody" if issuer is None else readable(issuer)
        what = f"The answer of the login is from {came}, not from {readable(server.issuer)}"
        raise AuthorizationError(what, "Report it to whoever runs the server.")
    if "error" in said:
        raise AuthorizationError(
            f"The login was refused: {refusal_of(said)}", "Log in again, and agree."
        )
    if not said.get("code"):
        raise AuthorizationError("The answer of the login has no code", again)
    return said["code"]


def refusal_of(answer: Mapping[str, Any]) -> str:
    """Return what an authorization server says of a refusal, for people."""
    error, text = readable(answer.get("error")), readable(answer.get("error_description"))
    return f"{error}: {text}" if text else error


def token_parameters(grant_type: str, resource: str, scopes: Iterable[str]) -> dict[str, str]:
    """Return the parameters that requests for tokens have in common."""
    found = {"grant_type": grant_type, "resource": resource}
    named = " ".join(scopes)
    return {**found, "scope": named} if named else found


def read_grant(
    answer: Any,
    resource: str,
    server: ServerMetadata,
    client: OAuthClient,
    requested: tuple[str, ...],
    now: float,
    dpop_key: Mapping[str, Any] | None = None,
    refresh_token: str | None = None,
) -> Grant:
    """Return the grant of a token endpoint's answer.

    Args:
        answer: as it came.
        requested: the scopes that were asked for; those that are granted unless it names others.
        now: seconds since 1970.
        dpop_key: that the token was asked for with.
        refresh_token: the one that was used, which stays if the answer has no other.

    Raises:
        AuthorizationError: it has no token that can be used.
    """
    found = answer if isinstance(answer, Mapping) else {}
    token, kind = found.get("access_token"), str(found.get("token_type", "Bearer")).lower()
    issuer = readable(server.issuer)
    if not isinstance(token, str) or not _is_visible(token):
        raise AuthorizationError(f"{issuer} gave no token that a header can hold")
    kinds = {"bearer": "Bearer", "dpop": "DPoP"}
    if kind not in kinds:
        raise AuthorizationError(f"{issuer} gave a token of a type that is not known")
    if kind == "dpop" and dpop_key is None:
        raise AuthorizationError(f"{issuer} bound a token to a key that is not ours")
    later, life = found.get("refresh_token"), _lifetime(found.get("expires_in"))
    return Grant(
        resource,
        server.issuer,
        client.client_id,
        client.method,
        server.token_endpoint,
        token,
        kinds[kind],
        None if life is None else now + life,
        None if life is None else now + life - min(REFRESH_SECONDS, life / 2),
        later if isinstance(later, str) and later else refresh_token,
        client.secret,
        server.revocation_endpoint,
        _granted(found.get("scope"), requested),
        requested,
        dpop_key,
    )


def _lifetime(seconds: Any) -> float | None:
    if isinstance(seconds, str) and seconds.isascii() and seconds.isdigit():
        seconds = int(seconds[:12])  # some servers quote it
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        return None
    return min(float(seconds), _LONGEST)


def _granted(scope: Any, requested: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(scope, str):
        return requested
    if "," in scope and not any("," in each for each in requested):
        scope = scope.replace(",", " ")  # as GitHub separates them
    return tuple(scope.split())


def _is_visible(token: str) -> bool:
    return bool(token) and all("!" <= each <= "~" for each in token)


_MOST = 20  # challenges, and parameters of each, that are read
_MAX_HEADER = 16 * 1024  # characters that are read
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PART = re.compile(
    rf"[ \t,]*(?:(?P<name>{_TOKEN})[ \t]*=[ \t]*"
    rf'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>{_TOKEN}))'
    rf"|(?P<scheme>{_TOKEN})(?:[ \t]+(?P<token68>[A-Za-z0-9\-._~+/]+=*)(?=[ \t]*(?:,|$)))?)"
)


@frozen
class Challenge:
    """One challenge.

    Attributes:
        scheme: such as `bearer`, in lower case.
        parameters: by name in lower case.
    """

    scheme: str
    parameters: Mapping[str, str]

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """The scopes that are needed; None if it names none."""
        named = tuple(self.parameters.get("scope", "").split())
        return named or None

    @property
    def lacks_scope(self) -> bool:
        """Return whether the token was good, but does not allow enough."""
        return self.parameters.get("error") == "insufficient_scope"


def read_challenges(header: str) -> list[Challenge]:
    """Return the challenges of a `WWW-Authenticate`, as far as they can be read."""
    found: list[Challenge] = []
    parameters: dict[str, str] = {}
    for name, value in _parts(header[:_MAX_HEADER]):
        if value is None:
            if len(found) == _MOST:
                break
            parameters = {}
            found.append(Challenge(name.lower(), parameters))
        elif found and len(parameters) < _MOST:
            parameters.setdefault(name.lower(), value)
    return found


def choose_challenge(header: str) -> Challenge:
    """Return the challenge to answer: that of `DPoP`, else of `Bearer`; an empty one if none is."""
    found = read_challenges(header)
    for scheme in ("dpop", "bearer"):
        for challenge in found:
            if challenge.scheme == scheme:
                return challenge
    return Challenge("bearer", {})


def _parts(header: str) -> Iterator[tuple[str, str | None]]:
    """Yield a scheme with None, and a parameter with its value."""
    at = 0
    while match := _PART.match(header, at):
        at = match.end()
        if match["scheme"] is not None:
            yield match["scheme"], None
        elif match["quoted"] is not None:
            yield match["name"], re.sub(r"\\(.)", r"\1", match["quoted"])
        else:
            yield match["name"], match["plain"]
