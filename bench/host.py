"""The chat host beside a bare relay: the same model and SDK in, a WebSocket out.

A fake model streams as fast as it is read. The relay has no chats, no numbers and no store: what it
takes is what SDK and WebSocket cost. Both are measured in turn, round by round.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from bench.over_http import Server
from bench.report import head, note, row, say
from bench.sizes import Sizes

_ROOT = Path(__file__).resolve().parent.parent
_PATIENCE = 60.0
_HOST, _RELAY = "host", "floor: relay"
_MESSAGES = (5, 500)


def report(sizes: Sizes) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, _servers(Path(folder)) as (host, relay):
        asyncio.run(_report_first_token(host, relay, sizes))
        asyncio.run(_report_streams(host, relay, sizes))
        asyncio.run(_report_idle(host, sizes))
    _report_start(sizes.host_starts)
    asyncio.run(_report_long_chat(sizes))


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[Server, Server]]:
    """Run model, host and relay."""
    (folder / "mcp.json").write_text('{"mcpServers": {}}')
    started: list[Server] = []
    before = dict(os.environ)
    try:
        model = Server.spawn("model", ["-m", "bench.host_model"], "{}")
        started.append(model)
        os.environ["LLM_BASE_URL"] = f"http://127.0.0.1:{model.port}/v1"
        os.environ["OPENAI_API_KEY"] = "none"
        os.environ["MCP_JSON_PATH"] = str(folder / "mcp.json")
        started.append(Server.spawn("relay", ["-m", "bench.host_relay"], "{}"))
        started.append(Server.spawn("host", _host_command("openai:fake"), "{}"))
        os.environ.clear()
        os.environ.update(before)
        yield started[2], started[1]
    finally:
        os.environ.clear()
        os.environ.update(before)
        for server in started:
            server.stop()


def _host_command(model: str) -> list[str]:
    return ["-m", "foundation_rt", "host", "--no-auth", "--model", model, "--port"]


def _connect(server: Server) -> Any:
    return connect(
        f"ws://127.0.0.1:{server.port}/ws", compression=None, proxy=None, ping_interval=None
    )


async def _turn(connection: ClientConnection, pieces: int) -> tuple[float, int]:
    """Say something; return the time to the first text, and how many pieces came."""
    started = time.perf_counter()
    await connection.send(_message(pieces))
    first, count = 0.0, 0
    while True:
        frame = await asyncio.wait_for(connection.recv(), _PATIENCE)
        if '"type":"text"' in frame or '"type": "text"' in frame:
            if not count:
                first = time.perf_counter() - started
            count += 1
        elif '"finished"' in frame:
            return first, count
        elif '"error"' in frame or '"failed"' in frame:
            raise RuntimeError(str(frame)[:300])


def _message(pieces: int) -> str:
    return f'{{"type":"message","payload":{{"text":"pieces={pieces}"}}}}'


async def _report_first_token(host: Server, relay: Server, sizes: Sizes) -> None:
    """Print the time from a message to its first text."""
    found: dict[str, list[float]] = {_RELAY: [], _HOST: []}
    ratios: list[float] = []
    for _ in range(sizes.host_rounds + 1):
        one: dict[str, list[float]] = {}
        for name, server in ((_RELAY, relay), (_HOST, host)):
            async with _connect(server) as connection:  # a chat takes ten messages in ten seconds
                one[name] = [(await _turn(connection, 3))[0] for _ in range(9)]
        if len(ratios) or found[_HOST] or sizes.host_rounds == 1:
            ratios.append(median(one[_HOST]) / median(one[_RELAY]))
        for name, seconds in one.items():
            found[name] += seconds
    head("chat, a message to its first text", "us")
    row(_RELAY, found[_RELAY], 1e6, None)
    row(_HOST, found[_HOST], 1e6, median(ratios))


async def _report_streams(host: Server, relay: Server, sizes: Sizes) -> None:
    """Print how many pieces a second reach many chats at once."""
    chats, pieces = sizes.host_streams
    rates: dict[str, list[float]] = {_RELAY: [], _HOST: []}
    for _ in range(sizes.host_rounds):
        for name, server in ((_RELAY, relay), (_HOST, host)):
            async with AsyncExitStack() as stack:
                opened = [await stack.enter_async_context(_connect(server)) for _ in range(chats)]
                started = time.perf_counter()
                await asyncio.gather(*(_turn(each, pieces) for each in opened))
                rates[name].append(chats * pieces / (time.perf_counter() - started))
    title = f"chat, {chats} streaming at once"
    say(f"\n{title:32}{'pieces/s':>12}{'ratio':>12}")
    say(f"  {_RELAY:30}{median(rates[_RELAY]):12.0f}")
    ratios = [ours / theirs for ours, theirs in zip(rates[_HOST], rates[_RELAY], strict=True)]
    say(f"  {_HOST:30}{median(rates[_HOST]):12.0f}{median(ratios):12.2f}")
    note(title, _HOST, median(ratios))


async def _report_idle(host: Server, sizes: Sizes) -> None:
    """Print the memory of a chat that is open and has said nothing."""
    async with AsyncExitStack() as stack:
        for _ in range(20):
            await stack.enter_async_context(_connect(host))
        before = host.resident_mb()
        for _ in range(sizes.host_idle):
            connection = await stack.enter_async_context(_connect(host))
            await connection.recv()
        grown = (host.resident_mb() - before) * 1024 / sizes.host_idle
    say(f"\n{'chat, one that is idle':32}{'KiB':>12}")
    say(f"  {_HOST:30}{grown:12.1f}")


def _report_start(starts: int) -> None:
    """Print how long a process takes until it serves its page, beside a server over HTTP."""
    serve = ["-m", "foundation_rt", "serve", "--no-auth", "--http"]
    seconds: dict[str, list[float]] = {"floor: serve --http": [], _HOST: []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(starts + 1):
            seconds["floor: serve --http"].append(_start(serve, "127.0.0.1:{}", "/healthz", folder))
            seconds[_HOST].append(_start(_host_command("rules"), "{}", "/", folder))
    for each in seconds.values():
        del each[0]  # it has compiled the modules, as an installation does
    head("chat, start to the page", "ms")
    floor, ours = seconds.values()
    row("floor: serve --http", floor, 1e3, None)
    row(_HOST, ours, 1e3, median(a / b for a, b in zip(ours, floor, strict=True)))


def _start(command: list[str], address: str, path: str, byte_code: str) -> float:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": byte_code}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *command, *address.format(port).split()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=_ROOT,
        env=environment,
    )
    try:
        while time.perf_counter() - started < _PATIENCE:
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as connection:
                    connection.sendall(request)
                    if b" 200 " in connection.recv(64):
                        return time.perf_counter() - started
            except OSError:
                time.sleep(0.002)
        raise RuntimeError("it does not serve")
    finally:
        process.terminate()
        process.wait()


async def _report_long_chat(sizes: Sizes) -> None:
    """Print the CPU that the host itself takes for a turn, with few messages before it and many."""
    from foundation_rt.apps.coordinator import Coordinator
    from foundation_rt.apps.host import ConversationOrchestrator, LLMConfig, make_service
    from foundation_rt.apps.host.sessions.memory import MemoryChatStore
    from foundation_rt.apps.host.sessions.sessions import ChatSessions
    from foundation_rt.apps.host.sessions.store import SessionSettings
    from foundation_rt.http.serve import collecting_rarely

    with tempfile.TemporaryDirectory() as folder, collecting_rarely():  # as the host is served
        script = Path(folder, "script.json")
        script.write_text('[["a word ", "and another"]]')
        sys.path.append(str(_ROOT / "tests" / "lab" / "models" / "plugins"))  # has the provider
        llm = make_service(LLMConfig(provider="script", model=str(script)))
        settings = SessionSettings(message_window_ms=0)  # no turn waits for it
        sessions = ChatSessions(MemoryChatStore(settings), settings)
        async with Coordinator({}) as coordinator:
            sessions.run_turns_with(ConversationOrchestrator(llm, coordinator, sessions))
            await sessions.start()
            costs: dict[int, list[float]] = {count: [] for count in _MESSAGES}
            for _ in range(sizes.host_rounds):
                for count in _MESSAGES:
                    costs[count].append(await _turn_cost(sessions, count))
            await sessions.close(0)
    few, many = _MESSAGES
    ratios = [b / a for a, b in zip(costs[few], costs[many], strict=True)]
    title = "chat, the cost of a turn"
    say(f"\n{title:32}{'CPU us':>12}{'ratio':>12}")
    say(f"  {f'floor: {few} messages':30}{median(costs[few]) * 1e6:12.0f}")
    say(f"  {f'{many} messages':30}{median(costs[many]) * 1e6:12.0f}{median(ratios):12.2f}")
    note(title, f"{many} messages", median(ratios))


async def _turn_cost(sessions: Any, messages: int) -> float:
    """Return the CPU of one turn, in s, of a chat that has so many messages."""
    session = await sessions.create("bench")
    connection = session.connect(0)

    async def turn() -> None:
        await session.submit("hello", None)
        async for event in connection:
            if event.type == "turn" and event.payload["state"] == "finished":
                return

    while len(session.history) < messages:
        await turn()
    started, turns = time.process_time(), 20
    for _ in range(turns):
        await turn()
    cost = (time.process_time() - started) / turns
    connection.close()
    await sessions.delete(session.id, "bench")
    return cost
