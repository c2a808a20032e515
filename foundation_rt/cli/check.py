"""The command `foundation-rt check` (CLI-04); not on the start path of `serve`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson
from attrs import asdict

from ..base.config.loading import settings, to_mapping
from ..protocol.revisions import REVISIONS
from .args import CliCommand, CommandLine, Option
from .render import Heading, Output, Page, Paragraph, Part, Table
from .reports import listed
from .serve import APP, CONFIG, TRACEBACK, load_program
from .targets import TARGET, TARGET_OPTIONS

if TYPE_CHECKING:
    from ..base.config.settings import ServerConfig
    from ..client.client import Client
    from ..protocol.revisions import Revision
    from ..server import Server
    from .live_view import LiveView
    from .run import Answer

_LISTS = ("tools", "resources", "resourceTemplates", "prompts", "methods", "extensions")
_IN_HEADING = ("server.name", "server.version")


def _check(line: CommandLine) -> int:
    output = Output(sys.stdout, sys.stderr, as_json="--json" in line.options)
    return output.result(*check(load_program(line), whole="--all" in line.options))


def check(server: Server, *, whole: bool = False) -> tuple[dict[str, Any], Page]:
    """Return the server's lists and effective configuration, secrets redacted.

    Args:
        server: is started for it.
        whole: the page has the schemas, and the settings that are as by default.

    Returns:
        everything as JSON, for programs; and the page.
    """
    runtime = server.runtime
    newest = [*REVISIONS.values()][-1]
    report: dict[str, Any] = {
        "server": {"name": runtime.config.server.name, "version": runtime.config.server.version},
        "tools": [definition.to_wire(newest) for definition in server.list()],
        **_other_features(server, newest),
        "configuration": to_mapping(runtime.config),
        "changed": _changed(runtime.config),
    }
    runtime.close_logs(1.0)
    return report, [*_page(report, type(runtime.config), whole=whole)]


def _other_features(server: Server, revision: Revision) -> dict[str, Any]:
    """Return the lists besides that of tools, without empty ones."""
    resources, prompts = server.features.resources, server.features.prompts
    lists = {
        "resources": [each.wire(revision) for each in resources.resources.entries()],
        "resourceTemplates": [each.wire(revision) for each in resources.templates.entries()],
        "prompts": [each.wire(revision) for each in prompts.entries()],
        "methods": [{"name": name} for name in sorted(server.options.methods)],
        "extensions": [{"name": name} for name in sorted(server.options.extensions)],
    }
    return {name: listed for name, listed in lists.items() if listed}


def _changed(config: ServerConfig) -> list[str]:
    """Return the keys of the settings that differ from the defaults."""
    values, defaults = asdict(config), asdict(type(config)())
    keys = (".".join(key) for key, _ in settings(type(config)))
    return [key for key in keys if _at(values, key) != _at(defaults, key)]


def _at(mapping: Mapping[str, Any], key: str) -> Any:
    value: Any = mapping
    for name in key.split("."):
        value = value[name]
    return value


# -- the page -------------------------------------------------------------------------------------


def _page(report: Mapping[str, Any], config: type[ServerConfig], *, whole: bool) -> Iterator[Part]:
    yield Heading(report["server"]["name"], report["server"]["version"])
    for name in _LISTS:
        if name in report:
            yield from listed(name, report[name], whole=whole)
    yield from _settings(report, config, whole=whole)


def _settings(
    report: Mapping[str, Any], config: type[ServerConfig], *, whole: bool
) -> Iterator[Part]:
    """Yield the settings that differ, or all of them, beside their defaults."""
    changed, values = report["changed"], report["configuration"]
    shown = [key for key in changed if key not in _IN_HEADING]
    yield Heading("SETTINGS", f"{len(shown) or 'none'} that differ from the defaults")
    if whole:
        shown = [".".join(key) for key, _ in settings(config)]
    if not shown:
        yield Paragraph("--all lists those by default")
        return
    defaults = to_mapping(config())
    rows = [
        (key, _shown(_at(values, key)), _shown(_at(defaults, key)) if key in changed else "")
        for key in shown
    ]
    yield Table([("SETTING", "VALUE", "DEFAULT"), *rows], has_head=True)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else orjson.dumps(value, default=str).decode()


# -- portability ----------------------------------------------------------------------------------


def _check_portable(line: CommandLine) -> int:
    from .run import ClientCommand, run

    return run(ClientCommand(_find_refusals, frozenset({"tools"})), line)


async def _find_refusals(client: Client, line: CommandLine, view: LiveView | None) -> Answer:
    from ..apps.host.llm.portability import findings
    from .run import Answer

    tools = [tool.wire for tool in await client.list_tools()]
    found = findings(tools)
    refused = sum(each.is_refused for each in found)
    summary = f"{len(tools)} tools, {refused} refusals, {len(found) - refused} notes"
    page = [*(Paragraph(str(each)) for each in found), Paragraph(summary)]
    return Answer({"findings": [each.wire() for each in found]}, page, 1 if refused else 0)


_NOTES = """\
examples:
  foundation-rt check tools.py
  foundation-rt check tools.py --config production.toml --all
  foundation-rt check tools.py --json
  foundation-rt check --portable "uvx some-server"

exit codes: 0; 1 the APP cannot be served, or a model refuses a tool; 2 the command line is wrong"""

CHECK = CliCommand(
    "check",
    "load it; show its tools and the settings that it changes",
    _check,
    (APP,),
    {
        "options of the program": (CONFIG, TRACEBACK),
        "options of the output": (
            Option("--all", "show the schemas of the tools, and every setting"),
            Option("--json", "print everything as JSON, for programs"),
            Option("--portable", "name what models refuse of the tools of any server"),
        ),
    },
    takes_program=True,
    about="""\
Load a program and its configuration as `serve` does, and show its tools in a line each and the
settings that differ from the defaults; or show the error. Secrets are not shown.""",
    notes=_NOTES,
    within=(
        CliCommand(
            "check --portable",
            "name the tools that Claude, OpenAI or Gemini refuse, and why",
            _check_portable,
            (TARGET,),
            TARGET_OPTIONS,
            takes_program=True,
            usage_exit=2,
            about="Name what Claude, OpenAI or Gemini refuse of the tools of any server, and why.",
            notes=_NOTES,
        ),
    ),
)
