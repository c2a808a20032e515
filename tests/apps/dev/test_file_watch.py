"""The files of a program, and how they change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foundation_rt.apps.dev import file_watch
from foundation_rt.apps.dev.file_watch import WatchedFiles, changed_files, shown_path


def names(watched: WatchedFiles, folder: Path) -> set[str]:
    return {shown_path(each, folder) for each in watched.stamps()}


@pytest.mark.rule("DEV-11")
def test_source_files_count_and_those_of_environments_do_not(tmp_path: Path) -> None:
    for name in (
        "tools.py",
        "notes.txt",
        "shop/prices.py",
        "shop/page.ts",
        ".git/hook.py",
        "node_modules/lib/index.js",
        "shop/__pycache__/prices.py",
        "env/pyvenv.cfg",
        "env/lib/six.py",
        "data.csv",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    watched = WatchedFiles(
        (tmp_path,), frozenset({tmp_path / "data.csv", tmp_path / "absent.toml"})
    )
    assert names(watched, tmp_path) == {"tools.py", "shop/prices.py", "shop/page.ts", "data.csv"}


@pytest.mark.rule("DEV-11")
def test_every_file_of_a_skill_counts(tmp_path: Path) -> None:
    for name in (
        "pdf/SKILL.md",
        "pdf/dist/form.pdf",
        "pdf/.cache/x",
        "pdf/__pycache__/x.pyc",
        "notes/README.md",
        "dist/other/SKILL.md",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    watched = WatchedFiles((tmp_path,))
    assert names(watched, tmp_path) == {"pdf/SKILL.md", "pdf/dist/form.pdf"}
    before = watched.stamps()
    (tmp_path / "notes" / "SKILL.md").write_text("x")
    (tmp_path / "pdf" / "SKILL.md").unlink()
    changed = {shown_path(each, tmp_path) for each in changed_files(before, watched.stamps())}
    assert changed >= {"notes/README.md", "notes/SKILL.md", "pdf/SKILL.md"}


@pytest.mark.rule("DEV-11")
def test_links_that_lead_in_circles_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    assert names(WatchedFiles((tmp_path,)), tmp_path) == {"tools.py"}


@pytest.mark.rule("DEV-11")
def test_number_of_files_is_bounded_the_nearest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "MAX_FILES", 3)
    (tmp_path / "deep").mkdir()
    for name in ("a.py", "b.py", "deep/c.py", "deep/d.py"):
        (tmp_path / name).write_text("x")
    found = names(WatchedFiles((tmp_path,)), tmp_path)
    assert len(found) == 3
    assert {"a.py", "b.py"} < found


@pytest.mark.rule("DEV-11")
def test_number_of_folders_is_bounded_and_one_that_has_gone_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "MAX_FOLDERS", 3)
    for name in ("a/x.py", "b/x.py", "c/x.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
    watched = WatchedFiles((tmp_path / "gone", tmp_path))
    assert len(names(watched, tmp_path)) == 1


@pytest.mark.rule("DEV-13")
def test_written_made_deleted_and_renamed_files_have_changed(tmp_path: Path) -> None:
    watched = WatchedFiles((tmp_path,))
    for name in ("written.py", "deleted.py", "renamed.py", "same.py"):
        (tmp_path / name).write_text("x")
    before = watched.stamps()
    (tmp_path / "written.py").write_text("longer")
    (tmp_path / "made.py").write_text("x")
    (tmp_path / "deleted.py").unlink()
    (tmp_path / "renamed.py").rename(tmp_path / "now.py")
    changed = [shown_path(each, tmp_path) for each in changed_files(before, watched.stamps())]
    assert changed == ["deleted.py", "made.py", "now.py", "renamed.py", "written.py"]


@pytest.mark.rule("DEV-13")
def test_file_that_is_replaced_by_another_of_its_size_and_time_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "tools.py"
    path.write_text("one")
    os.utime(path, ns=(5, 5))
    watched = WatchedFiles((tmp_path,))
    before = watched.stamps()
    other = tmp_path / "tools.tmp"
    other.write_text("two")
    os.utime(other, ns=(5, 5))
    other.replace(path)
    assert changed_files(before, watched.stamps()) == [os.fspath(path)]


def test_path_elsewhere_is_shown_whole(tmp_path: Path) -> None:
    assert shown_path("/elsewhere/x.py", tmp_path) == "/elsewhere/x.py"
