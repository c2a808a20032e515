"""Files that several processes share, or that their owner alone may read, on every system.

Locks are those of the system: `flock`, and LockFileEx on Windows. They end with the process that
has them. No library has all that is needed: filelock and portalocker lock neither a second byte
of a file, for the turns of SQLite (DB-16), nor, on Windows, beside the data of a file that others
read, for the audit log; shared locks need pywin32 there.

Applications may import this module.
"""

from __future__ import annotations

import errno
import ntpath
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

if sys.platform == "win32":
    from . import windows_files

    _LOCKED_BYTE: Final = 1 << 62
    """Beyond all data: others cannot read what is locked."""

    def try_lock(descriptor: int, *, shared: bool = False) -> bool:
        return windows_files.try_lock(descriptor, _LOCKED_BYTE, shared=shared)

    def share(descriptor: int) -> None:
        windows_files.try_lock(descriptor, _LOCKED_BYTE, shared=True)
        windows_files.unlock(descriptor, _LOCKED_BYTE)

    def unlock(descriptor: int) -> None:
        windows_files.unlock(descriptor, _LOCKED_BYTE)

    def try_take_turn(descriptor: int) -> bool:
        return windows_files.try_lock(descriptor, 0, shared=False)

    def end_turn(descriptor: int) -> None:
        with suppress(OSError):  # it did not have it
            windows_files.unlock(descriptor, 0)

    def open_private(path: str | os.PathLike[str], flags: int, *, follow: bool = False) -> int:
        return windows_files.open_file(path, flags, follow=follow)

    def is_private(descriptor: int) -> bool:
        return windows_files.is_owners_alone(descriptor)

    def open_below(folder: Path, path: Path) -> int:
        descriptor = open_private(path, os.O_RDONLY, follow=True)
        if Path(windows_files.real_path(descriptor)).is_relative_to(folder):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))

else:
    import fcntl

    def try_lock(descriptor: int, *, shared: bool = False) -> bool:
        """Lock a file unless another open file has it locked; return whether it is locked.

        Args:
            descriptor: of the file.
            shared: others may have shared locks too.

        Raises:
            OSError: the file cannot be locked.
        """
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def share(descriptor: int) -> None:
        """Make an exclusive lock a shared one; a shared one stays as it is."""
        fcntl.flock(descriptor, fcntl.LOCK_SH)

    def unlock(descriptor: int) -> None:
        """Undo a lock."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def try_take_turn(descriptor: int) -> bool:
        """Take the second lock of a file, which all processes know of; return whether it was free.

        Raises:
            OSError: the file cannot be locked.
        """
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def end_turn(descriptor: int) -> None:
        """Undo the second lock; nothing happens if this process does not have it."""
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1)

    def open_private(path: str | os.PathLike[str], flags: int, *, follow: bool = False) -> int:
        """Open a file; one that this makes is its owner's alone.

        On Windows others may rename, replace or delete it meanwhile, as they may elsewhere.

        Args:
            path: of the file.
            flags: of `os.open`.
            follow: whether through a link.

        Raises:
            OSError: it cannot be opened, or is a link and not to be followed.
        """
        flags |= os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        return os.open(path, flags, 0o600)

    def is_private(descriptor: int) -> bool:
        """Return whether a file is this user's, and nobody else may use it but administrators."""
        status = os.fstat(descriptor)
        return status.st_uid == os.getuid() and not status.st_mode & 0o077

    def open_below(folder: Path, path: Path) -> int:
        """Open a file to read it, if it still is below a folder; wait for nobody.

        Each folder is opened in the one above, and no link is followed; on Windows the path of the
        open file is looked at. So nothing can be put in between after `path_below`.

        Args:
            folder: without links.
            path: of the file, from `path_below`.

        Raises:
            OSError: it cannot be opened, or a link leads to it now.
        """
        *folders, name = path.relative_to(folder).parts
        within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            for each in folders:
                inner = os.open(each, flags | os.O_DIRECTORY, dir_fd=within)
                os.close(within)
                within = inner
            # Without O_NONBLOCK the opening of a FIFO waits for a writer.
            return os.open(name, flags | os.O_NONBLOCK, dir_fd=within)
        finally:
            os.close(within)


_PAUSE_S = 0.01
_PATIENCE_S = 10.0  # no process keeps such a lock for longer than it takes to write a file
_REPLACE_S = 2.0
_USER_FOLDERS = {"data": ("XDG_DATA_HOME", "share"), "state": ("XDG_STATE_HOME", "state")}


def wait_for_lock(descriptor: int, seconds: float, *, shared: bool = False) -> bool:
    """Lock a file, for which this thread waits; return whether it is locked.

    Args:
        descriptor: of the file.
        seconds: the longest wait.
        shared: as of `try_lock`.

    Raises:
        OSError: the file cannot be locked.
    """
    deadline = time.monotonic() + seconds
    while not try_lock(descriptor, shared=shared):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


_DEVICE = re.compile(r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9¹²³])", re.IGNORECASE)
_UNFIT = re.compile(r'[\x00-\x1f<>:"|?*]')


def is_windows_path(text: str) -> bool:
    """Return whether Windows takes a path for one of a file on a disk, as it is written.

    That is none of a share or a device, relative to another drive's folder, of a stream of a file,
    with the name of a device, or with an end of a name that Windows leaves out.
    """
    drive, rest = ntpath.splitdrive(text)
    if drive and not (re.fullmatch("[A-Za-z]:", drive) and rest[:1] in ("\\", "/")):
        return False
    if rest.startswith(("\\\\", "//", "\\/", "/\\")):
        return False
    return all(
        part in ("", ".", "..")
        or not (
            _UNFIT.search(part)
            or part.endswith((".", " "))
            or _DEVICE.fullmatch(part.partition(".")[0].rstrip())
        )
        for part in re.split(r"[\\/]", rest)
    )


def path_below(folder: Path, name: str) -> Path | None:
    """Return the real path of a file below a folder; None if the name leads elsewhere.

    Args:
        folder: without links.
        name: a path, of anybody; a relative one is taken from the folder. What Windows would
            take for something else than it says leads elsewhere there (WIN-40).

    Raises:
        OSError: it cannot be looked up.
        ValueError: it is no path.
    """
    if sys.platform == "win32" and not is_windows_path(name):
        return None
    found = Path(os.path.realpath(folder / name))
    return found if found != folder and found.is_relative_to(folder) else None


def user_folder(kind: str) -> Path:
    """Return the folder of the user for what programs keep (XDG).

    Args:
        kind: `data` or `state`.
    """
    variable, name = _USER_FOLDERS[kind]
    home = Path(os.environ.get(variable, ""))
    if home.is_absolute():  # a relative one is to be ignored, says its specification
        return home
    local = os.environ.get("LOCALAPPDATA", "") if sys.platform == "win32" else ""
    return Path(local) if local else Path.home() / ".local" / name


def make_private_folder(folder: Path) -> None:
    """Make a folder for its owner only, and those above it; one that is there stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    with suppress(FileExistsError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        if sys.platform == "win32":
            windows_files.make_owners_alone(folder)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other processes of this program from writing into a folder.

    Windows has no locks of folders: there a file of the user stands for it.

    Raises:
        OSError: it cannot be locked; `TimeoutError` if another process has it for 10 s.
    """
    if sys.platform == "win32":
        from hashlib import sha256

        place = os.path.normcase(os.path.realpath(folder))
        stands_for = user_folder("state") / "foundation-rt" / "locks"
        make_private_folder(stands_for)
        name = sha256(place.encode()).hexdigest()[:32]
        descriptor = open_private(stands_for / name, os.O_RDWR | os.O_CREAT)
    else:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not wait_for_lock(descriptor, _PATIENCE_S):
            raise TimeoutError(errno.ETIMEDOUT, "another process keeps its folder locked")
        yield
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path, *, mode: int = 0o600) -> Iterator[IO[bytes]]:
    """Yield a new file, which takes the place of another at the end, whole, or is deleted.

    Until then it stands beside it as `.NAME.*.new`. On Windows it is the user's alone, whatever the
    mode; a reader that has the old file open delays its end by 2 s at most.

    Args:
        path: of the file, which need not be there.
        mode: of the new file.

    Raises:
        OSError: it cannot be written, or put in its place.
    """
    written = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")
    descriptor = open_private(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        if mode != 0o600:
            written.chmod(mode)
        _put(written, path)
    except BaseException:
        with suppress(OSError):
            written.unlink()
        raise


def _put(written: Path, path: Path) -> None:
    if sys.platform == "win32":  # where the old file cannot be replaced while somebody reads it
        deadline = time.monotonic() + _REPLACE_S
        while time.monotonic() < deadline:
            with suppress(PermissionError):
                written.replace(path)
                return
            time.sleep(_PAUSE_S)
    written.replace(path)
