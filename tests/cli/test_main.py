"""The command line: its output, its streams and its exit codes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import orjson
import pytest

from foundation_rt import Server, __version__
from foundation_rt.cli.command_table import load
from foundation_rt.cli.help import guide_text
from foundation_rt.cli.main import main
from foundation_rt.http.cluster.worker_processes import WorkerPlace
from tests.lab.servers.process import PATIENCE, environment, run, serve

ONE = """
from foundation_rt import ErrorCode, Server

server = Server("one", version="7.8.9")


@server.tool
async def forecast(city: str, days: int = 3) -> dict:
    '''Forecast for a city.'''
    return {"city": city, "days": days}

"""

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with an app in it, without other configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in os.environ:
        if name.startswith("FOUNDATION_RT_"):
            monkeypatch.delenv(name)
    (tmp_path / "app.py").write_text(ONE)
    return tmp_path


# -- the command line itself ---------------------------------------------------------------------


@pytest.mark.rule("CLI-06")
@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["help", "help"]])
def test_help_shows_commands_and_examples(words: list[str], capsys: Captured) -> None:
    assert main(words) == 0
    out, err = capsys.readouterr()
    for shown in ("serve [APP]", "check [APP]", "call TARGET TOOL", "help COMMAND", "--version"):
        assert shown in out
    assert "examples:" in out
    assert "foundation-rt call tools.py forecast" in out
    assert err == ""


@pytest.mark.rule("CLI-106")
def test_guide_is_short_and_its_commands_run(folder: Path, capsys: Captured) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == "" and len(lines) <= 25 and all(len(line) <= 80 for line in lines)
    begin, end = out.index("   from foundation_rt"), out.index("2. ")
    (folder / "tools.py").write_text(textwrap.dedent(out[begin:end]))
    guided = [line for line in lines if line.startswith("   foundation-rt ")]
    commands = [shlex.split(line, comments=True)[1:] for line in guided]
    names = ["check", "call", "dev", "serve", "install", "gateway", "host", "task-server"]
    assert [name for name, *_ in commands] == names
    for name, *words in commands:
        load(name).parse(words)
    assert [main(words) for words in commands[:2]] == [0, 0]
    assert capsys.readouterr().out.endswith("Sun in Oslo.\n")


@pytest.mark.rule("CLI-106")
def test_guide_has_colours_for_a_terminal_alone() -> None:
    plain, coloured = guide_text(coloured=False), guide_text(coloured=True)
    assert "\x1b" not in plain and coloured.count("\x1b[1m") == 6
    assert re.sub(r"\x1b\[\d*m", "", coloured) == plain


@pytest.mark.rule("CLI-06")
def test_version(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr() == (f"foundation-rt {__version__}\n", "")


@pytest.mark.rule("CLI-06", "CLI-07", "CLI-08")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["conquer"], "no command 'conquer'"),
        (["--conquer"], "no command '--conquer'"),
        (["serve", "--conquer"], "no option '--conquer'"),
        (["serve", "app.py", "-c"], "no option '-c'"),
        (["serve", "--config"], "--config needs FILE"),
        (["serve", "app.py", "other.py"], "'other.py' is one argument too many"),
        (["serve", "--transport", "pigeon"], "--transport is stdio, http or both"),
        (["serve", "--no-auth"], "--no-auth goes with --transport http or both"),
        (["serve", "--workers=2"], "--workers goes with --transport http or both"),
        (
            ["serve", "--transport", "both", "--workers", "2"],
            "--workers goes with --transport http",
        ),
        (["serve", "--http", "a", "--workers", "0"], "--workers is a number from 1 to 256"),
        (["serve", "--http", "a", "--workers", "two"], "--workers is a number from 1 to 256"),
        (["serve", "--http", "a:b"], "--http is HOST:PORT, not 'a:b'"),
        (["serve", "--http", "127.0.0.1:123456"], "--http is HOST:PORT"),
        (["serve", "--http"], "--http needs HOST:PORT"),
        (["serve", "--http", "::1:80"], "an IPv6 address stands in brackets: --http [::1:80]"),
        (["gateway", "--demo", "app.py"], "--demo goes without a FILE or TARGET"),
        (["gateway", "accept", "app.py"], "accept needs --lock FILE"),
        (["check", "--http", "a:1"], "no option '--http'"),
        (["check", "app.py", "other.py"], "'other.py' is one argument too many"),
        (["call"], "call needs TARGET and TOOL"),
        (["call", "app.py"], "call needs TARGET and TOOL"),
        (["read", "app.py"], "read needs TARGET and URI"),
        (["prompt", "app.py"], "prompt needs TARGET and NAME"),
        (["inspect"], "inspect needs TARGET"),
        (["tools", "app.py", "forecast"], "'forecast' is one argument too many"),
        (["tools", "app.py", "--conquer"], "no option '--conquer'"),
        (["serve", "--json"], "no option '--json'"),
    ],
)
def test_a_wrong_command_line_is_refused(words: list[str], message: str, capsys: Captured) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("foundation-rt: ")
    assert message in err
    assert "--help" in err
    assert err.count("\n") == 1


@pytest.mark.rule("CLI-07", "CLI-08")
@pytest.mark.parametrize(
    ("words", "settings", "with_stdio"),
    [
        (["--http", "0.0.0.0:80"], {"host": "0.0.0.0", "port": 80}, False),
        (["--http=:80", "--no-auth"], {"port": 80, "no_auth": True}, False),
        (["--http", "[::1]:80", "--workers", "1"], {"host": "::1", "port": 80}, False),
        (["--http", "localhost"], {"host": "localhost"}, False),
        (["--http", "[::1]"], {"host": "::1"}, False),
        (["--http", "7301"], {"port": 7301}, False),
        (["--transport", "http"], {}, False),
        (["--transport=both", "--http", "127.0.0.1:0"], {"host": "127.0.0.1", "port": 0}, True),
    ],
)
def test_http_options_become_settings(
    words: list[str],
    settings: dict[str, object],
    with_stdio: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[object] = []

    def serve_over_http(server: Server, settings: object, descriptors: object = None) -> int:
        served.extend((settings, descriptors is not None))
        return 0

    monkeypatch.setattr("foundation_rt.cli.serve.serve_over_http", serve_over_http)
    monkeypatch.setattr("foundation_rt.cli.serve.load_isolated", lambda load: (load(), served))
    assert main(["serve", *words]) == 0
    assert served == [settings, with_stdio]


@pytest.mark.rule("HTTP-23")
def test_workers_are_given_the_same_command_line_and_start_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[object] = []

    def keep_workers(words: object, count: int) -> int:
        kept.extend((words, count))
        return 0

    def serve_over_http(server: Server, settings: object) -> int:
        kept.append("served")
        return 0

    monkeypatch.setattr("foundation_rt.http.cluster.worker_processes.keep_workers", keep_workers)
    monkeypatch.setattr("foundation_rt.cli.serve.serve_over_http", serve_over_http)
    words = ["serve", "--http", "127.0.0.1:1", "--workers", "3"]
    assert main(words) == 0
    assert kept == [words, 3]
    place = WorkerPlace("00" * 32, "ab", 1, "/nowhere")
    monkeypatch.setattr("foundation_rt.http.cluster.worker_processes.worker_place", lambda: place)
    assert main(words) == 0
    assert kept[2:] == ["served"]


@pytest.mark.rule("CLI-06")
def test_the_module_and_the_console_script_are_the_same_command() -> None:
    script = Path(sys.executable).with_name("foundation-rt")
    assert script.exists()
    for words in ([str(script)], [sys.executable, "-m", "foundation_rt"]):
        done = subprocess.run(
            [*words, "conquer"], env=environment(), capture_output=True, timeout=PATIENCE
        )
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"no command 'conquer'" in done.stderr


# -- serve ---------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-01")
def test_serve_without_an_app_serves_the_demo_tools() -> None:
    with serve() as server:
        tools = server.request("tools/list")["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["echo", "health", "sleep"]
        assert server.call("echo", message="hello") == {"message": "hello"}
        assert server.call("sleep", ms=1) == {"sleptMs": 1}
        assert server.finish() == 0


@pytest.mark.rule("CLI-01", "CLI-02", "CONF-02")
@pytest.mark.parametrize("form", ["--config {}", "--config={}"])
def test_serve_takes_an_app_and_a_configuration(folder: Path, form: str) -> None:
    (folder / "settings.toml").write_text('[server]\nname = "from a file"\n')
    handshake = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x"}}'
    options = form.format("settings.toml").split()
    done = run("serve", *options, "app.py:server", input=handshake)
    assert done.returncode == 0
    [answer] = map(orjson.loads, done.stdout.splitlines())
    assert answer["result"]["serverInfo"] == {"name": "from a file", "version": "7.8.9"}


BROKEN = {
    "syntax.py": "def :\n",
    "empty.py": "x = 5\n",
    "two.py": "from foundation_rt import Server\na = Server('a')\nb = Server('b')\n",
    "unguarded.py": "from foundation_rt import Server\nserver = Server('a')\nserver.run()\n",
    "leaving.py": "import sys\nsys.exit(3)\n",
    "needy.py": "import no_such_dependency\n",
}


@pytest.mark.rule("CLI-02", "CLI-03", "CLI-04")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.py", "no file nowhere.py"),
        ("no_such_module", "no module 'no_such_module'"),
        ("syntax.py", "SyntaxError"),
        ("empty.py", "no foundation_rt.Server"),
        ("two.py", "several servers (a, b)"),
        ("app.py:absent", "'absent'"),
        ("app.py:ErrorCode", "'ErrorCode'"),
        ("unguarded.py", '`if __name__ == "__main__":`'),
        ("leaving.py", "sys.exit(3)"),
        ("needy.py", "no_such_dependency"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_refused(
    folder: Path, target: str, message: str, capsys: Captured
) -> None:
    for name, source in BROKEN.items():
        (folder / name).write_text(source)
    for words in (["serve", target], ["check", target]):
        assert main(words) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("foundation-rt: ")
        assert message in err
        assert "Traceback" not in err


@pytest.mark.rule("CLI-02", "CLI-03")
@pytest.mark.parametrize(
    ("target", "message", "lines"),
    [
        ("nowhere.py", "no file nowhere.py", 1),
        ("unguarded.py", '`if __name__ == "__main__":`', 4),
    ],
)
def test_serve_says_on_stderr_why_it_does_not_start(
    folder: Path, target: str, message: str, lines: int
) -> None:
    (folder / "unguarded.py").write_text(BROKEN["unguarded.py"])
    done = run("serve", target)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == lines


@pytest.mark.rule("CONF-04", "CLI-01", "CLI-04")
@pytest.mark.parametrize("words", [["serve"], ["check", "app.py"]])
def test_every_problem_of_the_configuration_is_listed(folder: Path, words: list[str]) -> None:
    (folder / "bad.toml").write_text(
        '[tools]\ndefault_timeout_ms = "soon"\nmax_paylod_bytes = 5\n[nonsense]\nx = 1\n'
    )
    settings = {"resources.max_concurrent_executions": 0, "logging.level": "loud"}
    done = run(*words, "--config", "bad.toml", settings=settings)
    assert (done.returncode, done.stdout) == (1, "")
    for message in (
        "tools.default_timeout_ms",
        "max_paylod_bytes",
        "max_payload_bytes",
        "nonsense",
        "resources.max_concurrent_executions",
        "FOUNDATION_RT_RESOURCES__MAX_CONCURRENT_EXECUTIONS",
        "logging.level",
        "loud",
    ):
        assert message in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.rule("CONF-13", "CLI-01", "CLI-04")
@pytest.mark.parametrize("words", [["serve"], ["check"], ["serve", "app.py"]])
def test_a_configuration_file_that_is_not_there_is_named(
    folder: Path, words: list[str], capsys: Captured
) -> None:
    assert main([*words, "--config", "nowhere.toml"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "nowhere.toml" in err
    assert "Traceback" not in err


@pytest.mark.rule("CLI-02", "PROC-04")
def test_a_file_can_run_itself(folder: Path) -> None:
    script = folder / "itself.py"
    script.write_text(ONE + "\nif __name__ == '__main__':\n    server.run()\n")
    lines = [
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x"}}',
        '{"jsonrpc":"2.0","method":"initialized"}',
        '{"jsonrpc":"2.0","id":2,"method":"tools/call",'
        '"params":{"name":"forecast","arguments":{"city":"Oslo"}}}',
    ]
    done = subprocess.run(
        [sys.executable, str(script)],
        input="\n".join(lines),
        env=environment({"server.eof_grace_ms": 10_000}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0
    first, second = map(orjson.loads, done.stdout.splitlines())
    assert first["result"]["serverInfo"]["name"] == "one"
    content = second["result"]["content"]
    assert orjson.loads(content[0]["text"]) == {"city": "Oslo", "days": 3}


@pytest.mark.rule("CONF-04", "CLI-02")
def test_a_file_that_runs_itself_tells_of_a_bad_configuration(folder: Path) -> None:
    script = folder / "itself.py"
    script.write_text(ONE + "\nserver.run('nowhere.toml')\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        stdin=subprocess.DEVNULL,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "ConfigError" in done.stderr
    assert "nowhere.toml" in done.stderr


# -- check ---------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-04", "CONF-05", "CONF-19")
def test_check_prints_tools_and_configuration(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "settings.json").write_text('{"tools": {"default_timeout_ms": 4321}}')
    monkeypatch.setenv("FOUNDATION_RT_TOOLS__ADMIN_POLICY__TOKEN_ENV_VAR", "HUSH")
    assert main(["check", "app.py", "--config", "settings.json", "--json"]) == 0
    out, err = capsys.readouterr()
    report = orjson.loads(out)
    assert report["server"] == {"name": "one", "version": "7.8.9"}
    tools = {tool["name"]: tool for tool in report["tools"]}
    assert sorted(tools) == ["forecast", "health"]
    assert tools["forecast"]["description"] == "Forecast for a city."
    assert tools["forecast"]["inputSchema"]["properties"]["days"]["type"] == "integer"
    assert report["configuration"]["tools"]["default_timeout_ms"] == 4321
    assert report["configuration"]["tools"]["admin_policy"]["token_env_var"] == "[REDACTED]"
    assert "HUSH" not in out
    assert err == ""


@pytest.mark.rule("CLI-04")
def test_check_without_an_app_checks_the_demo_tools(folder: Path, capsys: Captured) -> None:
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert [name for name in ("echo", "health", "sleep") if f"\n{name} " in out] == [
        "echo",
        "health",
        "sleep",
    ]


# -- errors of a program -------------------------------------------------------------------------


NESTED = {
    "needy.py": "import helpers\n",
    "helpers.py": "def load():\n    import no_such_dependency\n\n\nload()\n",
    "outer.py": "import syntax\n",
    "syntax.py": "def :\n",
    "raising.py": "import json\n\njson.loads('{')\n",
    "unfit.py": (
        "from foundation_rt import Server\nserver = Server('a')\n\n"
        "@server.tool\ndef add(x: complex) -> int:\n    return 1\n"
    ),
    "deep.py": "def down(n):\n    return down(n - 1) if n else 1 / 0\n\n\ndown(50)\n",
}
PLACES = {
    "needy.py": ["  needy.py:1", "  helpers.py:5", "  helpers.py:2 load"],
    "outer.py": ["  outer.py:1", "  syntax.py:1"],
    "raising.py": ["  raising.py:3"],
    "unfit.py": ["  unfit.py:4"],
    "deep.py": ["  ... 44 more", *["  deep.py:2 down"] * 8],
}
SOURCES = {
    "needy.py": "import no_such_dependency",
    "outer.py": "def :",
    "raising.py": "json.loads('{')",
    "unfit.py": "@server.tool",
    "deep.py": "return down(n - 1) if n else 1 / 0",
}


@pytest.fixture
def broken(folder: Path) -> Path:
    for name, source in NESTED.items():
        (folder / name).write_text(source)
    return folder


@pytest.mark.rule("CLI-57")
@pytest.mark.parametrize("target", PLACES)
def test_an_error_of_a_program_names_the_authors_places(
    broken: Path, target: str, capsys: Captured
) -> None:
    assert main(["serve", target]) == 1
    out, err = capsys.readouterr()
    message, *lines = err.splitlines()
    assert out == "" and message.startswith(f"foundation-rt: {target}")
    assert lines == [*PLACES[target], f"    {SOURCES[target]}", "--traceback shows all of it"]


@pytest.mark.rule("CLI-57")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["serve", "raising.py", "--traceback"], 1),
        (["check", "--traceback", "raising.py"], 1),
        (["tools", "raising.py", "--traceback"], 2),
        (["gateway", "raising.py", "--traceback"], 1),
        (["install", "cursor", "raising.py", "--traceback"], 1),
    ],
)
def test_traceback_shows_every_frame(
    broken: Path, words: list[str], code: int, capsys: Captured
) -> None:
    assert main(words) == code
    err = capsys.readouterr().err
    assert err.startswith("foundation-rt: raising.py cannot be imported: JSONDecodeError")
    assert "Traceback (most recent call last):" in err
    assert "json/decoder.py" in err and "server_loading.py" in err
    assert "--traceback shows" not in err


@pytest.mark.rule("CLI-57", "CLI-21")
@pytest.mark.parametrize(("command", "code"), [("tools", 2), ("check", 1)])
def test_an_error_of_a_program_as_json_names_file_and_line(
    broken: Path, command: str, code: int, capsys: Captured
) -> None:
    assert main([command, "needy.py", "--json"]) == code
    error = orjson.loads(capsys.readouterr().err)
    assert (error["code"], error["line"]) == ("USAGE", 2)
    assert error["file"] == str(broken / "helpers.py")
