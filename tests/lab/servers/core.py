"""The pure core, wired by hand: no event loop, no threads, no time but what a test says."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import orjson
from attrs import define, field

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import SecuritySection
from foundation_rt.base.config.settings import (
    AdminPolicy,
    ResourcesSection,
    ServerConfig,
    ServerSection,
    ToolsSection,
    TransportSection,
)
from foundation_rt.base.ids import SequentialIds
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.builtin import built_in
from foundation_rt.features.composition import ServerOptions
from foundation_rt.features.registries import Features
from foundation_rt.kernel.call_lifecycle import CallLifecycle
from foundation_rt.kernel.dispatcher import Dispatcher
from foundation_rt.kernel.effects import Log, Notify, Reply
from foundation_rt.kernel.engine.directory import SessionDirectory
from foundation_rt.kernel.execution_limits import ResourceManager
from foundation_rt.kernel.feature import use
from foundation_rt.kernel.invocation import CallOutcome, Invocation
from foundation_rt.kernel.records import TOOL_CALL_COMPLETED
from foundation_rt.kernel.registry.tools import ToolDefinition, ToolRegistry
from foundation_rt.kernel.replies import ResultWriter, ServerInfo
from foundation_rt.kernel.session import Session, TransportType, create_session
from foundation_rt.protocol.framing import LineTooLong
from foundation_rt.protocol.jsonrpc import parse

if TYPE_CHECKING:
    from foundation_rt.kernel.effects import Effect
    from foundation_rt.kernel.registry.tools import Handler
    from foundation_rt.kernel.runtime import Runtime

ANY_OBJECT: dict[str, Any] = {"type": "object"}

_SECTIONS = {
    "server": ServerSection,
    "tools": ToolsSection,
    "resources": ResourcesSection,
    "security": SecuritySection,
    "transport": TransportSection,
}


def run_id(number: int) -> str:
    """Return the run id that `SequentialIds` hands out as the n-th."""
    return f"00000000-0000-4000-8000-{number:012x}"


def correlation_id(number: int) -> str:
    """Return the n-th correlation id."""
    return f"00000000-0000-4000-9000-{number:012x}"


def connection_id(number: int = 1) -> str:
    """Return the n-th connection correlation id."""
    return f"00000000-0000-4000-a000-{number:012x}"


def make_config(sections: Mapping[str, Mapping[str, Any]] | None = None) -> ServerConfig:
    """Return a configuration from a mapping like that of a file."""
    given = {name: dict(values) for name, values in (sections or {}).items()}
    if "admin_policy" in given.get("tools", {}):
        given["tools"]["admin_policy"] = AdminPolicy(**given["tools"]["admin_policy"])
    return ServerConfig(**{name: _SECTIONS[name](**given[name]) for name in given})


def request(method: str, params: Any = None, request_id: Any = 1) -> bytes:
    """Return a request as a line; `params` of None are left out."""
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return orjson.dumps(message if params is None else {**message, "params": params})


def notification(method: str, params: Any = None) -> bytes:
    """Return a notification as a line; `params` of None are left out."""
    message = {"jsonrpc": "2.0", "method": method}
    return orjson.dumps(message if params is None else {**message, "params": params})


INITIALIZE = request("initialize", {"protocolVersion": "2025-11-25"}, "initialize")
INITIALIZED = notification("notifications/initialized")


class ListObserver:
    """An observer of a registry that records the kind of each list that changed."""

    def __init__(self) -> None:
        self.notified: list[str] = []

    def list_changed(self, kind: str, *, seen_by: Any = None) -> None:
        self.notified.append(kind)


@define(eq=False, repr=False)
class Core:
    """Everything that decides, and one session.

    Attributes:
        sink: keeps what the components log by themselves; effects are not performed.
    """

    config: ServerConfig
    registry: ToolRegistry
    resources: ResourceManager
    dispatcher: Dispatcher
    sink: MemorySink
    ids: SequentialIds
    clock: ManualClock
    logger: StructuredLogger
    features: Features
    session: Session = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.session = self.open_session()

    def open_session(self, transport_type: TransportType = "memory") -> Session:
        """One more session, at its start."""
        return create_session(transport_type, self.ids.connection_correlation_id(), self.logger)

    def handshake(self) -> Core:
        """Bring the session to RUNNING."""
        self.dispatch(INITIALIZE)
        self.dispatch(INITIALIZED)
        return self

    def add(self, name: str, schema: Mapping[str, Any] = ANY_OBJECT, **options: Any) -> None:
        """Register a tool whose handler must not be called: the core calls none."""
        self.registry.register(ToolDefinition(name, "", schema), _never, **options)

    def dispatch(self, line: bytes | LineTooLong) -> list[Effect]:
        """Return the effects of one line."""
        message = line if isinstance(line, LineTooLong) else parse(line)
        return self.dispatcher.dispatch(self.session, message)

    def answer(self, line: bytes | LineTooLong) -> Any:
        """Return the only reply to a line, decoded."""
        [line] = replies(self.dispatch(line))
        return line

    def call(
        self, name: str, arguments: Any = None, request_id: str | int = 1, **params: Any
    ) -> list[Effect]:
        """Return the effects of a `tools/call`."""
        whole = {"name": name, "arguments": {} if arguments is None else arguments, **params}
        return self.dispatch(request("tools/call", whole, request_id))

    def begin(
        self, name: str, arguments: Any = None, request_id: str | int = 1, **params: Any
    ) -> Invocation:
        """Return the invocation of a `tools/call`, which has no other effect."""
        [call] = self.call(name, arguments, request_id, **params)
        assert isinstance(call, Invocation)
        return call

    def conclude(
        self, call: Invocation, outcome: CallOutcome, duration_ms: float = 1.5
    ) -> list[Effect]:
        """Return the effects of the end of a handler."""
        return self.dispatcher.conclude(call, outcome, duration_ms)


def _never(arguments: dict[str, Any], context: Any) -> Any:
    raise AssertionError("the pure core calls no handler")


def make_core(
    config: ServerConfig | Mapping[str, Mapping[str, Any]] | None = None,
    *,
    tools: Mapping[str, Handler] | None = None,
    instructions: str | None = None,
    level: str = "debug",
) -> Core:
    """Return a core with ids that count, a clock that stands still and no memory in use."""
    whole = config if isinstance(config, ServerConfig) else make_config(config)
    clock, sink, ids = ManualClock(), MemorySink(), SequentialIds()
    logger = StructuredLogger(sink, clock, level)
    registry = ToolRegistry(logger)
    for name, handler in (tools or {}).items():
        registry.register(ToolDefinition(name, "", ANY_OBJECT), handler)
    resources = ResourceManager(whole, lambda: 0)
    results = ResultWriter(ServerInfo(whole.server.name, whole.server.version, instructions))
    calls = CallLifecycle(resources, whole.tools, registry, ids, results)
    dispatcher = Dispatcher(results, calls, whole.server.page_size)
    directory = SessionDirectory()
    parts = SimpleNamespace(
        config=whole, clock=clock, logger=logger, directory=directory, registry=registry
    )
    features = Features()
    joining = built_in(cast("Runtime", parts), ServerOptions(features=features))
    use(dispatcher, joining)
    return Core(whole, registry, resources, dispatcher, sink, ids, clock, logger, features)


def replies(effects: list[Effect]) -> list[dict[str, Any]]:
    """Return the lines among effects, decoded."""
    return [orjson.loads(each.line) for each in effects if isinstance(each, Reply | Notify)]


def completions(effects: list[Effect]) -> list[Log]:
    """Return the completion records among effects."""
    return [
        each for each in effects if isinstance(each, Log) and each.message == TOOL_CALL_COMPLETED
    ]


def tool_error(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the error that a failed `tools/call` carries."""
    result = reply["result"]
    assert result.keys() == {"content", "isError"}
    assert result["isError"] is True
    [content] = result["content"]
    assert content.keys() == {"type", "text"}
    assert content["type"] == "text"
    error: dict[str, Any] = orjson.loads(content["text"])
    return error
