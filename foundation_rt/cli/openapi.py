"""The command `foundation-rt openapi`: an HTTP API as a server, or as a program."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urljoin

from attrs import evolve

from ..client.safe_text import printable_line
from ..errors import MissingExtraError, UsageError
from .args import FILES, Argument, CliCommand, CommandLine, CommandLineError, Option
from .render import write_output
from .serve import CONFIG, TRANSPORT_OPTIONS, WORKERS, configured, serve_line

if TYPE_CHECKING:
    from ..base.http_client.exchange import HttpAnswer
    from ..features.openapi.api import OpenApiOptions
    from ..features.openapi.security import OperatorSecret
    from ..server import Server

_FETCH_SECONDS = 30.0
_MAX_REDIRECTS = 10


def _openapi(line: CommandLine) -> int:
    if "--list" in line.options:
        return write_output(_listed(line).encode())
    try:
        return serve_line(line, lambda over_http: _load(line))
    except MissingExtraError as error:
        is_over_http = "--http" in line.options or line.option("--transport") in ("http", "both")
        raise error.also("openapi", *(["http"] if is_over_http else ())) from None


def _load(line: CommandLine) -> Server:
    from ..server import Server

    document, options = _read(line)
    secrets = _secrets(line)
    unset = [each.variable for each in secrets.values() if each.variable and not each.value]
    if unset:
        raise UsageError(f"--secret names {unset[0]}: there is no such variable, or it is empty")
    headers = [each.header for each in secrets.values() if each.header is not None]
    name = line.option("--name")
    server = Server.from_openapi(document, name=name, request_headers=headers or None, **options)
    return configured(server, line)


def _read(line: CommandLine) -> tuple[Any, OpenApiOptions]:
    """Return the document of a command line, and the options for it."""
    from ..base.http_client.values import full_origin, same_origin

    source = line.positional[0]
    options: OpenApiOptions = {
        "base_url": line.option("--base-url"),
        "include": line.options.get("--include"),
        "exclude": line.options.get("--exclude"),
        "tags": line.options.get("--tag"),
        "routes": dict.fromkeys(line.options.get("--resource", ()), "resource"),
        "headers": dict(map(_header, line.options.get("--header", ()))),
        "auth": _secrets(line) or None,
        "strict_outputs": "--strict-outputs" in line.options,
    }
    if source.startswith(("http://", "https://")):
        text, found = _fetch(source)
        options["document_url"] = found
        is_sending = options["auth"] or options["headers"]
        if is_sending and options["base_url"] is None and not same_origin(source, found):
            raise UsageError(
                f"{full_origin(source)} redirects to {full_origin(found)} for the document, and"
                " secrets and headers go only where you say: give --base-url, or that URL"
            )
        return text, options
    return Path(source), options


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not (text.isprintable() and text.isascii()):
        raise CommandLineError("--header is 'NAME: VALUE', in visible ASCII characters")
    return name.strip(), value.strip()


def _secrets(line: CommandLine) -> dict[str, OperatorSecret]:
    """Return the secrets that the command line names, by security scheme."""
    from ..features.openapi.security import OperatorSecret

    found = {}
    for text in line.options.get("--secret", ()):
        scheme, _, variable = text.rpartition("=")
        if not scheme or not variable:
            raise CommandLineError("--secret is SCHEME=VARIABLE, as in token=PETS_TOKEN")
        if scheme in found:
            raise CommandLineError(f"--secret names {scheme!r} twice: give it one variable")
        found[scheme] = OperatorSecret(variable, os.environ.get(variable))
    for text in line.options.get("--secret-header", ()):
        scheme, _, name = (part.strip() for part in text.rpartition(":"))
        if not scheme or not name:
            raise CommandLineError("--secret-header is 'SCHEME: NAME', as in 'token: X-Pets-Token'")
        if scheme in found and found[scheme].header is not None:
            raise CommandLineError(f"--secret-header names {scheme!r} twice: give it one header")
        found[scheme] = evolve(found.get(scheme, OperatorSecret(None, None)), header=name)
    return found


def _fetch(url: str) -> tuple[bytes, str]:
    """Return the document at a URL, and the URL that it was found at after redirects."""
    from ..features.openapi.documents import MAX_BYTES, OpenApiError
    from ..features.openapi.upstream import require_client

    require_client()
    shown = url.partition("?")[0]
    try:
        answer, found = asyncio.run(_fetched(url))
    except (OSError, ValueError) as error:
        reason = str(error) or f"it takes more than {_FETCH_SECONDS:.0f} s"
        raise OpenApiError(f"{shown} cannot be fetched: {reason}") from None
    if answer.status != 200:
        raise OpenApiError(f"{shown} answered {answer.status}")
    if answer.body is None:
        raise OpenApiError(f"{shown} is larger than {MAX_BYTES >> 20} MiB")
    return answer.body, found


async def _fetched(url: str) -> tuple[HttpAnswer, str]:
    """Return the response at a URL after redirects, and where it was found."""
    from ..base.http_client.exchange import fetch
    from ..base.http_client.network import Network
    from ..features.openapi.documents import MAX_BYTES

    network = Network()
    for _ in range(_MAX_REDIRECTS):
        answer = await fetch(network, url, _FETCH_SECONDS, MAX_BYTES)
        place = answer.headers.get("location")
        if not 301 <= answer.status <= 308 or place is None:
            return answer, url
        url = urldefrag(urljoin(url, place)).url
    raise ValueError("it redirects in a circle")


def _listed(line: CommandLine) -> str:
    """Return the tools and resources of a document, a line each."""
    from ..features.openapi.api import read_api, uri_of

    document, options = _read(line)
    api = read_api(document, options)
    rows = [f"{each.definition.name}  {each.operation.label}" for each in api.tools]
    rows += [f"{uri_of(each)}  {each.operation.label}" for each in api.resources]
    rows += [f"left out: {each.label}: {each.reason}" for each in api.skipped]
    rows += [f"origin: {each}" for each in api.origins()]
    rows += [f"secret: {each}" for each in api.credentials.described()]
    counts = f"{len(api.tools)} tools, {len(api.resources)} resources, {len(api.skipped)} left out"
    return "\n".join([*map(printable_line, rows), counts, ""])


OPENAPI = CliCommand(
    "openapi",
    "serve an HTTP API as tools, from its document",
    _openapi,
    (
        Argument(
            "FILE|URL",
            "the document of the API, OpenAPI 3.0 or 3.1, JSON or YAML",
            FILES,
        ),
    ),
    {
        "options of the API": (
            Option(
                "--base-url",
                "the URL of the API; by default the first of the document's `servers`. Secrets and"
                " headers need it, unless FILE|URL is a URL of the API",
                "URL",
            ),
            Option("--include", "use these operations alone; may be repeated", "SELECTOR"),
            Option("--exclude", "leave these operations out; may be repeated", "SELECTOR"),
            Option(
                "--resource", "make resources of these GET operations; may be repeated", "SELECTOR"
            ),
            Option("--tag", "use operations with this tag alone; may be repeated", "NAME"),
            Option(
                "--secret",
                "send the secret in this environment variable as the security scheme SCHEME of the"
                " document says; may be repeated",
                "SCHEME=VARIABLE",
            ),
            Option(
                "--header",
                "send this header with every request to the API; may be repeated",
                "'NAME: VALUE'",
            ),
            Option(
                "--secret-header",
                "take the secret of this security scheme from the header NAME of the client's"
                " request, call by call; may be repeated",
                "'SCHEME: NAME'",
            ),
        ),
        "options of the server": (
            Option("--name", "the name of the server; by default the document's title", "NAME"),
            Option("--strict-outputs", "advertise the schemas of responses, and enforce them"),
            CONFIG,
            *TRANSPORT_OPTIONS,
            WORKERS,
        ),
        "an option that serves nothing": (
            Option("--list", "print the tools, the resources and what is left out"),
        ),
    },
    about="""\
Serve an HTTP API as tools, from its OpenAPI document (3.0 or 3.1, JSON or YAML), over stdio unless
--http or --transport says otherwise. Needs the extra `openapi`.""",
    notes="""\
SELECTOR is tag:NAME, GET, '/path/*', 'GET /path/*', or an operationId; * stands for anything.

--list names the security schemes. The variable of a scheme with a user and a password has both,
with a colon between them. Over HTTP each client may bring its own secret instead, in a header
(--secret-header).

examples:
  foundation-rt openapi petstore.yaml --secret token=PETS \\
      --base-url https://pets.example.com/v1
  foundation-rt openapi https://example.com/api.json --include GET --http 8000
  foundation-rt openapi github.json --include tag:issues \\
      --base-url https://api.github.com \\
      --header "Authorization: Bearer $TOKEN"
  foundation-rt openapi https://example.com/openapi.json --http 8000 \\
      --secret-header 'token: X-Pets-Token'""",
)
