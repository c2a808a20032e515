"""The archive of a bundle: written the same each time, read from anybody (PKG-02, PKG-10)."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import orjson
from attrs import frozen

from ...base.files import is_windows_path, make_private_folder
from ...errors import UsageError
from .manifest import MANIFEST, check_manifest

MAX_ARCHIVE = 256 << 20
MAX_UNPACKED = 1 << 30
MAX_ENTRIES = 50_000
_MAX_NAME, _MAX_PATH = 255, 1024
"""The most bytes of a name, as most systems have it, and of a path."""
_MAX_MANIFEST = 1 << 20
_PIECE = 1 << 20
_SAME_DATE = (1980, 1, 1, 0, 0, 0)


def write_archive(files: Mapping[str, bytes]) -> bytes:
    """Return a zip of files by their paths, with the same bytes for the same files.

    They are stored as they are: what a compression makes of them differs between its versions.
    """
    written = BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _SAME_DATE)
            entry.create_system = 3  # the mode below is one of Unix
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, files[name])
    return written.getvalue()


class BundleError(UsageError):
    """A bundle cannot be used; the message names it and says why."""


@frozen
class Bundle:
    """A bundle of anybody, which was checked and not unpacked yet.

    Attributes:
        path: of its file.
        digest: of the file, in hexadecimal digits.
        manifest: its `manifest.json`.
        count: of its files.
    """

    path: Path
    digest: str
    manifest: Mapping[str, Any]
    count: int
    _content: bytes

    @classmethod
    def read(cls, path: Path) -> Bundle:
        """Read a bundle, and check the names and the sizes of all that is in it.

        Raises:
            BundleError: it is none, too large, or would write outside of its folder.
        """
        try:
            with path.open("rb") as file:
                content = file.read(MAX_ARCHIVE + 1)
        except OSError as error:
            raise BundleError(f"{path} cannot be read: {error.strerror}") from None
        if len(content) > MAX_ARCHIVE:
            raise BundleError(f"{path} is larger than {MAX_ARCHIVE >> 20} MiB")
        try:
            with zipfile.ZipFile(BytesIO(content)) as archive:
                entries = archive.infolist()
                _check_entries(entries)
                manifest = _read_manifest(archive)
        except _UNREADABLE as error:
            raise BundleError(f"{path} is no bundle: {error}") from None
        count = sum(not each.is_dir() for each in entries)
        return cls(path, sha256(content).hexdigest(), manifest, count, content)

    def unpack(self, folder: Path) -> None:
        """Write its files into a folder, whole or not at all; one that is there stays as it is.

        Raises:
            BundleError: its files cannot be read.
            OSError: the folder cannot be written.
        """
        if folder.is_dir():
            return
        make_private_folder(folder.parent)
        beside = folder.with_name(f".{folder.name}.{os.urandom(8).hex()}.new")
        make_private_folder(beside)
        try:
            with zipfile.ZipFile(BytesIO(self._content)) as archive:
                for entry in archive.infolist():
                    _extract(archive, entry, beside)
            with suppress(OSError):  # another process has put it there meanwhile
                beside.rename(folder)
            if not folder.is_dir():
                raise BundleError(f"{folder} cannot be made")
        except _UNREADABLE as error:
            raise BundleError(f"{self.path} cannot be unpacked: {error}") from None
        finally:
            shutil.rmtree(beside, ignore_errors=True)


_UNREADABLE = (
    *(ValueError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error),
    *(EOFError, NotImplementedError, RuntimeError),  # encrypted, or of an unknown compression
)


def _check_entries(entries: list[zipfile.ZipInfo]) -> None:
    """Raise `ValueError` unless all entries are files and folders within one, of a bounded size."""
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"it has more than {MAX_ENTRIES:,} files")
    if sum(each.file_size for each in entries) > MAX_UNPACKED:
        raise ValueError(f"its files have more than {MAX_UNPACKED >> 20} MiB together")
    seen: set[str] = set()
    for entry in entries:
        name = entry.orig_filename.removesuffix("/")  # before backslashes become `/` on Windows
        parts = PurePosixPath(name).parts
        is_below = name == "/".join(parts) and ".." not in parts and parts[:1] != ("/",)
        if not parts or not is_below or set("\\:") & {*name} or not is_windows_path(name):
            raise ValueError(f"it has a file with a path that leads elsewhere: {name[:100]!r}")
        if len(name.encode()) > _MAX_PATH or any(len(each.encode()) > _MAX_NAME for each in parts):
            raise ValueError(f"it has a file whose name is too long: {name[:100]!r}...")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ValueError(f"{name[:100]!r} in it is a link, or no file")
        # Of two names that a system takes for one the second would replace the first.
        if name.casefold() in seen:
            raise ValueError(f"it has {name[:100]!r} twice")
        seen.add(name.casefold())
    files = {each.orig_filename.casefold() for each in entries if not each.is_dir()}
    for name in seen:
        if above := files & {str(each) for each in PurePosixPath(name).parents}:
            raise ValueError(f"{above.pop()[:100]!r} in it is a file and a folder")


def _read_manifest(archive: zipfile.ZipFile) -> dict[str, Any]:
    try:
        entry = archive.getinfo(MANIFEST)
    except KeyError:
        raise ValueError(f"it has no {MANIFEST}") from None
    if entry.file_size > _MAX_MANIFEST:
        raise ValueError(f"its {MANIFEST} is larger than {_MAX_MANIFEST >> 20} MiB")
    try:
        manifest = orjson.loads(archive.read(entry))
    except orjson.JSONDecodeError as error:
        raise ValueError(f"its {MANIFEST} is not valid JSON: {error}") from None
    return check_manifest(manifest)


def _extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path) -> None:
    path = folder / entry.filename
    if entry.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    is_program = (entry.external_attr >> 16) & stat.S_IXUSR
    descriptor = os.open(
        path,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0),
        0o700 if is_program else 0o600,
    )
    with archive.open(entry) as read, os.fdopen(descriptor, "wb") as written:
        shutil.copyfileobj(read, written, _PIECE)  # no more than the size that was checked
