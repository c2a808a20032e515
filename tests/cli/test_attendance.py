"""`call` with a person at the terminal: progress, log messages, questions, tables, files."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foundation_rt import Audio, Image, Text
from foundation_rt.cli import live_view
from foundation_rt.cli import run as cli_run
from foundation_rt.cli.live_view import LiveView
from foundation_rt.cli.main import main
from foundation_rt.cli.person import InputClosedError, Person
from foundation_rt.cli.questions import answer_as_model, ask_form, ask_page
from foundation_rt.client.handlers.elicitation import ElicitationUrlRequest
from foundation_rt.features.server_requests.sampling import SamplingMessage, ToolUse
from tests.lab.programs.terminal import Terminal
from tests.lab.servers.process import run
from tests.lab.waiting import until

APP = r"""
import asyncio, pathlib
from foundation_rt import Image, Sample, Server, ToolContext

server = Server("desk")
FORM = {
    "type": "object",
    "properties": {
        "name\x1b[2J": {"type": "string", "title": "Who?", "default": "Ada"},
        "size": {"type": "string", "oneOf": [
            {"const": "s", "title": "small"}, {"const": "l", "title": "large"}]},
        "days": {"type": "array", "items": {"enum": ["mon", "tue"]}, "minItems": 1},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
        "sure": {"type": "boolean"},
    },
    "required": ["size", "days"],
}

@server.tool
async def order(ctx: ToolContext) -> str:
    answer = await ctx.elicit("What\x1b]0;x\x07 is it?", FORM)
    return f"{answer.action} {answer.content}"

@server.tool(task="required")
async def bake() -> str:
    return "bread"

@server.tool
async def pay(ctx: ToolContext) -> str:
    answer = await ctx.elicit_url("Pay", "https://pay.example.com/1")
    return answer.action

@server.tool
async def translate(ctx: ToolContext) -> str:
    return (await ctx.sample("Say hello", system_prompt="Be kind", max_tokens=50)).text or ""

@server.tool
async def work(folder: str, ctx: ToolContext) -> str:
    await ctx.report_progress(1, 4, "a quarter \x1b[2J[red]")
    await ctx.log("warning", "running low \x1b[2J[red]")
    while not pathlib.Path(folder, "go").exists() and not ctx.abort_signal.aborted:
        await asyncio.sleep(0.01)
    pathlib.Path(folder, f"aborted {ctx.abort_signal.aborted}").touch()
    return "done"

@server.tool
def planets() -> list[dict]:
    return [{"planet": "Mars", "moons": 2}, {"planet": "Venus", "moons": 0}]

@server.tool
def picture() -> list:
    return [Image(b"\x89PNG", mime_type="image/png"), "a dot"]

@server.tool
def fails() -> str:
    raise ValueError("no luck")
"""


@pytest.fixture(autouse=True)
def app(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(APP)


def call(folder: Path, *words: str, **variables: str) -> Terminal:
    return Terminal("call", "tools.py", *words, cwd=folder, variables=variables)


@pytest.mark.rule("CLI-47", "CLI-52", "CLI-19")
def test_form_is_asked_field_by_field_until_its_values_are_valid(tmp_path: Path) -> None:
    with call(tmp_path, "order") as shown:
        shown.wait_for(r"What\x1b]0;x\x07 is it?")
        shown.wait_for(r"name\x1b[2J (text, default Ada) Who? > ")
        shown.type("\n")
        shown.wait_for("1 small (s)\n    2 large (l)\n  > ")
        shown.type("3\n")
        shown.wait_for("size is one of the numbers from 1 to 2")
        shown.type("2\n")
        shown.wait_for("days (several, with commas between)\n    1 mon\n    2 tue\n  > ")
        shown.type("\n")
        shown.wait_for("days is required")
        shown.type("1, tue\n")
        shown.wait_for("age (whole number, 1 to 99, may be left out) > ")
        shown.type("100\n")
        shown.wait_for("age must be at most 99")
        shown.type("old\n")
        shown.wait_for("age is a whole number")
        shown.type("7\n")
        shown.wait_for("sure (yes or no, may be left out) > ")
        shown.type("\n")
        shown.wait_for("n: decline > ")
        shown.type("y\n")
        assert shown.exit_code() == 0
        assert "'size': 'l', 'days': ['mon', 'tue'], 'age': 7}" in shown.text


@pytest.mark.rule("CLI-52")
@pytest.mark.parametrize(("typed", "action"), [("\x04", "cancel None"), ("e", None)])
def test_form_can_be_cancelled_and_edited(tmp_path: Path, typed: str, action: str | None) -> None:
    with call(tmp_path, "order") as shown:
        shown.wait_for("Who? > ")
        if action is None:
            for answer in ("", "1", "1", "", "", typed):
                shown.type(f"{answer}\n")
            shown.wait_for("n: decline > ")
            for answer in ("Bob", "1", "1", "", "", "send", "n"):
                shown.type(f"{answer}\n")
            shown.wait_for("is one of y, e, n")
        else:
            shown.type(typed)
        shown.wait_for(action or "decline None")
        assert shown.exit_code() == 0


@pytest.mark.rule("CLI-52")
@pytest.mark.parametrize(("typed", "action"), [("y\n", "accept"), ("\n", "decline")])
def test_page_is_shown_whole_with_its_host(tmp_path: Path, typed: str, action: str) -> None:
    with call(tmp_path, "pay") as shown:
        shown.wait_for("https://pay.example.com/1\n  is a page of pay.example.com.")
        shown.wait_for("n: decline > ")
        shown.type(typed)
        assert shown.exit_code() == 0
        assert shown.text.rstrip().endswith(action)


@pytest.mark.rule("CLI-53")
def test_person_answers_as_the_model_or_refuses(tmp_path: Path) -> None:
    with call(tmp_path, "translate") as shown:
        assert "system: Be kind\n  user: Say hello\n" in shown.wait_for("refuses.")
        shown.type("Hello\nyou\n\x04")
        assert shown.exit_code() == 0
        assert shown.text.endswith("Hello\nyou\n")
    with call(tmp_path, "translate") as shown:
        shown.wait_for("refuses.")
        shown.type("\x04")
        assert shown.exit_code() == 3


@contextmanager
def person_who_types(text: str) -> Iterator[Person]:
    """Yield a person at a terminal of this process, who has typed this already."""
    ours, theirs = pty.openpty()
    os.write(ours, text.encode())
    try:
        yield Person(theirs)
    finally:
        os.close(ours)
        os.close(theirs)


Captured = pytest.CaptureFixture[str]


@pytest.mark.rule("CLI-52")
@pytest.mark.parametrize(
    ("schema", "typed", "value", "shown"),
    [
        ({"type": "number", "minimum": 0}, "-1\n1.5\n", 1.5, "(number, at least 0) > "),
        ({"type": "integer", "maximum": 9}, "1.5\n3\n", 3, "(whole number, at most 9) > "),
        ({"type": "boolean"}, "maybe\nYES\n", True, "is yes or no"),
        ({"type": "boolean"}, "n\n", False, "(yes or no) > "),
        (
            {"type": "string", "enum": ["s", "l"], "enumNames": ["small", "large"]},
            "large\n",
            "l",
            "",
        ),
        ({"type": "array", "items": {"type": "string"}}, "a, b,\n", ["a", "b"], ""),
        ({"type": "array"}, "a\n", ["a"], "(several, with commas between) > "),
        ({"oneOf": 5}, "7\n", 7, "field > "),
        ({"oneOf": [{"const": "s"}, {}]}, "s\n", "s", "1 s\n  > "),
        ({}, '["a"]\n', ["a"], "field > "),
        ({}, "plain\n", "plain", "field > "),
    ],
)
async def test_any_field_of_another_server_is_read_as_its_type(
    schema: Any, typed: str, value: Any, shown: str, capsys: Captured
) -> None:
    form = {"type": "object", "properties": {"field": schema}, "required": ["field"]}
    with person_who_types(f"{typed}yes\n") as person:
        result = await ask_form(person, "desk", "Well?", form)
    assert (result.action, result.content) == ("accept", {"field": value})
    assert shown in capsys.readouterr().err


@pytest.mark.rule("CLI-52")
async def test_form_without_fields_is_agreed_to(capsys: Captured) -> None:
    with person_who_types("y\n") as person:
        result = await ask_form(person, "desk", "Delete it?", {"properties": {}})
    assert (result.action, result.content) == ("accept", {})
    assert "Enter takes a default" not in capsys.readouterr().err


@pytest.mark.rule("CLI-52")
@pytest.mark.parametrize(
    ("typed", "opens", "action", "shown"),
    [
        ("o\n", True, "accept", ""),
        ("o\n", False, "accept", "There is no browser here: open the address by hand."),
        ("\x04", True, "cancel", ""),
    ],
)
async def test_page_is_opened_for_who_wants_it(
    typed: str,
    opens: bool,
    action: str,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or opens)
    page = ElicitationUrlRequest("Pay", "https://pay.example.com/1")
    with person_who_types(typed) as person:
        assert (await ask_page(person, "desk", page)).action == action
    assert opened == ([] if action == "cancel" else [page.url])
    assert shown in capsys.readouterr().err


@pytest.mark.rule("CLI-53")
async def test_model_is_shown_what_is_no_text_by_its_kind(capsys: Captured) -> None:
    blocks = [Image(b"\x89PNG", mime_type="image/png"), Audio(b"mp3", mime_type="audio/mpeg")]
    messages = [
        SamplingMessage("user", blocks),
        SamplingMessage("assistant", ToolUse("1", "echo", {})),
    ]
    request: Any = SimpleNamespace(max_tokens=9, system_prompt=None, messages=messages)
    with person_who_types("Hello\n\x04") as person:
        result = await answer_as_model(person, "desk", request)
    assert result is not None and result.content == (Text("Hello"),)
    said = capsys.readouterr().err
    assert "system:" not in said
    assert (
        "  user: [image/png, 4 bytes]\n    [audio/mpeg, 3 bytes]\n  assistant: [ToolUse]\n" in said
    )


@pytest.mark.rule("CLI-47")
async def test_answer_to_a_question_that_was_given_up_is_the_next_ones(capsys: Captured) -> None:
    ours, theirs = pty.openpty()
    person = Person(theirs)
    given_up = asyncio.ensure_future(person.ask("first? "))
    await until(lambda: "first? " in capsys.readouterr().err, "the person is asked")
    given_up.cancel()
    await asyncio.wait([given_up])
    second = asyncio.ensure_future(person.ask("second? "))
    await until(lambda: "second? " in capsys.readouterr().err, "the person is asked again")
    os.write(ours, b"yes\n")
    assert await second == "yes"
    os.close(ours)  # the terminal is gone
    with pytest.raises(InputClosedError):
        await person.ask("third? ")
    os.close(theirs)
    assert await person.read_line("fourth? ") is None


@pytest.mark.rule("CLI-47")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_without_a_person_nothing_is_asked(tmp_path: Path, more: tuple[str, ...]) -> None:
    done = run("call", "tools.py", "order", *more, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "nobody is there" in done.stderr or "E205" in done.stderr


@pytest.mark.rule("CLI-47")
def test_tool_that_runs_as_a_task_alone_does_not_count_as_a_question(tmp_path: Path) -> None:
    done = run("call", "tools.py", "bake", cwd=tmp_path)
    assert done.returncode == 3
    assert "needs an extension of the protocol, such as tasks" in done.stderr
    assert "nobody is there" not in done.stderr


@pytest.mark.rule("CLI-48")
@pytest.mark.parametrize("lacks", ["escapes", "rich"])
async def test_without_a_bar_progress_is_a_line_now_and_then(
    lacks: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("TERM", "dumb" if lacks == "escapes" else "xterm")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    now = [100.0]
    monkeypatch.setattr(live_view, "monotonic", lambda: now[0])
    view = LiveView("work")
    for now[0], done in ((100.0, 0), (100.4, 1), (100.6, 2), (100.7, 3), (100.7, 4), (101.0, 4)):
        view.progress(done, 4, "page")
        view.pause()  # as before a question
    lines = ["work ...", "  0 %  page", " 50 %  page", "100 %  page"]
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.rule("CLI-48", "CLI-19")
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_progress_and_log_messages_are_shown_while_a_call_runs(tmp_path: Path, term: str) -> None:
    with call(tmp_path, "work", f"folder={tmp_path}", TERM=term, NO_COLOR="1") as shown:
        shown.wait_for(r"a quarter \x1b[2J[red]")
        shown.wait_for("25%" if term != "dumb" else "25 %")
        shown.wait_for(r"running low \x1b[2J[red]")
        (tmp_path / "go").touch()
        assert shown.exit_code() == 0
        assert shown.text.rstrip().endswith("done")
        assert "tool call completed" not in shown.text


@pytest.mark.rule("CLI-54", "CLI-31")
def test_ctrl_c_cancels_the_call(tmp_path: Path) -> None:
    server = f"{sys.executable} -m foundation_rt serve tools.py"
    with Terminal("call", server, "work", f"folder={tmp_path}", cwd=tmp_path) as shown:
        shown.wait_for("a quarter")
        shown.signal(signal.SIGINT)
        assert shown.exit_code() == 130
    assert (tmp_path / "aborted True").exists()


@pytest.mark.rule("CLI-49")
def test_records_are_a_table_at_a_terminal_only(tmp_path: Path) -> None:
    with call(tmp_path, "planets") as shown:
        assert shown.exit_code() == 0
        assert [line.split() for line in shown.text.splitlines()[-3:]] == [
            ["planet", "moons"],
            ["Mars", "2"],
            ["Venus", "0"],
        ]
    assert run("call", "tools.py", "planets", cwd=tmp_path).stdout.startswith("[\n  {")


@pytest.mark.rule("CLI-51")
def test_bytes_of_a_result_are_saved_to_new_files(tmp_path: Path) -> None:
    for number in (1, 2):
        done = run("call", "tools.py", "picture", "--save", "out", cwd=tmp_path)
        assert done.stdout == f"out/picture-{number}.png (image/png, 4 bytes)\na dot\n"
        assert (tmp_path / "out" / f"picture-{number}.png").read_bytes() == b"\x89PNG"
    assert run("tools", "tools.py", "--save", "out", cwd=tmp_path).returncode == 2
    done = run("call", "tools.py", "picture", "--save", "tools.py", cwd=tmp_path)
    assert (done.returncode, "tools.py cannot be written: File exists" in done.stderr) == (2, True)


@pytest.mark.rule("CLI-51")
def test_folder_that_has_too_many_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_run, "_MAX_FILES", 2)
    words = ["call", "tools.py", "picture", "--save", "out"]
    assert [main(words), main(words)] == [0, 2]
    assert "out has 1 files picture-N.png: empty it" in capsys.readouterr().err


@pytest.mark.rule("CLI-48", "CLI-50")
def test_exception_of_a_tool_is_shown_with_its_line(tmp_path: Path) -> None:
    with call(tmp_path, "fails") as shown:
        assert shown.exit_code() == 1
        assert "ValueError: no luck" in shown.text
        assert 'raise ValueError("no luck")' in shown.text
        assert "executor.py" not in shown.text
