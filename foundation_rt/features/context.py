"""The context of a call, which its handler gets beside its arguments, with what features add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from ..kernel.context import HandlerContext, State

if TYPE_CHECKING:
    from typing import Unpack

    from ..kernel.engine.connection import Connection
    from ..kernel.invocation import Invocation
    from ..protocol.content import ResourceContents
    from .server_requests.elicitation import ElicitResult
    from .server_requests.requester import ServerRequester
    from .server_requests.requests import ServerRequest
    from .server_requests.roots import Root
    from .server_requests.sampling import SampleOptions, SampleResult, SamplingMessage
    from .state.handler_state import HandlerState

_Content = TypeVar("_Content")


class ToolContext(HandlerContext[State]):
    """The call that a handler is serving, of a tool or of another feature (CALL-11).

    ``ToolContext[AppState]`` in a signature says the type of `state` (TYPED-54).

    Attributes:
        run_id: UUID v4 of this invocation.
        correlation_id: the client's correlation id, or a generated one.
        abort_signal: fires when the result is no longer needed.
        state: the value of the server's lifespan hook; None without one.
    """

    __slots__ = ("_server_requester",)
    _server_requester: ServerRequester

    @property
    def session_state(self) -> HandlerState:
        """A dict that lasts from call to call, for the client alone (CALL-30).

        It is that of the session; for a client of the stateless mode, that of its principal. Names
        are strings, values are JSON. ::

            ctx.session_state["visits"] = ctx.session_state.get("visits", 0) + 1

        With `server.session_state_store` it is in Redis: a call has it as it was when the call
        first looked, and what the call has changed is written when its handler has ended (CALL-34).

        Raises:
            ToolError: RESOURCE_EXHAUSTED, it is too large, or too many principals have one;
                INTERNAL, Redis does not answer.
            UsageError: the client has neither session nor principal; or there are several worker
                processes, no Redis, and it has no session; or the handler runs in place, and the
                state is in Redis; or the context was made without a call.
        """
        from .state.states import States

        call, connection = self._own_call()
        return connection.engine.part(States).of_call(call, connection)

    # -- the server itself ----------------------------------------------------------------------

    async def read_resource(self, uri: str) -> tuple[ResourceContents, ...]:
        """Return the contents of a resource of this server, as its client would read them.

        The handler of the resource runs within this call, with this context (MRES-23).

        Raises:
            ToolError: NOT_FOUND; the server has no such resource, or the principal does not see it.
                UNAUTHORIZED; it lacks a scope. Or the handler's own.
            UsageError: the context was made without a call.
        """
        from .resources.own import read_own_resource

        return await read_own_resource(*self._own_call(), uri, self)

    async def provider_token(self) -> str | None:
        """Return the caller's token of the identity provider, refreshed if it ends within 60 s.

        With `authorization.keep_provider_tokens`, for calls over HTTP (AUTHZ-34). It is the
        person's own: it goes to the provider, and to nobody else.

        Returns:
            None if there is none, or not any more; then the person has to log in again.

        Raises:
            UsageError: the context was made without a call.
        """
        from .provider_tokens import ProviderTokens

        call, connection = self._own_call()
        if call.principal is None:
            return None
        return await connection.engine.part(ProviderTokens).find(call.principal)

    # -- requests to the client ----------------------------------------------------------------

    @overload
    async def elicit(
        self, message: str, response_type: type[_Content], *, key: str | None = None
    ) -> ElicitResult[_Content]: ...

    @overload
    async def elicit(
        self,
        message: str,
        response_type: list[str] | dict[str, dict[str, str]],
        *,
        key: str | None = None,
    ) -> ElicitResult[str]: ...

    @overload
    async def elicit(
        self,
        message: str,
        response_type: list[list[str]] | list[dict[str, dict[str, str]]],
        *,
        key: str | None = None,
    ) -> ElicitResult[list[str]]: ...

    @overload
    async def elicit(
        self, message: str, response_type: Mapping[str, Any], *, key: str | None = None
    ) -> ElicitResult[dict[str, Any]]: ...

    @overload
    async def elicit(
        self, message: str, response_type: None = None, *, key: str | None = None
    ) -> ElicitResult[None]: ...

    async def elicit(
        self, message: str, response_type: Any = None, *, key: str | None = None
    ) -> Any:
        """Have the user fill in a form; see `server_requests.elicitation.Elicit` (ASK-06).

        From revision 2026-07-28 on the handler ends here with an exception, and runs again from its
        start when the client has answered. So whatever it does before must be safe to repeat, and
        it must ask the same in the same words (ASK-10, ASK-13).

        Args:
            message: explains to the user what the form is for.
            response_type: what the form asks for: a class with fields, one value, a choice, or
                nothing but consent (ASK-48, ASK-49); or the JSON Schema of a flat object.
            key: identifies the request within the call; by default requests are numbered.

        Raises:
            ClientCapabilityError: the client does not support the request.
            ServerRequestError: the client refused, or its answer is not valid.
            UsageError: the request is not valid.
        """
        from .server_requests.elicitation import Elicit

        return await self._requester().ask_one(Elicit(message, response_type), key)

    async def elicit_url(
        self, message: str, url: str, *, elicitation_id: str = "", key: str | None = None
    ) -> ElicitResult[None]:
        """Have the user visit a page.

        See `server_requests.elicitation.ElicitUrl`; raises as `elicit` does.
        """
        from .server_requests.elicitation import ElicitUrl

        page = ElicitUrl(message, url, elicitation_id)
        result: ElicitResult[None] = await self._requester().ask_one(page, key)
        return result

    async def sample(
        self,
        messages: str | SamplingMessage | Sequence[str | SamplingMessage],
        *,
        max_tokens: int = 512,
        key: str | None = None,
        **options: Unpack[SampleOptions],
    ) -> SampleResult:
        """Have the client's model answer, with at most `max_tokens` tokens.

        See `server_requests.sampling.Sample`; raises as `elicit` does.
        """
        from .server_requests.sampling import Sample

        request = Sample(messages, max_tokens, **options)
        result: SampleResult = await self._requester().ask_one(request, key)
        return result

    async def roots(self, *, key: str | None = None) -> tuple[Root, ...]:
        """Return the roots of the client: the places it works in; raises as `elicit` does."""
        from .server_requests.roots import Roots

        roots: tuple[Root, ...] = await self._requester().ask_one(Roots(), key)
        return roots

    async def ask(self, requests: Mapping[str, ServerRequest]) -> dict[str, Any]:
        """Send several requests at once; the answers have the keys of the requests (ASK-03).

        Raises as `elicit` does: nothing is sent unless the client supports all of them.
        """
        return await self._requester().ask(requests)

    async def request_client(
        self, method: str, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Hand a request of another server on to the client; return its result as it came (ASK-42).

        For servers that stand before others, and clients with a handshake. To one without, return
        the other server's `input_required` result.

        Args:
            method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
            params: sent as they are, less a progress token.

        Raises:
            ClientCapabilityError: the client does not support the request; nothing was sent.
            ClientErrorResponse: the client answered with an error, which it has as it came.
            ServerRequestError: there is no result, or it is not an object.
            TypeError: `params` cannot be written as JSON.
            UsageError: the method is another one, `params` are no object, or the client is of the
                stateless mode.
        """
        from .server_requests.handed_on import HandedOn

        request = HandedOn(method, {} if params is None else params)
        result: dict[str, Any] = await self._requester().ask_one(request, None)
        return result

    def _requester(self) -> ServerRequester:
        found: ServerRequester | None = getattr(self, "_server_requester", None)
        if found is None:
            from .server_requests.client_input import ClientInput
            from .server_requests.open_requests import ConnectionSender

            call, connection = self._own_call()
            asking = connection.engine.part(ClientInput)
            sender = ConnectionSender(connection)
            found = asking.server_requester(call, sender, self.abort_signal)
            self._server_requester = found
        return found

    def _own_call(self) -> tuple[Invocation, Connection]:
        """Return the call, and its connection, which is that of an engine."""
        call, connection = self._require_call()
        return call, cast("Connection", connection)
