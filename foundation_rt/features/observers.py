"""Observers of an application: plain functions that are given every call that has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define

from ..errors import RegistrationError, ToolCompletionOutcome
from ..kernel.effects import CallCompleted, Event
from ..kernel.registry.tools import is_async_callable
from ..protocol.methods import TOOLS_CALL, facts
from .callables import takes

if TYPE_CHECKING:
    from ..kernel.engine.connection import Observe
    from ..kernel.session import Session

OTHER = "other"
"""The label of every name that no tool or prompt has."""


@define(eq=False, repr=False)
class CompletedCall:
    """A call that has ended, as an observer is given it (OPS-34).

    Attributes:
        method: `tools/call`, `resources/read`, `prompts/get`, `completion/complete`, or one of the
            author's own; with a forwarder also those of lists, tasks and subscriptions.
        name: the name of the tool or the prompt, or the URI, as the client wrote it.
        label: for metrics: the name of a tool or prompt that is registered, or that the forwarder
            knows, "other" for another name, and "" for the methods whose names are the client's
            choice.
        outcome: such as "success", "tool_error" or "timeout".
        error_code: such as "NOT_FOUND"; None without an error of a code.
        refusal: why the handler was not run, in a word; None if it was run.
        seconds: how long the handler ran; 0 if it was not run.
        run_id: of the call; None of one that was refused before it had one.
        correlation_id: of the client, or a generated one.
        transport: such as "stdio" or "http".
        server: the server that a forwarder has found for it; None of the server's own calls.
    """

    method: str
    name: str
    label: str
    outcome: str
    error_code: str | None
    refusal: str | None
    seconds: float
    run_id: str | None
    correlation_id: str
    transport: str
    server: str | None = None

    @property
    def succeeded(self) -> bool:
        """Return whether the client got what it asked for."""
        return self.outcome == ToolCompletionOutcome.SUCCESS


CallObserver = Callable[[CompletedCall], object]


def check_observer(function: Any, argument: str = "call") -> None:
    """Check that `function` is a plain function that can be called with one value.

    Args:
        function: the application's.
        argument: what the value is, for the error.

    Raises:
        RegistrationError: it is a coroutine function, or does not take one argument.
    """
    if is_async_callable(function) or not takes(function, 1):
        name = getattr(function, "__qualname__", repr(function))
        raise RegistrationError(f"observer {name!r}: write `def {name}({argument})`")


def as_observer(function: CallObserver, is_registered: Callable[[str, str], bool]) -> Observe:
    """Return the observer of connections that gives completed calls to `function`.

    Args:
        function: the application's.
        is_registered: returns whether a tool or prompt exists, by method and name.
    """

    def observe(session: Session, record: Event) -> None:
        if not isinstance(record, CallCompleted):
            return
        fields = record.fields
        method = fields.get("method", TOOLS_CALL)
        name = fields.get("toolName") or fields.get("name", "")
        label = ""
        if facts(method).target == "name":
            label = name if is_registered(method, name) else OTHER
        function(
            CompletedCall(
                method,
                name,
                label,
                fields["outcome"],
                fields.get("errorCode"),
                record.refusal,
                fields["durationMs"] / 1000,
                fields.get("runId"),
                fields["correlationId"],
                session.transport_type,
                fields.get("server"),
            )
        )

    return observe
