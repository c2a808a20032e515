"""Subscriptions as a feature; what keeps and notifies subscribers is imported when first used."""

from __future__ import annotations

import threading
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...base.lazy_names import lazy
from ...kernel.effects import FeatureCallback
from ...kernel.feature import RuntimeFeature
from ...protocol.methods import RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE, SUBSCRIPTIONS_LISTEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...base.config.settings import ServerConfig
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.engine.executor import Engine
    from ..list_changes import ListChanges
    from .publisher import Publisher
    from .subscriptions import Subscriptions, Topic

_METHODS = f"{__package__}.methods"


class Subscribing(RuntimeFeature):
    """Keeps the subscriptions of the clients of a server.

    Args:
        config: sets how many subscriptions there may be.
        lists: notifies clients of changed lists.
        publisher: that of another server, to share its subscriptions.

    Attributes:
        fields: the fields of a `subscriptions/listen` that other features read, by name.
    """

    requests = MappingProxyType(
        {
            RESOURCES_SUBSCRIBE: lazy(_METHODS, "subscribe"),
            RESOURCES_UNSUBSCRIBE: lazy(_METHODS, "unsubscribe"),
            SUBSCRIPTIONS_LISTEN: lazy(_METHODS, "listen"),
        }
    )

    def __init__(
        self, config: ServerConfig, lists: ListChanges, publisher: Publisher | None = None
    ) -> None:
        self._config = config
        self._lists = lists
        self._publisher = publisher
        self.fields: dict[str, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    def decide(self, dispatcher: Dispatcher) -> None:
        """Be found by methods, and by other features."""
        dispatcher.parts[Subscribing] = self

    def join(self, engine: Engine) -> None:
        """Be found by the application."""
        engine.parts[Subscribing] = self

    @property
    def publisher(self) -> Publisher:
        """Return what notifies subscribers; made when it is first needed."""
        with self._lock:
            if self._publisher is None:
                from .publisher import Publisher
                from .subscriptions import Subscriptions

                subscriptions = Subscriptions(self._config, threading.RLock())
                self._publisher = Publisher(subscriptions, self._lists)
            return self._publisher

    @property
    def subscriptions(self) -> Subscriptions:
        """Return the subscribers."""
        return self.publisher.subscriptions

    def effects(self, topic: Topic, method: str, params: dict[str, Any]) -> list[FeatureCallback]:
        """Return the effects that notify the subscribers of a topic that has changed."""
        publisher = self._publisher
        if publisher is None:
            return []
        found = [*publisher.subscriptions.publish(topic, method, params)]
        return [FeatureCallback(partial(publisher.publish, found))] if found else []


def publisher_of(engine: Engine) -> Publisher:
    """Return what notifies the subscribers of a server."""
    return engine.part(Subscribing).publisher
