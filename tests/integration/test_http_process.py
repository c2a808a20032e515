"""`foundation-rt serve` over HTTP: how it begins and ends; beside stdio; in several processes."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from foundation_rt.http.cluster.worker_processes import WORKER_VARIABLE, WorkerPlace
from tests.lab.peers.raw_http import META, RawClient
from tests.lab.servers.http_server import free_port, serve_http, serve_workers
from tests.lab.servers.process import ServerProcess, command, environment, run

APP = """
import asyncio, os, time
from foundation_rt import Server, ToolContext

server = Server("served")


@server.lifespan
async def life(server):
    server.runtime.logger.info("entered")
    yield
    server.runtime.logger.info("left")


@server.tool
async def pid() -> int:
    return os.getpid()


tasks = []


@server.tool
async def leave_a_task() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            server.runtime.logger.info("cancelled")
            time.sleep(3600)

    tasks.append(asyncio.create_task(stubborn()))
    await asyncio.sleep(0)


@server.tool
async def wait(context: ToolContext) -> str:
    server.runtime.logger.info("waiting")
    await context.abort_signal.wait()
    return "aborted"


@server.tool
async def finish(path: str) -> str:
    server.runtime.logger.info("waiting")
    while not os.path.exists(path):
        await asyncio.sleep(0.01)
    return "finished"


@server.tool
def stuck() -> None:
    server.runtime.logger.info("waiting")
    time.sleep(3600)


@server.tool
async def blocking() -> None:
    server.runtime.logger.info("waiting")
    time.sleep(3600)


@server.tool(inline=True)
def blocking_inline() -> None:
    time.sleep(3600)


@server.tool
async def ends_the_process() -> None:
    asyncio.get_running_loop().create_task(leave())
    await asyncio.sleep(0)


async def leave():
    raise SystemExit(7)


@server.tool
async def count_roots(context: ToolContext) -> int:
    return len(await context.roots(key="roots"))


@server.tool
async def die() -> None:
    os.kill(os.getpid(), 9)
"""

SIGNALS = {signal.SIGTERM: 143, signal.SIGINT: 130}
if sys.platform != "win32":
    SIGNALS[signal.SIGHUP] = 129


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


# -- alone ---------------------------------------------------------------------------------------


@pytest.mark.rule("HTTP-22", "CLI-07")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_an_idle_server(app: Path, number: signal.Signals) -> None:
    with serve_http(app) as server, RawClient(server.url) as client:
        assert client.fetch(client.call("pid")).status == 200
        server.process.signal(number)
        assert server.process.wait() == SIGNALS[number]
        messages = [each["message"] for each in server.process.records]
        assert messages.index("entered") < messages.index("serving over HTTP")
        assert messages[-1] == "left"


@pytest.mark.rule("HTTP-16", "HTTP-22")
def test_calls_may_finish_and_listeners_are_told(app: Path, tmp_path: Path) -> None:
    with (
        serve_http(app) as server,
        RawClient(server.url) as caller,
        RawClient(server.url) as listener,
    ):
        listen = {"notifications": {"toolsListChanged": True}}
        listener.send(listener.request("subscriptions/listen", listen))
        listener.read_until(b"acknowledged")
        caller.send(caller.call("finish", path=str(tmp_path / "go")))
        server.process.record(message="waiting")
        server.process.signal(signal.SIGTERM)
        listener.read_until(b'"resultType":"complete"')
        assert listener.is_ended()
        with pytest.raises(OSError):
            while True:
                RawClient(server.url).socket.close()  # the port is given up
        (tmp_path / "go").touch()
        assert b"finished" in caller.answer().body
        assert server.process.wait() == 143


@pytest.mark.rule("HTTP-16", "AUTH-24")
@pytest.mark.parametrize("tool", ["wait", "stuck"])
def test_responses_end_when_their_calls_are_aborted(app: Path, tool: str) -> None:
    # ms; sockets of Wine close in seconds, and a busy machine needs a part of this for the end
    budget = 10_000 if sys.platform == "win32" else 4_000
    settings = {"server.shutdown_timeout_ms": budget, "tools.cancel_grace_ms": 50}
    with (
        serve_http(app, settings=settings) as server,
        RawClient(server.url) as stateless,
        RawClient(server.url) as in_session,
    ):
        headers = in_session.begin_session()
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool}}
        in_session.send(in_session.post(call, headers))
        in_session.read_until(b"retry: ")
        stateless.send(stateless.call(tool))
        server.process.wait_until(
            lambda: len(server.process.records_with(message="waiting")) == 2, "both calls run"
        )
        server.process.signal(signal.SIGTERM)
        answer = stateless.answer()
        assert answer.status == 503
        assert answer.json["error"]["data"]["reason"] == "server_stopping"
        assert answer.headers["x-content-type-options"] == "nosniff"
        in_session.read_until(b"\r\n0\r\n\r\n")
        assert server.process.wait() == 143
        assert server.process.records_with(message="uvicorn") == []


@pytest.mark.rule("HTTP-16", "HTTP-22")
@pytest.mark.parametrize("tool", ["wait", "stuck", "blocking"])
def test_the_process_ends_in_its_time_whatever_runs(app: Path, tool: str) -> None:
    settings = {"server.shutdown_timeout_ms": 1000, "tools.cancel_grace_ms": 50}
    with serve_http(app, settings=settings) as server, RawClient(server.url) as caller:
        caller.send(caller.call(tool))
        server.process.record(message="waiting")
        server.process.signal(signal.SIGTERM)
        assert server.process.wait() == 143
        record = server.process.completion(tool)
        assert record["outcome"] in ("disconnected_completed", "aborted")
        assert caller.is_ended()


@pytest.mark.rule("HTTP-22")
@pytest.mark.parametrize("tool", ["wait", "blocking"])
def test_a_second_signal_ends_it_at_once(app: Path, tool: str) -> None:
    settings = {"server.shutdown_timeout_ms": 600_000}
    with serve_http(app, settings=settings) as server, RawClient(server.url) as caller:
        caller.send(caller.call(tool))
        server.process.record(message="waiting")
        server.process.insist(signal.SIGTERM)
        assert server.process.exit_code == 143


@pytest.mark.rule("HTTP-22")
def test_a_second_signal_while_what_handlers_left_is_cancelled_keeps_the_exit_code(
    app: Path,
) -> None:
    settings = {"server.shutdown_timeout_ms": 600_000}
    with serve_http(app, settings=settings) as server, RawClient(server.url) as client:
        client.fetch(client.call("leave_a_task"))
        server.process.signal(signal.SIGTERM)
        server.process.record(message="cancelled")
        server.process.insist(signal.SIGTERM)
        assert server.process.exit_code == 143


@pytest.mark.rule("TIME-09")
@pytest.mark.parametrize("tool", ["blocking", "blocking_inline"])
def test_handler_that_blocks_the_event_loop_over_http_is_named(app: Path, tool: str) -> None:
    with serve_http(app) as server, RawClient(server.url) as caller:
        caller.send(caller.call(tool))
        warning = server.process.record(message="a handler blocks the event loop")
        assert (warning["level"], warning["toolName"]) == ("warn", tool)
        assert warning["blockedSeconds"] >= 1
        server.process.insist(signal.SIGTERM)


def test_a_task_that_raises_system_exit_ends_nothing(app: Path) -> None:
    with serve_http(app) as server, RawClient(server.url) as client:
        client.fetch(client.call("ends_the_process"))
        server.process.record(message="event loop error")
        assert client.fetch(client.call("pid")).status == 200


@pytest.mark.rule("AUTH-01", "HTTP-22", "CLI-07")
def test_what_keeps_it_from_beginning_is_said(app: Path, tmp_path: Path) -> None:
    no_key = run("serve", str(app), "--http", "127.0.0.1:0")
    assert no_key.returncode == 1
    for way_out in ("http.api_keys", "oauth.issuer", "--no-auth"):
        assert way_out in no_key.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        in_use = run("serve", str(app), "--http", address, "--no-auth")
    assert in_use.returncode == 1
    assert f"cannot listen on {address}" in in_use.stderr
    broken = tmp_path / "broken.py"
    broken.write_text(APP.replace("    yield\n", "    raise OSError('no database')\n    yield\n"))
    failed = run("serve", str(broken), "--http", "127.0.0.1:0", "--no-auth")
    assert failed.returncode == 1
    assert "no database" in failed.stderr


@pytest.mark.rule("HTTP-22")
def test_it_warns_where_other_machines_can_reach_it(app: Path) -> None:
    serve = command("serve", str(app), "--http", "0.0.0.0:0", "--no-auth")
    with ServerProcess(serve, environment()) as process:
        warning = "HTTP is open to other machines, and without TLS: put a proxy in front of it"
        assert process.record(message=warning)["level"] == "warn"
        process.signal(signal.SIGTERM)
        assert process.wait() == 143


@pytest.mark.rule("HTTP-21")
def test_connections_beyond_the_limit_are_closed(app: Path) -> None:
    with (
        serve_http(app, settings={"http.max_connections": 2}) as server,
        RawClient(server.url) as first,
        RawClient(server.url) as second,
    ):
        assert first.fetch(first.call("pid")).status == 200
        assert second.fetch(second.call("pid")).status == 200
        with RawClient(server.url) as third:
            assert third.is_ended() and third.received == b""
        assert first.fetch(first.call("pid")).status == 200


def test_a_script_that_serves_itself(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    main = 'if __name__ == "__main__":\n    server.run_http(port=0, no_auth=True)\n'
    script.write_text(APP + main)
    with ServerProcess([sys.executable, str(script)], environment()) as process:
        url = process.record(message="serving over HTTP")["url"]
        with RawClient(url) as client:
            assert client.fetch(client.call("pid")).status == 200
        process.signal(signal.SIGINT)
        assert process.wait() == 130


# -- beside stdio --------------------------------------------------------------------------------


@contextmanager
def serve_both(app: Path) -> Iterator[tuple[ServerProcess, str]]:
    words = ("--transport", "both", "--http", "127.0.0.1:0", "--no-auth")
    with ServerProcess(command("serve", str(app), *words), environment()) as process:
        yield process, str(process.record(message="serving over HTTP")["url"])


@pytest.mark.rule("PROC-11", "CLI-08")
@pytest.mark.parametrize("number", SIGNALS)
def test_the_end_of_stdio_is_not_the_end_of_http(app: Path, number: signal.Signals) -> None:
    with serve_both(app) as (process, url), RawClient(url) as client:
        process.handshake()
        pid = process.call("pid")
        assert pid == process.pid
        assert client.fetch(client.call("pid")).status == 200
        running = process.start("wait")
        process.record(message="waiting")
        process.close_input()
        assert process.completion("wait")["outcome"] == "disconnected_completed"
        assert process.answers(running) == []
        assert client.fetch(client.call("pid")).status == 200
        process.signal(number)
        assert process.wait() == SIGNALS[number]
        assert [each["message"] for each in process.records].count("entered") == 1


@pytest.mark.rule("PROC-11")
def test_a_closed_output_is_not_the_end_of_http(app: Path) -> None:
    with serve_both(app) as (process, url), RawClient(url) as client:
        process.handshake()
        process.close_output()
        process.start("pid")
        assert client.fetch(client.call("pid")).status == 200
        process.signal(signal.SIGTERM)
        assert process.wait() == 143


@pytest.mark.rule("PROC-11")
def test_a_signal_ends_both_and_calls_of_both_may_finish(app: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with serve_both(app) as (process, url), RawClient(url) as client:
        process.handshake()
        over_stdio = process.start("finish", path=str(go))
        process.record(message="waiting")
        client.send(client.call("finish", path=str(go)))
        process.wait_until(
            lambda: len(process.records_with(message="waiting")) == 2, "both calls run"
        )
        process.signal(signal.SIGTERM)
        with pytest.raises(OSError):
            while True:
                RawClient(url).socket.close()
        go.touch()
        assert b"finished" in client.answer().body
        assert process.outcome(over_stdio) == "finished"
        assert process.wait() == 143


# -- several processes ---------------------------------------------------------------------------


def ask_pid(url: str) -> int:
    with RawClient(url) as client:
        answer = client.fetch(client.call("pid"))
        return int(answer.json["result"]["content"][0]["text"])


@pytest.mark.rule("HTTP-23", "HTTP-34")
def test_two_workers_share_a_port_and_one_that_dies_is_replaced(app: Path) -> None:
    with serve_workers(app, 2) as (process, url):
        pids = {ask_pid(url) for _ in range(100)}
        assert len(pids) == 2
        assert process.pid not in pids
        with RawClient(url) as client:
            client.send(client.call("die"))
            assert client.is_ended()
        process.wait_until(
            lambda: len(process.records_with(message="serving over HTTP")) == 3, "a third serves"
        )
        others = {ask_pid(url) for _ in range(100)}
        assert len(others) == 2 and len(others & pids) == 1
        process.signal(signal.SIGHUP)
        assert process.wait() == 129
        assert len(process.records_with(message="left")) == 2


@pytest.mark.rule("HTTP-34")
def test_workers_that_die_at_once_are_replaced_and_the_others_serve_on(app: Path) -> None:
    with serve_workers(app, 3) as (process, url), ExitStack() as connections:
        steady = ask_pid(url)
        # Connected before either dies: until one is gone, its share of the port takes connections
        # that are reset then.
        dying: dict[int, RawClient] = {}
        while len(dying) < 2:
            client = connections.enter_context(RawClient(url))
            answer = client.fetch(client.call("pid"))
            pid = int(answer.json["result"]["content"][0]["text"])
            if pid != steady:
                dying.setdefault(pid, client)
        for client in dying.values():
            client.send(client.call("die"))
        assert all(client.is_ended() for client in dying.values())
        process.wait_until(
            lambda: len(process.records_with(message="serving over HTTP")) == 5, "two more serve"
        )
        pids = {ask_pid(url) for _ in range(200)}
        assert len(pids) == 3 and steady in pids
        process.signal(signal.SIGTERM)
        assert process.wait() == 143


@pytest.mark.rule("HTTP-23")
def test_what_one_worker_asked_another_takes_the_answer_to(app: Path) -> None:
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": {"roots": {}}}
    params = {"name": "count_roots", "arguments": {}, "_meta": meta}
    answers = {"inputResponses": {"roots": {"roots": [{"uri": "file:///a"}]}}}
    with serve_workers(app, 2) as (_, url):
        for _ in range(20):  # all of them in one worker: once in a million
            with RawClient(url) as client:
                asked = client.fetch(client.request("tools/call", params, name="count_roots")).json
            assert asked["result"]["resultType"] == "input_required"
            state = {"requestState": asked["result"]["requestState"]}
            with RawClient(url) as client:
                again = client.request("tools/call", params | answers | state, name="count_roots")
                answered = client.fetch(again).json
            assert answered["result"]["content"][0]["text"] == "1"


@pytest.mark.rule("HTTP-35")
def test_workers_end_with_whoever_started_them(app: Path) -> None:
    with serve_workers(app, 2) as (process, _):
        process.process.kill()
        assert process.wait() == -signal.SIGKILL
        process.drain_log()
        assert len(process.records_with(message="left")) == 2


@pytest.mark.rule("HTTP-35")
def test_worker_whose_report_was_not_read_ends_too(app: Path, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    place = WorkerPlace(key="00" * 32, group="group", slot=0, folder=str(tmp_path))
    words = ("--http", f"127.0.0.1:{free_port()}", "--workers", "2", "--no-auth")
    variables = environment() | {WORKER_VARIABLE: str(place)}
    stdin = theirs.detach(), None
    with ServerProcess(command("serve", str(app), *words), variables, stdin) as worker, ours:
        assert ours.recv(1, socket.MSG_PEEK) == b"\0"
        ours.close()
        assert worker.wait() == 128 + signal.SIGTERM


@pytest.mark.rule("HTTP-34")
def test_workers_that_cannot_begin_end_all(app: Path) -> None:
    no_key = run("serve", str(app), "--http", f"127.0.0.1:{free_port()}", "--workers", "2")
    assert no_key.returncode == 1
    assert "--no-auth" in no_key.stderr
    no_port = run("serve", str(app), "--http", "127.0.0.1:0", "--no-auth", "--workers", "2")
    assert no_port.returncode == 1
    assert "several workers need a port" in no_port.stderr
