"""The guide, the help of the command line and of each command (CLI-06, CLI-55, CLI-106).

`argparse` lays the help out, from the declarations; commands are read by `CliCommand.parse`.
"""

from __future__ import annotations

import re
import textwrap
from argparse import Action, ArgumentParser, HelpFormatter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from .args import CliCommand, Words
from .command_table import GROUPS, load
from .serve import APP
from .targets import TARGET

HELP_SUMMARY = "show this, or the help of a command"

_WIDTH = 80
_GREATEST_WIDTH = 100  # of a terminal
_BESIDE = 34  # where descriptions begin

_EXAMPLES = """\
examples:
  foundation-rt serve tools.py
  foundation-rt serve tools.py --http 127.0.0.1:8000 --no-auth
  foundation-rt check tools.py --config production.toml
  foundation-rt call tools.py forecast city=Oslo days=3
  foundation-rt inspect "npx -y @modelcontextprotocol/server-everything"

exit codes: 0; 1 the tool failed, or the APP cannot be served; 2 the command line is wrong; 3 the
server cannot be reached, or has not sent the result; 4 stdout cannot be written; 130 interrupted"""


_GUIDE = '''\
foundation-rt: tools for language models, over MCP (Model Context Protocol)

1. Write a first tool, in tools.py
   from foundation_rt import Server
   server = Server("weather")

   @server.tool
   def forecast(city: str) -> str:
       """Tell the weather."""
       return f"Sun in {city}."
2. See what clients see, and call it
   foundation-rt check tools.py
   foundation-rt call tools.py forecast city=Oslo
3. Work on it, on a page
   foundation-rt dev tools.py --open                   # restarted when you save
4. Give it to others
   foundation-rt serve tools.py --http 8000 --no-auth  # over HTTP
   foundation-rt install cursor tools.py               # in a desktop client
5. Run a whole application
   foundation-rt gateway --demo                        # many servers as one
   foundation-rt host                                  # a chat that uses tools
   foundation-rt task-server                           # tasks, for agents too

foundation-rt help lists every command, foundation-rt help COMMAND its options.
'''
_GUIDE_COLOURS = (
    (re.compile(r"^(\d\. .*|foundation-rt(?=:))", re.MULTILINE), "bold"),
    (re.compile(r"(?<=^   )foundation-rt \S.*?(?= *(#|$))", re.MULTILINE), "cyan"),
    (re.compile(r"#.*"), "dim"),
)


def guide_text(*, coloured: bool) -> str:
    """Return what one can do first, for a command line without a command (CLI-106)."""
    from .terminal import paint

    text = _GUIDE
    for pattern, colour in _GUIDE_COLOURS:
        text = pattern.sub(paint(r"\g<0>", colour, coloured=coloured), text)
    return text


def help_text(command: CliCommand | None, columns: int | None = None) -> str:
    """Return the help of a command; of None, that of the whole command line.

    Args:
        command: as it is declared.
        columns: the width of a terminal; None: it is written elsewhere.
    """
    width = _WIDTH if columns is None else min(columns, _GREATEST_WIDTH)
    formatter = partial(_Formatter, max_help_position=_BESIDE, width=width)
    parser = ArgumentParser(add_help=False, formatter_class=formatter)
    parser.color = False  # type: ignore[attr-defined] # from Python 3.14
    if command is None:
        _describe_program(parser)
    else:
        declare(parser, command)
        _describe(parser, command)
    return parser.format_help()


def declare(parser: ArgumentParser, command: CliCommand) -> list[tuple[Action, Words]]:
    """Add the arguments and options of a command; return them, with what their values can be."""
    added: list[tuple[Action, Words]] = []
    group = parser.add_argument_group("arguments")
    for each in command.arguments:
        count = None if each.count == "1" else each.count
        action = group.add_argument(
            each.name, metavar=each.name, help=_text(each.help), nargs=count
        )
        added.append((action, each.words))
    for title, options in command.options.items():
        group = parser.add_argument_group(title)
        for option in options:
            form: dict[str, Any] = {"metavar": option.value, "action": "append"}
            form = form if option.value else {"action": "store_true"}
            action = group.add_argument(option.name, help=_text(option.help), **form)
            added.append((action, option.words))
    return added


def _describe(parser: ArgumentParser, command: CliCommand) -> None:
    """Add what the help of a command says beside its arguments and options."""
    usages = [f"foundation-rt {each.shown()} [OPTION ...]" for each in _forms(command)]
    if command.takes_program:
        usages[0] += " [-- ...]"
    parser.usage = "\n       ".join(usages)
    parser.description = command.about or f"{command.summary[:1].upper()}{command.summary[1:]}."
    if command.within:
        _add_rows(parser, "commands", [(each.shown(), each.summary) for each in _forms(command)])
        parser.epilog = f"foundation-rt help {command.name} COMMAND shows the options of one.\n\n"
    parser.epilog = (parser.epilog or "") + command.notes


def _describe_program(parser: ArgumentParser) -> None:
    start = "foundation-rt"
    parser.usage = (
        f"{start} COMMAND [ARGUMENT ...]\n       {start} help COMMAND      its options and examples"
    )
    own = [("help [COMMAND]", HELP_SUMMARY), ("--version", "show the version")]
    for title, names in GROUPS.items():
        rows = [(each.shown(), each.summary) for name in names for each in _forms(load(name))]
        _add_rows(parser, title, rows + own if title == "this program" else rows)
    parser.epilog = f"APP is {APP.help}.\n\nTARGET is {TARGET.help}.\n\n{_EXAMPLES}"


def _forms(command: CliCommand) -> Iterator[CliCommand]:
    """Yield a command, and those within it; without one that cannot be run itself."""
    for each in (command, *command.within):
        if each.run is not None:
            yield each


def _add_rows(parser: ArgumentParser, title: str, rows: Sequence[tuple[str, str]]) -> None:
    group = parser.add_argument_group(title)
    for written, summary in rows:
        group.add_argument(f"<{written}>", metavar=written, help=_text(summary))


def _text(text: str) -> str:
    """Return a text in which argparse replaces nothing."""
    return text.replace("%", "%%")


class _Formatter(HelpFormatter):
    """Ends lines between words; paragraphs with lines that are indented, commands, stay whole."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            each if "\n  " in each else "\n".join(_wrapped(each, width))
            for each in text.split("\n\n")
        )

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(text, width)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
