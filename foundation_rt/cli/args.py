"""The declaration of a command, and the reading of its arguments.

One declaration makes the parser, the help and the completion of a command. It is read by hand, for
all commands in one way: `argparse`, which shows the help, takes 7 ms of the start of every server
(PROC-08), and repeats in its errors a value that may be a secret (CLI-55).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from ..base.shown import Shown

FILES = "files"
FOLDERS = "folders"

Words: TypeAlias = "str | tuple[str, ...] | range"
"""The kinds of a value: `FILES`, `FOLDERS`, one of these words or numbers, or "" for anything."""


class CommandLineError(Exception):
    """The command line is wrong; the message says how."""


class Option(Shown):
    """An option of a command.

    Attributes:
        name: with its two dashes.
        help: what it does, without a full stop.
        value: the name of its value; "" for a flag.
        words: what its value can be.
    """

    __slots__ = ("help", "name", "value", "words")

    def __init__(self, name: str, help: str, value: str = "", words: Words = "") -> None:
        self.name = name
        self.help = help
        self.value = value
        self.words = words


class Argument(Shown):
    """An argument of a command that is no option.

    Attributes:
        name: in capitals.
        help: what it is, without a full stop.
        words: what it can be, for completion.
        count: "1"; "?" for one or none, "*" for any number, "+" for one or more.
    """

    __slots__ = ("count", "help", "name", "words")

    def __init__(self, name: str, help: str, words: Words = "", count: str = "1") -> None:
        self.name = name
        self.help = help
        self.words = words
        self.count = count

    def shown(self) -> str:
        """Return how the help shows it: `FILE`, `[FILE]`, `[FILE ...]` or `FILE ...`."""
        forms = {"1": "{}", "?": "[{}]", "*": "[{} ...]", "+": "{} ..."}
        return forms[self.count].format(self.name)


class CommandLine(Shown):
    """The arguments after the name of the command.

    Attributes:
        words: the command and its arguments, as they were given.
        positional: the arguments that are not options, in order.
        options: the values of every given option, in order; the value of a flag is empty.
        program: the arguments after `--`, for the program of an APP; None where there is no `--`.
    """

    __slots__ = ("options", "positional", "program", "words")

    def __init__(self, words: Sequence[str] = ()) -> None:
        self.words = [*words]
        self.positional: list[str] = []
        self.options: dict[str, list[str]] = {}
        self.program: list[str] | None = None

    def option(self, name: str) -> str | None:
        """Return the value of an option, the last one if it was given several times."""
        given = self.options.get(name)
        return None if given is None else given[-1]

    def number(self, name: str) -> int | None:
        """Return the value of an option that is declared as a number."""
        text = self.option(name)
        return None if text is None else int(text)

    def refuse_program(self) -> None:
        """Raise `CommandLineError` if there is a `--`, and no APP that it could be for."""
        if self.program is not None:
            raise CommandLineError("-- goes with an APP: what follows is for its program")

    def refuse_app_options(self) -> None:
        """Raise `CommandLineError` if there is an option of an APP, and no APP."""
        if "--config" in self.options:
            raise CommandLineError("--config goes with an APP")
        self.refuse_program()


class CliCommand(Shown):
    """A command: how it is written, what its help says, and its function.

    Attributes:
        name: one word; two for a command within another, such as `gateway status`, or for another
            form of a command, such as `check --portable`.
        summary: what it does, in a line of the list of commands.
        run: the function; returns the exit code. None where a command within it has to be named.
        arguments: those that are no options.
        options: by the titles of their groups.
        takes_program: what follows `--` is for the program that is served (CLI-38); otherwise it is
            an argument as any other.
        about: paragraphs of the help before the options.
        notes: paragraphs after them: examples and exit codes.
        within: the commands within this one.
        usage_exit: the exit code of a `UsageError` (CLI-20).
    """

    __slots__ = (
        "about",
        "arguments",
        "name",
        "notes",
        "options",
        "run",
        "summary",
        "takes_program",
        "usage_exit",
        "within",
    )

    def __init__(
        self,
        name: str,
        summary: str,
        run: Callable[[CommandLine], int] | None = None,
        arguments: Sequence[Argument] = (),
        options: Mapping[str, Sequence[Option]] | None = None,
        *,
        takes_program: bool = False,
        about: str = "",
        notes: str = "",
        within: Sequence[CliCommand] = (),
        usage_exit: int = 1,
    ) -> None:
        self.name = name
        self.summary = summary
        self.run = run
        self.arguments = arguments
        self.options = options or {}
        self.takes_program = takes_program
        self.about = about
        self.notes = notes
        self.within = within
        self.usage_exit = usage_exit

    def shown(self) -> str:
        """Return how the help shows it: its name and its arguments."""
        return " ".join([self.name, *(each.shown() for each in self.arguments)])

    def every_option(self) -> dict[str, Option]:
        """Return its options by name."""
        return {each.name: each for group in self.options.values() for each in group}

    def parse(self, arguments: Sequence[str]) -> CommandLine:
        """Separate options from other arguments, in any order, up to `--`.

        Args:
            arguments: those after the name of the command.

        Raises:
            CommandLineError: an option is unknown, lacks its value or has a wrong one, or there are
                too few or too many arguments.
        """
        line = CommandLine([*self.name.split(), *arguments])
        options = self.every_option()
        rest = iter(arguments)
        for argument in rest:
            name, equals, value = argument.partition("=")
            option = options.get(name)
            if option is not None and option.value:
                line.options.setdefault(name, []).append(
                    _checked(option, value if equals else next(rest, None))
                )
            elif option is not None and not equals:
                line.options[name] = [""]
            elif argument == "--" and self.takes_program:
                line.program = [*rest]
            elif argument == "--":
                line.positional.extend(rest)
            elif argument.startswith("-") and argument != "-":
                raise _unknown(name, options)
            else:
                line.positional.append(argument)
        self._count(line.positional)
        return line

    def _count(self, given: Sequence[str]) -> None:
        needed = [each.name for each in self.arguments if each.count in "1+"]
        if len(given) < len(needed):
            raise CommandLineError(f"{self.name} needs {' and '.join(needed)}")
        if len(given) > len(self.arguments) and not any(e.count in "*+" for e in self.arguments):
            extra = given[len(self.arguments)]
            raise CommandLineError(f"{extra!r} is one argument too many")


def _checked(option: Option, value: str | None) -> str:
    if value is None:
        raise CommandLineError(f"{option.name} needs {option.value}")
    if isinstance(option.words, tuple) and value not in option.words:
        *first, last = option.words
        raise CommandLineError(f"{option.name} is {', '.join(first)} or {last}")
    if isinstance(option.words, range) and not _is_number(value, option.words):
        numbers = f"{option.words.start} to {option.words.stop - 1}"
        raise CommandLineError(f"{option.name} is a number from {numbers}")
    return value


def _is_number(text: str, numbers: range) -> bool:
    is_short = text.isascii() and text.isdecimal() and len(text) <= len(str(numbers.stop))
    return is_short and int(text) in numbers


def _unknown(name: str, known: Collection[str]) -> CommandLineError:
    if name in known:
        return CommandLineError(f"{name} takes no value")
    from .command_table import no_such

    return CommandLineError(no_such("option", name, known))  # without its value (CLI-23)
