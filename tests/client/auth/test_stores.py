"""Stores of tokens: files that only their owner reads, whole at all times, shared by processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.client import connect
from foundation_rt.client.auth.descriptions import OAuth, StoreKey, TokenStore
from foundation_rt.client.auth.stores import FileTokenStore, MemoryTokenStore, usual_folder
from foundation_rt.errors import UsageError
from tests.lab.login.oauth_world import World, log_in
from tests.lab.servers import fork_server

KEY = StoreKey("https://mcp.example.com/mcp")
PATIENCE = 120.0


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TokenStore:
    return MemoryTokenStore() if request.param == "memory" else FileTokenStore(tmp_path / "tokens")


@pytest.mark.rule("CAUTH-40")
async def test_entries_are_kept_by_resource_issuer_and_client(store: TokenStore) -> None:
    keys = [KEY, StoreKey(KEY.resource, "https://a"), StoreKey(KEY.resource, "https://a", "me")]
    for number, key in enumerate(keys):
        await store.save(key, {"number": number})
    await store.save(KEY, {"number": 5})
    assert [await store.load(key) for key in keys] == [{"number": n} for n in (5, 1, 2)]
    await store.delete(keys[1])
    await store.delete(keys[1])
    assert await store.load(keys[1]) is None


@pytest.mark.rule("CAUTH-32")
async def test_lock_of_a_key_is_held_by_one(store: TokenStore) -> None:
    inside = most = 0

    async def work() -> None:
        nonlocal inside, most
        async with store.lock(KEY):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.005)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(8)))
    assert most == 1
    async with store.lock(KEY), store.lock(StoreKey("https://other.example.com")):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), store.lock(KEY):
                raise AssertionError("two have the lock")


@pytest.mark.rule("CAUTH-42")
async def test_files_are_their_owners_alone(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = FileTokenStore()
    assert store.folder == tmp_path / "foundation-rt" / "tokens" == usual_folder()
    await store.save(KEY, {"a": 1})
    async with store.lock(KEY):
        pass
    assert store.folder.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in store.folder.iterdir()} == {0o600}
    assert store.stored_keys() == [KEY]
    [path] = store.folder.glob("*.json")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="can be read by others"):
        await store.load(KEY)
    store.folder.chmod(0o755)
    await store.save(KEY, {"a": 2})
    assert await store.load(KEY) == {"a": 2}
    assert store.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.rule("CAUTH-44")
def test_store_in_memory_serves_clients_of_any_thread() -> None:
    store, together = MemoryTokenStore(), threading.Barrier(2)

    async def work() -> None:
        for _ in range(20):
            async with store.lock(KEY):
                await asyncio.sleep(0.001)

    def run() -> None:
        together.wait(PATIENCE)
        asyncio.run(work())

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(run) for _ in range(2)]:
            done.result(PATIENCE)


@pytest.mark.rule("CAUTH-42")
async def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "tokens"
    with pytest.raises(UsageError, match=f"cannot be kept in {folder} .*: set XDG_DATA_HOME"):
        await FileTokenStore(folder).save(KEY, {"a": 1})


@pytest.mark.rule("CAUTH-43")
async def test_nothing_is_left_of_a_deleted_entry(tmp_path: Path) -> None:
    store, other = FileTokenStore(tmp_path), StoreKey("https://other.example.com")
    for key in (KEY, other):
        await store.save(key, {"a": 1})
    [path, another] = [store._path(key) for key in (KEY, other)]
    os.utime(path, (1, 1))
    assert store.stored_keys() == [other, KEY]  # the one that was saved last first
    left = tmp_path / f"{path.stem}.x.new"
    left.write_text("of a killed process")
    await store.delete(KEY)
    assert [*tmp_path.iterdir()] == [another]
    left.write_text("of a killed process")
    another.chmod(0o644)
    assert store.stored_keys() == []
    store.clear()
    assert not [*tmp_path.iterdir()]


@pytest.mark.rule("CAUTH-42")
async def test_file_that_cannot_be_read_is_no_entry(tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path)
    await store.save(KEY, {"a": 1})
    [path] = tmp_path.glob("*.json")
    for content in ("", "{", "[]", '{"entry": 5}'):
        path.write_text(content)
        assert await store.load(KEY) is None
        assert store.stored_keys() == []
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert await store.load(KEY) is None


_SAVER = """
import asyncio, sys
from pathlib import Path
from foundation_rt.client.auth.descriptions import StoreKey
from foundation_rt.client.auth.stores import FileTokenStore

async def main():
    store, key = FileTokenStore(Path(sys.argv[1])), StoreKey(sys.argv[2])
    async with store.lock(key):
        number = 0
        while True:
            await store.save(key, {"number": number, "filler": "x" * 200_000})
            if number == 3:
                print("saving", flush=True)
            number += 1

asyncio.run(main())
"""


@pytest.mark.rule("CAUTH-43", "CAUTH-44")
async def test_process_that_is_killed_while_it_saves_leaves_an_entry_and_no_lock(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-c", _SAVER, str(tmp_path), KEY.resource]
    store = FileTokenStore(tmp_path)
    for _ in range(3):
        with fork_server.forking():
            saver = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
        assert saver.stdout is not None
        assert await saver.stdout.readline() == b"saving\n"
        os.kill(saver.pid, signal.SIGKILL)
        await saver.wait()
        found = await store.load(KEY)
        assert found is not None
        assert found["filler"] == "x" * 200_000
        async with asyncio.timeout(PATIENCE), store.lock(KEY):
            pass


_CALLER = """
import asyncio, sys
from pathlib import Path
from foundation_rt.client import connect
from foundation_rt.client.auth.descriptions import OAuth
from foundation_rt.client.auth.stores import FileTokenStore

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    auth = OAuth(store=FileTokenStore(Path(sys.argv[2])))
    async with connect(sys.argv[1], auth=auth, timeout=100) as client:
        print((await client.call("echo")).text, flush=True)

asyncio.run(main())
"""


@pytest.mark.rule("CAUTH-32", "CAUTH-33")
async def test_twenty_processes_refresh_a_rotating_token_once(world: World, tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path)
    async with connect(world.url, auth=OAuth(login=log_in, store=store)) as client:
        await client.call("echo")
    entry = dict(await store.load(StoreKey(world.url)) or {})
    await store.save(StoreKey(world.url), {**entry, "expires_at": 1.0, "refresh_at": 1.0})
    words = [sys.executable, "-c", _CALLER, world.url, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with fork_server.forking():
        callers = [await asyncio.create_subprocess_exec(*words, **pipes) for _ in range(20)]
    for each in callers:  # they begin together
        assert each.stdout is not None
        assert await each.stdout.readline() == b"ready\n"
    ended = await asyncio.gather(*(each.communicate(b"\n") for each in callers))
    assert [out for out, _ in ended] == [b"done\n"] * 20
    refreshes = [each for each in world.paths("/token") if "refresh_token" in each.form]
    assert len(refreshes) == 1
    assert world.valid  # no reuse was detected: nobody was logged out
