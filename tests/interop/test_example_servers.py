"""Clients of others with the example servers: over HTTP in every revision they speak, and stdio.

Over stdio each revision would start every server anew: the oldest and the newest are tried.

`PEERS` says which clients there are and what each speaks. A test gives one of them orders for all
of its revisions at once (peers/driver.py) and compares what it saw with `expected`, which says what
differs between revisions. What a client cannot do stands in `expected` too, under its name.
"""

from __future__ import annotations

import base64
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from attrs import frozen

from tests.interop import inspector
from tests.lab.programs import node, python_environment
from tests.lab.servers.process import ServerProcess, command, environment

PROGRAMS = Path(__file__).parent / "peers"
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
PATIENCE = 180.0
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYPgPAAEDAQBZc8mYAAAAAElFTkSuQmCC"
)


@frozen
class Peer:
    """A client of somebody else's.

    Attributes:
        environment: the file of `peers/` that names its packages; None for those of npm.
        program: the file of `peers/` that drives it, and its arguments.
        revisions: those it speaks with our server.
        others: those that it names and our server lacks.
    """

    environment: str | None
    program: tuple[str, ...]
    revisions: tuple[str, ...]
    others: tuple[str, ...] = ()

    def command(self, orders: Path) -> list[str]:
        """Return the command that carries out orders."""
        if self.environment is None:
            node.install(PROGRAMS.parent)
            runs = node.NODE
        else:
            runs = python_environment.install(PROGRAMS / self.environment)
        return [str(runs), str(PROGRAMS / self.program[0]), *self.program[1:], str(orders)]


PEERS = {
    "fastmcp-3": Peer("mcp-1.txt", ("fastmcp_client.py",), HANDSHAKE),
    "fastmcp-4": Peer("mcp-2.txt", ("fastmcp_client.py",), (*HANDSHAKE, STATELESS)),
    "python-1": Peer("mcp-1.txt", ("sdk_1.py",), HANDSHAKE),
    "python-2": Peer("mcp-2.txt", ("sdk_2.py",), (*HANDSHAKE, STATELESS)),
    "typescript-1": Peer(None, ("typescript.mjs", "1"), HANDSHAKE, ("2024-10-07",)),
    "typescript-2": Peer(None, ("typescript.mjs", "2"), (*HANDSHAKE, STATELESS), ("2024-10-07",)),
}

LINE = {"article": "tea", "price": 2.5, "quantity": 3}
STEPS: dict[str, list[list[Any]]] = {
    "ask_people": [
        ["tools"],
        ["call", "book_table", {}],
        ["call", "order_dessert", {}],
        ["call", "pay", {"amount": 9.5}],
    ],
    "long_jobs": [
        ["call", "index_pages", {"pages": 3}],
        ["call", "count_primes", {"below": 100}],
    ],
    "files": [
        ["call", "list_files", {}],
        ["call", "show", {"path": "summer/sea.png"}],
        ["call", "show", {"path": "../secret.txt"}],
        ["read", "files:///summer/sea.png"],
        ["read", "files:///list.txt"],
    ],
    "models": [
        ["call", "find_order", {"number": 99}],
        ["call", "place_order", {"order": {"customer": " ", "lines": [LINE]}}],
        ["call", "place_order", {"order": {"customer": "Ann", "lines": []}}],
    ],
}
TASK_STEPS: list[list[Any]] = [["call", "index_pages", {"pages": 21}], STEPS["long_jobs"][1]]
"""With more pages than `task_after_ms` allows: a client with tasks would get a handle."""

EXAMPLES = {"stdio": ("ask_people", "long_jobs", "files"), "http": tuple(STEPS)}


def expected(example: str, revision: str, peer: str) -> list[Any]:
    """Return what the steps of an example show a client.

    Elicitation, structured content and links came with 2025-06-18, pages to visit with 2025-11-25,
    and structured content that is no object with 2026-07-28.
    """
    if example == "ask_people":
        tools = ["book_table", "health", "order_dessert", "pay"]
        booked = "Booked for 2 on 2030-01-02, in the name of Ann."
        return [
            tools,
            _asked(booked, "form", revision, peer),
            _asked("One cheese.", "form", revision, peer),
            _asked("The page was opened.", "url", revision, peer),
        ]
    if example == "long_jobs":
        # No peer but the Inspector has tasks: the others wait, and see the progress.
        pages = 21 if revision == STATELESS else 3
        words = sum(17 * page for page in range(1, pages + 1))
        indexed = _result(f'{{"pages":{pages},"words":{words}}}', revision)
        primes = _result("25", revision) if revision == STATELESS else _wrapped("25", revision)
        return [{**indexed, "progress": list(range(1, pages + 1))}, primes]
    if example == "files":
        image = base64.b64encode(PNG).decode()
        link = "resource_link " if revision >= "2025-06-18" else ""
        return [
            {"content": [f"{link}files:///list.txt"]},
            {"content": [f"summer/sea.png, {len(PNG)} bytes", f"image/png {image}"]},
            _error("UNAUTHORIZED", "'../secret.txt' is outside of the folder."),
            image,
            "sea",
        ]
    refused = "/order/customer was refused: Value error, a customer has a name"
    return [
        _error("NOT_FOUND", "There is no order 99."),
        _error("INVALID_ARGUMENT", refused),
        _error("INVALID_ARGUMENT", "Invalid arguments: /order/lines must have at least 1 items."),
    ]


def _steps(example: str, revision: str) -> list[list[Any]]:
    return TASK_STEPS if (example, revision) == ("long_jobs", STATELESS) else STEPS[example]


def _asked(text: str, kind: str, revision: str, peer: str) -> dict[str, Any]:
    """Return the result of a tool that asks the user, or what a client without `kind` gets."""
    if revision < {"form": "2025-06-18", "url": "2025-11-25"}[kind]:
        missing = f"This needs a client with the capability elicitation.{kind}."
        return _error("INVALID_ARGUMENT", missing)
    # This one counts the rounds of a call as its progress.
    counts = peer == "typescript-2" and revision == STATELESS
    return {"content": [text], **({"progress": [1]} if counts else {})}


def _result(text: str, revision: str) -> dict[str, Any]:
    if revision < "2025-06-18":
        return {"content": [text]}
    return {"content": [text], "structured": orjson.loads(text)}


def _wrapped(text: str, revision: str) -> dict[str, Any]:
    result = _result(text, revision)
    return {**result, "structured": {"result": result["structured"]}} if len(result) > 1 else result


def _error(code: str, message: str) -> dict[str, Any]:
    return {"content": [f"{code}: {message}"], "error": True}


def _seen(step: Any, peer: str) -> Any:
    """Return what a step saw, with errors as their code and message."""
    if type(step) is dict and step.get("error"):
        error = orjson.loads(step["content"][0])
        return {**step, "content": [f"{error['code']}: {error['message']}"]}
    if type(step) is dict and len(step.get("progress", ())) > 1 and peer.startswith("typescript"):
        # Progress that comes in one piece with the result is lost: the last may be missing.
        pages = orjson.loads(step["content"][0])["pages"]
        assert step["progress"] in (list(range(1, pages)), list(range(1, pages + 1)))
        return {**step, "progress": list(range(1, pages + 1))}
    return step


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of files and a picture."""
    (tmp_path / "pictures" / "summer").mkdir(parents=True)
    (tmp_path / "pictures" / "summer" / "sea.png").write_bytes(PNG)
    (tmp_path / "pictures" / "list.txt").write_text("sea")
    return tmp_path / "pictures"


@pytest.fixture
def targets(request: pytest.FixtureRequest, folder: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield where each example is: a `url`, or a `command` and its `env`."""
    env = {**environment(), "FILES_ROOT": str(folder)}
    names = EXAMPLES[request.param]
    serve = {name: command("serve", f"foundation_rt.examples.{name}") for name in names}
    if request.param == "stdio":
        yield {name: {"command": words, "env": env} for name, words in serve.items()}
        return
    over_http = ("--http", "127.0.0.1:0", "--no-auth")
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(ServerProcess([*words, *over_http], env))
            for name, words in serve.items()
        }
        yield {
            name: {"url": server.record(message="serving over HTTP")["url"]}
            for name, server in servers.items()
        }


@pytest.mark.parametrize("targets", ["stdio", "http"], indirect=True)
@pytest.mark.parametrize("name", PEERS)
def test_client_finds_what_the_examples_promise(
    name: str, targets: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    peer, orders = PEERS[name], tmp_path / "orders.json"
    over_stdio = "command" in targets["files"]
    revisions = [peer.revisions[0], peer.revisions[-1]] if over_stdio else peer.revisions
    each = [(example, revision) for revision in revisions for example in targets]
    orders.write_bytes(
        orjson.dumps(
            [
                {"revision": revision, "steps": _steps(example, revision)} | targets[example]
                for example, revision in each
            ]
        )
    )
    ended = subprocess.run(
        peer.command(orders),
        env=node.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr
    told = orjson.loads(ended.stdout.splitlines()[-1])
    assert sorted(told["speaks"]) == sorted((*peer.revisions, *peer.others))
    seen = {
        each: (report["revision"], [_seen(step, name) for step in report["steps"]])
        for each, report in zip(each, told["reports"], strict=True)
    }
    assert seen == {
        (example, revision): (revision, expected(example, revision, name))
        for example, revision in each
    }


@pytest.mark.parametrize(
    ("targets", "era"), [("stdio", "modern"), ("http", "legacy")], indirect=["targets"]
)
def test_inspector_asks_its_user_and_carries_a_task_through(
    era: str, targets: dict[str, dict[str, Any]], home: Path
) -> None:
    do = partial(inspector.run, home, inspector.MCPDO, "--format", "json")

    def call(example: str, *words: str) -> Any:
        target = targets[example]
        env = [f"FILES_ROOT={target.get('env', {}).get('FILES_ROOT')}"]
        line = [target["url"]] if "url" in target else ["env", *env, *target["command"]]
        name = str(do("connect", "--era", era, "--", *line)["name"])
        return do("--connection", name, "tools/call", *words)

    try:
        pending = call("ask_people", "book_table")["elicitationPending"]
        form = ("name:=Ann", "people:=2", "day:=2030-01-02")
        booked = do("elicitation/respond", pending["elicitationId"], *form)
        assert booked["content"][0]["text"] == "Booked for 2 on 2030-01-02, in the name of Ann."
        indexed = call("long_jobs", "index_pages", "pages:=21")
        assert indexed["structuredContent"] == {"pages": 21, "words": 3927}
        # What ends a task keeps its `resultType`; the Inspector takes it from what ends a request.
        assert ("resultType" in indexed) == (era == "modern")
        shown = call("files", "show", "path:=summer/sea.png")
        assert "resultType" not in shown
        assert [each["type"] for each in shown["content"]] == ["text", "image"]
        assert base64.b64decode(shown["content"][1]["data"]) == PNG
    finally:
        keeper = os.pidfd_open(do("daemon", "status")["pid"])
        do("daemon", "stop")
        ended = select.select([keeper], [], [], PATIENCE)[0]
        os.close(keeper)
    assert ended
