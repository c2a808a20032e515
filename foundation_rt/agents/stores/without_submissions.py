"""The answers about submissions of ledgers without transactions of an application (AACP-153)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...errors import UsageError
from ..ledger.submissions import SubmittedRequest, TakenSubmissions


class WithoutSubmissions:
    """The methods of a ledger into which nobody enters requests in a transaction of their own."""

    __slots__ = ()

    takes_submissions = False

    async def submit(self, connection: Any, submission: SubmittedRequest) -> None:
        """Refuse: see `AACPPersistenceAdapter`."""
        raise UsageError(
            "request_in needs a ledger in PostgreSQL, in the database of your transaction: set"
            " aacp.store to its URL. Use send_request with other ledgers"
        )

    async def submitted_to(self, request_id: str) -> str | None:
        """Return None: see `AACPPersistenceAdapter`."""
        return None

    async def take_submissions(
        self,
        transactions: Collection[int] | None,
        now_ms: int,
        next_attempt_at_ms: int,
        limit: int,
    ) -> TakenSubmissions:
        """Return nothing: see `AACPPersistenceAdapter`."""
        return TakenSubmissions([])
