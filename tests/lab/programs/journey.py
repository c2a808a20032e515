"""A reader who follows a page: its commands and files, in a new folder with a new environment.

    journey.follow(GUIDES / "tutorial.md")
    journey.run("pip install -e '.[http,client,cli]'")
    journey.write("tools.py", "def forecast")
    assert "forecast" in journey.run("foundation-rt check tools.py")
    journey.leave("foundation-rt serve tools.py", "its client starts it")
    journey.finish()

What is run stands in the page: a command is named by how its line begins, a file by words of its
block. `finish` fails unless every command of the pages was run, or was left for a reason. Each
command runs in a shell that has what the ones before have exported, and the folder they have
gone to. Values of the reader, such as a free port, replace those of the page.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field

from tests.lab.places.services import need_registry
from tests.lab.programs.guides import Block, blocks_of
from tests.lab.programs.program import end, home_at
from tests.lab.programs.python_environment import UV
from tests.lab.programs.terminal import Terminal
from tests.lab.servers.process import Hanging
from tests.lab.sizes import LONG

PATIENCE = 600.0
"""Seconds that a command may take: it may install much."""

_CHECKOUT = re.compile(r"(?<=[ '\"])\.(?=[\['\" ]|$)")
_KEPT = ("PATH", "LANG", "TMPDIR", "XDG_CACHE_HOME", "UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR")


@define(eq=False)
class Journey:
    """The way of one reader.

    Attributes:
        folder: where the reader works, with a home in it.
        wheel: what is installed where a page installs its checkout; None: a checkout.
        values: what replaces a text of the pages, such as a port.
        commands: those that were run.
        said: what the last one wrote to stderr.
        seconds: from the begin to each place that was reached, by its name.
    """

    folder: Path
    wheel: Path | None
    values: dict[str, str] = field(factory=dict)
    commands: list[str] = field(factory=list, init=False)
    said: str = field(default="", init=False)
    seconds: dict[str, float] = field(factory=dict, init=False)
    _blocks: list[Block] = field(factory=list, init=False)
    _lines: set[str] = field(factory=set, init=False)
    _due: set[str] = field(factory=set, init=False)
    _begun: float = field(factory=time.monotonic, init=False)
    _variables: dict[str, str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        proxies = {key for key in os.environ if key.lower().endswith(("_proxy", "_cert", "_file"))}
        installers = {key for key in os.environ if key.startswith(("PIP_", "UV_"))}
        kept = {*_KEPT, *proxies, *installers}
        self._variables = {key: each for key, each in os.environ.items() if key in kept}
        home = self.folder / "home"
        home.mkdir()
        self._variables |= {**home_at(home), "PWD": str(self.folder), "NO_COLOR": "1"}
        self._variables.setdefault("UV_CACHE_DIR", _uv_cache())

    def make_environment(self) -> None:
        """Make an environment of Python and activate it; pip is uv's, but for hours of tests."""
        environment = self.folder / ".venv"
        if LONG:
            subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        else:
            words = ("venv", "--quiet", "--python", sys.executable, environment)
            subprocess.run([UV, *words], check=True)
            pip = environment / "bin" / "pip"
            pip.write_text(f'#!/bin/sh\nexec {shlex.quote(str(UV))} pip "$@"\n')
            pip.chmod(0o755)
        self.set("VIRTUAL_ENV", str(environment))
        self.set("PATH", f"{environment / 'bin'}{os.pathsep}{self._variables['PATH']}")

    def set(self, name: str, value: str) -> None:
        """Give the commands that follow a variable of the machine, such as its browser."""
        self._variables[name] = value

    def variable(self, name: str) -> str:
        """Return a variable that the commands have."""
        return self._variables[name]

    def set_browser(self) -> Callable[[], str]:
        """Set a browser that opens nothing; return what waits for the address it is given."""
        pipe, script = self.folder / "home" / "opened", self.folder / "home" / "browser"
        os.mkfifo(pipe)
        script.write_text(f'#!/bin/sh\nprintf %s "$1" > {shlex.quote(str(pipe))}\n')
        script.chmod(0o755)
        self.set("BROWSER", f"{script} %s")
        # Open at both ends: a browser is started before anybody reads, and a read ends in time.
        end = os.open(pipe, os.O_RDWR)

        def opened() -> str:
            ready, _, _ = select.select([end], [], [], PATIENCE / 2)
            if not ready:
                raise Hanging("nothing was opened in the browser")
            return os.read(end, 4096).decode()

        return opened

    # -- pages

    def follow(self, page: Path) -> None:
        """Take the blocks of a page, all of whose commands are to be run."""
        self._due |= self.open(page)

    def open(self, page: Path) -> set[str]:
        """Take the blocks of a page; return its commands, of which none has to be run."""
        found = [*blocks_of(page)]
        self._blocks += found
        shell = (each for each in found if each.language == "sh")
        lines = {line for each in shell for line in each.text.replace("\\\n", " ").splitlines()}
        commands = {line for line in lines if line.strip() and not line.startswith("#")}
        self._lines |= commands
        return commands

    def block(self, words: str) -> str:
        """Return the one block in which these words stand, with the values of the reader."""
        found = {each.text for each in self._blocks if words in each.text}
        assert len(found) == 1, f"{len(found)} blocks have {words!r}"
        return self._replaced(found.pop())

    def write(self, name: str, words: str) -> Path:
        """Write a block into a file of the folder in which the reader is."""
        path = Path(self._variables["PWD"], name)
        path.write_text(self.block(words), "utf-8")
        return path

    def _line(self, start: str) -> str:
        found = [line for line in self._lines if line.startswith(start)]
        found = [line for line in found if line == start] or found
        assert len(found) == 1, f"{found or 'no command'} begin(s) with {start!r}"
        self._due.discard(found[0])
        return found[0]

    def _replaced(self, text: str) -> str:
        for old, new in self.values.items():
            text = text.replace(old, new)
        return text

    def leave(self, start: str, reason: str) -> None:
        """Do not run a command, for a reason."""
        assert reason
        self._line(start)

    def finish(self) -> None:
        """Fail if a command of the pages that are followed was neither run nor left."""
        assert self._due == set()

    def reached(self, place: str) -> None:
        """Note when the reader has come to a place."""
        self.seconds[place] = time.monotonic() - self._begun

    # -- commands

    def _take(self, start: str) -> str:
        line = self._line(start)
        self.commands.append(line)
        line = self._replaced(line)
        if self.wheel is None or not line.startswith("pip install"):
            return line
        # The wheel takes the place of the checkout, which `-e` would install as it lies there.
        return _CHECKOUT.sub(str(self.wheel), line.replace(" -e ", " "))

    def run(self, start: str, code: int = 0) -> str:
        """Run the command that begins so, to its end; return its standard output.

        Args:
            start: the beginning of its line.
            code: its exit code.
        """
        line = self._take(start)
        state = self.folder / "home" / "state"
        script = f"set -e\n{line}\nenv -0 > {shlex.quote(str(state))}\n"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._variables["PWD"],
            env=self._variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        self.said = done.stderr
        said = f"{line}\n{done.stdout}{done.stderr}"
        if done.returncode != code:
            need_registry(said)
        assert done.returncode == code, said
        if code == 0:
            pairs = (each.partition("=") for each in state.read_text().split("\0") if each)
            self._variables = {name: value for name, _, value in pairs}
        return done.stdout

    def answer(self, start: str, question: str, answer: str) -> str:
        """Run the command that begins so at a terminal, answer its question; return the screen."""
        program, line = ("bash", "-c"), self._take(start)
        folder, variables = Path(self._variables["PWD"]), {**self._variables, "PYTHONPATH": ""}
        with Terminal(line, cwd=folder, program=program, variables=variables) as terminal:
            terminal.wait_for(question)
            terminal.type(answer + "\n")
            assert terminal.exit_code() == 0, terminal.text
            return terminal.text

    def told(self) -> str:
        """Return how many commands it took, and how long, in one line."""
        places = ", ".join(f"{name} after {each:.1f} s" for name, each in self.seconds.items())
        return f"{len(self.commands)} commands: {places}"

    @contextmanager
    def running(self, start: str, until: str) -> Iterator[Program]:
        """Run the command that begins so until the block ends; wait until it has written words.

        Args:
            start: the beginning of its line.
            until: words that it writes when it is ready.
        """
        line = self._take(start).partition("#")[0].strip().removesuffix("&")
        before, then, last = line.rpartition(" && ")
        process = subprocess.Popen(
            ["bash", "-c", f"{before}{then}exec env {last}"],
            cwd=self._variables["PWD"],
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        with process:
            program = Program(process)
            try:
                program.wait_for(until)
                yield program
                if process.returncode is None:
                    end(process, PATIENCE)
            finally:
                process.kill()


@define(eq=False)
class Program:
    """A command that runs, and what it has written so far."""

    process: subprocess.Popen[bytes]
    text: str = field(default="", init=False)
    _is_over: bool = field(default=False, init=False)
    _has_more: threading.Condition = field(factory=threading.Condition, init=False)

    def __attrs_post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._has_more:
                self.text += line.decode("utf-8", "replace")
                self._has_more.notify_all()
        with self._has_more:
            self._is_over = True
            self._has_more.notify_all()

    def wait_for(self, words: str, times: int = 1) -> str:
        """Wait until it has written words so often; return all that it has written."""
        with self._has_more:
            self._has_more.wait_for(
                lambda: self._is_over or self.text.count(words) >= times, PATIENCE / 2
            )
            if self.text.count(words) < times:
                raise Hanging(f"{words!r} is not in what it wrote:\n{self.text}")
            return self.text

    def finish(self) -> None:
        """Wait for its end; fail if it does not end well."""
        assert self.process.wait(PATIENCE / 2) == 0, self.text


def _uv_cache() -> str:
    found = subprocess.run([UV, "cache", "dir"], capture_output=True, text=True, check=True)
    return found.stdout.strip()
