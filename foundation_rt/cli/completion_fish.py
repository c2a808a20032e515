"""The completion of fish, 3 and later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .command_shapes import FILES, FOLDERS, CommandShape, OptionShape, Words

_HEAD = """\
# Completion of foundation-rt for fish: foundation-rt completion fish | source

# Print the command of the line, and how many arguments it has already: `gateway status 0`.
function __foundation_rt_at
    set -l words (commandline -opc)
    set -l command ''
    set -l count 0
    set -l skip ''
    for word in $words[2..-1]
        if test -n "$skip"
            set skip ''
        else if contains -- "$command $word" {valued}
            set skip 1
        else if string match -q -- '-*' $word
            continue
        else if test -z "$command"
            set command $word
        else if test $count = 0; and contains -- "$command $word" {nested}
            set command "$command $word"
        else
            set count (math $count + 1)
        end
    end
    echo "$command $count"
end

function __foundation_rt_is
    string match -q -- "$argv[1] $argv[2]" (__foundation_rt_at)
end

complete -c foundation-rt -f
complete -c foundation-rt -n "__foundation_rt_is '' 0" -l version -d 'show the version'
complete -c foundation-rt -n "__foundation_rt_is '' 0" -l help -d 'show the help'
"""


def fish_script(commands: Sequence[CommandShape]) -> str:
    """Return the script that completes these commands."""
    valued = [
        _quoted(f"{command.name} {name}")
        for command in commands
        for name, option in command.options.items()
        if option.value is not None
    ]
    nested = [_quoted(command.name) for command in commands if " " in command.name]
    head = _HEAD.format(valued=" ".join(valued), nested=" ".join(nested))
    return head + "".join(f"complete -c foundation-rt {line}\n" for line in _lines(commands))


def _lines(commands: Sequence[CommandShape]) -> Iterator[str]:
    for command in commands:
        outer, _, inner = command.name.partition(" ")
        at = _at(outer if inner else "", 0)
        yield f"{at} -a {inner or outer} -d {_quoted(command.description)}"
        for name, option in command.options.items():
            yield f"{_at(command.name, '*')} {_option(name, option)}"
        for place, words in enumerate(command.positional):
            if words:
                at = _at(command.name, "*" if command.repeats else place)
                yield f"{at} {_action(words)}"


def _at(command: str, count: int | str) -> str:
    return f"-n \"__foundation_rt_is '{command}' '{count}'\""


def _option(name: str, option: OptionShape) -> str:
    described = f"-l {name.removeprefix('--')} -d {_quoted(option.description)}"
    if option.value is None:
        return described
    takes = "-r" if option.value == FILES else "-x"
    return f"{described} {takes} {_action(option.value)}".rstrip()


def _action(words: Words) -> str:
    if words == FILES:
        return "-F"
    if words == FOLDERS:
        return "-a '(__fish_complete_directories)'"
    return f"-a {_quoted(' '.join(words))}" if words else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
