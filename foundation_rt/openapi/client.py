"""The API of a written program: requests by hand, with the rules of spec/openapi.md (OAPI-42)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..protocol.content import ResourceContents, ToolResult
from .api import Api
from .arguments import ArgumentPlan
from .bodies import FORM, MULTIPART
from .operations import STYLES, ApiBody, ApiOperation, ApiParameter, Location
from .responses import ApiResponse, resource_contents, tool_result
from .security import Credentials, CredentialSource, SecurityScheme
from .upstream import Upstream

if TYPE_CHECKING:
    from ..core.context import ToolContext


@define(init=False)
class ApiClient:
    """An HTTP API that tools call.

    Values that are None are not sent. Errors are those of the tools of `Server.from_openapi`.
    """

    _api: Api
    _base_url: str
    _security: Sequence[Sequence[str]] = field(factory=tuple)

    def __init__(
        self,
        server: Any,
        base_url: str,
        *,
        schemes: Iterable[SecurityScheme] = (),
        security: Sequence[Sequence[str]] = (),
        auth: CredentialSource | None = None,
        headers: Mapping[str, str] | None = None,
        client: Any = None,
    ) -> None:
        """Make a client whose connections end with `server`.

        Args:
            server: the `Server` of the tools.
            base_url: of the API.
            schemes: how secrets are sent.
            security: of calls that say nothing else: alternatives, each the names of schemes that
                are needed together.
            auth: see `OpenApiOptions`.
            headers: sent with every request.
            client: an `httpx2.AsyncClient` of the application.
        """
        by_name = {each.name: each for each in schemes}
        self._api = Api(
            title="",
            version="",
            description=None,
            upstream=Upstream(client, None, dict(headers or {})),
            credentials=Credentials(by_name, os.environ, auth),
        )
        self._api.max_bytes = lambda: int(server.runtime.config.tools.max_response_bytes)
        self._base_url = base_url
        self._security = security
        server.lifespan(after_initialize=True)(self._api.lifespan)

    async def call(self, ctx: ToolContext, method: str, path: str, **parts: Any) -> ToolResult:
        """Return the result of a request; `parts` are those of `request`."""
        response = await self.request(ctx, method, path, **parts)
        return tool_result(response, f"{self._base_url.rstrip('/')}{path}")

    async def read(
        self, ctx: ToolContext, uri: str, method: str, path: str, **parts: Any
    ) -> ResourceContents:
        """Return the contents of the resource `uri`; `parts` are those of `request`."""
        return resource_contents(await self.request(ctx, method, path, **parts), uri)

    async def request(
        self,
        ctx: ToolContext,
        method: str,
        path: str,
        *,
        values: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
        cookies: Mapping[str, Any] | None = None,
        special: Iterable[ApiParameter] = (),
        body: Any = None,
        media_type: str = "application/json",
        encodings: Mapping[str, Any] | None = None,
        files: Iterable[str] = (),
        security: Sequence[Sequence[str]] | None = None,
        base_url: str | None = None,
    ) -> ApiResponse:
        """Return the response to a request.

        Args:
            ctx: of the call.
            method: in capitals.
            path: with variables in braces.
            values: of the variables.
            query: parameters.
            headers: parameters.
            cookies: parameters.
            special: parameters of another style than usual.
            body: JSON; an object for forms; base64 for bytes. Members that are None are left out.
            media_type: of the body.
            encodings: of properties of a form, as OpenAPI has them.
            files: the properties of a form that are files.
            security: replaces that of the client.
            base_url: replaces that of the client.

        Raises:
            AbortError: the call was aborted.
            ToolError: the values cannot be sent, the API cannot be reached, or it refused.
        """
        given: dict[Location, Mapping[str, Any]] = {
            "path": values or {},
            "query": query or {},
            "header": headers or {},
            "cookie": cookies or {},
        }
        known = {(each.location, each.name): each for each in special}
        parameters: dict[str, ApiParameter] = {}
        arguments: dict[str, Any] = {}
        for location, named in given.items():
            for name, value in named.items():
                key = f"{location} {name}"
                parameters[key] = known.get((location, name)) or usual_parameter(name, location)
                arguments[key] = value
        if isinstance(body, dict):
            body = {name: each for name, each in body.items() if each is not None}
        sent = None
        if body is not None:
            sent = ApiBody(media_type, None, True, encodings or {}, None, frozenset(files))
            arguments["body"] = body
        plan = ArgumentPlan({}, parameters, {}, "body", sent)
        alternatives = self._security if security is None else security
        operation = ApiOperation(
            id=None,
            method=method,
            path=path,
            summary=None,
            description=None,
            tags=(),
            is_deprecated=False,
            parameters=(),
            body=sent,
            security=tuple(map(tuple, alternatives)),
            servers=(),
            responses={},
        )
        return await self._api.perform(operation, plan, base_url or self._base_url, arguments, ctx)


def usual_parameter(name: str, location: Location) -> ApiParameter:
    """Return a parameter of the style that its location has by default."""
    style = STYLES[location][0]
    return ApiParameter(name, location, style=style, explode=style == "form")


def is_form(media_type: str) -> bool:
    """Return whether a body has properties with encodings of their own."""
    return media_type in (FORM, MULTIPART)
