"""The requests of clients, handed to the servers that they are for (GATE-01 to GATE-06).

Each request of a client becomes one request to one server: its name or URI is that of the server,
everything else goes as it came, and so does the result.

A server that all clients share tells them apart by nothing but the id of a task. So an id of a task
(GATE-14) outside carries the server, the id there, and an authentication code that holds for its
principal alone. Any gateway with the same `security.state_key` reads it.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ...base.app_format import APPS
from ...base.app_format import EXTENSION as UI
from ...base.skill_format import EXTENSION as SKILLS
from ...base.skill_format import SKILLS_GET
from ...client import MCPError
from ...errors import ErrorCode, JsonRpcErrorCode, ToolError
from ...features.forwarding.forwarder import ForwardedError, ForwardedRequest, ForwardTarget
from ...features.tool_search.definitions import CALL_TOOL, read_call
from ...protocol.methods import (
    COMPLETION_COMPLETE,
    PROMPTS_GET,
    RESOURCES_READ,
    RESOURCES_SUBSCRIBE,
    SUBSCRIPTIONS_LISTEN,
    TASKS_CANCEL,
    TASKS_GET,
    TASKS_UPDATE,
    TOOLS_CALL,
)
from ...protocol.peer import CAPABILITIES_KEY, CORRELATION_KEY, INFO_KEY, LOG_LEVEL_KEY
from ...protocol.revisions import VERSION_KEY
from .client_request_bridge import TASKS, CallHandlers, ClientRequestBridge, client_of, owner_of
from .failures import failure
from .routes import RoutedEntry, Routes, is_for_models, skill_outside, withheld_error
from .tool_versions import version_of, with_plain_name, with_version

if TYPE_CHECKING:
    from ...features.context import ToolContext
    from .server_routes import ServerRoutes
    from .subscriptions import ForwardedSubscriptions


Entries = Sequence[Mapping[str, Any]]
"""The definitions of one list."""

CAPABILITIES: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
    "extensions": {TASKS: {}, SKILLS: {}, **APPS},
}
"""Capabilities that any server may have: clients learn of servers that come later."""

_NOT_FOUND = (-32002, -32602)
"""The codes with which servers of all revisions say that they do not have a resource."""

_OF_CONNECTION = (CAPABILITIES_KEY, INFO_KEY, LOG_LEVEL_KEY, VERSION_KEY, "progressToken")
"""Members of `_meta` between a client and the gateway: the gateway has its own with a server."""

_GRACE_MS = 5_000
"""The gateway's deadline is later by so much than its client's, which knows more about the end."""


@define(eq=False)
class GatewayForwarder:
    """Answers what the gateway has no tool, resource or prompt of its own for.

    Args:
        servers: the servers.
        bridge: brings their requests to the client.
        subscriptions: of clients to resources and tasks of servers.
        task_ids: of tasks that servers have made.
        is_search: list `call_tool` instead of all tools.
    """

    servers: ServerRoutes
    bridge: ClientRequestBridge
    subscriptions: ForwardedSubscriptions
    task_ids: TaskIds
    is_search: bool = False

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Return what the servers together may offer."""
        return CAPABILITIES

    @property
    def instructions(self) -> str | None:
        """Return the instructions of all servers, as far as they are known."""
        return self.servers.instructions

    def target(self, request: ForwardedRequest) -> ForwardTarget | None:
        """Return the server behind a request, and the time it may take."""
        route = self._find(self.servers.routes, request) or self._find_own(request)
        server = None if route is None else self.servers.find(route.server)
        if route is None or server is None:
            return None
        schema = route.definition.get("inputSchema")
        return ForwardTarget(route.server, server.settings.max_timeout_ms + _GRACE_MS, schema)

    def subscription_ended(self, request: ForwardedRequest) -> None:
        """End the subscriptions of a request at their servers; called from any thread."""
        self.subscriptions.ended(request)

    async def list_entries(self, kind: str, context: ToolContext) -> Entries:
        """Return the entries of a list; wait, at the start, for servers that are starting."""
        routes = await self.servers.routes_for(context)
        if kind == "tools" and self.is_search:
            return _SEARCH_ENTRIES
        if kind == "tools" and not context.client.can("extensions", UI):
            return routes.tools_for_models()  # others would offer them to a model (APP-08)
        return routes.entries(kind)

    async def forward(self, request: ForwardedRequest, context: ToolContext) -> Mapping[str, Any]:
        """Return the result of a request, as its server has sent it.

        Raises:
            ForwardedError: the server's own error, or the request names nothing that is known.
            ToolError: the way to the server failed.
        """
        return await _ANSWERS[request.method](self, request, context)

    # -- the methods ---------------------------------------------------------------------------

    async def _call_tool(
        self, request: ForwardedRequest, context: ToolContext
    ) -> Mapping[str, Any]:
        routes = await self.servers.routes_for(context)
        params = called = self._called(request.params)
        params = with_plain_name(called, routes.tools)
        if params["name"] not in routes.tools:
            routes = await self.servers.routes_when_started(params["name"], context)
            params = with_plain_name(called, routes.tools)
        if called is not request.params:  # a model has called `call_tool`
            route = routes.tool_for_models(params["name"])
        elif (
            params["name"] not in routes.tools
            and context.client.can("extensions", UI)
            and self.servers.are_all_ready()  # else the tool may be that of one that is gone
        ):
            route = routes.tool_of_app(params["name"])
        else:
            route = routes.tool(params["name"])
        route, params = with_version(route, params, is_locked=self.servers.is_locked)
        if called is not request.params and not is_for_models(route.definition):
            raise routes.unknown_tool(called["name"])
        params = {**params, "name": route.inner}
        if route.arguments is not None:
            given = params.get("arguments") or {}
            params["arguments"] = route.arguments.inside(given, context)
        return await self._exchange(route.server, request, context, params)

    async def _get_prompt(
        self, request: ForwardedRequest, context: ToolContext
    ) -> Mapping[str, Any]:
        routes = await self.servers.routes_for(context)
        if request.name not in routes.prompts:
            routes = await self.servers.routes_when_started(request.name, context)
        route = routes.prompts.get(request.name)
        if route is None:
            routes.refuse_withheld("prompts", request.name)
            raise ForwardedError(
                JsonRpcErrorCode.INVALID_PARAMS, f"There is no prompt {request.name!r}."
            )
        params = {**request.params, "name": route.inner}
        return await self._exchange(route.server, request, context, params)

    async def _read_resource(
        self, request: ForwardedRequest, context: ToolContext
    ) -> Mapping[str, Any]:
        refused: ForwardedError | None = None
        asked = set[tuple[str, str]]()
        for waits in (False, True):  # for servers that are starting: one of them may have it
            routes = await (
                self.servers.routes_when_started(request.name, context, is_uri=True)
                if waits
                else self.servers.routes_for(context)
            )
            for server, uri in routes.resource_routes(request.name):
                if (server, uri) in asked:
                    continue
                asked.add((server, uri))
                params = {**request.params, "uri": uri}
                try:
                    result = await self._exchange(server, request, context, params)
                except ForwardedError as error:
                    if error.code not in _NOT_FOUND:
                        raise
                    refused = error
                else:
                    return result if uri == request.name else _under(result, uri, request.name)
        raise refused or ToolError(
            ErrorCode.NOT_FOUND, f"No server has the resource {request.name!r}."
        )

    async def _get_skill(
        self, request: ForwardedRequest, context: ToolContext
    ) -> Mapping[str, Any]:
        """Return the entry of a skill that a server lists; nothing is known of others (GATE-63)."""
        routes = await self.servers.routes_for(context)
        if request.name not in routes.skills:
            routes = await self.servers.routes_when_started(request.name, context, is_uri=True)
        route = routes.skills.get(request.name)
        if route is None:
            routes.refuse_withheld("skills", request.name)
            raise ToolError(ErrorCode.NOT_FOUND, f"No server lists the skill {request.name!r}.")
        params = {**request.params, "uri": route.inner}
        result = await self._exchange(route.server, request, context, params)
        skill = result.get("skill")
        if not isinstance(skill, dict):
            return result
        withheld = self.servers.withholds(route.server, "skills", skill)
        if withheld is not None:
            raise withheld_error(withheld)
        return {**result, "skill": skill_outside(route, skill)}

    async def _complete(self, request: ForwardedRequest, context: ToolContext) -> Mapping[str, Any]:
        routes = await self.servers.routes_for(context)
        ref = request.params.get("ref")
        ref = ref if isinstance(ref, dict) else {}
        if ref.get("type") == "ref/prompt":
            routes.refuse_withheld("prompts", str(ref.get("name")))
            route = routes.prompts.get(str(ref.get("name")))
            server, inner = ("", {}) if route is None else (route.server, {"name": route.inner})
        else:
            found = routes.resource_routes(str(ref.get("uri")))
            server, inner = ("", {}) if not found else (found[0][0], {"uri": found[0][1]})
        if not server:
            raise ForwardedError(
                JsonRpcErrorCode.INVALID_PARAMS, "There is no such prompt or resource to complete."
            )
        params = {**request.params, "ref": {**ref, **inner}}
        return await self._exchange(server, request, context, params)

    async def _ask_about_task(
        self, request: ForwardedRequest, context: ToolContext
    ) -> Mapping[str, Any]:
        server_id, task_id = self._task_of(request.params.get("taskId"), context)
        params = {**request.params, "taskId": task_id}
        return await self._exchange(server_id, request, context, params)

    def _task_of(self, outside: object, context: ToolContext) -> tuple[str, str]:
        """Return the server of a task, and its id there.

        Raises:
            ForwardedError: this principal has no such task, or its server has been removed.
        """
        found = self.task_ids.inside(outside, owner_of(context))
        if found is None or self.servers.find(found[0]) is None:
            raise ForwardedError(JsonRpcErrorCode.INVALID_PARAMS, "There is no such task.")
        return found

    async def _subscribe(
        self, request: ForwardedRequest, context: ToolContext
    ) -> Mapping[str, Any]:
        await self.subscriptions.subscribe(request, context, request.name)
        return {}

    async def _listen(self, request: ForwardedRequest, context: ToolContext) -> Mapping[str, Any]:
        wanted = request.params["notifications"]
        uris = wanted.get("resourceSubscriptions", ())
        tasks = wanted.get("taskIds", ())
        joining = [self.subscriptions.subscribe(request, context, uri) for uri in uris]
        joining += [self._listen_to_task(request, context, outside) for outside in tasks]
        found = await asyncio.gather(*joining, return_exceptions=True)
        accepted = {
            name for name, problem in zip((*uris, *tasks), found, strict=True) if problem is None
        }
        return {
            "notifications": {
                "resourceSubscriptions": [uri for uri in uris if uri in accepted],
                "taskIds": [task for task in tasks if task in accepted],
            }
        }

    async def _listen_to_task(
        self, request: ForwardedRequest, context: ToolContext, outside: str
    ) -> None:
        """Subscribe to a task of this principal.

        Raises:
            ForwardedError, ToolError: there is no such task, or its server does not accept it.
        """
        task = self._task_of(outside, context)
        await self.subscriptions.subscribe_to_task(request, context, task, outside)

    # -- one request to one server -------------------------------------------------------------

    async def _exchange(
        self,
        server: str,
        request: ForwardedRequest,
        context: ToolContext,
        params: Mapping[str, Any],
    ) -> dict[str, Any]:
        connections = self.servers.connections(server)
        tool = params["name"] if request.method == TOOLS_CALL else None
        client = client_of(context)

        async def send(params: Mapping[str, Any], handlers: CallHandlers) -> dict[str, Any]:
            return await connections.request(
                request.method,
                {name: value for name, value in params.items() if name != "_meta"},
                **client,
                meta=_meta_for_server(params, context),
                handlers=handlers,
                on_progress=handlers.report_progress,
                on_log=handlers.log,
            )

        try:
            await connections.ready(**client)
            result = await self.bridge.exchange(
                context, params, send, is_stateless=connections.is_stateless
            )
        except MCPError as error:
            raise failure(server, error) from error
        task_id = result.get("taskId")
        if isinstance(task_id, str) and (tool is not None or request.method.startswith("tasks/")):
            owner = owner_of(context)
            result = {**result, "taskId": self.task_ids.outside(server, task_id, owner)}
        return result

    def _called(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the params of the call that is meant: `call_tool` stands for another."""
        if self.is_search and params["name"] == CALL_TOOL["name"]:
            return read_call(params)
        return params

    def _find_own(self, request: ForwardedRequest) -> RoutedEntry | None:
        """Return the entry that a request names, if the lists of any value have it (GATE-16)."""
        found = (self._find(routes, request) for routes in self.servers.own_routes())
        return next(filter(None, found), None)

    def _find(self, routes: Routes, request: ForwardedRequest) -> RoutedEntry | None:
        """Return the entry that a request names, if any list has it."""
        if request.method == TOOLS_CALL:
            try:
                called = self._called(request.params)
                params = with_plain_name(called, routes.tools)
                route = routes.tools.get(params["name"])
                found = None if route is None else version_of(route, params)
                return found or (route if params is called else None)
            except ToolError:  # call_tool without the name of a tool; `forward` says so
                return None
        if request.method == PROMPTS_GET:
            return routes.prompts.get(request.name)
        if request.method == SKILLS_GET:
            return routes.skills.get(request.name)
        return routes.resources.get(request.name)


_SEARCH_ENTRIES = (CALL_TOOL,)

_Answer = Callable[
    [GatewayForwarder, ForwardedRequest, "ToolContext"], Awaitable[Mapping[str, Any]]
]

_ANSWERS: Mapping[str, _Answer] = {
    TOOLS_CALL: GatewayForwarder._call_tool,
    PROMPTS_GET: GatewayForwarder._get_prompt,
    RESOURCES_READ: GatewayForwarder._read_resource,
    COMPLETION_COMPLETE: GatewayForwarder._complete,
    SKILLS_GET: GatewayForwarder._get_skill,
    TASKS_GET: GatewayForwarder._ask_about_task,
    TASKS_UPDATE: GatewayForwarder._ask_about_task,
    TASKS_CANCEL: GatewayForwarder._ask_about_task,
    RESOURCES_SUBSCRIBE: GatewayForwarder._subscribe,
    SUBSCRIPTIONS_LISTEN: GatewayForwarder._listen,
}


def _meta_for_server(params: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
    """Return the client's `_meta` without what describes its own connection (GATE-04).

    The correlation id is that of the call here, which may be the client's own (GATE-54).
    """
    meta = params.get("_meta")
    kept = meta.items() if isinstance(meta, dict) else ()
    passed = {name: value for name, value in kept if name not in _OF_CONNECTION}
    return {**passed, CORRELATION_KEY: context.correlation_id}


def _under(result: Mapping[str, Any], inner: str, outside: str) -> dict[str, Any]:
    """Return a result whose contents have the URI that the client asked for."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return dict(result)
    renamed = [
        {**each, "uri": outside} if isinstance(each, dict) and each.get("uri") == inner else each
        for each in contents
    ]
    return {**result, "contents": renamed}


_CODE_LENGTH = 22  # of base64: 132 bits
_PURPOSE = b"foundation-rt gateway task 1\n"


@define(eq=False, repr=False)
class TaskIds:
    """Makes ids for clients, and reads them.

    Args:
        state_key: in hex; None makes ids that this process alone reads.
    """

    state_key: str | None
    _key: bytes = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._key = os.urandom(32) if self.state_key is None else bytes.fromhex(self.state_key)

    def outside(self, server_id: str, task_id: str, owner: str) -> str:
        """Return the id for the client.

        Args:
            server_id: of the server that made the task.
            task_id: its id there.
            owner: the identity of the principal; "" where authentication is off.
        """
        content = urlsafe_b64encode(orjson.dumps([server_id, task_id])).decode().rstrip("=")
        return f"{content}.{self._code(content, owner)}"

    def inside(self, outside: object, owner: str) -> tuple[str, str] | None:
        """Return the server and the id there; None if this principal has no such id."""
        if not isinstance(outside, str) or not outside.isascii():
            return None
        content, _, code = outside.rpartition(".")
        if not hmac.compare_digest(code, self._code(content, owner)):
            return None
        padded = content + "=" * (-len(content) % 4)
        server_id, task_id = orjson.loads(urlsafe_b64decode(padded))
        return server_id, task_id

    def _code(self, content: str, owner: str) -> str:
        text = b"%s%s\n%s" % (_PURPOSE, owner.encode(), content.encode())
        code = urlsafe_b64encode(hmac.digest(self._key, text, "sha256")).decode()
        return code[:_CODE_LENGTH]
