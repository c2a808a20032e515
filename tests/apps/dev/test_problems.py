"""Errors of programs, as their authors see them."""

from __future__ import annotations

import re
from types import CodeType

import pytest

from foundation_rt.apps.dev.problems import (
    Problem,
    problem_of_exception,
    problem_of_report,
    problem_of_text,
)
from foundation_rt.errors import UsageError

pytestmark = pytest.mark.rule("DEV-10")


def code(source: str, file: str) -> CodeType:
    return compile(source, file, "exec")


def problem_of(source: str, file: str = "/work/tools.py") -> Problem:
    with pytest.raises(Exception) as caught:
        exec(code(source, file), {})
    return problem_of_exception(caught.value, ignored=(__file__,))


def test_syntax_error_has_its_own_place() -> None:
    found = problem_of("x = 1\ndef order((:\n    pass\n")
    assert (found.file, found.line, found.source) == ("/work/tools.py", 2, "def order((:")
    assert found.message.startswith("SyntaxError: ")
    assert found.traceback is not None
    assert found.sentence() == f"tools.py, line 2: {found.message}"


def test_place_is_the_innermost_frame_of_the_author() -> None:
    found = problem_of("import json\ndef read():\n    return json.loads('{')\nread()\n")
    assert found.file is not None
    assert found.file.endswith("json/decoder.py")
    with pytest.raises(ValueError, match="Expecting") as caught:
        exec(code("import json\njson.loads('{')\n", "/work/tools.py"), {})
    library = re.sub(r"decoder\.py$", "", found.file)
    own = problem_of_exception(caught.value, ignored=(library, __file__))
    assert (own.file, own.line) == ("/work/tools.py", 2)


def test_error_of_packages_alone_has_no_place() -> None:
    found = problem_of("1 / 0", "/env/lib/python3.12/site-packages/shop/tools.py")
    assert (found.file, found.line) == (None, None)
    assert found.sentence() == "ZeroDivisionError: division by zero"


def test_our_own_errors_are_sentences_without_a_type() -> None:
    assert (
        problem_of_exception(UsageError("there is no file x.py")).message == "there is no file x.py"
    )


def test_traceback_on_stderr_is_read() -> None:
    text = (
        "starting\nTraceback (most recent call last):\n"
        '  File "/work/app.py", line 7, in <module>\n    import shop\n'
        '  File "/work/shop.py", line 3, in <module>\n    1 / 0\n'
        '  File "/env/site-packages/lib.py", line 9, in f\n'
        "ZeroDivisionError: division by zero\n"
    )
    found = problem_of_text(text, "it ended")
    assert (found.file, found.line) == ("/work/shop.py", 3)
    assert found.message == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("", ""),
        ("hello\nbye\n\n", "; its last line: bye"),
        ('File "x.py", line 3', '; its last line: File "x.py", line 3'),
        ('Traceback:\n  File "<string>", line 1\nValueError: x', "; its last line: ValueError: x"),
        (
            '{"level": "error", "message": "no database", "host": "x"}\n',
            "; its last line: no database",
        ),
        ("foundation-rt: no x\n--traceback shows all of it\n", ": no x"),
        ('bye\n{"level": "info", "message": "client connected"}\n', "; its last line: bye"),
        ('{"foundationRtDev": {"pid": 3}}\n', ""),
    ],
)
def test_other_text_adds_its_last_line(text: str, last: str) -> None:
    found = problem_of_text(text, "the process ended with code 3")
    assert found.message == f"the process ended with code 3{last}"
    assert found.file is None
    assert found.traceback == (text.strip() or None)


@pytest.mark.parametrize(
    "report", [None, [], "x", {}, {"message": 3}, {"message": ["x"], "file": "x"}]
)
def test_report_that_is_none_is_no_problem(report: object) -> None:
    assert problem_of_report(report) is None


def test_report_is_bounded_and_of_the_right_types() -> None:
    report = {"message": "m" * 9_999, "file": 3, "line": True, "traceback": "t" * 99_999}
    found = problem_of_report(report)
    assert found is not None
    assert len(found.message) == 2_000
    assert (found.file, found.line) == (None, None)
    assert found.traceback is not None
    assert len(found.traceback) == 32 * 1024
