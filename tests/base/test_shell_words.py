"""Command lines that messages show: a shell takes them as the words that they were made of."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base import shell_words

WORDS = [
    *("plain", "", "a b", 'a"b', "a\\", "a b\\", '\\"', "foundation-rt[http]", "a&b", "a|b<c>d"),
    *("city=Oslo", "https://host/mcp?a=1&b=2", r"C:\Program Files\x", "(a)", "a^b", "é", "--a=b"),
]
SHOW = "import json, sys; print(json.dumps(sys.argv[1:]))"


def of_windows(words: list[str]) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell_words, "_is_windows", True)
        return shell_words.join(words)


@pytest.mark.rule("WIN-50")
@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX")
@given(st.lists(st.text(st.characters(exclude_characters="\0")), min_size=1))
def test_a_shell_takes_each_word_as_it_is(words: list[str]) -> None:
    assert shlex.split(shell_words.join(words)) == words


@pytest.mark.rule("WIN-50")
@pytest.mark.skipif(sys.platform != "win32", reason="cmd.exe")
def test_cmd_exe_takes_each_word_as_it_is() -> None:
    line = shell_words.join([sys.executable, "-c", SHOW, *WORDS])
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == WORDS


@pytest.mark.rule("WIN-50")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([r"C:\Python\python.exe", "-m", "pip", "x[http]"], r"C:\Python\python.exe -m pip x[http]"),
        ([r"C:\a b\python.exe", ""], r'"C:\a b\python.exe" ""'),
        (['{"a":1}', "a\\ \\"], r'"{\"a\":1}" "a\ \\"'),
        (["https://host/?a=1&b=2"], '"https://host/?a=1&b=2"'),
    ],
)
def test_words_of_windows_are_in_double_quotes(words: list[str], line: str) -> None:
    assert of_windows(words) == line
