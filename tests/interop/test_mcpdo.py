"""The Inspector's `mcpdo`, a connection for many commands: it is asked back, and subscribes.

A process of its own keeps the connections; it has ended when a test has.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.interop import inspector
from tests.lab.servers.process import PATIENCE

Do = Callable[..., Any]


# The two ways that `test_inspector` does not go.
@pytest.mark.parametrize(
    ("target", "mode"), [("http", "legacy"), ("stdio", "modern")], indirect=["target"]
)
def test_it_is_asked_back_and_told_of_changes(mode: str, target: list[str], home: Path) -> None:
    do = partial(inspector.run, home, inspector.MCPDO, "--format", "json")
    with _connected(do, mode, target) as name:
        here = ["--connection", name]
        pending = do(*here, "tools/call", "ask_user")["elicitationPending"]
        answer = do("elicitation/respond", pending["elicitationId"], "name:=Ada")
        assert answer["content"][0]["text"] == "accept: Ada"
        do(*here, "roots/set", "--roots-json", '[{"uri":"file:///home/ada"}]')
        roots = do(*here, "tools/call", "ask_roots")
        assert roots["content"][0]["text"] == "file:///home/ada"
        with _subscribed(home, *here) as output:
            do(*here, "tools/call", "touch", "uri:=note://today")
            _read_until(output, '"resources/updated"')
        do("disconnect", name)
        do("connect", "--era", mode, "--", *target)
        read = do(*here, "resources/read", "note://today")
        assert read["contents"][0]["text"] == "water the plants"


@pytest.mark.parametrize("target", ["http"], indirect=True)
def test_it_carries_a_task_through(target: list[str], home: Path) -> None:
    do = partial(inspector.run, home, inspector.MCPDO, "--format", "json")
    with _connected(do, "modern", target) as name:
        call = do("--connection", name, "tools/call", "clean_up")
        pending = call["elicitationPending"]
        assert pending["origin"] == "task-input-required"
        answer = do("elicitation/respond", pending["elicitationId"], "sure:=true")
        assert answer["content"][0]["text"] == "cleaned up"


@contextmanager
def _connected(do: Do, mode: str, target: list[str]) -> Iterator[str]:
    """Yield the name of a connection; stop the process that keeps it in the end."""
    name = str(do("connect", "--era", mode, "--", *target)["name"])
    keeper = os.pidfd_open(do("daemon", "status")["pid"])
    try:
        yield name
    finally:
        do("daemon", "stop")
        ended = select.select([keeper], [], [], PATIENCE)[0]
        os.close(keeper)
    assert ended


@contextmanager
def _subscribed(home: Path, *here: str) -> Iterator[int]:
    """Run a process that prints the updates of a resource; yield its output."""
    words = ("--format", "json", *here, "resources/subscribe", "note://today")
    with subprocess.Popen(
        inspector.command(inspector.MCPDO, *words),
        env=inspector.environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdout is not None
            _read_until(process.stdout.fileno(), '"subscribed"')
            yield process.stdout.fileno()
        finally:
            process.terminate()


def _read_until(output: int, text: str) -> None:
    """Read until `text` has come."""
    read = b""
    while text.encode() not in read:
        assert select.select([output], [], [], PATIENCE)[0], read
        more = os.read(output, 65_536)
        assert more, read
        read += more
