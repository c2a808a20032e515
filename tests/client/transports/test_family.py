"""A child and all that it starts, on every system: nothing outlives its end, or its client."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foundation_rt.client.transports.process import ChildProcess
from tests.lab.waiting import PATIENCE, block_until

ROOT = Path(__file__).parent.parent.parent.parent
# It starts a process that writes to a file for ever, and says so; it ends when nobody asks it to,
# or never.
SERVER = """
import subprocess, sys, time
words = "import sys, time\\nwhile True:\\n open(sys.argv[1], 'a').write('x'); time.sleep(0.01)"
quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
subprocess.Popen([sys.executable, "-c", words, sys.argv[1]], **quiet)
while True:
    try:
        if open(sys.argv[1]).read():
            break
    except OSError:
        time.sleep(0.01)
print("both run", flush=True)
sys.stdin.read()
if sys.argv[2] == "stubborn":
    time.sleep(1000)
"""

CLIENT = f"""
import asyncio, sys
from tests.client.transports.test_family import started
async def main():
    child = await started(sys.argv[1], "stubborn")
    print("both run", flush=True)
    await asyncio.sleep({PATIENCE})
asyncio.run(main())
"""


async def started(beat: str | os.PathLike[str], how: str) -> ChildProcess:
    """Return a child that has a child, which writes to `beat`; one that obeys has time to."""
    runs = asyncio.Event()
    grace = 0.2 if how == "stubborn" else PATIENCE
    child = ChildProcess(lambda data: runs.set(), print, runs.set, grace)
    words = [sys.executable, "-c", SERVER, str(beat), how]
    await child.start(words, dict(os.environ), None)
    await asyncio.wait_for(runs.wait(), PATIENCE)
    return child


def wait_until_still(beat: Path) -> None:
    """Wait until nobody writes to a file any more."""

    def is_still() -> bool:
        size = beat.stat().st_size
        time.sleep(0.3)
        return beat.stat().st_size == size

    block_until(is_still, "it ends with its client")


@pytest.mark.rule("WIN-30", "WIN-31", "CHILD-12")
@pytest.mark.parametrize("how", ["obedient", "stubborn"])
async def test_close_ends_what_a_server_has_started(tmp_path: Path, how: str) -> None:
    child = await started(tmp_path / "beat", how)
    await child.end()
    size = (tmp_path / "beat").stat().st_size
    assert child.exit_code is not None
    assert (child.exit_code == 0) is (how == "obedient")
    wait_until_still(tmp_path / "beat")
    assert (tmp_path / "beat").stat().st_size == size


@pytest.mark.rule("WIN-30", "CHILD-21")
def test_what_a_server_has_started_ends_with_a_client_that_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", CLIENT, str(tmp_path / "beat")]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "both run\n"
        client.kill()
        client.stdout.close()
        client.wait(PATIENCE)
    wait_until_still(tmp_path / "beat")


@pytest.mark.skipif(sys.platform != "win32", reason="needs cmd.exe")
@pytest.mark.rule("WIN-32", "WIN-33")
async def test_server_of_a_batch_file_is_found_and_ended(tmp_path: Path) -> None:
    (tmp_path / "tool.cmd").write_text(f'@"{sys.executable}" %*\n')
    runs, got = asyncio.Event(), []
    child = ChildProcess(lambda data: (got.append(data), runs.set()), print, runs.set, 0.2)
    code = "import sys; print(sys.argv[1], flush=True); sys.stdin.read()"
    env = {**os.environ, "PATH": f"{tmp_path};{os.environ['PATH']}"}
    await child.start(["tool", "-c", code, '"&calc'], env, None)
    await asyncio.wait_for(runs.wait(), PATIENCE)
    assert b"".join(got) == b'"&calc\r\n'
    await child.end()
    assert child._family.has_gone()
