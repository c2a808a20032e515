"""Servers over stdio that fail while both sides introduce themselves, at every point of it.

Whatever such a server does, whoever calls gets an `MCPError` that says that nothing was carried
out, within the time that connecting may take; and nothing is left of the server.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.client import CallResult, Client, MCPError, StdioServer, connect
from foundation_rt.client.options import ClientOptions
from tests.lab.checks.leaks import ResourceSnapshot, tasks
from tests.lab.clock.virtual_loop import run_virtual
from tests.lab.peers.script import STATELESS, Act
from tests.lab.peers.script_memory import ONCE, MemoryHarness
from tests.lab.peers.script_processes import DEATHS, HANDSHAKE, ROOT, MisbehavingHarness

LIVENESS = 60.0
"""Seconds after which a client counts as hanging."""

POINTS = {
    HANDSHAKE: [
        "start",
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
    ],
    STATELESS: ["start", "server/discover", "tools/list"],
}

ENDS: dict[str, list[Act]] = {**DEATHS, "exits after its answer": [["answer"], ["exit", 0]]}

HANGS: dict[str, list[Act]] = {
    "says nothing": [],
    "says half": [["part", 0.5]],
    "reads no more": [["deaf"]],
    "closes its input": [["close", "stdin"]],
    "ignores every signal but one": [["stubborn"], ["deaf"]],
}
"""What a client knows nothing of until its time is over."""

NONSENSE: dict[str, list[Act]] = {
    "a wrong id": [["answer", {"id": "somebody else's"}]],
    "no JSON": [["raw", "\x00\xff{]"]],
    "noise": [["noise", "Listening on port 3000\n"]],
    "a result that is a number": [["reply", {"result": 5}]],
    "a result that is empty": [["reply", {"result": {}}]],
    "a result of lists": [
        [
            "reply",
            {"result": {"protocolVersion": [], "capabilities": [], "tools": {}, "serverInfo": []}},
        ]
    ],
    "a revision nobody knows": [
        ["reply", {"result": {"protocolVersion": "1.0", "capabilities": {}}}]
    ],
    "an error that is a text": [["reply", {"error": "no"}]],
    "an error without anything": [["reply", {"error": {}}]],
    "an error whose code is a text": [["reply", {"error": {"code": "-32601", "message": 7}}]],
    "an error that names no request": [
        ["reply", {"id": None, "error": {"code": -32600, "message": "?"}}]
    ],
    "the request itself": [["raw", '{"jsonrpc":"2.0","id":1,"method":"initialize"}']],
}


Outcome = CallResult | MCPError


def server(harness: MisbehavingHarness) -> StdioServer:
    return StdioServer(harness.command[0], harness.command[1:], cwd=ROOT, shutdown_grace=0.2)


async def outcome(harness: MisbehavingHarness, **options: Any) -> Outcome:
    """Return the error of connecting and calling, without retries."""
    try:
        async with connect(server(harness), retries=ONCE, **options) as client:
            return await client.call("play", {"nonce": "mine"})
    except MCPError as error:
        return error


async def together(stages: list[MisbehavingHarness], **options: Any) -> list[Outcome]:
    async with asyncio.timeout(LIVENESS):
        ends = await asyncio.gather(*(outcome(harness, **options) for harness in stages))
    assert tasks() == []
    return ends


def everywhere(acts: list[Act], **options: Any) -> dict[tuple[str, str], Outcome]:
    """Do this at every point; return what came of it, and see that it is consistent."""
    before = ResourceSnapshot.now()
    stages = {
        (revision, point): MisbehavingHarness({point: acts}, revision=revision)
        for revision, points in POINTS.items()
        for point in points
    }
    ends = dict(zip(stages, asyncio.run(together([*stages.values()], **options)), strict=True))
    ResourceSnapshot.now().must_equal(before)
    for where, harness in stages.items():
        with harness:
            must_be_consistent(ends[where], harness.nonces(), where)
    return ends


def must_be_consistent(end: Outcome, nonces: list[str], where: object) -> None:
    """See that an error admits whatever has run, and that only the own result is taken for one."""
    if isinstance(end, MCPError):
        assert nonces == [] or end.may_have_run, where
    else:
        assert (end.text, nonces) == ("mine", ["mine"]), where


@pytest.mark.parametrize("acts", ENDS.values(), ids=ENDS)
def test_a_server_that_ends_at_any_point_of_the_handshake(acts: list[Act]) -> None:
    for where, end in everywhere(acts).items():
        if where == (HANDSHAKE, "server/discover"):
            # There are servers that end when they are asked what they do not know.
            assert isinstance(end, CallResult)
        else:
            assert isinstance(end, MCPError), where
            assert end.code == "E201" or where == (STATELESS, "server/discover"), where
            assert not end.may_have_run or acts[0] == ["answer"], where


@pytest.mark.parametrize("acts", HANGS.values(), ids=HANGS)
def test_a_server_that_hangs_at_any_point_of_the_handshake(acts: list[Act]) -> None:
    ends = everywhere(acts, timeout=0.6, connect_timeout=0.6, probe_timeout=0.1)
    for where, end in ends.items():
        if where[1] in ("initialize", "tools/list"):
            assert isinstance(end, MCPError), where
            assert not end.may_have_run


@pytest.mark.parametrize("point", [(each, at) for each in POINTS for at in POINTS[each]])
def test_a_server_that_answers_nonsense_at_any_point_of_the_handshake(
    point: tuple[str, str],
) -> None:
    """Without a process: a message is as wrong over any transport."""
    for name, acts in NONSENSE.items():
        harness = MemoryHarness(point[0])
        harness.play({point[1]: acts})
        end = in_memory(harness, timeout=5, connect_timeout=5, probe_timeout=1)
        must_be_consistent(end, harness.nonces(), name)
        if point[1] in ("initialize", "tools/list"):
            assert isinstance(end, MCPError), name
            assert not end.may_have_run


def in_memory(harness: MemoryHarness, **options: Any) -> Outcome:
    """Return the error of connecting and calling, without retries, in virtual time."""
    ends: list[Outcome] = []

    async def scenario(clock: ManualClock) -> None:
        try:
            async with Client(harness.make_transport, ClientOptions(retries=ONCE, **options)) as it:
                ends.append(await it.call("play", {"nonce": "mine"}))
        except MCPError as error:
            ends.append(error)

    run_virtual(scenario)
    return ends[0]


ENDS_FOR_THE_PROBE: dict[str, list[Act]] = {
    "at once": [["die"]],
    "having refused": [["answer"], ["die"]],
    "while it refuses": [["die"], ["answer"]],
    "having said something": [["noise", "usage: server"], ["die"]],
    "hanging up": [["fail", True]],
}


@pytest.mark.rule("CLIENT-37")
@pytest.mark.parametrize(
    ("how", "has_exchanges"),
    [
        (how, has_exchanges)
        for how in ENDS_FOR_THE_PROBE
        for has_exchanges in (True, False)
        if has_exchanges or how != "hanging up"
    ],
)
def test_a_server_that_ends_for_the_probe_is_not_probed_again(
    how: str, has_exchanges: bool
) -> None:
    """Without a process, so that the end comes at the same moment each time."""
    harness = MemoryHarness(HANDSHAKE, has_exchanges)
    harness.play({"server/discover": ENDS_FOR_THE_PROBE[how]})

    end = in_memory(harness)
    assert isinstance(end, CallResult)
    assert end.text == "mine"
    methods = [each["method"] for each in harness.events("message")]
    assert methods.count("server/discover") == 1
    assert len(harness.transports) == 2


@pytest.mark.rule("CLIENT-01", "CLIENT-36")
@pytest.mark.parametrize("newest_first", [True, False])
async def test_of_two_answers_that_come_together_the_newer_kind_counts(newest_first: bool) -> None:
    """The server reads nothing until both have come; so many clients that chance would be seen."""
    spoken = {"protocolVersion": HANDSHAKE, "capabilities": {"tools": {}}, "serverInfo": {}}
    reply: Act = ["reply", {"result": spoken}]

    async def revision() -> str:
        harness = MemoryHarness(STATELESS)
        harness.play(
            {
                "server/discover": [["wait", "initialize"], ["answer"]],
                "initialize": [["wait", "initialize"], reply] if newest_first else [reply],
            }
        )
        options = ClientOptions(require=(), probe_timeout=0.001)
        async with Client(harness.make_transport, options) as client:
            return (await client.initialize()).revision.name

    assert {*await asyncio.gather(*(revision() for _ in range(16)))} == {STATELESS}
