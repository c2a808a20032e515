"""Command lines of Windows: programs as its shells find them, batch files without injection.

A batch file (`.cmd`, `.bat`, and so most programs of npm) is run by cmd.exe, which reads
its command line by rules of its own, before the program splits what is left (CVE-2024-24576 and its
kin). Two of them matter: what is within quotes is no operator, and variables are filled in also
there. So every argument that is not plain is quoted, a quote is doubled, which neither of the two
readers takes for an end, and a percent sign comes out of a variable, which is filled in only once.
"""

from __future__ import annotations

import errno
import ntpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

_BATCH = (".bat", ".cmd")
_PROGRAMS = (".com", ".exe", *_BATCH)
_SCRIPT: Final = ".ps1"
_USUAL_EXTENSIONS: Final = ".COM;.EXE;.BAT;.CMD"
_POWERSHELL = ("-NoLogo", "-NoProfile", "-NonInteractive", "-File")
_MAX_LINE = 8_000  # characters; cmd.exe reads 8,191, and a cut line would be another one
_PLAIN = re.compile(r"[A-Za-z0-9_./:\\@+-]*[A-Za-z0-9_./:@+-]")
_QUOTE = re.compile(r'(\\*)("|\Z)')
PERCENT: Final = {"FOUNDATION_RT_PERCENT": "%"}
"""A part of the environment of a batch file."""


def command_line(
    words: Sequence[str], env: Mapping[str, str], cwd: str, is_file: Callable[[str], bool]
) -> Sequence[str] | str:
    """Return the words to start a program with, its path first; or, of a batch file, a whole line.

    Args:
        words: the command and its arguments.
        env: the environment of the program; it has `PATH`, `PATHEXT` and `SYSTEMROOT`.
        cwd: the folder that it starts in, absolute.
        is_file: tells whether a path is that of a file.

    Raises:
        OSError: there is no such program, or a batch file cannot be given an argument.
    """
    program = find_program(words[0], env, cwd, is_file)
    if program is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such program", words[0])
    extension = ntpath.splitext(program)[1].lower()
    if extension in _BATCH:
        return batch_line(program, words[1:])
    if extension == _SCRIPT:
        folder = ntpath.join(env.get("SYSTEMROOT", r"C:\Windows"), "System32", "WindowsPowerShell")
        return [ntpath.join(folder, "v1.0", "powershell.exe"), *_POWERSHELL, program, *words[1:]]
    return [program, *words[1:]]


def find_program(
    command: str, env: Mapping[str, str], cwd: str, is_file: Callable[[str], bool]
) -> str | None:
    """Return the absolute path of a program; None if there is none.

    The order is that of the shells: folders of `PATH`, in each the extensions of `PATHEXT`, then
    `.ps1`. The working directory is not searched, where cmd.exe would: others may write to it.

    Args:
        command: a path, or a name, with its extension or without.
        env: as for `command_line`.
        cwd: a relative path is taken from there.
        is_file: tells whether a path is that of a file.
    """
    extensions = env.get("PATHEXT") or _USUAL_EXTENSIONS
    known = [each.lower() for each in extensions.split(";") if each.lower() in _PROGRAMS]
    is_path = ntpath.dirname(command) != "" or ntpath.splitdrive(command)[0] != ""
    if is_path:
        folders = [cwd]
    else:
        listed = (each.strip('"') for each in env.get("PATH", "").split(";"))
        folders = [each for each in listed if ntpath.isabs(each) and ntpath.splitdrive(each)[0]]
    for folder in folders:
        for name in _names(command, [*known, _SCRIPT], is_path):
            # Windows leaves out what its names end with: `x.cmd.` is a batch file too.
            found = ntpath.normpath(ntpath.join(folder, name)).rstrip(". ")
            if is_file(found):
                return found
    return None


def _names(command: str, extensions: Sequence[str], is_path: bool) -> Iterator[str]:
    if ntpath.splitext(command)[1].lower() in (*_PROGRAMS, _SCRIPT):
        yield command
    yield from (command + each for each in extensions)
    if is_path:  # beside npx.cmd is npx, a script for other systems, which no shell here runs
        yield command


def batch_line(program: str, args: Sequence[str]) -> str:
    """Return the line with which cmd.exe runs a batch file, whose arguments stay what they are.

    Args:
        program: the path of the file.
        args: its arguments; the variables of `PERCENT` stand for a part of them.

    Raises:
        OSError: an argument has a line break, or the line is longer than cmd.exe reads.
    """
    if any(end in each for each in args for end in "\r\n\0"):
        raise OSError(errno.EINVAL, "a batch file cannot be given an argument with a line break")
    line = " ".join([_quoted(program), *(_argument(each) for each in args)])
    if len(line) > _MAX_LINE:
        raise OSError(errno.EINVAL, f"a batch file can be given {_MAX_LINE} characters at most")
    return line


def _argument(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    # Backslashes before a quote, or the last one, are doubled: so the program splits them.
    doubled = _QUOTE.sub(lambda found: found[1] * 2 + found[2] * 2, text)
    return '"' + doubled.replace("%", "%FOUNDATION_RT_PERCENT%") + '"'
