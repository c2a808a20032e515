"""The commands, by group, with their modules.

Each is declared in its module by its name in capitals: `task-server` is `TASK_SERVER`. A module is
imported with the first use of its command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from ..base.close_names import close_names

if TYPE_CHECKING:
    from .args import CliCommand


GROUPS: Mapping[str, Mapping[str, str]] = {
    "commands for a server of your own, the APP": {
        "serve": "serve",
        "check": "check",
        "dev": "dev",
        "install": "install",
        "uninstall": "install",
        "package": "package",
        "migrate": "migrate",
    },
    "commands for any server, the TARGET": {
        "tools": "commands",
        "call": "commands",
        "read": "commands",
        "prompt": "commands",
        "inspect": "commands",
        "ping": "commands",
        "login": "login",
        "logout": "login",
        "whoami": "login",
    },
    "commands for a ledger of agents": {"agents": "agents"},
    "applications that come with the runtime": {
        "ask": "ask",
        "gateway": "gateway",
        "host": "host",
        "openapi": "openapi",
        "task-server": "task_server",
    },
    "this program": {"completion": "completion"},
}

MODULES = {name: module for group in GROUPS.values() for name, module in group.items()}
"""The module of each command."""


def load(name: str) -> CliCommand:
    """Return the declaration of a command; import its module."""
    module = import_module(f".{MODULES[name]}", __package__)
    command: CliCommand = getattr(module, name.replace("-", "_").upper())
    return command


_LONGEST = 64  # characters of a mistyped name that are compared and shown
_MOST = 3


def no_such(kind: str, word: str, names: Iterable[str]) -> str:
    """Return a message for a mistyped name: `there is no option '--confg' (did you mean ...?)`."""
    return f"there is no {kind} {word[:_LONGEST]!r}{did_you_mean(word, names)}"


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` with the nearest names; "" if none is near."""
    cut = word[:_LONGEST].lower()
    known = sorted(names)
    begun = [each for each in known if len(cut.strip("-")) > 1 and each.startswith(cut)]
    near = [*dict.fromkeys([*begun, *close_names(cut, known, _MOST)])][:_MOST]
    return f" (did you mean {' or '.join(near)}?)" if near else ""
