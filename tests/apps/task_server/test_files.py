"""Files that a client has the server read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foundation_rt import ToolError
from foundation_rt.apps.task_server.tools.batches import read_task_file

TASKS = '[{"title": "Write"}]'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "inner").mkdir(parents=True)
    (folder / "tasks.json").write_text(TASKS)
    (folder / "inner" / "tasks.json").write_text('{"tasks": [{"title": "Write"}], "other": 1}')
    (folder / "marked.json").write_text(TASKS, "utf-8-sig")
    (tmp_path / "secret.json").write_text(TASKS)
    (folder / "link.json").symlink_to("inner/tasks.json")
    (folder / "out.json").symlink_to("../secret.json")
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "away").symlink_to(tmp_path)
    (folder / "folder.json").mkdir()
    (folder / "secret words.json").write_text("[{secret words")
    (folder / "number.json").write_text("5")
    (folder / "latin.json").write_bytes(b'["\xe9"]')
    (folder / "large.json").write_text("[" + " " * 1000 + "]")
    os.mkfifo(folder / "fifo.json")
    return folder


@pytest.mark.rule("TASKS-40", "TASKS-42")
@pytest.mark.parametrize(
    "name", ["tasks.json", "inner/tasks.json", "link.json", "inner/../tasks.json", "marked.json"]
)
def test_file_below_the_root_is_read(root: Path, name: str) -> None:
    assert read_task_file(name, str(root), 1000) == [{"title": "Write"}]
    assert read_task_file(str(root / name), str(root), 1000) == [{"title": "Write"}]


@pytest.mark.rule("TASKS-40", "TASKS-41")
@pytest.mark.parametrize(
    "name",
    [
        "../secret.json",
        "out.json",
        "away/secret.json",
        "/dev/zero.json",
        "../root.json",
        "../../x.json",
    ],
)
def test_file_outside_the_root_is_refused(root: Path, name: str) -> None:
    with pytest.raises(ToolError) as caught:
        read_task_file(name, str(root), 1000)
    assert caught.value.code == "UNAUTHORIZED"
    assert caught.value.details == {"reason": "outside_file_root"}


@pytest.mark.rule("TASKS-41")
def test_without_a_root_no_file_is_read(root: Path) -> None:
    with pytest.raises(ToolError) as caught:
        read_task_file(str(root / "tasks.json"), None, 1000)
    assert caught.value.code == "UNAUTHORIZED"
    assert caught.value.details == {"reason": "file_root_not_set"}


@pytest.mark.rule("TASKS-42")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fifo.json", "not_a_file"),
        ("folder.json", "not_a_file"),
        ("missing.json", "unreadable"),
        ("missing/tasks.json", "unreadable"),
        ("tasks.json/tasks.json", "unreadable"),
        ("loop.json", "unreadable"),
        ("\ud800.json", "unreadable"),
        ("tasks.txt", "not_json_file"),
        ("tasks\0.json", "not_json_file"),
        ("secret words.json", "not_json"),
        ("latin.json", "not_json"),
        ("number.json", "no_tasks"),
        ("large.json", "file_too_large"),
    ],
)
def test_what_is_no_file_of_tasks_is_refused(root: Path, name: str, reason: str) -> None:
    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ToolError) as caught:
        read_task_file(name, str(root), 1000)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.details == {"reason": reason, "pointer": "/filePath"}
    assert "secret" not in caught.value.message
    assert len(os.listdir("/proc/self/fd")) == open_before
