"""Processes that take part in AACP and can be killed at any moment: for tests.

`Peers` runs ``python -m tests.lab.agents.processes``, which imports everything once and forks a
process for every peer that is asked for, so that a peer takes milliseconds to start; on Windows it
starts one. A peer says on its standard output what happened, one line each, before it goes on:

    entered ID          a request is in the ledger
    executed ID         its handler runs
    told ID OUTCOME     its sender knows the outcome
    finished            it has done what it was asked, and ends

and the parent of all peers says ``dead`` when one has ended, whatever ended it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import orjson
from attrs import asdict, define, field

from tests.lab.servers import fork_server

PATIENCE = 120.0
_COMMAND = [sys.executable, "-m", "tests.lab.agents.processes"]
_KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL
"""What ends a process at once: on Windows everything does that is sent to one."""


@define
class Part:
    """The task of one peer.

    Attributes:
        store: ``sqlite:PATH``, or ``SCHEMA@postgresql://...``.
        transport: ``PREFIX@nats://...``, or nothing.
        agents: that it registers.
        request_ids: that it sends, in turn to `targets`, with their number in this list as payload.
        kills: the request whose handler ends the process, if any.
        max_starts: after so many starts a request is abandoned.
        drain: it ends when the ledger has no unfinished request left; else when its requests are
            finished; and never, without requests.
        schedules: cron expressions by which it sends to the first of `agents`, as "s0" and so on.
        handler_ms: if not 0, an execution takes so long, and its result is when it began: the ns of
            a clock that all processes of the machine share.
        workers, rate: of the first of `agents`.
    """

    name: str
    store: str
    transport: str = ""
    agents: list[str] = field(factory=list)
    targets: list[str] = field(factory=list)
    request_ids: list[str] = field(factory=list)
    concurrency: int = 50
    lease_ms: int = 1_000
    kills: str = ""
    max_starts: int = 10
    drain: bool = False
    schedules: list[str] = field(factory=list)
    handler_ms: int = 0
    workers: int = 1
    rate: str = ""


def answer(payload: int) -> int | None:
    """Return what an agent of a peer returns; None: it fails."""
    return None if payload % 7 == 3 else payload * 2


_heard = threading.Condition()
"""Has the lock of what all peers say, and is notified of each piece."""


class Peers:
    """Starts peers, one after another, and hears what they say, in a thread."""

    def __init__(self) -> None:
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")
        }
        self._process = fork_server.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self.lines: list[list[str]] = []
        """The lines since the last peer was started, split at spaces."""
        self.pid = 0
        """The process of the peer; 0 if there is none."""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Peers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.pid and not self.has_ended():
            os.kill(self.pid, _KILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._listener.join(PATIENCE)
        self._process.stdout.close()

    def start(self, part: Part) -> None:
        """Start a peer; the one before has ended."""
        assert not self.pid
        assert self._process.stdin is not None
        self.lines = []
        self._process.stdin.write(orjson.dumps(asdict(part)) + b"\n")
        self._process.stdin.flush()
        self.wait_for(lambda: bool(self.lines))
        [word, pid] = self.lines.pop(0)
        assert word == "pid", (word, pid)
        self.pid = int(pid)

    def kill(self) -> None:
        """Kill the peer and hear what it had still to say."""
        os.kill(self.pid, _KILL)
        self.wait_for_end()

    def stop(self) -> None:
        """Have the peer do nothing (SIGSTOP) until it goes on."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Have a stopped peer go on."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_for_end(self) -> None:
        """Wait until the peer has ended."""
        self.wait_for(self.has_ended)
        self.lines.pop()
        self.pid = 0

    def has_ended(self) -> bool:
        """Whether the peer has ended."""
        return bool(self.lines) and self.lines[-1] == ["dead"]

    def said(self, word: str) -> list[list[str]]:
        """Return the rest of each line that begins so."""
        return [line[1:] for line in self.lines if line[0] == word]

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Hear until `holds()`."""
        wait_for(holds, self)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        incoming = b""
        while data := os.read(self._process.stdout.fileno(), 65_536):
            *lines, incoming = (incoming + data).split(b"\n")
            with _heard:
                self.lines += [line.decode().split(" ") for line in lines]
                _heard.notify_all()


def wait_for(holds: Callable[[], bool], *speakers: Peers) -> None:
    """Wait until `holds()`, which what these peers say decides."""
    with _heard:
        if not _heard.wait_for(holds, PATIENCE):
            last = [peers.lines[-3:] for peers in speakers]
            raise AssertionError(f"waited in vain; last lines: {last}")


# -- in the peers' own process ------------------------------------------------------------------


def say(*words: object) -> None:
    """One line, in one write, at once: nothing that was said is lost with the process."""
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


async def run_peer(part: Part) -> None:
    """Run one peer to its end."""
    from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
    from foundation_rt.agents.ledger.retransmitter import RetransmissionPolicy
    from foundation_rt.agents.messages import AgentContext, AgentMessage
    from foundation_rt.base.config.feature_sections import AacpSection
    from foundation_rt.errors import ErrorCode, ToolError

    coordinator = AgentCoordinatorV2(
        store=make_store(part.store, part.lease_ms),
        transport=make_transport(part.transport),
        name=part.name,
        policy=RetransmissionPolicy(
            base_delay_ms=100, max_delay_ms=1_000, max_executions=1, max_starts=part.max_starts
        ),
        aacp=AacpSection(lease_ms=part.lease_ms, request_timeout_ms=int(PATIENCE * 1000)),
    )

    async def execute(message: AgentMessage, context: AgentContext) -> Any:
        say("executed", context.correlation_id)
        if context.correlation_id == part.kills:
            os._exit(9)
        began = time.monotonic_ns()
        await asyncio.sleep(part.handler_ms / 1000)
        result = began if part.handler_ms else answer(message.payload)
        if result is None:
            raise ToolError(ErrorCode.NOT_FOUND, "no such number")
        return result

    async def entered(envelope: Any) -> None:
        say("entered", envelope.request_id)

    async def send(numbers: Any) -> None:
        for number in numbers:
            request_id = part.request_ids[number]
            target = part.targets[number % len(part.targets)]
            try:
                result = await coordinator.send_request(target, number, request_id=request_id)
                say("told", request_id, "COMPLETED", result)
            except ToolError as error:
                say("told", request_id, "FAILED", error.code)

    if part.request_ids:
        coordinator.on_message_received = entered
    for number, agent_id in enumerate(part.agents):
        workers, rate = (1, None) if number else (part.workers, part.rate or None)
        coordinator.register_agent(agent_id, execute, workers=workers, rate=rate)
    for number, expression in enumerate(part.schedules):
        coordinator.every(expression, part.agents[0], number, name=f"s{number}", missed="all")
    async with coordinator:
        say("started")
        if part.request_ids:
            numbers = iter(range(len(part.request_ids)))
            await asyncio.gather(*(send(numbers) for _ in range(part.concurrency)))
        elif not part.drain:
            await asyncio.get_running_loop().create_future()
        while part.drain and await make_pending(coordinator):  # noqa: ASYNC110 -- as long as it takes
            await asyncio.sleep(0.05)
    say("finished")


async def make_pending(coordinator: Any) -> list[Any]:
    """Return the requests without an outcome."""
    pending: list[Any] = await coordinator._running.runner.store.list_pending_requests()
    return pending


def make_store(address: str, lease_ms: int = 30_000) -> Any:
    """Return the store of a part."""
    if address.startswith("sqlite:"):
        from foundation_rt.agents.stores.sqlite import SqliteAACPPersistenceAdapter

        return SqliteAACPPersistenceAdapter(address.removeprefix("sqlite:"))
    from foundation_rt.agents.stores.postgres import PostgresAACPPersistenceAdapter

    schema, _, url = address.partition("@")
    return PostgresAACPPersistenceAdapter(url, schema=schema, lease_ms=lease_ms)


async def records_of(address: str, ids: list[str] | None = None) -> dict[str, Any]:
    """Return the records of requests, those of `ids` in that order; without them up to 1,000."""
    from foundation_rt.agents.ledger.administration import RequestQuery

    store = make_store(address)
    await store.open()
    try:
        if ids is None:
            found = await store.list_requests(RequestQuery(limit=1_000))
        else:
            found = await store.get_request_records(ids)
    finally:
        await store.close()
    records = {record.request_id: record for record in found}
    return records if ids is None else {each: records[each] for each in ids if each in records}


def make_transport(address: str) -> Any:
    """Open the transport of a part."""
    if not address:
        return None
    from foundation_rt.agents.transports.nats import NatsTransport

    prefix, _, url = address.partition("@")
    return NatsTransport(url, prefix=prefix)


def _run(line: bytes) -> None:
    asyncio.run(run_peer(Part(**orjson.loads(line))))


if sys.platform == "win32":

    def _do(line: bytes) -> None:
        """Run the peer of a line to its end."""
        peer = subprocess.Popen([*_COMMAND, "peer"], stdin=subprocess.PIPE)
        say("pid", peer.pid)
        peer.communicate(line)

else:

    def _do(line: bytes) -> None:
        """Run the peer of a line to its end."""
        pid = os.fork()
        if pid == 0:
            say("pid", os.getpid())
            _run(line)
            os._exit(0)
        os.waitpid(pid, 0)


def main() -> None:
    """Have a peer for every line, one at a time, until there are no more."""
    if sys.argv[1:]:
        _run(sys.stdin.buffer.readline())
        return
    import foundation_rt.agents.ledger.coordinator
    import foundation_rt.agents.ledger.runner
    import foundation_rt.agents.stores.postgres
    import foundation_rt.agents.stores.sqlite
    import foundation_rt.agents.transports.nats  # noqa: F401

    for line in sys.stdin.buffer:
        _do(line)
        say("dead")


if __name__ == "__main__":
    main()
