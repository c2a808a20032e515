"""The apps of a server: what it declares, who sees which tools, and which tools name which apps.

An app is a resource. Here stands what a resource has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen
from orjson import Fragment

from ...base.app_format import EVERYONE, EXTENSION, SCHEME, SETTINGS, UI, ToolUi, is_app_uri
from ...base.close_names import close_names
from ...base.cursors import page_of
from ...base.exact_json import dumps
from ...errors import RegistrationError
from ...kernel.feature import RuntimeFeature
from ...kernel.methods.lists import answer_list, list_tools
from ...protocol.methods import TOOLS_LIST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import Effect
    from ...kernel.engine.executor import Engine
    from ...kernel.registry.catalog import Page
    from ...kernel.registry.tools import ToolRegistry
    from ...kernel.session import Session
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ...protocol.principal import Principal
    from ...protocol.revisions import Revision
    from ..resources.feature import Resources
    from ..resources.registry import ResourceRegistry


class Apps(RuntimeFeature):
    """The apps of a server.

    Attributes:
        resources: the apps are among them.
    """

    def __init__(self, resources: Resources) -> None:
        self.resources: ResourceRegistry = resources.registry
        self._is_started = False

    def advertise(self, capabilities: dict[str, Any]) -> None:
        """Add the extension to the capabilities of the server (APP-03)."""
        declared = {**capabilities.get("extensions", {}), EXTENSION: SETTINGS}
        capabilities["extensions"] = declared

    def join(self, engine: Engine) -> None:
        """Answer lists of tools; raise `RegistrationError` if one names no app (APP-06)."""
        for tool in engine.dispatcher.calls.registry.all_registered():
            self._require(tool.registered_name, ToolUi.read(tool.definition.meta))
        self._is_started = True
        if engine.config.tools.expose == "all":  # else the list is that of the search
            engine.dispatcher.methods[TOOLS_LIST] = _list_tools

    def meta_of(
        self, function: Callable[..., Any], options: Mapping[str, Any], ui: object
    ) -> dict[str, Any]:
        """Return the `_meta` of a tool with its option `ui`.

        Raises:
            RegistrationError: `ui` is none; or the server has been started, and has no such app.
        """
        name = str(options.get("name") or getattr(function, "__name__", ""))
        read = read_tool_ui(name, ui)
        if self._is_started:
            self._require(name, read)
        return {**(options.get("meta") or {}), UI: read.wire()}

    def _require(self, tool: str, ui: ToolUi) -> None:
        uri = ui.resource_uri
        if uri is None or self._has(uri):
            return
        known = [each.definition.uri for each in self.resources.resources.all_registered()]
        apps = [each for each in known if each.startswith(SCHEME)]
        nearest = close_names(uri, apps, 1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f'add it: @server.app("{uri}")'
        raise RegistrationError(f"tool {tool!r} is refused: there is no app {uri!r}; {hint}")

    def _has(self, uri: str) -> bool:
        templates = self.resources.templates.all_registered()
        return self.resources.resources.registered(uri) is not None or any(
            each.template.match(uri) is not None for each in templates
        )


def read_tool_ui(tool: str, given: object) -> ToolUi:
    """Return the option `ui` of a tool: the URI of an app, or a `ToolUi`.

    Raises:
        RegistrationError: it is neither, or not valid.
    """
    ui = ToolUi(given) if isinstance(given, str) else given
    if not isinstance(ui, ToolUi):
        problem = 'is the URI of an app, "ui://orders/table", or a ToolUi'
    elif ui.resource_uri is not None and not is_app_uri(ui.resource_uri):
        problem = f"names an app by its URI, which begins with {SCHEME}: not {ui.resource_uri!r}"
    elif not ui.visibility or not all(each in EVERYONE for each in ui.visibility):
        problem = 'has a visibility of "model", "app" or both: ToolUi(uri, visibility=("app",))'
    else:
        return ui
    raise RegistrationError(f"tool {tool!r} is refused: ui {problem}")


def _list_tools(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Return a page of the tools; those for apps alone to clients that have apps (APP-08)."""
    tools = dispatcher.calls.registry
    if all(ToolUi.read(each.definition.meta).for_model for each in tools.entries()):
        return list_tools(dispatcher, session, peer, request)
    entries = _ToolsOf(tools, peer.can("extensions", EXTENSION))
    return answer_list(dispatcher, session, peer, request, "tools", entries)


@frozen
class _ToolsOf:
    """The tools of a server as one client sees them."""

    tools: ToolRegistry
    has_apps: bool
    differs = True

    def page(
        self, cursor: str | None, size: int, revision: Revision, principal: Principal | None
    ) -> Page:
        """Return a page of entries and the next cursor; raise `InvalidCursor`."""
        if self.has_apps:
            return self.tools.page(cursor, size, revision, principal)
        from ..tool_versions import shown_tools, written

        shown = shown_tools(self.tools, principal)
        names, following = page_of([*shown], cursor, size)
        return [Fragment(dumps(written(shown[name], revision))) for name in names], following
