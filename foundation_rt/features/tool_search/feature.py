"""The server lists three tools instead of all (SEARCH-01).

A call of `call_tool` becomes one of the tool that it names before anything else looks at it. So
limits of rates, scopes, schemas, logs, audit records and tasks are those of that tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import orjson

from ...base.app_format import ToolUi
from ...base.close_names import did_you_mean
from ...base.cursors import page_of
from ...base.exact_json import dumps
from ...errors import UsageError
from ...kernel.call_lifecycle import no_such_tool
from ...kernel.feature import RuntimeFeature
from ...kernel.methods.lists import answer_list
from ...kernel.registry.tools import ToolPart
from ...protocol.methods import TOOLS_CALL, TOOLS_LIST
from ..tool_versions import is_shown_to_models, meant_tool, shown_tools, written
from .definitions import (
    CALL_TOOL,
    DEFAULT_RESULTS,
    DESCRIBE_TOOL,
    SEARCH_TOOLS,
    read_call,
)
from .ranking import SearchableTool, search

if TYPE_CHECKING:
    from ...kernel.dispatcher import Decide, Dispatcher
    from ...kernel.effects import Effect
    from ...kernel.invocation import Invocation
    from ...kernel.registry.tools import RegisteredTool, ToolRegistry
    from ...kernel.session import Session
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ...protocol.principal import Principal
    from ...protocol.revisions import Revision
    from ..context import ToolContext
    from ..forwarding.forwarder import RequestForwarder


class _OfSearch(ToolPart):
    """A tool is one of those that stand for all others."""

    __slots__ = ()


class ToolSearch(RuntimeFeature):
    """Lists, finds and calls the tools of a server.

    Args:
        registry: of the server; two tools are added to it.
        pinned: the names of tools that are listed as well.
        forwarder: that of the server, which can have none.

    Raises:
        RegistrationError: the author of the server has given one of the names to another tool.
        UsageError: there is no tool of a pinned name, or there is a forwarder.
    """

    def __init__(
        self, registry: ToolRegistry, pinned: Sequence[str], forwarder: RequestForwarder | None
    ) -> None:
        if forwarder is not None:
            raise UsageError(
                'tools.expose = "search" is for the tools of a server itself; a gateway has'
                ' gateway.expose = "search"'
            )
        self.requests = {TOOLS_LIST: self._list}
        self._registry = registry
        self._known: WeakKeyDictionary[RegisteredTool, SearchableTool] = WeakKeyDictionary()
        self._listed = {each.definition.name for each in map(self._pinned, pinned)}
        for definition, handler in ((SEARCH_TOOLS, self._search), (DESCRIBE_TOOL, self._describe)):
            self._listed.add(definition.name)
            present = registry.find(definition.name)
            if present is None or _OfSearch not in present.parts:  # else of an earlier runtime
                registry.register(definition, handler, parts=[_OfSearch()])

    def _pinned(self, name: str) -> RegisteredTool:
        tools = {each: tool for tool in self._registry.all_registered() for each in tool.names}
        if name not in tools:
            hint = did_you_mean(name, tools)
            raise UsageError(f"tools.pinned names {name!r:.100}, and there is no such tool{hint}")
        return tools[name]

    # -- the call ------------------------------------------------------------------------------

    def around(
        self, session: Session, peer: Peer | None, request: Request, decide: Decide
    ) -> list[Effect]:
        """Let a call of `call_tool` be one of the tool that it names (SEARCH-03)."""
        params = request.params
        is_call = request.method == TOOLS_CALL and type(params) is dict
        if is_call and params.get("name") == CALL_TOOL["name"]:
            given = params.get("arguments")
            name = given.get("name") if type(given) is dict else None
            if type(name) is str and not self._is_for_apps(name, params, session.principal):
                request.params = read_call(params)
        return decide()

    def find(self, call: Invocation, params: dict[str, Any]) -> bool:
        """Refuse a call of `call_tool` that names no tool, or itself."""
        if call.name == CALL_TOOL["name"]:
            name = read_call(params)["name"]
            if self._is_for_apps(name, params, call.principal):
                raise no_such_tool(name)
            read_call({**params, "arguments": {}})
        return False

    def _is_for_apps(
        self, name: str, params: Mapping[str, Any], principal: Principal | None
    ) -> bool:
        """Return whether there is a tool of this name that no model may call (APP-10)."""
        tool = meant_tool(self._registry, {**params, "name": name}, principal)
        return tool is not None and not ToolUi.read(tool.definition.meta).for_model

    # -- the list ------------------------------------------------------------------------------

    @property
    def differs(self) -> bool:
        """Return whether principals may see different lists."""
        return self._registry.differs

    def page(
        self, cursor: str | None, size: int, revision: Revision, principal: Principal | None
    ) -> tuple[list[orjson.Fragment], str | None]:
        """Return a page of what is listed, and the next cursor; raise `InvalidCursor`."""
        wires = {
            name: written(versions, revision)
            for name, versions in self._shown_to(principal).items()
            if name in self._listed
        }
        wires[CALL_TOOL["name"]] = CALL_TOOL
        names, following = page_of(sorted(wires), cursor, size)
        return [orjson.Fragment(dumps(wires[name])) for name in names], following

    def _list(
        self, dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
    ) -> list[Effect]:
        return answer_list(dispatcher, session, peer, request, "tools", self)

    def _shown_to(self, principal: Principal | None) -> dict[str, list[RegisteredTool]]:
        """Return the tools that a principal may use and sees (AUTH-26, VIS-02)."""
        return shown_tools(self._registry, principal)

    # -- the tools -----------------------------------------------------------------------------

    def _search(self, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        newest = (versions[0] for versions in self._shown_to(context.principal).values())
        seen = (each for each in newest if _OfSearch not in each.parts)
        found = search(map(self._searchable, seen), arguments["query"])
        limit = arguments.get("limit", DEFAULT_RESULTS)
        return {"tools": [tool.summary() for tool in found[:limit]], "total": len(found)}

    def _searchable(self, tool: RegisteredTool) -> SearchableTool:
        known = self._known.get(tool)
        if known is None:
            about = {"title": tool.definition.title, "description": tool.definition.description}
            known = self._known[tool] = SearchableTool(tool.definition.name, None, about)
        return known

    def _describe(self, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        name = arguments["name"]
        versions = self._shown_to(context.principal).get(name)
        if versions is None:  # of NAME@VERSION, that alone
            tool = self._registry.seen(name, context.principal)
            if tool is None or not is_shown_to_models(tool, context.principal):
                raise no_such_tool(name)
            versions = [tool]
        return {**written(versions, context.client.revision), "name": name}
