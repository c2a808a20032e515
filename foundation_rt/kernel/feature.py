"""The seam: how a feature joins the kernel, which names none.

A feature is known in two places. What does not use it has nothing of it, and takes the way
without features:

* a server has `Feature` objects: rows of tables, and hooks;
* a session has a `SessionPart` of each feature that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ..protocol.jsonrpc import RequestId
    from .dispatcher import Dispatcher
    from .effects import Effect
    from .session import Session

    Decision = Callable[[Dispatcher, Session, Any], list[Effect]]

NO_ROWS: Mapping[Any, Any] = MappingProxyType({})


class Feature:
    """A feature of one server.

    A subclass states its rows, and overrides the hooks that it needs.

    Attributes:
        messages: the function that decides about a message, by the class of the message.
    """

    messages: ClassVar[Mapping[type, Decision]] = NO_ROWS


class SessionPart:
    """The state of a feature for one session, from its first use to the end of the session.

    The hooks are called under the lock of the session.
    """

    __slots__ = ()

    def holds(self, request_id: RequestId | None) -> bool:
        """Return whether a request has not been answered, although no call of it is in flight."""
        return False

    def ended(self, request_id: RequestId, effects: list[Effect]) -> list[Effect]:
        """Return what happens at the end of a call instead of `effects`.

        Args:
            request_id: the id of its request.
            effects: its end; without a reply if it was cancelled.
        """
        return effects

    def close(self) -> None:
        """Drop the state: the session has ended."""


def lazy(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module, which is imported when the function is first called."""

    def call(*arguments: Any) -> Any:
        return getattr(import_module(module), name)(*arguments)

    return call
