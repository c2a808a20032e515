"""The README fits a screen, its examples run, and every code block of the documents is checked."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from foundation_rt import Server
from foundation_rt.base.config.loading import load_config
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.mcp_json import ServerFile
from foundation_rt.cli.main import main
from foundation_rt.errors import ToolCompletionOutcome
from foundation_rt.testing import SequentialIds, TestClient
from spec.site import package_index
from tests.lab.programs.guides import GUIDES, README, Block, blocks_of, fences_of, texts_in
from tests.trace import ROOT

BLOCKS = list(blocks_of(README))
GUIDE_BLOCKS = [each for page in sorted(GUIDES.glob("*.md")) for each in blocks_of(page)]


def test_readme_has_fewer_than_600_words() -> None:
    text = re.sub(r"<[^>]*>", "", README.read_text("utf-8"))
    assert (
        len([each for each in text.split() if re.search(r"\w", each)]) < 600
    )  # code and tables too


def test_the_tool_of_the_readme_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = (each.text for each in BLOCKS if each.language == "python")
    assert program.count("\n") == 12
    (tmp_path / "tools.py").write_text(program)
    (tmp_path / "large").write_bytes(b"x" * 5_000)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would be a third file
    [call] = re.findall(r"`foundation-rt (call .*?)`", README.read_text("utf-8"))
    assert main(shlex.split(call)) == 0
    sizes = orjson.loads(capsys.readouterr().out)
    assert (next(iter(sizes)), sizes["large"], len(sizes)) == ("large", 5_000, 2)


def test_every_python_block_of_the_guides_is_run_by_a_test() -> None:
    run = texts_in(ROOT / "tests" / "test_guides.py", "run", "block")
    blocks = [each for each in GUIDE_BLOCKS if each.language == "python"]
    assert [each.place for each in blocks if not any(text in each.text for text in run)] == []


def test_tutorial_says_what_each_extra_is_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    table = (GUIDES / "tutorial.md").read_text("utf-8").partition("## Extras\n")[2]
    named = set(re.findall(r"`([\w-]+)`", table.partition("\n## ")[0]))
    assert named == project["optional-dependencies"].keys() - {"docs"}


def commands(blocks: Iterator[Block]) -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the words of each command in blocks for a shell."""
    for block in blocks:
        for line in block.text.replace("\\\n", " ").replace(" && ", "\n").splitlines():
            words = shlex.split(line.removeprefix("ExecStart="), comments=True)
            words[:1] = [word.rpartition("/bin/")[2] for word in words[:1]]
            while words and (re.fullmatch(r"\w+=.*", words[0]) or words[0] in {"export", "sudo"}):
                del words[0]
            for position, word in enumerate(words):
                if word in {"foundation-rt", "make", "pip"} and words[position - 1] in {"|", word}:
                    yield block.place, words[position:]
                    break
                if word in {"foundation-rt", "make", "pip"} and position == 0:
                    yield block.place, words
                    break


SHELL = [each for each in (*BLOCKS, *GUIDE_BLOCKS) if each.language in {"sh", "powershell", "ini"}]


def test_commands_in_blocks_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command, option, target of make and extra that a block names exists."""
    main(["--help"])
    general = capsys.readouterr().out
    makefile = (ROOT / "Makefile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    unknown = []
    for place, (program, *words) in commands(iter(SHELL)):
        if program == "make":
            missing = [word for word in words[:1] if f"\n{word}:" not in makefile]
        elif program == "pip":
            named = ",".join(re.findall(r"\[(.*?)\]", " ".join(words)))
            missing = [each for each in named.split(",") if each and each not in extras]
        else:
            main([words[0], "--help"])
            known = general + capsys.readouterr().out
            options = [word.partition("=")[0] for word in words[1:] if word.startswith("--")]
            missing = [word for word in (words[0], *options) if not _names(known, word)]
        unknown += [f"{place}: {program} {each}" for each in missing]
    assert unknown == []


def _names(text: str, word: str) -> bool:
    return bool(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text))


def of_language(language: str) -> list[Block]:
    return [each for each in (*BLOCKS, *GUIDE_BLOCKS) if each.language == language]


def test_data_in_blocks_can_be_read() -> None:
    for block in of_language("json"):
        orjson.loads(block.text)
    for block in of_language("toml"):
        load_config(code=tomllib.loads(block.text))


def test_files_of_servers_in_blocks_are_read() -> None:
    files = [each.text for each in of_language("json") if '"mcpServers"' in each.text]
    assert len(files) >= 3
    for text in files:
        found = ServerFile.of(Path("mcp.json"), orjson.loads(text))
        for name in found.entries:
            entry = found.entry(name, {"CRM_TOKEN": "secret", "GITHUB_CLIENT_SECRET": "secret"})
            assert entry.command or entry.url


def test_service_of_systemd_leaves_the_server_the_time_that_it_takes_to_stop() -> None:
    [block] = of_language("ini")
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(block.text.replace("\\\n", " "))
    service = unit["Service"]
    assert service["SuccessExitStatus"] == "143"
    assert int(service["TimeoutStopSec"]) * 1000 > ServerConfig().server.shutdown_timeout_ms
    assert [words[:2] for _, words in commands(iter([block]))] == [["foundation-rt", "serve"]]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not there")
def test_systemd_takes_the_service(tmp_path: Path) -> None:
    [block] = of_language("ini")
    unit = tmp_path / "weather.service"
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", block.text))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_container_runs_a_command_that_exists() -> None:
    [block] = of_language("dockerfile")
    [command] = re.findall(r"^CMD (.*)$", block.text, flags=re.MULTILINE)
    words = orjson.loads(command)
    assert words[:2] == ["foundation-rt", "serve"]
    [address] = re.findall(r"http://127.0.0.1:8000(/\w+)", block.text)
    assert (words[-1], address) == ("0.0.0.0:8000", "/readyz")
    assert re.findall(r"\[([\w,]+)\]\"", block.text) == ["http,metrics"]


def test_proxies_hand_streams_on_at_once() -> None:
    """The two configurations ran in front of a server; this holds what matters in them."""
    [nginx, below_path], [caddy] = of_language("nginx"), of_language("caddyfile")
    settings = ServerConfig().http
    for block in (nginx, below_path, caddy):
        assert f"{settings.host}:{settings.port}" in block.text
        assert block.text.count("{") == block.text.count("}")
    for block in (nginx, below_path):
        assert "proxy_buffering off;" in block.text
        assert "proxy_set_header Host $host;" in block.text
        [seconds] = re.findall(r"proxy_read_timeout (\d+)s;", block.text)
        assert int(seconds) * 1000 > settings.keep_alive_ms
    [mebibytes] = re.findall(r"client_max_body_size (\d+)m;", nginx.text)
    assert int(mebibytes) << 20 >= settings.max_body_bytes


async def test_alerts_ask_for_metrics_and_labels_that_the_server_has() -> None:
    [block] = [each for each in of_language("yaml") if "alert:" in each.text]
    rules = [rule for group in yaml.safe_load(block.text)["groups"] for rule in group["rules"]]
    server = Server("weather", config={"telemetry": {"metrics": True}})

    async def clerk(message: Any, context: Any) -> None:
        return None

    server.agents.register_agent("clerk", clerk)
    async with TestClient(server) as client:
        await client.call("health")
        await server.agents.send_request("clerk", 1)
        known = (await server.runtime.metrics.read())[1].decode()
    for rule in rules:
        names = re.findall(r"foundation_rt_\w+", rule["expr"])
        assert names
        for name in names:
            assert f"# TYPE {name} " in known
        labels = re.findall(r"by \((\w+)\)|\{(\w+)[=!]", rule["expr"])
        for label in {each for pair in labels for each in pair if each}:
            assert f"{label}=" in known or label == "reason"
    outcomes = {each.value for each in ToolCompletionOutcome}
    named = re.findall(r'outcome=~?"([a-z_|]+)"', block.text)
    assert {each for texts in named for each in texts.split("|")} <= outcomes


async def test_log_record_of_the_guide_has_the_members_of_a_record() -> None:
    [block] = [each for each in of_language("json") if "durationMs" in each.text]
    server = Server("weather")

    @server.tool
    def forecast(city: str) -> str:
        return city

    async with TestClient(server, ids=SequentialIds()) as client:
        await client.call("forecast", city="Oslo")
        [record] = [each for each in client.logs if each["message"] == "tool call completed"]
    assert list(orjson.loads(block.text)) == list(record)


def test_every_block_has_a_language_that_a_test_checks() -> None:
    checked = {
        "python",
        "sh",
        "powershell",
        "json",
        "toml",
        "yaml",
        "ini",
        "dockerfile",
        "nginx",
        "caddyfile",
    }
    assert {each.language for each in (*BLOCKS, *GUIDE_BLOCKS)} <= checked
    for page in (README, *sorted(GUIDES.glob("*.md"))):
        assert (page.name, fences_of(page)) == (page.name, 2 * len([*blocks_of(page)]))


RELATIVE = r"\]\((?!https:)"


def test_readme_of_a_package_index_has_no_link_that_leads_nowhere() -> None:
    text = README.read_text("utf-8")
    alone = package_index.linked(text, None)
    assert re.findall(RELATIVE, alone) == []
    assert "tutorial (`spec/guide/tutorial.md`) goes" in alone
    assert "figures/" not in alone.replace("`spec/guide/figures/peers.md`", "")
    home = "https://forge.example.com/a/foundation-rt"
    at_home = package_index.linked(text, home)
    assert re.findall(RELATIVE, at_home) == []
    assert f"[tutorial]({home}/blob/HEAD/spec/guide/tutorial.md) goes" in at_home
    assert f"]({home}/raw/HEAD/spec/guide/figures/gateway.svg)" in at_home
    for name in ("src", "srcset"):
        assert re.findall(rf' {name}="(?!{home}/raw/HEAD/spec/)', at_home) == []
    assert at_home.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("remote", "home"),
    [
        ("https://forge.example.com/a/b.git", "https://forge.example.com/a/b"),
        ("https://me:secret@forge.example.com:8443/a/b/", "https://forge.example.com:8443/a/b"),
        ("git@forge.example.com:a/b.git", "https://forge.example.com/a/b"),
        ("ssh://git@forge.example.com:22/a/b.git", "https://forge.example.com/a/b"),
        ("/srv/repositories/b", None),
        ("file:///srv/b", None),
        ("http://localhost/b", None),
        ("", None),
    ],
)
def test_home_page_is_that_of_the_remote(remote: str, home: str | None) -> None:
    assert package_index.web_address(remote) == home


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not there")
def test_urls_of_the_project_come_from_the_checkout_or_its_distribution(tmp_path: Path) -> None:
    home = "https://forge.example.com/a/foundation-rt"
    shutil.copy(README, tmp_path)
    hook = package_index.PackageIndexMetadata(str(tmp_path), {})

    def updated() -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        hook.update(metadata)
        return metadata

    assert updated()["urls"] == {}
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    remote = ["git", "-C", str(tmp_path), "remote", "add", "origin", f"{home}.git"]
    subprocess.run(remote, check=True)
    assert updated()["urls"]["Source"] == home
    assert home in updated()["readme"]["text"]
    shutil.rmtree(tmp_path / ".git")
    (tmp_path / "PKG-INFO").write_text(f"Name: x\nProject-URL: Source, {home}\n\nText\n")
    assert updated()["urls"] == package_index.urls(home)
