"""The command `foundation-rt completion`: a script that completes commands in a shell (CLI-56).

The script has all commands, options and values in it: no key starts a process.
"""

from __future__ import annotations

from .args import CommandLineError, parse
from .command_shapes import SHELLS, command_shapes
from .completion_bash import bash_script
from .completion_fish import fish_script
from .completion_zsh import zsh_script
from .main import write_output
from .nearest import did_you_mean


def completion(arguments: list[str]) -> int:
    """Run the command; return the exit code."""
    line = parse(arguments, {}, at_most=1)
    shell = line.positional[0] if line.positional else ""
    if shell not in SHELLS:
        raise CommandLineError(f"SHELL is bash, zsh or fish{did_you_mean(shell, SHELLS)}")
    write = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[shell]
    return write_output(write(command_shapes()).encode())
