"""Serve over stdio as a script says: `python -m tests.support.misbehaving SCRIPT LOG`.

What a script is, and what every transport can do, says `misbehaving_play`. Acts of this one:

    part FRACTION           the first bytes of the right answer, and no more
    noise TEXT              text on standard output that is no message
    stderr BYTES            so many bytes on standard error, in lines
    exit CODE               end
    kill                    be killed
    close stdin|stdout      close it, and live on
    deaf                    read no more, and live on
    stubborn                from now on ignore SIGTERM and the end of input
    grandchild [WHERE]      start a process that holds all pipes and ignores SIGTERM; "elsewhere":
                            in a session of its own, where no signal to the group reaches it

The point `start` is reached before anything is read.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from tests.support.misbehaving_play import Exchange, Log, ScriptRunner, read_script

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_CHUNK = 65_536


class Misbehaving:
    """The server.

    Args:
        script: path of the script.
        log: path of the log.
    """

    def __init__(self, script: str, log: str) -> None:
        self._log = Log(log)
        start = self._log.starts(log)
        self._log.note("start", started=started())
        self._play = ScriptRunner(
            read_script(script), start, self._log.note, self._write, self._perform
        )
        self._stubborn = False

    def run(self) -> int:
        """Serve until the end of input; return the exit code."""
        self._play.reach("start")
        rest = b""
        while data := self._read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._play.receive(line)
        self._log.note("end of input")
        if self._stubborn:
            _live_on()
        return 0

    def _read(self) -> bytes:
        return os.read(_STDIN, _CHUNK)

    def _write(self, exchange: Exchange, data: bytes, is_answer: bool) -> None:
        self._emit(_STDOUT, data + b"\n")

    def _emit(self, descriptor: int, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError:
            # Nobody is there, or it was closed on purpose: a server like this one does not care.
            pass

    def _perform(self, exchange: Exchange, name: str, *arguments: Any) -> None:
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
        os.kill(os.getpid(), signal.SIGKILL)

    def _close(self, which: str) -> None:
        os.close(_STDIN if which == "stdin" else _STDOUT)
        if which == "stdin":
            _live_on()

    def _ignore(self) -> None:
        self._stubborn = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _grandchild(self, where: str = "here") -> None:
        reader, writer = os.pipe()
        if os.fork() == 0:
            if where == "elsewhere":
                os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._log.note("grandchild", started=started(), where=where)
            os.close(writer)
            _live_on()
        os.close(writer)
        # It is noted before anything else happens: a test has to know all there is to end.
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
"""What this transport can do besides."""


def _live_on() -> None:
    while True:
        signal.pause()


def started() -> str:
    """When this process was started, in ticks since the machine was: with its id, who it is."""
    with open("/proc/self/stat") as file:
        return file.read().rpartition(")")[2].split()[19]


if __name__ == "__main__":
    sys.exit(Misbehaving(*sys.argv[1:]).run())
