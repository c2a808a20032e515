"""What a folder would run, and what the person has agreed to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.apps.coordinator import plans_of_file
from foundation_rt.base.mcp_json import (
    Agreement,
    ServerFile,
    WaitingEntry,
    agree,
    is_of_folder,
    record_path,
    usual_places,
)
from foundation_rt.base.shell_words import join

ENTRY: Mapping[str, Any] = {
    "command": "npx",
    "args": ["-y", "${PACKAGE:-notes}"],
    "env": {"TOKEN": "${TOKEN}"},
}
PERSON = {"TOKEN": "secret", "PACKAGE": "theirs"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, which is not the home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    here = tmp_path / "project"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def waiting(
    entry: Any = ENTRY,
    path: Path = Path("mcp.json"),
    name: str = "notes",
    environment: Mapping[str, str] = PERSON,
    **options: Any,
) -> list[WaitingEntry]:
    file = ServerFile(path, {name: entry})
    return Agreement(environment=environment, **options).waiting(file)


@pytest.mark.rule("MCPJSON-12")
@pytest.mark.parametrize(
    "change",
    [
        {"command": "./npx"},
        {"args": ["-y", "other"]},
        {"env": {"TOKEN": "${TOKEN}", "NODE_OPTIONS": "--require ./x.js"}},
        {"cwd": "below"},
        {"command": None, "args": None, "url": "https://example.com/mcp"},
        {"command": None, "url": "https://example.com/mcp", "headers": {"A": "${TOKEN}"}},
        {"alwaysAllow": ["*"]},
        {"trust": True},
        {"disabledTools": []},
    ],
    ids=str,
)
def test_entry_that_differs_is_asked_again(change: dict[str, Any]) -> None:
    agree(waiting())
    assert waiting() == []
    assert len(waiting({**ENTRY, **change})) == 1


@pytest.mark.rule("MCPJSON-12")
def test_times_and_other_values_of_the_environment_are_not_asked_for() -> None:
    agree(waiting())
    assert waiting({**ENTRY, "timeoutMs": 5, "description": "mine", "cwd": None}) == []
    assert waiting(environment={"TOKEN": "rotated"}) == []
    assert waiting({**ENTRY, "disabled": True}, name="other") == []
    assert waiting({"command": 5}) == waiting("x") == []  # they cannot start
    assert waiting({"command": "${1}"}) == []


@pytest.mark.rule("MCPJSON-11")
def test_entry_that_lacks_a_variable_waits_as_the_others_do(folder: Path) -> None:
    entry = {"command": "npx", "args": ["${UNSET}"]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"a": entry}}))
    file = Path("mcp.json")
    problem = str(plans_of_file(file, Agreement())["a"].problem)
    assert "UNSET" in problem and "; it waits until you agree" in problem
    agree(waiting(entry, name="a"))
    assert "waits" not in str(plans_of_file(file, Agreement())["a"].problem)
    assert waiting(entry, name="a", environment={"UNSET": "x"}) == []


@pytest.mark.rule("MCPJSON-16")
def test_entry_of_the_home_runs_in_the_home(folder: Path) -> None:
    def cwd_of(path: Path, **entry: str) -> str | None:
        file = ServerFile(path, {"a": {"command": "x", **entry}})
        return file.entry("a", {}).cwd

    places = [*usual_places(Path(), Path.home())]
    of_folder, (cursor, *others) = places[:4], places[4:]
    assert {cwd_of(each) for each in (cursor, *others)} == {str(Path.home())}
    assert {cwd_of(each) for each in (*of_folder, Path("servers.json"))} == {None}
    assert cwd_of(cursor, cwd="/x") == "/x"


@pytest.mark.rule("CLI-84")
@pytest.mark.parametrize(
    ("entry", "target", "hidden"),
    [
        ({"command": "npx", "env": {"API_TOKEN": "${A_TOKEN}"}}, "npx", True),
        ({"url": "http://x", "headers": {"Authorization": "Bearer ${A_TOKEN}"}}, "http://x", True),
        ({"command": "npx", "env": {"NODE_OPTIONS": "${A_TOKEN}"}}, "npx", False),
        (
            {"command": "sh", "args": ["-c", "${A_TOKEN:-x}"]},
            join(["sh", "-c", "touch ran"]),
            False,
        ),
        ({"command": "a", "cwd": "${A_TOKEN}/${B}"}, "a (in touch ran/${B})", False),
        ({"url": "http://${A_TOKEN}"}, "http://touch ran", False),
    ],
    ids=str,
)
def test_secret_of_the_folder_is_hidden_only_where_secrets_go(
    entry: dict[str, Any], target: str, hidden: bool
) -> None:
    [found] = waiting(entry, from_folder={"A_TOKEN": "touch ran"})
    assert (found.target, bool(found.hidden)) == (target, hidden)


@pytest.mark.rule("MCPJSON-17")
def test_file_that_an_entry_runs_is_not_asked_about_again(folder: Path) -> None:
    agree(waiting({"command": "./server.sh"}))
    (folder / "server.sh").write_text("touch other")
    assert waiting({"command": "./server.sh"}) == []


@pytest.mark.rule("MCPJSON-12")
def test_values_of_the_folder_are_a_part_of_the_entry() -> None:
    given = waiting(environment={}, from_folder={"TOKEN": "a", "OTHER": "b"})
    assert [(each.from_folder, each.from_person) for each in given] == [({"TOKEN": "a"}, ())]
    agree(given)
    assert waiting(environment={}, from_folder={"TOKEN": "a"}) == []
    assert waiting(environment={}, from_folder={"TOKEN": "b"}) != []
    assert waiting(environment={}, from_folder={"TOKEN": "a", "PACKAGE": "./x"}) != []
    tricky = {"command": "${env:workspaceFolder}"}  # the variable, not what editors mean by it
    agree(waiting(tricky, from_folder={"workspaceFolder": "a"}))
    assert waiting(tricky, from_folder={"workspaceFolder": "b"}) != []


@pytest.mark.rule("MCPJSON-12")
def test_folder_that_was_moved_or_reached_from_elsewhere_is_asked_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "mcp.json"
    agree(waiting(path=path))
    assert waiting() == waiting(path=path) == []
    assert waiting(name="other") != []
    assert waiting(path=folder / ".vscode" / "mcp.json") != []
    (folder.parent / "other").mkdir()
    monkeypatch.chdir(folder.parent / "other")  # relative commands are others there
    assert waiting() != [] and waiting(path=path) != []


@pytest.mark.rule("MCPJSON-15")
def test_files_of_the_home_are_not_the_folders(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")
    assert all(is_of_folder(Path(each)) for each in places)
    assert not is_of_folder(Path("servers.json"))
    assert not is_of_folder(Path.home() / ".cursor" / "mcp.json")
    for name in "HOME", "USERPROFILE":
        monkeypatch.setenv(name, str(folder))
    assert not any(is_of_folder(Path(each)) for each in places)


@pytest.mark.rule("MCPJSON-13")
@pytest.mark.parametrize(
    ("entry", "waits"),
    [
        ({"command": "npx", "env": {"TOKEN": "${TOKEN}"}}, False),
        ({"command": "npx", "env": {"PYTHONPATH": "${FOLDER:-}"}}, True),
        ({"url": "https://example.com", "headers": {"A": "${FOLDER}"}}, True),
        ({"command": "${FOLDER}"}, True),
        ({"command": "npx", "args": ["${FOLDER:-x}"]}, True),
        ({"url": "https://${FOLDER}/mcp"}, True),
        ({"command": "npx", "env": {"URL": "${FOLDER}", "TOKEN": "${env:TOKEN}"}}, True),
    ],
)
def test_folder_steers_no_entry_of_a_file_that_the_person_named(
    entry: dict[str, Any], waits: bool
) -> None:
    found = waiting(entry, is_named=True, from_folder={"FOLDER": "x.example"})
    assert bool(found) is waits


@pytest.mark.rule("MCPJSON-14")
def test_record_is_the_users_alone() -> None:
    agree(waiting())
    assert record_path().stat().st_mode & 0o777 == 0o600
    record_path().chmod(0o644)
    assert waiting() != []
    agree(waiting())
    assert waiting() == [] and record_path().stat().st_mode & 0o777 == 0o600


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def _fill(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 16)


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.rule("MCPJSON-14")
@pytest.mark.parametrize("spoil", [_cut, _fill, _link])
def test_damaged_record_is_no_agreement(spoil: Callable[[Path], None]) -> None:
    agree(waiting())
    spoil(record_path())
    assert waiting() != []
    if not record_path().is_symlink():
        agree(waiting())
        assert waiting() == []


@pytest.mark.rule("MCPJSON-14")
def test_agreements_at_once_are_all_kept() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: agree(waiting(name=f"s{each}")), range(64)))
    assert [each for each in range(64) if waiting(name=f"s{each}")] == []
    lines = record_path().read_text().split("\n")
    assert sorted(json.loads(each[65:])[0] for each in lines if each) == sorted(
        f"s{each}" for each in range(64)
    )
