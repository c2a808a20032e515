"""The commands of a client: their output, their streams and their exit codes."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
from itertools import cycle, product
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.cli.command_table import MODULES, load
from foundation_rt.cli.main import main
from tests.lab.servers import fork_server
from tests.lab.servers.http_server import serve_http
from tests.lab.servers.process import PATIENCE, command, environment, run
from tests.lab.sizes import cases

APP = '''
import threading
from typing import Literal
from foundation_rt import ErrorCode, Image, Server, Text, ToolContext, ToolError

server = Server("weather", version="7.8.9")


@server.tool
async def forecast(city: str, days: int = 3, tone: Literal["dry", "cheerful"] = "dry") -> dict:
    """Forecast for a city."""
    if city == "Atlantis":
        raise ToolError(ErrorCode.NOT_FOUND, "no such city", {"city": city})
    return {"city": city, "days": days}


@server.tool
def shout(text: str, ctx: ToolContext) -> str:
    print("shouting")
    ctx.logger.warn("loud")
    return text.upper()


@server.tool(timeout_ms=50)
def stuck():
    threading.Event().wait()


@server.tool
def radar() -> list[Image | Text]:
    return [Image(b"PNG", "image/png"), Text("Rain.")]


@server.resource("station://{name}")
def readings(name: str) -> dict:
    """Readings of a station."""
    return {"station": name}


@server.resource("logo://", mime_type="image/png")
def logo() -> bytes:
    return b"PNG\\xff"


@server.prompt
def report(station: str, days: int = 3) -> str:
    """Ask for a report."""
    return f"Report on {station} for {days} days."


other = Server("other")
'''

SCRIPTED = '''
"""A server that answers every request from a table."""
import json, sys, time
answers = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    answer = answers.get(message.get("method"), {"error": {"code": -32601, "message": "what?"}})
    if "id" in message and answer is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
'''

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with an app in it, and to an empty home."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in os.environ:
        if name.startswith(("FOUNDATION_RT_", "MCP_")):
            monkeypatch.delenv(name)
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def scripted(folder: Path, **answers: Any) -> str:
    """Return the command line of a server with these answers; `_` stands for `/` in a method."""
    introduction = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "scripted", "version": "1"},
    }
    table = {"initialize": {"result": introduction}, "tools/list": {"result": {"tools": []}}}
    table |= {method.replace("_", "/"): answer for method, answer in answers.items()}
    (folder / "scripted.py").write_text(SCRIPTED)
    return shlex.join([sys.executable, "scripted.py", orjson.dumps(table).decode()])


def ours(*words: str) -> str:
    """Return the command line of our own server."""
    return shlex.join(command("serve", *words))


# -- results


@pytest.mark.rule("CLI-05", "CLI-10", "CLI-16")
@pytest.mark.parametrize("target", ["app.py", "app:server", "./app.py:server"])
@pytest.mark.parametrize("words", [["city=Oslo"], ['city:="Oslo"', "days=3"], ['{"city": "Oslo"}']])
def test_call_prints_the_result_of_the_tool(
    folder: Path, target: str, words: list[str], capsys: Captured
) -> None:
    assert main(["call", target, "forecast", *words]) == 0
    assert orjson.loads(capsys.readouterr().out) == {"city": "Oslo", "days": 3}


@pytest.mark.rule("CLI-05", "CLI-21")
def test_call_prints_the_whole_result_as_json(folder: Path, capsys: Captured) -> None:
    assert main(["call", "app.py", "radar", "--json"]) == 0
    content = orjson.loads(capsys.readouterr().out)["content"]
    assert [block["type"] for block in content] == ["image", "text"]


@pytest.mark.rule("CLI-05", "VERS-08")
def test_call_of_a_deprecated_version_warns_on_stderr(folder: Path, capsys: Captured) -> None:
    table = {
        "name": "find",
        "version": "2",
        "inputSchema": {"type": "object"},
        "_meta": {"foundation-rt/versions": {"1": {"inputSchema": {"type": "object"}}}},
    }
    advice = {"foundation-rt/deprecated": "use version 2"}
    answer = {"content": [{"type": "text", "text": "found"}], "_meta": advice}
    lists = {"result": {"tools": [table]}}
    target = scripted(folder, tools_list=lists, tools_call={"result": answer})
    assert main(["call", target, "find@1"]) == 0
    said = "foundation-rt: warning: find@1 is deprecated: use version 2\n"
    assert capsys.readouterr() == ("found\n", said)
    assert main(["call", target, "find@1", "--json"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.rule("CLI-05", "LOG-01")
def test_only_the_result_goes_to_stdout(folder: Path) -> None:
    done = run("call", "app.py", "shout", "text=hello")
    assert done.returncode == 0
    assert done.stdout == "HELLO\n"
    printed, *records = done.stderr.splitlines()
    assert printed == "shouting"
    assert [orjson.loads(record)["level"] for record in records] == ["warn", "info"]


@pytest.mark.rule("CLI-09")
def test_tools_lists_a_tool_on_each_line(folder: Path, capsys: Captured) -> None:
    assert main(["tools", "app.py"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["forecast", "health", "radar", "shout", "stuck"]
    assert lines[0] == "forecast  Forecast for a city."
    assert main(["tools", "app.py", "--json"]) == 0
    tools = orjson.loads(capsys.readouterr().out)["tools"]
    assert tools[0]["inputSchema"]["required"] == ["city"]


@pytest.mark.rule("CLI-09", "CLI-21", "CLI-33")
def test_read_prints_the_contents_of_a_resource(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["read", "app.py", "station://By"]) == 0
    assert orjson.loads(capfdbinary.readouterr().out) == {"station": "By"}
    assert main(["read", "app.py", "logo://"]) == 0
    assert capfdbinary.readouterr().out == b"PNG\xff"
    assert main(["read", "app.py", "logo://", "--json"]) == 0
    [contents] = orjson.loads(capfdbinary.readouterr().out)["contents"]
    assert contents["mimeType"] == "image/png"


@pytest.mark.rule("CLI-09", "CLI-16")
def test_prompt_prints_its_messages(folder: Path, capsys: Captured) -> None:
    assert main(["prompt", "app.py", "report", "station=By", "days=2"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("\nuser\nReport on By for 2 days.\n")


@pytest.mark.rule("CLI-29")
def test_ping_prints_round_trip_times(folder: Path, capsys: Captured) -> None:
    assert main(["ping", "app.py", "--count", "20", "--json"]) == 0
    measured = orjson.loads(capsys.readouterr().out)
    assert (measured["sent"], measured["lost"]) == (20, 0)
    assert list(measured["ms"]) == ["min", "p50", "p95", "p99", "max"]
    assert main(["ping", "app.py"]) == 0
    assert capsys.readouterr().out.startswith("10 of 10 answered\nmin ")


@pytest.mark.rule("CLI-25", "CLI-18")
def test_inspect_shows_all_lists(folder: Path, capsys: Captured) -> None:
    assert main(["inspect", "app.py"]) == 0
    out = capsys.readouterr().out
    for shown in (
        "weather  7.8.9\n",
        "\nTOOLS  5\n",
        '  tone  "dry" | "cheerful"  = "dry"\n',
        "\nRESOURCES  1\nlogo://",
        "\nRESOURCE TEMPLATES  1\nstation://{name}",
        "\nPROMPTS  1\n\nreport\nAsk for a report.\n  station  required\n",
    ):
        assert shown in out
    assert main(["inspect", "app.py", "--json"]) == 0
    report = orjson.loads(capsys.readouterr().out)
    assert report["serverInfo"] == {"name": "weather", "version": "7.8.9"}
    lists = ("tools", "resources", "resourceTemplates", "prompts")
    assert [len(report[name]) for name in lists] == [5, 1, 1, 1]
    assert report["failed"] == {}


@pytest.mark.rule("CLI-25")
def test_lists_that_a_server_does_not_offer_are_not_requested(
    folder: Path, capsys: Captured
) -> None:
    introduction = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"resources": {}},
        "serverInfo": {"name": "bare", "version": "1"},
        "instructions": "Be\x1b[31m kind.",
    }
    target = scripted(
        folder,
        initialize={"result": introduction},
        resources_list={"result": {"resources": [{"uri": "a://b\n", "name": 5}]}},
    )
    assert main(["inspect", target]) == 0
    out, err = capsys.readouterr()
    assert "TOOLS" not in out and "PROMPTS" not in out and "TEMPLATES" not in out
    assert "INSTRUCTIONS\nBe\\x1b[31m kind.\n" in out
    assert "a://b\\n" in out
    assert err == ""
    assert main(["tools", target]) == 3
    assert "E205" in capsys.readouterr().err


@pytest.mark.rule("CLI-25", "CLI-20")
def test_a_list_that_fails_is_shown_as_failed_and_the_rest_as_it_is(
    folder: Path, capsys: Captured
) -> None:
    target = scripted(
        folder,
        resources_list={"error": {"code": -32603, "message": "broken"}},
        prompts_list={"result": {"prompts": [{"name": "report"}]}},
    )
    assert main(["inspect", target]) == 3
    out = capsys.readouterr().out
    assert "RESOURCES\ncannot be listed: E201 broken" in out
    assert "PROMPTS  1\n\nreport\n" in out
    assert main(["inspect", target, "--json"]) == 3
    report = orjson.loads(capsys.readouterr().out)
    assert report["failed"] == {"resources": "broken"}
    assert report["prompts"] == [{"name": "report"}]


# -- where TARGET leads


@pytest.mark.rule("CLI-10", "CLI-12", "CLI-13", "CLI-15")
def test_name_in_a_file_starts_its_process(folder: Path, capsys: Captured) -> None:
    script = "import os, sys; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    entry = {
        "command": "${PYTHON_OF_TESTS:-" + sys.executable + "}",
        "args": ["-c", script, "-m", "foundation_rt", "serve", "${workspaceFolder}/app.py:server"],
        "env": {"FOUNDATION_RT_SERVER__NAME": "from the file"},
    }
    (folder / "mcp.json").write_bytes(orjson.dumps({"mcpServers": {"my weather": entry}}))
    (folder / "servers.json").write_bytes(orjson.dumps({"servers": {"sh": entry}}))
    for words in (["my weather", "--trust"], ["sh", "--servers", "servers.json"]):
        assert main(["inspect", *words, "--json"]) == 0
        report = orjson.loads(capsys.readouterr().out)
        assert report["serverInfo"]["name"] == "from the file"


@pytest.mark.rule("CLI-79", "CHILD-26")
def test_variables_are_given_to_a_command_that_names_what_it_lacks(folder: Path) -> None:
    (folder / "keyed.py").write_text(
        "import os\n"
        "from foundation_rt import Server\n"
        "server = Server(os.environ['SHOP_API_KEY'])\n"
        "@server.tool\n"
        "def key() -> str:\n    return os.environ['SHOP_API_KEY']\n"
        "server.run()\n"
    )
    target = shlex.join([sys.executable, str(folder / "keyed.py")])
    lacking = run("call", target, "key")
    assert lacking.returncode == 3
    assert "It seems to need the variable SHOP_API_KEY" in lacking.stderr
    assert run("call", target, "key", "--env", "SHOP_API_KEY=hush").stdout == "hush\n"
    wrong = run("call", target, "kye", "--env", "SHOP_API_KEY=hush")
    assert "did you mean 'key'?" in wrong.stderr


@pytest.mark.rule("CLI-10", "CLI-22", "CLI-23")
def test_url_is_reached_over_http_with_its_headers(folder: Path, capsys: Captured) -> None:
    settings = {"http.api_keys": "ann:hush-hush-hush-hush"}
    entry = {"url": "${URL_OF_TESTS}", "headers": {"x-api-key": "wrong-wrong-wrong-wrong"}}
    (folder / "mcp.json").write_bytes(orjson.dumps({"mcpServers": {"weather": entry}}))
    key = ["--header", "X-API-Key: hush-hush-hush-hush"]
    with serve_http(folder / "app.py", "--workers", "1", settings=settings) as server:
        os.environ["URL_OF_TESTS"] = server.url
        try:
            for target in (server.url, "weather"):
                words = ["call", target, "forecast", "city=Oslo", *key, "--trust"]
                assert main(words) == 0
                assert orjson.loads(capsys.readouterr().out)["city"] == "Oslo"
                assert main(["tools", target]) == 3
                out, err = capsys.readouterr()
                assert "E207" in err
                assert "wrong-wrong" not in out + err
        finally:
            del os.environ["URL_OF_TESTS"]
    assert main(["tools", server.url.replace("//", "//ann:hush@") + "?key=hush"]) == 3
    out, err = capsys.readouterr()
    assert err.startswith("foundation-rt: E201 ")
    assert "hush" not in out + err


@pytest.mark.rule("CLI-22")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_protocol_option_wins_over_the_environment(
    folder: Path, revision: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_PROTOCOL_VERSION", "2025-06-18")
    for words, spoken in ((["--protocol", revision], revision), ([], "2025-06-18")):
        assert main(["inspect", "app.py", "--json", *words]) == 0
        assert orjson.loads(capsys.readouterr().out)["protocolVersion"] == spoken


@pytest.mark.rule("CLI-22")
def test_an_app_is_configured(folder: Path, capsys: Captured) -> None:
    (folder / "settings.toml").write_text('[server]\nname = "from a file"\n')
    assert main(["inspect", "app.py", "--config", "settings.toml", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["serverInfo"]["name"] == "from a file"


@pytest.mark.rule("CLI-10", "CLI-11", "CLI-12", "CLI-14", "CLI-20", "CLI-22")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tools", "no-such-program"], "'no-such-program' is no server"),
        (["tools", "ftp://a"], "http://host/path or https://host/path"),
        (["tools", "nowhere.py"], "no file nowhere.py"),
        (["tools", "nowhere:server"], "no module 'nowhere'"),
        (["tools", "app.py:nothing"], "'nothing' should be a foundation_rt.Server"),
        (["tools", "app.py", "--config", "nowhere.toml"], "nowhere.toml"),
        (["tools", "app.py", "--servers", "nowhere.json"], "nowhere.json cannot be read"),
        (["tools", "sh", "--config", "a.toml"], "--config goes with an APP"),
        (["tools", "sh", "--header", "a: b"], "--header goes with a URL"),
        (["tools", "app.py", "--header", "a: b"], "--header goes with a URL"),
        (["tools", "app.py", "--env", "A=b"], "--env goes with a command"),
        (["tools", "sh", "--env", "NOT_SET_ANYWHERE"], "--env NAME: there is no such"),
        (["tools", "http://a", "--header", "hush"], "--header is of the form 'NAME: VALUE'"),
        (["tools", "http://a", "--header", "a b: hush"], "--header is of the form"),
        (["tools", "http://a", "--header", "a: hush\nb: c"], "foundation-rt: "),
        (["tools", "app.py", "--timeout", "soon"], "--timeout is a number of seconds"),
        (["tools", "app.py", "--timeout", "nan"], "--timeout is a number of seconds"),
        (["tools", "app.py", "--timeout", "0"], "--timeout is a number of seconds"),
        (["tools", "app.py", "--timeout", "inf"], "--timeout is a number of seconds"),
        (["tools", "app.py", "--protocol", "1.0"], "--protocol is 2024-11-05, 2025-03-26, "),
        (["tools", "app.py", "--count", "5"], "no option '--count'"),
        (["ping", "app.py", "--count", "0"], "--count is a number from 1"),
        (["ping", "app.py", "--count", "9" * 99], "--count is a number from 1"),
        (["ping", "app.py", "--count", "\u0663"], "--count is a number from 1"),
        (["call", "app.py", "forecast", "Oslo"], "'Oslo' is neither a JSON object nor"),
        (["call", "app.py", "forecast", "city=\udcff"], "is no text in UTF-8"),
        (["prompt", "app.py", "report", "By"], "'By' is not of the form key=value"),
    ],
)
def test_a_wrong_command_line_is_refused(
    folder: Path, words: list[str], message: str, capsys: Captured
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("foundation-rt: ")
    assert message in err
    assert "hush" not in err
    assert "Traceback" not in err
    assert main([*words, "--json"]) == 2
    error = orjson.loads(capsys.readouterr().err)
    assert error["code"] == "USAGE"
    assert error["message"] in err


# -- errors


@pytest.mark.rule("CLI-05", "CLI-20", "CLI-21")
def test_the_error_of_a_tool_is_printed_on_stderr(folder: Path, capsys: Captured) -> None:
    words = ["call", "app.py", "forecast", "city=Atlantis"]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert (
        'foundation-rt: the tool failed: NOT_FOUND: no such city\n{\n  "city": "Atlantis"\n}\n'
        in err
    )
    assert main([*words, "--json"]) == 1
    out, err = capsys.readouterr()
    error = orjson.loads(err.splitlines()[-1])
    assert out == ""
    assert error["code"] == "NOT_FOUND"
    assert error["details"] == {"city": "Atlantis"}
    assert error["runId"]


@pytest.mark.rule("CLI-16", "CLI-20")
def test_arguments_that_do_not_fit_are_refused_before_they_are_sent(
    folder: Path, capsys: Captured
) -> None:
    for words in (["days=3"], ["city=Oslo", "days=0.5"], ["city=Oslo", "tone=loud"]):
        assert main(["call", "app.py", "forecast", *words, "--json"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        error = orjson.loads(err)  # and no record of a call
        assert error["code"] == "E203"
        assert error["data"]["errors"]


@pytest.mark.rule("CLI-05", "CLI-31", "TIME-02")
def test_command_ends_although_the_tool_hangs(folder: Path) -> None:
    done = run("call", "app.py", "stuck")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the tool failed: TIMEOUT" in done.stderr


@pytest.mark.rule("CLI-20", "CLI-22")
def test_server_without_a_response_times_out(folder: Path, capsys: Captured) -> None:
    tools = {"result": {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]}}
    target = scripted(folder, tools_list=tools, tools_call=None, ping=None)
    assert main(["call", target, "a", "--timeout", "0.5"]) == 3
    assert capsys.readouterr().err.startswith("foundation-rt: E202 ")


@pytest.mark.rule("CLI-22", "CLIENT-36")
def test_server_that_ignores_unknown_methods_is_still_reached_in_time(folder: Path) -> None:
    target = scripted(folder, server_discover=None)
    assert main(["tools", target, "--timeout", "4"]) == 0


@pytest.mark.rule("CLI-17", "CLI-20")
def test_pings_that_are_refused_are_lost(folder: Path, capsys: Captured) -> None:
    refused = {"error": {"code": -32603, "message": "not now"}}
    assert main(["ping", scripted(folder, ping=refused), "--count", "8"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("foundation-rt: E201 not now\n")


@pytest.mark.rule("CLI-20", "CLI-21")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["call", "app.py", "nothing"], "E204"),
        (["read", "app.py", "nothing://"], "E204"),
        (["prompt", "app.py", "nothing"], "E203"),
        (["tools", f"{sys.executable} -c pass"], "E201"),
        (["tools", "http://127.0.0.1:9/mcp"], "E201"),
        (["read", "app.py:other", "a://b"], "E205"),
    ],
)
def test_error_of_a_server_has_a_code(
    folder: Path, words: list[str], code: str, capsys: Captured
) -> None:
    assert main(words) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert f"foundation-rt: {code} " in err
    assert main([*words, "--json"]) == 3
    error = orjson.loads(capsys.readouterr().err.splitlines()[-1])
    assert error["code"] == code
    assert error["suggestedAction"]
    assert error["retryable"] in (True, False)


@pytest.mark.rule("CLI-19", "CLI-20", "CLI-21", "CLI-32")
def test_hostile_text_of_a_server_is_printable(folder: Path, capsys: Captured) -> None:
    schema = {"type": "object", "properties": {"a\x1b[2J": {"description": "\x9b31m"}}}
    tool = {"name": "a\x1b]0;b\x07", "description": "c\rd\u202e", "inputSchema": schema}
    failed = {"content": [{"type": "text", "text": "e\x1b[31m"}], "isError": True}
    target = scripted(
        folder, tools_list={"result": {"tools": [tool, tool, 5]}}, tools_call={"result": failed}
    )
    assert main(["inspect", target]) == 0
    assert main(["tools", target]) == 0
    assert main(["call", target, tool["name"]]) == 1
    printed = "".join(capsys.readouterr())
    assert "a\\x1b]0;b\\x07" in printed
    assert "e\\x1b[31m" in printed
    assert "warning: " in printed
    assert not set(printed) & {"\x1b", "\x07", "\x9b", "\r", "\u202e"}


@pytest.mark.rule("CLI-21", "CLI-33")
def test_warnings_are_not_printed_for_programs(folder: Path, capsys: Captured) -> None:
    target = scripted(folder, tools_list={"result": {"tools": [5, 5]}})
    assert main(["tools", target]) == 0
    assert capsys.readouterr().err.count("the tool is left out") == 1
    assert main(["tools", target, "--json"]) == 0
    assert capsys.readouterr().err == ""


# -- signals, and a reader that has gone


@pytest.mark.rule("CLI-31")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_server_first(folder: Path, number: signal.Signals, code: int) -> None:
    # The server shows by a pipe that it runs, and by its end that it does not any more.
    os.mkfifo("alive")
    script = "import os; held = open('alive', 'wb', 0); held.write(b'.'); os.read(0, 1 << 16)"
    target = shlex.join([sys.executable, "-c", f"{script}; os.read(0, 1)"])
    alive = os.open("alive", os.O_RDONLY | os.O_NONBLOCK)
    runs = select.poll()
    runs.register(alive, select.POLLIN)
    with fork_server.Popen(
        command("tools", target), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert runs.poll(PATIENCE * 1000)
        assert os.read(alive, 1) == b"."
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out, err) == (code, b"", b"")
        assert os.read(alive, 1) == b""  # BlockingIOError if a process still holds it
    os.close(alive)


@pytest.mark.rule("CLI-30")
def test_closed_reader_of_stdout_ends_the_command_quietly(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as stdout:
        done = fork_server.run(
            command("inspect", "app.py"),
            env=environment(),
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
        )
    assert (done.returncode, done.stderr) == (141, b"")


COMMANDS = ["tools app.py", "tools app.py --json", "check app.py", "--help", "--version"]
UNWRITABLE_STDOUT = [(">/dev/full", "No space left on device"), (">&-", "it is closed")]
UNWRITABLE = ("2>&-", "2>/dev/full")


def redirected(words: str, streams: str) -> subprocess.CompletedProcess[bytes]:
    """Run `foundation-rt` with streams as a shell redirects them; none is a terminal."""
    line = f"{shlex.join(command(*words.split()))} {streams}"
    return subprocess.run(
        ["sh", "-c", line],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )


@pytest.mark.rule("CLI-30", "CLI-21")
@pytest.mark.parametrize(
    ("words", "stdout"),
    cases([*zip(COMMANDS, cycle(UNWRITABLE_STDOUT))], [*product(COMMANDS, UNWRITABLE_STDOUT)]),
)
def test_unwritable_stdout_is_reported_in_one_line(
    folder: Path, words: str, stdout: tuple[str, str]
) -> None:
    streams, why = stdout
    done = redirected(words, streams)
    text = f"stdout cannot be written: {why}"
    message = f"foundation-rt: {text}\n".encode()
    if "--json" in words:
        message = orjson.dumps({"code": "OUTPUT", "message": text}) + b"\n"
    assert (done.returncode, done.stdout, done.stderr) == (4, b"", message)
    assert redirected(words, f"{streams} 2>&-").returncode == 4


@pytest.mark.rule("CLI-30")
def test_closed_stdout_sends_no_request(folder: Path) -> None:
    (folder / "loaded.py").write_text("open('asked', 'w')\n")
    assert redirected("call loaded.py shout", ">&-").returncode == 4
    assert not (folder / "asked").exists()
    redirected("call loaded.py shout", "")
    assert (folder / "asked").exists()


@pytest.mark.rule("CLI-30")
@pytest.mark.parametrize(
    ("words", "streams"),
    cases([*zip(COMMANDS, cycle(UNWRITABLE))], [*product(COMMANDS, UNWRITABLE)]),
)
def test_unwritable_stderr_does_not_change_the_result(
    folder: Path, words: str, streams: str
) -> None:
    written, done = redirected(words, "").stdout, redirected(words, streams)
    assert (done.returncode, done.stdout) == (0, written)


@pytest.mark.rule("CLI-30")
@pytest.mark.parametrize(
    ("words", "code", "streams"),
    [
        ("tools nosuch", 2, "2>&-"),
        ("call app.py shout", 2, "2>/dev/full"),
        ("call app.py forecast city=Atlantis", 1, "2>&-"),
        ("nosuch", 2, "2>/dev/full"),
    ],
)
def test_unwritable_stderr_does_not_change_the_exit_code(
    folder: Path, words: str, code: int, streams: str
) -> None:
    done = redirected(words, streams)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


@pytest.mark.rule("CLI-06", "CLI-09")
def test_help_names_every_command(capsys: Captured) -> None:
    assert main(["help"]) == 0
    out = capsys.readouterr().out
    for name in MODULES:
        for form in (load(name), *load(name).within):
            assert form.run is None or f"  {form.shown()}" in out


@pytest.mark.rule("CLI-09", "PROC-08")
def test_serve_does_not_import_the_client_commands(folder: Path) -> None:
    app = "import sys\nfrom foundation_rt import Server\nserver = Server('a')\n"
    app += "@server.tool\ndef loaded() -> list:\n    return sorted(sys.modules)\n"
    (folder / "loaded.py").write_text(app)
    target = ours("loaded.py")
    done = run("call", target, "loaded")
    loaded = set(orjson.loads(done.stdout))
    commands = {name for name in loaded if name.startswith("foundation_rt.cli.")}
    assert commands == {
        "foundation_rt.cli.server_loading",
        "foundation_rt.cli.main",
        "foundation_rt.cli.args",
        "foundation_rt.cli.serve",
        "foundation_rt.cli.command_table",
    }
    assert "argparse" not in loaded
    assert not {name for name in loaded if name.startswith(("foundation_rt.client", "rich"))}
