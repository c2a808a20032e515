"""What a TARGET on a command line stands for (spec/cli.md).

The same word could be several things. It is taken for the first that it can be, in the order of
`find_target`, and where it can be none the error lists what was tried.
"""

from __future__ import annotations

import os.path
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

from ..client.server_files import ServerFile
from ..client.targets import is_url
from ..errors import UsageError

if TYPE_CHECKING:
    from ..client.transports.http_server import HttpServer
    from ..client.transports.stdio import StdioServer

_FILE_APP = re.compile(r"(.+\.py)(?::[^\W\d]\w*)?", re.DOTALL)
_MODULE_APP = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")

# `NAME=value`, `--token=value`, `scheme://`, `user:password@host`, `host/path?query`.
_MAY_BE_SECRET = re.compile(r"[=?]|://|:.*@", re.DOTALL)


class TargetError(UsageError):
    """A TARGET stands for nothing; the message lists what was tried."""


@frozen
class AppTarget:
    """An application of ours: `FILE.py[:attribute]` or `module:attribute`."""

    source: str


Target: TypeAlias = "HttpServer | StdioServer | AppTarget"


def find_target(text: str, places: Iterable[Path], variables: Mapping[str, str]) -> Target:
    """What `text` stands for: a URL, an application, a name in a file, a command line (CLI-10).

    Args:
        text: as it was given.
        places: where files of servers may be; those that are not there are passed over.
        variables: the environment, for what the files say.

    Raises:
        TargetError: it is none of them.
        ServerFileError: a file cannot be read, or its entry of that name cannot be used.
        UsageError: it is a URL, and not one of HTTP.
    """
    if is_url(text.strip()):  # with a blank it would be a command, and its secrets a message
        from ..client.transports.http_server import HttpServer

        return HttpServer(text.strip())
    if _is_app(text):
        return AppTarget(text)
    files = [ServerFile.read(place) for place in places if os.path.isfile(place)]  # noqa: PTH113
    for file in files:
        if text in file.entries:
            return file.server(text, variables)
    return _command(text, files)


def find_listed(name: str, path: Path, variables: Mapping[str, str]) -> HttpServer | StdioServer:
    """The server of that name in this file, and nothing else (CLI-12).

    Raises:
        TargetError: the file lists no such server.
        ServerFileError: the file cannot be read, or its entry cannot be used.
    """
    file = ServerFile.read(path)
    if name not in file.entries:
        raise TargetError(f"{path} lists {_names(file)}, not {_shown(name)}")
    return file.server(name, variables)


def _is_app(text: str) -> bool:
    """Return whether this is an application by its form.

    A file that is there may have any name. One that is not is a command line if it has several
    words: `python tools.py`.
    """
    file = _FILE_APP.fullmatch(text)
    if file is not None:
        return len(text.split()) == 1 or os.path.isfile(file[1])  # noqa: PTH113
    return _MODULE_APP.fullmatch(text) is not None


def _command(text: str, files: list[ServerFile]) -> StdioServer:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"{_shown(text)} is no command line: {error}") from None
    if not words or shutil.which(words[0]) is None:
        tried = [f"{file.path} lists {_names(file)}" for file in files]
        tried = tried or ["no file of servers was found (mcp.json, or --servers FILE)"]
        tried.append(f"there is no program {_shown(words[0]) if words else 'nothing'}")
        tried.append("variables go behind `env`: 'env NAME=VALUE some-server'")
        tried.append("a URL has http:// or https://, an application is FILE.py or module:attribute")
        raise TargetError(f"{_shown(text)} is no server: {'; '.join(tried)}")
    from ..client.transports.stdio import StdioServer

    return StdioServer(words[0], args=tuple(words[1:]))


def _shown(text: str) -> str:
    """The first word, if no secret can stand in it: no value, no user, no query (CLI-23)."""
    first, *more = text.split(maxsplit=1) or [""]
    if _MAY_BE_SECRET.search(first):
        return "'...'"
    return repr(f"{first} ..." if more else text)


def _names(file: ServerFile) -> str:
    return ", ".join(map(repr, sorted(file.entries))) or "no servers"
