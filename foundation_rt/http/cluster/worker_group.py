"""The workers that share their clients, as one of them sees the others (HTTP-60 to HTTP-64).

    id of a session ─► seal ─┬─ unknown, of another principal ──────────────► 404
                             ├─ this place ─┬─ marked by its last worker ───► restore it here
                             │              └─ else: it has ended ──────────► 404
                             ├─ a place of this host ───────────────────────► its Unix socket
                             └─ a place of another host ─► Redis ─┬─ lives ─► its address
                                                                  ├─ marked ► restore it here
                                                                  └─ else ──► 404

A session is in one worker at a time, and every request for it goes there: there is nothing to keep
the same in two. Its id names the *place* of the worker that began it; a worker that has died is
followed by another one at the same place, which can tell from the marks what it may restore.

Private addresses serve the same application, with all of its checks. What arrives there is not
forwarded again.

A mark of a session (HTTP-62) is an empty file, named by a digest of its session's id, in the
private folder of the worker's place. It is made with the session, and removed when the session ends
or has state that would be lost: so what is there when a worker has died are the sessions that have
nothing but their handshake. A file outlives a worker that is killed, and holds nothing that another
user could use.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from ...errors import UsageError
from .session_seal import IdSeal, SealedSession, WorkerName
from .worker_connections import PUT_OFF, WorkerConnections
from .worker_events import WorkerEvents, bound_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...features.composition import ServerRuntime
    from ...features.subscriptions.publisher import Publisher
    from ...protocol.peer import Peer
    from ...protocol.principal import Principal
    from ..asgi import HttpRefusal, Scope
    from .request_routing import Forwarded
    from .worker_connections import Address
    from .worker_processes import WorkerPlace
    from .worker_registry_redis import WorkerRegistry


_BACKLOG = 2048


@define(eq=False, repr=False)
class WorkerGroup:
    """This worker and the others.

    Args:
        name: the place of this worker.
        seal: makes and reads ids.
        folder: private to the workers of this host; None if there is one alone.
        registry: knows the workers of other hosts; None without Redis.
        idle_ms: how long a session is kept that nobody uses, in milliseconds.
        sockets: listen at the private addresses of this worker.
        events: hands announcements to the other workers.

    Attributes:
        connections: to the other workers.
    """

    name: WorkerName
    seal: IdSeal
    folder: Path | None
    _registry: WorkerRegistry | None
    _idle_ms: int
    sockets: list[socket.socket]
    events: WorkerEvents
    connections: WorkerConnections = field(factory=WorkerConnections, init=False)
    _parent: int = field(factory=os.getppid, init=False)
    _marks: SessionMarks = field(init=False)
    _purge: asyncio.TimerHandle | None = field(default=None, init=False)
    _forwarded: set[Forwarded] = field(factory=set, init=False)
    _private_ports: frozenset[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        others = [each for each in self.sockets if each.family != socket.AF_UNIX]
        self._private_ports = frozenset(each.getsockname()[1] for each in others)
        slot = str(self.name.slot)
        self._marks = SessionMarks(None if self.folder is None else self.folder / slot)

    async def start(self, publisher: Publisher) -> None:
        """Let the workers of other hosts find this one, and all reach its clients (SUB-17)."""
        loop = asyncio.get_running_loop()
        self.events.start(publisher.perform)
        self._purge = loop.call_later(self._idle_ms / 1000, self._marks.forget_inherited)
        if self._registry is not None:
            await self._registry.start(self.events.receive)

    async def close(self) -> None:
        """Let nobody find this worker any more; its sessions have ended, or may be restored."""
        if self._purge is not None:
            self._purge.cancel()
        await self.events.close()
        self.connections.close()
        if self._registry is not None:
            await self._registry.close()
        for each in self.sockets:
            if each.family == socket.AF_UNIX:
                with suppress(OSError):
                    Path(_path_of(self.folder, self.name.slot)).unlink()
            each.close()
        if self.folder is not None and os.getppid() != self._parent:
            rmtree(self.folder, ignore_errors=True)  # the process that made it was killed

    # -- ids -------------------------------------------------------------------------------------

    def new_session_id(self, principal: Principal | None, peer: Peer | None = None) -> str:
        """Return the id of a new session; with a peer, it can be restored from the id."""
        return self.seal.session_id(self.name, principal, peer)

    def new_task_id(self) -> str:
        """Return the id of a new task."""
        return self.seal.task_id(self.name)

    # -- marks -----------------------------------------------------------------------------------

    def mark(self, session_id: str) -> None:
        """Note that a session has nothing but its handshake, so that another worker may restore it.

        What is noted outlives this worker.
        """
        digest = digest_of(session_id)
        self._marks.add(digest)
        if self._registry is not None:
            self._registry.mark(digest)

    def keep(self, session_id: str) -> None:
        """Note that a session has state, which no other worker could restore; from any thread."""
        digest = digest_of(session_id)
        self._marks.remove(digest)
        if self._registry is not None:
            self._registry.keep(digest)

    def forget(self, session_id: str) -> None:
        """Note that a session has ended."""
        digest = digest_of(session_id)
        self._marks.remove(digest)
        if self._registry is not None:
            self._registry.forget(digest)

    # -- other workers ---------------------------------------------------------------------------

    async def find(
        self, session_id: str, principal: Principal | None, scope: Scope
    ) -> Address | SealedSession | None:
        """Find a session that this worker does not have.

        Args:
            session_id: its id, or what a client takes for one.
            principal: of the request.
            scope: of the request.

        Returns:
            The address of the worker that has it; its content if this worker is to restore it;
            None if there is no such session.

        Raises:
            ConnectionError: Redis, which knows it, fails.
        """
        sealed = self.seal.read_session(session_id, principal)
        if sealed is None:
            return None
        owner = sealed.owner
        if owner.group == self.name.group and owner != self.name:
            return None if self.is_private(scope) else self._path(owner)
        digest = digest_of(session_id)
        if self._marks.take(digest):
            return sealed
        if owner == self.name or self.is_private(scope):
            return None
        if self._registry is None:
            return None
        found = await self._registry.find_session(digest, owner)
        return sealed if found == self.name else await self._address(found)

    async def find_task(self, task_id: str, scope: Scope) -> Address | None:
        """Return the address of the worker that has a task; None for this one and unknown ones.

        Raises:
            ConnectionError: Redis, which knows it, fails.
        """
        owner = self.seal.read_task(task_id)
        if owner is None or owner == self.name or self.is_private(scope):
            return None
        return await self._address(owner)

    async def _address(self, owner: WorkerName | None) -> Address | None:
        if owner is None:
            return None
        if owner.group == self.name.group:
            return self._path(owner)
        return None if self._registry is None else await self._registry.address_of(owner)

    def _path(self, owner: WorkerName) -> str | None:
        return None if self.folder is None else _path_of(self.folder, owner.slot)

    async def ask(self, slot: int, question: bytes, seconds: float) -> bytes | None:
        """Return what another worker of this host answers to a request; None without an answer.

        Args:
            slot: of the worker.
            question: the request, encoded.
            seconds: for the answer.
        """
        return await self.connections.ask(_path_of(self.folder, slot), question, seconds)

    def is_private(self, scope: Scope) -> bool:
        """Return whether a request came to a private address, and so from another worker."""
        server = scope["server"]
        return server is None or server[1] is None or server[1] in self._private_ports

    def put_off(self, scope: Scope, refusal: HttpRefusal) -> HttpRefusal:
        """Return the refusal of a request that comes while this worker stops (HTTP-74)."""
        return evolve(refusal, headers=(PUT_OFF,)) if self.is_private(scope) else refusal

    # -- requests on their way -------------------------------------------------------------------

    def begin(self, forwarded: Forwarded) -> Callable[[], None]:
        """Keep account of a request on its way, until the function that is returned is called."""
        self._forwarded.add(forwarded)
        return lambda: self._forwarded.discard(forwarded)

    def stop_listening(self) -> None:
        """End the streams of clients that only listen: this worker stops (HTTP-16)."""
        for each in [*self._forwarded]:
            if each.is_stream:
                each.end()

    @property
    def descriptors(self) -> list[int]:
        """Return the descriptors that no forked child may use."""
        return [
            *(each.fileno() for each in self.sockets),
            *self.events.descriptors,
            *self.connections.descriptors,
        ]


def _path_of(folder: Path | None, slot: int) -> str:
    assert folder is not None
    return f"{folder}/{slot}.sock"  # not joined as paths: it is done for each request


def make_group(runtime: ServerRuntime, place: WorkerPlace | None) -> WorkerGroup | None:
    """Return the group of this process; None if no other worker could have a session.

    Args:
        runtime: the server's runtime.
        place: the place of this worker; None if nothing has started it as one of several.

    Raises:
        UsageError: settings do not go together, or an address cannot be used; says why.
    """
    config = runtime.config
    address, key = config.http.worker_address, config.security.state_key
    if place is None and address is None:
        return None
    if address is not None and (key is None or config.http.event_store == "memory"):
        raise UsageError(
            "http.worker_address needs security.state_key, the same on all hosts, and Redis in"
            " http.event_store = redis://..."
        )
    assert key is not None  # a worker has that of its group
    name = WorkerName(token_hex(6), 0) if place is None else WorkerName(place.group, place.slot)
    folder = None if place is None else Path(place.folder)
    seal = IdSeal(key)
    sockets = [] if folder is None else [_listen_at_path(_path_of(folder, name.slot))]
    registry = None
    if address is not None:
        opened = _listen_at_address(address, name.slot)
        sockets.append(opened)
        registry = _make_registry(runtime, seal, name, address, opened.getsockname()[1])
    publish = None if registry is None else registry.publish
    events = WorkerEvents(seal, folder, name.slot, publish, runtime.logger)
    return WorkerGroup(name, seal, folder, registry, config.http.session_idle_ms, sockets, events)


def _make_registry(
    runtime: ServerRuntime, seal: IdSeal, name: WorkerName, address: str, port: int
) -> WorkerRegistry:
    from .worker_registry_redis import WorkerRegistry

    host, _ = _split(address)
    return WorkerRegistry(
        runtime.config.http.event_store, runtime.logger, name, (host, port), seal.channel
    )


def _listen_at_path(path: str) -> socket.socket:
    opened = bound_at(Path(path), socket.SOCK_STREAM)
    opened.listen(_BACKLOG)
    return opened


def _listen_at_address(address: str, slot: int) -> socket.socket:
    host, port = _split(address)
    own = port + slot if port else 0
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, own), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot listen on {host}:{own}: {error}; http.worker_address is an address of this"
            " host, where each further worker has the next port"
        ) from error


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, "0"
    return host.strip("[]"), int(port)


def digest_of(session_id: str) -> str:
    """Return what stands for a session where its id must not stand."""
    return sha256(b"foundation-rt session mark\n" + session_id.encode()).hexdigest()


@define(eq=False, repr=False)
class SessionMarks:
    """The marks of one place; without a folder there are none, and every method does nothing.

    Args:
        folder: is made if it is not there.
    """

    _folder: Path | None
    _inherited: set[str] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._inherited = {each.name for each in self._folder.iterdir()}

    def add(self, digest: str) -> None:
        """Mark a session: it has nothing but its handshake.

        A disk that is full costs the session no more than that it cannot be restored.
        """
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / digest).touch(mode=0o600)

    def remove(self, digest: str) -> None:
        """Remove a mark, if it is there; from any thread."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / digest).unlink(missing_ok=True)

    def take(self, digest: str) -> bool:
        """Return whether a worker that was here before has left the mark; once."""
        if digest not in self._inherited:
            return False
        self._inherited.remove(digest)
        return True

    def forget_inherited(self) -> None:
        """Remove the marks that nothing has asked for: their sessions have been idle for long."""
        inherited, self._inherited = self._inherited, set()
        for digest in inherited:
            self.remove(digest)
