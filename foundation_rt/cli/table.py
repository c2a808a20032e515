"""The commands, by group, with their modules.

Each is declared in its module by its name in capitals: `task-server` is `TASK_SERVER`. A module is
imported with the first use of its command.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .args import CliCommand

GROUPS: Mapping[str, Mapping[str, str]] = {
    "commands for a server of your own, the APP": {
        "serve": "serve",
        "check": "check",
        "dev": "dev",
        "install": "install",
        "uninstall": "install",
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
