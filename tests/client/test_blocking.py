"""The client for scripts: it waits, for any thread, and leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import Server, ToolContext
from foundation_rt.client import (
    CallTimeoutError,
    Client,
    ConnectionLostError,
    InvalidArgumentsError,
    MCPError,
    StdioServer,
    blocking,
)
from foundation_rt.client.blocking import BlockingClient, LoopThread, connect
from foundation_rt.errors import UsageError
from tests.lab.checks.leaks import ResourceSnapshot
from tests.lab.programs.processes import living, state
from tests.lab.programs.program import run_source
from tests.lab.sizes import cases

PATIENCE = 60.0
NAME = "foundation-rt-client"
ROOT = Path(__file__).parents[2]


class BlockingHarness:
    """A server of this process, and what has happened in it."""

    def __init__(self) -> None:
        self.server = Server("stage", config={"logging": {"level": "error"}})
        self.began = threading.Event()
        self.aborted = threading.Event()
        self.server.resource("note://a")(lambda: "text")
        self.server.tool(self.echo)
        self.server.tool(self.wait)
        self.server.tool(self.progress)
        self.server.tool(self.ask)

    async def echo(self, text: str) -> str:
        return text

    async def wait(self, context: ToolContext) -> None:
        self.began.set()
        await context.abort_signal.wait()
        self.aborted.set()

    async def progress(self, context: ToolContext) -> None:
        context.report_progress(1, 2)

    async def ask(self, context: ToolContext) -> bool:
        form = {"type": "object", "properties": {"f": {"type": "string"}}}
        return (await context.elicit("?", form)).accepted


@pytest.fixture
def harness() -> BlockingHarness:
    return BlockingHarness()


@pytest.fixture
def client(harness: BlockingHarness) -> Iterator[BlockingClient]:
    with connect(harness.server) as client:
        yield client
    assert NAME not in [each.name for each in threading.enumerate()]


def in_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    """Start `function` in a thread; what is returned waits for what it returned or raised."""
    pool = ThreadPoolExecutor(1)
    outcome = pool.submit(function)
    pool.shutdown(wait=False)
    return lambda: outcome.exception(PATIENCE) or outcome.result()


# -- the same client -----------------------------------------------------------------------------


@pytest.mark.rule("BLOCK-01")
def test_blocking_client_has_all_methods_of_the_client() -> None:
    def public(cls: type) -> set[str]:
        return {name for name in dir(cls) if not name.startswith("_")}

    fields = {each.name for each in Client.__attrs_attrs__}  # type: ignore[attr-defined]
    for_sessions = {"connected", "disconnected", "notified"}
    names = public(Client) - fields - for_sessions
    assert names - public(BlockingClient) == set()
    for name in names:
        ours, theirs = getattr(BlockingClient, name), getattr(Client, name)
        if name not in ("close", "subscribe") and callable(ours):
            assert inspect.signature(ours) == inspect.signature(theirs)
        assert ours.__doc__


@pytest.mark.rule("BLOCK-01")
def test_blocking_calls_and_properties(harness: BlockingHarness, client: BlockingClient) -> None:
    assert client.server is None
    assert client.initialize().name == "stage"
    assert client.call("echo", {"text": "hi"}, correlation_id="c").value() == "hi"
    assert {tool.name for tool in client.list_tools()} >= {"echo", "wait"}
    assert client.get_tool_schema("echo").name == "echo"
    assert client.read_resource("note://a").contents[0].text == "text"  # type: ignore[union-attr]
    said = client.request("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
    assert said["isError"] is False
    assert "echo" in {each["name"] for each in client.request_all("tools/list")}
    assert client.has_capability("tools")
    assert client.server is not None
    assert client.circuit_state == client.tool_circuit_state("echo") == "CLOSED"
    assert client.stderr_tail == ""
    assert client.left_out == ()
    assert client.ping() >= 0
    client.invalidate()


@pytest.mark.rule("BLOCK-01")
def test_errors_are_the_clients(client: BlockingClient) -> None:
    with pytest.raises(InvalidArgumentsError):
        client.call("echo", {"text": 1})
    with pytest.raises(MCPError, match="E204"):
        client.call("nothing")
    with pytest.raises(UsageError):
        connect(7)  # type: ignore[arg-type]
    assert client.call("echo", {"text": "on"}).value() == "on"


@pytest.mark.rule("BLOCK-01")
def test_waiting_thread_checks_for_signals(
    client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "_POLL_SECONDS", 0.001)
    with pytest.raises(CallTimeoutError):
        client.call("wait", timeout=0.1)


# -- threads and loops ---------------------------------------------------------------------------


@pytest.mark.rule("BLOCK-02")
def test_many_threads_use_one_client(client: BlockingClient) -> None:
    with ThreadPoolExecutor(8) as pool:
        texts = [f"text {number}" for number in range(200)]
        assert [*pool.map(lambda text: client.call("echo", {"text": text}).value(), texts)] == texts


@pytest.mark.rule("BLOCK-02")
def test_inside_of_a_running_loop(client: BlockingClient) -> None:
    async def scenario() -> str:
        return client.call("echo", {"text": "hi"}).value()

    assert asyncio.run(scenario()) == "hi"


@pytest.mark.rule("BLOCK-02")
def test_a_callback_cannot_wait_for_itself(client: BlockingClient) -> None:
    caught: list[BaseException] = []

    def report(*progress: Any) -> None:
        try:
            client.ping()
        except UsageError as error:
            caught.append(error)
        client.close()

    with pytest.raises(ConnectionLostError):
        client.call("progress", on_progress=report)
        client.ping()
    assert len(caught) == 1


@pytest.mark.rule("BLOCK-02")
def test_a_handler_may_call(harness: BlockingHarness) -> None:
    seen = []

    def answer(request: Any) -> Any:
        seen.append(client.call("echo", {"text": request.message}).value())
        return {"f": "x"}

    with connect(harness.server, elicitation=answer) as client:
        assert client.call("ask").value() is True
    assert seen == ["?"]


# -- interruption --------------------------------------------------------------------------------


def interrupt_when(condition: threading.Event) -> threading.Thread:
    """Press Ctrl-C when `condition` is set."""
    main = threading.main_thread().ident
    assert main is not None

    def press() -> None:
        if condition.wait(PATIENCE):
            signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt, even where `make test &` has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.rule("BLOCK-03")
@pytest.mark.usefixtures("interruptible")
def test_interrupted_thread_cancels_its_call(
    harness: BlockingHarness, client: BlockingClient
) -> None:
    thread = interrupt_when(harness.began)
    with pytest.raises(KeyboardInterrupt):
        client.call("wait")
    thread.join()
    assert harness.aborted.wait(PATIENCE)
    assert client.call("echo", {"text": "still here"}).value() == "still here"


@pytest.mark.rule("BLOCK-03")
@pytest.mark.parametrize("has_begun", [True, False])
def test_thread_interrupted_before_waiting_cancels_its_call(
    harness: BlockingHarness,
    client: BlockingClient,
    monkeypatch: pytest.MonkeyPatch,
    has_begun: bool,
) -> None:
    """The loop has the call already; his thread does not know yet."""
    submit = asyncio.run_coroutine_threadsafe
    client.call("echo", {"text": "a"})
    made: list[Any] = []

    def interrupted(work: Any, loop: Any) -> Any:
        made.append(submit(work, loop))
        if has_begun:
            assert harness.began.wait(PATIENCE)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.call("wait")
    with pytest.raises(CancelledError):
        made[0].result(PATIENCE)
    assert not has_begun or harness.aborted.wait(PATIENCE)
    assert client.call("echo", {"text": "still here"}).value() == "still here"


STUBBORN = """trap '' TERM; echo $$ >"$1"; "$2" -m foundation_rt serve; exec sleep 60"""


def stubborn(folder: Path, grace: float) -> StdioServer:
    """Return a server that does not end, and writes its process ids to `folder`."""
    number = str(folder / "number")
    arguments = ["-c", STUBBORN, "sh", number, sys.executable]
    return StdioServer("sh", arguments, cwd=ROOT, shutdown_grace=grace)


@pytest.mark.rule("BLOCK-04")
@pytest.mark.usefixtures("interruptible")
def test_interrupted_close_kills_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ResourceSnapshot.now()
    client = connect(stubborn(tmp_path, grace=60.0))
    client.ping()
    group = int((tmp_path / "number").read_text())
    ending = threading.Event()
    end_soon = LoopThread.end_soon

    def begin_to_end(self: LoopThread) -> None:
        end_soon(self)
        ending.set()

    monkeypatch.setattr(LoopThread, "end_soon", begin_to_end)
    thread = interrupt_when(ending)
    with pytest.raises(KeyboardInterrupt):
        client.close()
    thread.join()
    client.close()
    assert living(group) == set()
    for waiting in threading.enumerate():
        if waiting.name.startswith("asyncio-waitpid"):  # the child is reaped; its thread ends soon
            waiting.join(PATIENCE)
    ResourceSnapshot.now().must_equal(before)


# -- the end -------------------------------------------------------------------------------------


@pytest.mark.rule("BLOCK-04")
def test_a_closed_client_sends_nothing(harness: BlockingHarness) -> None:
    before = ResourceSnapshot.now()
    client = connect(harness.server)
    client.call("echo", {"text": "hi"})
    assert not client.is_closed
    client.close()
    client.close()
    assert client.is_closed
    ResourceSnapshot.now().must_equal(before)
    for use in (client.ping, client.initialize, client.list_tools, client.invalidate):
        with pytest.raises(ConnectionLostError, match="closed") as caught:
            use()
        assert not caught.value.may_have_run
        assert not caught.value.retryable
    with pytest.raises(ConnectionLostError):
        client.subscribe("note://a").__enter__()
    assert client.stderr_tail == ""


@pytest.mark.rule("BLOCK-04")
def test_calls_of_other_threads_end_with_the_client(harness: BlockingHarness) -> None:
    client = connect(harness.server)
    outcome = in_thread(lambda: client.call("wait"))
    assert harness.began.wait(PATIENCE)
    client.close()
    assert isinstance(outcome(), ConnectionLostError)


@pytest.mark.rule("BLOCK-04")
def test_call_to_an_ended_loop_fails(harness: BlockingHarness) -> None:
    """Calls are made while it ends: each is answered, or refused."""
    for _ in range(20):
        client = connect(harness.server)
        client.ping()
        go = threading.Barrier(5)

        def call(client: BlockingClient = client, go: threading.Barrier = go) -> str:
            go.wait(PATIENCE)
            return client.call("echo", {"text": "hi"}).value()

        outcomes = [in_thread(call) for _ in range(4)]
        go.wait(PATIENCE)
        client.close()
        for outcome in outcomes:
            value = outcome()
            assert value == "hi" or isinstance(value, ConnectionLostError)


@pytest.mark.rule("BLOCK-04")
def test_hanging_task_does_not_block_the_end_of_the_loop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "_LEFTOVER_SECONDS", 0.01)
    started = threading.Event()

    async def fail() -> None:
        raise ValueError("cannot be closed")

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    thread = LoopThread(fail)
    outcome = in_thread(lambda: thread.run(hang))
    assert started.wait(PATIENCE)
    thread.end()
    assert type(outcome()).__name__ == "CancelledError"
    assert "could not be closed" in caplog.text


@pytest.mark.rule("BLOCK-04")
def test_without_a_thread_there_is_no_client(
    harness: BlockingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = ResourceSnapshot.now()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError):
            connect(harness.server)
    ResourceSnapshot.now().must_equal(before)


@pytest.mark.rule("BLOCK-05")
def test_collected_client_ends(harness: BlockingHarness) -> None:
    client = connect(harness.server)
    client.call("echo", {"text": "hi"})
    [thread] = [each for each in threading.enumerate() if each.name == NAME]
    del client
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


SCRIPT = """
import sys, threading
sys.path.insert(0, {root!r})
from foundation_rt.client import StdioServer
from foundation_rt.client.blocking import connect

server = StdioServer("sh", {arguments!r}, cwd={root!r}, shutdown_grace=0.2)
client = connect(server)
print(client.call("echo", {{"message": "hi"}}).text, flush=True)
{ending}
"""
POLITE = """echo $$ >"$1"; exec "$2" -m foundation_rt serve"""
COMMANDS = {"stubborn": STUBBORN, "polite": POLITE}

ENDINGS = {
    "": 0,
    "sys.exit(3)": 3,
    "raise KeyboardInterrupt": -signal.SIGINT,
    "changes = client.subscribe('note://a')": 0,
    "threading.Thread(target=client.ping, daemon=True).start()": 0,
    "from foundation_rt.client import blocking; blocking._EXIT_SECONDS = 0.0": 0,
}


@pytest.mark.rule("BLOCK-05")
@pytest.mark.parametrize(
    ("command", "ending"),
    cases(
        [*zip(cycle(COMMANDS), ENDINGS, strict=False)],
        [*product(COMMANDS, ENDINGS)],
    ),
)
def test_at_the_interpreters_end_no_process_is_left(
    tmp_path: Path, command: str, ending: str
) -> None:
    number = tmp_path / "number"
    arguments = ["-c", COMMANDS[command], "sh", str(number), sys.executable]
    script = SCRIPT.format(root=str(ROOT), arguments=arguments, ending=ending)
    ended = run_source(script, succeeds=False)
    assert ended.returncode == ENDINGS[ending], ended.stderr
    assert "hi" in ended.stdout
    group = int(number.read_text())
    assert not state(group)
    assert living(group) == set()


FORKS = """
import gc, os, sys
from foundation_rt import Server
from foundation_rt.client.blocking import connect

server = Server("s", config={"logging": {"level": "error"}})
server.resource("note://a")(lambda: "text")
client = connect(server, require=())
changes = client.subscribe("note://a").__enter__()
child = os.fork()
if child == 0:
    try:
        client.ping(timeout=1)
    except Exception as error:
        print(type(error).__name__, flush=True)
    changes.close()
    client.close()
    del changes, client
    gc.collect()
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), client.ping() > 0)
client.close()
"""


@pytest.mark.rule("BLOCK-07")
def test_a_forked_process_waits_for_nothing() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("UsageError\n7 True\n", "", 0)


# -- subscriptions -------------------------------------------------------------------------------


@pytest.mark.rule("BLOCK-06")
def test_changes_are_waited_for(harness: BlockingHarness, client: BlockingClient) -> None:
    with client.subscribe("note://a") as changes:
        waiting = in_thread(lambda: next(changes))
        harness.server.resource_updated("note://a")
        assert waiting() == "note://a"
        rest = in_thread(lambda: [*changes])
        changes.close()
        assert rest() == []
    assert client.ping() >= 0


@pytest.mark.rule("BLOCK-06")
def test_a_subscription_ends_with_the_client(harness: BlockingHarness) -> None:
    client = connect(harness.server)
    with client.subscribe("note://a") as changes:
        rest = in_thread(lambda: [*changes])
        client.close()
        assert rest() == []
        assert [*changes] == []


@pytest.mark.rule("BLOCK-06")
def test_refused_subscription_raises() -> None:
    bare = Server("bare", config={"logging": {"level": "error"}})
    with connect(bare) as client, pytest.raises(MCPError), client.subscribe("note://a"):
        pass
