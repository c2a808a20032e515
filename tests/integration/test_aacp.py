"""A real server with a ledger in a file: what a client can find out, across its lives."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.lab.servers.process import ServerProcess, serve

APP = '''
import asyncio, os, time
from pathlib import Path

from foundation_rt import AgentContext, AgentMessage, Server

server = Server("agents")
agents = server.agents
executed = Path(os.environ["FOUNDATION_RT_AACP__STORE"].partition(":")[2] + ".executed")


async def clerk(message: AgentMessage, context: AgentContext) -> object:
    """Notes that it was asked, and answers; or waits until the file "go" is there."""
    with executed.open("a") as file:
        file.write(f"{context.correlation_id}\\\\n")
    context.logger.info("begun")
    while message.type == "wait" and not executed.with_name("go").exists():
        await asyncio.sleep(0.01)
    return {"got": message.payload}


@server.tool(timeout_ms=500)
def slow() -> str:
    """Waits, in a thread, until the file "go" is there."""
    while not executed.with_name("go").exists():
        time.sleep(0.01)
    return "late"


agents.register_agent("clerk", clerk)
'''.replace("\\\\", "\\")


def request(kind: str, payload: object, request_id: str, **more: object) -> dict[str, object]:
    message = {"type": kind, "payload": payload}
    return {"targetAgentId": "clerk", "message": message, "requestId": request_id, **more}


def settings(folder: Path, **more: object) -> dict[str, object]:
    return {"aacp.store": f"sqlite:{folder / 'ledger.db'}", **more}


def executions(folder: Path) -> list[str]:
    """Return the ids of the executed requests, each as often as it was executed."""
    return (folder / "ledger.db.executed").read_text().split()


def status_when_known(server: ServerProcess, request_id: str) -> dict[str, object]:
    """Return the status of a request as soon as it is not UNKNOWN."""
    while True:
        status: dict[str, object] = server.call("agent/status", requestId=request_id)
        if status["outcome"] != "UNKNOWN":
            return status


@pytest.mark.rule("AACP-01", "AACP-12", "AACP-21", "AACP-31", "AACP-45")
def test_what_one_life_has_answered_the_next_one_answers_alike(tmp_path: Path) -> None:
    sent = request("note", {"city": "Oslo"}, "r1")
    with serve(APP, settings(tmp_path)) as server:
        first = server.call("agent/request", **sent)
        assert first == {
            "requestId": "r1",
            "outcome": "COMPLETED",
            "result": {"got": {"city": "Oslo"}},
        }
        assert server.finish() == 0
    with serve(APP, settings(tmp_path)) as server:
        assert server.call("agent/request", **sent) == first
        status = server.call("agent/status", requestId="r1")
        assert (status["outcome"], status["result"]) == ("COMPLETED", first["result"])
        conflict = server.call("agent/request", **request("note", {"city": "Rome"}, "r1"))
        assert conflict["details"]["reason"] == "request_id_conflict"
        assert server.call("agent/status", requestId="r2")["code"] == "NOT_FOUND"
        assert server.finish() == 0
    assert executions(tmp_path) == ["r1"]


@pytest.mark.rule("AACP-06", "AACP-25", "AACP-26", "AACP-27", "AACP-45")
def test_a_request_that_a_stop_interrupts_is_finished_in_the_next_life(tmp_path: Path) -> None:
    with serve(APP, settings(tmp_path)) as server:
        sent = request("wait", 1, "r1", timeoutMs=50)
        assert server.call("agent/request", **sent) == {"requestId": "r1", "outcome": "UNKNOWN"}
        queued = request("note", 2, "r2", timeoutMs=50)
        assert server.call("agent/request", **queued)["outcome"] == "UNKNOWN"
        server.record(message="begun")
        assert server.finish() == 0
    (tmp_path / "go").touch()
    with serve(APP, settings(tmp_path)) as server:
        assert status_when_known(server, "r1")["result"] == {"got": 1}
        assert status_when_known(server, "r2")["result"] == {"got": 2}
        assert server.finish() == 0
    assert executions(tmp_path) == ["r1", "r1", "r2"]


@pytest.mark.rule("AACP-05", "AACP-22", "AACP-27")
def test_a_request_that_a_kill_interrupts_is_finished_when_its_lease_has_lapsed(
    tmp_path: Path,
) -> None:
    limits = settings(tmp_path, **{"aacp.lease_ms": 300})
    with serve(APP, limits) as server:
        sent = request("wait", 1, "r1", timeoutMs=50)
        assert server.call("agent/request", **sent)["outcome"] == "UNKNOWN"
        server.record(message="begun")
        server.signal(signal.SIGKILL)
        server.wait()
    (tmp_path / "go").touch()
    with serve(APP, limits) as server:
        assert status_when_known(server, "r1")["result"] == {"got": 1}
        assert server.finish() == 0
    assert executions(tmp_path) == ["r1", "r1"]


@pytest.mark.rule("AACP-28", "AACP-82")
def test_a_call_that_timed_out_is_known_by_its_run_id_now_and_in_the_next_life(
    tmp_path: Path,
) -> None:
    limits = settings(tmp_path)
    with serve(APP, limits) as server:
        timed_out = server.call("slow")
        assert timed_out["code"] == "TIMEOUT"
        run_id = timed_out["runId"]
        assert server.call("agent/status", requestId=run_id)["outcome"] == "UNKNOWN"
        (tmp_path / "go").touch()
        assert status_when_known(server, run_id)["result"] == "late"
        assert server.finish() == 0
    with serve(APP, limits) as server:
        assert server.call("agent/status", requestId=run_id)["result"] == "late"
        assert server.finish() == 0


@pytest.mark.rule("AACP-28", "PROC-04")
def test_a_call_whose_client_left_is_known_in_the_next_life(tmp_path: Path) -> None:
    limits = settings(tmp_path, **{"server.eof_grace_ms": 0, "tools.cancel_grace_ms": 100})
    with serve(APP, limits) as server:
        server.call("agent/status", requestId="x")  # the ledger is open
        message = {"type": "wait"}
        server.start("agent/sendMessage", targetAgentId="clerk", message=message)
        server.record(message="begun")
        assert server.finish() == 0
        run_id = server.completion("agent/sendMessage")["runId"]
    with serve(APP, limits) as server:
        status = server.call("agent/status", requestId=run_id)
        assert status["outcome"] == "FAILED"
        assert status["error"]["details"] == {"reason": "aborted"}
        assert server.finish() == 0


@pytest.mark.rule("AACP-27", "AACP-31")
def test_a_ledger_that_cannot_be_opened_is_said_and_the_server_serves(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("this is no database, and long enough to look like a file")
    with serve(None, {"aacp.store": f"sqlite:{tmp_path / 'ledger.db'}"}) as server:
        names = {tool["name"] for tool in server.request("tools/list")["result"]["tools"]}
        assert {"agent/request", "agent/status"} <= names
        failed = server.record(message="agents not started; it is tried again")
        assert failed["level"].lower() == "error"
        assert server.call("agent/status", requestId="r1")["code"] == "INTERNAL"
        assert server.call("health")
        assert server.finish() == 0
