"""The features that come with the runtime, each a few rows.

What stands in a row is imported when it is first used: most servers never need most of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from ..kernel.feature import Feature, lazy
from ..protocol.jsonrpc import Batch
from .server_requests.client_input import ClientInput

if TYPE_CHECKING:
    from ..base.clock import Clock
    from ..base.config.settings import ServerConfig
    from ..base.logs.logger import StructuredLogger


class Batches(Feature):
    """JSON-RPC batches (RPC-13)."""

    messages: ClassVar = {Batch: lazy("foundation_rt.features.batches", "answer_batch")}


def built_in(config: ServerConfig, clock: Clock, logger: StructuredLogger) -> list[Feature]:
    """Return the features of a server with this configuration.

    Raises:
        MissingExtraError: the extra of a feature is not installed.
    """
    key = config.security.state_key
    asking = ClientInput(
        os.urandom(32) if key is None else bytes.fromhex(key),
        config,
        lambda: int(clock.now().timestamp() * 1000),
    )
    features: list[Feature] = [Batches(), asking]
    if config.server.session_state_store != "memory":
        from .state.stored_states import StoredStates

        features.append(StoredStates(config.server, clock, logger))
    return features
