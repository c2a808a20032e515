"""The place of the tests on Windows, seen from outside of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.windows import __main__ as command
from tests.windows import place
from tests.windows.chosen import NEEDS, SAMPLES, TESTS, need_of

ROOT = Path(__file__).parents[2]


@pytest.mark.rule("WIN-01")
def test_without_a_place_nothing_runs_and_the_reason_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise place.NotMade("install Wine")

    monkeypatch.setattr(place, "make", refuse)
    assert command.main([]) == 0
    assert capsys.readouterr().out == "Windows: not run: install Wine\n"


@pytest.mark.rule("WIN-01")
@pytest.mark.parametrize("test", sorted({*TESTS, *NEEDS, *SAMPLES}))
def test_what_is_chosen_or_left_out_is_there(test: str) -> None:
    file, *names = test.split("::")
    assert (ROOT / file).exists()
    assert all(
        f"def {each.partition('[')[0]}" in (ROOT / file).read_text("utf-8") for each in names
    )


@pytest.mark.rule("WIN-01")
def test_longest_beginning_tells_the_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDS, "tests/x", "a")
    monkeypatch.setitem(NEEDS, "tests/x/test_y.py::test_z", "b")
    assert need_of("tests/x/test_y.py") == "a"
    assert need_of("tests/x/test_y.py::test_z") == "b"
    assert need_of("tests/xy") is None
