"""An API as tools and resources, from its document: what `Server.from_openapi` registers.

`OpenApiOptions` also select the operations that become tools or resources, and name them (OAPI-07).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypedDict, TypeVar

from attrs import define, field, frozen

from ...base.http_client.values import full_origin, same_origin
from ...base.shell_words import quote
from ...errors import RegistrationError
from ...kernel.registry.tool_definition import ToolDefinition
from ...kernel.registry.tools import ExecutionMode, ToolRegistry
from ...protocol.content import ResourceContents, ToolResult
from ...protocol.tool_annotations import ToolAnnotations
from ..resources.registry import ResourceDefinition, ResourceTemplateDefinition
from .arguments import ArgumentPlan, plan_arguments
from .documents import Document, OpenApiError, References, object_at, read_document
from .naming import shortened, tool_names
from .operations import (
    VARIABLE,
    ApiOperation,
    SkippedOperation,
    is_http_url,
    is_json,
    read_operations,
    server_url,
)
from .requests import build_request
from .responses import ApiResponse, resource_contents, tool_error, tool_result, without_secrets
from .schemas import SchemaConverter
from .security import Credentials, CredentialSource, read_schemes
from .upstream import ApiSender, Upstream

if TYPE_CHECKING:
    from ...base.transforms import Transform
    from ..context import ToolContext
    from ..resources.registry import ResourceRegistry


MAX_DESCRIPTION: Final = 1_500
"""Most characters of the description of a tool."""

RESOURCE_SCHEME: Final = "api"

_MAX_LOGGED: Final = 20
_WRAPPED: Final = "result"
_ANNOTATIONS: Final = {
    "GET": ToolAnnotations(read_only=True, open_world=True),
    "PUT": ToolAnnotations(read_only=False, destructive=True, idempotent=True, open_world=True),
    "DELETE": ToolAnnotations(read_only=False, destructive=True, idempotent=True, open_world=True),
    "PATCH": ToolAnnotations(read_only=False, destructive=True, open_world=True),
    "POST": ToolAnnotations(read_only=False, open_world=True),
}


class OpenApiOptions(TypedDict, total=False):
    """The options of `Server.from_openapi` and `Server.from_asgi`.

    Attributes:
        client: an `httpx2.AsyncClient` of the application, with its own authentication, proxies or
            certificates; the application closes it. By default one is made.
        base_url: of the API, instead of the `servers` of the document; with `auth`, `headers` or
            `client` it has to be given, unless the API is at the origin of `document_url`.
        document_url: where the document is from; its `servers` may be relative to it.
        include: selectors of operations; without it, all are used.
        exclude: selectors of operations that are left out.
        rename: names of tools.
        transform: shapes the tools, by the names that they have then (spec/transforms.md).
        tags: operations need one of these tags of the document.
        routes: what operations become: tools, resources, or nothing.
        auth: secrets by security scheme, or a function that returns the one of a scheme for a
            call.
        headers: sent with every request.
        strict_outputs: advertise the schemas of responses, and fail calls whose response does not
            fit (OAPI-35).
    """

    client: Any
    base_url: str | None
    document_url: str | None
    include: Iterable[Selector] | None
    exclude: Iterable[Selector] | None
    rename: Renames | None
    transform: Transform | None
    tags: Iterable[str] | None
    routes: Routes | None
    auth: CredentialSource | None
    headers: Mapping[str, str] | None
    strict_outputs: bool


Definition = TypeVar(
    "Definition", bound=ToolDefinition | ResourceDefinition | ResourceTemplateDefinition
)


@frozen
class ApiEntry(Generic[Definition]):
    """A tool, a resource or a template of resources, that calls an operation.

    Attributes:
        operation: that it calls.
        plan: its arguments.
        base_url: of its requests.
        definition: as it is registered.
        handler: of its calls.
    """

    operation: ApiOperation
    plan: ArgumentPlan
    base_url: str
    definition: Definition
    handler: Callable[[dict[str, Any], ToolContext], Any]


ApiTool = ApiEntry[ToolDefinition]
ApiResource = ApiEntry[ResourceDefinition | ResourceTemplateDefinition]


@define
class Api:
    """An API: its tools, its resources, and the connection to it.

    Attributes:
        title: of the document.
        version: of the document.
        description: of the document; None if it has none.
        upstream: sends requests.
        credentials: of calls.
        tools: in the order of the document.
        resources: in the order of the document.
        skipped: the operations that cannot be called.
        max_bytes: returns the longest response that is read.
    """

    title: str
    version: str
    description: str | None
    upstream: Upstream
    credentials: Credentials
    tools: list[ApiTool] = field(factory=list)
    resources: list[ApiResource] = field(factory=list)
    skipped: list[SkippedOperation] = field(factory=list)
    max_bytes: Callable[[], int] = field(default=lambda: 16 << 20)

    def origins(self) -> list[str]:
        """Return the origins of the tools and resources."""
        used: list[ApiTool | ApiResource] = [*self.tools, *self.resources]
        return [*dict.fromkeys(full_origin(each.base_url) for each in used)]

    def sends_secrets(self, security: Iterable[Iterable[str]]) -> bool:
        """Return whether a request carries what the user has given, with these alternatives."""
        has_secrets = bool(self.credentials.source) and any(map(bool, security))
        return has_secrets or bool(self.upstream.headers) or self.upstream.client is not None

    @asynccontextmanager
    async def lifespan(self, server: Any) -> AsyncIterator[None]:
        """Log what is called with what, and what cannot be; close the connections at the end."""
        logger, origins = server.runtime.logger, self.origins()[:_MAX_LOGGED]
        if origins:
            schemes = self.credentials.described()[:_MAX_LOGGED]
            logger.info("calling an API", {"origins": origins, "schemes": schemes})
        if self.skipped:
            shown = [f"{each.label}: {each.reason}" for each in self.skipped[:_MAX_LOGGED]]
            details = {"count": len(self.skipped), "operations": shown}
            logger.warn("operations cannot be called", details)
        try:
            yield
        finally:
            await self.upstream.close()

    async def perform(
        self,
        operation: ApiOperation,
        plan: ArgumentPlan,
        base_url: str,
        arguments: Mapping[str, Any],
        context: ToolContext,
    ) -> ApiResponse:
        """Return the response of an operation.

        Raises:
            AbortError: the call was aborted.
            ToolError: the arguments cannot be sent, the API cannot be reached, or it refused.
        """
        credentials = await self.credentials.of_call(operation, context)
        request = build_request(operation, plan, base_url, arguments, credentials)
        response = await self.upstream.send(request, context.abort_signal, self.max_bytes())
        if response.status >= 300:
            advice = "" if credentials.secrets else self.credentials.advice(operation)
            raise tool_error(operation, response, request.secrets, advice)
        return without_secrets(response, request.secrets)


def read_api(
    document: Document, options: OpenApiOptions, *, sender: ApiSender | None = None
) -> Api:
    """Return the API of a document.

    Args:
        document: see `Document`.
        options: see `OpenApiOptions`.
        sender: of requests; None for the network.

    Raises:
        OpenApiError: the document, a URL or an option cannot be used.
    """
    references = read_document(document)
    return _Reader(references, options, sender).read()


class _Reader:
    """Reads one document."""

    def __init__(
        self, references: References, options: OpenApiOptions, sender: ApiSender | None
    ) -> None:
        self.references = references
        self.options = options
        info = object_at(references.document, "info")
        client = options.get("client")
        headers = dict(options.get("headers") or {})
        self.api = Api(
            title=_line(info.get("title"), "api"),
            version=_line(info.get("version"), "0"),
            description=_description(info.get("description")),
            upstream=Upstream(client, sender, headers),
            credentials=Credentials(read_schemes(references), options.get("auth")),
        )
        self.base_url = _base_url(options.get("base_url"), client)
        self.refused: BaseUrlNeededError | None = None  # of an operation at another origin

    def read(self) -> Api:
        operations = []
        for each in read_operations(self.references):
            if isinstance(each, SkippedOperation):
                self.api.skipped.append(each)
            else:
                operations.append(each)
        names = tool_names(operations)
        for each in operations:
            if self._is_used(each):
                self._add(each, renamed(each, names[each.label], self.options.get("rename")))
        if self.refused is not None and not (self.api.tools or self.api.resources):
            raise self.refused
        return self.api

    def _is_used(self, operation: ApiOperation) -> bool:
        tags = self.options.get("tags")
        if tags is not None and not set(tags) & set(operation.tags):
            return False
        return is_included(operation, self.options.get("include"), self.options.get("exclude"))

    def _add(self, operation: ApiOperation, name: str) -> None:
        kind = kind_of(operation, self.options.get("routes"))
        if kind == "skip":
            return
        try:
            base_url = self._url_of(operation)
            plan = plan_arguments(operation, self.references)
            if kind == "resource" and _is_resource(operation):
                self.api.resources.append(self._resource(operation, plan, name, base_url))
            else:
                self.api.tools.append(self._tool(operation, plan, name, base_url))
        except RecursionError:
            self.api.skipped.append(SkippedOperation(operation.label, "it is nested too deeply"))
        except OpenApiError as error:
            if isinstance(error, BaseUrlNeededError):
                raise
            self.api.skipped.append(SkippedOperation(operation.label, str(error)))

    def _url_of(self, operation: ApiOperation) -> str:
        """Return the base URL of an operation; what the user sends goes where the user says."""
        if self.base_url is not None:
            return self.base_url
        given = self.options.get("document_url")
        found = server_url(operation.servers, given)
        if found is None:
            raise BaseUrlNeededError(
                "the document does not say where its API is: give a base URL, as in"
                " base_url='https://api.example.com/v1'"
            )
        own = given if given is not None and is_http_url(given) else None
        if not self.api.sends_secrets(operation.security):
            return found
        if own is not None and same_origin(own, found):
            return found
        leave_out = f"--exclude {quote(operation.label)}"
        refused = BaseUrlNeededError(
            f"the document says that {operation.label} is at {full_origin(found)}, and secrets and"
            f" headers go only where you say: give the base URL that you know the API by, with"
            f" --base-url, or leave the operation out, with {leave_out}"
        )
        if own is None:
            raise refused
        self.refused = self.refused or refused
        raise OpenApiError(str(refused))

    def _tool(
        self, operation: ApiOperation, plan: ArgumentPlan, name: str, base_url: str
    ) -> ApiTool:
        schema, is_wrapped = None, False
        if self.options.get("strict_outputs"):
            schema, is_wrapped = output_schema(operation, self.references)
        definition = ToolDefinition(
            name,
            description_of(operation),
            plan.schema,
            title=None if operation.summary is None else shortened(operation.summary, 100),
            output_schema=schema,
            annotations=_ANNOTATIONS[operation.method],
        )
        api, uri = self.api, f"{base_url.partition('?')[0].rstrip('/')}{operation.path}"

        async def call(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
            response = await api.perform(operation, plan, base_url, arguments, context)
            return tool_result(response, uri, is_wrapped=is_wrapped)

        return ApiTool(operation, plan, base_url, definition, call)

    def _resource(
        self, operation: ApiOperation, plan: ArgumentPlan, name: str, base_url: str
    ) -> ApiResource:
        variables = {
            each.name: argument.replace("-", "_") for argument, each in plan.parameters.items()
        }
        path = VARIABLE.sub(lambda match: f"{{{variables[match[1]]}}}", operation.path)
        uri = f"{RESOURCE_SCHEME}://{path.partition('?')[0].lstrip('/')}"
        members: dict[str, Any] = {"name": name, "description": description_of(operation)}
        definition: ResourceDefinition | ResourceTemplateDefinition
        if "{" in uri:
            definition = ResourceTemplateDefinition(uri_template=uri, **members)
        else:
            definition = ResourceDefinition(uri=uri, **members)
        api = self.api

        async def read(arguments: dict[str, Any], context: ToolContext) -> ResourceContents:
            given = {name: arguments.get(name.replace("-", "_")) for name in plan.parameters}
            response = await api.perform(operation, plan, base_url, given, context)
            return resource_contents(response, str(arguments["uri"]))

        return ApiResource(operation, plan, base_url, definition, read)


class BaseUrlNeededError(OpenApiError):
    """No base URL is given, and what the document says of it is not enough."""


def _is_resource(operation: ApiOperation) -> bool:
    """Return whether a URI can say all that an operation needs (OAPI-08)."""
    return operation.method == "GET" and not any(
        each.is_required and each.location != "path" for each in operation.parameters
    )


def description_of(operation: ApiOperation) -> str:
    """Return the description of the tool of an operation: its summary, and what it says more."""
    summary, more = operation.summary, operation.description
    if summary is not None and more is not None and more.startswith(summary.rstrip(".")):
        summary = None
    parts = [
        "Deprecated." if operation.is_deprecated else None,
        summary if summary is None or summary.endswith((".", "!", "?")) else f"{summary}.",
        more,
    ]
    text = "\n\n".join(each for each in parts if each)
    return shortened(text or f"Call {operation.label}.", MAX_DESCRIPTION)


def output_schema(
    operation: ApiOperation, references: References
) -> tuple[dict[str, Any] | None, bool]:
    """Return the schema of a response of success, and whether the value is wrapped (OAPI-35).

    A value that is no object stands in `{"result": ...}`: older revisions have objects only.
    """
    for status in sorted(operation.responses):
        if not re.fullmatch(r"2\d\d|2XX", status):
            continue
        response = references.follow(operation.responses[status])
        for media_type, value in object_at(response, "content").items():
            if is_json(media_type.partition(";")[0].strip().lower()) and isinstance(value, dict):
                return _output_schema(value.get("schema"), references)
    return None, False


def _output_schema(given: Any, references: References) -> tuple[dict[str, Any] | None, bool]:
    if not isinstance(given, dict):
        return None, False
    converter = SchemaConverter(references, "output")
    final = references.follow(given)
    schema = converter.convert(final)
    if not schema:
        return None, False
    is_wrapped = schema.get("type") != "object"
    if is_wrapped:
        schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED]}
    if converter.definitions:
        schema = {**schema, "$defs": converter.definitions}
    return schema, is_wrapped


def _base_url(given: str | None, client: Any) -> str | None:
    """Return the base URL that the application has chosen; None if it has not.

    Raises:
        OpenApiError: it is no URL of HTTP.
    """
    if given is None:
        own = str(getattr(client, "base_url", "") or "")
        return own if is_http_url(own) else None
    if not is_http_url(given):
        raise OpenApiError(
            f"the base URL {given.partition('?')[0]!r} is no URL such as https://api.example.com/v1"
        )
    return given


def _line(value: Any, default: str) -> str:
    text = " ".join(str(value).split()) if isinstance(value, str | int | float) else ""
    text = "".join(each for each in text if each.isprintable())
    return shortened(text, 100) or default


def _description(value: Any) -> str | None:
    return shortened(value, MAX_DESCRIPTION) or None if isinstance(value, str) else None


def uri_of(resource: ApiResource) -> str:
    """Return the URI of a resource, or its template."""
    definition = resource.definition
    if isinstance(definition, ResourceTemplateDefinition):
        return definition.uri_template
    return definition.uri


Selector = str | re.Pattern[str] | Callable[[ApiOperation], bool]
"""Selects operations: by text, by a pattern that is found in their paths, or by a function.

A text is `tag:NAME`, `GET`, `/path`, `GET /path`, or an `operationId`; `*` stands for anything.
"""

RouteKind = Literal["tool", "resource", "skip"]

Routes = Mapping[Any, RouteKind] | Callable[[ApiOperation], "RouteKind | None"]
"""Kinds by `Selector`, of which the first that fits counts; or a function that returns a kind."""

Renames = Mapping[str, str] | Callable[[ApiOperation], "str | None"]
"""Names of tools by `operationId` or `GET /path`; or a function that returns a name or None."""

_METHOD = re.compile(r"[A-Z]+")


def selects(selector: Selector, operation: ApiOperation) -> bool:
    """Return whether a selector selects an operation.

    Raises:
        OpenApiError: it is no selector.
    """
    if isinstance(selector, re.Pattern):
        return selector.search(operation.path) is not None
    if callable(selector):
        return bool(selector(operation))
    if not selector.strip():
        raise OpenApiError(f"{selector!r} selects nothing: give `tag:NAME`, `GET /path`, or an id")
    if selector.startswith("tag:"):
        return any(fnmatchcase(tag, selector[4:]) for tag in operation.tags)
    method, _, path = selector.partition(" ")
    if _METHOD.fullmatch(method):
        is_method = method == operation.method
        return is_method and (not path or fnmatchcase(operation.path, path.strip()))
    if selector.startswith("/"):
        return fnmatchcase(operation.path, selector)
    return operation.id is not None and fnmatchcase(operation.id, selector)


def is_included(
    operation: ApiOperation,
    include: Iterable[Selector] | None,
    exclude: Iterable[Selector] | None,
) -> bool:
    """Return whether an operation is used: `exclude` wins over `include`."""
    if include is not None and not any(selects(each, operation) for each in include):
        return False
    return not any(selects(each, operation) for each in exclude or ())


def kind_of(operation: ApiOperation, routes: Routes | None) -> RouteKind:
    """Return what an operation becomes; a tool by default.

    Raises:
        OpenApiError: a kind is another one.
    """
    found: Any = None
    if callable(routes):
        found = routes(operation)
    elif routes is not None:
        found = next((kind for each, kind in routes.items() if selects(each, operation)), None)
    if found not in (None, "tool", "resource", "skip"):
        raise OpenApiError(f"routes: {found!r} is no kind: give tool, resource or skip")
    kind: RouteKind = found or "tool"
    return kind


def renamed(operation: ApiOperation, name: str, rename: Renames | None) -> str:
    """Return the name of an operation's tool, which is `name` unless it is renamed."""
    if callable(rename):
        return rename(operation) or name
    if rename is None:
        return name
    keys = (operation.id or "", operation.label, name)
    return next((rename[key] for key in keys if key in rename), name)


def register_api(
    api: Api,
    tools: ToolRegistry,
    resources: Callable[[], ResourceRegistry],
    transform: Transform | None = None,
) -> None:
    """Register the tools and resources of an API.

    One that the registry refuses, for its schema for instance, is added to `Api.skipped`: a
    document of a thousand operations may have a bad one (OAPI-09).

    Args:
        api: to be registered.
        tools: of the server.
        resources: returns those of the server; called if there are any.
        transform: shapes the tools.

    Raises:
        RegistrationError: the transform does not fit.
    """
    own = tools if transform is None else ToolRegistry()
    for tool in api.tools:
        try:
            own.register(tool.definition, tool.handler, execution=ExecutionMode.ASYNC)
        except RegistrationError as error:
            api.skipped.append(SkippedOperation(tool.operation.label, str(error)))
    if transform is not None:
        from ..transforms import shaped

        transform.check_fits(each.registered_name for each in own.entries())
        for each in own.entries():
            tools.adopt(shaped(transform, each))
    for entry in api.resources:
        try:
            if isinstance(entry.definition, ResourceDefinition):
                resources().register(entry.definition, entry.handler)
            else:
                resources().register_template(entry.definition, entry.handler)
        except RegistrationError as error:
            api.skipped.append(SkippedOperation(entry.operation.label, str(error)))
