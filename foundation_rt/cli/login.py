"""The commands `login`, `logout` and `whoami`: a person at a server (CLI-101 to CLI-104)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from attrs import evolve

from ..client.auth.authorizer import Authorizer, not_logged_in
from ..client.auth.descriptions import Login, OAuth, StoreKey
from ..client.auth.grants import Grant
from ..client.auth.stores import FileTokenStore
from ..client.auth.urls import host_of, without_secrets
from ..client.errors import MCPError
from ..client.targets import HttpServer
from ..errors import UsageError
from .args import FILES, Argument, CliCommand, CommandLine, CommandLineError, Option
from .person import TRUST
from .render import Output, Paragraph, Part, Table
from .run import FAILURE_EXIT, report
from .targets import JSON, named_target

_TARGET = "a URL, or a name in an mcp.json"


def login_of(url: str) -> OAuth:
    """Return what uses the stored login of a server, the latest if there are several."""
    return next(iter(_logins_of(url)), OAuth(store=FileTokenStore()))


def _logins_of(url: str) -> list[OAuth]:
    store, resource = FileTokenStore(), without_secrets(url)
    return [_of_key(key, store) for key in store.stored_keys() if key.resource == resource]


def _of_key(key: StoreKey, store: FileTokenStore) -> OAuth:
    if key.issuer:
        return OAuth(client_id=key.client, issuer=key.issuer, store=store)
    return OAuth(client_metadata_url=key.client or None, store=store)


def _login(line: CommandLine) -> int:
    """Log in, and say for how long (CLI-101)."""
    server = _server(line)
    described, login = evolve(server, auth=_described(line, server)), _way(line)

    async def work() -> Grant:
        from ..client.auth.logins import log_in

        await log_in(described, login)
        return await _stored(described)

    return _show(line, work(), f"Logged in to {host_of(server.url)}.")


def _way(line: CommandLine) -> Login:
    """Return how the person logs in."""
    from ..client.auth.logins import browser_login, device_login, paste_login

    if "--device" in line.options:
        return device_login()
    if "--no-browser" in line.options:
        return paste_login()
    return browser_login(partial(_open_page, line))


def _open_page(line: CommandLine, url: str) -> None:
    import webbrowser

    if "--json" not in line.options and sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write("Log in on the page in your browser. If none opens: --no-browser\n")
    webbrowser.open(url)


def _whoami(line: CommandLine) -> int:
    """Show a login, without its token (CLI-103)."""
    return _show(line, _stored(_server(line)), None)


def _logout(line: CommandLine) -> int:
    """Revoke and delete the logins at one server, or all (CLI-102)."""
    output = Output(sys.stdout, sys.stderr)
    if "--all" in line.options:
        if line.positional:
            raise CommandLineError("--all goes without a TARGET")
        store = FileTokenStore()
        keys = [key for key in store.stored_keys() if key.resource]
        code = max([0, *(_end(key.resource, _of_key(key, store), output) for key in keys)])
        store.clear()  # what is left: registered clients
        return code
    if not line.positional:
        raise CommandLineError("name the TARGET to log out of, or --all")
    server = _server(line)
    if isinstance(server.auth, OAuth):
        return _end(server.url, server.auth, output)
    logins = _logins_of(server.url) or [login_of(server.url)]
    return max(_end(server.url, each, output) for each in logins)


def _end(url: str, login: OAuth, output: Output) -> int:
    was_there, is_revoked = asyncio.run(Authorizer(url, login).logout())
    if not was_there:
        return report(not_logged_in(url), output)
    kept = "" if is_revoked else " Its token was not revoked: it is good until it ends."
    return output.write(f"Logged out of {host_of(url)}.{kept}\n".encode())


async def _stored(server: HttpServer) -> Grant:
    auth = server.auth
    description = auth if isinstance(auth, OAuth) else login_of(server.url)
    grant = await Authorizer(server.url, description).stored()
    if grant is None:
        raise not_logged_in(server.url)
    return grant


def _server(line: CommandLine) -> HttpServer:
    server = named_target(line, line.positional[0])
    if not isinstance(server, HttpServer):
        raise CommandLineError("a login goes with a URL, or the name of a server that has one")
    if server.auth is None:
        evolve(server, auth=OAuth())  # raises where no login goes with it
    return server


def _described(line: CommandLine, server: HttpServer) -> OAuth:
    """Return the login that the entry and the command line describe."""
    found = server.auth if isinstance(server.auth, OAuth) else OAuth(store=FileTokenStore())
    given: dict[str, Any] = {}
    if "--scope" in line.options:
        given["scopes"] = (*found.scopes, *line.options["--scope"])
    names = {
        "--client-id": "client_id",
        "--issuer": "issuer",
        "--client-metadata": "client_metadata_url",
    }
    given |= {member: line.option(name) for name, member in names.items() if name in line.options}
    variable = line.option("--client-secret-env")
    if variable is not None:
        if variable not in os.environ:
            raise CommandLineError("--client-secret-env: there is no such environment variable")
        given["client_secret"] = os.environ[variable]
    port = line.number("--port")
    if port is not None:
        given["redirect_uri"] = f"http://127.0.0.1:{port}/callback"
    try:
        return evolve(found, **given)
    except UsageError as error:
        raise CommandLineError(str(error)) from None


def _show(line: CommandLine, work: Coroutine[Any, Any, Grant], done: str | None) -> int:
    """Show a login; the error if there is none."""
    output = Output(sys.stdout, sys.stderr, as_json="--json" in line.options)
    try:
        grant = asyncio.run(work)
    except MCPError as error:
        return report(error, output)
    except KeyboardInterrupt:
        return FAILURE_EXIT
    ends = grant.expires_at
    expiry = None if ends is None else datetime.fromtimestamp(ends, UTC).isoformat("T", "seconds")
    data = {
        "issuer": grant.issuer,
        "client": grant.client_id,
        "scopes": [*grant.scopes],
        "expiresAt": expiry,
        "isRefreshed": grant.refresh_token is not None,
    }
    ended = "refreshed when it ends" if data["isRefreshed"] else "ends with a new login"
    rows = [
        ("issuer", grant.issuer),
        ("client", grant.client_id),
        ("scopes", " ".join(grant.scopes) or "-"),
        ("token until", f"{expiry or 'nobody knows when'}, {ended}"),
    ]
    page: list[Part] = [Table(rows)] if done is None else [Paragraph(done), Table(rows)]
    return output.result(data, page)


_OF_FILES = (
    Option("--servers", "TARGET is a name in this file", "FILE", FILES),
    Option(TRUST, "take what the mcp.json of this folder says of this server, without asking"),
)

LOGIN = CliCommand(
    "login",
    "log in to a server over HTTP",
    _login,
    (Argument("TARGET", _TARGET),),
    {
        "options of the login": (
            Option("--scope", "ask for this scope too; may be repeated", "S"),
            Option("--client-id", "use this client, which is registered at --issuer", "ID"),
            Option("--issuer", "the authorization server of --client-id", "URL"),
            Option("--client-secret-env", "take the secret of --client-id from here", "NAME"),
            Option("--client-metadata", "name the client by this description of it", "URL"),
            Option("--no-browser", "print the page's URL, and read the answer that is pasted"),
            Option("--device", "log in on another device, with a code"),
            Option(
                "--port",
                "come back to this port of 127.0.0.1, by default a free one",
                "N",
                range(1, 65_536),
            ),
        ),
        "options of the server": _OF_FILES,
        "options of the output": (JSON,),
    },
    notes="""\
examples:
  foundation-rt login https://mcp.example.com/mcp
  foundation-rt login github --client-id Iv1.x \\
      --issuer https://github.com/login/oauth""",
)

LOGOUT = CliCommand(
    "logout",
    "revoke and delete a login",
    _logout,
    (Argument("TARGET", _TARGET, count="?"),),
    {
        "options of the login": (Option("--all", "delete every login, and every client"),),
        "options of the server": _OF_FILES,
    },
    notes="""\
examples:
  foundation-rt logout https://mcp.example.com/mcp
  foundation-rt logout --all""",
)

WHOAMI = CliCommand(
    "whoami",
    "show a login: issuer, client, scopes and expiry",
    _whoami,
    (Argument("TARGET", _TARGET),),
    {"options of the server": _OF_FILES, "options of the output": (JSON,)},
    notes="""\
examples:
  foundation-rt whoami https://mcp.example.com/mcp --json""",
)
