"""The features that come with the runtime, each a few rows.

What stands in a row is imported when it is first used: most servers never need most of it.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..base.lazy_names import lazy
from ..kernel.feature import RuntimeFeature
from ..protocol.jsonrpc import Batch
from .list_changes import ListChanges
from .policies import Policies
from .registries import Features
from .server_requests.feature import ClientInput
from .subscriptions.feature import Subscribing
from .tasks.feature import Tasks

if TYPE_CHECKING:
    from ..kernel.runtime import Runtime
    from .composition import ServerOptions


class Batches(RuntimeFeature):
    """JSON-RPC batches (RPC-13)."""

    messages = MappingProxyType({Batch: lazy(f"{__package__}.batches", "answer_batch")})


def built_in(runtime: Runtime, options: ServerOptions) -> list[RuntimeFeature]:
    """Return the features of a server.

    Raises:
        MissingExtraError: the extra of a feature is not installed.
    """
    config, clock, logger = runtime.config, runtime.clock, runtime.logger
    registries, publisher = options.features or Features(), options.publisher
    lists = ListChanges(runtime.directory, clock) if publisher is None else publisher.lists
    runtime.registry.observe(lists)
    registries.observe(lists)
    features: list[RuntimeFeature] = [*registries.joining]
    if options.experimental or options.extensions:
        from .declared import Declared

        named = {"experimental": options.experimental or {}, "extensions": options.extensions}
        features += [Declared(*each) for each in named.items() if each[1]]
    if options.methods:
        from .custom_methods import CustomMethods

        features.append(CustomMethods(options.methods))
    key = config.security.state_key if config.is_given("security") else None
    asking = ClientInput(
        os.urandom(32) if key is None else bytes.fromhex(key),
        config,
        lambda: int(clock.now().timestamp() * 1000),
    )
    features += [
        Batches(),
        Subscribing(config, lists, publisher),
        asking,
        Policies(config.tools.admin_policy),
        Tasks(config, clock, asking),
    ]
    if options.session_end_callbacks or options.roots_callbacks:
        from .session_callbacks import RootsChanges, SessionEnds

        features.append(SessionEnds(options.session_end_callbacks, logger))
        features.append(RootsChanges(options.roots_callbacks, logger))
    if options.forwarder is not None:
        from .forwarding.feature import Forwarding

        features.append(Forwarding(options.forwarder, logger))
    if config.server.session_state_store != "memory":
        from .state.stored_states import StoredStates

        features.append(StoredStates(config.server, clock, logger))
    if options.own_features:
        from .own_features import OwnFeature

        features += [OwnFeature(each, logger) for each in options.own_features]
    return features
