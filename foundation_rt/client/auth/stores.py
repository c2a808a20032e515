"""Stores of tokens: in memory, or in files of the user (CAUTH-40 to CAUTH-44)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from attrs import asdict, define, field

from ...base.files import (
    is_private,
    make_private_folder,
    open_private,
    replacing,
    try_lock,
    user_folder,
)
from ...errors import UsageError
from .descriptions import StoreKey

_FOLDER_MODE = 0o700
_MAX_FILE_BYTES = 1024 * 1024
_LOCK_WAIT: Final = 0.02
"""Seconds between two attempts to lock: a lock that blocks could not be cancelled."""


@define(eq=False)
class MemoryTokenStore:
    """Keeps tokens as long as the program runs; for clients of any thread."""

    _entries: dict[StoreKey, Mapping[str, Any]] = field(factory=dict, init=False, repr=False)
    _locks: dict[StoreKey, threading.Lock] = field(factory=dict, init=False, repr=False)

    async def load(self, key: StoreKey) -> Mapping[str, Any] | None:
        """See `TokenStore`."""
        return self._entries.get(key)

    async def save(self, key: StoreKey, entry: Mapping[str, Any]) -> None:
        """See `TokenStore`."""
        self._entries[key] = dict(entry)

    async def delete(self, key: StoreKey) -> None:
        """See `TokenStore`."""
        self._entries.pop(key, None)

    @asynccontextmanager
    async def lock(self, key: StoreKey) -> AsyncIterator[None]:
        """See `TokenStore`."""
        lock = self._locks.setdefault(key, threading.Lock())
        while not lock.acquire(blocking=False):
            await asyncio.sleep(_LOCK_WAIT)
        try:
            yield
        finally:
            lock.release()


@define(eq=False)
class FileTokenStore:
    """Keeps tokens in files that only the user can read, one for each entry.

    Several processes may use a folder at once. What is read is whole, whenever a process ends.

    Args:
        folder: of the files; None: `foundation-rt/tokens` in the user's folder for data (XDG).

    Raises:
        UsageError: by every method: the folder is another user's, or cannot be written.
    """

    folder: Path = field(factory=lambda: usual_folder())

    async def load(self, key: StoreKey) -> Mapping[str, Any] | None:
        """See `TokenStore`."""
        found = self._read(self._path(key))
        return None if found is None else found["entry"]

    async def save(self, key: StoreKey, entry: Mapping[str, Any]) -> None:
        """See `TokenStore`."""
        self._prepare()
        path = self._path(key)
        content = json.dumps({"key": asdict(key), "entry": dict(entry)}).encode()
        with self._explained(), replacing(path) as file:
            file.write(content)

    async def delete(self, key: StoreKey) -> None:
        """See `TokenStore`."""
        path = self._path(key)
        with self._explained():
            for each in (path, *self.folder.glob(f"*{path.stem}.*.new")):  # of a killed process
                each.unlink(missing_ok=True)

    @asynccontextmanager
    async def lock(self, key: StoreKey) -> AsyncIterator[None]:
        """See `TokenStore`; the lock ends with its process."""
        self._prepare()
        with self._explained():
            descriptor = open_private(self._path(key).with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
        try:
            while not try_lock(descriptor):
                await asyncio.sleep(_LOCK_WAIT)
            yield
        finally:
            os.close(descriptor)

    def stored_keys(self) -> list[StoreKey]:
        """Return the keys of all entries that can be used, the one that was saved last first."""
        found = []
        for path in self.folder.glob("*.json"):
            with suppress(OSError, TypeError, UsageError):
                content = self._read(path)
                if content is not None:
                    found.append((path.stat().st_mtime_ns, StoreKey(**content["key"])))
        return [key for _, key in sorted(found, key=lambda each: each[0], reverse=True)]

    def clear(self) -> None:
        """Delete all entries, also those that cannot be used, or that a killed process left."""
        with self._explained():
            for path in (*self.folder.glob("*.json"), *self.folder.glob("*.new")):
                path.unlink(missing_ok=True)

    def _path(self, key: StoreKey) -> Path:
        whole = json.dumps([key.resource, key.issuer, key.client]).encode()
        return self.folder / f"{sha256(whole).hexdigest()[:32]}.json"

    def _read(self, path: Path) -> Any:
        """Return the content of a file; None if there is none, or nothing that can be used.

        Raises:
            UsageError: others may have written or read it.
        """
        try:
            descriptor = open_private(path, os.O_RDONLY)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            if not is_private(descriptor):
                raise UsageError(f"{path} can be read by others: delete it, and log in again")
            body = file.read(_MAX_FILE_BYTES)
        with suppress(ValueError):
            found = json.loads(body)
            if isinstance(found, dict) and isinstance(found.get("entry"), dict):
                return found
        return None

    def _prepare(self) -> None:
        """Make the folder, which only its owner may enter."""
        with self._explained():
            make_private_folder(self.folder)
            if sys.platform == "win32":
                return  # a folder that somebody else has made: what they could read is refused
            status = self.folder.stat()
            if status.st_uid == os.getuid() and status.st_mode & 0o077:
                self.folder.chmod(_FOLDER_MODE)
        if status.st_uid != os.getuid():
            raise UsageError(f"{self.folder} belongs to another user")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"the tokens cannot be kept in {self.folder} ({error.strerror}): set XDG_DATA_HOME"
                " to a folder that can be written"
            ) from None


def usual_folder() -> Path:
    return user_folder("data") / "foundation-rt" / "tokens"
