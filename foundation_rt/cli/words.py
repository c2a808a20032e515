"""The words of a command line, taken apart by hand: argparse costs 8 ms to import (PROC-08)."""

from __future__ import annotations

from collections.abc import Collection, Mapping


class UsageProblem(Exception):
    """The command line itself is wrong; the message says how."""


class CommandLine:
    """What stands after the command.

    Attributes:
        positional: what is no option, in order.
        options: the values of every option that was given, in order; of a flag, no value counts.
    """

    __slots__ = ("options", "positional")

    def __init__(self) -> None:
        self.positional: list[str] = []
        self.options: dict[str, list[str]] = {}

    def option(self, name: str) -> str | None:
        """The value of an option, the last one if it was given several times."""
        given = self.options.get(name)
        return None if given is None else given[-1]


def take_apart(
    words: list[str],
    valued: Mapping[str, str],
    flags: Collection[str] = (),
    at_most: int | None = None,
) -> CommandLine:
    """Tell options from arguments, in whichever order they stand; after `--` is no option.

    Args:
        words: what stands after the command.
        valued: the options that take a value, and what the value is called.
        flags: the options without one.
        at_most: so many arguments; None for any number.

    Raises:
        UsageProblem: an option is unknown or lacks its value, or there are too many arguments.
    """
    line = CommandLine()
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in valued:
            given = value if equals else next(rest, None)
            if given is None:
                raise UsageProblem(f"{name} needs {valued[name]}")
            line.options.setdefault(name, []).append(given)
        elif word in flags:
            line.options[word] = [""]
        elif word == "--":
            line.positional.extend(rest)
        elif word.startswith("-"):
            raise UsageProblem(f"there is no option {word!r}")
        else:
            line.positional.append(word)
    if at_most is not None and len(line.positional) > at_most:
        raise UsageProblem(f"{line.positional[at_most]!r} is one argument too many")
    return line
