"""Access of people to a page of the application: a secret in the fragment of its URL (HTTP-43).

A browser sends cookies to every port of a host, so any other program of this machine could replay
one. The URL that the server prints has a token in its fragment, `/#token=...`, which is part of no
request. The page moves it into the storage of its tab (`web_page/shared/page_token.js`), and sends
it as a key in a header, or as a subprotocol of a WebSocket (HTTP-44).
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from hmac import digest
from pathlib import Path

from attrs import field, frozen

from ..errors import UsageError

_PURPOSE = "foundation-rt page"
_FILE = "page-key"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,128}")


@frozen(eq=False)
class PageAccess:
    """The token with which people open the application's page, as `key:page` (HTTP-43).

    Attributes:
        token: 32 to 128 letters, digits, `-` and `_`; a secret. Programs may send it as an API key.

    Raises:
        UsageError: the token is none.
    """

    token: str = field(repr=False)

    def __attrs_post_init__(self) -> None:
        if _TOKEN.fullmatch(self.token) is None:
            raise UsageError("PageAccess: a token has 32 to 128 letters, digits, - and _")

    @classmethod
    def of_user(cls, application: str, port: int, state_key: str | None = None) -> PageAccess:
        """Return the access to one application at one port, the same after a restart (HTTP-45).

        Args:
            application: its name.
            port: `http.port`; with 0, any that is free, the token is new each time.
            state_key: `security.state_key`; None: the key of the user, which is made if it is not
                there.

        Raises:
            UsageError: the file of the key cannot be used; says why.
        """
        if port == 0:
            return cls(secrets.token_hex(32))
        key = bytes.fromhex(state_key) if state_key is not None else _key_of_user()
        purpose = f"{_PURPOSE}\n{application}\n{port}"
        return cls(digest(key, purpose.encode(), "sha256").hex())

    def url(self, base: str) -> str:
        """Return the URL with which a person opens the page at `base`."""
        return f"{base}#token={self.token}"


def _key_of_user() -> bytes:
    """Return the key in the file of the user; make both if they are not there."""
    home = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not home.is_absolute():  # a relative one is to be ignored, says its specification
        home = Path.home() / ".local" / "share"
    path = home / "foundation-rt" / _FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with _locked(path.parent):  # workers start at once, and need the same key
            return _read_key(path) or _write_key(path)
    except OSError as error:
        raise UsageError(
            f"the key of the page cannot be kept in {path} ({error.strerror}): set XDG_DATA_HOME"
            " to a folder that can be written, or security.state_key"
        ) from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes of the user from making a key meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_key(path: Path) -> bytes | None:
    """Return the key of a file that its owner alone can read; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        key = file.read(256).strip()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        return None  # somebody else may know it
    return key if _TOKEN.fullmatch(key.decode("ascii", "replace")) else None


def _write_key(path: Path) -> bytes:
    """Put a new key in the place of the file, whole, and return it."""
    key = secrets.token_urlsafe(32)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{key}\n")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return key.encode()
