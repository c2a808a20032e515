"""A store in a process of its own: `python -m tests.apps.task_server.stores.elsewhere PATH`.

A process opens a SQLite file once, so a second store on the same file is another process. What is
asked of it, and what it answers, are pickles with their length before them.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from asyncio import StreamReader
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from foundation_rt.apps.task_server.store import Change
from tests.lab.servers import fork_server

ROOT = Path(__file__).parents[4]
_LENGTH = 8


def _send(writer: asyncio.StreamWriter | BinaryIO, *message: Any) -> None:
    data = pickle.dumps(message)
    writer.write(len(data).to_bytes(_LENGTH, "big") + data)
    if not isinstance(writer, asyncio.StreamWriter):
        writer.flush()


async def _receive(reader: StreamReader) -> tuple[Any, ...]:
    length = int.from_bytes(await reader.readexactly(_LENGTH), "big")
    message: tuple[Any, ...] = pickle.loads(await reader.readexactly(length))
    return message


class StoreElsewhere:
    """Asks a store in another process, as if it were here."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._callbacks: list[Callable[[Change], object]] = []

    async def open(self) -> None:
        with fork_server.forking():
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.apps.task_server.stores.elsewhere", str(self._path)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=ROOT,
            )
        self._reading = asyncio.create_task(self._read())
        await self._ask("open")

    async def close(self) -> None:
        await self._ask("close")
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._reading
        await self._process.wait()

    def on_change(self, callback: Callable[[Change], object]) -> None:
        self._callbacks.append(callback)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *values, **named: self._ask(name, *values, **named)

    async def _ask(self, name: str, *values: Any, **named: Any) -> Any:
        number = len(self._answers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        _send(self._process.stdin, number, name, values, named)
        return await self._answers[number]

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                number, answer, error = await _receive(self._process.stdout)
                if number is None:
                    for callback in self._callbacks:
                        callback(answer)
                elif error is None:
                    self._answers[number].set_result(answer)
                else:
                    self._answers[number].set_exception(_error_of(*error))
        except asyncio.IncompleteReadError:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(RuntimeError("the process has ended"))


def _error_of(kind: type[Exception], arguments: Any, attributes: dict[str, Any]) -> Exception:
    # Not by a call: its arguments are not always those of the exception.
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


async def _serve(path: str) -> None:
    from foundation_rt.apps.task_server.stores.sqlite import SqliteTaskStore

    store = SqliteTaskStore(path)
    output = sys.stdout.buffer
    store.on_change(lambda change: _send(output, None, change, None))
    reader = StreamReader(limit=2**30)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def answer(number: int, name: str, values: Any, named: Any) -> None:
        try:
            result = await getattr(store, name)(*values, **named)
            _send(output, number, result, None)
        except Exception as error:
            described = (type(error), error.args, error.__dict__)
            _send(output, number, None, described)

    tasks = set()
    try:
        while True:
            task = asyncio.create_task(answer(*await _receive(reader)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    except asyncio.IncompleteReadError:
        await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
