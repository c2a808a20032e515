"""Requests that become calls of a forwarder (spec/forwarding.md).

What the server has itself answers first. Everything else of the methods in `routes.ROUTES`, and of
`tools/call`, becomes a call whose handler is the forwarder: it takes a slot, has a deadline, can be
cancelled, and ends with one record. A server without a forwarder imports nothing of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.cursors import InvalidCursor, read_cursor
from ...base.jsonschema.compilation import CompiledSchema
from ...base.skill_format import SKILLS_GET, SKILLS_LIST
from ...errors import JsonRpcError, RegistrationError, describe_exception
from ...kernel.feature import RuntimeFeature
from ...kernel.registry.tool_definition import ToolDefinition
from ...kernel.registry.tools import ExecutionMode, RegisteredTool, is_async_callable
from ...kernel.replies import invalid_params, method_not_found
from ...protocol.methods import (
    RESOURCES_SUBSCRIBE,
    RESOURCES_UNSUBSCRIBE,
    SUBSCRIPTIONS_LISTEN,
    TASKS_GET,
    TOOLS_CALL,
)
from ..handler_calls import admit, assign_handler_ids, result_refused
from ..prompts.feature import Prompts
from ..resources.feature import Resources
from ..skills.feature import Skills
from ..subscriptions.methods import subscriptions_of
from ..tasks.support import EXTENSION, require_extension
from . import subscriptions
from .calls import FORWARDED, FORWARDED_LIST, FORWARDED_TOOL, answer_error, is_error_of_another
from .forwarder import ForwardedRequest, forwarded
from .lists import ForwardedLists, merged_page
from .routes import ROUTES

if TYPE_CHECKING:
    from ...base.jsonschema.header_params import HeaderParameter
    from ...base.logs.logger import StructuredLogger
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import CallCompleted, Effect, Reply
    from ...kernel.invocation import CallKind, Invocation
    from ...kernel.registry.catalog import Registry
    from ...kernel.session import Session
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..context import ToolContext
    from .forwarder import ListKind, RequestForwarder
    from .routes import Route


@define(eq=False, repr=False)
class Forwarding(RuntimeFeature):
    """Hands requests to the forwarder of a server.

    Attributes:
        tool: stands for every tool of the forwarder, whose server checks the arguments itself.
    """

    forwarder: RequestForwarder
    _logger: StructuredLogger
    dispatcher: Dispatcher = field(init=False)
    tool: RegisteredTool = field(init=False)
    _lists: ForwardedLists = field(factory=ForwardedLists, init=False)
    _list_execution: ExecutionMode = field(init=False)
    _header_parameters: dict[str, tuple[Any, tuple[HeaderParameter, ...]]] = field(
        factory=dict, init=False
    )

    def __attrs_post_init__(self) -> None:
        self.tool = RegisteredTool(
            definition=ToolDefinition("forwarded", "", {}),
            registered_name="forwarded",
            handler=self._forward,
            checks=(CompiledSchema("draft-07", _take_any),),
            header_parameters=(),
            execution=ExecutionMode.ASYNC,
            timeout_ms=None,
            is_dynamic=False,
            tool_type=None,
            reserved=False,
        )
        is_async = is_async_callable(self.forwarder.list_entries)
        self._list_execution = ExecutionMode.ASYNC if is_async else ExecutionMode.INLINE

    @property
    def needs_event_loop(self) -> bool:
        """Return True: its handlers are tasks."""
        return True

    def decide(self, dispatcher: Dispatcher) -> None:
        """Take part in the decisions of a server."""
        self.dispatcher = dispatcher
        subscriptions_of(dispatcher).on_grant_end = self.on_ended
        for method in (SKILLS_LIST, SKILLS_GET):  # an extension of every revision, like own methods
            dispatcher.methods.setdefault(method, _refuse)
            dispatcher.own.add(method)

    def on_ended(self, request: ForwardedRequest) -> None:
        """Report the end of a subscription to the forwarder."""
        try:
            self.forwarder.subscription_ended(request)
        except Exception as error:
            self._logger.error("forwarder failed", {"error": describe_exception(error)})

    # -- what there is -------------------------------------------------------------------------

    def instructions(self) -> str | None:
        """Return the advice of the forwarder (FWD-28)."""
        return self.forwarder.instructions

    def advertise(self, own: dict[str, Any]) -> None:
        """Add the capabilities of the forwarder to those of the server (FWD-02)."""
        for name, value in self.forwarder.capabilities.items():
            present = own.get(name, value)
            if isinstance(present, Mapping) and isinstance(value, Mapping):
                present = {**value, **present}
            own[name] = present

    def knows(self, method: str, name: str) -> bool:
        """Return whether the forwarder has a tool or a prompt of this name."""
        request = ForwardedRequest(method, {"name": name}, name)
        return self.forwarder.target(request) is not None

    def header_parameters(self, name: str) -> tuple[HeaderParameter, ...]:
        """Return the arguments of a tool of the forwarder that headers repeat (FWD-30).

        None of a tool whose annotations break the rules: its clients drop it.
        """
        target = self.forwarder.target(ForwardedRequest(TOOLS_CALL, {"name": name}, name))
        schema = None if target is None else target.input_schema
        if type(schema) is not dict:
            return ()
        known = self._header_parameters.get(name)
        if known is None or known[0] is not schema:
            from ...base.jsonschema.header_params import header_parameters

            try:
                known = schema, header_parameters(schema, ())
            except (RegistrationError, AttributeError, TypeError):  # not checked by anyone
                known = schema, ()
            self._header_parameters[name] = known
        return known[1]

    def offers_topics(self, kind: str) -> bool:
        """Return whether the forwarder has subscriptions to resources, or to tasks."""
        method = RESOURCES_SUBSCRIBE if kind == "resource" else TASKS_GET
        return self._route(method) is not None

    def _route(self, method: str) -> Route | None:
        """Return the route of a method that the forwarder offers."""
        route = ROUTES.get(method)
        if route is None or not route.is_offered(self.forwarder.capabilities):
            return None
        return route

    # -- calls ---------------------------------------------------------------------------------

    def find(self, call: Invocation, params: dict[str, Any]) -> bool:
        """Make the forwarder the handler of a `tools/call` (FWD-03)."""
        self._take(call, FORWARDED_TOOL, params)
        call.tool = self.tool
        return True

    def answer(self, session: Session, peer: Peer, request: Request) -> list[Effect] | None:
        """Answer a request of any method but `tools/call`, unless the server has what it names.

        Raises:
            JsonRpcError, ToolError: the request is refused.
        """
        route = self._route(request.method)
        if route is None:
            return None
        if route.list_kind is not None:
            return self._list(route.list_kind, session, peer, request)
        if request.method == SUBSCRIPTIONS_LISTEN:
            return subscriptions.listen(self, session, peer, request)
        name = route.name_of(request)
        if route.owns(self.dispatcher, session, request):
            return None
        if request.method in _SUBSCRIBING:
            return _SUBSCRIBING[request.method](self, session, peer, request, name)
        if route.capability == EXTENSION:
            require_extension(peer)
        call = self.begin(FORWARDED, session, peer, request, name)
        return admit(self.dispatcher.calls, call)

    def raised(
        self, call: Invocation, error: BaseException, duration_ms: float
    ) -> tuple[Reply, CallCompleted] | None:
        """Return the reply with the error of another server, as it came (FWD-08)."""
        if ForwardedRequest not in call.parts or not is_error_of_another(error):
            return None
        return answer_error(self.dispatcher.calls, call, error, duration_ms)

    def dropped(self, call: Invocation) -> None:
        """Report the end of a subscription that the client is not given (FWD-25)."""
        if call.kind in (subscriptions.FORWARDED_SUBSCRIBE, subscriptions.FORWARDED_LISTEN):
            self.on_ended(forwarded(call))

    def label(self, call: Invocation, request: Request) -> None:
        """Name the target of a call that nothing has checked yet (FWD-11)."""
        if not isinstance(request.params, dict):
            return
        if call.method == TOOLS_CALL:
            if self.dispatcher.calls.registry.get(call.name) is None:
                self._take(call, FORWARDED_TOOL, request.params)
            return
        route = self._route(call.method)
        try:
            if route is not None and not route.owns(self.dispatcher, call.session, request):
                self._take(call, FORWARDED, request.params)
        except JsonRpcError:
            return  # it names nothing

    def begin(
        self, kind: CallKind, session: Session, peer: Peer, request: Request, name: str
    ) -> Invocation:
        """Return a call of the forwarder with its ids; raise `JsonRpcError` if it is malformed."""
        params = request.members
        arguments = params.get("arguments")
        call = assign_handler_ids(
            self.dispatcher.calls,
            kind,
            session,
            peer,
            request,
            name,
            arguments if type(arguments) is dict else {},
        )
        self._take(call, kind, params)
        return call

    def _take(self, call: Invocation, kind: CallKind, params: dict[str, Any]) -> None:
        call.kind = kind
        request = ForwardedRequest(call.method, params, call.name)
        request.target = target = self.forwarder.target(request)
        call.keep(request)
        call.handler, call.execution = self._forward, ExecutionMode.ASYNC
        timeout_ms = None if target is None else target.timeout_ms
        call.timeout_ms = timeout_ms or self.dispatcher.calls.limits.default_timeout_ms

    def _forward(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        return self.forwarder.forward(_request_of(context), context)

    # -- lists ---------------------------------------------------------------------------------

    def _list(self, kind: ListKind, session: Session, peer: Peer, request: Request) -> list[Effect]:
        """Begin the call that lists what the server and the forwarder have (FWD-06)."""
        call = self.begin(FORWARDED_LIST, session, peer, request, "")
        after = _read_position(forwarded(call).params.get("cursor"))
        call.handler, call.execution = partial(self._entries, kind), self._list_execution
        call.to_result = partial(self._page, kind, after)
        return admit(self.dispatcher.calls, call, needs_slot=call.execution is ExecutionMode.ASYNC)

    def _entries(self, kind: ListKind, arguments: dict[str, Any], context: ToolContext) -> Any:
        return self.forwarder.list_entries(kind, context)

    def _page(
        self, kind: ListKind, after: str | None, entries: Any, call: Invocation
    ) -> dict[str, Any]:
        """Return the result of a list: what the server has, and `entries` of the forwarder."""
        if isinstance(entries, (str, bytes, Mapping)) or not hasattr(entries, "__iter__"):
            raise result_refused("The list is no list.", "result_not_a_list")
        page, next_cursor = merged_page(
            self._own(kind),
            self._lists.prepare(kind, entries),
            after,
            self.dispatcher.page_size,
            call.peer.revision,
            call.principal,
        )
        hints = self.dispatcher.results.cache_hints(call.peer, differs=True)
        result: dict[str, Any] = {kind: page, **hints}
        if next_cursor is not None:
            result["nextCursor"] = next_cursor
        return result

    def _own(self, kind: ListKind) -> Registry[Any] | None:
        """Return the entries of the server itself."""
        if kind == "tools":
            return self.dispatcher.calls.registry
        if kind == "prompts":
            prompts: Prompts = self.dispatcher.parts[Prompts]
            return prompts.registry
        if kind == "skills":
            skills: Skills | None = self.dispatcher.parts.get(Skills)
            return None if skills is None else skills.registry
        offered: Resources = self.dispatcher.parts[Resources]
        resources = offered.registry
        return resources.resources if kind == "resources" else resources.templates


def _refuse(dispatcher: Dispatcher, session: Session, peer: Peer, request: Request) -> Any:
    """Refuse a method that neither the server nor its forwarder has."""
    raise method_not_found(request)


_SUBSCRIBING = {
    RESOURCES_SUBSCRIBE: subscriptions.subscribe,
    RESOURCES_UNSUBSCRIBE: subscriptions.unsubscribe,
}


def _request_of(context: ToolContext) -> ForwardedRequest:
    assert context.call is not None  # the runtime has made the context
    return forwarded(context.call)


def _read_position(cursor: Any) -> str | None:
    """Return the key after which a page begins; None for the first page (PAGE-03).

    Raises:
        JsonRpcError: the server has not sent this cursor.
    """
    try:
        return None if cursor is None else read_cursor(cursor)
    except InvalidCursor:
        raise invalid_params("there is no such cursor", "invalid_cursor") from None


def _take_any(arguments: Any) -> tuple[()]:
    return ()
