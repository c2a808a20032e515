"""The operations of a document, as plain values (OAPI-04)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, cast
from urllib.parse import urljoin, urlsplit

from attrs import frozen

from .documents import OpenApiError, References, list_at, object_at

Location = Literal["path", "query", "header", "cookie"]
Style = Literal[
    "simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject"
]

METHODS: Final = ("get", "put", "post", "delete", "patch")
"""The methods whose operations become tools, in lower case."""

STYLES: Final[Mapping[str, tuple[Style, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles of parameters by their location, the default first."""

_IGNORED_HEADERS: Final = frozenset(
    (
        "accept",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_SECRET_HEADERS: Final = frozenset(("authorization", "cookie"))
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TEXT: Final = re.compile(
    r"text/.*|message/(?:rfc822|http)|.*[/.+-](?:"
    r"json5?|jsonl|json-?lines?|json-seq|[nl]d-?json|csv|tsv|xml|xml-dtd|ya?ml|toml|ini|edn"
    r"|sql|graphql|gql|sparql-(?:query|update)|n-triples|n-quads|turtle|trig|openmetrics-text"
    r"|(?:java|ecma|type)script|x?html|markdown|css|sh|python|perl|php|tex|latex|diff"
    r"|pem-file|pem-certificate-chain|x-www-form-urlencoded)"
)
VARIABLE: Final = re.compile(r"\{([^{}/]+)\}")


def is_settable_header(name: str) -> bool:
    """Return whether a secret may be in a header, or in a cookie, of that name."""
    is_of_http = name.lower() in _IGNORED_HEADERS - _SECRET_HEADERS
    return _TOKEN.fullmatch(name) is not None and not is_of_http


@frozen
class ApiParameter:
    """A parameter of an operation.

    Attributes:
        name: as the API has it.
        location: "path", "query", "header" or "cookie".
        schema: of the document; not converted.
        is_required: whether the operation needs it.
        style: of the value in the request.
        explode: whether members of arrays and objects are separate parameters.
        allow_reserved: whether reserved characters stay as they are, in a query.
        media_type: of a parameter with `content`, whose value is a document of its own; or None.
        description: for people.
    """

    name: str
    location: Location
    schema: Any = None
    is_required: bool = False
    style: Style = "form"
    explode: bool = True
    allow_reserved: bool = False
    media_type: str | None = None
    description: str | None = None


@frozen
class ApiBody:
    """The body of a request, in the media type that is sent.

    Attributes:
        media_type: in lower case, without parameters.
        schema: of the document; not converted.
        is_required: whether the operation needs it.
        encodings: of properties of forms, by name.
        description: for people.
        files: the names of properties that are files, or arrays of files.
    """

    media_type: str
    schema: Any
    is_required: bool
    encodings: Mapping[str, Any]
    description: str | None = None
    files: frozenset[str] = frozenset()


@frozen
class ApiOperation:
    """An operation of a document.

    Attributes:
        id: the `operationId`; None if it has none.
        method: in capitals.
        path: with variables in braces; some documents tell paths apart by a fragment.
        summary: one line.
        description: more.
        tags: those of the document.
        is_deprecated: whether the API advises against it.
        parameters: of path, query, header and cookie.
        body: None if it has none.
        security: alternatives; each has the names of the schemes that are needed together.
        servers: of the operation, else of its path, else of the document.
        responses: of the document, by status.
    """

    id: str | None
    method: str
    path: str
    summary: str | None
    description: str | None
    tags: tuple[str, ...]
    is_deprecated: bool
    parameters: tuple[ApiParameter, ...]
    body: ApiBody | None
    security: tuple[tuple[str, ...], ...]
    servers: tuple[Any, ...]
    responses: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The method and the path, as in `GET /pets`."""
        return f"{self.method} {self.path}"


@frozen
class SkippedOperation:
    """An operation that cannot be called, and the reason.

    Attributes:
        label: its method and path.
        reason: in words.
    """

    label: str
    reason: str


def read_operations(references: References) -> Iterator[ApiOperation | SkippedOperation]:
    """Yield the operations of a document, in its order.

    Raises:
        OpenApiError: the document has no paths.
    """
    paths = references.document.get("paths")
    if not isinstance(paths, dict):
        raise OpenApiError("the document has no `paths`: it has no operations")
    for path, given in paths.items():
        if path.startswith("x-"):
            continue
        if not path.startswith("/"):
            yield SkippedOperation(path, "its path does not begin with /")
            continue
        try:
            item = references.follow(given)
        except OpenApiError as error:
            yield SkippedOperation(path, str(error))
            continue
        if not isinstance(item, dict):
            yield SkippedOperation(path, "it is no object")
            continue
        for method in METHODS:
            if method in item and not isinstance(item[method], dict):
                yield SkippedOperation(f"{method.upper()} {path}", "it is no object")
            elif method in item:
                try:
                    yield _operation(references, method, path, item)
                except (OpenApiError, RecursionError) as error:
                    yield SkippedOperation(f"{method.upper()} {path}", str(error))


def _operation(
    references: References, method: str, path: str, item: dict[str, Any]
) -> ApiOperation:
    given = item[method]
    document = references.document
    security = list_at(given if "security" in given else document, "security")
    return ApiOperation(
        id=_text(given.get("operationId")),
        method=method.upper(),
        path=path,
        summary=_text(given.get("summary")) or _text(item.get("summary")),
        description=_text(given.get("description")) or _text(item.get("description")),
        tags=tuple(each for each in list_at(given, "tags") if isinstance(each, str)),
        is_deprecated=given.get("deprecated") is True,
        parameters=_parameters(references, path, item, given),
        body=_body(references, given.get("requestBody")),
        security=tuple(tuple(each) for each in security if isinstance(each, dict)),
        servers=tuple(
            list_at(given, "servers") or list_at(item, "servers") or list_at(document, "servers")
        ),
        responses=object_at(given, "responses"),
    )


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _parameters(
    references: References, path: str, item: dict[str, Any], given: dict[str, Any]
) -> tuple[ApiParameter, ...]:
    """Return the parameters; those of the operation replace those of its path."""
    found: dict[tuple[str, str], ApiParameter] = {}
    for each in (*list_at(item, "parameters"), *list_at(given, "parameters")):
        parameter = _parameter(references, references.follow(each))
        if parameter is not None:
            found[parameter.location, parameter.name] = parameter
    variables = VARIABLE.findall(path)
    for name in variables:  # documents forget them
        found.setdefault(
            ("path", name), ApiParameter(name, "path", {"type": "string"}, True, "simple", False)
        )
    return tuple(
        each for each in found.values() if each.location != "path" or each.name in variables
    )


def _parameter(references: References, given: Any) -> ApiParameter | None:
    """Return a parameter; None if there is no such location, or HTTP itself has the header."""
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise OpenApiError("a parameter has no name")
    name, location = given["name"], str(given.get("in"))
    if location not in STYLES:
        return None
    if location == "header" and (name.lower() in _IGNORED_HEADERS or not _TOKEN.fullmatch(name)):
        return None
    style = given.get("style")
    if style not in STYLES[location]:
        style = STYLES[location][0]
    explode = given.get("explode")
    content = references.follow(given.get("content"))
    media_type, schema = None, given.get("schema")
    if isinstance(content, dict) and content:
        media_type, value = next(iter(content.items()))
        schema = object_at(value).get("schema")
    return ApiParameter(
        name=name,
        location=cast(Location, location),
        schema={"type": "string"} if schema is None else schema,
        is_required=given.get("required") is True or location == "path",
        style=style,
        explode=explode if isinstance(explode, bool) else style in ("form", "deepObject"),
        allow_reserved=given.get("allowReserved") is True,
        media_type=media_type,
        description=_text(given.get("description")),
    )


# -- bodies --------------------------------------------------------------------------------------


def is_json(media_type: str) -> bool:
    """Return whether values of a media type are JSON; those of any type are sent so."""
    return media_type == "*/*" or media_type.endswith(("/json", "/x-json", "+json"))


def is_text(media_type: str) -> bool:
    """Return whether a media type is one of text, by what the end of its name says (OAPI-56)."""
    return is_json(media_type) or _TEXT.fullmatch(media_type) is not None


def _rank(media_type: str) -> int:
    """Return the place of a media type among those that a body may have, the best first."""
    order = ("multipart/form-data", "application/x-www-form-urlencoded")
    if is_json(media_type):
        return 0 if media_type == "application/json" else 1
    if media_type in order:
        return 2 + order.index(media_type)
    return 4 if is_text(media_type) else 5


def _body(references: References, given: Any) -> ApiBody | None:
    given = references.follow(given)
    content = object_at(given, "content")
    if not content:
        return None
    types = {name.partition(";")[0].strip().lower(): each for name, each in content.items()}
    media_type = min(types, key=_rank)
    value = object_at(references.follow(types[media_type]))
    return ApiBody(
        media_type="application/json" if media_type == "*/*" else media_type,
        schema=value.get("schema"),
        is_required=given.get("required") is True,
        encodings=object_at(value, "encoding"),
        description=_text(given.get("description")),
    )


# -- servers -------------------------------------------------------------------------------------


def server_url(servers: tuple[Any, ...], base: str | None) -> str | None:
    """Return the URL of the first server, its variables replaced by their defaults (OAPI-30).

    Args:
        servers: of an operation.
        base: the URL of the document, to which a URL may be relative.

    Returns:
        None if there is none that begins with `http://` or `https://`.
    """
    given = next((each for each in servers if isinstance(each, dict)), {})
    url = given.get("url", "/")
    if not isinstance(url, str):
        return None
    for name, each in object_at(given, "variables").items():
        url = url.replace(f"{{{name}}}", str(object_at(each).get("default")))
    url = urljoin(base, url) if base is not None else url
    return url if is_http_url(url) else None


def is_http_url(url: str) -> bool:
    """Return whether a URL is one of HTTP: with a host, without a user, variables or a fragment."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and url.isprintable()
            and parts.username is None
            and not parts.fragment
            and not set("{}\\ ") & set(url)
            and parts.port is not False
        )
    except ValueError:
        return False
