"""Several workers in real processes: a session is found by whichever gets the request."""

from __future__ import annotations

import os
import re
import signal
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from attrs import define, field

from tests.lab.peers.raw_http import META, REVISION, RawClient, RawResponse
from tests.lab.places.services import need_redis, unique_name
from tests.lab.servers.fixture import HANDSHAKE
from tests.lab.servers.http_server import serve_workers
from tests.lab.servers.process import ServerProcess, run
from tests.lab.waiting import block_until

APP = """
import asyncio
import os
from foundation_rt import Server, ToolContext

server = Server("workers")
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@server.tool
async def pid() -> int:
    await asyncio.sleep(0)  # a task: what was read before it has gone on when it is answered
    return os.getpid()


secrets = server.metrics.counter("secrets_total", "Calls of secret.", labels=["asked"])
server.metrics.gauge("processes", "This process.", read=os.getpid)


@server.tool
async def secret() -> bool:
    secrets.add(asked="yes")
    return "FOUNDATION_RT_WORKER" in os.environ


@server.tool
async def ask(context: ToolContext) -> str:
    return str((await context.elicit("Who?", FORM)).content)


@server.tool(task="required")
async def job(context: ToolContext) -> str:
    return str((await context.elicit("Who?", FORM)).content)


@server.resource("note://{name}")
def note(name: str) -> str:
    return name


@server.tool
def change(name: str, context: ToolContext) -> None:
    server.resource_updated(f"note://{name}")
    server.list_changed("prompts")


@server.prompt
def greet() -> str:
    return "hello"


@server.tool
def count(context: ToolContext) -> int:
    context.session_state["count"] = context.session_state.get("count", 0) + 1
    return context.session_state["count"]


@server.tool
async def session_key(context: ToolContext) -> str:
    return context.session_key or ""
"""

CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}}
TASKS = {
    **META,
    "io.modelcontextprotocol/clientCapabilities": {
        **CAPABILITIES,
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}
STATE_KEY = "5a" * 32


def message(method: str, params: object = None, request_id: object = 1) -> dict[str, Any]:
    found = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return found if params is None else {**found, "params": params}


def call(tool: str, request_id: object = 1, **arguments: object) -> dict[str, Any]:
    return message("tools/call", {"name": tool, "arguments": arguments}, request_id)


@define(eq=False)
class Workers:
    """The workers behind one port, with a connection to each.

    Attributes:
        connections: one to each worker, by its process.
        headers: sent with every request.
    """

    url: str
    stack: ExitStack
    headers: dict[str, str] = field(factory=dict)
    connections: dict[int, RawClient] = field(factory=dict)

    def connect(self, count: int) -> None:
        """Connect until each of `count` workers has a connection."""
        self.connections.clear()
        while len(self.connections) < count:
            worker, client = self._connect()
            self.connections.setdefault(worker, client)

    def reconnect(self, worker: int) -> None:
        """Connect to a worker again, after a refusal has ended its connection."""
        found = -1
        while found != worker:
            found, self.connections[worker] = self._connect()

    def _connect(self) -> tuple[int, RawClient]:
        client = self.stack.enter_context(RawClient(self.url))
        params = {"name": "pid", "arguments": {}, "_meta": META}
        stateless = {
            "MCP-Protocol-Version": REVISION,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "pid",
        }
        sent = client.post(message("tools/call", params), {**self.headers, **stateless})
        return int(client.fetch(sent).json["result"]["content"][0]["text"]), client

    def begin(self, worker: int) -> Session:
        """Begin a session in a worker."""
        client = self.connections[worker]
        headers = client.begin_session(self.headers, **CAPABILITIES)
        return Session(self, headers["Mcp-Session-Id"])


@define(eq=False)
class Session:
    """A session, whose requests go to any worker."""

    workers: Workers
    session_id: str

    @property
    def headers(self) -> dict[str, str]:
        return {**self.workers.headers, "Mcp-Session-Id": self.session_id}

    def post(self, worker: int, sent: object) -> RawResponse:
        client = self.workers.connections[worker]
        answer = client.fetch(client.post(sent, self.headers))
        if "connection" in answer.headers:
            self.workers.reconnect(worker)
        return answer

    def metrics(self, worker: int) -> dict[str, float]:
        """Return the samples that a worker shows, by name and labels."""
        client = self.workers.connections[worker]
        text = client.fetch(client.head("GET", "", path="/metrics")).body.decode()
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def delete(self, worker: int) -> int:
        client = self.workers.connections[worker]
        return client.fetch(client.head("DELETE", _lines(self.headers))).status

    def pid(self, worker: int) -> int | None:
        """Return the process in which a tool runs; None for 404."""
        answer = self.post(worker, call("pid"))
        assert answer.status in (200, 404), answer
        return None if answer.status == 404 else int(answer.json["result"]["content"][0]["text"])


def _lines(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder for temporary ones, with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@contextmanager
def workers_of(
    count: int, *words: str, headers: Mapping[str, str] | None = None, **settings: object
) -> Iterator[tuple[ServerProcess, Workers]]:
    given = {name.replace("__", "."): value for name, value in settings.items()}
    with serve_workers(APP, count, *words, settings=given) as (process, url), ExitStack() as stack:
        workers = Workers(url, stack, dict(headers or {}))
        workers.connect(count)
        yield process, workers


def end(process: ServerProcess, worker: int | None, number: signal.Signals) -> None:
    """End a worker, and wait until the process that has started it knows."""
    assert worker is not None
    os.kill(worker, number)
    process.wait_until(lambda: f"worker {worker} has ended" in process.stderr, "its end")


# -- one host ------------------------------------------------------------------------------------


@pytest.mark.rule("HTTP-23", "HTTP-60", "HTTP-61", "HTTP-63", "HTTP-05", "AUTH-14")
def test_every_worker_has_every_session_of_its_principal(folders: Path) -> None:
    keys = {"alice": "a" * 16, "bob": "b" * 16}
    listed = ",".join(f"{name}:{key}" for name, key in keys.items())
    serve = ("--transport", "http")
    with workers_of(3, *serve, headers={"X-API-Key": keys["alice"]}, http__api_keys=listed) as (
        process,
        workers,
    ):
        [folder] = folders.glob("foundation-rt-*")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        first, second, third = workers.connections
        session = workers.begin(first)
        assert [session.pid(each) for each in workers.connections] == [first] * 3
        assert b"false" in session.post(second, call("secret")).body

        forged = Session(workers, session.session_id[:-9] + "AAAAAAAAA")
        assert [forged.pid(each) for each in workers.connections] == [None] * 3
        workers.headers["X-API-Key"] = keys["bob"]
        assert [session.pid(each) for each in workers.connections] == [None] * 3
        workers.headers["X-API-Key"] = keys["alice"]
        assert session.pid(second) == first

        assert session.delete(second) == 204
        assert [session.pid(each) for each in workers.connections] == [None] * 3
        assert session.delete(third) == 404
        assert session.session_id not in process.stderr
        process.signal(signal.SIGTERM)
        assert process.wait() == 143
        assert list(folders.iterdir()) == []


@pytest.mark.rule("HTTP-61", "HTTP-13", "HTTP-12")
def test_streams_questions_and_their_resumption_pass_through_other_workers() -> None:
    with workers_of(3) as (_, workers):
        first, second, third = workers.connections
        session = workers.begin(first)
        asker, other = workers.connections[second], workers.connections[third]
        asker.send(asker.post(call("ask", 7), session.headers))
        event = asker.read_until(b"\n\n") + asker.read_until(b'"method":"elicitation/create"')
        last_event_id = event.partition(b"id: ")[2].partition(b"\n")[0].decode()
        question = b"server-1"
        asker.socket.close()

        answer = {"action": "accept", "content": {"name": "Ada"}}
        response = {"jsonrpc": "2.0", "id": question.decode(), "result": answer}
        assert session.post(third, response).status == 202
        lines = f"Accept: text/event-stream\r\nLast-Event-ID: {last_event_id}\r\n"
        other.send(other.head("GET", lines + _lines(session.headers)))
        assert b"Ada" in other.read_until(b"0\r\n\r\n")


@pytest.mark.rule("HTTP-62", "HTTP-68", "HTTP-34", "HTTP-65", "HTTP-74")
def test_session_with_nothing_but_its_handshake_outlives_its_worker() -> None:
    with workers_of(2) as (process, workers):
        first, second = workers.connections
        plain, ended, level, keyed = (workers.begin(first) for _ in range(4))
        steady = workers.begin(second)
        assert plain.pid(second) == first
        assert ended.delete(second) == 204
        set_level = message("logging/setLevel", {"level": "error"})
        assert level.post(second, set_level).status == 200
        key = keyed.post(first, call("session_key")).json["result"]["content"][0]["text"]
        assert key not in (b"", '""')
        assert steady.post(second, set_level).status == 200

        end(process, first, signal.SIGKILL)
        successor = plain.pid(second)  # waits for it
        assert successor not in (None, first, second)
        assert [each.pid(second) for each in (ended, level, keyed)] == [None] * 3
        assert steady.pid(second) == second
        workers.connect(2)
        assert plain.pid(successor or 0) == successor
        assert process.records_with(level="error") == []

        # Once more: what was restored may be restored again, and nothing is refused meanwhile.
        os.kill(successor or 0, signal.SIGTERM)
        found = block_until(
            lambda: plain.pid(second), "another takes over", lambda pid: pid != successor
        )
        assert found is not None


@pytest.mark.rule("HTTP-71", "HTTP-67")
@pytest.mark.parametrize("frozen_s", [0.0, 0.3])
def test_request_that_a_killed_worker_has_not_read_comes_to_its_successor(frozen_s: float) -> None:
    with workers_of(2) as (process, workers):
        first, second = workers.connections
        session = workers.begin(first)
        other = workers.begin(second)
        assert session.pid(second) == first  # the connection between the workers is kept
        client = workers.connections[second]
        workers.reconnect(second)
        os.kill(first, signal.SIGSTOP)
        client.send(client.post(call("pid"), session.headers))
        until = time.monotonic() + frozen_s
        assert other.pid(second) == second  # which has gone on: the request is on its way
        block_until(lambda: time.monotonic() >= until, "the client is watched")
        end(process, first, signal.SIGKILL)
        answer = client.answer()
        assert answer.status == 200, answer
        assert str(first) not in answer.json["result"]["content"][0]["text"]


SECRETS = 'foundation_rt_calls_total{method="tools/call",name="secret",outcome="success"}'
OWN_SECRETS = 'secrets_total{asked="yes"}'
DURATIONS = (
    'foundation_rt_call_duration_seconds_bucket{le="+Inf",method="tools/call",name="secret"}'
)


@pytest.mark.rule("OPS-27")
def test_metrics_are_those_of_all_workers_and_of_those_that_have_ended() -> None:
    with workers_of(2, telemetry__metrics=True) as (process, workers):
        first, second = workers.connections
        for worker, count in ((first, 2), (second, 3)):
            session = workers.begin(worker)
            for _ in range(count):
                session.post(worker, call("secret"))
        for worker in (first, second):
            found = session.metrics(worker)
            assert [found[name] for name in (SECRETS, OWN_SECRETS, DURATIONS)] == [5.0] * 3
            gauges = {found[f'processes{{worker="{slot}"}}'] for slot in (0, 1)}
            assert gauges == {first, second}

        end(process, first, signal.SIGKILL)
        workers.connections.pop(first)
        assert session.metrics(second)[SECRETS] == 5.0
        workers.connect(2)
        [successor] = workers.connections.keys() - {second}
        session.post(second, call("secret"))
        workers.begin(successor).post(successor, call("secret"))
        for worker in (successor, second):
            found = session.metrics(worker)
            assert [found[name] for name in (SECRETS, OWN_SECRETS, DURATIONS)] == [7.0] * 3
        assert process.records_with(level="error") == []


@pytest.mark.rule("TASK-14")
def test_task_is_found_by_every_worker() -> None:
    with workers_of(3) as (_, workers):

        def ask(client: RawClient, method: str, params: dict[str, Any], name: str) -> Any:
            sent = client.request(method, {"_meta": TASKS, **params}, name=name)
            return client.fetch(sent).json["result"]

        first, second, third = workers.connections.values()
        task_id = ask(first, "tools/call", {"name": "job", "arguments": {}}, "job")["taskId"]
        for client in (first, second, third):
            shown = ask(client, "tasks/get", {"taskId": task_id}, task_id)
            while shown["status"] == "working":
                shown = ask(client, "tasks/get", {"taskId": task_id}, task_id)
            [key] = shown["inputRequests"]
        listen = {"_meta": TASKS, "notifications": {"taskIds": [task_id]}}
        third.send(third.request("subscriptions/listen", listen))
        third.read_until(b"acknowledged")
        answer = {key: {"action": "accept", "content": {"name": "Ada"}}}
        ask(second, "tasks/update", {"taskId": task_id, "inputResponses": answer}, task_id)
        assert b"Ada" in third.read_until(b'"status":"completed"') + third.read_until(b"\n\n")


@pytest.mark.rule("HTTP-18", "HTTP-66", "HTTP-61")
def test_messages_of_the_transport_of_old_reach_its_stream_through_any_worker() -> None:
    with workers_of(2) as (_, workers):
        first, second = workers.connections.values()
        first.send(first.head("GET", "Accept: text/event-stream\r\n", "/sse"))
        path = first.read_until(b"\n\n").decode().partition("data: ")[2].strip()
        second.path = path
        answer = second.fetch(second.post(message("initialize", HANDSHAKE)))
        assert answer.status == 202
        assert b"serverInfo" in first.read_until(b"\n\n")
        second.path = path[:-8] + "AAAAAAAA"
        assert second.fetch(second.post(message("ping"))).status == 404


@pytest.mark.rule("CALL-33")
def test_state_in_memory_is_that_of_a_session_and_its_worker() -> None:
    with workers_of(2) as (process, workers):
        first, second = workers.connections
        session = workers.begin(first)
        counts = [session.post(each, call("count")).json for each in (first, second, first)]
        assert [each["result"]["content"][0]["text"] for each in counts] == ["1", "2", "3"]
        end(process, first, signal.SIGKILL)
        assert session.pid(second) is None


@pytest.mark.rule("CALL-34")
def test_state_in_redis_is_found_by_every_worker_and_outlives_one() -> None:
    settings = {"server__session_state_store": need_redis(), "server__name": unique_name()}
    key = {"X-API-Key": "a" * 16}
    serve = ("--transport", "http")
    with workers_of(2, *serve, headers=key, http__api_keys=f"alice:{'a' * 16}", **settings) as (
        process,
        workers,
    ):
        first, second = workers.connections

        def counted(answer: RawResponse) -> int:
            """Return the count; the response is a stream if it took long."""
            line = answer.body.strip().rpartition(b"data: ")[2]
            return int(orjson.loads(line)["result"]["content"][0]["text"])

        def count_stateless(worker: int) -> int:
            client = workers.connections[worker]
            headers = {
                "MCP-Protocol-Version": REVISION,
                "Mcp-Method": "tools/call",
                "Mcp-Name": "count",
            }
            params = {"name": "count", "arguments": {}, "_meta": META}
            return counted(
                client.fetch(client.post(message("tools/call", params), {**key, **headers}))
            )

        assert [count_stateless(each) for each in (first, second, first)] == [1, 2, 3]
        streams = True
        while streams:  # a session with a stream is lost with its worker
            session = workers.begin(first)
            answers = [session.post(each, call("count")) for each in (first, second)]
            assert [counted(each) for each in answers] == [1, 2]
            streams = any("event-stream" in each.headers["content-type"] for each in answers)
        end(process, first, signal.SIGKILL)
        assert counted(session.post(second, call("count"))) == 3
        assert count_stateless(second) == 4
        assert session.delete(second) == 204


def listen(workers: Workers, worker: int) -> tuple[Session, RawClient]:
    """Begin a session that is subscribed to a resource, and its stream."""
    session = workers.begin(worker)
    subscribe = message("resources/subscribe", {"uri": "note://a"})
    assert session.post(worker, subscribe).status == 200
    _, stream = workers._connect()
    stream.send(stream.head("GET", f"Accept: text/event-stream\r\n{_lines(session.headers)}"))
    stream.read_until(b"\r\n\r\n")
    return session, stream


def heard(stream: RawClient, last: bytes) -> list[bytes]:
    """Return the resources and lists that a stream names, until the resource `last`."""
    text = stream.read_until(last)
    return re.findall(rb"note://\w+|\w+/list_changed", text)


@pytest.mark.rule("SUB-17")
def test_changes_reach_the_clients_of_all_workers_once() -> None:
    with workers_of(3) as (_, workers):
        sessions = [listen(workers, each) for each in workers.connections]
        listener = workers.connections[next(iter(workers.connections))]
        wanted = {"resourceSubscriptions": ["note://a"], "promptsListChanged": True}
        listener.send(
            listener.request("subscriptions/listen", {"_meta": META, "notifications": wanted})
        )
        listener.read_until(b"acknowledged")
        caller = workers.begin([*workers.connections][1])
        for name in ("b", "a", "b", "a"):
            answer = caller.post([*workers.connections][1], call("change", name=name))
            assert answer.status == 200
        for stream in (*(each for _, each in sessions), listener):
            found = heard(stream, b"note://a")
            while found.count(b"note://a") < 2:
                found += heard(stream, b"note://a")
            if b"prompts/list_changed" not in found:  # one for all changes of a turn comes last
                found += heard(stream, b"prompts/list_changed")
            assert found.count(b"note://a") == 2 and b"note://b" not in found
            assert 1 <= found.count(b"prompts/list_changed") <= 4


# -- two hosts -----------------------------------------------------------------------------------


@pytest.mark.rule("HTTP-64", "HTTP-69")
def test_session_is_found_by_the_workers_of_another_host_and_moves_there() -> None:
    shared = {
        "http__event_store": need_redis(),
        "http__worker_address": "127.0.0.1",
        "security__state_key": STATE_KEY,
    }
    with (
        workers_of(2, **shared) as (here, ours),
        workers_of(2, **shared) as (there, theirs),
    ):
        begun, other = next(iter(ours.connections)), next(iter(theirs.connections))
        plain, busy, ended = (ours.begin(begun) for _ in range(3))
        for session in (plain, busy, ended):
            session.workers = theirs
            assert [session.pid(each) for each in theirs.connections] == [begun] * 2
        level = message("logging/setLevel", {"level": "error"})
        assert busy.post(other, level).status == 200
        assert ended.delete(other) == 204
        assert ended.pid(other) is None

        here.signal(signal.SIGTERM)
        assert here.wait() == 143
        moved = plain.pid(other)
        assert moved in theirs.connections
        assert [plain.pid(each) for each in theirs.connections] == [moved] * 2
        assert [each.pid(other) for each in (busy, ended)] == [None] * 2
        end(there, moved, signal.SIGKILL)
        [left] = set(theirs.connections) - {moved}
        assert plain.pid(left) not in (None, moved)


@pytest.mark.rule("SUB-18")
def test_changes_reach_the_clients_of_another_host() -> None:
    shared = {
        "http__event_store": need_redis(),
        "http__worker_address": "127.0.0.1",
        "security__state_key": STATE_KEY,
    }
    with workers_of(2, **shared) as (_, ours), workers_of(2, **shared) as (_, theirs):
        streams = [listen(theirs, each)[1] for each in theirs.connections]
        caller = next(iter(ours.connections))
        session = ours.begin(caller)
        for _ in range(2):
            assert session.post(caller, call("change", name="a")).status == 200
        for stream in streams:
            assert heard(stream, b"note://a").count(b"note://a") == 1


@pytest.mark.rule("HTTP-64")
def test_address_for_other_hosts_needs_a_key_and_redis(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    settings = {"http.worker_address": "127.0.0.1:0001"}
    failed = run("check", str(app), settings=settings)
    assert failed.returncode == 1 and "10.0.0.5:7000" in failed.stderr
    settings = {"http.worker_address": "127.0.0.1", "security.state_key": STATE_KEY}
    failed = run("serve", str(app), "--http", "127.0.0.1:0", "--no-auth", settings=settings)
    assert failed.returncode == 1
    assert "http.event_store = redis://" in failed.stderr
    assert orjson.dumps(STATE_KEY)[1:-1] not in failed.stderr.encode()
    settings |= {"http.event_store": "redis://127.0.0.1:1", "http.worker_address": "192.0.2.1:7000"}
    failed = run("serve", str(app), "--http", "127.0.0.1:0", "--no-auth", settings=settings)
    assert failed.returncode == 1
    assert "cannot listen on 192.0.2.1:7000" in failed.stderr
