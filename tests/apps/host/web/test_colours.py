"""Syntax colours: what the host says of a text, and when it says nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.web import aids
from foundation_rt.apps.host.web.aids import MAX_COLOURED, Colours
from foundation_rt.apps.web_page.requests import PageRequestError
from tests.lab.host.server import hosting


def units(text: str) -> int:
    """Return the length of a text as browsers count it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@pytest.mark.rule("HOST-63")
async def test_pieces_of_code_have_their_kind() -> None:
    asked = {"language": "python", "code": "def f():\r\n    return '\U0001f600'  # 1"}
    async with hosting() as one:
        path, body = "/api/colours", orjson.dumps(asked)
        status, _, answer = await one.request("POST", path, body=body)
        spans = orjson.loads(answer)["spans"]
        assert status == 200
        assert spans[:3] == [[3, "keyword"], [1, ""], [1, "name"]]
        assert spans[-3:] == [[4, "string"], [2, ""], [3, "comment"]]
        for wrong in (b"", b"[]", b"{}", b"{" * 9, b'{"code": 1}', b" " * 300_000):
            assert (await one.request("POST", path, body=wrong))[0] in (400, 413)
        assert (await one.request("GET", path))[0] == 405


@pytest.mark.rule("HOST-63")
async def test_a_principal_has_a_few_texts_at_once() -> None:
    body = orjson.dumps({"language": "python", "code": "1"})
    async with hosting() as one:
        going = asyncio.Event()
        asked = 0

        async def slow(*_: str) -> None:
            nonlocal asked
            asked += 1
            if asked == MAX_COLOURED:
                refused.append((await one.request("POST", "/api/colours", body=body))[0])
                going.set()
            await going.wait()

        refused: list[int] = []
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(Colours, "spans", lambda _, *words: slow(*words))
            each = (one.request("POST", "/api/colours", body=body) for _ in range(MAX_COLOURED))
            taken = [status for status, _, _ in await asyncio.gather(*each)]
        assert (taken, refused) == ([200] * MAX_COLOURED, [429])


LANGUAGES = st.sampled_from(["python", "js", "html", "bash", "json", "diff", "c", "markdown"])
CODE = st.lists(st.sampled_from([*"\r\n\t\"'<>{}()/*#-=\\`$", "if ", "a", "/*", "\U0001f600"]))


@pytest.mark.rule("HOST-63")
def test_spans_are_the_whole_text() -> None:
    with asyncio.Runner() as runner:
        one = Colours()

        @given(LANGUAGES, CODE.map("".join) | st.text())
        def whole(language: str, code: str) -> None:
            spans = runner.run(one.spans(language, code))
            assert spans is not None
            assert sum(length for length, _ in spans) == units(code)
            assert all(length > 0 for length, _ in spans)

        try:
            whole()
        finally:
            runner.run(one.close())


@pytest.mark.rule("HOST-63")
def test_process_answers_line_by_line_until_its_input_ends() -> None:
    asked = [["python", "def f(): '\U0001f600'"], ["no-such", "x"], ["python", "1 a " * 3_000]]
    lines = b"".join(orjson.dumps(each) + b"\n" for each in asked)
    words = [sys.executable, "-I", str(aids._WORKER)]
    done = subprocess.run(words, input=lines, capture_output=True, timeout=60, check=True)
    ready, spans, *plain = [orjson.loads(each) for each in done.stdout.splitlines()]
    assert (ready, plain) == (None, [None, None])
    assert spans[0] == [3, "keyword"]
    assert sum(length for length, _ in spans) >= units(asked[0][1])


@pytest.mark.rule("HOST-63")
async def test_what_is_too_much_stays_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Colours()
    try:
        assert await one.spans("no-such-language", "x") is None
        assert await one.spans("python", "x" * 32_769) is None
        assert await one.spans("python", "1 a " * 3_000) is None
        assert await one.spans("python", "1") == [[1, "number"]]
        asked = (one.spans("python", "1") for _ in range(40))
        many = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(each, PageRequestError) for each in many) == 8
        monkeypatch.setattr(aids, "find_spec", lambda _: None)
        assert await one.spans("python", "1") is None
    finally:
        await one.close()


@pytest.mark.rule("HOST-63")
@pytest.mark.parametrize("rest", ["while True: pass", "print('no JSON'); input()", ""])
async def test_a_process_that_does_not_answer_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rest: str
) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(f"print('null', flush=True)\ninput()\n{rest}\n")
    one = Colours()
    try:
        with monkeypatch.context() as changed:
            changed.setattr(aids, "_WORKER", slow)
            assert await one.spans("python", "1") is None
        assert await one.spans("python", "1") == [[1, "number"]]
    finally:
        await one.close()
