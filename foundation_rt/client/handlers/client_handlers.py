"""The responses to a server's requests for user input, for model output and for roots.

The handlers that a client has decide which capabilities it declares (QUEST-01). A server sends its
requests while it handles one of the client: in the handshake mode as messages of their own, in the
stateless mode in an `input_required` result (spec/client-handlers.md).
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.abort import call_in_loop
from ...base.shown import Shown
from ...errors import UsageError
from ...features.server_requests.errors import InvalidClientResult
from ...features.server_requests.roots import Root
from ...kernel.registry.tools import is_async_callable
from ...protocol.methods import CLIENT_CAPABILITIES
from .params import ServerRequestRefused, malformed
from .server_requests import (
    at_once,
    check_declared,
    failed,
    guarded,
    handler_failed,
    not_allowed,
    read_input_requests,
    unusable,
)

if TYPE_CHECKING:
    from ...features.server_requests.elicitation import ElicitResult
    from ...features.server_requests.sampling import SampleResult
    from ...protocol.revisions import Revision
    from .elicitation import ElicitationRequest, ElicitationUrlRequest
    from .sampling import SamplingRequest

    Sampled = SampleResult | Mapping[str, Any] | None
    SamplingHandler = Callable[[SamplingRequest], Sampled | Awaitable[Sampled]]

    FilledIn = ElicitResult[Any] | Mapping[str, Any] | None
    ElicitationHandler = Callable[[ElicitationRequest], FilledIn | Awaitable[FilledIn]]

    Visited = ElicitResult[Any] | bool | None
    ElicitationUrlHandler = Callable[[ElicitationUrlRequest], Visited | Awaitable[Visited]]

    Place = Root | Path | str
    """A root; a path, whose URI is made; or a `file:` URI."""

    Places = Iterable[Place]
    RootsHandler = Callable[[], Places | Awaitable[Places]]


MAX_HANDLERS = 100
"""Most handlers of one `ClientHandlers` that run at a time (QUEST-13)."""

log = logging.getLogger("foundation_rt.client")


@define(eq=False, repr=False)
class HandlerCall(Shown):
    """A request of the server that was read, and its handler.

    Attributes:
        handler: a function, `def` or `async def`.
        arguments: what it is called with.
        write: turns the handler's return value into the result to send.
    """

    method: str
    handler: Any
    arguments: tuple[Any, ...]
    write: Callable[[Any], dict[str, Any]]


def _check_handler(instance: Any, attribute: Any, value: Any) -> None:
    if value is not None and not callable(value):
        raise UsageError(f"{attribute.name} must be a function that answers, not {value!r}")


@define(eq=False, repr=False, kw_only=True)
class ClientHandlers:
    """The handlers of one client, or of several that share them.

    A handler is `def` or `async def`, and may run for several requests at a time; each run of a
    `def` handler has a thread of its own. Handlers do not know which server asks: give each client
    its own where the user has to see it.

    Args:
        sampling: has a language model continue a `SamplingRequest`; returns a `SampleResult`, or
            its object on the wire, or None to decline.
        elicitation: shows an `ElicitationRequest`; returns what was filled in, as an object (what
            it lacks has its default), or an `ElicitResult`, or None to decline.
        elicitation_url: shows an `ElicitationUrlRequest`; returns whether the user goes there, or
            an `ElicitResult`, or None to decline.
        roots: places, each a `pathlib.Path`, a `file:` URI or a `Root`; or a function that
            returns them, called for each request.
        sampling_tools: whether `sampling` can offer a model the tools of a request.

    Raises:
        UsageError: a handler cannot be called, a root is no place, or `sampling_tools` stands
            without `sampling`.
    """

    sampling: SamplingHandler | None = field(default=None, validator=_check_handler)
    elicitation: ElicitationHandler | None = field(default=None, validator=_check_handler)
    elicitation_url: ElicitationUrlHandler | None = field(default=None, validator=_check_handler)
    roots: Places | RootsHandler | None = None
    sampling_tools: bool = False
    _open: threading.BoundedSemaphore = field(init=False)
    _known_roots: dict[str, Any] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._open = threading.BoundedSemaphore(MAX_HANDLERS)
        if self.sampling_tools and self.sampling is None:
            raise UsageError("sampling_tools says what `sampling` can do: give that too")
        if self.roots is not None and not callable(self.roots):
            try:
                self._known_roots = write_roots(self.roots)
            except InvalidClientResult as error:
                raise UsageError("{} {}".format(*error.issues[0])) from None

    def capabilities(self, revision: Revision) -> dict[str, Any]:
        """Return the capabilities that a server sees (QUEST-01)."""
        given: dict[str, Any] = {}
        modes = self._modes(revision)
        if modes:
            knows_modes = "url" in revision.elicitation_modes
            given["elicitation"] = {mode: {} for mode in modes} if knows_modes else {}
        if self.roots is not None:
            may_change = callable(self.roots) and not revision.is_stateless
            given["roots"] = {"listChanged": True} if may_change else {}
        if self.sampling is not None:
            given["sampling"] = {"tools": {}} if self._samples_with_tools(revision) else {}
        return given

    async def handle(self, method: str, params: Any, revision: Revision) -> dict[str, Any]:
        """Return the result of one request of the server.

        Args:
            method: of the request.
            params: as they came; may be any JSON.
            revision: of the session.

        Raises:
            ServerRequestRefused: it is refused; carries the error for the server.
        """
        return await self._ask(self._prepare(method, params, revision))

    async def handle_all(self, requests: Any, revision: Revision) -> dict[str, dict[str, Any]]:
        """Return the `inputResponses` to `inputRequests`, whose handlers run at once (QUEST-14).

        Raises:
            InvalidResponseError: they are not requests that this client allows; no handler ran.
            ServerRequestRefused: one was refused; the others were cancelled.
        """
        asked = self._prepare_all(requests, revision)
        return await at_once({key: self._ask(one) for key, one in asked.items()})

    # -- reading requests

    def _modes(self, revision: Revision) -> list[str]:
        given = {"form": self.elicitation, "url": self.elicitation_url}
        return [mode for mode in given if given[mode] and mode in revision.elicitation_modes]

    def _samples_with_tools(self, revision: Revision) -> bool:
        return self.sampling_tools and revision.has("sampling", "tools")

    def _prepare_all(self, requests: Any, revision: Revision) -> dict[str, HandlerCall]:
        asked = {}
        for key, (method, params) in read_input_requests(requests).items():
            try:
                asked[key] = self._prepare(method, params, revision)
            except ServerRequestRefused as refused:
                raise not_allowed(refused) from None
        return asked

    def _prepare(self, method: str, params: Any, revision: Revision) -> HandlerCall:
        """Read a request; raise `ServerRequestRefused` if it may not be sent (QUEST-02, -03)."""
        check_declared(method, self.capabilities(revision), revision)
        capability = CLIENT_CAPABILITIES[method]
        if capability == "roots":
            return self._prepare_roots(method)
        if type(params) is not dict:
            raise malformed("", "are not an object")
        if capability == "sampling":
            return self._prepare_sampling(method, params, revision)
        return self._prepare_elicitation(method, params, revision)

    def _prepare_roots(self, method: str) -> HandlerCall:
        if callable(self.roots):
            return HandlerCall(method, self.roots, (), write_roots)
        return HandlerCall(method, _nothing, (), lambda _: dict(self._known_roots or {}))

    def _prepare_sampling(
        self, method: str, params: dict[str, Any], revision: Revision
    ) -> HandlerCall:
        from .sampling import read_sampling

        with_tools = self._samples_with_tools(revision)
        request, write = read_sampling(params, revision, with_tools=with_tools)
        return HandlerCall(method, self.sampling, (request,), write)

    def _prepare_elicitation(
        self, method: str, params: dict[str, Any], revision: Revision
    ) -> HandlerCall:
        from .elicitation import read_form, read_page

        mode = "form" if params.get("mode") is None else params["mode"]
        if mode not in self._modes(revision):
            raise malformed("/mode", "is one that this client did not declare")
        if mode == "url":
            page, write = read_page(params, revision)
            return HandlerCall(method, self.elicitation_url, (page,), write)
        form, write = read_form(params)
        return HandlerCall(method, self.elicitation, (form,), write)

    # -- running handlers

    async def _ask(self, prepared: HandlerCall) -> dict[str, Any]:

        if not self._open.acquire(blocking=False):
            raise failed("Too many requests of the server are open", "too_many_server_requests")
        work = run_handler(prepared.handler, prepared.arguments, self._open.release)
        return _written(prepared, await guarded(prepared.method, work))


async def _nothing() -> None:
    """Do nothing: the roots are known without a handler."""


def _written(prepared: HandlerCall, returned: Any) -> dict[str, Any]:
    try:
        return prepared.write(returned)
    except ServerRequestRefused:
        raise
    except InvalidClientResult as error:
        # The names of the wrong members alone: their values may be the user's secrets.
        issues = "; ".join(f"{path or 'it'} {what}" for path, what in error.issues)
        raise unusable(prepared.method, issues) from None
    except Exception as error:  # the code of the value's class: it may be an object of any class
        raise handler_failed(prepared.method, error) from error


async def run_handler(
    handler: Callable[..., Any], arguments: tuple[Any, ...], ended: Callable[[], object]
) -> Any:
    """Run a handler on the event loop or in a thread; return what it returns, raise what it raises.

    Args:
        handler: a function, `def` or `async def`.
        arguments: of the handler.
        ended: called once, when the handler has ended; from any thread.

    Raises:
        RuntimeError: there is no thread for it; or it raised something that is no `Exception`.
    """
    if not is_async_callable(handler):
        outcome = await _in_thread(partial(handler, *arguments), ended)
        return await outcome if inspect.isawaitable(outcome) else outcome
    try:
        return await handler(*arguments)
    finally:
        ended()


async def _in_thread(function: Callable[[], Any], ended: Callable[[], object]) -> Any:
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    waiting: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def deliver(outcome: tuple[Any, BaseException | None]) -> None:
        if not waiting.done():
            waiting.set_result(outcome)

    def run() -> None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = context.run(function), None
        except BaseException as error:  # SystemExit too: only this thread would see it
            outcome = None, error
        ended()
        call_in_loop(loop, deliver, outcome)

    try:
        threading.Thread(target=run, name="foundation-rt-handler", daemon=True).start()
    except RuntimeError:
        ended()
        raise
    value, error = await waiting
    if error is None:
        return value
    if isinstance(error, Exception):
        raise error
    raise RuntimeError(f"the handler raised {type(error).__name__}") from error


# -- roots ---------------------------------------------------------------------------------------


def write_roots(places: Any) -> dict[str, Any]:
    """Return the result of `roots/list` that names `places` (QUEST-10).

    Raises:
        InvalidClientResult: they are not several places, or one of them is none.
    """
    if isinstance(places, (str, Path)) or not isinstance(places, Iterable):
        raise InvalidClientResult(("/roots", "is not several roots"))
    return {"roots": [_write_root(place, f"/roots/{at}") for at, place in enumerate(places)]}


def _write_root(place: Any, path: str) -> dict[str, Any]:
    if isinstance(place, Path):
        return {"uri": _uri_of(place, path)}
    root = Root(place) if isinstance(place, str) else place
    if not isinstance(root, Root):
        raise InvalidClientResult((path, "is neither a path, a URI nor a Root"))
    if not _is_file_uri(root.uri):
        raise InvalidClientResult((f"{path}/uri", "is not a file: URI of an absolute path"))
    if root.name is None:
        return {"uri": root.uri}
    if not isinstance(root.name, str):
        raise InvalidClientResult((f"{path}/name", "is not a string"))
    return {"uri": root.uri, "name": root.name}


def _uri_of(place: Path, path: str) -> str:
    """Return the URI of a path, with links and `..` resolved."""
    try:
        return place.resolve().as_uri()
    except (OSError, RuntimeError, ValueError):  # a circle of links, a NUL
        raise InvalidClientResult((path, "is not a path that can be resolved")) from None


def _is_file_uri(uri: Any) -> bool:
    """Return whether a URI is a `file:` URI of an absolute path without `..`."""
    from urllib.parse import unquote, urlsplit

    if not isinstance(uri, str) or not uri.isprintable():
        return False
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    steps = unquote(parts.path).split("/")
    return parts.scheme == "file" and steps[0] == "" and len(steps) > 1 and ".." not in steps
