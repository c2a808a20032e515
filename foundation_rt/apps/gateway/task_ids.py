"""Ids of tasks that servers have made, as clients of the gateway get them (GATE-14).

A server that all clients share tells them apart by nothing but the id of a task. So an id outside
carries the server, the id there, and an authentication code that holds for its principal alone. Any
gateway with the same `security.state_key` reads it.
"""

from __future__ import annotations

import hmac
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode

import orjson
from attrs import define, field

_CODE_LENGTH = 22  # of base64: 132 bits
_PURPOSE = b"foundation-rt gateway task 1\n"


@define(eq=False, repr=False)
class TaskIds:
    """Makes ids for clients, and reads them.

    Args:
        state_key: in hex; None makes ids that this process alone reads.
    """

    state_key: str | None
    _key: bytes = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._key = os.urandom(32) if self.state_key is None else bytes.fromhex(self.state_key)

    def outside(self, server_id: str, task_id: str, owner: str) -> str:
        """Return the id for the client.

        Args:
            server_id: of the server that made the task.
            task_id: its id there.
            owner: the identity of the principal; "" where authentication is off.
        """
        content = urlsafe_b64encode(orjson.dumps([server_id, task_id])).decode().rstrip("=")
        return f"{content}.{self._code(content, owner)}"

    def inside(self, outside: object, owner: str) -> tuple[str, str] | None:
        """Return the server and the id there; None if this principal has no such id."""
        if not isinstance(outside, str) or not outside.isascii():
            return None
        content, _, code = outside.rpartition(".")
        if not hmac.compare_digest(code, self._code(content, owner)):
            return None
        padded = content + "=" * (-len(content) % 4)
        server_id, task_id = orjson.loads(urlsafe_b64decode(padded))
        return server_id, task_id

    def _code(self, content: str, owner: str) -> str:
        text = b"%s%s\n%s" % (_PURPOSE, owner.encode(), content.encode())
        code = urlsafe_b64encode(hmac.digest(self._key, text, "sha256")).decode()
        return code[:_CODE_LENGTH]
