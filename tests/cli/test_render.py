"""Pages as text: plain and coloured, for terminals and for programs."""

from __future__ import annotations

import io
import re
import sys
import unicodedata
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.cli.render import (
    Heading,
    Json,
    Output,
    Page,
    Paragraph,
    Payload,
    Table,
    render,
)


@pytest.fixture(autouse=True, scope="module")
def _at_a_terminal() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm-256color")
        yield


STYLE = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "a\x1b]0;b\x07\r\u202e\x9b2J"

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ROWS = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(TEXT, min_size=width, max_size=width), max_size=3)
)
PAGES = st.lists(
    st.builds(Heading, TEXT, TEXT)
    | st.builds(Paragraph, TEXT)
    | st.builds(Table, ROWS)
    | st.builds(Json, st.dictionaries(TEXT, TEXT, max_size=2))
    | st.builds(Payload, TEXT | st.binary(max_size=8)),
    max_size=4,
)


class Stream(io.TextIOWrapper):
    """A stream whose bytes can be looked at, and which may say that it is a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(), "ascii")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def written(self) -> bytes:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue()


def shown(page: Page, data: Any = None, *, terminal: bool = False, as_json: bool = False) -> bytes:
    out, err = Stream(terminal), Stream(terminal)
    Output(out, err, as_json).result(data, page)
    assert err.written == b""
    return out.written


# -- parts


@pytest.mark.rule("CLI-32")
def test_plain_text_is_aligned() -> None:
    page = [
        Heading("TOOLS", "2"),
        Table([("a", "first", ""), ("long name", "x", "last")]),
        Heading("NEXT"),
        Paragraph("one\ntwo"),
        Json({"a": [1]}),
        Payload("text"),
        Payload(b"123", "image/png"),
        Table([]),
    ]
    assert render(page) == (
        "TOOLS  2\n"
        "a          first\n"
        "long name  x      last\n"
        "\n"
        "NEXT\n"
        "one\n"
        "two\n"
        '{\n  "a": [\n    1\n  ]\n}\n'
        "text\n"
        "[image/png, 3 bytes]\n"
    )


@pytest.mark.rule("CLI-32")
def test_one_long_name_does_not_pad_the_others() -> None:
    rows = [("x" * 10_000, "a"), ("y", "b")]
    assert max(map(len, render([Table(rows)]).splitlines()[1:])) < 100


@pytest.mark.rule("CLI-19", "CLI-32")
@given(PAGES, st.integers(20, 120))
def test_any_text_of_a_server_is_printable(page: Page, width: int) -> None:
    plain, coloured = render(page), render(page, columns=width)
    for text in (plain, STYLE.sub("", coloured)):
        controls = {each for each in text if unicodedata.category(each) == "Cc"}
        assert controls <= {"\n", "\t"}
        assert not set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b")


@pytest.mark.rule("CLI-19")
@pytest.mark.parametrize(
    "part", [Heading(HOSTILE, HOSTILE), Paragraph(HOSTILE), Table([(HOSTILE,)]), Payload(HOSTILE)]
)
def test_every_part_is_made_printable(part: Any) -> None:
    escaped = "a\\x1b]0;b\\x07\\r\\u202e\\x9b2J"
    assert escaped in render([part])
    assert escaped in STYLE.sub("", render([part], columns=200))


@pytest.mark.rule("CLI-19", "CLI-32")
def test_colours_are_ours_and_never_the_servers() -> None:
    page = [Heading("[red]name[/red]", ":smile:"), Table([("[bold]x", "y")]), Json({"a": 1})]
    text = render(page, columns=80)
    assert STYLE.search(text)
    plain = STYLE.sub("", text)
    assert "[red]name[/red]  :smile:" in plain
    assert "[bold]x  y" in plain


@pytest.mark.rule("CLI-32")
def test_long_cells_are_folded_within_their_column() -> None:
    lines = STYLE.sub("", render([Table([("name", "word " * 30)])], columns=40)).splitlines()
    assert len(lines) > 3
    assert all(len(line) <= 40 for line in lines)
    assert all(line.startswith("      word") for line in lines[1:])


@pytest.mark.rule("CLI-32")
def test_very_long_part_is_written_without_styles() -> None:
    page = [Json(["x" * 200_000]), Paragraph("y" * 200_000), Table([("z" * 200_000,)])]
    assert render(page, columns=80) == render(page)


@pytest.mark.rule("CLI-32")
def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    codes = STYLE.findall(render([Json({"a": "b", "c": 1}), Table([("x", "y")])], columns=80))
    assert not [code for code in codes if re.search(r"[34][0-9]", code)]


@pytest.mark.rule("CLI-32")
def test_dumb_terminal_gets_no_escape_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in render([Heading("a"), Json({"a": "b"}), Table([("x", "y")])], columns=80)


# -- where they go


@pytest.mark.rule("CLI-33")
@pytest.mark.parametrize(
    ("page", "written"),
    [
        ([Payload('{"a":1}')], b'{"a":1}\n'),
        ([Payload("a\x1b[0m\n")], b"a\x1b[0m\n"),
        ([Payload("å")], "å\n".encode()),
        ([Payload(b"\x00\xff", "image/png")], b"\x00\xff"),
        ([Payload(b"\x00\xff"), Payload("a")], b"[bytes, 2 bytes]\na\n"),
        ([Heading("user"), Payload("a")], b"user\na\n"),
        ([], b""),
    ],
)
def test_a_program_gets_payloads_as_they_are(page: Page, written: bytes) -> None:
    assert shown(page) == written


@pytest.mark.rule("CLI-19", "CLI-32")
def test_a_terminal_gets_payloads_made_readable() -> None:
    def text(page: Page) -> str:
        return STYLE.sub("", shown(page, terminal=True).decode())

    assert text([Payload('{"a":1}')]) == '{\n  "a": 1\n}\n'
    assert text([Payload("[not json")]) == "[not json\n"
    assert text([Payload("a\x1b[0m")]) == "a\\x1b[0m\n"
    assert text([Payload(b"\x00\xff", "image/png")]) == "[image/png, 2 bytes]\n"


@pytest.mark.rule("CLI-32")
def test_without_rich_a_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert shown([Heading("a", "b"), Payload("[1]")], terminal=True) == b"a  b\n[\n  1\n]\n"


@pytest.mark.rule("CLI-19", "CLI-21", "CLI-32")
@pytest.mark.parametrize("terminal", [False, True])
def test_json_is_one_value_fit_for_a_terminal(terminal: bool) -> None:
    data = {"a": HOSTILE, "b": "å\U000e0041"}
    written = shown([Paragraph("x")], data, terminal=terminal, as_json=True)
    assert orjson.loads(written) == data
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\U000e0041]", written.decode())


@pytest.mark.rule("CLI-19", "CLI-21")
def test_errors_go_to_the_other_stream() -> None:
    for as_json in (False, True):
        out, err = Stream(False), Stream(False)
        output = Output(out, err, as_json)
        output.warning(f"w{HOSTILE}")
        output.error({"code": "E201", "message": HOSTILE}, f"E201 {HOSTILE}")
        assert out.written == b""
        if as_json:
            assert err.written.count(b"\n") == 1
            assert orjson.loads(err.written) == {"code": "E201", "message": HOSTILE}
        else:
            first, second = err.written.decode().splitlines()
            assert first.startswith("foundation-rt: warning: wa\\x1b]0;b")
            assert second.startswith("foundation-rt: E201 a\\x1b]0;b")


@pytest.mark.rule("CLI-32")
@pytest.mark.parametrize("columns", [20, 40, 80])
def test_terminal_gets_lines_that_end_between_words(columns: int) -> None:
    text = "A sentence of several words.\n  indented, and of several words as well\n\n" + "x" * 90
    shown = render([Paragraph(text)], columns=columns)
    assert shown.split() == text.split()
    assert all(len(line) <= columns for line in shown.splitlines() if "x" * 90 not in line)
    assert all(line.startswith("  ") for line in shown.splitlines()[4:5] if columns == 20)
    assert render([Paragraph(text)]) == f"{text}\n"
    assert render([Payload(text)], columns=columns) == f"{text}\n"  # what was asked for


@pytest.mark.rule("CLI-32")
def test_heads_of_columns_are_broken_between_words_only() -> None:
    rows = [("NAME", "FAILED", "P50 MS", "P95 MS"), ("a" * 40, "1", "2", "3")]
    shown = render([Table(rows, has_head=True)], columns=30)
    assert "FAILED" in shown


@pytest.mark.rule("CLI-20")
@pytest.mark.parametrize(("as_json", "written"), [(False, b"half of it\n"), (True, b"")])
def test_note_is_for_people(as_json: bool, written: bytes) -> None:
    err = Stream(is_terminal=False)
    Output(None, err, as_json).note("half of it")
    assert err.written == written
