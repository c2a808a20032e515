"""Reading the client's vectors, and holding them with a client, step by step.

`load()` reads spec/vectors/client; `spec/vectors/README.md` says what the lines mean. `Program` is
what uses the client: it asks, and notes what comes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from attrs import define, field

from foundation_rt.base.ids import SequentialIds
from foundation_rt.client.client import Client
from foundation_rt.client.errors import MCPError
from foundation_rt.client.handlers.client_handlers import ClientHandlers
from foundation_rt.client.options import from_environment
from foundation_rt.features.server_requests.elicitation import ElicitResult
from tests.lab.waiting import Changing

if TYPE_CHECKING:
    from foundation_rt.client.results.results import CallResult
    from foundation_rt.client.transports.transport import Transport

FOLDER = Path(__file__).parents[3] / "spec" / "vectors" / "client"
FILES = ("handshakes", "calls", "lists", "server-requests", "subscriptions")

ACTIONS = ("ask", "cancel", "in", "advance_ms", "lost", "close")
"""What happens; the other lines say what it leads to."""


@define
class ClientStep:
    """One event, and what the client must do then.

    Attributes:
        out: messages that it sends, in their order.
        told: what the program gets to know, in its order.
    """

    line: int
    action: dict[str, Any]
    out: list[dict[str, Any]] = field(factory=list)
    told: list[dict[str, Any]] = field(factory=list)

    @property
    def text(self) -> bytes:
        """The bytes that the server sends."""
        said = self.action["in"]
        return said.encode() if isinstance(said, str) else orjson.dumps(said)


@define
class ClientVector:
    """One conversation."""

    file: str
    name: str
    rules: list[str]
    options: dict[str, Any] = field(factory=dict)
    answers: dict[str, Any] = field(factory=dict)
    steps: list[ClientStep] = field(factory=list)

    @property
    def id(self) -> str:
        """The id of its test."""
        return f"{self.file}: {self.name}"

    @property
    def is_for_processes(self) -> bool:
        """Whether every step can be seen to be over, by who is at one end of a pipe.

        What the program does waits for what it got to know, nothing depends on time, and there is
        one process.
        """
        if sum("opened" in told for step in self.steps for told in step.told) > 1:
            return False
        steps = zip(self.steps, self.steps[1:], strict=False)
        return not any(
            {"advance_ms", "lost"} & step.action.keys()
            or ({"ask", "cancel"} & step.action.keys() and not before.told)
            for before, step in steps
        )


def load() -> list[ClientVector]:
    """All conversations, in the order of files and lines."""
    return [vector for name in FILES for vector in read(FOLDER / f"{name}.jsonl")]


def read(path: Path) -> list[ClientVector]:
    """Return the conversations of one file."""
    vectors: list[ClientVector] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        entry: dict[str, Any] = orjson.loads(line)
        steps = vectors[-1].steps if vectors else []
        if "name" in entry:
            vectors.append(ClientVector(path.stem, **entry))
        elif entry.keys() & {*ACTIONS}:
            steps.append(ClientStep(number, entry))
        elif "out" in entry:
            steps[-1].out.append(entry["out"])
        else:
            steps[-1].told.append(entry)
    for vector in vectors:
        if "close" not in vector.steps[-1].action:
            vector.steps.append(ClientStep(vector.steps[-1].line, {"close": True}))
    return vectors


def cases(file: str, *members: str) -> list[Any]:
    """Return the cases of a file that have these members, as parameters of a test."""
    lines = map(orjson.loads, (FOLDER / f"{file}.jsonl").read_bytes().splitlines())
    return [
        pytest.param(line, id=line.get("name", orjson.dumps(line).decode()[:80]))
        for line in lines
        if {*members} <= line.keys()
    ]


@define(eq=False)
class Program(Changing):
    """Uses a client as the steps say.

    Attributes:
        told: what it got to know so far.
    """

    vector: ClientVector
    make_transport: Callable[[], Transport]
    told: list[dict[str, Any]] = field(factory=list)
    client: Client = field(init=False)
    _tasks: dict[str, asyncio.Task[None]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        given: dict[str, Any] = {"name": "vectors", "version": "1.0.0", **self.vector.options}
        if given.pop("tells_lists", False):
            given["on_list_changed"] = lambda kind: self._tell({"changed": kind})
        options = from_environment(given)
        handlers = _handlers(self.vector.answers)
        self.client = Client(self._channel, options, handlers, SequentialIds(), lambda: 0.0)

    def act(self, action: Mapping[str, Any]) -> None:
        """Begin, or end, what the program wants."""
        if "cancel" in action:
            self._tasks.pop(action["cancel"]).cancel()
        else:
            name = action["ask"]
            self._tasks[name] = asyncio.get_running_loop().create_task(self._run(name, action))

    async def close(self) -> None:
        """End the client; whatever was asked has ended then."""
        await self.client.close()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def knows(self, number: int) -> None:
        """Wait until it was told `number` things."""
        await self.until(lambda: len(self.told) >= number)

    def _tell(self, entry: dict[str, Any]) -> None:
        self.told.append(entry)
        self.has_changed()

    def _channel(self) -> Transport:
        self._tell({"opened": True})
        return self.make_transport()

    async def _run(self, name: str, asked: Mapping[str, Any]) -> None:
        [(kind, what)] = [each for each in asked.items() if each[0] != "ask"]
        try:
            end = await KINDS[kind](self, name, what)
        except MCPError as error:
            end = {"error": error.code, "mayHaveRun": error.may_have_run}
        self._tell({"end": name, **end})

    async def _connect(self, name: str, what: Any) -> dict[str, Any]:
        server = await self.client.initialize()
        return {"revision": server.revision.name, "server": server.name}

    async def _call(self, name: str, what: dict[str, Any]) -> dict[str, Any]:
        def progress(done: float, total: float | None, message: str | None) -> None:
            self._tell({"progress": [done, total, message], "of": name})

        def log(level: str, logger: str | None, data: Any) -> None:
            self._tell({"log": [level, logger, data], "of": name})

        given = dict(what)
        tool, arguments = given.pop("tool"), given.pop("arguments", None)
        if "timeout_ms" in given:
            given["timeout"] = given.pop("timeout_ms") / 1000
        if given.pop("progress", False):
            given["on_progress"] = progress
        if given.pop("log", False):
            given["on_log"] = log
        return _said(await self.client.call(tool, arguments, **given))

    async def _list(self, name: str, what: str) -> dict[str, Any]:
        if what == "tools":
            return {"names": [tool.name for tool in await self.client.list_tools()]}
        lists: dict[str, Any] = {
            "prompts": self.client.list_prompts,
            "resources": self.client.list_resources,
            "resource templates": self.client.list_resource_templates,
        }
        return {"names": [each.name for each in await lists[what]()]}

    async def _read(self, name: str, what: str) -> dict[str, Any]:
        return {"result": (await self.client.read_resource(what)).wire}

    async def _prompt(self, name: str, what: dict[str, Any]) -> dict[str, Any]:
        return {"result": (await self.client.get_prompt(what["name"], what["arguments"])).wire}

    async def _complete(self, name: str, what: dict[str, Any]) -> dict[str, Any]:
        return {"values": [*(await self.client.complete(**what)).values]}

    async def _ping(self, name: str, what: Any) -> dict[str, Any]:
        await self.client.ping()
        return {}

    async def _subscribe(self, name: str, what: list[str]) -> dict[str, Any]:
        async with self.client.subscribe(*what) as changes:
            self._tell({"subscribed": name})
            async for uri in changes:
                self._tell({"updated": uri, "of": name})
        return {}


KINDS: dict[str, Any] = {
    "connect": Program._connect,
    "call": Program._call,
    "list": Program._list,
    "read": Program._read,
    "prompt": Program._prompt,
    "complete": Program._complete,
    "ping": Program._ping,
    "subscribe": Program._subscribe,
}


def _said(result: CallResult) -> dict[str, Any]:
    """Return a call's result as a vector states it."""
    texts = [block["text"] for block in result.wire["content"] if block["type"] == "text"]
    end: dict[str, Any] = {"text": "\n".join(texts)}
    if result.has_structured:
        end["structured"] = result.structured
    if result.is_error and result.error is not None:
        end["toolError"] = None if result.error.code is None else result.error.code.value
    return end


def _handlers(answers: Mapping[str, Any]) -> ClientHandlers:
    """Handlers that answer so; what one takes `after_ms` for comes after that time."""
    given: dict[str, Any] = {}
    if "elicitation" in answers:
        said = dict(answers["elicitation"])
        after = said.pop("after_ms", 0) / 1000

        async def fill_in(_: Any) -> ElicitResult[Any]:
            await asyncio.sleep(after)
            return ElicitResult(**said)

        given["elicitation"] = fill_in
    if "sampling" in answers:

        async def sample(_: Any) -> Any:
            return answers["sampling"]

        given["sampling"] = sample
    if "roots" in answers:
        given["roots"] = answers["roots"]
    return ClientHandlers(**given)
