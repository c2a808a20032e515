"""What may import what: pure decisions, one direction, and a start that loads little."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import orjson
import pytest

from tests.support.core import INITIALIZE, INITIALIZED, request

ROOT = Path(__file__).parent.parent / "foundation_rt"
PACKAGE = "foundation_rt"
PATIENCE = 40.0

PURE = (
    "protocol",
    "features.completions",
    "features.messages",
    "features.pages",
    "features.reading",
    "dispatch.session",
    "calls.invocation",
    "dispatch.effects",
    "dispatch.batches",
    "dispatch.refusals",
    "calls.results",
    "calls.shaped_results",
    "tools.definition",
    "tools.names",
    "protocol.peer",
    "protocol.principal",
    "asking.elicitation",
    "asking.questions",
    "asking.roots",
    "asking.rounds",
    "asking.sampling",
    "asking.sealing",
    "calls.client_input",
    "dispatch.envelope",
    "calls.records",
    "calls.procedure",
    "calls.tools_call",
    "calls.feature_calls",
    "methods",
    "dispatch.dispatcher",
    "transports.http.headers",
    "transports.http.refusal",
    "aacp.types",
    "aacp.encoder",
    "aacp.session_manager",
    "aacp.ledger",
    "aacp.ownership",
    "aacp.retransmitter",
    "aacp.effects",
    "aacp.status",
    "aacp.node",
    "client.answering.elicitation",
    "client.answering.json_answers",
    "client.answering.refusing",
    "client.answering.sampling",
    "client.calling.routing",
    "client.calling.tool_cache",
    "client.connect_options",
    "client.failing.attempt",
    "client.failing.catalogue",
    "client.failing.circuit_breaker",
    "client.failing.error_mapping",
    "client.failing.errors",
    "client.failing.printable",
    "client.failing.retries",
    "client.failing.settings",
    "client.reading.content",
    "client.reading.mirroring",
    "client.reading.results",
    "client.reading.tool_schemas",
    "client.sessions.channel",
    "client.sessions.conversation",
    "client.sessions.handshake",
    "client.sessions.server_description",
    "client.transports.headers",
    "client.transports.http_server",
    "client.transports.last_words",
    "client.transports.redaction",
    "client.transports.sse",
)
IMPURE = {"asyncio", "time", "uuid", "random", "os"}
ALSO_IMPURE = {
    "concurrent",
    "datetime",
    "io",
    "logging",
    "multiprocessing",
    "pathlib",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
}

# It reads and writes times that are given to it.
ARITHMETIC = {"aacp.encoder": {"datetime"}, "protocol.content": {"datetime"}}

# From the bottom to the top; a module imports from its own layer and those below. A name stands for
# a module or for everything in a package.
LAYERS = (
    ("version", "errors"),
    ("protocol",),
    (
        "abort",
        "agents",
        "asking",
        "builtin.health",
        "clock",
        "configuration",
        "context",
        "features",
        "ids",
        "logs",
        "resources",
        "schemas",
        "shares",
        "tools",
        "typed",
    ),
    ("calls", "dispatch", "extensions", "features.reading", "methods"),
    ("aacp", "operations", "running"),
    ("transports",),
    ("client.failing",),
    ("client.reading",),
    ("client.answering", "client.options"),
    ("client.sessions",),
    ("client.calling", "client.transports"),
    (
        "builtin.admin",
        "builtin.agent_requests",
        "builtin.agents",
        "client",
        "command_line.apps",
        "command_line.serving",
        "runtime",
        "server",
        "server_features",
    ),
    ("__main__", "builtin", "command_line", "testing"),
)


def modules() -> dict[str, Path]:
    """The modules of the package by name: `protocol.framing`, and "" for the package itself."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def belongs(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def imports(module: str, *, lazy: bool) -> Iterator[str]:
    """What a module imports at run time, absolutely named; with `lazy`, in functions as well."""
    path = MODULES[module]
    package = [PACKAGE, *module.split(".")] if module else [PACKAGE]
    if path.name != "__init__.py":
        package.pop()
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending.extend(node.orelse)
        elif lazy or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending.extend(ast.iter_child_nodes(node))


def own_imports(module: str, *, lazy: bool) -> set[str]:
    """The modules of this package among them."""
    prefix = f"{PACKAGE}."
    named = {each.removeprefix(prefix) for each in imports(module, lazy=lazy)}
    return named & MODULES.keys() - {module}


def foreign_imports(module: str, *, lazy: bool) -> set[str]:
    """The top-level names of everything else."""
    return {each.partition(".")[0] for each in imports(module, lazy=lazy)} - {PACKAGE}


def layer_of(module: str) -> int:
    # The longest name counts: `builtin.health` is not where the rest of `builtin` is.
    found = [
        (len(name), number)
        for number, names in enumerate(LAYERS)
        for name in names
        if belongs(module, (name,))
    ]
    assert found, f"{module} has no place in LAYERS"
    return max(found)[1]


PURE_MODULES = [module for module in MODULES if belongs(module, PURE)]


@pytest.mark.rule("EMBED-05")
def test_the_pure_modules_are_there() -> None:
    for name in PURE:
        assert any(belongs(module, (name,)) for module in MODULES)


@pytest.mark.rule("EMBED-05")
@pytest.mark.parametrize("module", PURE_MODULES)
def test_what_decides_imports_neither_clock_nor_chance_nor_io(module: str) -> None:
    impure = (IMPURE | ALSO_IMPURE) - ARITHMETIC.get(module, set())
    assert not foreign_imports(module, lazy=True) & impure


@pytest.mark.rule("EMBED-05")
def test_what_decides_imports_nothing_that_imports_clock_or_chance() -> None:
    reached, pending = set[str](), list(PURE_MODULES)
    while pending:
        module = pending.pop()
        if module not in reached:
            reached.add(module)
            pending.extend(own_imports(module, lazy=False))
    offending = {
        module: found
        for module in reached
        if (found := foreign_imports(module, lazy=False) & IMPURE)
    }
    assert not offending


@pytest.mark.rule("EMBED-05")
@pytest.mark.parametrize("module", [module for module in MODULES if module not in ("", "builtin")])
def test_imports_point_one_way(module: str) -> None:
    upwards = {each for each in own_imports(module, lazy=True) if layer_of(each) > layer_of(module)}
    assert not upwards


@pytest.mark.rule("EMBED-05")
def test_every_module_has_its_place_in_the_table_of_the_architecture() -> None:
    text = (ROOT.parent / "spec" / "architecture.md").read_text()
    table = [line for line in text.splitlines() if line.startswith("| `")]
    shown = [name for line in table for name in re.findall(r"`([^`]+)`", line.split("|")[1])]
    found = {f"{module.name}/" if module.is_dir() else module.name for module in ROOT.iterdir()}
    found = {name for name in found if not name.startswith("__")} - {"py.typed"}
    assert {name for name in found if not any(fnmatch(name, each) for each in shown)} == set()


@pytest.mark.rule("EMBED-05")
def test_the_package_itself_imports_only_its_version() -> None:
    assert own_imports("", lazy=True) <= {"version"}


def test_the_scan_sees_every_form_of_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "probe.py"
    source.write_text(
        "from typing import TYPE_CHECKING\n"
        "import os.path as p\n"
        "from . import errors\n"
        "from .protocol import framing\n"
        "if TYPE_CHECKING:\n    import uuid\nelse:\n    import random\n"
        "class A:\n    import time\n"
        "async def f():\n    from .server import Server\n"
    )
    monkeypatch.setitem(MODULES, "probe", source)
    at_import = {"protocol", "protocol.framing", "errors", ""}
    assert own_imports("probe", lazy=False) | {""} == at_import
    assert own_imports("probe", lazy=True) | {""} == at_import | {"server"}
    assert foreign_imports("probe", lazy=False) == {"typing", "os", "random", "time"}


# -- what a start loads


EXPENSIVE = {"asyncio", "cattrs", "tomli", "tomllib", "argparse", "logging"}

SYNC_APP = """
import sys
from foundation_rt import Server, ToolContext

server = Server("sync")

@server.tool
def loaded(ignored: str = "", *, ctx: ToolContext) -> list:
    ctx.logger.warn("called")
    return sorted(sys.modules)

@server.tool(inline=True)
def loaded_inline() -> list:
    return sorted(sys.modules)
"""


def bare_environment() -> dict[str, str]:
    """Without configuration, and without what makes coverage measure the process."""
    unwanted = ("FOUNDATION_RT_", "COVERAGE_")
    return {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}


def run_python(*words: str, given: bytes = b"") -> bytes:
    done = subprocess.run(
        [sys.executable, *words],
        input=given,
        capture_output=True,
        env=bare_environment(),
        timeout=PATIENCE,
        check=True,
    )
    return done.stdout


def loaded_by(code: str) -> set[str]:
    printed = run_python("-c", f"{code}\nimport sys; print(*sys.modules)")
    return set(printed.decode().split())


@pytest.mark.rule("PROC-08")
def test_importing_the_package_costs_next_to_nothing() -> None:
    added = loaded_by("import foundation_rt") - loaded_by("import typing, __future__")
    assert added == {"foundation_rt", "foundation_rt.version"}


@pytest.mark.rule("PROC-08")
def test_importing_what_an_author_needs_loads_nothing_expensive() -> None:
    code = "from foundation_rt import Server, ToolContext, ToolError, ErrorCode"
    assert not (loaded_by(code) - loaded_by("pass")) & EXPENSIVE


@pytest.mark.rule("PROC-08")
def test_a_server_without_coroutines_never_loads_asyncio_nor_what_only_others_need(
    tmp_path: Path,
) -> None:
    app = tmp_path / "app.py"
    app.write_text(SYNC_APP)
    lines = [
        INITIALIZE,
        INITIALIZED,
        request("ping", None, 1),
        request("tools/list", None, 2),
        request("tools/call", {"name": "health"}, 3),
        request("tools/call", {"name": "loaded", "arguments": {"ignored": 5}}, 4),
        request("tools/call", {"name": "loaded_inline"}, 5),
        request("tools/call", {"name": "loaded"}, 6),
    ]
    out = run_python("-m", PACKAGE, "serve", str(app), given=b"\n".join([*lines, b""]))
    answers = {answer["id"]: answer for answer in map(orjson.loads, out.splitlines())}
    assert len(answers) == 7
    for request_id in (5, 6):
        result = answers[request_id]["result"]
        assert result["isError"] is False
        loaded = set(orjson.loads(result["content"][0]["text"]))
        assert "orjson" in loaded
        assert not (loaded - loaded_by("pass")) & EXPENSIVE
        assert f"{PACKAGE}.builtin.admin" not in loaded
