"""The command line: `serve`, `check` and `call` (spec/cli.md).

`serve` is on the start path of every spawned server, so its arguments are taken apart by hand
(argparse costs 8 ms to import here, a tenth of the start-up) and everything else is imported by the
command that needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .errors import UsageError

if TYPE_CHECKING:
    from .server import Server

HELP = """\
usage: foundation-rt COMMAND [ARGUMENT ...]

commands:
  serve [APP] [--config FILE]     serve APP over stdio; without APP, the demo tools
  check [APP] [--config FILE]     load APP and the configuration; print both, or the error
  call APP TOOL [JSON] [--config FILE]
                                  call one tool in process; print its result

APP is FILE.py or a module, with :attribute where it holds several servers.
FILE is a configuration file, .toml or .json.

options:
  --help                          show this and exit
  --version                       show the version and exit

examples:
  foundation-rt serve tools.py
  foundation-rt serve tools.py:server --config production.toml
  foundation-rt check tools.py
  foundation-rt call tools.py forecast '{"city": "Oslo"}'
"""

_USAGE_EXIT = 2
_FAILURE_EXIT = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 0, 1 for a failure, 2 for a wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("--help", "-h", "help"):
        _print(HELP, end="")
        return 0 if words else _USAGE_EXIT
    if words[0] == "--version":
        from .version import __version__

        _print(f"foundation-rt {__version__}")
        return 0
    command = _COMMANDS.get(words[0])
    if command is None:
        return _refuse(f"there is no command {words[0]!r}")
    if "--help" in words or "-h" in words:
        _print(HELP, end="")
        return 0
    try:
        return command(words[1:])
    except _UsageProblem as problem:
        return _refuse(str(problem))
    except UsageError as error:
        _complain(str(error))
        return _FAILURE_EXIT


class _UsageProblem(Exception):
    """The command line itself is wrong."""


def _serve(words: list[str]) -> int:
    positional, config = _take_apart(words, at_most=1)
    from .server import start_server

    return start_server(_load(positional[0] if positional else None, config))


def _check(words: list[str]) -> int:
    positional, config = _take_apart(words, at_most=1)
    from .commands import check

    return check(_load(positional[0] if positional else None, config))


def _call(words: list[str]) -> int:
    positional, config = _take_apart(words, at_most=3)
    if len(positional) < 2:
        raise _UsageProblem("call needs an APP and a TOOL")
    from .commands import call

    arguments = positional[2] if len(positional) == 3 else "{}"
    return call(_load(positional[0], config), positional[1], arguments)


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "serve": _serve,
    "check": _check,
    "call": _call,
}


def _take_apart(words: list[str], at_most: int) -> tuple[list[str], str | None]:
    """Positional arguments, and the value of `--config` if it is there."""
    positional: list[str] = []
    config: str | None = None
    rest = iter(words)
    for word in rest:
        if word == "--config":
            config = next(rest, None)
            if config is None:
                raise _UsageProblem("--config needs a file")
        elif word.startswith("--config="):
            config = word.removeprefix("--config=")
        elif word.startswith("-"):
            raise _UsageProblem(f"there is no option {word!r}")
        else:
            positional.append(word)
    if len(positional) > at_most:
        raise _UsageProblem(f"{positional[at_most]!r} is one argument too many")
    return positional, config


def _load(target: str | None, config: str | None) -> Server:
    if target is None:
        from .builtin.demo import demo_server

        server = demo_server()
    else:
        from .apps import load_app

        server = load_app(target)
    if config is not None:
        server.configure(config)
    return server


def _print(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)


def _complain(text: str) -> None:
    sys.stderr.write(f"foundation-rt: {text}\n")


def _refuse(text: str) -> int:
    _complain(f"{text}; see foundation-rt --help")
    return _USAGE_EXIT
