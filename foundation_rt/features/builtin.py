"""The features that come with the runtime, each a few rows.

What stands in a row is imported when it is first used: most servers never need most of it.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..kernel.feature import Feature, lazy
from ..protocol.jsonrpc import Batch
from .policies import Policies
from .server_requests.client_input import ClientInput
from .session_callbacks import RootsChanges, SessionEnds
from .subscriptions.subscribing import Subscribing
from .tasks.feature import Tasks

if TYPE_CHECKING:
    from ..base.clock import Clock
    from ..base.config.settings import ServerConfig
    from ..base.logs.logger import StructuredLogger
    from ..kernel.engine.directory import SessionDirectory
    from .proxy.forwarder import RequestForwarder
    from .session_callbacks import SessionCallback
    from .subscriptions.publisher import Publisher


class Batches(Feature):
    """JSON-RPC batches (RPC-13)."""

    messages = MappingProxyType({Batch: lazy(f"{__package__}.batches", "answer_batch")})


def built_in(
    config: ServerConfig,
    clock: Clock,
    logger: StructuredLogger,
    directory: SessionDirectory,
    session_ended: tuple[SessionCallback, ...] = (),
    roots_changed: tuple[SessionCallback, ...] = (),
    forwarder: RequestForwarder | None = None,
    publisher: Publisher | None = None,
) -> list[Feature]:
    """Return the features of a server with this configuration.

    Args:
        config: the configuration.
        clock: the clock of the server.
        logger: the logger of the server.
        directory: the sessions of the server.
        session_ended: called with the key of a session that has ended.
        roots_changed: called with the key of a session whose client has changed its roots.
        forwarder: answers what the server itself does not have (FWD-01).
        publisher: that of another server, to share its subscriptions.

    Raises:
        MissingExtraError: the extra of a feature is not installed.
    """
    key = config.security.state_key
    asking = ClientInput(
        os.urandom(32) if key is None else bytes.fromhex(key),
        config,
        lambda: int(clock.now().timestamp() * 1000),
    )
    tasks = Tasks(config, clock, asking)
    features: list[Feature] = [
        Batches(),
        Subscribing(config, directory, publisher),
        asking,
        RootsChanges(roots_changed, logger),
        Policies(config.tools.admin_policy),
        tasks,
    ]
    if session_ended:
        features.append(SessionEnds(session_ended, logger))
    if forwarder is not None:
        from .proxy.forwarding import Forwarding

        features.append(Forwarding(forwarder, logger))
    if config.server.session_state_store != "memory":
        from .state.stored_states import StoredStates

        features.append(StoredStates(config.server, clock, logger))
    return features
