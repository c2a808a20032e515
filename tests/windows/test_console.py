"""Commands at a console of Windows: a person who types, escape sequences, code pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "win32":
    pytest.skip("there are consoles on Windows alone", allow_module_level=True)

from tests.lab.programs.windows_console import WindowsConsole

APP = """
from foundation_rt import Server, ToolContext

server = Server("asks")


@server.tool
async def order(context: ToolContext) -> str:
    schema = {"type": "object", "properties": {"dish": {"type": "string"}}, "required": ["dish"]}
    answer = await context.elicit("What is wanted?", schema)
    return f"ordered: {answer.content['dish']}"


@server.tool
def table() -> list[dict[str, str]]:
    return [{"dish": "r\\u00f6sti"}, {"dish": "\\u2713"}]
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TERM", raising=False)
    path = tmp_path / "app.py"
    path.write_text(APP, "utf-8")
    return path


@pytest.mark.rule("WIN-44")
def test_person_confirms_at_a_console(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = app.parent / ".cursor/mcp.json"
    monkeypatch.setenv("USERPROFILE", str(app.parent))
    words = ("-m", "foundation_rt", "install", "cursor", str(app))
    with WindowsConsole(*words) as console:
        console.wait_for("Write it? [y/N]")
        assert not file.is_file()
        console.type("y\r")
        console.wait_for("ended with 0")
    assert file.is_file()


@pytest.mark.rule("WIN-44")
def test_person_answers_the_question_of_a_tool_in_unicode(app: Path) -> None:
    with WindowsConsole("-m", "foundation_rt", "call", str(app), "order") as console:
        console.wait_for("dish")
        console.type("r\u00f6sti\r")
        console.wait_for("Send it?")
        console.type("y\r")
        console.wait_for("ordered: r\u00f6sti")
        console.wait_for("ended with 0")


@pytest.mark.rule("WIN-43")
def test_console_that_takes_escape_sequences_has_colours(app: Path) -> None:
    with WindowsConsole("-m", "foundation_rt", "call", str(app), "table") as console:
        text = console.wait_for("ended with 0")
    assert "r\u00f6sti" in text and "\u2713" in text
    assert "\x1b[1m" in text or "\x1b[36m" in text


@pytest.mark.rule("WIN-43")
def test_text_for_a_program_is_utf_8_whatever_the_code_page() -> None:
    code = "from foundation_rt.base.windows import write_utf8; write_utf8(); print('\\u2713')"
    plain = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=plain, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.decode("utf-8").strip() == "\u2713"
