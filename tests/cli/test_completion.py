"""What `foundation-rt completion` prints, tried in the shells."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foundation_rt.cli.command_shapes import FILES, FOLDERS, SHELLS, command_shapes
from foundation_rt.cli.help_texts import GENERAL, command_descriptions, fitted, help_text
from foundation_rt.cli.main import CLIENT_COMMANDS, COMMANDS, main
from tests.support.process import PATIENCE, run
from tests.support.terminal import Terminal

Captured = pytest.CaptureFixture[str]

SHAPES = command_shapes()

# Bash parts words at `=` and `:`; the last word is the one to be completed.
CASES = {
    ("",): {*COMMANDS, *CLIENT_COMMANDS, "help"},
    ("ser",): {"serve"},
    ("--",): {"--help", "--version"},
    ("serve", "--tr"): {"--transport", "--traceback"},
    ("serve", "--transport", ""): {"stdio", "http", "both"},
    ("serve", "--transport", "=", "h"): {"http"},
    ("serve", "--transport", "="): {"stdio", "http", "both"},
    ("serve", "--http", "="): set(),
    ("serve", "--http", "127.0.0.1", ":", "80", "to"): {"tools.py"},
    ("serve", "tools.py", ":", "server", "--wor"): {"--workers"},
    ("serve", "to"): {"tools.py"},
    ("serve", "--config", "se"): {"settings.toml"},
    ("serve", "tools.py", "--", "se"): {"settings.toml"},
    ("serve", "tools.py", "to"): set(),
    ("call", "tools.py", "forecast", "city", "=", "O", "--sa"): {"--save"},
    ("call", "tools.py", "--save", "fo"): {"folder"},
    ("call", "tools.py", "--protocol", "2026"): {"2026-07-28"},
    ("gateway", "st"): {"status"},
    ("gateway", "to"): {"tools.py"},
    ("gateway", "status", "--js"): {"--json"},
    ("gateway", "accept", "--lo"): {"--lock"},
    ("gateway", "--prefix", ""): {"always", "never"},
    ("task-server", ""): {"export", "import", "migrate"},
    ("task-server", "export", "--format", "json"): {"json", "jsonl"},
    ("install", "v"): {"vscode"},
    ("install", "vscode", "to"): {"tools.py"},
    ("uninstall", "cursor", ""): set(),
    ("migrate", "a.py", "b.py", "to"): {"tools.py"},
    ("help", "task"): {"task-server"},
    ("completion", ""): {*SHELLS},
    ("nonsense", ""): set(),
}

# A function is called as `complete -F` does it, and what it offers is printed.
ASK = """
type_in() {
    COMP_WORDS=(foundation-rt "$@") COMP_CWORD=$#
    _foundation_rt
    printf '%s\\t' "${COMPREPLY[@]}"
    echo
}
[[ $(complete -p foundation-rt) == 'complete -F _foundation_rt foundation-rt' ]] || exit 9
"""


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
def test_bash_completes_commands_options_values_and_files(folder: Path, capsys: Captured) -> None:
    calls = "\n".join("type_in " + " ".join(map(repr, words)) for words in CASES)
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-u", "-c", script("bash", capsys) + ASK + calls],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    offered = [{*filter(None, line.split("\t"))} for line in done.stdout.splitlines()]
    assert dict(zip(CASES, offered, strict=True)) == CASES


@pytest.mark.rule("CLI-56")
@pytest.mark.parametrize("shell", SHELLS)
def test_script_has_every_command_option_and_value(shell: str, capsys: Captured) -> None:
    text = script(shell, capsys)
    for command in SHAPES:
        assert command.name.split()[-1] in text
        for name, option in command.options.items():
            assert (f"-l {name.removeprefix('--')} " if shell == "fish" else name) in text
            if isinstance(option.value, tuple):
                assert " ".join(option.value) in text
    assert "\t" not in text and "\x1b" not in text
    found = shutil.which(shell)  # zsh and fish are not on every machine
    if found is not None:
        parsed = subprocess.run(
            [found, "-n", "/dev/stdin"], input=text, capture_output=True, text=True, check=False
        )
        assert (parsed.returncode, parsed.stderr) == (0, "")


@pytest.mark.rule("CLI-56")
def test_options_take_files_folders_or_words_as_the_parser_says() -> None:
    shapes = {shape.name: shape for shape in SHAPES}
    assert shapes["serve"].options["--config"].value == FILES
    assert shapes["call"].options["--save"].value == FOLDERS
    assert shapes["serve"].options["--transport"].value == ("stdio", "http", "both")
    assert shapes["serve"].options["--no-auth"].value is None
    assert shapes["serve"].options["--workers"].description == "serve HTTP in N processes"


@pytest.mark.rule("CLI-55", "CLI-56")
def test_every_command_and_option_is_described() -> None:
    assert {*command_descriptions()} == {*COMMANDS, *CLIENT_COMMANDS, "help"}
    assert all(command_descriptions().values())
    bare = [
        f"{shape.name} {name}"
        for shape in SHAPES
        for name, option in shape.options.items()
        if not option.description
    ]
    assert bare == []


@pytest.mark.rule("CLI-55")
@pytest.mark.parametrize("command", [*COMMANDS, *CLIENT_COMMANDS])
def test_help_of_a_command_has_usage_examples_and_its_options(
    command: str, capsys: Captured
) -> None:
    assert main(["help", command]) == 0
    shown = capsys.readouterr()
    assert main([command, "--help"]) == 0
    assert capsys.readouterr() == shown
    assert shown.err == ""
    assert shown.out.startswith(f"usage: foundation-rt {command}")
    assert f"examples:\n  foundation-rt {command}" in shown.out or "completion" in shown.out
    assert all(len(line) <= 100 for line in shown.out.splitlines())
    [shape] = [each for each in SHAPES if each.name == command]
    own = [name for name in shape.options if name not in ("--help", "--portable")]
    if command != "check":  # `check --portable` takes those of `tools`
        assert [name for name in own if f"  {name}" not in shown.out] == []


@pytest.mark.rule("CLI-55")
@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["chek"], "there is no command 'chek' (did you mean check?)"),
        (["help", "serv"], "there is no command 'serv' (did you mean serve?)"),
        (["task"], "there is no command 'task' (did you mean task-server or ask?)"),
        (["task-server", "exprt"], "there is no command 'exprt' (did you mean export?)"),
        (["completion", "fsh"], "SHELL is bash, zsh or fish (did you mean fish or zsh"),
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


@pytest.mark.rule("CLI-55")
def test_help_of_the_program_lists_every_command_in_its_width() -> None:
    assert help_text("") == GENERAL
    assert all(len(line) <= 100 for line in GENERAL.splitlines())


@pytest.mark.rule("CLI-56")
def test_serving_imports_nothing_of_help_and_completion() -> None:
    code = (
        "import sys\n"
        "from foundation_rt.cli.main import main\n"
        "main(['serve'])\n"
        "print([name for name in sys.modules if name.startswith('foundation_rt.cli')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0
    assert not any(
        word in done.stdout for word in ("help_texts", "completion", "command_shapes", "nearest")
    )


@pytest.mark.rule("CLI-56", "CLI-30")
def test_completion_is_printed_by_the_program() -> None:
    done = run("completion", "bash")
    assert done.returncode == 0 and done.stdout.endswith(
        "complete -F _foundation_rt foundation-rt\n"
    )


@pytest.mark.rule("CLI-55", "CLI-32")
@pytest.mark.parametrize("columns", [24, 40, 60, 80])
@pytest.mark.parametrize("command", ["", *COMMANDS, *CLIENT_COMMANDS])
def test_help_at_a_terminal_ends_its_lines_between_words(command: str, columns: int) -> None:
    text = help_text(command)
    shown = fitted(text, columns)
    assert shown.split() == text.split()
    wide = [line for line in shown.splitlines() if len(line) > columns and " " in line.strip()]
    assert all("foundation-rt" in line or columns < 60 for line in wide), wide
    assert fitted(text, 100) == text


@pytest.mark.rule("CLI-55")
def test_help_at_a_terminal_fits_it(tmp_path: Path) -> None:
    with Terminal("help", "serve", cwd=tmp_path, variables={"COLUMNS": "60"}) as shown:
        assert shown.exit_code() == 0
        assert "\n  --http HOST:PORT                serve over HTTP at this\n" in shown.text
