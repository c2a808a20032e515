"""The records of what becomes of chats (HOST-45)."""

from __future__ import annotations

import logging

from .store import chat_label

_LOG = logging.getLogger("foundation_rt.host.sessions")


def log_chat(action: str, key: bytes) -> None:
    """Write a record of what has become of a chat."""
    fields = {"component": "Sessions", "action": action, "chat": chat_label(key)}
    _LOG.info(action, extra={"fields": fields})
