"""The command `foundation-rt migrate` (spec/migration.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from ..errors import MissingExtraError
from .args import FILES, Argument, CliCommand, CommandLine, Option
from .render import write_output

if TYPE_CHECKING:
    from ..apps.migration.source import MigratedFile

_FAILURE_EXIT = 1


def _migrate(line: CommandLine) -> int:
    """Migrate files; return the exit code (MIGR-06)."""
    writes = "--write" in line.options
    texts: dict[PurePath, str] = {}
    files: dict[PurePath, MigratedFile] = {}
    code = 0
    for path in _files(line.positional):
        try:
            before = path.read_bytes().decode()
            files[path] = _migrated(before)
            texts[path] = before
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            _say(f"{path}: {'not Python: ' if isinstance(error, ValueError) else ''}{reason}")
            code = _FAILURE_EXIT
    for each, result in _together(files).items():
        code = max(code, _finish(each, texts[each], result, writes))
    return code


def _files(names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        path = Path(name)
        if path.is_dir():
            yield from sorted(path.rglob("*.py"))
        else:
            yield path


def _together(files: Mapping[PurePath, MigratedFile]) -> Mapping[PurePath, MigratedFile]:
    if not any(each.servers for each in files.values()):
        return files
    from ..apps.migration.callers import call_servers

    return call_servers(files)


def _finish(path: PurePath, before: str, result: MigratedFile, writes: bool) -> int:
    """Write or print the result for one file, and its findings; return the exit code for it."""
    if not result.libraries and result.text == before:
        _say(f"{path}: imports neither fastmcp nor mcp: nothing to do")
        return 0
    for finding in result.findings:
        kind = "decide" if finding.is_open else "note"
        _say(f"{path}:{finding.line}: {kind}: {finding.text}")
    if result.text != before:
        if writes:
            Path(path).write_bytes(result.text.encode())
            _say(f"{path}: written")
        else:
            write_output(_diff(path, before, result.text))
    return _FAILURE_EXIT if result.open_findings else 0


def _migrated(text: str) -> MigratedFile:
    try:
        from ..apps.migration.migrate import migrate_source
    except ModuleNotFoundError as error:
        if error.name != "libcst":
            raise
        raise MissingExtraError("migrate", "migrate") from None
    return migrate_source(text)


def _diff(path: PurePath, before: str, after: str) -> bytes:
    lines = unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), str(path), str(path)
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines).encode()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


MIGRATE = CliCommand(
    "migrate",
    "rewrite programs of other libraries",
    _migrate,
    (
        Argument(
            "FILE", "a file of Python, or a folder, whose files below it are taken", FILES, "+"
        ),
    ),
    {"options": (Option("--write", "write the changes to the files"),)},
    about="""\
Rewrite servers of FastMCP 2 to 4 and of the official SDK 1 and 2 for foundation-rt, and list what
a person has to decide. Comments and formatting stay. Needs the extra `migrate`.

Without options the changes are printed as a diff, and nothing is written.""",
    notes="""\
Findings go to stderr, as FILE:LINE. `decide` has to be decided before the program runs, or before
it means what it meant; `note` was done, and is worth knowing.

examples:
  foundation-rt migrate server.py
  foundation-rt migrate src/ --write

exit codes: 0; 1 there is something to decide, or a file cannot be read; 2 the command line is wrong
""",
)
