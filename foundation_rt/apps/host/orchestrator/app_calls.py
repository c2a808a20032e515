"""Apps of tools: their HTML, and the calls that they make (HAPP-10 to HAPP-24).

An app belongs to a call of the chat, and reaches the server of that call alone. Its calls are no
part of a turn: the model reads none of them. A call that needs an approval is answered with what to
ask people, and runs when it comes again with what they have decided; so nothing waits here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ....base.bounded_dict import BoundedDict
from ....client import App, InvalidResponseError, MCPError, ReadResult
from ....protocol.methods import RESOURCES_READ
from ...coordinator import CoordinatorError, ServerConnections, failure_of
from ..chat import ChatMessage, Role
from ..events import Decision
from ..tool_apps import ui_of
from .approvals import Subject
from .observation import TurnObservation
from .scope import session_key

if TYPE_CHECKING:
    from ...coordinator import ToolRegistryEntry
    from .scope import TurnServices

_TIMEOUT_MS = 10_000
_KEPT_S = 30.0
_MAX_KEPT = 4


class AppRequestError(Exception):
    """A request of a page for an app that has no result; says why."""


@frozen
class AppOrigin:
    """The call that an app belongs to.

    Attributes:
        message: by which the model asked for it.
        server_id: of the only server that the app reaches.
        uri: of the app.
    """

    message: ChatMessage
    server_id: str
    uri: str


@frozen
class AppDecision:
    """The decision of a person on a call of an app.

    Attributes:
        decision: one of those that were offered.
        meaning: of what was shown: the tool may have changed since.
    """

    decision: Decision
    meaning: str


@define(eq=False)
class AppCalls:
    """Serves the apps of all sessions. It belongs to one event loop."""

    _services: TurnServices
    _kept: dict[tuple[str, str, str | None], tuple[float, dict[str, Any]]] = field(
        factory=lambda: BoundedDict(_MAX_KEPT), init=False
    )

    def origin(self, session_id: str, call_id: str) -> AppOrigin:
        """Return where the app of a call comes from.

        Raises:
            AppRequestError: the chat has no such call, or it has no app.
        """
        for message in reversed(self._services.histories.get_history(session_id)):
            if message.call_id == call_id and message.is_call:
                uri = message.metadata.get("app")
                if isinstance(uri, str):
                    return AppOrigin(message, str(message.tool_name).partition(":")[0], uri)
                break
        raise AppRequestError("This call has no app.")

    async def open(self, session_id: str, call_id: str) -> dict[str, Any]:
        """Return an app, and what its page gives it (HAPP-11).

        Raises:
            AppRequestError: it cannot be shown.
        """
        origin = self.origin(session_id, call_id)
        page = await self._page(session_id, origin)
        entry = self._services.coordinator.entry(str(origin.message.tool_name))
        return {
            **page,
            "tool": {} if entry is None else dict(entry.definition.wire),
            "arguments": origin.message.arguments,
            "outcome": self._outcome(session_id, call_id),
        }

    def _outcome(self, session_id: str, call_id: str) -> Any:
        """Return the outcome of a call as it is stored; None as long as there is none."""
        for message in reversed(self._services.histories.get_history(session_id)):
            if message.call_id == call_id and message.role is Role.TOOL:
                return message.data
        return None

    async def _page(self, session_id: str, origin: AppOrigin) -> dict[str, Any]:
        """Return the HTML of an app; it is read once in 30 s."""
        connections = self._connections(origin)
        session = self._session(connections, session_id)
        key = connections.identity, origin.uri, session
        now = asyncio.get_running_loop().time()
        until, page = self._kept.get(key, (0.0, {}))
        if now < until:
            return page
        result = await self._read(connections, origin.uri, session)
        page = _shown(result, origin.uri, connections.definitions("resources"))
        self._kept[key] = now + _KEPT_S, page
        return page

    async def read(self, session_id: str, call_id: str, uri: str) -> dict[str, Any]:
        """Return a resource of the app's server, as it came (HAPP-22).

        Raises:
            AppRequestError: there is no result.
        """
        connections = self._connections(self.origin(session_id, call_id))
        return await self._read(connections, uri, self._session(connections, session_id))

    async def _read(
        self, connections: ServerConnections, uri: str, session: str | None
    ) -> dict[str, Any]:
        try:
            return await connections.request(
                RESOURCES_READ, {"uri": uri}, session=session, timeout_ms=_TIMEOUT_MS
            )
        except MCPError as error:
            raise AppRequestError(
                f"The server did not give {uri[:200]}: {error.message[:300]}"
            ) from None

    def _connections(self, origin: AppOrigin) -> ServerConnections:
        connections = self._services.coordinator.server(origin.server_id)
        if connections is None:
            raise AppRequestError(
                f"The server {origin.server_id} of this app is not there any more."
            )
        return connections

    def _session(self, connections: ServerConnections, session_id: str) -> str | None:
        """Return the session of a request: without `isolation`, calls share a connection."""
        isolation = connections.settings.isolation
        return None if isolation is None else session_key(session_id)

    # -- calls of tools

    async def call(
        self,
        session_id: str,
        call_id: str,
        tool: str,
        arguments: Mapping[str, Any],
        decided: AppDecision | None = None,
    ) -> dict[str, Any]:
        """Call a tool of the app's server (HAPP-20, HAPP-21).

        Args:
            session_id, call_id: of the call that the app belongs to.
            tool: its name, as the server has it.
            arguments: by name; JSON.
            decided: by a person on this call; None if nobody was asked.

        Returns:
            `{"result": ...}` as it came, or `{"approval": ...}`: what to ask people.

        Raises:
            AppRequestError: the call was refused, or has no result.
        """
        origin = self.origin(session_id, call_id)
        entry = self._entry(origin, tool)
        observation = TurnObservation(session_id, self._services.new_id(), self._services.metrics)
        name = entry.qualified_name
        issues = self._services.coordinator.validate(name, arguments)
        if issues:
            listed = "; ".join(f"{issue.path or 'they'} {issue.message}" for issue in issues)
            raise AppRequestError(f"Invalid arguments for tool: {tool}: {listed}"[:1000])
        subject = self._services.approvals.tool(entry)
        asked = await self._asked(session_id, entry, arguments, subject, decided)
        if decided is not None and asked is None:
            observation.approval(name, call_id, decided.decision)
        if decided is not None and decided.decision == "deny":
            raise AppRequestError("The user refused this call.")
        if asked is not None:
            return {"approval": asked}
        if self._services.approvals.tool(self._entry(origin, tool)) != subject:
            raise AppRequestError("The tool has changed meanwhile.")
        return {"result": await self._run(observation, session_id, call_id, name, arguments)}

    def _entry(self, origin: AppOrigin, tool: str) -> ToolRegistryEntry:
        entry = self._services.coordinator.entry(f"{origin.server_id}:{tool}")
        if entry is None or entry.server_id != origin.server_id:
            raise AppRequestError(f"The server of this app has no tool {tool[:100]}.")
        if not ui_of(entry).for_app:
            raise AppRequestError(f"The tool {tool[:100]} is not for apps.")
        return entry

    async def _asked(
        self,
        session_id: str,
        entry: ToolRegistryEntry,
        arguments: Mapping[str, Any],
        subject: Subject,
        decided: AppDecision | None,
    ) -> dict[str, Any] | None:
        """Return what to ask people about a call; None if it may run, or they have decided."""
        approvals, server = self._services.approvals, entry.server_id
        if approvals.needs_none(entry) or await approvals.may_run(session_id, server, subject):
            return None
        offered = await approvals.offered(session_id, server, subject)
        is_about_this = decided is not None and decided.meaning == subject.meaning
        if decided is not None and is_about_this and decided.decision in offered:
            await approvals.remember(session_id, server, subject, decided.decision)
            return None
        return {
            "kind": "tool",
            "tool": entry.definition.name,
            "server": server,
            "arguments": dict(arguments),
            "annotations": dict(entry.definition.annotations),
            "description": entry.description or "",
            "decisions": offered,
            "meaning": subject.meaning,
        }

    async def _run(
        self,
        observation: TurnObservation,
        session_id: str,
        call_id: str,
        name: str,
        arguments: Mapping[str, Any],
    ) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        began, code = loop.time(), ""
        observation.call_began(name, call_id)
        is_error = True
        try:
            result = await self._services.coordinator.call(
                name,
                arguments,
                session=session_key(session_id),
                correlation_id=observation.turn_id,
            )
            is_error = result.is_error
            return dict(result.wire)
        except CoordinatorError as error:
            failed = failure_of(error)
            code = str(failed.tool_code)
            raise AppRequestError(failed.message[:1000]) from None
        finally:
            ms = round((loop.time() - began) * 1000)
            observation.call_ended(name, call_id, ms, is_error, code)


def _shown(
    result: Mapping[str, Any], uri: str, listed: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the HTML of an app and what it asks for, of a result of `resources/read` (HAPP-12).

    Raises:
        AppRequestError: it is no app.
    """
    meta = next((each.get("_meta") for each in listed if each.get("uri") == uri), None)
    try:
        contents = ReadResult.read(result).contents
        app = App.read(uri, contents, meta if isinstance(meta, Mapping) else {})
    except InvalidResponseError as error:
        raise AppRequestError(error.message) from None
    return {"html": app.html, "ui": {"csp": app.csp.wire(), "prefersBorder": app.prefers_border}}
