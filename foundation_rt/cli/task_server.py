"""The command `foundation-rt task-server` (TASKS-01).

The environment variables of the seed are settings too (TASKS-100).
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .args import FILES, Argument, CliCommand, CommandLine, CommandLineError, Option
from .render import write_output
from .serve import CONFIG, TRANSPORT_OPTIONS, WORKERS, serve_line

if TYPE_CHECKING:
    from ..server import Server


def _task_server(line: CommandLine) -> int:
    _take_variables()
    return serve_line(line, lambda over_http: _load(line, over_http))


def _take_variables() -> None:
    """Take the variables of the seed.

    Raises:
        UsageError: one of them has an option instead (TASKS-100).
    """
    take_seed_variables(os.environ)


def _load(line: CommandLine, over_http: bool) -> Server:
    from ..apps.task_server.app import create_task_server

    return create_task_server(_overrides(line), config=line.option("--config"), over_http=over_http)


def _overrides(line: CommandLine) -> dict[str, dict[str, Any]]:
    database = line.option("--database")
    if database is None:
        return {}
    if not database.startswith(("sqlite:", "postgresql:", "postgres:")):
        # Not repeated: it may be a URL with a password.
        raise CommandLineError("--database is sqlite:PATH or postgresql://...")
    return {"task_server": {"database": database}}


def _migrate(line: CommandLine) -> int:
    from ..apps.task_server.operation import migrate

    _take_variables()
    return _say(migrate(_load_bare(line), check="--check" in line.options))


def _import(line: CommandLine) -> int:
    from ..apps.task_server.operation import import_tasks

    _take_variables()
    path, chosen = line.positional[0], line.option("--format")
    return _say(import_tasks(_load(line, over_http=False), path, chosen))


def _export(line: CommandLine) -> int:
    from ..apps.task_server.operation import export_tasks

    _take_variables()
    path, chosen = line.positional[0], line.option("--format")
    stdout = _Stdout()
    try:
        return _say(export_tasks(_load_bare(line), path, chosen, stdout))
    except BrokenPipeError:
        return stdout.exit_code


class _Stdout:
    """Takes the bytes of an export; one that cannot be written ends it (CLI-30)."""

    exit_code = 0

    def write(self, data: bytes) -> int:
        """Write bytes at once.

        Raises:
            BrokenPipeError: they cannot be written; `exit_code` says how the command ends.
        """
        self.exit_code = write_output(data)
        if self.exit_code:
            raise BrokenPipeError
        return len(data)

    def flush(self) -> None:
        """Do nothing: every write is one."""


def _load_bare(line: CommandLine) -> Server:
    from ..apps.task_server.app import make_server

    return make_server(_overrides(line), config=line.option("--config"))


def _say(text: str) -> int:
    """Write what was done to stderr: stdout may be the file of an export."""
    with suppress(OSError, AttributeError):  # it is full, or closed
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    return 0


_STORED = {
    "options of every command": (
        Option(
            "--database",
            "sqlite:PATH or postgresql://...; by default a file of yours,"
            " $XDG_DATA_HOME/foundation-rt/tasks.db",
            "URL",
        ),
        CONFIG,
    )
}
_FILE = Argument("FILE", "a path, or - for standard input or output", FILES)
_OF_FILES = {
    "options": (
        Option(
            "--format",
            "json, jsonl or csv; by default what the name of FILE says",
            "FORMAT",
            ("json", "jsonl", "csv"),
        ),
    ),
    **_STORED,
}

TASK_SERVER = CliCommand(
    "task-server",
    "serve tasks that agents and people share",
    _task_server,
    (),
    {**_STORED, "options of serving": (*TRANSPORT_OPTIONS, WORKERS)},
    about="""\
A server of tasks that agents and people share. It serves over stdio unless --http or --transport
says otherwise.""",
    notes="""\
examples:
  foundation-rt task-server
  foundation-rt task-server --database postgresql:///db --http 8000 --workers 4
  foundation-rt task-server import tasks.csv
  foundation-rt task-server export - --format jsonl > tasks.jsonl
  foundation-rt call 'foundation-rt task-server' mcp-tasks-summary""",
    within=(
        CliCommand(
            "task-server migrate",
            "create or migrate the tables",
            _migrate,
            (),
            {"options": (Option("--check", "only compare the tables"),), **_STORED},
        ),
        CliCommand(
            "task-server import",
            "store the tasks in FILE; repeated, it stores nothing twice",
            _import,
            (_FILE,),
            _OF_FILES,
        ),
        CliCommand("task-server export", "write all tasks to FILE", _export, (_FILE,), _OF_FILES),
    ),
)


_SENSITIVE_DATA = "FOUNDATION_RT_AUDIT__SENSITIVE_DATA"

VARIABLES = {
    "MCP_CORS_ORIGINS": "FOUNDATION_RT_HTTP__CORS_ORIGINS",
    "MCP_TRANSPORT_HTTP_SECURITY_API_KEYS": "FOUNDATION_RT_HTTP__API_KEYS",
    "MCP_RESOURCE_MAX_TASKS": "FOUNDATION_RT_TASK_SERVER__RESOURCE_MAX_TASKS",
    "AUDIT_ENABLED": "FOUNDATION_RT_AUDIT__ENABLED",
    "AUDIT_ENABLED_CATEGORIES": "FOUNDATION_RT_AUDIT__CATEGORIES",
    "AUDIT_SENSITIVE_DATA_STRATEGY": _SENSITIVE_DATA,
}
"""The seed's variables, and the variable of the same setting, which wins."""

OPTIONS = {
    "MCP_TRANSPORT_MODE": "--transport stdio, http or both",
    "SECURITY_API_KEY_ENABLED": "--no-auth, or FOUNDATION_RT_HTTP__NO_AUTH=true",
}
"""Variables that are refused, and what to write instead."""


def take_seed_variables(variables: MutableMapping[str, str]) -> None:
    """Set the variables of settings that the seed's variables give; an empty one is none.

    Underscores in the seed's names do not count: its framework leaves out those of a dash.

    Raises:
        UsageError: lists those for which there is an option, and names it.
    """
    given = {name.replace("_", ""): value for name, value in variables.items() if value}
    problems = [
        f"{name} is not read: use {instead}"
        for name, instead in OPTIONS.items()
        if name.replace("_", "") in given
    ]
    if problems:
        raise UsageError("\n".join(problems))
    for name, own in VARIABLES.items():
        value = given.get(name.replace("_", ""))
        if value and not variables.get(own):
            variables[own] = value.lower() if own == _SENSITIVE_DATA else value
