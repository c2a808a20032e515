"""The methods of MCP: a row for each, with every fact about it that anybody asks.

Whoever needs a fact reads it here, so that a new method is one row and the code that answers it. A
name is that of the method in capitals. Applications may import this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

COMPLETION_COMPLETE: Final = "completion/complete"
INITIALIZE: Final = "initialize"
LOGGING_SET_LEVEL: Final = "logging/setLevel"
PING: Final = "ping"
PROMPTS_GET: Final = "prompts/get"
PROMPTS_LIST: Final = "prompts/list"
RESOURCES_LIST: Final = "resources/list"
RESOURCES_READ: Final = "resources/read"
RESOURCES_SUBSCRIBE: Final = "resources/subscribe"
RESOURCES_TEMPLATES_LIST: Final = "resources/templates/list"
RESOURCES_UNSUBSCRIBE: Final = "resources/unsubscribe"
SERVER_DISCOVER: Final = "server/discover"
SUBSCRIPTIONS_LISTEN: Final = "subscriptions/listen"
TASKS_CANCEL: Final = "tasks/cancel"
TASKS_GET: Final = "tasks/get"
TASKS_LIST: Final = "tasks/list"
TASKS_RESULT: Final = "tasks/result"
TASKS_UPDATE: Final = "tasks/update"
TOOLS_CALL: Final = "tools/call"
TOOLS_LIST: Final = "tools/list"

ELICITATION_CREATE: Final = "elicitation/create"
ROOTS_LIST: Final = "roots/list"
SAMPLING_CREATE_MESSAGE: Final = "sampling/createMessage"

NOTIFICATIONS_CANCELLED: Final = "notifications/cancelled"
NOTIFICATIONS_ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"
NOTIFICATIONS_INITIALIZED: Final = "notifications/initialized"
INITIALIZED_SHORT: Final = "initialized"
"""As some clients write `notifications/initialized`; both may be requests, too (LIFE-05)."""
NOTIFICATIONS_MESSAGE: Final = "notifications/message"
NOTIFICATIONS_PROGRESS: Final = "notifications/progress"
NOTIFICATIONS_PROMPTS_LIST_CHANGED: Final = "notifications/prompts/list_changed"
NOTIFICATIONS_RESOURCES_LIST_CHANGED: Final = "notifications/resources/list_changed"
NOTIFICATIONS_RESOURCES_UPDATED: Final = "notifications/resources/updated"
NOTIFICATIONS_ROOTS_LIST_CHANGED: Final = "notifications/roots/list_changed"
NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
NOTIFICATIONS_TASKS: Final = "notifications/tasks"
NOTIFICATIONS_TOOLS_LIST_CHANGED: Final = "notifications/tools/list_changed"

_Modes = frozenset[Literal["handshake", "stateless"]]
_NO_MODE: _Modes = frozenset()
_HANDSHAKE: _Modes = frozenset(("handshake",))
_STATELESS: _Modes = frozenset(("stateless",))
_BOTH = _HANDSHAKE | _STATELESS


class Method(NamedTuple):
    """The facts about the requests of one method.

    A named tuple: as an attrs class it would cost every start 1.5 %.

    Attributes:
        modes: the protocol modes whose revisions have it (REV-04, REV-05).
        since: the oldest of these revisions.
        of_server: whether a server sends it to its client.
        capability: what the side that answers has to declare; None: nothing.
        target: the member of the params that names what the request is for.
        is_mirrored: whether the header `Mcp-Name` repeats that member (SEP-2243, SEP-2663).
        entries: the member of the result that holds the entries of a page.
        is_call: it has a deadline, a record, an audit record, a count and scopes (FEAT-01).
        may_ask: its handler may ask the client (ASK-02).
        asks_nothing: a server needs nothing of its client to answer it (QUEST-24).
        is_repeatable: it may run twice without harm (CREQ-05).
        opens_session: there is no session before it that could end or have it cancelled.
        keeps_state: it leaves something in its session.
        event: the noun of its audit records (OPS-11).
        attribute: the attribute of its span that has the target (OPS-17).
    """

    modes: _Modes = _NO_MODE
    since: str = "2024-11-05"
    of_server: bool = False
    capability: str | None = None
    target: str | None = None
    is_mirrored: bool = False
    entries: str | None = None
    is_call: bool = False
    may_ask: bool = False
    asks_nothing: bool = False
    is_repeatable: bool = False
    opens_session: bool = False
    keeps_state: bool = False
    event: str = "REQUEST"
    attribute: str | None = None

    @property
    def mirrored(self) -> str | None:
        """The member of the params that the header `Mcp-Name` repeats; None: there is none."""
        return self.target if self.is_mirrored else None


def _list(capability: str, entries: str) -> Method:
    return Method(
        modes=_BOTH, capability=capability, entries=entries, asks_nothing=True, is_repeatable=True
    )


METHODS: Final[Mapping[str, Method]] = {
    COMPLETION_COMPLETE: Method(
        modes=_BOTH,
        capability="completions",
        target="ref",
        is_call=True,
        is_repeatable=True,
        event="COMPLETION",
    ),
    INITIALIZE: Method(modes=_HANDSHAKE, asks_nothing=True, opens_session=True),
    NOTIFICATIONS_INITIALIZED: Method(modes=_HANDSHAKE),
    INITIALIZED_SHORT: Method(modes=_HANDSHAKE),
    LOGGING_SET_LEVEL: Method(
        modes=_HANDSHAKE,
        capability="logging",
        asks_nothing=True,
        is_repeatable=True,
        keeps_state=True,
    ),
    PING: Method(modes=_HANDSHAKE, asks_nothing=True, is_repeatable=True),
    PROMPTS_GET: Method(
        modes=_BOTH,
        capability="prompts",
        target="name",
        is_mirrored=True,
        is_call=True,
        may_ask=True,
        is_repeatable=True,
        event="PROMPT_GET",
        attribute="gen_ai.prompt.name",
    ),
    PROMPTS_LIST: _list("prompts", "prompts"),
    RESOURCES_LIST: _list("resources", "resources"),
    RESOURCES_READ: Method(
        modes=_BOTH,
        capability="resources",
        target="uri",
        is_mirrored=True,
        is_call=True,
        may_ask=True,
        is_repeatable=True,
        event="RESOURCE_READ",
        attribute="mcp.resource.uri",
    ),
    RESOURCES_SUBSCRIBE: Method(
        modes=_HANDSHAKE,
        capability="resources",
        target="uri",
        asks_nothing=True,
        is_repeatable=True,
        keeps_state=True,
    ),
    RESOURCES_TEMPLATES_LIST: _list("resources", "resourceTemplates"),
    RESOURCES_UNSUBSCRIBE: Method(
        modes=_HANDSHAKE,
        capability="resources",
        target="uri",
        asks_nothing=True,
        is_repeatable=True,
    ),
    SERVER_DISCOVER: Method(
        modes=_STATELESS, asks_nothing=True, is_repeatable=True, opens_session=True
    ),
    SUBSCRIPTIONS_LISTEN: Method(modes=_STATELESS, asks_nothing=True),
    TASKS_CANCEL: Method(modes=_STATELESS, target="taskId", is_mirrored=True),
    TASKS_GET: Method(modes=_STATELESS, target="taskId", is_mirrored=True, is_repeatable=True),
    TASKS_LIST: Method(entries="tasks", is_repeatable=True),
    TASKS_RESULT: Method(is_repeatable=True),
    TASKS_UPDATE: Method(modes=_STATELESS, target="taskId", is_mirrored=True),
    TOOLS_CALL: Method(
        modes=_BOTH,
        capability="tools",
        target="name",
        is_mirrored=True,
        is_call=True,
        may_ask=True,
        event="TOOL_INVOCATION",
        attribute="gen_ai.tool.name",
    ),
    TOOLS_LIST: _list("tools", "tools"),
    ELICITATION_CREATE: Method(
        modes=_BOTH, since="2025-06-18", of_server=True, capability="elicitation"
    ),
    ROOTS_LIST: Method(modes=_BOTH, of_server=True, capability="roots"),
    SAMPLING_CREATE_MESSAGE: Method(modes=_BOTH, of_server=True, capability="sampling"),
}
"""The methods of MCP's requests. `tasks/list` and `tasks/result` are of a draft: clients send them
to servers that have them."""

LIST_METHODS: Final[Mapping[str, str]] = {
    method.entries: name for name, method in METHODS.items() if method.entries and method.modes
}
"""The methods that list what a server has, by the member of the result with the entries."""

CLIENT_CAPABILITIES: Final[Mapping[str, str]] = {
    name: method.capability
    for name, method in METHODS.items()
    if method.of_server and method.capability
}
"""The capability of a client that each method of a server's requests needs."""

_OTHER: Final = Method()


def facts(method: str | None) -> Method:
    """Return the facts about a method; of one that MCP does not have, none is known."""
    return METHODS.get(method or "", _OTHER)


def methods_of(mode: str, revision: str, *, of_server: bool = False) -> frozenset[str]:
    """Return the methods that a revision has for the requests of one side."""
    return frozenset(
        name
        for name, method in METHODS.items()
        if mode in method.modes and method.since <= revision and method.of_server is of_server
    )
