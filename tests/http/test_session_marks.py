"""Marks of sessions that the next worker of a place may restore."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation_rt.http.cluster.worker_group import SessionMarks, digest_of


@pytest.mark.rule("HTTP-62", "HTTP-63", "HTTP-68")
def test_next_worker_takes_each_mark_that_was_left_once(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    first = SessionMarks(folder)
    left, removed, idle = map(digest_of, ("left", "removed", "idle"))
    for each in (left, removed, idle):
        first.add(each)
    first.remove(removed)
    assert not first.take(left)  # its own session: what is not there has ended
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {each.name for each in folder.iterdir()} == {left, idle}

    second = SessionMarks(folder)
    assert [second.take(each) for each in (left, left, removed)] == [True, False, False]
    second.forget_inherited()
    assert not second.take(idle)
    assert {each.name for each in folder.iterdir()} == {left}


@pytest.mark.rule("HTTP-68")
def test_folder_that_cannot_be_written_costs_the_marks_alone(tmp_path: Path) -> None:
    marks = SessionMarks(tmp_path / "0")
    (tmp_path / "0").rmdir()
    marks.add(digest_of("a"))
    marks.remove(digest_of("a"))
    alone = SessionMarks(None)
    alone.add("a")
    alone.remove("a")
    assert not alone.take("a")
