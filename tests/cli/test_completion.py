"""The help of commands, and what `foundation-rt completion` prints, tried in the shells."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation_rt.cli.args import FILES, FOLDERS, CliCommand
from foundation_rt.cli.command_table import MODULES, load
from foundation_rt.cli.help import help_text
from foundation_rt.cli.main import main
from tests.lab.programs.program import run_source
from tests.lab.programs.terminal import Terminal

Captured = pytest.CaptureFixture[str]

# How each shell is started, and how it reads the script and prints what it would run.
SHELLS = {
    "bash": (
        ("bash", "--noprofile", "--norc", "-i"),
        "bind 'set bell-style none'; foundation-rt() {{ echo '<'\"$*\"'>'; }}; source {}",
    ),
    "zsh": (
        ("zsh", "-f", "-i"),
        "unsetopt beep; autoload -Uz compinit; compinit -u -D;"
        " function foundation-rt {{ print -r -- '<'\"$*\"'>' }}; source {}",
    ),
    "fish": (
        ("fish", "--no-config", "-i", "-C", "function fish_prompt; echo 'ready> '; end"),
        "function foundation-rt; echo '<'\"$argv\"'>'; end; source {}",
    ),
}

# Opened by the leader of a session, the terminal becomes the one that controls it.
CONTROLLED = ("sh", "-c", 'exec 0<>"$(tty)"; exec "$@"', "sh")

# What is typed, and what it becomes.
CASES = {
    "ser\t": "serve",
    "serve --transp\th\t": "serve --transport http",
    "serve --transport=h\t": "serve --transport=http",
    "serve --config se\t": "serve --config settings.toml",
    "serve --config=se\t": "serve --config=settings.toml",
    "serve to\t": "serve tools.py",
    "serve --http 127.0.0.1:80 to\t": "serve --http 127.0.0.1:80 tools.py",
    "serve tools.py:server --wor\t2": "serve tools.py:server --workers 2",
    "call tools.py forecast city=O --sa\tfo\t": "call tools.py forecast city=O --save folder",
    "call tools.py --protocol 2026\t": "call tools.py --protocol 2026-07-28",
    "check --port\t to\t": "check --portable tools.py",
    "gateway st\t": "gateway status",
    "gateway to\t": "gateway tools.py",
    "gateway accept --loc\tx": "gateway accept --lock x",
    "gateway --prefix al\t": "gateway --prefix always",
    "task-server expo\t - --form\tcsv\t": "task-server export - --format csv",
    "agents list --stat\tCL\t": "agents list --state CLAIMED",
    "install vs\t to\t": "install vscode tools.py",
    "migrate to\t": "migrate tools.py",
    "help tas\t": "help task-server",
    "completion fi\t": "completion fish",
}


def every_command() -> Iterator[CliCommand]:
    for name in MODULES:
        command = load(name)
        yield command
        yield from command.within


COMMANDS = {each.name: each for each in every_command()}


def script(shell: str, capsys: Captured) -> str:
    assert main(["completion", shell]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("tools.py", "settings.toml"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.rule("CLI-56")
@pytest.mark.parametrize("shell", SHELLS)
def test_shell_completes_commands_options_values_and_files(
    shell: str, folder: Path, capsys: Captured
) -> None:
    program, setup = SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine")
    (folder / ".script").write_text(script(shell, capsys))
    terminal = "xterm" if shell == "fish" else "dumb"
    variables = {"PS1": "ready> ", "HOME": str(folder), "TERM": terminal}
    with Terminal(*program, cwd=folder, program=CONTROLLED, variables=variables) as shown:
        shown.wait_for("ready> ")
        shown.type(f"{setup.format('.script')}\n")
        completed = {}
        for at, typed in enumerate(CASES):
            # Quotes, so that the echo of what is typed is not what is waited for.
            shown.type(f"foundation-rt {typed}\necho DO''NE-{at}-\n")
            text = shown.wait_for(f"DONE-{at}-")
            found = re.findall(r"<([a-z].*)>", text)[-1]
            # zsh writes `=` between an option and its value.
            completed[typed] = re.sub(r"(--[a-z]+)=", r"\1 ", found).rstrip(" /").split()
    expected = {typed: re.sub(r"(--[a-z]+)=", r"\1 ", text) for typed, text in CASES.items()}
    assert completed == {typed: text.split() for typed, text in expected.items()}


@pytest.mark.rule("CLI-56")
@pytest.mark.parametrize("shell", [*SHELLS, "powershell"])
def test_script_has_every_command_option_and_value(shell: str, capsys: Captured) -> None:
    text = script(shell, capsys)
    between = "', '" if shell == "powershell" else " "
    for command in COMMANDS.values():
        assert command.name.split()[-1].strip("-") in text
        for option in command.every_option().values():
            assert (f"-l {option.name[2:]} " if shell == "fish" else option.name) in text
            if isinstance(option.words, tuple):
                assert between.join(option.words) in text
    assert "\x1b" not in text


@pytest.mark.rule("CLI-56", "ERR-11")
def test_completion_without_its_extra_is_refused(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "foundation-rt[cli]" in err


@pytest.mark.rule("CLI-56")
def test_options_take_files_folders_or_words() -> None:
    serve = COMMANDS["serve"].every_option()
    assert serve["--config"].words == FILES
    assert COMMANDS["call"].every_option()["--save"].words == FOLDERS
    assert serve["--transport"].words == ("stdio", "http", "both")
    assert serve["--no-auth"].value == ""


@pytest.mark.rule("CLI-55", "CLI-56")
@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_declared_by_its_name_and_described(name: str) -> None:
    command = COMMANDS[name]
    assert all(each.name.startswith(f"{name} ") for each in command.within)
    assert command.run is not None or command.within
    described = [command.summary, *(each.help for each in command.arguments)]
    described += [each.help for each in command.every_option().values()]
    assert all(each and not each.endswith(".") for each in described)


@pytest.mark.rule("CLI-55")
@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_usage_examples_and_its_options(name: str, capsys: Captured) -> None:
    words = name.split()
    assert main(["help", *words]) == 0
    shown = capsys.readouterr()
    assert main([*words, "--help"]) == 0
    assert capsys.readouterr() == shown
    assert shown.err == ""
    assert shown.out.startswith(f"usage: foundation-rt {name}")
    if len(words) == 1:
        assert "examples:\n  " in shown.out
    assert all(len(line) <= 100 for line in shown.out.splitlines())
    assert [each for each in COMMANDS[name].every_option() if f"  {each}" not in shown.out] == []


@pytest.mark.rule("CLI-55")
@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["chek"], "there is no command 'chek' (did you mean check?)"),
        (["help", "serv"], "there is no command 'serv' (did you mean serve?)"),
        (["task"], "there is no command 'task' (did you mean task-server or ask?)"),
        (["task-server", "exprt"], "there is no command 'exprt' (did you mean export?)"),
        (["completion", "fsh"], "SHELL is bash, zsh, fish or powershell (did you mean fish or zsh"),
        (["serve", "--confg", "x"], "there is no option '--confg' (did you mean --config?)"),
        (["call", "--tiemeout=hush"], "there is no option '--tiemeout' (did you mean --timeout?)"),
        (["dev", "--prot", "1"], "there is no option '--prot' (did you mean --port?)"),
        (["x" * 100_000], "there is no command 'xxxxxx"),
    ],
)
def test_mistyped_names_are_refused_with_the_nearest_ones(
    words: list[str], near: str, capsys: Captured
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert near in err and "--help" in err
    assert len(err) < 300 and "hush" not in err


@pytest.mark.rule("CLI-56")
def test_serving_imports_nothing_of_help_and_completion() -> None:
    code = (
        "import sys\n"
        "from foundation_rt.cli.main import main\n"
        "main(['serve'])\n"
        "print(sorted(sys.modules))\n"
    )
    done = run_source(code)
    assert not any(
        f"'{name}'" in done.stdout
        for name in (
            "argparse",
            "shtab",
            "foundation_rt.cli.help",
            "foundation_rt.cli.completion",
            "foundation_rt.cli.command_table",
        )
    )


@pytest.mark.rule("CLI-55", "CLI-32")
@pytest.mark.parametrize("columns", [24, 40, 60, 80])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_at_a_terminal_ends_its_lines_between_words(name: str, columns: int) -> None:
    command = COMMANDS.get(name)
    shown = help_text(command, columns)
    assert shown.split() == help_text(command).split()
    wide = [line for line in shown.splitlines() if len(line) > columns and " " in line.strip()]
    assert all(columns < (80 if "foundation-rt" in line else 60) for line in wide), wide


@pytest.mark.rule("CLI-55")
def test_help_at_a_terminal_fits_it(tmp_path: Path) -> None:
    with Terminal("help", "serve", cwd=tmp_path, variables={"COLUMNS": "60"}) as shown:
        assert shown.exit_code() == 0
        assert "\n  --http HOST:PORT       serve over HTTP at this address or\n" in shown.text
