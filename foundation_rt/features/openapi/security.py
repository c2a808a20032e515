"""Credentials for an API: the security schemes of its document, and where secrets come from.

A secret is never an argument of a tool. The document says how a scheme sends it; the user says
which secret that is, and where it goes (OAPI-26, OAPI-49).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from attrs import define, field, frozen

from ...base.shell_words import quote
from .documents import OpenApiError, References, object_at
from .encoding import refused
from .operations import is_settable_header

if TYPE_CHECKING:
    from ..context import ToolContext
    from .operations import ApiOperation

Secret = str | tuple[str, str] | None
"""A token or a key; user and password are a tuple, or have a colon between. None: there is none."""

CallSecret = Callable[["ToolContext"], Secret | Awaitable[Secret]]
"""A function that returns a secret for a call."""

CredentialSource = (
    Mapping[str, Secret | CallSecret] | Callable[[str, "ToolContext"], Secret | Awaitable[Secret]]
)
"""Secrets, or functions that return them, by scheme; or a function of the scheme and the call."""

SchemeKind = Literal["header", "query", "cookie", "bearer", "basic"]

_LINE_ENDS: Final = ("\r", "\n", "\0")
_MAX_NAME: Final = 100


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
        if isinstance(secret, str):
            parts = secret.split(":", 1) if scheme.kind == "basic" else [secret]
        else:
            parts = [*secret]
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


@frozen
class OperatorSecret:
    """The secret of a scheme as the command line names it; a function for `auth`.

    Attributes:
        variable: the environment variable that has it; None if there is none.
        value: of the variable; a user and a password have a colon between them.
        header: of the client's own request, which has it call by call; None if there is none.
    """

    variable: str | None
    value: str | None = field(repr=False)
    header: str | None = None

    def __call__(self, context: ToolContext) -> str | None:
        """Return the secret of a call: that of the client, else that of the variable."""
        own = None if self.header is None else context.headers.get(self.header)
        return own or self.value

    def __str__(self) -> str:
        header = None if self.header is None else f"the client's header {self.header}"
        variable = self.variable if self.value else self.variable and f"{self.variable} (not set)"
        return ", or ".join(each for each in (header, variable) if each is not None)


@define
class Credentials:
    """The credentials of an API.

    Attributes:
        schemes: by name.
        source: of the user; None: there is none.

    Raises:
        OpenApiError: the source names a scheme that there is not.
    """

    schemes: Mapping[str, SecurityScheme]
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
        return cast(Secret, await given if isawaitable(given) else given)

    def described(self) -> list[str]:
        """Return where the secret of each scheme comes from: a variable, `auth`, or nowhere."""
        # In words: a log would redact what follows a colon.
        given = dict.fromkeys(self.schemes, "from auth") if callable(self.source) else {}
        for name, each in self.source.items() if isinstance(self.source, Mapping) else ():
            given[name] = f"from {each if isinstance(each, OperatorSecret) else 'auth'}"
        return [f"{name} {given.get(name, 'without a secret')}" for name in self.schemes]

    def advice(self, operation: ApiOperation) -> str:
        """Return how an operator names the secrets of an operation; empty if it has none."""
        options = [
            " ".join(f"--secret {quote(f'{name}=VARIABLE')}" for name in alternative)
            for alternative in operation.security
            if alternative and all(name in self.schemes for name in alternative)
        ]
        return ", or ".join(dict.fromkeys(options))


def read_schemes(references: References) -> dict[str, SecurityScheme]:
    """Return the security schemes of a document, by name.

    Kinds without a secret are left out, and schemes whose name or place nobody can write.

    Raises:
        OpenApiError: a reference leads nowhere.
    """
    schemes = {}
    listed = object_at(references.document, "components", "securitySchemes")
    for name, given in listed.items():
        scheme = _scheme(name, references.follow(given))
        if scheme is not None and name.isprintable() and len(name) <= _MAX_NAME:
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
        place, parameter = given.get("in"), given["name"]
        if place == "query" or (place in ("header", "cookie") and is_settable_header(parameter)):
            return SecurityScheme(name, place, parameter)
    return None
