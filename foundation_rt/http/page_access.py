"""Access of people to a page of the application: a secret in the fragment of its URL (HTTP-43).

A browser sends cookies to every port of a host, so any other program of this machine could replay
one. The URL that the server prints has a token in its fragment, `/#token=...`, which is part of no
request. The page moves it into the storage of its tab (`web_page/shared/page_token.js`), and sends
it as a key in a header, or as a subprotocol of a WebSocket (HTTP-44).
"""

from __future__ import annotations

import os
import re
import secrets
from hmac import digest
from pathlib import Path

from attrs import field, frozen

from ..base.files import (
    is_private,
    locked_folder,
    make_private_folder,
    open_private,
    replacing,
    user_folder,
)
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
    path = user_folder("data") / "foundation-rt" / _FILE
    try:
        make_private_folder(path.parent)
        with locked_folder(path.parent):  # workers start at once, and need the same key
            return _read_key(path) or _write_key(path)
    except OSError as error:
        raise UsageError(
            f"the key of the page cannot be kept in {path} ({error.strerror}): set XDG_DATA_HOME"
            " to a folder that can be written, or security.state_key"
        ) from None


def _read_key(path: Path) -> bytes | None:
    """Return the key of a file that its owner alone can read; None if there is none."""
    try:
        descriptor = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not is_private(descriptor):
            return None  # somebody else may know it
        key = file.read(256).strip()
    return key if _TOKEN.fullmatch(key.decode("ascii", "replace")) else None


def _write_key(path: Path) -> bytes:
    """Put a new key in the place of the file, whole, and return it."""
    key = secrets.token_urlsafe(32)
    with replacing(path) as file:
        file.write(f"{key}\n".encode())
    return key.encode()
