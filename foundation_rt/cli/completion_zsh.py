"""The completion of zsh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .command_shapes import FILES, FOLDERS, CommandShape, Words

_SCRIPT = """\
#compdef foundation-rt
# Completion of foundation-rt for zsh: source <(foundation-rt completion zsh), below compinit

_foundation_rt() {{
    local line state command
    typeset -A opt_args
    _arguments -C '--help[show the help]' '--version[show the version]' \\
        '1: :->command' '*:: :->arguments'
    case $state in
        command)
            local -a commands=(
{commands}
            )
            _describe command commands ;;
        arguments)
            command=$line[1]
            case "$command $words[2]" in
                {nested}) command="$command $words[2]"; shift words; ((CURRENT--)) ;;
            esac
            case $command in
{arguments}
            esac ;;
    esac
}}

if [[ $funcstack[1] == _foundation_rt ]]; then
    _foundation_rt "$@"
else
    compdef _foundation_rt foundation-rt
fi
"""


def zsh_script(commands: Sequence[CommandShape]) -> str:
    """Return the script that completes these commands."""
    outer = [command for command in commands if " " not in command.name]
    listed = (_quoted(f"{each.name}:{each.description}") for each in outer)
    nested = (_quoted(each.name) for each in commands if " " in each.name)
    return _SCRIPT.format(
        commands="\n".join(f"                {each}" for each in listed),
        nested=" | ".join(nested),
        arguments="\n".join(_arguments(commands)),
    )


def _arguments(commands: Sequence[CommandShape]) -> Iterator[str]:
    """Yield the case of each command."""
    for command in commands:
        within = tuple(
            each.name.split()[1] for each in commands if each.name.startswith(f"{command.name} ")
        )
        specs = (*_options(command), *_positional(command, within))
        lines = " \\\n".join(f"{' ' * 20}{_quoted(spec)}" for spec in specs)
        yield f"{' ' * 16}{_quoted(command.name)}) _arguments \\\n{lines} ;;"


def _options(command: CommandShape) -> Iterator[str]:
    for name, option in command.options.items():
        described = f"[{_plain(option.description)}]"
        if option.value is None:
            yield f"{name}{described}"
        else:
            yield f"*{name}={described}:value:{_action(option.value)}"


def _positional(command: CommandShape, within: tuple[str, ...]) -> Iterator[str]:
    """Yield what each argument can be; `within` are the commands within this one."""
    for at, words in enumerate(command.positional):
        actions = [_action(words)]
        if at == 0 and within and words != within:
            actions.append(_action(within))
        is_last = at == len(command.positional) - 1
        place = "*" if command.repeats and is_last else at + 1
        yield f"{place}:argument:{_any(actions)}"


def _any(actions: Sequence[str]) -> str:
    """Return an action that completes what any of these does."""
    if len(actions) == 1:
        return actions[0]
    # The blank keeps away the options that `_arguments` puts before an action.
    return " _alternative " + " ".join(f'"each:each:{each}"' for each in actions)


def _action(words: Words) -> str:
    if words == FILES:
        return "_files"
    if words == FOLDERS:
        return "_files -/"
    return f"({' '.join(words)})" if words else " "


def _plain(description: str) -> str:
    """Return a description without the characters that part the words of `_arguments`."""
    return description.replace("\\", "").replace("[", "(").replace("]", ")").replace(":", "\\:")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
