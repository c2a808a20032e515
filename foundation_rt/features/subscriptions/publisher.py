"""Publishing: from an event in any thread to the connections of its subscribers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...kernel.dispatcher import list_changed_method
from ...protocol.methods import (
    NOTIFICATIONS_ELICITATION_COMPLETE,
    NOTIFICATIONS_RESOURCES_UPDATED,
    NOTIFICATIONS_TASKS,
)
from ...protocol.principal import identity_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ...protocol.principal import Principal
    from ..list_changes import ListChanges, SeenBy
    from .subscriptions import Publish, Subscriptions


KINDS = ("list", "resource", "elicitation")
"""The kinds of changes that are announced."""

Announcement = tuple[str, str, str | None, str | None]
"""A change for the clients of all workers: its kind (one of `KINDS`), what has changed, and the key
of the only session, or the identity of the only principal, that is notified.
"""


class Publisher:
    """Notifies the subscribers of one server, or of several that share it; safe from any thread.

    Args:
        subscriptions: the subscribers; guarded by a lock.
        lists: notifies clients of changed lists; its directory finds the sessions.

    Attributes:
        relay: hands an announcement to the other workers, from any thread; None if there are none.
    """

    def __init__(self, subscriptions: Subscriptions, lists: ListChanges) -> None:
        self.subscriptions = subscriptions
        self.lists = lists
        self.directory = lists.directory
        self.relay: Callable[[Announcement], object] | None = None
        lists.announcing.append(self._announce_list)

    def publish(self, published: Iterable[Publish]) -> None:
        """Send each notification on the connection of its session, if that is still there."""
        for each in published:
            self.directory.decide(each.session_id, self.subscriptions.notify, each)

    def announce(self, announcement: Announcement, *, all_workers: bool = True) -> None:
        """Notify the clients that a change concerns, those of other workers included (SUB-17).

        Args:
            announcement: says what has changed, and whom it concerns.
            all_workers: whether clients of other workers are notified.
        """
        self.perform(announcement)
        if self.relay is not None and all_workers and not self._has_session(announcement[2]):
            self.relay(announcement)

    def _has_session(self, key: str | None) -> bool:
        return key is not None and self.directory.id_of_key(key) != 0

    def _announce_list(self, kind: str, seen_by: SeenBy | None) -> None:
        method = list_changed_method(kind)
        self.publish(self.subscriptions.publish(("list", kind), method, {}, seen_by=seen_by))

    def perform(self, announcement: Announcement) -> None:
        """Notify the clients of this worker alone."""
        kind, name, key, identity = announcement
        seen_by = None if identity is None else partial(_is_of, identity)
        if kind == "resource":
            self.resource_updated(name, seen_by, key)
        elif kind == "elicitation":
            self.elicitation_completed(name)
        elif key is not None:
            self.lists.list_of_session_changed(name, key)
        else:
            self.lists.list_changed(name, seen_by=seen_by)

    def resource_updated(
        self,
        uri: str,
        seen_by: Callable[[Principal | None], bool] | None = None,
        key: str | None = None,
        grants: Collection[Any] | None = None,
    ) -> None:
        """Notify the subscribers of a resource that it has changed.

        Args:
            uri: of the resource.
            seen_by: returns whether a principal's clients are notified (SUB-16); None: all are.
            key: of the session that alone is notified; None for all.
            grants: those whose subscriptions alone are notified (FWD-32); None for all.
        """
        found = self.subscriptions.publish(
            ("resource", uri),
            NOTIFICATIONS_RESOURCES_UPDATED,
            {"uri": uri},
            seen_by=seen_by,
            grants=grants,
        )
        if key is not None:
            session_id = self.directory.id_of_key(key)
            found = (each for each in found if each.session_id == session_id)
        self.publish(found)

    def task_changed(self, task: Mapping[str, Any]) -> None:
        """Notify the subscribers of a task of another server that it has changed (FWD-27)."""
        topic = ("task", task["taskId"])
        self.publish(self.subscriptions.publish(topic, NOTIFICATIONS_TASKS, dict(task)))

    def elicitation_completed(self, elicitation_id: str) -> None:
        """Notify the client whose user is done with the page of this elicitation."""
        topic = ("elicitation", elicitation_id)
        method = NOTIFICATIONS_ELICITATION_COMPLETE
        params = {"elicitationId": elicitation_id}
        self.publish(self.subscriptions.publish(topic, method, params, is_last=True))


def _is_of(identity: str, principal: Principal | None) -> bool:
    return identity_of(principal) == identity
