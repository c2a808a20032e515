"""Credentials for an API: the security schemes of its document, and where secrets come from.

A secret is never an argument of a tool. It comes from an environment variable that is named after
the scheme, or from the application, for each call (OAPI-25, OAPI-26).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from attrs import define, field, frozen

from .documents import OpenApiError, References
from .styles import refused
from .texts import snake_case

if TYPE_CHECKING:
    from ..core.context import ToolContext
    from .operations import ApiOperation

Secret = str | tuple[str, str] | None
"""A token or a key; for a scheme of user and password both; None if there is none."""

CallSecret = Callable[["ToolContext"], Secret | Awaitable[Secret]]
"""A function that returns a secret for a call."""

CredentialSource = (
    Mapping[str, Secret | CallSecret] | Callable[[str, "ToolContext"], Secret | Awaitable[Secret]]
)
"""Secrets, or functions that return them, by scheme; or a function of the scheme and the call."""

SchemeKind = Literal["header", "query", "cookie", "bearer", "basic"]

_LINE_ENDS: Final = ("\r", "\n", "\0")


@frozen
class SecurityScheme:
    """A security scheme.

    Attributes:
        name: in the document.
        kind: the place of its secret in a request.
        parameter: the name of the header, the parameter of the query or the cookie.
    """

    name: str
    kind: SchemeKind
    parameter: str = "Authorization"

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables of its secret: BEARER_AUTH_TOKEN for bearerAuth."""
        prefix = _variable_name(self.name)
        if self.kind == "basic":
            return (f"{prefix}_USERNAME", f"{prefix}_PASSWORD")
        return (prefix if prefix.endswith(("TOKEN", "KEY")) else f"{prefix}_TOKEN",)


@frozen
class CallCredentials:
    """The credentials of one call.

    Attributes:
        headers: their values by name.
        query: parameters of the query.
        cookies: their values by name.
        secrets: all secrets in them, to be kept out of messages.
    """

    headers: dict[str, str] = field(factory=dict, repr=False)
    query: dict[str, str] = field(factory=dict, repr=False)
    cookies: dict[str, str] = field(factory=dict, repr=False)
    secrets: list[str] = field(factory=list, repr=False)

    def places(self) -> set[tuple[str, str]]:
        """Return the location and the name of each secret; names of headers in lower case."""
        found = {("header", name.lower()) for name in self.headers}
        found |= {("query", name) for name in self.query}
        return found | {("cookie", name) for name in self.cookies}

    def add(self, scheme: SecurityScheme, secret: str | tuple[str, str]) -> None:
        """Add the secret of a scheme."""
        parts = [secret] if isinstance(secret, str) else [*secret]
        if any(end in part for part in parts for end in _LINE_ENDS):
            raise refused(scheme.name, "must have no line ends")
        self.secrets.extend(part for part in parts if part)
        text = ":".join(parts)
        if scheme.kind == "bearer":
            self.headers["Authorization"] = f"Bearer {text}"
        elif scheme.kind == "basic":
            written = b64encode(text.encode()).decode()
            self.secrets.append(written)
            self.headers["Authorization"] = f"Basic {written}"
        elif scheme.kind == "header":
            self.headers[scheme.parameter] = text
        elif scheme.kind == "query":
            self.query[scheme.parameter] = text
        else:
            self.cookies[scheme.parameter] = text


@define
class Credentials:
    """The credentials of an API.

    Attributes:
        schemes: by name.
        environment: the variables of the process.
        source: of the application; it comes before the environment. None: there is none.

    Raises:
        OpenApiError: the source names a scheme that there is not.
    """

    schemes: Mapping[str, SecurityScheme]
    environment: Mapping[str, str] = field(repr=False)
    source: CredentialSource | None = field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        if isinstance(self.source, Mapping):
            unknown = [name for name in self.source if name not in self.schemes]
            if unknown:
                raise OpenApiError(
                    f"auth names {unknown[0]!r}, and the API has no such security scheme: it has "
                    f"{', '.join(self.schemes) or 'none'}"
                )

    async def of_call(self, operation: ApiOperation, context: ToolContext) -> CallCredentials:
        """Return the credentials of a call: the first alternative of which all are known.

        There are none if none is known: the API then says so (OAPI-27).
        """
        for alternative in operation.security:
            found = CallCredentials()
            for name in alternative:
                secret = await self._secret(name, context)
                if secret is None or name not in self.schemes:
                    break
                found.add(self.schemes[name], secret)
            else:
                return found
        return CallCredentials()

    async def _secret(self, name: str, context: ToolContext) -> Secret:
        given: Any = None
        if callable(self.source):
            given = self.source(name, context)
        elif self.source is not None:
            given = self.source.get(name)
            if callable(given):
                given = given(context)
        if isawaitable(given):
            given = await given
        if given is not None or name not in self.schemes:
            return cast(Secret, given)
        values = [self.environment.get(each) for each in self.schemes[name].variables]
        known = [each for each in values if each]
        if len(known) < len(values):
            return None
        return known[0] if len(known) == 1 else (known[0], known[1])

    def advice(self, operation: ApiOperation) -> str:
        """Return the variables that an operator may set for an operation; empty without any."""
        names = [
            " and ".join(self.schemes[name].variables)
            for alternative in operation.security
            for name in alternative
            if name in self.schemes
        ]
        return ", or ".join(dict.fromkeys(names))


def read_schemes(references: References) -> dict[str, SecurityScheme]:
    """Return the security schemes of a document, by name; kinds without a secret are left out.

    Raises:
        OpenApiError: a reference leads nowhere.
    """
    components = references.document.get("components")
    listed = components.get("securitySchemes") if isinstance(components, dict) else None
    if not isinstance(listed, dict):
        return {}
    schemes = {}
    for name, given in listed.items():
        scheme = _scheme(name, references.follow(given))
        if scheme is not None:
            schemes[name] = scheme
    return schemes


def _scheme(name: str, given: Any) -> SecurityScheme | None:
    if not isinstance(given, dict):
        raise OpenApiError(f"the security scheme {name!r} is no object")
    kind = given.get("type")
    if kind in ("oauth2", "openIdConnect"):
        return SecurityScheme(name, "bearer")
    if kind == "http":
        scheme = str(given.get("scheme", "")).lower()
        return SecurityScheme(name, "basic" if scheme == "basic" else "bearer")
    if kind == "apiKey" and isinstance(given.get("name"), str):
        places: dict[Any, SchemeKind] = {"header": "header", "query": "query", "cookie": "cookie"}
        if given.get("in") in places:
            return SecurityScheme(name, places[given["in"]], given["name"])
    return None


def _variable_name(name: str) -> str:
    return snake_case(name).upper()
