"""Processes of this Python, forked from one that has imported the runtime already.

A command of `foundation-rt` uses 0.1 to 0.6 s of CPU before it does anything, nearly all of it for
imports, and the tests start some two thousand. Forked, they are what they would be otherwise:
processes of their own, children of the test, with its pipes, environment, folder and signals.

Nothing forks on Windows: there they are started as ever.

`serve --workers` has a copy of its process as it was before, a child of it, from which its workers
are forked.

A test of the start, the end, the modules or the command line of a process uses `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any

_PARAMETERS = tuple(inspect.signature(subprocess.Popen._execute_child).parameters)[2:]  # type: ignore[attr-defined]
_ENDS = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_NOT_TAKEN = ("executable", "preexec_fn", "pass_fds", "shell", "gid", "gids", "uid")
_READ_AT_THE_START = ("PYTHON", "LANG", "LC_", "COVERAGE", "LD_", "MALLOC_")
"""How the variables begin that Python and its C library read when they start."""

_LEFT_OUT = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONPATH")

_BESIDE = ("examples", "migration", "pytest_plugin", "tour", "__main__")
"""Modules of the runtime that no command needs, or that are programs."""

_LARGEST_REQUEST = 1 << 20
_SET_CHILD_SUBREAPER = 36


class Popen(subprocess.Popen[Any]):
    """A `subprocess.Popen` that is forked where it runs a module, code or a file."""

    def _execute_child(self, args: Any, *options: Any) -> None:
        given = dict(zip(_PARAMETERS, options, strict=True))
        words = [] if isinstance(args, str | bytes) else [os.fspath(word) for word in args]
        env = dict(os.environ if given["env"] is None else given["env"])
        if (
            sys.platform == "win32"
            or words[:1] != [sys.executable]
            or not (_is_run(words[1]) or words[1:3] == ["-P", "-m"])
            or any(given[name] for name in _NOT_TAKEN)
            or given["umask"] != -1
            or given["process_group"] not in (-1, 0)
            or _read_at_the_start(env) != _read_at_the_start(os.environ)
        ):
            super()._execute_child(args, *options)  # type: ignore[misc]
            return
        theirs = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        self.pid = _fork_server().fork(
            words[1:],
            env,
            os.path.abspath(os.fspath(given["cwd"] or ".")),
            "session" if given["start_new_session"] else ("group", "")[given["process_group"]],
            [own if end == -1 else end for own, end in enumerate(theirs)],
        )
        self._child_created = True
        self._close_pipe_fds(*(given[name] for name in _ENDS))  # type: ignore[attr-defined]


def run(command: Sequence[Any], *, check: bool = False, **options: Any) -> Any:
    """Run a command as `subprocess.run` does, with the `Popen` of this module."""
    given, timeout = options.pop("input", None), options.pop("timeout", None)
    if options.pop("capture_output", False):
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if given is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            output, log = process.communicate(given, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, output, log)
    if check:
        done.check_returncode()
    return done


@cache
def _get_ready() -> None:
    """Wait until the runtime is imported: a loop that starts a process would wait for it."""
    run([sys.executable, "-c", ""])


@contextmanager
def forking() -> Iterator[None]:
    """Have asyncio start its processes with the `Popen` of this module; nothing on Windows."""
    if sys.platform == "win32":
        yield
        return
    from asyncio import unix_events

    _get_ready()
    given = unix_events.subprocess
    unix_events.subprocess = SimpleNamespace(**{**vars(given), "Popen": Popen})  # type: ignore[assignment]
    try:
        yield
    finally:
        unix_events.subprocess = given


def _is_run(word: str) -> bool:
    return word in ("-m", "-c") or word.endswith(".py")


def _read_at_the_start(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in variables.items()
        if key.startswith(_READ_AT_THE_START) and key not in _LEFT_OUT
    }


class _ForkServer:
    """The process that forks, and this end of the socket that it listens to."""

    def __init__(self) -> None:
        self._socket, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process that forks."""
        env = {key: value for key, value in os.environ.items() if key not in _LEFT_OUT}
        with self._theirs as theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=env,
            )

        def close() -> None:
            self._socket.close()
            process.wait()

        atexit.register(close)

    def fork_copy(self) -> socket.socket | None:
        """Fork this process; in the copy return the end of the socket that it listens to."""
        if os.fork():
            self._theirs.close()
            return None
        self._socket.close()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # it says nothing
        return self._theirs

    def fork(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        leads: str,
        ends: Sequence[int],
    ) -> int:
        """Return the id of a new child of this process that runs a module, code or a file.

        Args:
            words: those of its command line that follow Python.
            env: its environment.
            cwd: its folder.
            leads: what it leads: a "session", a "group" of processes, or nothing.
            ends: its standard input, output and error.
        """
        request = json.dumps([words, env, cwd, leads]).encode()
        with self._lock:
            # Between two forks orphans go where they always do: tests look for them there.
            _adopt_orphans(True)
            try:
                socket.send_fds(self._socket, [request], ends)
                answer = self._socket.recv(64)
            finally:
                _adopt_orphans(False)
        if not answer:
            raise RuntimeError("the fork server has ended; its error is above")
        return int(answer)


@cache
def _fork_server() -> _ForkServer:
    server = _copied or _ForkServer()
    if server is not _copied:
        server.start()
    return server


def _adopt_orphans(adopts: bool) -> None:
    """Make this process the parent of descendants whose parent ends, or no longer."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


# -- in the process that forks -------------------------------------------------------------------


def _import_the_runtime() -> None:
    import foundation_rt

    for module in pkgutil.walk_packages(foundation_rt.__path__, "foundation_rt."):
        if not any(each in module.name for each in _BESIDE):
            with suppress(ImportError):
                importlib.import_module(module.name)


def _serve(requests: socket.socket) -> list[str]:
    """Fork at each request; return in each child, with the words that follow Python."""
    while True:
        request, ends, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 3)
        if not request:
            os._exit(0)
        told, tells = os.pipe()
        waits, ends_wait = os.pipe()
        between = os.fork()
        if not between:
            if os.fork():
                os._exit(0)  # the child goes to the test
            requests.close()
            os.close(ends_wait)
            words, env, cwd, leads = json.loads(request)
            if leads == "session":
                os.setsid()
            elif leads == "group":
                os.setpgid(0, 0)
            os.write(tells, str(os.getpid()).encode())
            os.read(waits, 1)
            for descriptor in (told, tells, waits):
                os.close(descriptor)
            if words[2:3] == ["serve"] and "--workers" in words and (own := _with_copy(ends)):
                return own
            return _become(words, env, cwd, ends)
        os.waitpid(between, 0)
        requests.send(os.read(told, 64))
        for descriptor in (told, tells, waits, ends_wait, *ends):
            os.close(descriptor)


_copied: _ForkServer | None = None
"""The copy of this process as it was forked, if it was."""


def _with_copy(ends: list[int]) -> list[str] | None:
    """Fork a copy that forks what this process starts; return as `_serve` in what it forks."""
    global _copied
    _copied = _ForkServer()
    if (requests := _copied.fork_copy()) is None:
        setattr(subprocess, "Popen", Popen)  # noqa: B010
        return None
    for end in ends:
        os.close(end)
    words = _serve(requests)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return words


def _become(words: list[str], env: dict[str, str], cwd: str, ends: list[int]) -> list[str]:
    """Make of this process what a new one would be; return the words that follow Python."""
    for own, end in enumerate(ends):
        os.dup2(end, own)
    for end in ends:
        os.close(end)
    os.chdir(cwd)
    if "COVERAGE_PROCESS_CONFIG" in env:
        os.register_at_fork(after_in_child=_write_lines_at_exit)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    standard = partial(open, closefd=False)
    sys.stdin = sys.__stdin__ = standard(0)
    sys.stdout = sys.__stdout__ = standard(1, "w", buffering=1 if os.isatty(1) else -1)
    sys.stderr = sys.__stderr__ = standard(2, "w", buffering=1, errors="backslashreplace")
    path = env.get("PYTHONPATH", "")
    if words[0] == "-P":
        folders, words = [], words[1:]
    else:
        folders = [os.path.dirname(os.path.abspath(words[0])) if words[0].endswith(".py") else cwd]
    sys.path[:0] = [*folders, *filter(None, path.split(os.pathsep))]
    return words


def _write_lines_at_exit() -> None:
    """Have a child of a forked process, which ends by `os._exit`, write which lines it has run."""
    coverage: Any = importlib.import_module("coverage").Coverage.current()
    end = os._exit

    def write_and_end(code: int) -> None:
        coverage.save()
        end(code)

    setattr(os, "_exit", write_and_end)  # noqa: B010


def _main(descriptor: int) -> None:
    with socket.socket(fileno=descriptor) as requests:
        _import_the_runtime()
        if len(os.listdir("/proc/self/task")) > 1:
            raise RuntimeError("a module has started a thread: it cannot be forked")
        gc.collect()
        gc.freeze()
        sys.argv = _serve(requests)
    code: Any = None
    try:
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = module = ModuleType("__main__")
            if sys.argv[0] == "-c":
                code_of_main = compile(sys.argv.pop(1), "<string>", "exec")
            else:
                module.__file__ = sys.argv[0]
                with open(sys.argv[0], "rb") as file:
                    code_of_main = compile(file.read(), sys.argv[0], "exec")
            exec(code_of_main, module.__dict__)
    except SystemExit as end:
        code = end.code
    _end(code)


def _end(code: Any) -> None:
    """End as Python does, but destroy nothing: that takes longer than most of what was done."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # a handler may have closed it
            stream.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
