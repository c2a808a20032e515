"""A program under development, held in the test's own hands: no process runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

from foundation_rt.apps.dev import restarts as module
from foundation_rt.apps.dev.file_watch import WatchedFiles
from foundation_rt.apps.dev.journal import Journal
from foundation_rt.apps.dev.log_lines import REPORT_KEY, LogLine
from foundation_rt.apps.dev.program import Program, ProgramLink, ProgramObserver, ProgramTarget
from foundation_rt.apps.dev.restarts import Restarts
from foundation_rt.client import ConnectionLostError, MCPError, StdioServer
from foundation_rt.protocol.framing import LineTooLong
from foundation_rt.protocol.revisions import REVISIONS

pytestmark = pytest.mark.virtual_time


class Session:
    """What is behind a link: it takes note."""

    def __init__(self) -> None:
        self.lines: list[object] = []
        self.ends: list[MCPError] = []

    def received(self, line: object, _: object) -> None:
        self.lines.append(line)

    def lost(self, error: MCPError) -> None:
        self.ends.append(error)


class Developed:
    """A program, and what it has told its observer."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.log: list[LogLine] = []
        self.passed: list[bytes] = []
        observer = ProgramObserver(
            lambda program: self.states.append(program.state),
            lambda _, line: self.log.append(line),
            lambda _, __, line: self.passed.append(line),
        )
        server = StdioServer("there-is-no-such-program")
        self.program = Program("shop", server, WatchedFiles(), observer)

    async def link(self, *, is_negotiated: bool = True) -> tuple[ProgramLink, Session]:
        """Return a link of the present generation, as if its process ran."""
        link, session = ProgramTarget(self.program, self.program.generation)(), Session()
        with pytest.raises(MCPError, match="there-is-no-such-program"):
            await link.open(session)  # type: ignore[arg-type]
        self.program.problem = None
        if is_negotiated:
            link.negotiated(REVISIONS["2025-11-25"])
        return link, session


ENDED = ConnectionLostError("the server ended", may_have_run=True, retryable=True)


@pytest.mark.rule("DEV-16")
async def test_program_that_ends_long_after_its_handshake_is_started_again() -> None:
    one = Developed()
    link, session = await one.link()
    await asyncio.sleep(5.1)
    link.lost(ENDED)
    link.lost(ENDED)  # nothing is told twice
    assert session.ends == [ENDED]
    assert (one.program.state, one.program.restarts) == ("restarting", 1)


@pytest.mark.rule("DEV-16")
@pytest.mark.parametrize("has_begun", [True, False])
async def test_program_that_ends_soon_has_failed(has_begun: bool) -> None:
    one = Developed()
    link, session = await one.link(is_negotiated=has_begun)
    assert link.stderr_tail() == link._inner.stderr_tail()
    link.lost(ENDED)
    assert (one.program.state, link.stderr_tail()) == ("failed", "")
    assert session.ends[0].may_have_run is has_begun
    assert session.ends[0].message.startswith("the program cannot run until it is changed.")


@pytest.mark.rule("DEV-14")
async def test_process_of_an_earlier_generation_changes_nothing_of_the_next() -> None:
    one = Developed()
    old, session = await one.link()
    one.program.renew("tools.py changed")
    old.lost(ENDED)
    old.expire(ENDED)
    old.negotiated(REVISIONS["2025-11-25"])
    one.program.not_started(old, ENDED)
    old._on_stderr('{"foundationRtDev": {"pid": 7}}')
    assert (one.program.state, one.program.pid, one.program.problem) == ("restarting", None, None)
    [error] = session.ends
    assert "since tools.py changed" in error.message
    with pytest.raises(ConnectionLostError, match="is being restarted") as refused:
        await old.open(session)  # type: ignore[arg-type]
    assert (refused.value.may_have_run, refused.value.retryable) == (False, True)


@pytest.mark.rule("DEV-14")
async def test_process_that_cannot_be_ended_holds_up_the_next_for_a_time() -> None:
    one, loop = Developed(), asyncio.get_running_loop()
    await one.link()
    one.program.renew("tools.py changed")
    began = loop.time()
    await one.link()
    assert 15 < loop.time() - began < 16


@pytest.mark.rule("DEV-17")
async def test_program_that_does_not_answer_its_handshake_has_failed() -> None:
    one = Developed()
    one.program.give_up("not ready within 5 s")
    one.program.give_up("later")
    assert (one.program.state, str(one.program.problem and one.program.problem.message)) == (
        "failed",
        "not ready within 5 s",
    )


@pytest.mark.rule("DEV-10")
@pytest.mark.parametrize("report", [{"pid": "7", "files": 3}, {"pid": None, "problem": {}}])
async def test_report_that_is_of_no_loader_is_taken_for_nothing(report: dict[str, Any]) -> None:
    one = Developed()
    one.program.reported({"pid": 7, "files": ["/tools.py", 3], "problem": {"message": "no"}})
    one.program.reported(report)
    assert (one.program.pid, one.program.watched.files) == (7, {Path("/tools.py")})
    one.program.give_up("it ended")
    assert one.program.problem is not None
    assert one.program.problem.message == "no"


@pytest.mark.rule("DEV-22", "DEV-23")
async def test_what_comes_is_recorded_but_for_a_line_that_is_too_long() -> None:
    one = Developed()
    link, session = await one.link()
    too_long = LineTooLong(99)
    link.received(b"{}", None)
    link.received(too_long, None)
    link._on_stderr("plain")
    link._on_stderr(f'{{"{REPORT_KEY}": {{"pid": 7}}}}')
    assert (one.passed, session.lines) == ([b"{}"], [b"{}", too_long])
    assert [each.message for each in one.log] == ["plain"]
    assert one.program.pid == 7


class NoServers:
    """A coordinator that has no server."""

    states: ClassVar[dict[str, Any]] = {}

    def server(self, _: str) -> None:
        return None


def restarts(programs: dict[str, Program]) -> tuple[Restarts, Journal]:
    journal = Journal()

    async def reload() -> None:
        """Do nothing."""

    return Restarts(journal, programs, NoServers(), reload, Path("/")), journal  # type: ignore[arg-type]


@pytest.mark.rule("DEV-12")
@pytest.mark.parametrize(("changes", "seconds"), [(4, 0.75), (10**6, 3.0)])
async def test_burst_of_changes_is_one_for_three_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch, changes: int, seconds: float
) -> None:
    left, loop = changes, asyncio.get_running_loop()

    async def more(_: Restarts) -> dict[str, set[str]]:
        nonlocal left
        left -= 1
        return {"shop": {f"{left % 3}.py"}} if left >= 0 else {}

    monkeypatch.setattr(Restarts, "_changes", more)
    monkeypatch.setattr(module.time, "monotonic", loop.time)
    one, _ = restarts({})
    began = loop.time()
    found = await one._end_of_burst({"tea": {"a.py"}})
    assert found == {"tea": {"a.py"}, "shop": {"0.py", "1.py", "2.py"}}
    assert seconds <= loop.time() - began < seconds + 0.2


@pytest.mark.rule("DEV-15")
async def test_start_of_an_entry_that_has_gone_or_at_the_end_of_the_front_is_not_told() -> None:
    developed = Developed()
    one, journal = restarts({"shop": developed.program})
    one.follow(developed.program, ["a.py"], one.lists("shop"))
    await asyncio.sleep(1)
    [event] = journal.after(0)
    assert b'"outcome":"failed"' in event.data
    gone, journal = restarts({})
    gone.follow(developed.program, ["a.py"], gone.lists("shop"))
    await asyncio.sleep(1)
    gone.follow(developed.program, ["a.py"], gone.lists("shop"))
    gone.close()
    await asyncio.sleep(1)
    assert [*gone._tasks] == journal.after(0) == []
    ended, _ = restarts({"shop": developed.program})
    ended.close()
    ended.follow(developed.program, [], ended.lists("shop"))
    assert not ended.is_following(developed.program)
