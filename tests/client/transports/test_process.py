"""A child process and its group: what cannot be seen through a channel."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import pytest

from foundation_rt.client.transports import process
from foundation_rt.client.transports.process import ChildProcess
from tests.lab.peers.recording_receiver import LONG, run
from tests.lab.programs.processes import living, state
from tests.lab.waiting import until

IDLE = "import os, signal; print(os.getpid(), flush=True)\nwhile True: signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {IDLE}"


async def started(code: str, grace: float) -> tuple[ChildProcess, int]:
    """Yield a child that runs, and its id."""
    said: asyncio.Queue[bytes] = asyncio.Queue()
    child = ChildProcess(said.put_nowait, lambda data: None, lambda: None, grace)
    await child.start((sys.executable, "-I", "-S", "-c", code), {}, None)
    return child, int(await said.get())


@pytest.mark.rule("CHILD-12")
def test_killed_process_that_does_not_vanish_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send = os.killpg

    def powerless(group: int, number: int) -> None:
        send(group, 0)

    async def main() -> None:
        child, pid = await started(STUBBORN, 0.0)
        with monkeypatch.context() as patch:
            patch.setattr(os, "killpg", powerless)
            patch.setattr(process, "_REAP_SECONDS", 0.0)
            # asyncio's own attempt, when its transport is closed
            patch.setattr("subprocess.Popen.kill", lambda popen: None)
            await child.end()
            assert child.exit_code is None
            await child.end()
        assert living(pid)
        send(pid, signal.SIGKILL)
        await until(lambda: child.exit_code is not None, "the child ends")
        assert not state(pid)

    with caplog.at_level(logging.WARNING, "foundation_rt.client"):
        run(main())
    told = [each.message for each in caplog.records]
    assert told == ["processes that were killed are still there"]


@pytest.mark.rule("CHILD-11")
async def test_a_group_that_we_may_not_signal_counts_as_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(group: int, number: int) -> None:
        raise PermissionError

    child, pid = await started("import os, sys; print(os.getpid(), flush=True); input()", LONG)
    monkeypatch.setattr(os, "killpg", refuse)
    await child.end()
    assert child.exit_code == 1  # input() at the end of file
    assert not state(pid)


@pytest.mark.rule("CHILD-11")
async def test_group_is_signalled_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def scandir(path: str) -> None:
        raise FileNotFoundError(path)

    child, pid = await started(IDLE, 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        await child.end()
    assert child.exit_code in (-signal.SIGTERM, -signal.SIGKILL)  # the grace is that short
    assert not state(pid)


@pytest.mark.rule("CHILD-12")
async def test_kill_ends_the_grace_that_is_running() -> None:
    child, pid = await started(STUBBORN, LONG)
    ending = asyncio.ensure_future(child.end())
    await asyncio.sleep(0)
    child.kill()
    child.kill()
    await ending
    assert child.exit_code == -signal.SIGKILL
    assert not state(pid)


@pytest.mark.rule("CHILD-06")
async def test_nothing_is_written_once_it_ends() -> None:
    child, _ = await started(IDLE, 0.0)
    ending = asyncio.ensure_future(child.end())
    await asyncio.sleep(0)
    child.write(b"x" * 1_000_000)
    assert child.unsent_bytes == 0
    await ending
