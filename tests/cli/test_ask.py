"""`foundation-rt ask`: real processes, with pipes and with a terminal."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.apps.host import texts
from tests.features.test_skills import write_skill
from tests.lab.models.failing_vendor import FAILURES, KEY, failing_vendor, here
from tests.lab.models.fake_models import FakeModels
from tests.lab.programs.terminal import Terminal
from tests.lab.servers import fork_server
from tests.lab.servers.process import PATIENCE, environment, run
from tests.lab.waiting import block_until

APP = """
import asyncio, pathlib
from typing import Any
from foundation_rt import Server, ToolAnnotations, ToolContext

server = Server("desk")
server.override("logging", level="error")
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 7}},
    "required": ["name"],
}

@server.tool
def any(value: Any) -> str:
    return f"any {value}"

@server.tool
def note(text: str) -> str:
    return f"noted {text}"

@server.tool(annotations=ToolAnnotations(read_only=True))
def read() -> str:
    return "read it"

@server.tool(annotations=ToolAnnotations(read_only=True))
async def who(ctx: ToolContext) -> str:
    answer = await ctx.elicit("Who are you?", FORM)
    return f"{answer.action} {answer.content}"

@server.tool(annotations=ToolAnnotations(read_only=True))
async def pay(ctx: ToolContext) -> str:
    return f"it was {(await ctx.elicit_url('Pay', 'https://pay.example.com/1')).action}"

@server.tool(annotations=ToolAnnotations(read_only=True))
async def think(ctx: ToolContext) -> str:
    await ctx.report_progress(1, 2, "half of it")
    return (await ctx.sample("Say hello", max_tokens=50)).text or ""

@server.tool(annotations=ToolAnnotations(read_only=True))
async def wait(path: str, ctx: ToolContext) -> str:
    pathlib.Path(path, "begun").touch()
    await ctx.abort_signal.wait()
    pathlib.Path(path, "aborted").touch()
    return ""
"""


def prepared(folder: Path, answers: Sequence[Any], **members: Any) -> list[str]:
    """Write a server, the file that lists it, and a script; return the options for both."""
    (folder / "app.py").write_text(APP)
    command = [sys.executable, "-m", "foundation_rt", "serve", str(folder / "app.py")]
    entry = {"command": command[0], "args": command[1:], "trust": True, **members}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"desk": entry}}))
    (folder / "script.json").write_text(json.dumps([{"answers": [*answers]}]))
    return ["--servers", str(folder / "mcp.json"), "--model", f"script:{folder / 'script.json'}"]


def ask(folder: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return run("ask", *words, cwd=folder, **options)


CALL = {"call": "desk:note", "arguments": {"text": "milk\x1b[2J"}}


@pytest.mark.rule("CLI-34", "CLI-37")
def test_answer_goes_to_stdout_and_all_else_to_stderr(tmp_path: Path) -> None:
    options = prepared(tmp_path, [["Let me see. ", CALL], ["It is ", "noted."]])
    done = ask(tmp_path, "--yes", *options, "Note", "milk")
    assert done.stdout == "Let me see. \nIt is noted.\n"
    assert '[desk:note {"text":"milk\\u001b[2J"}]' in done.stderr
    assert "[desk:note is done (" in done.stderr
    assert "\x1b" not in done.stderr
    assert done.returncode == 0


@pytest.mark.rule("CLI-34")
def test_question_may_come_from_stdin(tmp_path: Path) -> None:
    options = prepared(tmp_path, [[{"echo": "user"}]])
    done = ask(tmp_path, *options, input="What is this?\n")
    assert (done.stdout, done.returncode) == ("What is this?\n", 0)


@pytest.mark.rule("CLI-35")
def test_without_a_terminal_nothing_is_approved(tmp_path: Path) -> None:
    options = prepared(tmp_path, [[CALL, CALL], [{"echo": "result"}]])
    done = ask(tmp_path, *options, "Note milk")
    assert "Nobody is there" in done.stdout and "alwaysAllow" in done.stdout
    last = done.stderr.splitlines()[-1]
    assert last.count("desk:note") == 1 and "--yes" in last and "alwaysAllow" in last
    assert done.returncode == 5
    as_json = ask(tmp_path, "--json", *options, "Note milk")
    assert json.loads(as_json.stdout)["calls"][0]["error"]["code"] == "UNATTENDED"
    assert json.loads(as_json.stderr)["code"] == "UNATTENDED"
    assert as_json.returncode == 5
    questions = prepared(tmp_path, [[{"call": "desk:who", "arguments": {}}], [{"echo": "result"}]])
    declined = ask(tmp_path, *questions, "Who am I?")
    assert "desk asks, and nobody is there: Who are you?" in declined.stderr
    assert ("decline" in declined.stdout, declined.returncode) == (True, 0)


@pytest.mark.rule("CLI-35", "CLI-88")
def test_skill_is_shown_at_the_terminal_before_the_model_reads_it(tmp_path: Path) -> None:
    arguments = {"skill": "desk:refunds"}
    options = prepared(
        tmp_path, [[{"call": "read_skill", "arguments": arguments}], [{"echo": "result"}]]
    )
    text = "---\nname: refunds\ndescription: d\n---\nAsk \x1b]0;x\x07 first.\n"
    write_skill(tmp_path / "skills" / "refunds", {"SKILL.md": text.encode()})
    (tmp_path / "app.py").write_text(f"{APP}\nserver.skills_from({str(tmp_path / 'skills')!r})\n")
    with Terminal("ask", *options, "Refund it", cwd=tmp_path) as terminal:
        terminal.wait_for("skill://refunds/SKILL.md of desk, in its own words:")
        terminal.wait_for("Ask \\x1b]0;x\\x07 first.")
        terminal.wait_for("Let the model read this?")
        terminal.wait_for("> ")
        terminal.type("y\n")
        terminal.wait_for("read_skill is done")
        assert terminal.exit_code() == 0
    alone = ask(tmp_path, *options, "Refund it")
    assert "Nobody is there who could approve this skill" in alone.stdout
    assert alone.returncode == 5


@pytest.mark.rule("CLI-36")
def test_json_has_text_calls_and_usage(tmp_path: Path) -> None:
    usage = {"usage": {"promptTokens": 10, "completionTokens": 2}}
    options = prepared(tmp_path, [[CALL], ["Done.", usage]])
    done = ask(tmp_path, "--yes", "--json", *options, "Note milk")
    found = json.loads(done.stdout)
    assert (found["text"], found["state"]) == ("Done.", "finished")
    (call,) = found["calls"]
    assert (call["tool"], call["isError"]) == ("desk:note", False)
    assert call["arguments"] == {"text": "milk\x1b[2J"}
    assert call["result"]["content"][0]["type"] == "text"
    assert found["usage"]["completionTokens"] >= 2
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.rule("CLI-37")
def test_failure_is_an_error(tmp_path: Path) -> None:
    failure = {"fail": "bad_key", "advice": "Set another key."}
    said = "Script refuses the key. Set another key."
    options = prepared(tmp_path, [[failure]])
    done = ask(tmp_path, *options, "hello")
    assert (done.stdout, done.stderr) == ("", f"foundation-rt: {said}\n")
    assert done.returncode == 3
    as_json = ask(tmp_path, "--json", *options, "hello")
    error = {"code": "LLM_ERROR", "message": said}
    assert (as_json.stdout, json.loads(as_json.stderr)) == ("", error)
    broken = prepared(tmp_path, [["Hel", {"cut": True}]])
    done = ask(tmp_path, *broken, "hello")
    assert (done.stdout, done.returncode) == ("Hel\n", 3)
    assert "The connection to Script broke off" in done.stderr
    silent = prepared(tmp_path, [[]])
    done = ask(tmp_path, *silent, "hello")
    assert (done.stdout, done.returncode) == ("", 3)
    assert texts.NO_ANSWER in done.stderr


@pytest.mark.rule("CLI-37", "TURN-16", "LLM-33")
def test_reason_of_a_vendor_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing_vendor() as vendor:
        for name, value in vendor.variables.items():
            monkeypatch.setenv(name, value)
        vendor.answer = failure = FAILURES["401"]  # the page is shown each of them
        done = ask(tmp_path, "hello")
        assert (done.stdout, done.returncode) == ("", 3)
        assert failure.said in done.stderr
        assert KEY not in done.stderr
        vendor.answer = here("Here.")
        assert ask(tmp_path, "hello").stdout == "Here.\n"
        monkeypatch.setenv("LLM_BASE_URL", f"http://127.0.0.1:{vendor.port}")
        done = ask(tmp_path, "hello")
        assert done.stdout == "Here.\n"
        assert done.stderr.count("add /v1 to the base URL") == 1
        monkeypatch.setenv("LLM_BASE_URL", f"https://127.0.0.1:{vendor.port}/v1")
        assert "no secure connection (TLS) to https://127.0.0.1" in ask(tmp_path, "hello").stderr
    monkeypatch.setenv("LLM_BASE_URL", "http://no-such-host.invalid/v1")
    assert "is known (DNS) for http://no-such-host.invalid/v1" in ask(tmp_path, "hello").stderr
    monkeypatch.setenv("LLM_PROVIDER", "opnai")
    done = ask(tmp_path, "hello")
    assert "(environment LLM_PROVIDER): expected one of gemini, openai" in done.stderr
    assert done.returncode == 2


@pytest.mark.rule("CLI-37")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nothing", "hi"], "there is no option '--nothing'"),
        ([], "a QUESTION has 1 to 32768 characters"),
        (["x" * 32_769], "a QUESTION has 1 to 32768 characters"),
        (["--model", "nope:x", "hi"], "there is no provider 'nope'"),
        (["--servers", "nothing.json", "hi"], "there is no file nothing.json"),
    ],
)
def test_wrong_command_line_is_said(tmp_path: Path, words: list[str], said: str) -> None:
    done = ask(tmp_path, *words)
    assert said in done.stderr
    assert (done.stdout, done.returncode) == ("", 2)


@pytest.mark.rule("CLI-34")
def test_server_that_does_not_start_is_a_warning(tmp_path: Path) -> None:
    options = prepared(tmp_path, [["Hello."]])
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"bad": {"command": "no-such-program"}}}')
    done = ask(tmp_path, *options, "hello")
    assert "warning: server 'bad' is failed" in done.stderr
    assert (done.stdout, done.returncode) == ("Hello.\n", 0)


@pytest.mark.rule("CLI-35")
@pytest.mark.parametrize(
    ("answer", "read"),
    [("y\n", "noted milk"), ("n\n", "The user refused"), ("\x04", "The user refused")],
)
def test_person_at_a_terminal_approves(tmp_path: Path, answer: str, read: str) -> None:
    options = prepared(tmp_path, [[CALL], [{"echo": "result"}]])
    with Terminal("ask", *options, "Note milk", cwd=tmp_path) as terminal:
        terminal.wait_for('Call desk:note {"text":"milk\\u001b[2J"}?')
        terminal.wait_for("> ")
        terminal.type(answer)
        terminal.wait_for(read)
        assert terminal.exit_code() == 0


@pytest.mark.rule("CLI-35")
@pytest.mark.parametrize(
    ("tool", "question", "typed", "read"),
    [
        ("pay", "n: decline > ", "y\n", "it was accept"),
        ("think", 'Let desk ask the model {"messages":', "n\n", "desk:think: half of it"),
    ],
)
def test_person_at_a_terminal_answers_what_a_server_asks(
    tmp_path: Path, tool: str, question: str, typed: str, read: str
) -> None:
    call = {"call": f"desk:{tool}", "arguments": {}}
    options = prepared(tmp_path, [[call], [{"echo": "result"}]])
    with Terminal("ask", *options, "Do it", cwd=tmp_path) as terminal:
        terminal.wait_for(question)
        terminal.wait_for("> ")
        terminal.type(typed)
        terminal.wait_for(read)
        assert terminal.exit_code() == 0


@pytest.mark.rule("CLI-31")
def test_signal_ends_a_question(tmp_path: Path) -> None:
    options = prepared(tmp_path, [[CALL]])
    with Terminal("ask", *options, "Note milk", cwd=tmp_path) as terminal:
        terminal.wait_for("> ")
        terminal.signal(signal.SIGINT)
        assert terminal.exit_code() == 130
        assert "Traceback" not in terminal.text


@pytest.mark.rule("CLI-35", "CLI-37")
@pytest.mark.parametrize(
    "shell",
    [
        ("setsid", "-w", "sh", "-c", 'echo "Note milk" | "$@"'),  # at no terminal
        ("setsid", "-c", "-w", "sh", "-mc", 'echo "Note milk" | "$@" & wait $!'),  # behind it
    ],
)
def test_nobody_is_asked_where_a_terminal_cannot_be_read(
    tmp_path: Path, shell: tuple[str, ...]
) -> None:
    options = prepared(tmp_path, [[CALL], [{"echo": "result"}]])
    program = (*shell, "sh", sys.executable, "-m", "foundation_rt")
    with Terminal("ask", *options, cwd=tmp_path, program=program) as terminal:
        assert terminal.exit_code() == 5
        assert "nobody is there who could approve it: desk:note" in terminal.text


@pytest.mark.rule("CLI-34")
def test_terminal_is_no_question(tmp_path: Path) -> None:
    with Terminal("ask", cwd=tmp_path) as terminal:
        assert terminal.exit_code() == 2
        assert "ask needs a QUESTION" in terminal.text


@pytest.mark.rule("CLI-20", "CLI-37")
@pytest.mark.parametrize("streams", [">/dev/full", ">&-"])
def test_answer_that_cannot_be_written_ends_the_command(tmp_path: Path, streams: str) -> None:
    options = prepared(tmp_path, [["Let me see. ", CALL], ["Done."]])
    words = [sys.executable, "-m", "foundation_rt", "ask", "--yes", *options, "hi"]
    shell = ["sh", "-c", f'"$@" {streams}', "sh", *words]
    pipes = {"capture_output": True, "text": True, "timeout": PATIENCE}
    done = fork_server.run(shell, cwd=tmp_path, env=environment(), **pipes)
    assert (done.returncode, "desk:note is done" in done.stderr) == (4, False)


@pytest.mark.rule("CLI-35")
def test_person_is_asked_at_the_terminal_where_stdin_is_a_pipe(tmp_path: Path) -> None:
    options = prepared(tmp_path, [[CALL], [{"echo": "result"}]])
    shell = ("setsid", "-c", "-w", "sh", "-c", 'echo "Note milk" | "$@"', "sh")
    piped = (*shell, sys.executable, "-m", "foundation_rt")
    with Terminal("ask", *options, cwd=tmp_path, program=piped) as terminal:
        terminal.wait_for("> ")
        terminal.type("y\n")
        terminal.wait_for("noted milk")
        assert terminal.exit_code() == 0


@pytest.mark.rule("CLI-35")
def test_person_at_a_terminal_allows_a_tool_for_the_whole_answer(tmp_path: Path) -> None:
    calls = [{"call": "desk:note", "arguments": {"text": text}} for text in ("one", "two")]
    options = prepared(tmp_path, [calls, [{"echo": "result"}]])
    with Terminal("ask", *options, "Note both", cwd=tmp_path) as terminal:
        terminal.wait_for("> ")
        terminal.type("a\n")
        terminal.wait_for("noted two")
        assert terminal.exit_code() == 0


@pytest.mark.rule("CLI-35", "TURN-20", "TURN-29")
@pytest.mark.parametrize(("answer", "questions"), [("t", 1), ("y", 2)])
def test_person_at_a_terminal_trusts_what_a_server_says(
    tmp_path: Path, answer: str, questions: int
) -> None:
    word = {"call": "desk:read", "arguments": {}}
    options = prepared(tmp_path, [[word], [word], [{"echo": "result"}]], trust=False)
    with Terminal("ask", *options, "Read twice", cwd=tmp_path) as terminal:
        for number in range(questions):
            terminal.wait_for("Call desk:read {}?", number + 1)
            terminal.wait_for(
                "t: yes, and trust what desk says only reads; anything else: no > ", number + 1
            )
            terminal.type(f"{answer}\n")
        terminal.wait_for("read it")
        assert terminal.exit_code() == 0


@pytest.mark.rule("CLI-35")
def test_person_at_a_terminal_fills_in_a_form(tmp_path: Path) -> None:
    options = prepared(tmp_path, [[{"call": "desk:who", "arguments": {}}], [{"echo": "result"}]])
    with Terminal("ask", *options, "Who am I?", cwd=tmp_path) as terminal:
        terminal.wait_for("desk asks: Who are you?")
        terminal.wait_for("name (text) > ")
        terminal.type("Ada\n")
        terminal.wait_for("age (whole number, default 7) > ")
        terminal.type("36\n")
        terminal.wait_for("Send it?")
        terminal.type("y\n")
        terminal.wait_for("accept {'name': 'Ada', 'age': 36}")
        assert terminal.exit_code() == 0


@pytest.mark.rule("CLI-31", "CLI-37")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_call_and_its_server(tmp_path: Path, number: int, code: int) -> None:
    arguments = {"path": str(tmp_path)}
    options = prepared(tmp_path, [[{"call": "desk:wait", "arguments": arguments}]])
    with Terminal("ask", *options, "wait", cwd=tmp_path) as terminal:
        block_until((tmp_path / "begun").exists, "the call runs")
        terminal.signal(number)
        assert terminal.exit_code() == code
    assert (tmp_path / "aborted").exists()


@pytest.mark.rule("HOST-41", "HOST-17")
async def test_key_and_address_of_env_go_together_beside_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with FakeModels([["hello"]] * 2) as fake:
        url = fake.config("openai").base_url
        (tmp_path / ".env").write_text(
            f"LLM_PROVIDER=openai\nLLM_MODEL=fake-1\nLLM_BASE_URL={url}\nOPENAI_API_KEY=own\n"
        )
        ended = await asyncio.to_thread(run, "ask", "hi", cwd=tmp_path)
        assert (ended.stdout, ended.stderr) == ("hello\n", "")
        assert [each.key for each in fake.requests] == ["own"]
        with (tmp_path / ".env").open("a") as file:
            file.write("FOUNDATION_RT_HOST__APPROVE_ALL=true\n")
        noted = await asyncio.to_thread(run, "ask", "hi", cwd=tmp_path)
        assert "warning: FOUNDATION_RT_HOST__APPROVE_ALL in .env does not count" in noted.stderr


@pytest.mark.rule("LLM-94", "CLI-36")
async def test_numbers_of_a_call_keep_their_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = prepared(tmp_path, [])[:2]
    given = {"value": [1234567890123456789, 10**24 + 1, 1.0, "<think>"]}
    call = {"call": "desk__any", "arguments": given, "id": "c1"}
    answers = [[{"thought": "Hm. "}, "Let me see. ", call], ["Done."]]
    async with FakeModels(answers, dialect="vllm", bytes_at_once=3) as fake:
        monkeypatch.setenv("LLM_BASE_URL", fake.config("openai").base_url or "")
        words = ("ask", "--yes", "--json", *options, "--model", "openai:fake-1", "hi")
        ended = await asyncio.to_thread(run, *words, cwd=tmp_path)
    found = json.loads(ended.stdout)
    assert (found["text"], ended.stderr, ended.returncode) == ("Let me see. Done.", "", 0)
    (made,) = found["calls"]
    assert json.dumps(made["arguments"]) == json.dumps(given)
    assert made["result"]["content"][0]["text"] == f"any {given['value']}"
