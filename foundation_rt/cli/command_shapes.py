"""The shapes of all command lines, from the tables that the parsers read; for completion (CLI-56).

Imported for `completion` only: it imports the modules of all commands.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TypeAlias

from attrs import frozen

from . import agents, ask, dev, gateway, host, install, main, migrate, openapi, task_server
from .args import Valued
from .commands import CLIENT_COMMANDS
from .desktop_clients import desktop_clients
from .help_texts import command_descriptions, option_descriptions
from .targets import FLAGS, VALUED_OPTIONS

SHELLS = ("bash", "zsh", "fish")
FILES = "files"
FOLDERS = "folders"
ANYTHING = ""
"""A value that nothing is known of."""

Words: TypeAlias = "str | tuple[str, ...]"
"""The kinds of a word of a command line: `FILES`, `FOLDERS`, `ANYTHING`, or one of these words."""

_OF_VALUES: Mapping[str, str] = {"a file": FILES, "a path": FILES, "a folder": FOLDERS}


@frozen
class OptionShape:
    """An option.

    Attributes:
        description: in one line, without a full stop; "" without one.
        value: what its value can be; None for a flag.
    """

    description: str
    value: Words | None


@frozen
class CommandShape:
    """A command, or a command within one, such as `gateway status`.

    Attributes:
        name: one word, or two.
        description: in one line; "" for a command within another.
        options: by name, with their two dashes.
        positional: what each argument can be.
        repeats: any number of arguments like the last may follow.
    """

    name: str
    description: str
    options: Mapping[str, OptionShape]
    positional: tuple[Words, ...]
    repeats: bool


def command_shapes() -> list[CommandShape]:
    """Return every command, in alphabetical order; commands within a command after it."""
    return [
        _shape(name, valued, flags, _positional(name))
        for name, (valued, flags) in sorted(_parsed().items())
    ]


def _parsed() -> Mapping[str, tuple[Valued, Collection[str]]]:
    """Return the options with and without a value of each command, as its parser has them."""
    return {
        "help": ({}, ()),
        "completion": ({}, ()),
        "serve": (main.SERVE_OPTIONS, (*main.SERVE_FLAGS, *main.PROGRAM_FLAGS)),
        "check": (VALUED_OPTIONS, (*main.CHECK_FLAGS, "--portable")),
        "agents": ({}, ()),
        "agents list": (agents.LIST_OPTIONS, agents.FLAGS),
        "agents show": (agents.SHOW_OPTIONS, agents.FLAGS),
        "agents cancel": (agents.CHANGE_OPTIONS, agents.CHANGE_FLAGS),
        "agents requeue": (agents.CHANGE_OPTIONS, agents.CHANGE_FLAGS),
        "agents purge": (agents.PURGE_OPTIONS, agents.CHANGE_FLAGS),
        "agents schedules": (agents.SCHEDULES_OPTIONS, agents.FLAGS),
        "agents unschedule": (agents.CHANGE_OPTIONS, agents.CHANGE_FLAGS),
        "ask": (ask.OPTIONS, ask.FLAGS),
        "dev": (dev.OPTIONS, dev.FLAGS),
        "gateway": (gateway.OPTIONS, gateway.FLAGS),
        "gateway accept": (gateway.ACCEPT_OPTIONS, gateway.ACCEPT_FLAGS),
        "host": (host.OPTIONS, host.FLAGS),
        "install": (install.OPTIONS, install.INSTALL_FLAGS),
        "uninstall": ({}, install.FLAGS),
        "migrate": ({}, migrate.FLAGS),
        "openapi": (openapi.OPTIONS, openapi.FLAGS),
        "task-server": (task_server.SERVED_OPTIONS, main.SERVE_FLAGS),
        "task-server migrate": (task_server.MIGRATE_OPTIONS, task_server.MIGRATE_FLAGS),
        "task-server import": (task_server.FILE_OPTIONS, ()),
        "task-server export": (task_server.FILE_OPTIONS, ()),
        **{
            name: (command.valued, FLAGS)
            for name, command in CLIENT_COMMANDS.items()
            if not name.startswith("check")
        },
    }


def _positional(name: str) -> tuple[Words, ...]:
    clients = (*desktop_clients(os.environ),)
    known: Mapping[str, tuple[Words, ...]] = {
        "help": ((*sorted((*main.COMMANDS, *main.CLIENT_COMMANDS)),),),
        "completion": (SHELLS,),
        "agents": (tuple(sorted(agents.COMMANDS)),),
        **dict.fromkeys(
            ("agents show", "agents cancel", "agents requeue", "agents unschedule"), (ANYTHING,)
        ),
        "install": (clients, FILES),
        "uninstall": (clients,),
        "task-server": (tuple(sorted(task_server.COMMANDS)),),
        **dict.fromkeys(("gateway status", "ask", "host", "task-server migrate"), ()),
        **dict.fromkeys(("agents list", "agents purge", "agents schedules"), ()),
    }
    return known.get(name, (FILES,))


def _shape(
    name: str, valued: Valued, flags: Collection[str], positional: tuple[Words, ...]
) -> CommandShape:
    command = name.split()[0]
    # `check --portable` and `gateway status` take the options of `tools` too.
    said = {**option_descriptions("tools"), **option_descriptions(command)}
    kinds: Mapping[str, Words | None] = {
        **{option: _value(described) for option, described in valued.items()},
        **dict.fromkeys(flags),
        "--help": None,
    }
    texts = {"--help": "show the help of this command", **said}
    options = {
        option: OptionShape(texts.get(option, ""), kind) for option, kind in sorted(kinds.items())
    }
    described = command_descriptions().get(name, "")
    return CommandShape(name, described, options, positional, repeats=name == "migrate")


def _value(described: str | tuple[str, ...]) -> Words:
    return described if type(described) is tuple else _OF_VALUES.get(str(described), ANYTHING)
