"""The client's conversations, held over a channel of the test's own and with a real process."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from attrs import define, field

from foundation_rt.base.clock import ManualClock
from foundation_rt.client.errors import ConnectionLostError
from foundation_rt.client.options import REVISION_VARIABLE, TTL_VARIABLE
from foundation_rt.client.targets import StdioServer
from foundation_rt.client.transports.stdio import ChildProcessTransport
from tests.lab.checks.leaks import tasks
from tests.lab.clock.virtual_loop import VirtualLoop
from tests.lab.peers.client_vectors import FILES, FOLDER, ClientStep, ClientVector, Program, load

pytestmark = pytest.mark.usefixtures("forked")

if TYPE_CHECKING:
    from foundation_rt.client.transports.transport import ClientMessage, Receiver
    from foundation_rt.protocol.revisions import Revision

ROOT = Path(__file__).parents[2]
VECTORS = load()
FOR_PROCESSES = [vector for vector in VECTORS if vector.is_for_processes]

LIVENESS = 30.0
"""Seconds after which a conversation counts as hanging."""

ENOUGH = 100
"""Turns of the loop after which nothing is left to do at one moment."""


def canonical(values: list[dict[str, Any]]) -> list[bytes]:
    """JSON values as bytes that are equal if and only if the values and their types are."""
    return [orjson.dumps(value, option=orjson.OPT_SORT_KEYS) for value in values]


# -- the files


def test_the_table_of_the_vectors_names_every_file() -> None:
    readme = (FOLDER.parent / "README.md").read_text()
    named = re.findall(r"^\| `client/([a-z-]+)\.jsonl` \|", readme, re.MULTILINE)
    assert len(named) == len({*named})
    assert {*named} == {path.stem for path in FOLDER.glob("*.jsonl")}
    assert {vector.file for vector in VECTORS} == {*FILES}
    assert {vector.file for vector in FOR_PROCESSES} == {*FILES}


def test_every_vector_has_a_unique_name_and_existing_rules() -> None:
    ids = [vector.id for vector in VECTORS]
    assert len(ids) == len({*ids})
    pages = [path.read_text() for path in (ROOT / "spec").glob("*.md")]
    rules = {
        rule for page in pages for rule in re.findall(r"^\*\*([A-Z]+-\d\d)\*\*", page, re.MULTILINE)
    }
    for vector in VECTORS:
        assert vector.rules, vector.id
        assert not {*vector.rules} - rules, vector.id


# -- over a channel of the test's own


@define(eq=False)
class VectorTransport:
    """A `Transport` that keeps what is sent; the test says what comes."""

    sent: list[dict[str, Any]]
    receiver: Receiver = field(init=False)
    description = "a vector"
    has_exchanges = False
    is_congested = False

    async def open(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def send(self, message: ClientMessage) -> None:
        self.sent.append(orjson.loads(message.line))

    async def drained(self) -> None:
        """Return at once: everything is taken."""

    def forget(self, request_id: str) -> None:
        """There is one stream for all."""

    def negotiated(self, revision: Revision) -> None:
        """Do nothing: it carries every revision alike."""

    def stderr_tail(self) -> str:
        return ""

    async def close(self) -> None:
        """There is nothing to close."""


@define(eq=False)
class VectorHarness:
    """A client, and a server whose part the vector plays, in time that only the vector moves."""

    vector: ClientVector
    loop: VirtualLoop
    sent: list[dict[str, Any]] = field(factory=list)
    transports: list[VectorTransport] = field(factory=list)
    program: Program = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.program = Program(self.vector, self._make_transport)

    def act(self, step: ClientStep) -> None:
        """Let the step happen, and everything that it leads to at that moment."""
        if "advance_ms" in step.action:
            self.loop.run_until_complete(asyncio.sleep(step.action["advance_ms"] / 1000))
        elif "close" in step.action:
            self.loop.run_until_complete(self._close())
        else:
            self.loop.call_soon(self._begin, step)
        self.loop.turn(ENOUGH)

    def _begin(self, step: ClientStep) -> None:
        if "in" in step.action:
            self.transports[-1].receiver.received(step.text, None)
        elif "lost" in step.action:
            error = ConnectionLostError("the server is gone", may_have_run=True)
            self.transports[-1].receiver.lost(error)
        else:
            self.program.act(step.action)

    async def _close(self) -> None:
        await self.program.close()
        assert tasks() == []

    def _make_transport(self) -> VectorTransport:
        self.transports.append(VectorTransport(self.sent))
        return self.transports[-1]


@pytest.mark.rule("CLIENT-01", "CLIENT-03", "CLIENT-04", "CLIENT-10")
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.id)
def test_client_follows_the_vector(vector: ClientVector) -> None:
    loop = VirtualLoop(ManualClock())
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop()
        harness = VectorHarness(vector, loop)
        for step in vector.steps:
            sent, told = len(harness.sent), len(harness.program.told)
            harness.act(step)
            where = f"{vector.file}.jsonl:{step.line}"
            assert canonical(harness.sent[sent:]) == canonical(step.out), where
            assert canonical(harness.program.told[told:]) == canonical(step.told), where


# -- with a real process


@pytest.mark.rule("CLIENT-01", "CLIENT-04", "CLIENT-10", "CLIENT-29")
@pytest.mark.parametrize("vector", FOR_PROCESSES, ids=lambda vector: vector.id)
def test_the_client_does_it_with_a_real_process(vector: ClientVector, tmp_path: Path) -> None:
    got, pipe = tmp_path / "got.jsonl", tmp_path / "turns"
    os.mkfifo(pipe)
    script = [
        {"say": step.text.decode() if "in" in step.action else None, "expect": len(step.out)}
        for step in vector.steps
    ]
    (tmp_path / "script.json").write_bytes(orjson.dumps(script))
    player = ROOT / "tests" / "lab" / "peers" / "client_vector_server.py"
    words = [str(each) for each in (player, tmp_path / "script.json", pipe, got)]
    server = StdioServer(sys.executable, words)

    async def hold(turns: int) -> None:
        done = asyncio.Event()
        program = Program(
            vector, lambda: ChildProcessTransport(server, on_stderr=lambda _: done.set())
        )
        expected = 0
        for step in vector.steps:
            if "close" in step.action:
                await done.wait()
                await program.close()
            elif "in" in step.action:
                os.write(turns, b".")
            else:
                program.act(step.action)
            expected += len(step.told)
            await program.knows(expected)
        assert canonical(program.told) == canonical(
            [told for step in vector.steps for told in step.told]
        )
        assert tasks() == []

    async def bounded() -> None:
        turns = os.open(pipe, os.O_RDWR)  # for both, so that nobody waits for the other to open it
        try:
            async with asyncio.timeout(LIVENESS):
                await hold(turns)
        finally:
            os.close(turns)

    asyncio.run(bounded())
    received = [orjson.loads(line) for line in got.read_bytes().splitlines()]
    assert canonical(received) == canonical([out for step in vector.steps for out in step.out])


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (REVISION_VARIABLE, TTL_VARIABLE):
        monkeypatch.delenv(name, raising=False)
