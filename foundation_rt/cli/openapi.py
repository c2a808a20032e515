"""The command `foundation-rt openapi`: an HTTP API as a server, or as a program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError, UsageError
from .args import CommandLine, CommandLineError, Valued, parse
from .main import SERVE_FLAGS, SERVE_OPTIONS, serve_line, write_output

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.context import ToolContext
    from ..openapi.api import OpenApiOptions
    from ..server import Server

HELP = """\
usage: foundation-rt openapi FILE|URL [OPTION ...]

Serve an HTTP API as tools, from its OpenAPI document (3.0 or 3.1, JSON or YAML), over stdio unless
--http or --transport says otherwise. Needs the extra `openapi`.

options of the API:
  --base-url URL                  of the API; by default the first of the document's `servers`
  --include SELECTOR              use these operations alone; may be repeated
  --exclude SELECTOR              leave these operations out; may be repeated
  --resource SELECTOR             make resources of these GET operations; may be repeated
  --tag NAME                      use operations with this tag alone; may be repeated
  --header 'NAME: VALUE'          send this header with every request to the API; may be repeated
  --secret-header 'SCHEME: NAME'  take the secret of this security scheme from the header NAME of
                                  the client's request, call by call; may be repeated

options of the server:
  --name NAME                     of the server; by default the title of the document
  --strict-outputs                advertise the schemas of responses, and enforce them
  --config FILE                   a configuration file, .toml or .json
  --http HOST:PORT                serve over HTTP (extra `http`)
  --transport TRANSPORT           stdio, http or both
  --no-auth                       serve every client over HTTP, without a key or token
  --workers N                     serve HTTP in N processes

options that serve nothing:
  --list                          print the tools, the resources and what is left out
  --write FILE                    write a program, to be edited and served; - is stdout

SELECTOR is tag:NAME, GET, '/path/*', 'GET /path/*', or an operationId; * stands for anything.

Secrets come from environment variables that are named after the security schemes of the document:
BEARER_AUTH_TOKEN for `bearerAuth`; with a user and a password BASIC_USERNAME and BASIC_PASSWORD.
--list names them. Over HTTP each client may bring its own instead, in a header (--secret-header).

examples:
  foundation-rt openapi petstore.yaml --base-url https://pets.example.com/v1
  foundation-rt openapi https://example.com/openapi.json --include 'GET' --http 127.0.0.1:8000
  foundation-rt openapi github.json --include tag:issues --header "Authorization: Bearer $TOKEN"
  foundation-rt openapi petstore.yaml --secret-header 'token: X-Pets-Token' --http 127.0.0.1:8000
  foundation-rt openapi petstore.yaml --write tools.py
"""

OPTIONS: Valued = {
    **SERVE_OPTIONS,
    "--base-url": "a URL",
    "--include": "a selector",
    "--exclude": "a selector",
    "--resource": "a selector",
    "--tag": "a name",
    "--header": "'NAME: VALUE'",
    "--secret-header": "'SCHEME: NAME'",
    "--name": "a name",
    "--write": "a file",
}
FLAGS = (*SERVE_FLAGS, "--strict-outputs", "--list")
_FETCH_SECONDS = 30.0


def openapi(arguments: list[str]) -> int:
    """Run the command; return the exit code."""
    line = parse(arguments, OPTIONS, FLAGS, at_most=1)
    if not line.positional:
        raise CommandLineError("openapi needs FILE or URL")
    if "--list" in line.options:
        return write_output(_listed(line).encode())
    target = line.option("--write")
    if target is not None:
        return _write(line, target)
    return serve_line(line, lambda over_http: _load(line), ["openapi", *arguments])


def _load(line: CommandLine) -> Server:
    from ..server import Server

    document, options = _read(line)
    wanted = _secret_headers(line)
    if wanted:
        options["auth"] = {scheme: _header_of_call(name) for scheme, name in wanted.items()}
    name, headers = line.option("--name"), [*wanted.values()] or None
    server = Server.from_openapi(document, name=name, request_headers=headers, **options)
    config = line.option("--config")
    if config is not None:
        server.configure(config)
    return server


def _read(line: CommandLine) -> tuple[Any, OpenApiOptions]:
    """Return the document of a command line, and the options for it."""
    source = line.positional[0]
    options: OpenApiOptions = {
        "base_url": line.option("--base-url"),
        "include": line.options.get("--include"),
        "exclude": line.options.get("--exclude"),
        "tags": line.options.get("--tag"),
        "routes": dict.fromkeys(line.options.get("--resource", ()), "resource"),
        "headers": dict(map(_header, line.options.get("--header", ()))),
        "strict_outputs": "--strict-outputs" in line.options,
    }
    if source.startswith(("http://", "https://")):
        text, options["document_url"] = _fetch(source)
        return text, options
    return Path(source), options


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not (text.isprintable() and text.isascii()):
        raise CommandLineError("--header is 'NAME: VALUE', in visible ASCII characters")
    return name.strip(), value.strip()


def _secret_headers(line: CommandLine) -> dict[str, str]:
    """Return the header of clients that has the secret, by security scheme."""
    found = {}
    for text in line.options.get("--secret-header", ()):
        scheme, _, name = (part.strip() for part in text.rpartition(":"))
        if not scheme or not name:
            raise CommandLineError("--secret-header is 'SCHEME: NAME', as in 'token: X-Pets-Token'")
        found[scheme] = name
    return found


def _header_of_call(name: str) -> Callable[[ToolContext], str | None]:
    return lambda ctx: ctx.headers.get(name)


def _fetch(url: str) -> tuple[bytes, str]:
    """Return the document at a URL, and the URL that it was found at after redirects."""
    from ..openapi.documents import MAX_BYTES, OpenApiError

    try:
        import httpx2
    except ImportError:
        raise MissingExtraError("Fetching a document", "openapi") from None
    content = bytearray()
    shown = url.partition("?")[0]
    try:
        with httpx2.stream("GET", url, follow_redirects=True, timeout=_FETCH_SECONDS) as response:
            if response.status_code != 200:
                raise OpenApiError(f"{shown} answered {response.status_code}")
            for piece in response.iter_bytes():
                content += piece
                if len(content) > MAX_BYTES:
                    raise OpenApiError(f"{shown} is larger than {MAX_BYTES >> 20} MiB")
            return bytes(content), str(response.url)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OpenApiError(f"{shown} cannot be fetched: {error}") from None


def _listed(line: CommandLine) -> str:
    """Return the tools and resources of a document, a line each."""
    from ..openapi.api import read_api
    from ..openapi.program import uri_of

    document, options = _read(line)
    api = read_api(document, options)
    rows = [f"{each.definition.name}  {each.operation.label}" for each in api.tools]
    rows += [f"{uri_of(each)}  {each.operation.label}" for each in api.resources]
    rows += [f"left out: {each.label}: {each.reason}" for each in api.skipped]
    for scheme in api.credentials.schemes.values():
        rows.append(f"secret of {scheme.name}: {' and '.join(scheme.variables)}")
    counts = f"{len(api.tools)} tools, {len(api.resources)} resources, {len(api.skipped)} left out"
    return "\n".join([*rows, counts, ""])


def _write(line: CommandLine, target: str) -> int:
    from ..openapi.api import read_api
    from ..openapi.program import write_program

    for option, argument in (("--header", "headers"), ("--secret-header", "auth")):
        if option in line.options:
            advice = f"give ApiClient {argument}= in the program instead"
            raise CommandLineError(f"{option} goes without --write: {advice}")
    document, options = _read(line)
    text = write_program(read_api(document, options), line.option("--name"))
    if target == "-":
        return write_output(text.encode())
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from None
    return 0
