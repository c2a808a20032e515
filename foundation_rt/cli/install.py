"""The commands `install` and `uninstall`: a server in the file of a desktop client (CLI-70)."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from ..client.safe_text import printable_text
from ..client.targets import HttpServer, StdioServer, is_url, path_of_program
from ..errors import UsageError
from .args import FILES, Argument, CliCommand, CommandLine, CommandLineError, Option
from .client_entries import ClientFile, DesktopClient, desktop_clients
from .person import TRUST, confirm
from .render import Output, Table, write_output
from .run import clean_name
from .serve import CONFIG, TRACEBACK, configured
from .server_loading import load_app
from .targets import HEADER, TARGET, AppTarget, named_target, read_headers, read_variables

_REFUSED_EXIT = 1
_SECRETS = ("env", "headers", "http_headers")
_NO_ENV: Mapping[str, str] = {}


def _nothing() -> None:
    """Prepare nothing."""


def _install(line: CommandLine) -> int:
    """Write an entry; without arguments, list the clients (CLI-70)."""
    if not line.positional:
        rows = _listed()
        return Output(sys.stdout, sys.stderr).result(rows, [Table(rows, has_head=True)])
    is_bundle = "--bundle" in line.options
    if (len(line.positional) == 1) is not is_bundle:
        raise CommandLineError("name the TARGET to install, or a bundle with --bundle")
    file = _file(line)
    found = _found_bundle(line) if is_bundle else _find(line)
    name = line.option("--name") or _clean(found.name)
    if name != _clean(name):
        raise CommandLineError(f"--name is of letters, digits, - and _: {_clean(name)}")
    entry = file.client.entry(_as_client_starts_it(file.client, found.server))
    old = file.entries.get(name)
    if old == entry:
        found.prepare()
        return write_output(f"{name} is in {file.path} already\n".encode())
    done = f"{name} is in {file.path}: restart {file.client.title} to see it"
    text = file.with_entry(name, entry)
    difference = _difference(file, name, old, entry, found.open_env)
    return _apply(line, file, text, difference, done, found.prepare)


def _uninstall(line: CommandLine) -> int:
    """Take an entry out (CLI-71)."""
    file = _file(line)
    name = line.positional[1]
    old = file.entries.get(name)
    if name not in file.entries:
        names = ", ".join(sorted(file.entries)) or "no servers"
        raise UsageError(f"{file.path} does not list {name!r}; it lists {names}")
    done = f"{name} is no longer in {file.path}: restart {file.client.title}"
    difference = _difference(file, name, old, None)
    return _apply(line, file, file.without_entry(name), difference, done)


# -- the file -------------------------------------------------------------------------------------


def _file(line: CommandLine) -> ClientFile:
    clients = desktop_clients(os.environ, Path.home())
    client = clients.get(line.positional[0])
    if client is None:
        raise CommandLineError(f"CLIENT is one of {', '.join(clients)}")
    path = client.path(in_project="--project" in line.options)
    if path is None and client.user_path is None:
        raise CommandLineError(f"{client.title} lists servers by project: add --project")
    if path is None:
        raise CommandLineError(f"{client.title} has no file of a project: leave --project out")
    return ClientFile.read(client, path)


def _listed() -> Sequence[tuple[str, str, str]]:
    """Return the clients, their files and the servers in them, below the names of columns."""
    rows = [("CLIENT", "FILE", "SERVERS")]
    for name, client in desktop_clients(os.environ, Path.home()).items():
        for in_project in (False, True):
            path = client.path(in_project=in_project)
            if path is not None:
                rows.append((name, str(path), _names_in(client, path)))
    return rows


def _names_in(client: DesktopClient, path: Path) -> str:
    if not path.exists() and not path.is_symlink():
        return "(no file)"
    try:
        return ", ".join(ClientFile.read(client, path).entries) or "none"
    except UsageError as error:
        return str(error)


def _apply(
    line: CommandLine,
    file: ClientFile,
    text: str,
    difference: str,
    done: str,
    prepare: Callable[[], None] = _nothing,
) -> int:
    """Show the difference, ask, prepare and write the file; return the exit code."""
    code = write_output(difference.encode())
    if code:
        return code
    if "--yes" not in line.options and not confirm("Write it? [y/N] "):
        Output(sys.stdout, sys.stderr).error(None, "nothing was written; --yes writes it")
        return _REFUSED_EXIT
    prepare()
    backup = file.write(text)
    kept = "" if backup is None else f"; as it was, it is in {backup}"
    return write_output(f"{done}{kept}\n".encode())


def _difference(
    file: ClientFile,
    name: str,
    old: Any,
    new: Mapping[str, Any] | None,
    open_env: Mapping[str, str] = _NO_ENV,
) -> str:
    """Return the difference of an entry, without values that may be secret (CLI-23)."""
    # Without its head: the names of two files, and line numbers of the entry alone.
    lines = list(unified_diff(_lines(name, old), _lines(name, new, open_env), n=99, lineterm=""))[
        3:
    ]
    lines = lines or [f"  {name}: values that are not shown change"]
    return printable_text("\n".join([f"{file.path}, {file.client.member}:", *lines])) + "\n"


def _lines(name: str, entry: Any, open_env: Mapping[str, str] = _NO_ENV) -> list[str]:
    """Return an entry as it is shown; a file may have anything in its place."""
    if entry is None:
        return []
    shown: Any = "..."
    if isinstance(entry, Mapping):
        shown = {key: _shown(key, value, open_env) for key, value in entry.items()}
    return json.dumps({name: shown}, indent=2, ensure_ascii=False).splitlines()[1:-1]


def _shown(key: str, value: Any, open_env: Mapping[str, str] = _NO_ENV) -> Any:
    if key in _SECRETS and isinstance(value, dict):
        return {
            name: text if key == "env" and open_env.get(name) == text else "..."
            for name, text in value.items()
        }
    if isinstance(value, str):
        return _without_secrets(value)
    return [_shown("", each) for each in value] if isinstance(value, list) else value


def _without_secrets(text: str) -> str:
    """Return a text; of a URL what stands before `@` and after `?` is replaced by `...`."""
    if not is_url(text):
        return text
    scheme, _, rest = text.partition("://")
    rest, mark, _ = rest.partition("?")
    authority, slash, path = rest.partition("/")
    _, at, host = authority.rpartition("@")
    return f"{scheme}://{'...@' if at else ''}{host}{slash}{path}{'?...' if mark else ''}"


# -- the entry ------------------------------------------------------------------------------------


@frozen
class _Found:
    """The server of a TARGET: how it is started or reached, and the name it has.

    `prepare` is called before an entry of it is written; `open_env` has the variables that the
    author of a bundle wrote, which are shown.
    """

    server: StdioServer | HttpServer
    name: str
    prepare: Callable[[], None] = _nothing
    open_env: Mapping[str, str] = _NO_ENV


def _find(line: CommandLine) -> _Found:
    """Return the server of TARGET, with paths that hold in every folder.

    Raises:
        CommandLineError: an option does not go with the TARGET.
        UsageError: the TARGET is none, or cannot be served.
    """
    text, headers = line.positional[1], read_headers(line)
    if text.endswith(".json") and len(text.split()) == 1:
        found, is_app = _found_file(Path(text)), False
    else:
        target = named_target(line, text)
        is_app = isinstance(target, AppTarget)
        if isinstance(target, AppTarget):
            found = _found_app(target, line)
        else:
            found = _Found(_anywhere(target), _name_of(text, target))
    if not is_app:
        line.refuse_app_options()
    if not headers:
        return _with_env(found, line)
    if not isinstance(found.server, HttpServer):
        raise CommandLineError("--header goes with a URL")
    return evolve(found, server=evolve(found.server, headers={**found.server.headers, **headers}))


def _found_app(app: AppTarget, line: CommandLine) -> _Found:
    server = configured(load_app(app.source, line.program or ()), line)
    config = line.option("--config")
    options = [] if config is None else ["--config", _absolute(config)]
    if line.program is not None:
        options += ["--", *line.program]
    source, env = app.source, {}
    if re.match(r".+\.py(:|$)", source):
        source = _absolute(source)
    else:
        env = _path_of_module(source.partition(":")[0])
    runtime = server.runtime  # what cannot be served is refused here
    runtime.close_logs(1.0)
    own = evolve(_own("serve", source, *options), env=env or None)
    return _Found(own, runtime.config.server.name)


def _path_of_module(name: str) -> dict[str, str]:
    """Return the variable with which a module of this folder is found from any other."""
    file = getattr(sys.modules.get(name), "__file__", None)
    folder = Path.cwd()
    if file is None or not Path(file).absolute().is_relative_to(folder):
        return {}
    return {} if "site-packages" in Path(file).parts else {"PYTHONPATH": str(folder)}


def _found_file(path: Path) -> _Found:
    from ..base.mcp_json import ServerFile

    entries = ServerFile.read(path).entries
    if not entries:
        raise UsageError(f"{path} lists no servers")
    return _Found(_own("gateway", _absolute(path)), path.absolute().parent.name)


def _absolute(path: str | Path) -> str:
    """Return the path from the root; links of its own stay, those before a `..` do not."""
    whole = Path(path).absolute()
    return str(whole.parent.resolve() / whole.name if ".." in whole.parts else whole)


def _own(command: str, *arguments: str) -> StdioServer:
    """Return a server of this runtime: desktop clients have another PATH than the shell."""
    return StdioServer(sys.executable, args=("-P", "-m", "foundation_rt", command, *arguments))


def _anywhere(server: StdioServer | HttpServer) -> StdioServer | HttpServer:
    """Return the server with its program as an absolute path."""
    if isinstance(server, HttpServer):
        return server
    if server.cwd not in (None, str(Path.home())):  # that of an entry of the home (MCPJSON-16)
        raise UsageError("it has a working directory, which entries of clients cannot have")
    return evolve(server, cwd=None, command=path_of_program(server.command) or server.command)


def _name_of(text: str, target: StdioServer | HttpServer) -> str:
    if isinstance(target, HttpServer):
        from urllib.parse import urlsplit

        return urlsplit(target.url).hostname or "server"
    return text if len(text.split()) == 1 else Path(target.command).name


def _found_bundle(line: CommandLine) -> _Found:
    from .bundles.installing import read_bundle

    line.refuse_app_options()
    if "--header" in line.options:
        raise CommandLineError("--header goes with a URL")
    bundle = read_bundle(line)
    write_output(f"{bundle.summary()}\n".encode())
    found = _Found(bundle.server, bundle.name, bundle.unpack, bundle.open_env)
    return _with_env(found, line)


def _with_env(found: _Found, line: CommandLine) -> _Found:
    given = read_variables(line)
    if not given:
        return found
    if isinstance(found.server, HttpServer):
        raise CommandLineError("--env goes with a server that is started, not with a URL")
    return evolve(found, server=evolve(found.server, env={**(found.server.env or {}), **given}))


def _as_client_starts_it(
    client: DesktopClient, server: StdioServer | HttpServer
) -> StdioServer | HttpServer:
    """Return the server, behind a bridge for a client that only starts programs."""
    if isinstance(server, StdioServer) or client.reaches_urls:
        return server
    if server.headers:
        raise UsageError(
            f"{client.title} reaches a URL through a bridge, which takes headers from a file:"
            " install an mcp.json that has them"
        )
    return _own("gateway", server.url)


def _clean(name: str) -> str:
    """Return a name that every client takes."""
    return clean_name(name) or "server"


# -- the commands ---------------------------------------------------------------------------------

_CLIENTS = (*desktop_clients({}, Path()),)
_PROJECT = Option(
    "--project",
    "write the file of the project in this folder (.cursor/mcp.json, .vscode/mcp.json, .mcp.json,"
    " .gemini/settings.json, .codex/config.toml)",
)
_YES = Option("--yes", "write without asking")

INSTALL = CliCommand(
    "install",
    "write a server into the file of a desktop client",
    _install,
    (
        Argument("CLIENT", f"{', '.join(_CLIENTS[:-1])} or {_CLIENTS[-1]}", _CLIENTS, "?"),
        Argument(
            "TARGET",
            "an APP, which is loaded once to see that it can be served; an mcp.json, whose servers"
            " are served as one by a gateway; a URL; a name in an mcp.json; or a command line, in"
            " quotes",
            TARGET.words,
            "?",
        ),
    ),
    {
        "options of the file": (
            Option("--name", "list the server by this name, by default its own", "NAME"),
            _PROJECT,
            _YES,
        ),
        "options of a bundle": (
            Option(
                "--bundle",
                "in place of a TARGET, unpack this bundle and install what is in it",
                "FILE.mcpb",
                FILES,
            ),
            Option(
                "--set",
                "give a value that the bundle asks for; may be repeated",
                "NAME=VALUE",
            ),
            Option(
                "--set-env",
                "give the value of this environment variable, as for a secret; may be repeated",
                "NAME=VARIABLE",
            ),
        ),
        "options of the server": (
            Option(
                "--env",
                "give the server this variable; NAME alone: as it is set now; may be repeated",
                "NAME[=VALUE]",
            ),
            HEADER,
            CONFIG,
            TRACEBACK,
            Option(
                TRUST,
                "agree to the server that an mcp.json of this folder lists by this name, without"
                " asking",
            ),
        ),
    },
    takes_program=True,
    about="""\
Write a server into the file of a desktop client, after showing the difference. Without arguments:
list the clients, their files and the servers in them. What follows `--` is for the program of an
APP.""",
    notes="""\
examples:
  foundation-rt install claude-desktop tools.py
  foundation-rt install cursor tools.py --project --env API_KEY
  foundation-rt install vscode https://example.com/mcp --name example
  foundation-rt install codex mcp.json --name everything
  foundation-rt install cursor --bundle weather.mcpb --set-env TOKEN=MY_TOKEN

exit codes: 0; 1 it was not written; 2 the command line is wrong""",
)
UNINSTALL = CliCommand(
    "uninstall",
    "take it out again",
    _uninstall,
    (
        Argument("CLIENT", "the desktop client", _CLIENTS),
        Argument("NAME", "the name of the server"),
    ),
    {"options": (_PROJECT, _YES)},
    about="""\
Take a server out of the file of a desktop client, after showing the difference. `foundation-rt
install` lists the clients and the names.""",
    notes="""\
examples:
  foundation-rt uninstall cursor weather
  foundation-rt uninstall vscode weather --project --yes

exit codes: 0; 1 it was not written; 2 the command line is wrong""",
)
