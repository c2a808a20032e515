"""What a server shows at a terminal: its banner, and lines for people instead of JSON."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foundation_rt import Server
from foundation_rt.cli.terminal import greet_over_stdio, readable_record
from foundation_rt.client import HttpServer
from foundation_rt.client.blocking import connect
from tests.lab.programs.terminal import Terminal
from tests.lab.servers.process import run

APP = """
from foundation_rt import Server
server = Server("weather", version="1.2.3")

@server.tool
def forecast(city: str) -> str:
    return f"sunny in {city}"

@server.tool
def fails() -> str:
    raise ZeroDivisionError("no")

@server.prompt
def report() -> str:
    return "write"
"""


def line(**fields: object) -> bytes:
    record = {"timestamp": "2026-01-02T03:04:05.678Z", "level": "info", **fields}
    return json.dumps(record).encode()


@pytest.mark.rule("CLI-46", "LOG-41")
def test_server_at_a_terminal_shows_a_banner_and_a_line_for_a_call(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(APP)
    with Terminal("serve", "tools.py", "--http", "127.0.0.1:0", "--no-auth", cwd=tmp_path) as shown:
        text = shown.wait_for("end it")
        url = re.search(r"http://127\.0\.0\.1:\d+/mcp", text)
        assert url is not None
        assert "weather 1.2.3" in text and "fails, forecast, health" in text and "report" in text
        assert f"foundation-rt call {url[0]} fails" in text
        with connect(HttpServer(url[0])) as client:
            client.call("forecast", {"city": "Oslo"})
            client.call("fails", {})
            client.get_prompt("report")
        text = shown.wait_for("prompts/get report")
        assert re.search(r"\d\d:\d\d:\d\d ✓ forecast +[\d.]+ ms +ok", text)
        assert re.search(r"✗ fails +[\d.]+ ms +INTERNAL", text)
        assert "ZeroDivisionError: no" in text and "tools.py:11 fails" in text
        assert "{" not in text
        shown.signal(signal.SIGINT)
        assert shown.exit_code() == 130


TYPED = """
from typing import Annotated, Literal
from foundation_rt import Constraints, Server
server = Server("typed")

@server.tool
def odd(code: Annotated[str, Constraints(pattern="^[0-9]{3}$")]) -> str:
    return code

@server.tool
def order(what: str, size: Literal["s", "l"], count: int, marks: list[int]) -> str:
    return f"{count} {what} of {size}"
"""


@pytest.mark.rule("CLI-99")
def test_command_of_the_banner_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TYPED)
    key = "0123456789abcdef"
    for over_http, secret in ((False, ""), (True, ""), (True, f"alice:{key}")):
        options = ("--http", "127.0.0.1:0") if over_http else ()
        options += ("--no-auth",) if over_http and not secret else ()
        variables = {"FOUNDATION_RT_HTTP__API_KEYS": secret} if secret else {}
        with Terminal("serve", "tools.py", *options, cwd=tmp_path, variables=variables) as shown:
            text = shown.wait_for("Ctrl-")
            [tried] = re.findall(r"try it +\S*?(read.*|foundation-rt call .*)", text)
            assert key not in text
            environment = {"PATH": f"{Path(sys.executable).parent}:{os.defpath}"}
            done = subprocess.run(
                ["sh", "-c", tried.strip()],
                input=f"{key}\n",
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.stdout.strip() == "1 text of s", done.stderr
            if over_http:
                shown.signal(signal.SIGINT)
            else:
                shown.type("\x04")
            shown.exit_code()


@pytest.mark.rule("CLI-45")
def test_person_at_stdin_is_told_what_it_expects(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(APP)
    with Terminal("serve", "tools.py", cwd=tmp_path) as shown:
        text = shown.wait_for("Ctrl-D")
        assert "one on a line" in text
        assert "foundation-rt call tools.py fails" in text
        assert "foundation-rt serve tools.py --http 8000 --no-auth" in text
        shown.type("\x04")
        assert shown.exit_code() == 0


@pytest.mark.rule("CLI-46", "HOST-08")
def test_chat_host_at_a_terminal_has_no_json_in_its_log(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    with Terminal("host", "--http", "127.0.0.1:0", cwd=tmp_path, variables=home) as shown:
        shown.wait_for("The chat is at http://127.0.0.1:")
        text = shown.wait_for("info  server 'demo' is ready")
        assert "{" not in text
        shown.signal(signal.SIGINT)
        assert shown.exit_code() == 130


@pytest.mark.rule("CLI-46", "CLI-50")
def test_result_in_a_pipe_leaves_no_json_on_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(APP)
    with (
        (tmp_path / "result").open("wb") as result,
        Terminal("call", "tools.py", "fails", cwd=tmp_path, stdout=result.fileno()) as shown,
    ):
        assert shown.exit_code() == 1
        assert "ZeroDivisionError: no" in shown.text and "tools.py:11 fails" in shown.text
        assert "{" not in shown.text


@pytest.mark.rule("CLI-46")
def test_without_a_terminal_the_log_is_json(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(APP)
    handshake = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x"}}'
    done = run("serve", "tools.py", cwd=tmp_path, input=handshake)
    assert [json.loads(each)["message"] for each in done.stderr.splitlines()] == [
        "client connected"
    ]


@pytest.mark.rule("CLI-45")
@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        (["serve"], "'foundation-rt serve'"),
        (["serve", "tools"], "tools:server"),
        (["serve", "tools:app", "--config", "x"], "tools:app"),
        (["serve", "tools.py", "--", "x"], None),
        (["gateway"], None),
    ],
)
def test_command_to_try_names_the_server_that_is_served(
    arguments: list[str],
    target: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    greet_over_stdio(Server("x", config={"logging": {"level": "error"}}), arguments)
    tried = re.search("try it +(.*)", capsys.readouterr().err)
    assert (tried and tried[1]) == (target and f"foundation-rt call {target} health")


OSERROR = {"type": "OSError", "message": "gone", "frames": ["odd frame"]}


@pytest.mark.rule("CLI-46", "CLI-19")
@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            {"message": "tool call completed", "toolName": "e\u202echo", "outcome": "timeout"},
            "✗ e\\u202echo                     0.0 ms  timeout",
        ),
        ({"message": "odd", "level": "strange", "a": {"b": [1]}}, 'strange odd a={"b":[1]}'),
        ({"message": "failed", "level": "error", "error": "x\x9b"}, "error x\\x9b  failed"),
        ({"message": "f", "level": "warn", "error": {"code": "TIMEOUT"}}, "warn  TIMEOUT:  f"),
        (
            {"message": "f", "level": "error", "error": {"exceptions": [OSERROR, OSERROR]}},
            "error: |OSError: gone|odd frame",
        ),
        ({"message": "f", "level": "error", "error": {"exceptions": [OSERROR]}}, "OSError: gone"),
    ],
)
def test_any_record_is_printable(record: dict[str, object], said: str) -> None:
    text = readable_record(line(**record), coloured=False)
    assert re.match(r"\d\d:\d\d:\d\d ", text)
    for part in said.split("|"):
        assert part in text
    assert all(each.isprintable() for each in text.splitlines())
    coloured = readable_record(line(**record), coloured=True)
    assert re.sub(r"\x1b\[\d+m", "", coloured) == text
