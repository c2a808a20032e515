"""Every fault that a handler can have, at once, in one process.

Each call has its answer and its record, and nothing of it stays behind.
The storm is called once; each test then looks at what became of one call of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import define

from tests.lab.servers.process import decode, serve

APP = """
import asyncio, multiprocessing, os, subprocess, sys, threading, time
from foundation_rt import AbortError, Server, ToolDefinition, ToolError

server = Server("storm")
released = threading.Event()


def register(name, handler, **options):
    server.register(ToolDefinition(name, name, {"type": "object"}), handler, **options)


# -- what handlers raise -------------------------------------------------------------------------

class Odd(BaseException):
    pass


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def fail(error):
    raise error


def recurse():
    return recurse() + 1


RAISE = {
    "exception": lambda: fail(ValueError("the secret text")),
    "sys_exit": lambda: sys.exit(3),
    "keyboard_interrupt": lambda: fail(KeyboardInterrupt()),
    "generator_exit": lambda: fail(GeneratorExit()),
    "base_exception": lambda: fail(Odd("the secret text")),
    "exception_group": lambda: fail(BaseExceptionGroup("many", [SystemExit(3), Odd()])),
    "stop_iteration": lambda: fail(StopIteration(3)),
    "cancelled_error": lambda: fail(asyncio.CancelledError()),
    "abort_error": lambda: fail(AbortError("of its own accord")),
    "memory_error": lambda: fail(MemoryError()),
    "recursion": recurse,
    "speechless": lambda: fail(Speechless()),
    "tool_error": lambda: fail(ToolError("NOT_FOUND", "no such city", {"city": "Oslo"})),
    "odd_details": lambda: fail(ToolError("NOT_FOUND", "no such city", {"city": object()})),
}


def raising(function):
    return lambda arguments, context: function()


def raising_later(function):
    async def handler(arguments, context):
        await asyncio.sleep(0)
        function()

    return handler


for name, function in RAISE.items():
    register(f"{name}_inline", raising(function), inline=True)
    register(f"{name}_thread", raising(function))
    register(f"{name}_async", raising_later(function))


# -- what handlers return ------------------------------------------------------------------------

async def never_awaited():
    return 1


def cycle():
    made = []
    made.append(made)
    return made


def deep():
    made = []
    for _ in range(100_000):
        made = [made]
    return made


RETURN = {
    "coroutine": lambda: [never_awaited()],
    "generator": lambda: (each for each in "ab"),
    "cycle": cycle,
    "deep": deep,
    "set": lambda: {1},
    "bytes": lambda: b"bytes",
    "object": lambda: object(),
    "surrogate": lambda: "\\ud800",
    "too_large": lambda: "x" * 2_000_000,
    "nan": lambda: [float("nan"), float("inf"), 1.5],
    "none": lambda: None,
    "large": lambda: "x" * 900_000,
}


def returning_async(function):
    async def handler(arguments, context):
        return function()

    return handler


for name, function in RETURN.items():
    register(f"returns_{name}_inline", raising(function), inline=True)
    register(f"returns_{name}_thread", raising(function))
    register(f"returns_{name}_async", returning_async(function))


# -- what handlers do to the descriptors ---------------------------------------------------------

def child(code, **options):
    return subprocess.run([sys.executable, "-S", "-c", code], check=True, **options)


def forked():
    process = multiprocessing.get_context("fork").Process(target=print, args=("from a fork",))
    process.start()
    process.join()
    return process.exitcode


DO = {
    "print": lambda: print("from print"),
    "buffer": lambda: (sys.stdout.buffer.write(b"from buffer\\n"), sys.stdout.buffer.flush())[0],
    "write_1": lambda: os.write(1, b"from write\\n"),
    "flood": lambda: print("~" * 1_000_000),
    "spawn": lambda: child("print('from a child')").returncode,
    "shell": lambda: os.system("echo from a shell"),
    "fork": forked,
    "read_stdin": lambda: sys.stdin.read(),
    "read_0": lambda: os.read(0, 10).decode(),
    "input": lambda: input(),
    "child_reads": lambda: child(
        "import sys; sys.stderr.write(repr(sys.stdin.read()))", stderr=subprocess.PIPE, text=True
    ).stderr,
}
for name, function in DO.items():
    register(f"does_{name}", raising(function))

# These leave the process without a standard output of its own.
WRECK = {
    "close_stdout": lambda: sys.stdout.close(),
    "no_stdout": lambda: setattr(sys, "stdout", None),
    "close_1": lambda: os.close(1),
    "close_0": lambda: os.close(0),
}
for name, function in WRECK.items():
    register(f"wrecks_{name}", raising(function))


# -- handlers that take their time ---------------------------------------------------------------

async def hangs_async(arguments, context):
    await asyncio.Event().wait()


def hangs_thread(arguments, context):
    released.wait()


async def blocks_loop(arguments, context):
    time.sleep(0.3)
    return "late"


register("hangs_async", hangs_async, timeout_ms=150)
register("hangs_thread", hangs_thread, timeout_ms=150)
register("blocks_loop", blocks_loop, timeout_ms=150)
register("release", lambda arguments, context: released.set(), inline=True)
"""

SETTINGS = {
    "resources.max_concurrent_executions": 300,
    "tools.max_response_bytes": 1_000_000,
    "tools.cancel_grace_ms": 50,
}

WAYS = ("inline", "thread", "async")
INTERNAL = {"code": "INTERNAL", "message": "The tool failed."}
NOT_SERIALIZABLE = {
    "code": "INTERNAL",
    "message": "The result cannot be written as JSON.",
    "details": {"reason": "result_not_serializable"},
}
TOO_LARGE = {
    "code": "INTERNAL",
    "message": "The tool's result is 2000002 bytes; at most 1000000 are sent.",
    "details": {
        "reason": "result_too_large",
        "resultBytes": 2_000_002,
        "maxResponseBytes": 1_000_000,
    },
}
TIMEOUT = {
    "code": "TIMEOUT",
    "message": "The tool did not finish within 150 ms. It may still be running.",
    "details": {"timeoutMs": 150},
}

FAILING = (
    *("exception", "sys_exit", "keyboard_interrupt", "generator_exit", "base_exception"),
    *("exception_group", "stop_iteration", "cancelled_error", "abort_error"),
    *("memory_error", "recursion", "speechless"),
)
UNSPEAKABLE = (*("coroutine", "generator", "cycle", "deep", "object", "surrogate"),)
RAISING = {
    **dict.fromkeys(FAILING, INTERNAL),
    "tool_error": {"code": "NOT_FOUND", "message": "no such city", "details": {"city": "Oslo"}},
    "odd_details": {
        "code": "NOT_FOUND",
        "message": "no such city",
        "details": {"reason": "details_not_serializable"},
    },
}
NOT_A_NUMBER = {
    "code": "INTERNAL",
    "message": f"{NOT_SERIALIZABLE['message'][:-1]}: $[0] is NaN.",
    "details": {"reason": "result_not_serializable", "problem": "$[0] is NaN"},
}
RETURNING_BADLY = {
    **dict.fromkeys(UNSPEAKABLE, NOT_SERIALIZABLE),
    "too_large": TOO_LARGE,
    "nan": NOT_A_NUMBER,
}
RETURNING_WELL = {
    "none": None,
    "large": "x" * 900_000,
    "set": [1],
    "bytes": "Ynl0ZXM=",
}
DOING = {
    "print": None,
    "buffer": 12,
    "write_1": 11,
    "flood": None,
    "spawn": 0,
    "shell": 0,
    "fork": 0,
    "read_stdin": "",
    "read_0": "",
    "child_reads": "''",
}
WRECKING = ("wrecks_close_stdout", "wrecks_no_stdout", "wrecks_close_1", "wrecks_close_0")
HANGING = ("hangs_async", "hangs_thread", "blocks_loop")
AT_ONCE = [
    *(f"{name}_{way}" for name in RAISING for way in WAYS),
    *(f"returns_{name}_{way}" for name in (*RETURNING_BADLY, *RETURNING_WELL) for way in WAYS),
    *HANGING,
]
# What is written to stderr beside the log would tear its lines: one after the other.
ONE_BY_ONE = [*(f"does_{name}" for name in (*DOING, "input")), *WRECKING]
CALLS = [*AT_ONCE, *ONE_BY_ONE]


@define
class Storm:
    """What is left of a storm: every message and record of it."""

    messages: list[dict[str, Any]]
    records: list[dict[str, Any]]
    stderr: str
    health: dict[str, Any]
    exit_code: int

    def answer(self, tool: str) -> dict[str, Any]:
        """Return the one answer to a call."""
        [answer] = [each for each in self.messages if each["id"] == tool]
        return answer

    def error(self, tool: str) -> dict[str, Any]:
        """Return the error of a call, without its ids."""
        answer = self.answer(tool)
        assert answer["result"]["isError"] is True
        error = decode(answer)
        assert error.pop("correlationId") == tool
        assert error.pop("runId") == self.record(tool)["runId"]
        return error

    def value(self, tool: str) -> Any:
        """Return the result of a call that succeeded."""
        answer = self.answer(tool)
        assert answer["result"]["isError"] is False
        return decode(answer)

    def record(self, tool: str) -> dict[str, Any]:
        """Return the one completion record of a call."""
        [record] = [
            each
            for each in self.records
            if each["message"] == "tool call completed" and each["toolName"] == tool
        ]
        return record


@pytest.fixture(scope="module")
def storm() -> Iterator[Storm]:
    """Cause it, and see how the server is afterwards."""
    with serve(APP, SETTINGS) as server:

        def start(tool: str) -> None:
            meta = {"correlationId": tool}
            server.send("tools/call", {"name": tool, "_meta": meta}, id=tool)

        for tool in AT_ONCE:
            start(tool)
        for tool in AT_ONCE:
            server.answer(tool)
        assert server.call("health")["resources"]["concurrentExecutions"] >= 1
        server.call("release")
        server.completion("release")
        for tool in AT_ONCE:
            server.completion(tool)
        for tool in ONE_BY_ONE:
            start(tool)
            server.answer(tool)
            server.completion(tool)
        health = server.call("health")
        exit_code = server.finish()
        yield Storm(server.messages, server.records, server.stderr, health, exit_code)


@pytest.mark.rule("ERR-04", "ERR-05", "ERR-06")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", RAISING)
def test_what_a_handler_raises_is_answered(storm: Storm, name: str, way: str) -> None:
    assert storm.error(f"{name}_{way}") == RAISING[name]


@pytest.mark.rule("ERR-05")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("exception", "ValueError", "the secret text"),
        ("sys_exit", "SystemExit", "3"),
        ("keyboard_interrupt", "KeyboardInterrupt", ""),
        ("base_exception", "Odd", "the secret text"),
        ("speechless", "Speechless", "(no text: its __str__ raised)"),
    ],
)
def test_what_was_raised_is_told_to_the_log_alone(
    storm: Storm, name: str, kind: str, text: str, way: str
) -> None:
    tool = f"{name}_{way}"
    [logged] = [
        each for each in storm.records if each["level"] == "error" and each["correlationId"] == tool
    ]
    assert logged["message"] == "tool handler failed"
    frames = logged["error"].pop("frames")
    assert "app.py" in frames[-1]
    assert logged["error"] == {"type": kind, "message": text}
    assert "secret" not in str(storm.answer(tool))


@pytest.mark.rule("CALL-17", "ERR-06")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", RETURNING_BADLY)
def test_a_result_that_cannot_be_sent_is_refused(storm: Storm, name: str, way: str) -> None:
    assert storm.error(f"returns_{name}_{way}") == RETURNING_BADLY[name]


@pytest.mark.rule("CALL-17")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", RETURNING_WELL)
def test_an_odd_result_that_can_be_sent_is_sent(storm: Storm, name: str, way: str) -> None:
    assert storm.value(f"returns_{name}_{way}") == RETURNING_WELL[name]


@pytest.mark.rule("PROC-01", "ERR-06")
@pytest.mark.parametrize("name", DOING)
def test_standard_streams_are_not_the_protocols(storm: Storm, name: str) -> None:
    assert storm.value(f"does_{name}") == DOING[name]


@pytest.mark.rule("PROC-01")
@pytest.mark.parametrize(
    "text",
    [
        *("from print\n", "from buffer\n", "from write\n", "from a shell\n"),
        *("from a child\n", "from a fork\n", "~" * 1_000_000 + "\n"),
    ],
    ids=lambda text: text[:20].strip(),
)
def test_what_is_written_to_standard_output_lands_on_stderr(storm: Storm, text: str) -> None:
    assert storm.stderr.count(text) == 1


@pytest.mark.rule("PROC-01", "ERR-05")
def test_input_finds_the_end_of_the_file(storm: Storm) -> None:
    assert storm.error("does_input") == INTERNAL
    errors = [each["error"]["type"] for each in storm.records if each["level"] == "error"]
    assert "EOFError" in errors


@pytest.mark.rule("PROC-01", "ERR-06")
@pytest.mark.parametrize("tool", WRECKING)
def test_a_handler_can_close_the_standard_streams(storm: Storm, tool: str) -> None:
    assert storm.value(tool) is None


@pytest.mark.rule("TIME-02", "ERR-06")
@pytest.mark.parametrize("tool", ["hangs_async", "hangs_thread"])
def test_a_handler_that_hangs_is_answered_for(storm: Storm, tool: str) -> None:
    assert storm.error(tool) == TIMEOUT


@pytest.mark.rule("TIME-09", "ERR-06")
def test_a_handler_that_blocks_the_loop_is_answered_late(storm: Storm) -> None:
    # Whether its end or its deadline is noticed first, once the loop goes on, is left open.
    answer = storm.answer("blocks_loop")
    assert decode(answer) == "late" or storm.error("blocks_loop") == TIMEOUT


@pytest.mark.rule("CALL-13", "CALL-15", "ERR-06")
@pytest.mark.parametrize("tool", CALLS)
def test_every_call_has_one_answer_and_one_record(storm: Storm, tool: str) -> None:
    answer, record = storm.answer(tool), storm.record(tool)
    assert record["correlationId"] == tool
    assert record["payloadBytes"] == 2
    if tool in HANGING:
        return
    failed = answer["result"]["isError"]
    assert record["outcome"] == ("tool_error" if failed else "success")
    assert record.get("errorCode") == (decode(answer)["code"] if failed else None)
    assert record["level"] == "info"


@pytest.mark.rule("TIME-02", "TIME-04", "TIME-06", "TIME-07")
def test_records_tell_how_the_hanging_ones_ended(storm: Storm) -> None:
    stopped, late = storm.record("hangs_async"), storm.record("hangs_thread")
    assert (stopped["outcome"], stopped["errorCode"], stopped["level"]) == (
        *("timeout", "TIMEOUT", "info"),
    )
    assert (late["outcome"], late["errorCode"], late["level"]) == (
        *("late_completed", "TIMEOUT", "warn"),
    )


@pytest.mark.rule("CALL-09", "ERR-06")
def test_nothing_stays_behind(storm: Storm) -> None:
    assert storm.health["resources"]["concurrentExecutions"] == 0
    ids = [each["id"] for each in storm.messages]
    assert len(ids) == len(set(ids))
    completions = [each for each in storm.records if each["message"] == "tool call completed"]
    assert len(completions) == len(CALLS) + 3  # health twice, release
    assert len({each["runId"] for each in completions}) == len(completions)
    assert storm.exit_code == 0
    assert "Traceback" not in storm.stderr
    assert "never awaited" not in storm.stderr


EXITING_TASKS = """
import asyncio, sys
from foundation_rt import Server

server = Server("exits")


async def leave():
    await asyncio.sleep(0)
    sys.exit(3)


@server.tool
async def group():
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leave())


@server.tool
async def gather():
    await asyncio.gather(leave(), asyncio.sleep(0.01))


@server.tool
async def callback():
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.sleep(0.01)
"""


@pytest.mark.rule("ERR-05", "ERR-06")
def test_what_runs_on_the_loop_beside_a_handler_can_call_sys_exit() -> None:
    with serve(EXITING_TASKS) as server:
        for tool in ("group", "gather"):
            error = server.call(tool)
            assert error["code"] == "INTERNAL"
            assert error["message"] == "The tool failed."
        assert server.call("callback") is None
        assert server.call("health")["resources"]["concurrentExecutions"] == 0
        assert server.finish() == 0
