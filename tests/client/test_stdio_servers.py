"""Servers over stdio that fail as real ones do: processes that never start, and broken lines."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from foundation_rt.client import ConnectionLostError, StdioServer, connect
from tests.lab.programs.program import run_source

LIVENESS = 60.0
"""Seconds after which a client counts as hanging."""

SERVER = r"""
import sys, json
for line in sys.stdin.buffer:
    line = line.decode()
    message = json.loads(line)
    method, request_id = message["method"], message.get("id")
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}}
    elif method == "tools/list":
        result = {"tools": [{"name": "break", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        head = '{"jsonrpc":"2.0","id":"%s","result":{"content":[{"type":"text","text":' % request_id
        text = message["params"]["arguments"]["line"]
        text = text.replace("HEAD", head).replace("TAIL", "}]}}").replace("ECHO", line.strip())
        sys.stdout.buffer.write(text.encode("latin-1") + b"\n")
        sys.stdout.buffer.flush()
        continue
    elif request_id is None:
        continue
    else:
        reply = {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request_id, **reply}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}), flush=True)
"""


pytestmark = pytest.mark.usefixtures("nothing_left")


# -- lines that are not JSON


# -- processes that never start


@pytest.mark.rule("CHILD-15")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says that nothing was read")
async def test_command_that_cannot_start_is_started_once(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    code = f"open({str(starts)!r}, 'a').write('x'); import there_is_no_such_module"
    error = await failure_of(code)
    assert (error.code, error.retryable, error.may_have_run) == ("E201", False, False)
    assert "there_is_no_such_module" in error.message
    assert "Try again" not in str(error)
    assert starts.read_text() == "x"


@pytest.mark.rule("CHILD-15")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says that nothing was read")
async def test_command_that_reads_nothing_is_started_once_whenever_it_exits(tmp_path: Path) -> None:
    """As on a busy machine, the end of its pipes is known long before its exit."""
    starts = tmp_path / "starts"
    code = f"import os, time; open({str(starts)!r}, 'a').write('x'); "
    error = await failure_of(code + "os.close(0); os.close(1); time.sleep(3600)")
    assert not error.may_have_run
    assert starts.read_text() == "x"


async def failure_of(code: str) -> ConnectionLostError:
    async with connect(StdioServer(sys.executable, ["-c", code], shutdown_grace=0.1)) as client:
        with pytest.raises(ConnectionLostError) as caught:
            await client.call("any")
    return caught.value


@pytest.mark.rule("CHILD-20")
async def test_server_that_exits_on_any_request_is_started_twice(tmp_path: Path) -> None:
    """It has read `server/discover`; an older server may end for that, so it is asked once more."""
    starts = tmp_path / "starts"
    code = f"open({str(starts)!r}, 'a').write('x'); input(); raise SystemExit('I give up')"

    async with connect(StdioServer(sys.executable, ["-c", code])) as client:
        with pytest.raises(ConnectionLostError) as caught:
            await client.call("any")
        assert not caught.value.retryable
        assert "I give up" in caught.value.message
        assert starts.read_text() == "xx"


@pytest.mark.rule("CHILD-15")
@pytest.mark.parametrize("command", ["there-is-no-such-program", "/there/is/no/such/file"])
async def test_missing_program_is_not_worth_another_try(command: str) -> None:
    attempts: list[object] = []

    async with connect(StdioServer(command)) as client:
        make_transport = client._link.make_transport
        client._link.make_transport = lambda: attempts.append(1) or make_transport()  # type: ignore[func-returns-value]
        with pytest.raises(ConnectionLostError) as caught:
            await client.call("any")
        assert not caught.value.retryable
        assert len(attempts) == 1


# -- what the client's own program shows


@pytest.mark.rule("CHILD-16")
async def test_writing_to_a_server_that_has_ended_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Check that asyncio does not warn of a message that is written after the end was seen."""
    async with connect(StdioServer(sys.executable, ["-c", SERVER])) as client:
        await client.initialize()
        session = client._link.current
        assert session is not None
        transport = client._link.transport
        assert transport is not None
        child = transport._child  # type: ignore[attr-defined]
        child._family.send(9)
        child._input.write(b"\n" * 200_000)
        while not child._input.is_closing():
            child._input.write(b"\n")
            await asyncio.sleep(0)
        for _ in range(100):
            session.notify("notifications/roots/list_changed")
        await session.ended.wait()
    assert [each for each in caplog.records if each.name == "asyncio"] == []


QUIET_PROGRAM = """
import asyncio, sys
from foundation_rt.client import MCPError, StdioServer, connect
from foundation_rt.client.resilience.circuit_breaker import BreakerSettings

async def main():
    server = StdioServer(sys.executable, ["-c", sys.argv[1]])
    async with connect(server, breaker=BreakerSettings(failure_threshold=1)) as client:
        print((await client.initialize()).revision.name)
        try:
            await client.call("break", {"line": "HEADNaNTAIL"})
        except MCPError as error:
            print(error.code, client.circuit_state.value)

asyncio.run(main())
"""


@pytest.mark.rule("CLIENT-33")
def test_program_without_logging_configured_has_a_clean_stderr() -> None:
    """An older server, and an open circuit, are a WARN each."""
    older = SERVER.replace("2025-11-25", "2024-11-05")
    words = [sys.executable, "-c", QUIET_PROGRAM, older]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIVENESS, check=True)
    assert done.stdout.split() == ["2024-11-05", "E209", "OPEN"]
    assert done.stderr == ""


INTERRUPTED = """
import signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[-1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from foundation_rt.__main__ import main

sys.argv[1:] = ["tools", "there-is-no-such-program", sys.argv[-1]]
main()
"""


@pytest.mark.rule("CLI-24")
@pytest.mark.parametrize("module", ["main", "run", "commands"])
def test_import_that_is_interrupted_prints_no_traceback(module: str) -> None:
    name = f"foundation_rt.cli.{module}"
    done = run_source(INTERRUPTED, name, succeeds=False)
    assert (done.returncode, done.stderr, done.stdout) == (130, "", "")
