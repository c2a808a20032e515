"""The command line: the command is found, its arguments are read, its errors shown (spec/cli.md).

`serve` is on the start path of every spawned server: each command imports what it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError
from .args import CliCommand, CommandLineError
from .command_table import MODULES, load

if TYPE_CHECKING:
    from .render import Output

_USAGE_EXIT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (CLI-06, CLI-20, CLI-55, CLI-106)."""
    if sys.platform == "win32":
        from ..base.windows import write_utf8

        write_utf8()
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        return _guide()
    name, *rest = given
    if name == "help" and rest:  # as `COMMAND --help`
        name, rest = rest[0], [*rest[1:], "--help"]
    if name in ("--help", "-h", "help"):
        return _help(None)
    if name == "--version":
        from ..version import __version__

        return _output().write(f"foundation-rt {__version__}\n".encode())
    if name not in MODULES:
        from .command_table import no_such

        return _refuse(no_such("command", name, (*MODULES, "help")), "", _output())
    own = rest[: rest.index("--")] if "--" in rest else rest
    outer = load(name)
    command, rest = _within(outer, rest, own)
    if "--help" in own or "-h" in own:
        return _help(command)
    try:
        if command is outer:
            _require_name(outer, own)
        assert command.run is not None
        return command.run(command.parse(rest))
    except CommandLineError as error:
        return _refuse(str(error), f"{command.name} ", _output(own, command))
    except UsageError as error:
        return _fail(error, own, command)


def _within(outer: CliCommand, rest: list[str], own: list[str]) -> tuple[CliCommand, list[str]]:
    """Return the command that is meant, this one or one within it, and what follows its name."""
    for command in outer.within:
        name = command.name.split()[1]
        if name in (own if name.startswith("-") else own[:1]):
            rest = [*rest]
            rest.remove(name)
            return command, rest
    return outer, rest


def _require_name(outer: CliCommand, own: list[str]) -> None:
    """Raise `CommandLineError` where a command within this one has to be named, and is not."""
    names = [each.name.split()[1] for each in outer.within]
    if names and own and not own[0].startswith("-") and not outer.arguments:
        from .command_table import no_such

        raise CommandLineError(no_such("command", own[0], names))
    if outer.run is None:
        raise CommandLineError(f"name what to do: {', '.join(names)}")


def _guide() -> int:
    """Write the guide: nothing says what to run (CLI-106)."""
    from .help import guide_text
    from .serve import is_terminal
    from .terminal import has_colours

    coloured = is_terminal(sys.stdout) and has_colours()
    return _output().write(guide_text(coloured=coloured).encode()) or _USAGE_EXIT


def _help(command: CliCommand | None) -> int:
    from .help import help_text
    from .serve import is_terminal

    columns = None
    if is_terminal(sys.stdout):
        from shutil import get_terminal_size

        columns = get_terminal_size().columns
    return _output().write(help_text(command, columns).encode())


def _output(arguments: Sequence[str] = (), command: CliCommand | None = None) -> Output:
    from .render import Output

    takes_json = command is not None and "--json" in command.every_option()
    return Output(sys.stdout, sys.stderr, as_json=takes_json and "--json" in arguments)


def _fail(error: UsageError, arguments: Sequence[str], command: CliCommand) -> int:
    """Write an error that has ended a command, as its arguments ask (CLI-57)."""
    from .program_errors import as_json, describe_problem

    text = describe_problem(error, with_traceback="--traceback" in arguments)
    _output(arguments, command).error(as_json(error), text)
    return command.usage_exit


def _refuse(text: str, command: str, output: Output) -> int:
    """Write what is wrong with a command line."""
    shown = f"{text}; see foundation-rt {command}--help"
    output.error({"code": "USAGE", "message": text}, shown)
    return _USAGE_EXIT
