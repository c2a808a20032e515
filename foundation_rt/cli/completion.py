"""The command `foundation-rt completion`: a script that completes commands in a shell (CLI-56).

shtab writes the scripts. They have all commands, options and values in them: no key starts a
process.
"""

from __future__ import annotations

from argparse import ArgumentParser
from shlex import quote
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from .args import FILES, FOLDERS, Argument, CliCommand, CommandLine, CommandLineError
from .command_table import MODULES, did_you_mean, load
from .help import HELP_SUMMARY, declare
from .render import write_output

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Parsers = _SubParsersAction[ArgumentParser]

_SHELLS = ("bash", "zsh", "fish", "powershell")

# Bash parts words at `=` and `:`. shtab takes each part for an argument.
_BASH = """
_foundation_rt() {
    local word skip='' words=() current=${COMP_WORDS[COMP_CWORD]}
    for word in "${COMP_WORDS[@]:0:COMP_CWORD}"; do
        if [[ -n $skip ]]; then
            skip=''
        elif [[ $word == ':' ]]; then
            skip=1
        elif [[ $word != '=' ]]; then
            words+=("$word")
        fi
    done
    [[ $current == '=' ]] && current=''
    local COMP_WORDS=("${words[@]}" "$current") COMP_CWORD=${#words[@]}
    _shtab_foundation_rt
}

complete -F _foundation_rt foundation-rt
"""
# What is typed of `--config=FILE` begins with the option.
_FISH_FILES = "(__fish_complete_path (commandline -ct | string replace -r -- '^--[^=]*=' ''))"
_POWERSHELL = """
function _foundation_rt_words_or_file {
  param([string]$WordToComplete)
  @(%s) -like "$WordToComplete*"
  _shtab_powershell_compgen_files $WordToComplete
}"""


def _completion(line: CommandLine) -> int:
    [shell] = line.positional
    if shell not in _SHELLS:
        raise CommandLineError(
            f"SHELL is bash, zsh, fish or powershell{did_you_mean(shell, _SHELLS)}"
        )
    return write_output(script(shell).encode())


def script(shell: str) -> str:
    """Return the script for one of the shells.

    Raises:
        MissingExtraError: shtab is not installed.
    """
    try:
        import shtab
    except ImportError:
        raise MissingExtraError("completion", "cli") from None
    parser = ArgumentParser(prog="foundation-rt")
    parser.add_argument("--version", action="version", help="show the version")
    parsers = parser.add_subparsers()
    own = parsers.add_parser("help", help=HELP_SUMMARY)
    own.add_argument("COMMAND", nargs="?", choices=sorted(MODULES), help="its name")
    for name in sorted(MODULES):
        _add(parsers, load(name), shell)
    text: str = shtab.complete(parser, shell, root_prefix="foundation_rt")
    if shell == "zsh":  # sourced, the script of shtab would complete at once
        return f"#compdef foundation-rt\neval {quote(text)}\n"
    return text + _BASH if shell == "bash" else text


def _add(parsers: Parsers, command: CliCommand, shell: str) -> None:
    """Add a command, and those within it."""
    parser = parsers.add_parser(
        command.name.split()[-1], help=command.summary, description=command.summary
    )
    if command.arguments:
        command = _with_others(command)
    elif command.within:
        parsers_within = parser.add_subparsers()
        for each in command.within:
            _add(parsers_within, each, shell)
    for action, words in declare(parser, command):
        if shell == "zsh" and action.option_strings and action.nargs != 0:
            # Its value may follow `=` too; a colon would end its name.
            action.option_strings = [f"{each}=" for each in action.option_strings]
            action.metavar = str(action.metavar).replace(":", " ")
        if isinstance(words, tuple) and FILES not in words:
            action.choices = words
        elif words and not isinstance(words, range):
            action.complete = _completer(words)  # type: ignore[attr-defined] # of shtab


def _with_others(command: CliCommand) -> CliCommand:
    """Return a command that has the options and names of those within it too.

    shtab completes either commands or files in one place.
    """
    options = command.every_option()
    for each in command.within:
        options = {**each.every_option(), **options}
    first, *others = command.arguments
    names = [each.name.split()[1] for each in command.within]
    names = [each for each in names if not each.startswith("-")]
    if names:
        first = Argument(first.name, first.help, (FILES, *names), first.count)
    return CliCommand(command.name, "", None, (first, *others), {"options": [*options.values()]})


def _completer(words: str | tuple[str, ...]) -> dict[str, Any]:
    """Return how each shell completes files, folders, or files and words."""
    import shtab

    if words == FOLDERS:
        folders: dict[str, Any] = shtab.DIRECTORY
        return folders
    files = {**shtab.FILE, "fish": _FISH_FILES}
    if words == FILES:
        return files
    listed, quoted = " ".join(words[1:]), ", ".join(f"'{each}'" for each in words[1:])
    function = "_foundation_rt_words_or_file"
    body = f'compgen -W "{listed}" -- "$1"; compgen -f -- "$1"'
    return {
        "bash": function,
        "zsh": f"_alternative 'words:command:({listed})' 'files:file:_files'",
        "fish": f"{listed} {_FISH_FILES}",
        "powershell": function,
        "preamble": {"bash": f"{function}() {{ {body}; }}", "powershell": _POWERSHELL % quoted},
    }


COMPLETION = CliCommand(
    "completion",
    "print the completion of bash, zsh, fish or PowerShell",
    _completion,
    (Argument("SHELL", "bash, zsh, fish or powershell", _SHELLS),),
    about="""\
Print a script that completes commands, options, their values and files in a shell. Needs the extra
`cli`.""",
    notes="""\
examples:
  source <(foundation-rt completion bash)      # in ~/.bashrc
  source <(foundation-rt completion zsh)       # in ~/.zshrc, below compinit
  foundation-rt completion fish > ~/.config/fish/completions/foundation-rt.fish
  foundation-rt completion powershell | Out-String | iex  # in $PROFILE""",
)
