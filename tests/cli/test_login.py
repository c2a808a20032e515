"""The commands `login`, `logout` and `whoami`, and what a login is good for."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.cli.main import main
from tests.lab.login.oauth_world import World, running_world, where_it_leads
from tests.lab.servers import fork_server
from tests.lab.servers.http_server import free_port
from tests.lab.servers.process import PATIENCE, command, environment

BROWSER = f"""#!{sys.executable}
import sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=30).read()
"""


class Person:
    """Runs commands, with a home and a browser of their own."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder, self.world = folder, world
        browser = folder / "browser"
        browser.write_text(BROWSER)
        browser.chmod(0o755)
        named = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "BROWSER": f"{browser} %s"}
        self.environment = {**environment(), **named, "SECRET_OF_ME": "the-secret-of-me"}

    def runs(self, *words: str, input: str = "") -> subprocess.CompletedProcess[str]:
        return fork_server.run(
            command(*words),
            env=self.environment,
            cwd=self.folder,
            input=input,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    @property
    def tokens(self) -> list[Path]:
        return [*self.folder.glob("foundation-rt/tokens/*.json")]


@pytest.fixture
def person(tmp_path: Path) -> Any:
    with running_world() as world:
        yield Person(tmp_path, world)


@pytest.mark.rule("CLI-101", "CLI-102", "CLI-103", "CLI-104", "CAUTH-53")
def test_login_serves_other_commands_until_the_logout(person: Person) -> None:
    url, world = person.world.url, person.world
    hint = f"Run: foundation-rt login {url}\n"
    for words in (("tools", url), ("whoami", url), ("logout", url)):
        ran = person.runs(*words)
        assert ran.returncode == 3
        assert "E207 Not logged in to 127.0.0.1:" in ran.stderr
        assert ran.stderr.endswith(hint)
    assert not world.paths("/authorize")
    ran = person.runs("login", url, "--scope", "a", "--scope", "b")
    assert (ran.returncode, ran.stdout.split("\n")[0]) == (0, f"Logged in to {url[7:-4]}.")
    assert world.paths("/authorize")[0].form["scope"] == "a b"
    assert person.runs("call", url, "echo").stdout == "done\n"
    shown = orjson.loads(person.runs("whoami", url, "--json").stdout)
    assert (shown["issuer"], shown["client"], shown["scopes"]) == (
        world.issuer,
        "client-1",
        ["a", "b"],
    )
    secrets = {*world.valid, *world.refreshable}
    assert not [each for each in secrets if each in ran.stdout + ran.stderr + str(shown)]
    assert person.runs("logout", url).stdout == f"Logged out of {url[7:-4]}.\n"
    assert world.is_revoked
    assert person.runs("tools", url).returncode == 3


@pytest.mark.rule("CLI-101", "CLI-102", "CLI-104", "MCPJSON-18")
def test_entry_of_a_file_says_which_client_logs_in(person: Person) -> None:
    url, world = person.world.url, person.world
    oauth = {"clientId": "me", "clientSecret": "${SECRET_OF_ME}", "issuer": world.issuer}
    entry = {"url": url, "oauth": oauth}
    (person.folder / "servers.json").write_text(json.dumps({"mcpServers": {"it": entry}}))
    ran = person.runs("login", "it", "--servers", "servers.json")
    assert ran.returncode == 0, ran.stderr
    assert world.paths("/token")[0].headers["authorization"].startswith("Basic ")
    assert person.runs("call", "it", "--servers", "servers.json", "echo").stdout == "done\n"
    assert person.runs("call", url, "echo").stdout == "done\n"  # the URL alone finds it, too
    assert person.runs("logout", "it", "--servers", "servers.json").stdout.startswith("Logged out")
    assert world.is_revoked
    assert person.runs("login", "it", "--servers", "servers.json").returncode == 0
    world.answers["/revoke"] = (500, b"")
    ran = person.runs("logout", "--all")
    assert "Its token was not revoked" in ran.stdout
    assert not person.tokens


@pytest.mark.rule("CLI-102", "CLI-104")
def test_latest_login_is_used_and_all_of_a_server_end_together(person: Person) -> None:
    url, world = person.world.url, person.world
    assert person.runs("login", url).returncode == 0
    assert person.runs("login", url, "--client-id", "me", "--issuer", world.issuer).returncode == 0
    assert orjson.loads(person.runs("whoami", url, "--json").stdout)["client"] == "me"
    assert person.runs("logout", url).returncode == 0
    assert len(world.paths("/revoke")) == 2
    assert person.runs("whoami", url).returncode == 3
    [client] = person.tokens
    client.chmod(0o644)
    assert person.runs("logout", "--all").returncode == 0
    assert not person.tokens


@pytest.mark.rule("CLI-101")
def test_options_say_which_client_logs_in(person: Person) -> None:
    url, world = person.world.url, person.world
    known = ("--client-id", "me", "--issuer", world.issuer)
    ran = person.runs("login", url, *known, "--client-secret-env", "SECRET_OF_ME", "--json")
    assert orjson.loads(ran.stdout)["client"] == "me"
    assert "the-secret-of-me" not in ran.stdout + ran.stderr
    assert person.runs("call", url, "echo").stdout == "done\n"
    elsewhere = ("--client-id", "me", "--issuer", "https://login.example.com")
    assert (
        "The credentials belong to https://login.example.com"
        in person.runs("login", url, *elsewhere).stderr
    )


@pytest.mark.rule("CLI-101", "CAUTH-52")
def test_person_may_log_in_on_another_device_and_at_a_port_of_their_choice(person: Person) -> None:
    url, world, port = person.world.url, person.world, free_port()
    ran = person.runs("login", url, "--device")
    assert ran.stderr == f"Open {world.issuer}/enter and enter ABCD-EFGH\n"
    assert "Logged in to" in ran.stdout and not world.paths("/authorize")
    assert person.runs("login", url, "--port", str(port)).returncode == 0
    asked = world.paths("/authorize")[0].form
    assert asked["redirect_uri"] == f"http://127.0.0.1:{port}/callback"


@pytest.mark.rule("CLI-102")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--all", "http://127.0.0.1:1/mcp"), "--all goes without a TARGET"),
        ((), "name the TARGET to log out of, or --all"),
    ],
)
def test_logout_is_from_one_server_or_all(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logout", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.rule("CLI-101", "CLI-31")
def test_login_that_is_interrupted_leaves_nothing(person: Person) -> None:
    words = command("login", person.world.url, "--no-browser")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with fork_server.Popen(words, env=person.environment, text=True, **pipes) as ran:
        assert ran.stderr is not None
        assert next(line for line in ran.stderr if "Paste that address" in line)
        ran.send_signal(signal.SIGINT)
        out, err = ran.communicate(timeout=PATIENCE)
    assert (ran.returncode, out, "Traceback" in err) == (3, "", False)
    assert not person.tokens


@pytest.mark.rule("CLI-101")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--client-id", "me"), "a client_id needs issuer"),
        (("--client-secret-env", "NOT_THERE"), "there is no such environment variable"),
        (("--port", "x"), "--port is a number"),
    ],
)
def test_login_that_cannot_be_is_refused(person: Person, words: tuple[str, ...], said: str) -> None:
    ran = person.runs("login", person.world.url, *words)
    assert (ran.returncode, said in ran.stderr) == (2, True)
    assert not person.world.asked


@pytest.mark.rule("CLI-101")
def test_login_goes_with_a_url(person: Person) -> None:
    assert "a login goes with a URL" in person.runs("login", sys.executable).stderr
    person.world.resource = None
    person.world.valid[""] = ""  # everybody may call
    ran = person.runs("login", person.world.url)
    assert "asks for no login" in ran.stderr


@pytest.mark.rule("CLI-101", "CAUTH-51")
def test_answer_is_pasted_without_a_browser(person: Person) -> None:
    words = command("login", person.world.url, "--no-browser")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with fork_server.Popen(words, env=person.environment, text=True, **pipes) as ran:
        assert ran.stderr is not None
        assert ran.stdin is not None
        page = next(line for line in ran.stderr if "http" in line).strip()
        ran.stdin.write(f"{where_it_leads(page)}\n")
        out, _ = ran.communicate(timeout=PATIENCE)
    assert "Logged in to" in out


@pytest.mark.rule("CAUTH-03", "CLI-104")
def test_call_imports_what_its_token_needs(person: Person) -> None:
    url, world = person.world.url, person.world
    world.valid["token-of-me"] = ""
    person.environment["PYTHONPROFILEIMPORTTIME"] = "1"

    def imported(*words: str) -> set[str]:
        done = person.runs("call", url, "echo", *words)
        assert done.returncode == 0, done.stderr
        modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "foundation_rt.client.transports.http_wire" in modules
        return {each.removeprefix("foundation_rt.") for each in modules}

    own = imported("--header", "Authorization: Bearer token-of-me")
    assert not {each for each in own if "client.auth" in each or each == "cli.login"}
    person.runs("login", url)
    stored = imported()
    needed = {"client.auth.authorizer", "client.auth.grants", "client.auth.stores"}
    assert needed <= stored
    late = ("flows", "exchanges", "logins", "proofs", "discovery", "clients")
    assert not stored & {f"client.auth.{each}" for each in late}
