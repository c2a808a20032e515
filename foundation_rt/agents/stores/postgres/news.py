"""News that processes send each other with NOTIFY: which queues and requests have changed.

A process that was told of everything asked the ledger whatever had happened: with eight processes a
request cost 22 transactions instead of 4.
"""

from __future__ import annotations

import orjson

from ...ledger.types import LedgerNews

_MAX_BYTES = 7_999
"""PostgreSQL takes no longer payload."""
_ANYTHING = ""


def write(news: LedgerNews | None) -> str:
    """Return the payload that tells news; None, and more than fits, tell that all may be new."""
    if news is None:
        return _ANYTHING
    submitted = [list(each) for each in news.submitted]
    encoded = orjson.dumps([list(news.agents), list(news.finished), submitted])
    return encoded.decode() if len(encoded) <= _MAX_BYTES else _ANYTHING


def read(payload: str | None) -> LedgerNews | None:
    """Return the news in a payload; None if anything may be new, or it has another form."""
    try:
        agents, finished, submitted = orjson.loads(payload or "")
        return LedgerNews(
            [str(each) for each in agents],
            [str(each) for each in finished],
            tuple((str(agent_id), int(transaction)) for agent_id, transaction in submitted),
        )
    except (ValueError, TypeError):
        return None
