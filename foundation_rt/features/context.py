"""The context of a call, which its handler gets beside its arguments."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from attrs import define, field

from ..errors import UsageError
from ..kernel.session import NO_HEADERS
from ..protocol.methods import NOTIFICATIONS_MESSAGE, NOTIFICATIONS_PROGRESS
from ..protocol.peer import LOGGING_LEVELS, Peer, is_wanted
from ..protocol.revisions import NEWEST_HANDSHAKE_REVISION, REVISIONS

if TYPE_CHECKING:
    from typing import ParamSpec, Unpack

    from typing_extensions import TypeVar as TypeVarWithDefault

    from ..base.abort import AbortSignal
    from ..base.logs.logger import StructuredLogger
    from ..kernel.engine.connection import Connection
    from ..kernel.invocation import Invocation
    from ..protocol.content import ResourceContents
    from ..protocol.principal import Principal
    from .server_requests.elicitation import ElicitResult
    from .server_requests.requester import ServerRequester
    from .server_requests.requests import ServerRequest
    from .server_requests.roots import Root
    from .server_requests.sampling import SampleOptions, SampleResult, SamplingMessage
    from .session_log import SessionLog
    from .state.handler_state import HandlerState

    State = TypeVarWithDefault("State", default=Any)
    _P = ParamSpec("_P")
else:
    State = TypeVar("State")

_NO_CLIENT = Peer(REVISIONS[NEWEST_HANDSHAKE_REVISION], log_level=None)
"""The client of a context that a host made without a call."""

_T = TypeVar("_T")
_Content = TypeVar("_Content")


class Sent(Awaitable[None]):
    """The result of a method that has sent its message already: it may be awaited, or not.

    So the same call stands in a `def` and, as other SDKs have it, with `await` in an `async def`.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


_SENT = Sent()


def check_level(level: object) -> None:
    """Raise `UsageError` unless there is such a level of log messages to clients."""
    if level not in LOGGING_LEVELS:
        raise UsageError(f"a log message is {', '.join(LOGGING_LEVELS)}, not {level!r}")


def log_params(level: str, data: Any, logger: str | None) -> dict[str, Any]:
    """Return the params of a log message to a client; raise as `check_level` does."""
    check_level(level)
    params: dict[str, Any] = {"level": level, "data": data}
    if logger is not None:
        params["logger"] = logger
    return params


def _with_data(message: Any, data: dict[str, Any]) -> Any:
    return {"message": message, **data} if data else message


@define(eq=False, repr=False)
class ToolContext(Generic[State]):
    """The call that a handler is serving, of a tool or of another feature (CALL-11).

    ``ToolContext[AppState]`` in a signature says the type of `state` (TYPED-54).

    Attributes:
        run_id: UUID v4 of this invocation.
        correlation_id: the client's correlation id, or a generated one.
        abort_signal: fires when the result is no longer needed.
        state: the value of the server's lifespan hook; None without one.
    """

    run_id: str
    correlation_id: str
    abort_signal: AbortSignal
    _base_logger: StructuredLogger
    _call: Invocation | None = None
    _connection: Connection | None = None
    state: State = None  # type: ignore[assignment]
    _logger: StructuredLogger | None = field(default=None, init=False)
    _server_requester: ServerRequester | None = field(default=None, init=False)

    @property
    def logger(self) -> StructuredLogger:
        """A logger whose records carry the ids of this call; made when it is first used."""
        if self._logger is None:
            self._logger = self._base_logger.child(
                {"runId": self.run_id, "correlationId": self.correlation_id}
            )
        return self._logger

    @property
    def call(self) -> Invocation | None:
        """The call, as middleware sees it; None in a context that was made by hand."""
        return self._call

    @property
    def client(self) -> Peer:
        """The client, as it describes itself: its revision, capabilities and name."""
        return _NO_CLIENT if self._call is None else self._call.peer

    @property
    def principal(self) -> Principal | None:
        """The authenticated principal; None where authentication is off."""
        return None if self._call is None else self._call.principal

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the HTTP request that the operator allows, by lower-case name (HEAD-16).

        Empty over other transports. A name may be looked up in any case. The values can be secrets
        of users: their representation shows the names alone.
        """
        return NO_HEADERS if self._call is None else self._call.headers

    @property
    def session_key(self) -> str | None:
        """The key of the client's session; None in the stateless mode, which has none (LIFE-16).

        It is the same for all calls of a session, and cannot be guessed: for what a server keeps
        by session. `Server.on_session_end` is called with it when the session has ended.
        """
        if self._call is None or self._connection is None:
            return None
        return self._connection.session_key(self._call)

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

        call, connection = self._require_call()
        return connection.engine.part(States).of_call(call, connection)

    # -- notifications to the client -----------------------------------------------------------

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Awaitable[None]:
        """Send the progress of the call to the client, if it asked for that (NOTE-01).

        May be called in any thread, and awaited or not (NOTE-10). A value that is not above the one
        before is not sent (NOTE-02).

        Args:
            progress: a number that grows.
            total: the progress at the end, if it is known.
            message: the current step; not sent to revisions without such a message.
        """
        token = self._progress_token()
        if token is None:
            return _SENT
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None and math.isfinite(total):
            params["total"] = total
        if message is not None and self.client.revision.has("progress", "message"):
            params["message"] = message
        call, connection = self._require_call()
        connection.notify(call, NOTIFICATIONS_PROGRESS, params)
        return _SENT

    def _progress_token(self) -> str | int | None:
        """Return the token with which the client asked for progress; None if it did not."""
        if self._call is None or self._call.meta is None:
            return None
        token = self._call.meta.get("progressToken")
        return token if type(token) is str or type(token) is int else None

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Hand a notification of another server about this call on to the client (NOTE-09).

        It is sent as it came, unknown members included, where `report_progress` or `log` would send
        one: with the client's own progress token, and without what its revision lacks. May be
        called in any thread.

        Args:
            method: `notifications/progress` or `notifications/message`.
            params: of the notification.

        Raises:
            TypeError: `params` cannot be written as JSON.
            UsageError: the method or the level is another one.
        """
        from .passed_on import params_to_send

        sent = params_to_send(self.client, self._progress_token(), method, params)
        if sent is not None:
            call, connection = self._require_call()
            connection.notify(call, method, sent)

    def close_stream(self) -> None:
        """End the response stream of the client while the call goes on (HTTP-15).

        For calls that take long, over HTTP: the client reconnects for the result after
        `http.retry_ms`. May be called in any thread. Other transports, and revisions without
        streams that can be resumed, ignore it.
        """
        if self._call is not None and self._connection is not None:
            self._connection.close_stream(self._call)

    def log(self, level: str, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client, if it wants this level (NOTE-04).

        May be called in any thread, and awaited or not (NOTE-10). The server's own log is `logger`.

        Args:
            level: one of `protocol.peer.LOGGING_LEVELS`.
            data: a value that can be written as JSON.
            logger: the name of the logger, for the client.

        Raises:
            UsageError: there is no such level.
        """
        params = log_params(level, data, logger)
        if is_wanted(level, self.client.log_level):
            call, connection = self._require_call()
            connection.notify(call, NOTIFICATIONS_MESSAGE, params)
        return _SENT

    def debug(self, message: Any, *, logger: str | None = None, **data: Any) -> Awaitable[None]:
        """Send a log message of the level `debug` to the client; see `info`."""
        return self.log("debug", _with_data(message, data), logger)

    def info(self, message: Any, *, logger: str | None = None, **data: Any) -> Awaitable[None]:
        """Send a log message of the level `info` to the client, as `log` does (NOTE-11).

        Args:
            message: a text, or another value that can be written as JSON.
            logger: the name of the logger, for the client.
            data: facts; with any, an object is sent that has `message` and them.
        """
        return self.log("info", _with_data(message, data), logger)

    def warning(self, message: Any, *, logger: str | None = None, **data: Any) -> Awaitable[None]:
        """Send a log message of the level `warning` to the client; see `info`."""
        return self.log("warning", _with_data(message, data), logger)

    def error(self, message: Any, *, logger: str | None = None, **data: Any) -> Awaitable[None]:
        """Send a log message of the level `error` to the client; see `info`."""
        return self.log("error", _with_data(message, data), logger)

    @property
    def session_log(self) -> SessionLog:
        """The log of the client's session, for what goes on after this call (NOTE-07).

        Raises:
            UsageError: the context was made without a call.
        """
        from .session_log import session_log

        return session_log(*self._require_call())

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

        return await read_own_resource(*self._require_call(), uri, self)

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

        call, connection = self._require_call()
        if call.principal is None:
            return None
        return await connection.engine.part(ProviderTokens).find(call.principal)

    async def run_in_worker(
        self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Run a blocking function in a worker thread of the server; return its value (CALL-18).

        For `async def` handlers. A handler that is cancelled meanwhile goes on when the thread has
        ended: nothing of a call runs after its end.

        Raises:
            UsageError: the context was made without a call.
        """
        _, connection = self._require_call()
        return await connection.engine.coroutines.run_in_worker(partial(function, *args, **kwargs))

    @property
    def dependency_overrides(self) -> Mapping[Callable[..., Any], Callable[..., Any]]:
        """The functions that replace those of dependencies in this call; see `Server`."""
        return {} if self._connection is None else self._connection.engine.dependency_overrides

    @property
    def cancel_grace_ms(self) -> int:
        """The time that an `async def` handler may go on after its abort, in ms (TIME-04)."""
        if self._connection is None:
            return 0
        return self._connection.engine.config.tools.cancel_grace_ms

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
        found = self._server_requester
        if found is None:
            from .server_requests.stateless_calls import requester_of

            found = requester_of(*self._require_call(), self.abort_signal)
            self._server_requester = found
        return found

    def _require_call(self) -> tuple[Invocation, Connection]:
        if self._call is None or self._connection is None:
            raise UsageError("this context was made by hand: it has no client to talk to")
        return self._call, self._connection
