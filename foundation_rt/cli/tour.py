"""`python -m foundation_rt.cli.tour`: ten seconds, with real server processes and their client.

One screen: a call, a refusal, a deadline, progress, a question, a batch of tasks, a gateway in
front of two servers, and the log. Each part names the command with which it can be repeated.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ..client.connecting import connect
from ..client.errors import MCPError, ToolCallError
from ..client.safe_text import printable_line
from ..client.targets import StdioServer
from ..errors import UsageError
from ..protocol.methods import TOOLS_CALL
from .render import in_words, takes_escapes, wrapped
from .terminal import has_colours, paint, readable_record

if TYPE_CHECKING:
    from ..client.client import Client
    from ..client.handlers.elicitation import ElicitationRequest

_DEADLINE_MS = 300
_PAGES = 12
_TASKS = 500
_BAR = 30
_TITLE = 38
_WIDTH = 96
_MAX_TEXT = 400

_GUEST = {"name": "Ada", "people": 2, "day": "2027-05-04"}

_ACTIVATE = r".venv\Scripts\activate" if sys.platform == "win32" else ". .venv/bin/activate"
_NEXT = (
    (_ACTIVATE, "so that the shell finds the rest"),
    ("foundation-rt inspect foundation_rt.examples.notes:server", "look at one of the examples"),
    ("pip install --editable '.[host]'", "what pages and HTTP need"),
    ("foundation-rt dev foundation_rt.examples.notes:server", "use it on a page in your browser"),
    ("foundation-rt host", "chat with a model on a page"),
    ("foundation-rt help", "see all commands"),
)
_EXAMPLES = "foundation_rt.examples"


def _program(*words: str, **settings: str) -> StdioServer:
    """Return a server process of this runtime, with settings such as `TOOLS__MAX_...`."""
    variables = {f"FOUNDATION_RT_{name}": value for name, value in settings.items()}
    return StdioServer(
        sys.executable, args=("-P", "-m", "foundation_rt", *words), env={**os.environ, **variables}
    )


@define(eq=False, repr=False)
class Screen:
    """Writes to stdout, in colour and with moving bars at a terminal."""

    _moves: bool = field(init=False)
    _coloured: bool = field(init=False)
    _columns: int = field(init=False)
    _chapters: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        is_terminal = sys.stdout.isatty()
        self._moves = is_terminal and takes_escapes()
        self._coloured = is_terminal and has_colours()
        width = shutil.get_terminal_size().columns if is_terminal else _WIDTH
        self._columns = max(20, width)

    def write(self, text: str, colour: str = "") -> None:
        """Write a line."""
        shown = paint(text, colour, coloured=self._coloured) if colour else text
        sys.stdout.write(f"{shown}\n")
        sys.stdout.flush()

    def chapter(self, title: str, command: str = "") -> None:
        """Write the heading of a part, and the command that repeats it."""
        self._chapters += 1
        number = paint(f"{self._chapters}", "cyan", coloured=self._coloured)
        name = paint(f"{title:<{_TITLE}}", "bold", coloured=self._coloured)
        shown = paint(command, "dim", coloured=self._coloured)
        # A command that does not fit beside the title is whole on a line of its own.
        gap = " " if _TITLE + len(command) + 3 <= self._columns else "\n    "
        self.write(f"{number} {name}{gap}{shown}".rstrip())

    def outcome(self, text: str, detail: str = "", *, is_fine: bool = True) -> None:
        """Write what a call has ended in."""
        colour = "green" if is_fine else "red"
        mark = paint("✓" if is_fine else "✗", colour, coloured=self._coloured)
        said = printable_line(text)[:_MAX_TEXT]
        if len(said) + len(detail) + 8 <= self._columns:
            shown = paint(detail, "dim", coloured=self._coloured)
            self.write(f"    {mark} {said}  {shown}".rstrip())
        else:
            lines = wrapped(f"      {said}  {detail}".rstrip(), self._columns)
            self.write(f"    {mark} {lines.lstrip()}")

    def note(self, text: str) -> None:
        """Write a line within a part."""
        self.write(wrapped(f"    {printable_line(text)[:_MAX_TEXT]}", self._columns))

    def bar(self, done: float, total: float | None, message: str | None) -> None:
        """Move a bar of progress; where it cannot move, write the end of it alone."""
        total = total or 1.0
        width = min(_BAR, self._columns // 3)
        filled = round(width * min(1.0, done / total))
        bar = paint("━" * filled, "green", coloured=self._coloured) + "─" * (width - filled)
        text = f"    {bar} {(message or '')[: self._columns - width - 6]}"
        if self._moves:
            sys.stdout.write(f"\r\x1b[K{text}")
        if done >= total:
            self.write("" if self._moves else text)
        sys.stdout.flush()

    def log(self, lines: Sequence[str]) -> None:
        """Write records of a server's log, readable."""
        for line in lines:
            shown = readable_record(line.encode(), coloured=self._coloured)
            sys.stdout.write(f"    {shown}")

    def suggest(self, commands: Sequence[tuple[str, str]]) -> None:
        """Write commands to try, each with what it does beside or below it."""
        widest = max(len(command) for command, _ in commands)
        fits = widest + max(len(about) for _, about in commands) + 4 <= self._columns
        for command, about in commands:
            self.write(f"  {command:<{widest}}  {about}" if fits else f"  {command}")
            if not fits:
                self.write(wrapped(f"      {about}", self._columns), "dim")


@define(eq=False, repr=False)
class Tour:
    """The parts of the tour, on clients of server processes."""

    _screen: Screen
    _folder: Path
    _log: list[str] = field(factory=list, init=False)
    _clients: dict[str, Client] = field(factory=dict, init=False)

    async def run(self) -> None:
        """Start the servers, make the tour, end the servers.

        Raises:
            MCPError: a server could not be started, or did not answer.
        """
        began = perf_counter()
        async with AsyncExitStack() as stack:
            for name, (server, handlers) in self._servers().items():
                on_stderr = self._log.append if name == "demo" else _ignore
                client = self._clients[name] = connect(server, on_stderr=on_stderr, **handlers)
                stack.push_async_callback(client.close)
            await asyncio.gather(*(each.list_tools() for each in self._clients.values()))
            ms = (perf_counter() - began) * 1000
            self._screen.write(f"{len(self._clients)} server processes answer after {ms:.0f} ms")
            self._screen.write("")
            await self._calls()
            await self._progress()
            await self._question()
            await self._batch()
            await self._gateway()
        self._screen.chapter("One log record for each call", "on stderr, JSON for programs")
        self._screen.log([each for each in self._log if "completed" in each])

    def _servers(self) -> dict[str, tuple[StdioServer, dict[str, Any]]]:
        notes, jobs = f"{_EXAMPLES}.notes", f"{_EXAMPLES}.long_jobs"
        entries = {
            name: {
                "command": sys.executable,
                "args": ["-P", "-m", "foundation_rt", "serve", module],
            }
            for name, module in (("notes", notes), ("jobs", jobs))
        }
        servers = self._folder / "mcp.json"
        servers.write_bytes(orjson.dumps({"mcpServers": entries}))
        database = f"sqlite:{self._folder / 'tasks.db'}"
        asked = {"elicitation": self._fill_in}
        return {
            "demo": (_program("serve", TOOLS__DEFAULT_TIMEOUT_MS=str(_DEADLINE_MS)), {}),
            "jobs": (_program("serve", jobs), {}),
            "people": (_program("serve", f"{_EXAMPLES}.ask_people"), asked),
            "tasks": (_program("task-server", "--database", database), {}),
            "gateway": (_program("gateway", str(servers)), {}),
        }

    async def _calls(self) -> None:
        screen = self._screen
        target = "call 'foundation-rt serve'"
        screen.chapter("A call", f"{target} echo message=hello")
        await self._show("demo", "echo", {"message": "hello"})
        screen.chapter("A refusal: the schema is enforced", f"{target} echo '{{\"message\": 5}}'")
        # Raw: a call would be refused by the client, which checks arguments before it sends them.
        params = {"name": "echo", "arguments": {"message": 5}}
        refused = await self._clients["demo"].request(TOOLS_CALL, params)
        error = orjson.loads(refused["content"][0]["text"])
        screen.outcome(f"{error['code']}: {error['message']}", is_fine=False)
        screen.chapter(f"A deadline, here of {_DEADLINE_MS} ms", f"{target} sleep ms=60000")
        await self._show("demo", "sleep", {"ms": 60_000})

    async def _progress(self) -> None:
        self._screen.chapter("Progress", f"call {_EXAMPLES}.long_jobs:server index_pages pages=12")
        await self._show("jobs", "index_pages", {"pages": _PAGES}, self._screen.bar)

    async def _question(self) -> None:
        self._screen.chapter(
            "A question to the user", f"call {_EXAMPLES}.ask_people:server book_table"
        )
        await self._show("people", "book_table", {})

    def _fill_in(self, request: ElicitationRequest) -> Mapping[str, Any]:
        fields = ", ".join(request.schema["properties"])
        self._screen.note(f"? {request.message}  ({fields})")
        self._screen.note(f"> {', '.join(map(str, _GUEST.values()))}")
        return _GUEST

    async def _batch(self) -> None:
        self._screen.chapter(f"A batch of {_TASKS} tasks, as one job", "task-server")
        tasks = [{"title": f"Task {number}"} for number in range(1, _TASKS + 1)]
        await self._show(
            "tasks",
            "mcp-tasks",
            {"tasks": tasks, "waitMs": 20_000},
            read=_job,
        )

    async def _gateway(self) -> None:
        self._screen.chapter("A gateway: two servers behind one", "gateway mcp.json")
        tools = [tool.name for tool in await self._clients["gateway"].list_tools()]
        own = [name for name in tools if "__" in name and not name.endswith("__health")]
        self._screen.note(f"{len(tools)} tools: {', '.join(own[:4])}, ...")
        note = {"text": "Seen on the tour."}
        await self._show("gateway", "notes__add_note", note)
        await self._show("gateway", "jobs__count_primes", {"below": 100_000})

    async def _show(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any],
        on_progress: Callable[[float, float | None, str | None], None] | None = None,
        read: Callable[[Any], str] | None = None,
    ) -> None:
        """Call a tool and write what came of it."""
        client, began = self._clients[server], perf_counter()
        try:
            value = (await client.call(tool, arguments, on_progress=on_progress)).value()
        except ToolCallError as error:
            self._screen.outcome(str(error), _taken(began), is_fine=False)
        else:
            self._screen.outcome(in_words(value if read is None else read(value)), _taken(began))


def _job(job: Mapping[str, Any]) -> str:
    """Return what a job says of its own time; that of its call is more."""
    rate = f"{job['tasksPerSecond']:,.0f} tasks a second"
    return f"{job['message']} The job took {job['durationMs']:.0f} ms: {rate}."


def _taken(since: float) -> str:
    return f"{(perf_counter() - since) * 1000:.1f} ms"


def _ignore(line: str) -> None:
    """Drop a line of the log: the tour shows that of one server."""


def main() -> int:
    """Make the tour; return the exit code, 1 if a server failed."""
    if sys.platform == "win32":
        from ..base.windows import write_utf8

        write_utf8()
    screen = Screen()
    screen.write("foundation-rt, in ten seconds: real server processes, and their client", "bold")
    with tempfile.TemporaryDirectory(prefix="foundation-rt-tour-") as folder:
        try:
            asyncio.run(Tour(screen, Path(folder)).run())
        except KeyboardInterrupt:
            return 130
        except (MCPError, ToolCallError, UsageError) as error:
            sys.stderr.write(f"the tour has ended: {printable_line(str(error))}\n")
            return 1
    screen.write("")
    screen.write("What to try next, in this order:", "bold")
    screen.suggest(_NEXT)
    screen.write("Then a tool of your own: spec/guide/tutorial.md, 'A first tool'")
    return 0


if __name__ == "__main__":
    sys.exit(main())
