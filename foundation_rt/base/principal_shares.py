"""The use of limits that principals share, counted for each principal (RES-12, RES-13).

Imported when there is something to count: not by a server over stdio without server requests and
subscribers.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from attrs import define, field, frozen

from ..errors import SHARE_USED, ErrorCode, ToolError
from .config.settings import ServerConfig
from .shown import Shown


class LimitReached(ToolError):
    """The limit, or the principal's share of it, is used up: RESOURCE_EXHAUSTED."""


@frozen(eq=False, repr=False)
class Limit(Shown):
    """A limit of the process, and the text of its refusals.

    Attributes:
        most: how many may be in use; at least 1.
        noun: the counted noun, in the plural.
        member: the member of a refusal's details that has `most`.
        reason: the `reason` of a refusal if all are in use.
        share_reason: the `reason` of a refusal if a share is used up.
    """

    most: int
    noun: str
    member: str
    reason: str
    share_reason: str = SHARE_USED

    def used_up(self) -> LimitReached:
        """Return the refusal for when all are in use."""
        return LimitReached(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"All {self.most} {self.noun} are in use; try again later.",
            {"reason": self.reason, self.member: self.most},
        )

    def share_used_up(self, share: int) -> LimitReached:
        """Return the refusal for when one principal uses all of its `share`."""
        return LimitReached(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"This client uses all {share} {self.noun} that one principal may use at a time;"
            " try again when some of them are free.",
            {"reason": self.share_reason, self.member: self.most, "share": share},
        )


@define(eq=False, repr=False)
class Quota:
    """The use of one limit, in total and for each principal; safe from any thread.

    A finalizer may use it too, at any point of the thread that holds the lock: hence a lock that
    one thread may take twice, and `_add` without a call in which a finalizer could run.

    Args:
        config: sets the part of the limit that is the share of one principal.
        limit: the limit.
    """

    _config: ServerConfig
    _limit: Limit
    _share: int = field(init=False)
    _used: int = field(default=0, init=False)
    _used_by: defaultdict[str | None, int] = field(factory=lambda: defaultdict(int), init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    def __attrs_post_init__(self) -> None:
        self._share = self._config.share_of(self._limit.most, "any principal")

    def used(self) -> dict[str | None, int]:
        """Return the number in use by each identity that uses any."""
        with self._lock:
            return dict(self._used_by)

    def take(self, identity: str | None, count: int = 1) -> None:
        """Count `count` more as used by a principal, or by a peer without one.

        Args:
            identity: the principal's `identity_of`.
            count: how many.

        Raises:
            LimitReached: the limit, or the principal's share of it, would be exceeded; nothing is
                counted.
        """
        with self._lock:
            refusal = self._refusal(identity, count)
            if refusal is not None:
                try:
                    raise refusal
                finally:
                    # Its traceback has this frame: with the variable, that would be a cycle.
                    del refusal
            self._add(identity, count)

    def refusal(self, identity: str | None, count: int = 1) -> LimitReached | None:
        """Return the exception that `take` would raise now; None if it would not raise."""
        with self._lock:
            return self._refusal(identity, count)

    def give_back(self, identity: str | None, count: int = 1) -> None:
        """Count `count` less; the caller gives back once everything it has taken."""
        with self._lock:
            self._add(identity, -count)

    def _refusal(self, identity: str | None, count: int) -> LimitReached | None:
        limit, share = self._limit, self._share
        has_share = identity is not None and share < limit.most
        if has_share and self._used_by.get(identity, 0) + count > share:
            return limit.share_used_up(share)
        if self._used + count > limit.most:
            return limit.used_up()
        return None

    def _add(self, identity: str | None, count: int) -> None:
        self._used += count
        self._used_by[identity] += count
        if not self._used_by[identity]:
            del self._used_by[identity]
