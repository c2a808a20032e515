"""What a child writes to stderr: lines, the end, an excerpt for messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.transports import stderr_tail
from foundation_rt.client.transports.stderr_tail import EXCERPT_BYTES, KEPT_BYTES, StderrTail


@pytest.mark.rule("CHILD-08")
@given(st.lists(st.binary(max_size=50)))
def test_however_it_is_cut_the_lines_and_the_end_are_the_same(chunks: list[bytes]) -> None:
    whole, cut = StderrTail(), StderrTail()
    lines = [line for chunk in chunks for line in cut.feed(chunk)] + cut.end()
    assert lines == whole.feed(b"".join(chunks)) + whole.end()
    assert cut.text == whole.text == b"".join(chunks).decode(errors="replace")


@pytest.mark.rule("CHILD-08")
@given(st.lists(st.binary(max_size=10).map(lambda each: each * 20_000), max_size=10))
def test_the_last_64_kib_are_kept(chunks: list[bytes]) -> None:
    words = StderrTail()
    for chunk in chunks:
        words.feed(chunk)
        assert len(words._kept) <= 2 * KEPT_BYTES
    assert words.text == b"".join(chunks)[-KEPT_BYTES:].decode(errors="replace")


@pytest.mark.rule("CHILD-08")
@given(st.binary())
def test_an_excerpt_has_no_control_characters(data: bytes) -> None:
    words = StderrTail()
    words.feed(data)
    excerpt = words.excerpt()
    controls = {*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F)} - {*b"\n\t"}
    assert not controls & {*map(ord, excerpt)}


@pytest.mark.rule("CHILD-08")
@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"", ""),
        (b"  \n\n", ""),
        (b"one\ntwo\n", "one\ntwo"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;a title\x07text", "text"),
        (b"a\rb\x00c\x9b2J", "a\ufffdb\ufffdc\ufffd2J"),
        ("right-to-left \u202e and \u2028 lines".encode(), "right-to-left \ufffd and \ufffd lines"),
        (b"first\n" + b"x" * EXCERPT_BYTES, "x" * EXCERPT_BYTES),
        (b"y" * EXCERPT_BYTES + b"\nlast lines\nare whole\n", "last lines\nare whole"),
    ],
)
def test_an_excerpt_is_the_last_lines(written: bytes, shown: str) -> None:
    words = StderrTail()
    words.feed(written)
    assert words.excerpt() == shown


@pytest.mark.rule("CHILD-08")
def test_line_without_end_is_reported_and_not_kept() -> None:
    words = StderrTail()
    for _ in range(100):
        assert words.feed(b"z" * 10_000) == []
    assert words.feed(b"\nnext\n") == [f"[a line of more than {KEPT_BYTES} bytes]", "next"]


@pytest.mark.rule("WIN-35")
def test_lines_that_are_not_utf_8_are_in_the_code_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stderr_tail, "_CODE_PAGE", "cp850")
    tail = StderrTail()
    assert tail.feed("é\n".encode() + b"caf\x82\n") == ["é", "café"]
    assert tail.text == "é\ncafé\n"
    assert tail.excerpt() == "é\ncafé"
