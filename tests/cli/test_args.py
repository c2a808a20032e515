"""Telling options from arguments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.cli.args import Argument, CliCommand, CommandLine, CommandLineError, Option

OPTIONS = (
    Option("--timeout", "wait so long", "S"),
    Option("--header", "send this header", "'NAME: VALUE'"),
    Option("--shape", "round or square", "SHAPE", ("round", "square")),
    Option("--times", "do it so often", "N", range(1, 4)),
    Option("--json", "print JSON"),
)
ANY = Argument("WORD", "a word", count="*")


def parse(words: list[str], *arguments: Argument, takes_program: bool = False) -> CommandLine:
    options = {"options": OPTIONS}
    command = CliCommand("do", "", None, arguments, options, takes_program=takes_program)
    return command.parse(words)


@pytest.mark.rule("CLI-06", "CLI-22")
@pytest.mark.parametrize(
    ("words", "positional", "options"),
    [
        ([], [], {}),
        (["a", "b=c"], ["a", "b=c"], {}),
        (["--timeout", "5", "a"], ["a"], {"--timeout": ["5"]}),
        (["a", "--timeout=5"], ["a"], {"--timeout": ["5"]}),
        (["--timeout", "-5"], [], {"--timeout": ["-5"]}),
        (["--timeout="], [], {"--timeout": [""]}),
        (["--header", "a: b=c", "--header=d: e"], [], {"--header": ["a: b=c", "d: e"]}),
        (["--json", "a", "--json"], ["a"], {"--json": [""]}),
        (["a", "--", "--json", "-x"], ["a", "--json", "-x"], {}),
    ],
)
def test_options_stand_anywhere(
    words: list[str], positional: list[str], options: dict[str, list[str]]
) -> None:
    line = parse(words, ANY)
    assert line.positional == positional
    assert line.options == options


@pytest.mark.rule("CLI-22")
def test_the_last_value_of_an_option_counts() -> None:
    line = parse(["--timeout", "1", "--timeout", "2"])
    assert line.option("--timeout") == "2"
    assert parse(["--times=3"]).number("--times") == 3
    assert line.option("--header") is None


@pytest.mark.rule("CLI-06")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--timeout"], "--timeout needs S"),
        (["--conquer"], "no option '--conquer'"),
        (["-x"], "no option '-x'"),
        (["--json=yes"], "--json takes no value"),
        (["--shape", "flat"], "--shape is round or square"),
        (["--times", "0"], "--times is a number from 1 to 3"),
        (["--times", "9" * 5000], "--times is a number from 1 to 3"),
        (["a", "b", "c"], "'c' is one argument too many"),
        ([], "do needs FIRST"),
    ],
)
def test_wrong_command_line_is_named(words: list[str], message: str) -> None:
    with pytest.raises(CommandLineError, match=message):
        parse(words, Argument("FIRST", ""), Argument("SECOND", "", count="?"))


@pytest.mark.rule("CLI-06")
@given(st.lists(st.text(max_size=10), max_size=5))
def test_after_two_dashes_everything_is_an_argument(words: list[str]) -> None:
    assert parse(["--", *words], ANY).positional == words


@pytest.mark.rule("CLI-38")
@given(st.lists(st.text(max_size=10), max_size=5))
def test_after_two_dashes_everything_is_for_the_program(words: list[str]) -> None:
    line = parse(["a", "--json", "--", *words], ANY, takes_program=True)
    assert (line.positional, [*line.options], line.program) == (["a"], ["--json"], words)
    assert parse(["a"], ANY, takes_program=True).program is None
