"""Serve a script over stdio: `python -m tests.lab.peers.script_stdio SCRIPT LOG`.

`script` describes scripts, and the acts of every transport. Over stdio there are also:

    part FRACTION           write the first bytes of the right response, and no more
    noise TEXT              write text to standard output that is not a message
    stderr BYTES            write so many bytes to standard error, in lines
    exit CODE               exit
    kill                    die by SIGKILL, or what Windows has for it
    close stdin|stdout      close it, and stay alive
    deaf                    read no more, and stay alive
    stubborn                ignore SIGTERM and the end of input from now on
    grandchild [WHERE]      start a process that holds all pipes and ignores SIGTERM; "elsewhere":
                            in a session of its own, where no signal to the group reaches it
                            (on Windows there is no elsewhere)

The point `start` comes before anything is read.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from tests.lab.peers.script import ScriptExchange, ScriptLog, ScriptRunner, read_script
from tests.lab.programs.processes import started

if sys.platform == "win32":
    import subprocess

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_CHUNK = 65_536
_LIFE_SECONDS = 3_600

KILL = 9
"""SIGKILL; a process of Windows is terminated by any number, and has it as exit code."""


class Misbehaving:
    """A server over stdio that misbehaves.

    Args:
        script: the path of the script.
        log: the path of the log.
    """

    def __init__(self, script: str, log: str) -> None:
        self._log = ScriptLog(log)
        start = self._log.starts(log)
        self._log.note("start", started=started(os.getpid()))
        self._runner = ScriptRunner(
            read_script(script), start, self._log.note, self._write, self._perform
        )
        self._stubborn = False

    def run(self) -> int:
        """Serve until the end of input; return the exit code."""
        self._runner.reach("start")
        rest = b""
        while data := self._read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._runner.receive(line)
        self._log.note("end of input")
        if self._stubborn:
            _live_on()
        return 0

    def _read(self) -> bytes:
        return os.read(_STDIN, _CHUNK)

    def _write(self, exchange: ScriptExchange, data: bytes, is_answer: bool) -> None:
        self._emit(_STDOUT, data + b"\n")

    def _emit(self, descriptor: int, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError:
            # The reader has gone, or an act has closed the pipe: this server ignores both.
            pass

    def _perform(self, exchange: ScriptExchange, name: str, *arguments: Any) -> None:
        if name == "part":
            data = exchange.answer_bytes()
            self._emit(_STDOUT, data[: int(len(data) * arguments[0])])
        else:
            ACTS[name](self, *arguments)

    # -- the acts ----------------------------------------------------------------------------------

    def _noise(self, text: str) -> None:
        self._emit(_STDOUT, text.encode("latin-1"))

    def _stderr(self, size: int) -> None:
        line = b"e" * 99 + b"\n"
        self._emit(_STDERR, (line * (size // len(line) + 1))[:size])

    def _kill(self) -> None:
        os.kill(os.getpid(), KILL)

    def _close(self, which: str) -> None:
        os.close(_STDIN if which == "stdin" else _STDOUT)
        if which == "stdin":
            _live_on()

    def _ignore(self) -> None:
        self._stubborn = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _grandchild(self, where: str = "here") -> None:
        if sys.platform == "win32":
            words = [sys.executable, "-c", f"import time; time.sleep({_LIFE_SECONDS})"]
            child = subprocess.Popen(words, stdin=_STDIN, stdout=_STDOUT, stderr=_STDERR)
            its = started(child.pid)
            self._log.note("grandchild", pid=child.pid, started=its, where=where)
            return
        reader, writer = os.pipe()
        if os.fork() == 0:
            if where == "elsewhere":
                os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._log.note("grandchild", started=started(os.getpid()), where=where)
            os.close(writer)
            _live_on()
        os.close(writer)
        # Wait until it is in the log: a test has to know every process that it must end.
        os.read(reader, 1)
        os.close(reader)


ACTS = {
    "noise": Misbehaving._noise,
    "stderr": Misbehaving._stderr,
    "exit": lambda self, code: os._exit(code),
    "kill": Misbehaving._kill,
    "close": Misbehaving._close,
    "deaf": lambda self: _live_on(),
    "stubborn": Misbehaving._ignore,
    "grandchild": Misbehaving._grandchild,
}
"""The acts of this transport, by name."""


def _live_on() -> None:
    time.sleep(_LIFE_SECONDS)


if __name__ == "__main__":
    sys.exit(Misbehaving(*sys.argv[1:]).run())
