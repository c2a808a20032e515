"""What may import what: pure decisions, one direction, and a start that loads little."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import orjson
import pytest

from tests.lab.programs.program import run_source
from tests.lab.servers.core import INITIALIZE, INITIALIZED, request

ROOT = Path(__file__).parent.parent / "foundation_rt"
PACKAGE = "foundation_rt"
PATIENCE = 60.0

PURE = (
    "protocol",
    "features.completions.registry",
    "features.prompts.results",
    "features.prompts.registry",
    "features.resources.registry",
    "kernel.registry.tool_definition",
    "features.server_requests.elicitation",
    "features.server_requests.requests",
    "features.server_requests.roots",
    "features.server_requests.round_trips",
    "features.server_requests.sampling",
    "features.server_requests.request_state",
    "http.headers",
    "http.asgi",
    "http.authorization_server.pages",
    "http.authorization_server.providers",
    "agents.ledger.types",
    "agents.ledger.encoder",
    "agents.ledger.session_manager",
    "agents.ledger.rules",
    "agents.ledger.unit_of_work",
    "agents.ledger.ownership",
    "agents.ledger.retransmitter",
    "agents.ledger.effects",
    "agents.ledger.status",
    "agents.ledger.node",
    "agents.ledger.claims",
    "agents.ledger.exchange",
    "agents.ledger.operations",
    "agents.ledger.schedules",
    "agents.ledger.schedule_keeper",
    "agents.ledger.submissions",
    "agents.ledger.submission_taker",
    "apps.coordinator.catalogue",
    "apps.coordinator.tool_record",
    "apps.coordinator.names",
    "apps.coordinator.server_state",
    "client.handlers.elicitation",
    "client.handlers.params",
    "client.handlers.sampling",
    "client.tools.routing",
    "client.tools.tool_cache",
    "client.auth.discovery",
    "client.auth.grants",
    "client.auth.urls",
    "client.errors",
    "client.resilience.circuit_breaker",
    "client.resilience.error_mapping",
    "client.safe_text",
    "client.resilience.retries",
    "client.resilience.settings",
    "client.results.content",
    "client.results.mcp_headers",
    "client.results.results",
    "client.results.tool_schemas",
    "client.transports.transport",
    "client.session.pending_requests",
    "client.session.handshake",
    "client.transports.http_headers",
    "client.transports.stderr_tail",
    "apps.host.chat",
    "apps.host.events",
    "apps.host.orchestrator.pruning",
    "apps.host.orchestrator.results",
    "apps.host.sessions.interruption",
    "apps.host.sessions.live_chat",
    "apps.host.sessions.operations",
    "apps.host.sessions.rows",
    "apps.host.sessions.store",
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
ARITHMETIC = {"agents.ledger.encoder": {"datetime"}, "protocol.content": {"datetime"}}

OF_FEATURES = (
    "batch",
    "session_state",
    "stored_state",
    "principal_state",
    "client_input",
    "sampling",
    "forwarding",
    "forwarded",
    "subscri",
    "prompt",
    "resource_template",
    "registered_resource",
    "openapi",
    "mount",
    "audit",
    "roots",
    "elicit",
    "promotion",
    "tasksupport",
    "task_after",
    "has_tasks",
    "stop_tasks",
    ".tasks",
    "rate_limit",
    "ratelimit",
    "admin",
    "agent",
    "metric",
    "argument_scopes",
    "visibility",
    "audience",
    "polic",
)
"""The words of features that no identifier in the kernel has, nor its modules."""


def layers() -> list[list[str]]:
    """Return the layers in spec/architecture.md, the lowest first, each as names of modules."""
    text = (ROOT.parent / "spec" / "architecture.md").read_text()
    table = text.partition("| layer |")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    return [
        [
            name.removesuffix("/").removesuffix(".py").replace("/", ".")
            for name in re.findall(r"`([^`]+)`", row.split("|")[1])
        ]
        for row in rows
    ]


def modules() -> dict[str, Path]:
    """Return the modules of the package by name: `protocol.framing`, "" for the package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def belongs(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


@cache
def all_imports(path: Path, package: tuple[str, ...]) -> list[tuple[str, bool, bool]]:
    """Return the absolute names that a file imports.

    Each with whether it stands in a function, and whether under `TYPE_CHECKING`.
    """
    found: list[tuple[str, bool, bool]] = []
    pending: list[tuple[ast.AST, bool, bool]] = [(ast.parse(path.read_text()), False, False)]
    while pending:
        node, lazy, types = pending.pop()
        if isinstance(node, ast.Import):
            found += [(alias.name, lazy, types) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join([*base, *([node.module] if node.module else [])])
            names = [source, *(f"{source}.{alias.name}" for alias in node.names)]
            found += [(name, lazy, types) for name in names]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += [(each, lazy, True) for each in node.body]
            pending += [(each, lazy, types) for each in node.orelse]
        else:
            lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            # An expression imports nothing.
            pending += [
                (each, lazy, types)
                for each in ast.iter_child_nodes(node)
                if not isinstance(each, ast.expr)
            ]
    return found


def imports(module: str, *, lazy: bool, types: bool = False) -> Iterator[str]:
    """Yield the absolute names that a module imports at run time.

    With `lazy` imports inside functions count too, with `types` those under `TYPE_CHECKING`.
    """
    path = MODULES[module]
    package = [PACKAGE, *module.split(".")] if module else [PACKAGE]
    if path.name != "__init__.py":
        package.pop()
    for name, is_lazy, of_types in all_imports(path, tuple(package)):
        if (lazy or not is_lazy) and (types or not of_types):
            yield name


def own_imports(module: str, *, lazy: bool, types: bool = False) -> set[str]:
    """Return the modules of this package among them."""
    prefix = f"{PACKAGE}."
    named = {each.removeprefix(prefix) for each in imports(module, lazy=lazy, types=types)}
    return named & MODULES.keys() - {module}


def foreign_imports(module: str, *, lazy: bool) -> set[str]:
    """Return the top-level names of all other imports."""
    return {each.partition(".")[0] for each in imports(module, lazy=lazy)} - {PACKAGE}


LAYER_OF = {name: number for number, names in enumerate(layers()) for name in names}


def place_of(module: str) -> str:
    """Return the longest name in the table that a module is, or is in."""
    return max((name for name in LAYER_OF if belongs(module, (name,))), key=len)


def layer_of(module: str) -> int:
    return LAYER_OF[place_of(module)]


PURE_MODULES = [
    module
    for module in sorted(MODULES.keys() - {"", "__main__"})
    if belongs(module, PURE) or place_of(module) == "kernel"
]


@pytest.mark.rule("EMBED-05")
def test_pure_modules_exist() -> None:
    for name in PURE:
        assert any(belongs(module, (name,)) for module in MODULES)


@pytest.mark.rule("EMBED-05")
@pytest.mark.parametrize("module", PURE_MODULES)
def test_pure_module_imports_no_clock_randomness_or_io(module: str) -> None:
    impure = (IMPURE | ALSO_IMPURE) - ARITHMETIC.get(module, set())
    assert not foreign_imports(module, lazy=True) & impure


@pytest.mark.rule("EMBED-05")
def test_pure_modules_reach_no_clock_or_randomness() -> None:
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
def test_every_module_imports_only_its_own_layer_and_lower_ones() -> None:
    layered = [module for module in MODULES if module not in ("", "__main__")]
    upward = {
        (module, imported)
        for module in layered
        for imported in own_imports(module, lazy=True, types=True) - {""}
        if layer_of(imported) > layer_of(module)
    }
    assert not upward


def identifiers(path: Path) -> Iterator[str]:
    """Yield every name in a module: of what it defines, imports, uses and passes."""
    for node in ast.walk(ast.parse(path.read_text())):
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            if isinstance(name := getattr(node, field, None), str):
                yield name


def words_of_features_in_kernel() -> set[tuple[str, str]]:
    kernel = {name: path for name, path in MODULES.items() if belongs(name, ("kernel",))}
    assert kernel
    return {
        (module, name)
        for module, path in kernel.items()
        for name in (module, *identifiers(path))
        if any(word in name.lower() for word in OF_FEATURES)
    }


@pytest.mark.rule("EMBED-05")
def test_kernel_has_no_word_of_a_feature() -> None:
    assert not words_of_features_in_kernel()


def largest_circle() -> int:
    """Return the size of the largest set of modules that import one another, for types as well."""
    imported = {name: own_imports(name, lazy=False, types=True) - {""} for name in MODULES if name}
    importers = {name: {each for each in imported if name in imported[each]} for name in imported}

    def visit(name: str, graph: dict[str, set[str]], seen: set[str]) -> list[str]:
        """Return the modules that are reached from one and were not seen, the farthest first."""
        if name in seen:
            return []
        seen.add(name)
        return [*(far for each in graph[name] for far in visit(each, graph, seen)), name]

    seen: set[str] = set()
    order = [each for name in imported for each in visit(name, imported, seen)]
    seen = set()  # the algorithm of Kosaraju: what is reached backwards, in that order, is a circle
    return max(len(visit(name, importers, seen)) for name in reversed(order))


def entries() -> set[str]:
    """Return what stands at the top of the package, but for public paths of what is elsewhere."""
    forwarding = {name.partition(".")[0] for name in layers()[-1]}
    return {name.partition(".")[0] for name in MODULES if name} - forwarding | {"__init__"}


@pytest.mark.rule("EMBED-05")
def test_table_of_layers_names_everything_in_the_package() -> None:
    assert {place_of(module) for module in MODULES.keys() - {"", "__main__"}} == LAYER_OF.keys()


@pytest.mark.rule("EMBED-05")
def test_package_imports_only_its_version_and_the_lazy_names() -> None:
    assert own_imports("", lazy=True) <= {"version", "base.lazy_names"}


def test_scan_finds_every_form_of_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


EXPENSIVE = {"asyncio", "tomli", "tomllib", "argparse", "logging"}

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
def test_import_of_the_package_loads_only_its_version_and_the_lazy_names() -> None:
    added = loaded_by("import foundation_rt") - loaded_by("import typing, __future__")
    assert added == {
        f"foundation_rt{each}" for each in ("", ".base", ".base.lazy_names", ".version")
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("gc.disable()", "not gc.isenabled()"),
        ("gc.freeze()", "gc.isenabled() and gc.get_freeze_count()"),
        ("pass", "gc.isenabled() and not gc.get_freeze_count()"),
    ],
)
def test_import_of_a_name_leaves_the_collection_of_garbage_as_it_was(
    before: str, after: str
) -> None:
    code = f"import gc; {before}; from foundation_rt import ErrorCode; assert {after}"
    run_source(code)


@pytest.mark.rule("PROC-08")
def test_import_of_the_author_names_loads_nothing_expensive() -> None:
    code = "from foundation_rt import Server, ToolContext, ToolError, ErrorCode"
    assert not (loaded_by(code) - loaded_by("pass")) & EXPENSIVE


@pytest.mark.rule("PROC-08")
def test_server_without_coroutines_loads_neither_asyncio_nor_unused_parts(
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
        assert f"{PACKAGE}.features.admin" not in loaded
        assert f"{PACKAGE}.features.forwarding" not in loaded
        of_tasks = {each for each in loaded if each.startswith(f"{PACKAGE}.features.tasks.")}
        assert of_tasks == {f"{PACKAGE}.features.tasks.{each}" for each in ("feature", "support")}
