"""The seam: how a feature joins the kernel, which names none.

A feature is known in three places. What does not use it has nothing of it, and takes the way
without features:

* a server has `RuntimeFeature` objects: rows of tables, and hooks;
* a session has a `SessionPart` of each feature that it uses;
* a call, a tool, and the dispatcher and the engine of a server, have `parts` for what a feature
  keeps there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..protocol.methods import METHODS

if TYPE_CHECKING:
    from ..base.jsonschema.header_params import HeaderParameter
    from ..errors import StructuredError
    from ..protocol.jsonrpc import Request
    from ..protocol.peer import Peer
    from ..protocol.principal import Principal
    from .dispatcher import Decide, Decision, Dispatcher
    from .effects import CallCompleted, Effect, Reply
    from .engine.executor import Engine, RunningCall
    from .invocation import Invocation
    from .methods import Method
    from .session import Session

NO_ROWS: Mapping[Any, Any] = MappingProxyType({})


class RuntimeFeature:
    """A feature of one server that comes with the runtime.

    A subclass states its rows, and overrides the hooks that it needs. What authors derive from is
    `foundation_rt.Feature` (EXT-12).

    Attributes:
        requests: the function that answers a request, by its method. One that MCP does not have
            is a call (FEAT-01), and every revision has it.
        messages: the function that decides about a message, by the class of the message.
        notifications: the function that decides about a notification, by its method.
    """

    requests: Mapping[str, Method] = NO_ROWS
    messages: Mapping[type, Decision] = NO_ROWS
    notifications: Mapping[str, Decision] = NO_ROWS

    @property
    def needs_event_loop(self) -> bool:
        """Return whether some of its handlers and waits are tasks."""
        return False

    def decide(self, dispatcher: Dispatcher) -> None:
        """Take note of what decides, before `join`."""

    def instructions(self) -> str | None:
        """Return advice for the model, after that of the server; read at each handshake."""

    def advertise(self, capabilities: dict[str, Any]) -> None:
        """Add to the capabilities of the server; called at each handshake."""

    def around(
        self, session: Session, peer: Peer | None, request: Request, decide: Decide
    ) -> list[Effect]:
        """Return what `decide` returns, or something else: called before step 1.

        Args:
            session: has the principal and the headers of the request.
            peer: the client; None before a handshake.
            request: of any method.
            decide: decides about the request; a call that waits is decided about later.
        """
        return decide()

    def answer(self, session: Session, peer: Peer, request: Request) -> list[Effect] | None:
        """Answer a request of any method but `tools/call`; None: its method answers.

        Raises:
            JsonRpcError, ToolError: the request is refused.
        """

    def find(self, call: Invocation, params: dict[str, Any]) -> bool:
        """Give a `tools/call` its handler, in step 5, where no such tool is registered."""
        return False

    def knows(self, method: str, name: str) -> bool:
        """Return whether `find` or `answer` has a tool or a prompt of this name."""
        return False

    def label(self, call: Invocation, request: Request) -> None:
        """Name the target of a call that nothing has checked yet."""

    def header_parameters(self, name: str) -> tuple[HeaderParameter, ...]:
        """Return the arguments of a tool that `find` has, and that HTTP headers repeat."""
        return ()

    def dropped(self, call: Invocation) -> None:
        """Take note that the client is not given what the handler of `call` has returned."""

    def admit(self, call: Invocation) -> None:
        """Refuse a call of a tool that some clients may not call, in step 5 (CALL-43).

        Raises:
            JsonRpcError, ToolError: the call is refused.
        """

    def allow(self, call: Invocation) -> None:
        """Refuse a call of any method, after `admit` and before it takes a slot (EXT-13).

        Called under the lock of its session: it must not block. The arguments of a tool have not
        been validated yet.

        Raises:
            JsonRpcError, ToolError: the call is refused.
        """

    def prepared(self, call: Invocation, params: Mapping[str, Any]) -> None:
        """Read what came with a call of the stateless mode, whose handler is the server's.

        Called after step 5.

        Raises:
            JsonRpcError, ToolError: the call is refused.
        """

    def ready(self, call: Invocation) -> list[Effect]:
        """Return what happens before the handler of a call starts whose tool has parts.

        Called after step 7.

        Raises:
            JsonRpcError, ToolError: the call is refused.
        """
        return []

    def raised(
        self, call: Invocation, error: BaseException, duration_ms: float
    ) -> tuple[Reply, CallCompleted] | None:
        """Return the reply and the record of a call whose handler raised `error`, in step 10.

        Returns:
            None where it is an error like any other.

        Raises:
            ToolError: the call fails with this error instead.
        """

    def join(self, engine: Engine) -> None:
        """Take note of the server, which has been composed and is not served yet."""

    def starting(self, run: RunningCall) -> Awaitable[None] | None:
        """Return what is awaited before the `async def` handler of a call starts; None for nothing.

        Called in the task of the call. Whatever is to be done when the handler has ended, and may
        wait, is added to `RunningCall.finishers`.
        """

    def session_ended(self, key: str) -> None:
        """Take note that a session has ended whose key a handler has read (LIFE-18).

        Called in any thread, after the last of its handlers has ended.
        """

    def forget(self, session_id: str) -> None:
        """Drop what is kept for a session that has ended, by the id it has in all workers."""

    def stopping(self, reason: str) -> list[Effect]:
        """End what goes on beside the calls of connections: the server stops."""
        return []

    async def opening(self, principal: Principal | None) -> StructuredError | None:
        """Return why a client may not open a session over HTTP now; None if it may."""

    def close(self) -> Awaitable[None] | None:
        """Release what the feature holds: no call is served any more; return what is awaited."""


def hooks(features: Iterable[RuntimeFeature], name: str) -> tuple[Callable[..., Any], ...]:
    """Return the hook of that name of each feature that has it."""
    default = getattr(RuntimeFeature, name)
    having = [each for each in features if getattr(type(each), name) is not default]
    return tuple(getattr(each, name) for each in having)


def use(dispatcher: Dispatcher, features: Iterable[RuntimeFeature]) -> None:
    """Let features take part in the decisions of `dispatcher`."""
    for name in ("find", "admit", "allow", "prepared", "ready", "raised", "dropped"):
        setattr(dispatcher.calls, name, hooks(features, name))
    for name in (
        "around",
        "instructions",
        "advertise",
        "answer",
        "knows",
        "label",
        "header_parameters",
    ):
        setattr(dispatcher, name, hooks(features, name))
    for feature in features:
        dispatcher.methods.update(feature.requests)
        dispatcher.own.update(feature.requests.keys() - METHODS.keys())
        dispatcher.messages.update(feature.messages)
        dispatcher.notifications.update(feature.notifications)
        feature.decide(dispatcher)
