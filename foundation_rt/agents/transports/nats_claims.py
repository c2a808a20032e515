"""Claims over NATS: an agent is served by one ledger (AACP-101).

A key of a JetStream bucket names the ledger that serves an agent. It is written by compare-and-set
on its revision, so of two ledgers that begin in the same moment one is refused. The server deletes
a key that was not written for the lifetime of the bucket, by its own clock; all processes of the
ledger that listen write it again three times as often. So a ledger that died is replaced after that
time, and no clock but that of the server counts.

A process takes nothing for an agent later than one lifetime after it *began* to write the key for
the last time: until then nobody else can have it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any
from uuid import uuid4

import orjson
from attrs import define
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import (
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoStreamResponseError,
)
from nats.js.kv import KeyValue

from ...logs.logger import StructuredLogger
from . import AgentServedElsewhereError, TransportError
from .nats_layout import NatsLayout, token_of

_RENEWALS = 3  # in one lifetime
_RETRY_SECONDS = 1.0

# Keys that are written at the same time.
_AT_ONCE = 100

# How often somebody else may write a key while it is being taken.
_TRIES = 10

_RELEASE_SECONDS = 1.0


@define
class _Claim:
    """An agent that is served here.

    Attributes:
        revision: of its key, as this process has written it.
        until: by the clock of the loop: nobody else can have it before.
        alone: no other process of this ledger has written the key meanwhile.
    """

    revision: int
    until: float
    alone: bool


class NatsClaims:
    """The claims of one process.

    Args:
        layout: has the names of the bucket and its keys.
        connected: returns the connection; raises `TransportError` while there is none.
        server: is named in errors.
        ledger_uid: that of the ledger.
        on_lost: called with an agent that another ledger serves from now on.
        logger: logs that claims cannot be renewed.
    """

    def __init__(
        self,
        layout: NatsLayout,
        connected: Callable[[], Client],
        server: str,
        ledger_uid: str,
        on_lost: Callable[[str], object],
        logger: StructuredLogger | None,
    ) -> None:
        self._layout = layout
        self._connected = connected
        self._server = server
        self._ledger_uid = ledger_uid
        self._on_lost = on_lost
        self._logger = logger
        host, process = socket.gethostname(), {"pid": os.getpid(), "id": uuid4().hex}
        self._value = orjson.dumps({"ledger": ledger_uid, "host": host, **process})
        self._claims: dict[str, _Claim] = {}
        self._bucket: KeyValue | None = None
        self._client: Client | None = None
        self._lifetime = inf
        self._renewing: asyncio.Task[None] | None = None

    def holds(self, agent_id: str) -> bool:
        """Return whether an agent is surely served by this ledger."""
        claim = self._claims.get(agent_id)
        return claim is not None and asyncio.get_running_loop().time() < claim.until

    async def take(self, agent_id: str) -> None:
        """Claim an agent, or claim it again.

        Raises:
            AgentServedElsewhereError: another ledger serves it.
            TransportError, nats.errors.Error: it is not known who serves it.
        """
        loop = asyncio.get_running_loop()
        for _ in range(_TRIES):
            bucket, began = await self._open_bucket(), loop.time()
            found = await self._entry(bucket, agent_id)
            try:
                revision = await self._write(bucket, agent_id, found)
            except KeyWrongLastSequenceError:
                continue  # another process was faster: of which ledger?
            except NoStreamResponseError:  # the server has lost it
                self._bucket = None
                continue
            alone = found is None or found.value == self._value
            self._claims[agent_id] = _Claim(revision, began + self._lifetime, alone)
            if self._renewing is None:
                self._renewing = loop.create_task(self._renew_always())
            return
        raise TransportError(f"NATS at {self._server}: the claim of {agent_id!r} is contested")

    async def give_back(self, agent_id: str) -> None:
        """Let another ledger serve an agent, unless other processes of this one do.

        When the server cannot be reached, the claim lapses.
        """
        claim = self._claims.pop(agent_id, None)
        if claim is None or not claim.alone:
            return
        with suppress(NatsError, TransportError, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                bucket = await self._open_bucket()
                await bucket.delete(token_of(agent_id), last=claim.revision)

    async def close(self) -> None:
        """Give all claims back."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait((self._renewing,))
            self._renewing = None
        await asyncio.gather(*(self.give_back(agent_id) for agent_id in [*self._claims]))

    # -- the bucket ---------------------------------------------------------------------------

    async def _open_bucket(self) -> KeyValue:
        """Return the bucket; make it if it is missing. An existing one keeps its lifetime."""
        client = self._connected()
        if self._bucket is None or self._client is not client:
            streams = client.jetstream(timeout=self._layout.timeout_ms / 1000)
            try:
                bucket = await streams.key_value(self._layout.claims)
            except BucketNotFoundError:
                bucket = await streams.create_key_value(
                    bucket=self._layout.claims, ttl=self._layout.claim_ms / 1000
                )
            self._lifetime = (await bucket.status()).ttl or inf
            self._bucket, self._client = bucket, client
        return self._bucket

    async def _entry(self, bucket: KeyValue, agent_id: str) -> KeyValue.Entry | None:
        """Return who serves an agent, if that is this ledger or nobody."""
        try:
            found = await bucket.get(token_of(agent_id))
        except KeyNotFoundError:
            return None
        owner = _owner_in(found.value)
        if owner.get("ledger") != self._ledger_uid:
            self._claims.pop(agent_id, None)
            raise AgentServedElsewhereError(self._refusal(agent_id, owner))
        return found

    async def _write(self, bucket: KeyValue, agent_id: str, found: KeyValue.Entry | None) -> int:
        key = token_of(agent_id)
        if found is None:
            return await bucket.create(key, self._value)
        return await bucket.update(key, self._value, found.revision)

    def _refusal(self, agent_id: str, owner: dict[str, Any]) -> str:
        ends = "does not end by itself"
        if self._lifetime < inf:
            ends = f"ends {self._lifetime:g} s after its last sign"
        key = f"{self._layout.claims} {token_of(agent_id)}"
        return (
            f"agent {agent_id!r} is served by another ledger over NATS at {self._server}:"
            f" ledger {owner.get('ledger')}, process {owner.get('pid')} on {owner.get('host')};"
            f" this is ledger {self._ledger_uid}. Two would each take a part of its messages."
            " Stop that process, or have both use one ledger in PostgreSQL (aacp.store), or give"
            " this one another id (aacp.name, if it is the name of a coordinator). If that process"
            f" is gone for good: its claim {ends}, or at once by `nats kv del {key}`"
        )

    # -- renewals -----------------------------------------------------------------------------

    async def _renew_always(self) -> None:
        pause = self._pause
        while True:
            await asyncio.sleep(pause)
            try:
                await self._renew_all()
                pause = self._pause
            except Exception as error:  # of nats-py too: claims must not lapse for a bug
                pause = min(_RETRY_SECONDS, self._pause)
                if self._logger is not None:
                    what = {"server": self._server, "error": str(error)}
                    self._logger.warn("nats: claims of agents not renewed", what)

    @property
    def _pause(self) -> float:
        """Seconds between two renewals."""
        return min(self._lifetime, self._layout.claim_ms / 1000) / _RENEWALS

    async def _renew_all(self) -> None:
        agents = [*self._claims]
        for first in range(0, len(agents), _AT_ONCE):
            group = map(self._renew, agents[first : first + _AT_ONCE])
            for problem in await asyncio.gather(*group, return_exceptions=True):
                if problem is not None:
                    raise problem

    async def _renew(self, agent_id: str) -> None:
        bucket, claim = await self._open_bucket(), self._claims.get(agent_id)
        if claim is None:
            return
        began = asyncio.get_running_loop().time()
        try:
            revision = await bucket.update(token_of(agent_id), self._value, claim.revision)
        except (KeyWrongLastSequenceError, NoStreamResponseError):
            try:
                await self.take(agent_id)
            except AgentServedElsewhereError:
                self._on_lost(agent_id)
            return
        if self._claims.get(agent_id) is claim:
            self._claims[agent_id] = _Claim(revision, began + self._lifetime, alone=True)


def _owner_in(value: bytes | None) -> dict[str, Any]:
    """Return what a key says; empty where somebody else has written it."""
    try:
        owner = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return {}
    return owner if isinstance(owner, dict) else {}
