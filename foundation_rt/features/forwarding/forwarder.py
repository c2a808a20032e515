"""The interface of a forwarder: what a server asks it, and what it answers (spec/forwarding.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from attrs import define, field, frozen

from ...base.shown import Shown

if TYPE_CHECKING:
    from ...kernel.invocation import Invocation
    from ..context import ToolContext

ListKind = Literal["tools", "resources", "resourceTemplates", "prompts", "skills"]
"""A list, by the member of its result that holds the entries."""

Entries = Sequence[Mapping[str, Any]]
"""The definitions of one list, as their server has sent them."""


@frozen
class ForwardTarget:
    """The server behind a request, as the forwarder knows it.

    Attributes:
        server: its name, for logs, the audit log, traces and metrics; one of a small set.
        timeout_ms: the deadline of the call, in ms; None means `tools.default_timeout_ms`.
        input_schema: of the tool; HTTP checks the headers that repeat arguments (FWD-30).
    """

    server: str
    timeout_ms: int | None = None
    input_schema: Mapping[str, Any] | None = field(default=None, eq=False, repr=False)


@define(eq=False, repr=False)
class ForwardedRequest(Shown):
    """A request that no tool, resource or prompt of the server itself answers.

    Attributes:
        method: such as `tools/call`.
        params: as they came, `_meta`, `inputResponses` and `requestState` included; not to be
            changed.
        name: of the tool or the prompt, or the URI; "" for lists and tasks.
        target: the server behind it; None where the forwarder knows no such name.
        result_type: the type of the result, where it is not `complete`.
    """

    method: str
    params: dict[str, Any]
    name: str
    target: ForwardTarget | None = field(default=None, init=False)
    result_type: str | None = field(default=None, init=False)

    def log_fields(self) -> dict[str, str]:
        """Return what log lines about the call have besides its ids and its name (FWD-11)."""
        fields = {} if self.target is None else {"server": self.target.server}
        return fields if self.result_type is None else {**fields, "resultType": self.result_type}


def forwarded(call: Invocation) -> ForwardedRequest:
    """Return the request of a call that a forwarder handles."""
    request: ForwardedRequest = call.parts[ForwardedRequest]
    return request


class ForwardedError(Exception):
    """Raised by a forwarder: the client gets exactly this JSON-RPC error (FWD-08).

    Args:
        code: the JSON-RPC error code.
        message: as its server has sent it.
        data: as its server has sent it; None is not sent.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class RequestForwarder(Protocol):
    """Answers the requests that the server has no tool, resource or prompt of its own for.

    `Server.forward` takes one. Every method but `forward` is called in place and must not block.
    When its lists change, the application calls `Server.list_changed`.
    """

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The `ServerCapabilities` that it adds to those of the server; read at each handshake.

        `resources`, `prompts` and `completions`, and the extensions for tasks and for skills, say
        which methods it is given. Tools it is always given.
        """
        ...

    @property
    def instructions(self) -> str | None:
        """Advice for the model, after that of the server; read at each handshake (FWD-28)."""
        ...

    def target(self, request: ForwardedRequest) -> ForwardTarget | None:
        """Return the server behind a request; None for a name that is not known.

        `forward` is called in either case. A name without a target counts as "other" in metrics,
        and all of them share one bucket of the rate limit.
        """
        ...

    def list_entries(self, kind: ListKind, context: ToolContext) -> Entries | Awaitable[Entries]:
        """Return the definitions of a list for this client, in any order.

        A plain function or a coroutine function; a plain one runs in place. What is prepared for a
        tuple is kept: return the same tuple as long as nothing has changed (FWD-06).

        Raises:
            ForwardedError, ToolError: the request fails with this error.
        """
        ...

    async def forward(self, request: ForwardedRequest, context: ToolContext) -> Mapping[str, Any]:
        """Return the result of a request, as its server has sent it.

        Raises:
            ForwardedError: the client gets this JSON-RPC error.
            ToolError: the call fails as that of any tool does.
        """
        ...

    def subscription_ended(self, request: ForwardedRequest) -> None:
        """Take note that a subscription has ended, whose request `forward` has accepted (FWD-25).

        It is the request that `forward` was given, and each is reported once. Called in any thread,
        under locks of the server: it may not call the server, and only hands the work on.
        """
        ...
