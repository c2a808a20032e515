"""The command `foundation-rt task-server` (TASKS-01)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .args import CommandLine, CommandLineError, Valued, parse
from .main import OPTIONS, SERVE_FLAGS, SERVE_OPTIONS, serve_line, write_output

if TYPE_CHECKING:
    from ..server import Server

HELP = """\
usage: foundation-rt task-server [COMMAND] [OPTION ...]

A server of tasks that agents and people share.

commands:
  (none)                          serve, over stdio unless --http or --transport says otherwise
  migrate [--check]               create or migrate the tables
  import FILE [--format FORMAT]   store the tasks in FILE; repeated, it stores nothing twice
  export FILE [--format FORMAT]   write all tasks to FILE

options of every command:
  --database URL                  sqlite:PATH or postgresql://...; by default a file of yours,
                                  $XDG_DATA_HOME/foundation-rt/tasks.db
  --config FILE                   a configuration file, .toml or .json

options of serving:
  --http HOST:PORT                serve over HTTP (extra `task-server`)
  --transport TRANSPORT           stdio, http or both
  --no-auth                       serve every client over HTTP, without a key or token
  --workers N                     serve HTTP in N processes

options of the other commands:
  --check                         of migrate: only compare the tables
  --format FORMAT                 json, jsonl or csv; by default what the name of FILE says

FILE is a path, or - for standard input or output.

examples:
  foundation-rt task-server
  foundation-rt task-server --database postgresql:///tasks --http 127.0.0.1:8000 --workers 4
  foundation-rt task-server import tasks.csv
  foundation-rt task-server export - --format jsonl > tasks.jsonl
  foundation-rt call 'foundation-rt task-server' mcp-tasks-summary
"""

_DATABASE = {"--database": "sqlite:PATH or postgresql://..."}
SERVED_OPTIONS: Valued = {**SERVE_OPTIONS, **_DATABASE}
MIGRATE_OPTIONS: Valued = {**OPTIONS, **_DATABASE}
MIGRATE_FLAGS = ("--check",)
FILE_OPTIONS: Valued = {**MIGRATE_OPTIONS, "--format": ("json", "jsonl", "csv")}


def task_server(arguments: list[str]) -> int:
    """Run the command; return the exit code.

    Raises:
        UsageError: a variable of the seed has an option instead (TASKS-100).
    """
    from ..apps.task_server.environment import take_seed_variables

    take_seed_variables(os.environ)
    command = arguments[0] if arguments else ""
    if command in COMMANDS:
        return COMMANDS[command](arguments[1:])
    if command and not command.startswith("-"):
        from .nearest import LONGEST_SHOWN, did_you_mean

        near = did_you_mean(command, COMMANDS)
        raise CommandLineError(f"there is no command {command[:LONGEST_SHOWN]!r}{near}")
    line = parse(arguments, SERVED_OPTIONS, SERVE_FLAGS, at_most=0)
    return serve_line(
        line,
        lambda over_http: _load(line, over_http),
        ["task-server", *arguments],
    )


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


def _migrate(arguments: list[str]) -> int:
    line = parse(arguments, MIGRATE_OPTIONS, MIGRATE_FLAGS, at_most=0)
    from ..apps.task_server.operation import migrate

    return _say(migrate(_load_bare(line), check="--check" in line.options))


def _import(arguments: list[str]) -> int:
    line = _file_line(arguments, "import")
    from ..apps.task_server.operation import import_tasks

    path, chosen = line.positional[0], line.option("--format")
    return _say(import_tasks(_load(line, over_http=False), path, chosen))


def _export(arguments: list[str]) -> int:
    line = _file_line(arguments, "export")
    from ..apps.task_server.operation import export_tasks

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


def _file_line(arguments: list[str], command: str) -> CommandLine:
    line = parse(arguments, FILE_OPTIONS, at_most=1)
    if not line.positional:
        raise CommandLineError(f"{command} needs a FILE")
    return line


def _load_bare(line: CommandLine) -> Server:
    from ..apps.task_server.app import make_server

    return make_server(_overrides(line), config=line.option("--config"))


def _say(text: str) -> int:
    """Write what was done to stderr: stdout may be the file of an export."""
    with suppress(OSError, AttributeError):  # it is full, or closed
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "migrate": _migrate,
    "import": _import,
    "export": _export,
}
