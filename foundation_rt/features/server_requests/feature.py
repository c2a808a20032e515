"""Requests to the client, as they concern a call: its answers come in, and requests go out.

The other modules of this folder make the requests themselves; here they meet the protocol
(spec/server-requests.md). A stateless call may bring answers, and a state that says to which
requests they belong. It may end without a result: because answers are missing, or because its
client cannot be asked.

Those modules are imported when a handler first asks: few servers ever do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...base.exact_json import dumps
from ...base.lazy_names import lazy
from ...kernel.feature import RuntimeFeature
from ...protocol.jsonrpc import Response
from ...protocol.methods import facts
from ..subscriptions.feature import Subscribing

if TYPE_CHECKING:
    from ...base.abort import AbortSignal
    from ...base.config.settings import ServerConfig
    from ...base.principal_shares import Quota
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import CallCompleted, Reply
    from ...kernel.engine.executor import Engine
    from ...kernel.invocation import Invocation
    from ...kernel.replies import ResultWriter
    from .forms import Forms
    from .requester import RequestStrategy
    from .round_trips import MultiRoundTrip

    Strategy = Callable[[Invocation, MultiRoundTrip, AbortSignal], RequestStrategy | None]

_ANSWER_MEMBERS = frozenset(("inputResponses", "requestState"))

_ERRORS = "foundation_rt.features.server_requests.errors"


class ClientInput(RuntimeFeature):
    """Reads the answers that a call brings, and writes the requests that it ends with.

    Args:
        key: seals states; all servers that may serve the retries of a call share it.
        config: how long a state is valid, how long to wait for an answer, and how many requests
            may be open.
        now_ms: returns the wall-clock time, in ms since 1970.

    Attributes:
        strategies: asked in turn how a call of the stateless mode asks; None: by round trips.
    """

    results: ResultWriter
    subscribing: Subscribing
    _forms: Forms | None = None
    _open_requests: Quota | None = None
    messages = MappingProxyType({Response: lazy(f"{__package__}.open_requests", "take_response")})

    def __init__(self, key: bytes, config: ServerConfig, now_ms: Callable[[], int]) -> None:
        self.key = key
        self.config = config
        self.now_ms = now_ms
        self.strategies: list[Strategy] = []

    def decide(self, dispatcher: Dispatcher) -> None:
        """Take part in the decisions of a server."""
        self.results = dispatcher.results
        self.subscribing = dispatcher.parts[Subscribing]

    def join(self, engine: Engine) -> None:
        """Be found by the handlers of a server."""
        engine.parts[ClientInput] = self

    # -- before the handler runs ---------------------------------------------------------------

    def prepared(self, call: Invocation, params: Mapping[str, Any]) -> None:
        """Read the answers that came with a stateless call (ASK-11, ASK-14).

        Raises:
            JsonRpcError: they are malformed, or the state is not valid for this call.
        """
        if not facts(call.method).may_ask:
            return
        # The scope of a state follows from the arguments, and a handler may change its own. To
        # work the scope out now would cost every call 13 us.
        call.arguments_as_sent = dumps(call.arguments)
        if params.keys().isdisjoint(_ANSWER_MEMBERS):
            return
        from .stateless_calls import read_answers

        read_answers(self, call, params)

    # -- while it runs -------------------------------------------------------------------------

    @property
    def forms(self) -> Forms:
        """Return the compiled forms of all calls."""
        if self._forms is None:
            from .forms import Forms

            self._forms = Forms()
        return self._forms

    @property
    def open_requests(self) -> Quota:
        """Return the quota of open requests of all calls (RES-17)."""
        if self._open_requests is None:
            from ...base.principal_shares import Limit, Quota

            limit = Limit(
                self.config.resources.max_server_requests,
                "places for open requests to clients",
                "maxServerRequests",
                "too_many_server_requests",
                "server_request_share",
            )
            self._open_requests = Quota(self.config, limit)
        return self._open_requests

    # -- when it has ended ---------------------------------------------------------------------

    def raised(
        self, call: Invocation, error: BaseException, duration_ms: float
    ) -> tuple[Reply, CallCompleted] | None:
        """Return the reply and the record of a call whose handler stopped to ask its client.

        Returns:
            None where `error` is one like any other.

        Raises:
            ToolError: the call fails with this error instead.
        """
        if _ERRORS not in sys.modules:
            return None
        from .stateless_calls import reply_to

        return reply_to(self, call, error, duration_ms)
