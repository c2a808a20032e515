"""The seam: how a feature joins the kernel, which names none.

A feature is known in three places. What does not use it has nothing of it, and takes the way
without features:

* a server has `Feature` objects: rows of tables, and hooks;
* a session has a `SessionPart` of each feature that it uses;
* a call, and the engine of a server, have `parts` for what a feature keeps there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dispatcher import Decision, Dispatcher
    from .effects import CallCompleted, Reply
    from .engine.executor import Engine, RunningCall
    from .invocation import Invocation

NO_ROWS: Mapping[Any, Any] = MappingProxyType({})


class Feature:
    """A feature of one server.

    A subclass states its rows, and overrides the hooks that it needs.

    Attributes:
        messages: the function that decides about a message, by the class of the message.
        notifications: the function that decides about a notification, by its method.
    """

    messages: Mapping[type, Decision] = NO_ROWS
    notifications: Mapping[str, Decision] = NO_ROWS

    def decide(self, dispatcher: Dispatcher) -> None:
        """Take note of what decides, before `join`."""

    def prepared(self, call: Invocation, params: Mapping[str, Any]) -> None:
        """Read what came with a call of the stateless mode, after step 5.

        Raises:
            JsonRpcError, ToolError: the call is refused.
        """

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

    def close(self) -> None:
        """Release what the feature holds: no call is served any more."""


def hooks(features: Iterable[Feature], name: str) -> tuple[Callable[..., Any], ...]:
    """Return the hook of that name of each feature that has it."""
    default = getattr(Feature, name)
    having = [each for each in features if getattr(type(each), name) is not default]
    return tuple(getattr(each, name) for each in having)


def use(dispatcher: Dispatcher, features: Iterable[Feature]) -> None:
    """Let features take part in the decisions of `dispatcher`."""
    dispatcher.calls.prepared = hooks(features, "prepared")
    dispatcher.calls.raised = hooks(features, "raised")
    for feature in features:
        dispatcher.messages.update(feature.messages)
        dispatcher.notifications.update(feature.notifications)
        feature.decide(dispatcher)


def lazy(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module, which is imported when the function is first called."""

    def call(*arguments: Any) -> Any:
        return getattr(import_module(module), name)(*arguments)

    return call
