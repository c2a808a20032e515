"""The completion of bash, 3.2 and later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .command_shapes import ANYTHING, FILES, FOLDERS, CommandShape, Words

# `=` and `:` part words in bash: `--transport=stdio` comes as three of them. Files are left to
# readline, which quotes blanks; bash 3.2 of macOS has no compopt.
_SCRIPT = """\
# Completion of foundation-rt for bash: source <(foundation-rt completion bash)

_foundation_rt() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    local command='' within='' count=0 index word skip=''
    if [[ $current == '=' ]]; then
        current=''
    elif [[ $previous == '=' && COMP_CWORD -gt 1 ]]; then
        previous=${{COMP_WORDS[COMP_CWORD-2]}}
    fi
    COMPREPLY=()
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${{COMP_WORDS[index]}}
        if [[ $word == [=:]* ]]; then
            skip=1
        elif [[ -n $skip ]]; then
            skip=''
        elif [[ $word == '--' ]]; then
            _foundation_rt_files -f default
            return
        elif [[ $word == -* ]]; then
            case "$command$within $word" in
                {valued}) skip=1 ;;
            esac
        elif [[ -z $command ]]; then
            command=$word
        else
            case "$command $word" in
                {nested}) [[ $count == 0 && -z $within ]] && within=" $word" && continue ;;
            esac
            count=$((count + 1))
        fi
    done
    if [[ -n $skip ]]; then
        case "$command$within $previous" in
{values}
        esac
        return
    fi
    if [[ $current == -* ]]; then
        case "$command$within" in
{options}
        esac
        return
    fi
    case "$command$within $count" in
{positional}
    esac
}}

_foundation_rt_words() {{
    COMPREPLY+=($(compgen -W "$1" -- "$current"))
}}

_foundation_rt_files() {{
    local IFS=$'\\n'
    compopt -o "$2" 2>/dev/null || COMPREPLY+=($(compgen "$1" -- "$current"))
}}

complete -F _foundation_rt foundation-rt
"""


def bash_script(commands: Sequence[CommandShape]) -> str:
    """Return the script that completes these commands."""
    valued = [
        f"'{command.name} {name}'"
        for command in commands
        for name, option in command.options.items()
        if option.value is not None
    ]
    nested = [f"'{command.name}'" for command in commands if " " in command.name]
    return _SCRIPT.format(
        valued=" | ".join(valued),
        nested=" | ".join(nested),
        values="\n".join(_values(commands)),
        options="\n".join(_options(commands)),
        positional="\n".join(_positional(commands)),
    )


def _values(commands: Sequence[CommandShape]) -> Iterator[str]:
    for command in commands:
        for name, option in command.options.items():
            if option.value:
                yield _case(f"{command.name} {name}", [option.value])


def _options(commands: Sequence[CommandShape]) -> Iterator[str]:
    yield _case("", [("--help", "--version")])
    for command in commands:
        yield _case(command.name, [tuple(command.options)])


def _positional(commands: Sequence[CommandShape]) -> Iterator[str]:
    names = [command.name for command in commands]
    yield _case(" 0", [tuple(name for name in names if " " not in name)])
    for command in commands:
        within = tuple(name.split()[1] for name in names if name.startswith(f"{command.name} "))
        for at, words in enumerate(command.positional or ((ANYTHING,) if within else ())):
            choices = [each for each in (words, within if at == 0 else ANYTHING) if each]
            yield _case(f"{command.name} {at}", choices)
        if command.repeats:
            yield _case(f"{command.name} *", [command.positional[-1]])


def _case(pattern: str, choices: Sequence[Words]) -> str:
    """Return the lines of a case that complete to any of the choices."""
    calls = []
    for words in dict.fromkeys(choices):
        if words == FILES:
            calls.append("_foundation_rt_files -f default")
        elif words == FOLDERS:
            calls.append("_foundation_rt_files -d dirnames")
        else:
            calls.append(f"_foundation_rt_words '{' '.join(words)}'")
    quoted = "*".join(f"'{each}'" if each else "" for each in pattern.split("*")) or "''"
    return f"            {quoted}) {'; '.join(calls)} ;;"
