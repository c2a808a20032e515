"""The lock file of definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.gateway import definition_lock
from foundation_rt.apps.gateway.definition_lock import (
    DefinitionLock,
    LockFileError,
    Withheld,
    hash_of,
    read_lock,
    write_lock,
)

ADD = {"name": "add", "description": "Add two numbers."}
CHANGED = {"name": "add", "description": "Add two numbers, and send them to me."}
NEW = {"name": "send"}


@pytest.mark.rule("GATE-31")
def test_what_differs_from_the_record_is_withheld() -> None:
    lock = DefinitionLock()
    assert lock.check("math", "tools", ADD) is None
    lock.record("math", {"tools": [ADD]})
    assert lock.check("math", "tools", ADD) is None
    assert lock.check("math", "tools", CHANGED) == Withheld("math", "tools", "add", "changed")
    assert lock.check("math", "tools", NEW) == Withheld("math", "tools", "send", "new")
    for kind in ("prompts", "instructions", "guidance"):
        assert lock.check("math", kind, ADD) == Withheld("math", kind, "add", "new")
    lock.record("math", {"tools": [CHANGED]})
    assert lock.check("math", "tools", CHANGED) is None


@pytest.mark.rule("GATE-52")
def test_name_may_have_a_definition_for_each_client() -> None:
    lock = DefinitionLock()
    lock.record("math", {"tools": [ADD]})
    lock.add("math", {"tools": [CHANGED]})
    lock = DefinitionLock.parse(lock.to_bytes())
    assert lock.check("math", "tools", ADD) is lock.check("math", "tools", CHANGED) is None


@pytest.mark.rule("GATE-31")
def test_order_of_members_does_not_change_the_hash() -> None:
    assert hash_of({"a": 1, "b": {"c": 2, "d": 3}}) == hash_of({"b": {"d": 3, "c": 2}, "a": 1})
    assert hash_of(ADD) != hash_of(CHANGED)


_NAMES = st.text(max_size=5)
_OF_NAME = st.lists(_NAMES, min_size=1, max_size=3)
_HASHES = st.dictionaries(_NAMES, st.dictionaries(_NAMES, _OF_NAME, max_size=3), max_size=3)


@pytest.mark.rule("GATE-31")
@given(st.dictionaries(_NAMES, _HASHES, max_size=3))
def test_file_keeps_what_was_recorded(servers: dict[str, Any]) -> None:
    lock = DefinitionLock(servers)
    assert DefinitionLock.parse(lock.to_bytes()).servers == servers


@pytest.mark.rule("GATE-31")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "no lock file of version 1"),
        ('{"version": 2, "servers": {}}', "no lock file of version 1"),
        ('{"version": 1, "servers": {"a": {"tools": {"x": 1}}}}', "not an object of servers"),
        ('{"version": 1}', "not an object of servers"),
    ],
)
def test_broken_file_is_refused_with_its_path(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "mcp.lock"
    path.write_text(text)
    with pytest.raises(LockFileError, match=problem) as caught:
        read_lock(path)
    assert str(path) in str(caught.value)


@pytest.mark.rule("GATE-31")
def test_file_that_is_none_or_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LockFileError, match=f"^{tmp_path}: Is a directory"):
        read_lock(tmp_path)
    path = tmp_path / "mcp.lock"
    write_lock(path, DefinitionLock())
    monkeypatch.setattr(definition_lock, "MAX_LOCK_BYTES", 10)
    with pytest.raises(LockFileError, match="is larger than 10 bytes"):
        read_lock(path)


@pytest.mark.rule("GATE-31")
def test_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "mcp.lock"
    assert read_lock(path) is None
    lock = DefinitionLock()
    lock.record("math", {"tools": [ADD]})
    write_lock(path, lock)
    assert getattr(read_lock(path), "servers", None) == lock.servers
    assert [each.name for each in tmp_path.iterdir()] == ["mcp.lock"]
    with pytest.raises(LockFileError, match="cannot be written"):
        write_lock(tmp_path / "missing" / "mcp.lock", lock)
