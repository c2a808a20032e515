"""The command `package`: a bundle of a program, and its `server.json` (spec/packages.md)."""

from __future__ import annotations

import ast
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.files import replacing
from ..client.safe_text import printable_text
from ..errors import UsageError
from .args import FILES, FOLDERS, Argument, CliCommand, CommandLine, CommandLineError, Option
from .bundles.archive import write_archive
from .bundles.contents import read_files, refuse_absent_modules
from .bundles.manifest import MANIFEST, PROJECT, SERVER, Description, project_file
from .bundles.requirements import read_requirements
from .bundles.variables import variables_of
from .render import pretty_json, write_output
from .run import clean_name
from .serve import TRACEBACK
from .server_loading import load_app, split_app

if TYPE_CHECKING:
    from ..server import Server

_OUT = "dist"
_READABLE = 0o644


def _package(line: CommandLine) -> int:
    source, attribute = split_app(line.positional[0])
    program = Path(source)
    namespace, url = line.option("--namespace"), line.option("--url")
    if not source.endswith(".py"):
        raise CommandLineError("APP is a file here: FILE.py or FILE.py:attribute")
    if (namespace is None) is not (url is None):
        raise CommandLineError("server.json needs both --namespace and --url")
    server = load_app(line.positional[0], line.program or ())
    requirements = read_requirements(
        Path(line.option("--requirements") or program.parent / "requirements.txt")
    )
    out = Path(line.option("--out") or _OUT)
    files = read_files(program, line.options.get("--file", ()), out)
    refuse_absent_modules(program, [*files])
    description = _description(server, files, program.name, line)
    started = program.name if attribute is None else f"{program.name}:{attribute}"
    manifest = description.manifest(started, line.program or ())
    archive = write_archive(
        {
            MANIFEST: f"{pretty_json(manifest)}\n".encode(),
            PROJECT: project_file(requirements).encode(),
            **{f"{SERVER}/{name}": content for name, content in files.items()},
        }
    )
    name = f"{description.name}-{description.version}.mcpb"
    written = {name: archive}
    if namespace is not None and url is not None:
        found = description.server_json(namespace, url, sha256(archive).hexdigest())
        written["server.json"] = f"{pretty_json(found)}\n".encode()
    _write(out, written)
    asked = [f"{each.name}{' (secret)' * each.is_secret}" for each in description.variables]
    lines = [
        *(f"{out / each} ({len(content):,} bytes)" for each, content in written.items()),
        f"in it: {', '.join([MANIFEST, PROJECT, *(f'{SERVER}/{each}' for each in sorted(files))])}",
        f"it asks for: {', '.join(asked) or 'nothing'}",
    ]
    return write_output((printable_text("\n".join(lines)) + "\n").encode())


def _description(
    server: Server, files: dict[str, bytes], program: str, line: CommandLine
) -> Description:
    """Return what the loaded server says of itself, and the command line for it."""
    runtime = server.runtime  # what cannot be served is refused here
    runtime.close_logs(1.0)
    config, options = runtime.config, server.options
    text = line.option("--description") or (ast.get_docstring(ast.parse(files[program])) or "")
    if not text.strip():
        raise UsageError(
            f"say what the server does: in the first line of {program}, as its docstring, or with"
            " --description"
        )
    author = line.option("--author") or line.option("--namespace")
    if author is None:
        raise CommandLineError("name whose it is: --author NAME")
    return Description(
        name=clean_name(config.server.name) or "server",
        title=options.title or config.server.name,
        version=config.server.version,
        description=text.strip().splitlines()[0],
        author=author,
        website=options.website_url,
        # Of several versions the newest comes first.
        tools=sorted({each.name: each.description for each in reversed(server.list())}.items()),
        has_prompts=bool(server.list_prompts()),
        variables=variables_of(
            config, {name: each for name, each in files.items() if name.endswith(".py")}
        ),
    )


def _write(out: Path, files: dict[str, bytes]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with replacing(out / name, mode=_READABLE) as file:
                file.write(content)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}") from None


PACKAGE = CliCommand(
    "package",
    "make a bundle of it that clients install, and its server.json",
    _package,
    (
        Argument(
            "APP",
            "FILE.py, with :attribute where it holds several servers; what follows `--` at the end"
            " is for its program, each time that it is started",
            FILES,
        ),
    ),
    {
        "options of the bundle": (
            Option(
                "--file",
                "put this file or folder, below that of the program, into it; may be repeated",
                "PATH",
                FILES,
            ),
            Option(
                "--requirements",
                "the packages that it needs, a line NAME==VERSION for each; by default"
                " requirements.txt beside the program",
                "FILE",
                FILES,
            ),
            Option("--author", "whose it is; by default that of --namespace", "NAME"),
            Option(
                "--description",
                "what it does; by default the first line of the program's docstring",
                "TEXT",
            ),
            Option("--out", f"write into this folder, by default {_OUT}", "FOLDER", FOLDERS),
            TRACEBACK,
        ),
        "options of server.json": (
            Option("--namespace", "of whom publishes it in the registry, io.github.NAME", "NAME"),
            Option("--url", "where the bundle will be downloaded from", "URL"),
        ),
    },
    takes_program=True,
    about="""\
Load a program, and write a bundle (.mcpb) of it: the program, the files that are named, its
requirements, and a manifest of what the server says. Whoever installs the bundle is asked for the
settings and the environment variables that the program reads. With --namespace and --url, write
server.json for the MCP registry too.""",
    notes="""\
examples:
  foundation-rt package tools.py --author Ada
  foundation-rt package tools.py --author Ada --file skills --out build
  foundation-rt package tools.py --namespace com.example \\
      --url https://example.com/weather.mcpb

exit codes: 0; 1 it cannot be packaged; 2 the command line is wrong""",
)
