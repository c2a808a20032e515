"""Files that processes share: locks, private files and folders, files that are replaced."""

from __future__ import annotations

import asyncio
import importlib
import ntpath
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from foundation_rt.base import files
from foundation_rt.base.file_changes import FileWatch
from foundation_rt.base.files import (
    end_turn,
    is_private,
    is_windows_path,
    locked_folder,
    make_private_folder,
    open_below,
    open_private,
    path_below,
    replacing,
    try_lock,
    try_take_turn,
    user_folder,
)
from tests.lab.programs.program import program

ROOT = Path(__file__).parents[2]

HOLDER = """
import os, sys
from foundation_rt.base.files import *
descriptor = open_private(sys.argv[1], os.O_RDWR | os.O_CREAT)
assert {}
print("holds it", flush=True)
sys.stdin.read()
"""


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def holder(path: Path, what: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a process that has a lock of a file; it is killed at the end."""
    return program(HOLDER.format(what), path, says="holds it")


@pytest.mark.rule("WIN-20")
@pytest.mark.parametrize(
    ("held", "shared", "excluded"),
    [
        ("try_lock(descriptor)", False, True),
        ("try_lock(descriptor)", True, True),
        ("try_lock(descriptor, shared=True)", True, False),
        ("try_lock(descriptor, shared=True)", False, True),
        ("try_lock(descriptor) and share(descriptor) is None", True, False),
        ("try_lock(descriptor) and share(descriptor) is None", False, True),
        ("try_lock(descriptor) and unlock(descriptor) is None", False, False),
        ("try_take_turn(descriptor)", False, False),
    ],
)
def test_lock_of_another_process_excludes_until_that_is_killed(
    tmp_path: Path, held: str, shared: bool, excluded: bool
) -> None:
    path = tmp_path / "file"
    with holder(path, held), opened(path) as descriptor:
        assert try_lock(descriptor, shared=shared) is not excluded
    with opened(path) as descriptor:
        assert try_lock(descriptor)
        assert try_take_turn(descriptor)
        end_turn(descriptor)
        end_turn(descriptor)  # the second does nothing


@pytest.mark.rule("WIN-20")
def test_turn_is_of_one_process_and_others_read_a_locked_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with holder(path, "try_lock(descriptor) and try_take_turn(descriptor)"):
        with opened(path) as descriptor:
            assert not try_take_turn(descriptor)
            os.write(descriptor, b"data\n")
        with holder(tmp_path / "other", "try_lock(descriptor)"):
            assert (tmp_path / "other").read_bytes() == b""


@pytest.mark.rule("WIN-20")
def test_folder_that_stays_locked_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PATIENCE_S", 0.05)
    with locked_folder(tmp_path), pytest.raises(TimeoutError, match="locked"):  # noqa: SIM117
        with locked_folder(tmp_path):
            raise AssertionError("two have the lock")
    with locked_folder(tmp_path):
        assert list(tmp_path.iterdir()) == []


@pytest.mark.rule("WIN-21")
def test_file_and_folder_are_their_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "folder"
    make_private_folder(folder)
    make_private_folder(folder)
    (tmp_path / "public").write_bytes(b"")
    (tmp_path / "public").chmod(0o644)
    with opened(tmp_path / "file") as private:
        assert is_private(private)
    if sys.platform != "win32":
        assert folder.stat().st_mode & 0o777 == 0o700
    with opened(tmp_path / "public") as public:
        assert not is_private(public)
    with pytest.raises(NotADirectoryError):
        make_private_folder(tmp_path / "file")


@pytest.mark.rule("WIN-21")
def test_link_is_not_followed_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"data")
    with suppress(OSError):  # Windows asks for a right
        (tmp_path / "link").symlink_to(tmp_path / "target")
    if not (tmp_path / "link").is_symlink():
        pytest.skip("no links can be made here")
    with pytest.raises(OSError):
        open_private(tmp_path / "link", os.O_RDONLY)
    descriptor = open_private(tmp_path / "link", os.O_RDONLY, follow=True)
    assert os.read(descriptor, 10) == b"data"
    os.close(descriptor)


@pytest.mark.rule("WIN-22")
def test_file_is_replaced_whole_while_others_read_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    sizes, stop = set(), threading.Event()

    def read() -> None:
        while not stop.wait(0.001):  # on Windows a file that is always open is not replaced
            with os.fdopen(open_private(path, os.O_RDONLY), "rb") as file:
                sizes.add(len(set(file.read())))

    with replacing(path) as file:
        file.write(b"a" * 5_000)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for each in range(50):
            with replacing(path) as file:
                file.write(bytes([each]) * 5_000)
    finally:
        stop.set()
        reader.join()
    assert sizes == {1}
    assert path.read_bytes() == bytes([49]) * 5_000


@pytest.mark.rule("WIN-22")
def test_file_that_is_not_finished_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


@pytest.mark.rule("WIN-22")
def test_open_private_file_can_be_moved(tmp_path: Path) -> None:
    """The audit file, when it is rotated."""
    with opened(tmp_path / "file") as descriptor:
        (tmp_path / "file").rename(tmp_path / "moved")
        os.write(descriptor, b"line\n")
    assert (tmp_path / "moved").read_bytes() == b"line\n"


@pytest.mark.rule("WIN-23")
def test_folder_of_the_user_is_where_the_system_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert user_folder("data") == tmp_path
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    if sys.platform == "win32":
        assert user_folder("data") == user_folder("state") == tmp_path / "local"
    else:
        assert user_folder("data") == Path.home() / ".local/share"
        assert user_folder("state") == Path.home() / ".local/state"


ATTACKS = [
    *("..\\secret.json", "a\\..\\..\\secret.json", "../secret.json", "..", "."),
    *("C:", "C:secret.json", "Z:..\\secret.json", "\\\\host\\share\\x.json", "//host/share/x.json"),
    *(
        "\\\\?\\C:\\x.json",
        "\\\\.\\pipe\\x.json",
        "\\\\?\\UNC\\host\\share\\x.json",
        "\\/host/x.json",
    ),
    *("x.json:stream", "x.json::$DATA", "x:y/z.json", "folder::$INDEX_ALLOCATION/x.json"),
    *(
        "NUL",
        "nul.json",
        "CON .json",
        "a/COM1.json",
        "lpt9.x.json",
        "COM\u00b9.json",
        "conin$.json",
    ),
    *("x.json.", "x.json ", "folder./x.json", "folder /x.json", ".. /secret.json", "..."),
    *("*.json", "x?.json", "<x.json", "x|.json", 'x".json', "x\n.json"),
]
"""Names that lead elsewhere on Windows, or to what is no file on a disk."""


@pytest.mark.rule("WIN-40")
@pytest.mark.parametrize("name", ATTACKS)
def test_ways_out_of_a_folder_are_refused_as_they_are_written(name: str) -> None:
    place = ntpath.normpath(ntpath.join("C:\\root", name)).lower()
    is_within = place.startswith("c:\\root\\")
    assert not (is_windows_path(name) and is_within)


@pytest.mark.rule("WIN-40")
@pytest.mark.parametrize(
    "name",
    [
        *("x.json", "a/b.json", "a\\b.json", "C:\\root\\x.json", "c:/root/x.json", "a/../x.json"),
        *(
            ".\\x.json",
            "PROGRA~1\\x.json",
            "null.json",
            "com10.json",
            "auxiliary.json",
            "é 中.json",
        ),
    ],
)
def test_usual_names_are_paths_of_windows(name: str) -> None:
    assert is_windows_path(name)


@pytest.mark.rule("WIN-40", "TASKS-40")
def test_only_what_is_below_a_folder_is_opened(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path)) / "Root"
    (root / "a folder").mkdir(parents=True)
    (root / "x.json").write_bytes(b"inside")
    (root / "a folder" / "x.json").write_bytes(b"within")
    (tmp_path / "secret.json").write_bytes(b"secret")
    within = [
        ("x.json", b"inside"),
        ("a folder/../x.json", b"inside"),
        ("a folder/x.json", b"within"),
    ]
    if sys.platform == "win32":
        within += [("A FOLDER\\X.JSON", b"within"), (str(root).upper() + "\\x.json", b"inside")]
        for name in ATTACKS:
            with suppress(OSError):
                assert path_below(root, name) is None
    for name, content in within:
        found = path_below(root, name)
        assert found is not None
        descriptor = open_below(root, found)
        assert os.read(descriptor, 10) == content
        os.close(descriptor)
    assert path_below(root, "../secret.json") is None
    assert path_below(root, str(tmp_path / "secret.json")) is None
    assert path_below(root, ".") is None


@pytest.mark.skipif(sys.platform != "win32", reason="needs junctions")
@pytest.mark.rule("WIN-40")
def test_junction_leads_out_of_a_folder(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path)) / "root"
    outside = tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "x.json").write_bytes(b"secret")
    try:
        importlib.import_module("_winapi").CreateJunction(str(outside), str(root / "away"))
    except OSError as error:
        pytest.skip(f"no junctions here: {error}")
    if not (root / "away" / "x.json").exists():
        pytest.skip("no junctions here")
    assert path_below(root, "away/x.json") is None
    with pytest.raises(OSError):
        open_below(root, root / "away" / "x.json")


@pytest.mark.rule("COORD-44", "HOST-06", "WIN-26")
async def test_watch_notices_changes_since_it_was_made(tmp_path: Path) -> None:
    watched, other = tmp_path / "watched", tmp_path / "other"
    watch = FileWatch([watched, other])
    changes = (
        lambda: watched.write_text("a"),
        lambda: watched.write_text("longer"),
        lambda: other.touch(),
        lambda: watched.unlink(),
    )
    for change in changes:
        change()
        await asyncio.wait_for(watch.changed(), 30)
