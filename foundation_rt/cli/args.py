"""The arguments of a command line.

They are parsed by hand, and for all commands in one way: `argparse` takes 8 ms to import, on the
start path of every spawned server (PROC-08).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..base.shown import Shown

Valued = Mapping[str, "str | tuple[str, ...]"]
"""The options with a value, and the description of the value, or the values that there are."""


class CommandLineError(Exception):
    """The command line is wrong; the message says how."""


class CommandLine(Shown):
    """The arguments after the name of the command.

    Attributes:
        positional: the arguments that are not options, in order.
        options: the values of every given option, in order; the value of a flag is empty.
        program: the arguments after `--`, for the program of an APP; None where there is no `--`.
    """

    __slots__ = ("options", "positional", "program")

    def __init__(self) -> None:
        self.positional: list[str] = []
        self.options: dict[str, list[str]] = {}
        self.program: list[str] | None = None

    def option(self, name: str) -> str | None:
        """Return the value of an option, the last one if it was given several times."""
        given = self.options.get(name)
        return None if given is None else given[-1]


def parse(
    arguments: list[str],
    valued: Valued,
    flags: Collection[str] = (),
    at_most: int | None = None,
    *,
    takes_program: bool = False,
) -> CommandLine:
    """Separate options from positional arguments, in any order, up to `--`.

    Args:
        arguments: those after the name of the command.
        valued: the options with a value.
        flags: the options without a value.
        at_most: the most positional arguments; None for any number.
        takes_program: what follows `--` is for the program that is served (CLI-38); otherwise it
            is positional.

    Raises:
        CommandLineError: an option is unknown, lacks its value or has a wrong one, or there are too
            many arguments.
    """
    line = CommandLine()
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name in valued:
            given = value if equals else next(rest, None)
            wanted = valued[name]
            if given is None:
                raise CommandLineError(f"{name} needs {_described(wanted)}")
            if type(wanted) is tuple and given not in wanted:
                raise CommandLineError(f"{name} is {_described(wanted)}")
            line.options.setdefault(name, []).append(given)
        elif argument in flags:
            line.options[argument] = [""]
        elif argument == "--" and takes_program:
            line.program = [*rest]
        elif argument == "--":
            line.positional.extend(rest)
        elif argument.startswith("-") and argument != "-":
            raise _unknown(name, (*valued, *flags))
        else:
            line.positional.append(argument)
    if at_most is not None and len(line.positional) > at_most:
        raise CommandLineError(f"{line.positional[at_most]!r} is one argument too many")
    return line


def _described(wanted: str | tuple[str, ...]) -> str:
    """Return the description of a value: `a file`, `stdio, http or both`."""
    if isinstance(wanted, str):
        return wanted
    *first, last = wanted
    return f"{', '.join(first)} or {last}"


def _unknown(name: str, known: Collection[str]) -> CommandLineError:
    if name in known:
        return CommandLineError(f"{name} takes no value")
    from .nearest import LONGEST_SHOWN, did_you_mean

    # Without its value, which may be secret (CLI-23).
    return CommandLineError(
        f"there is no option {name[:LONGEST_SHOWN]!r}{did_you_mean(name, known)}"
    )
