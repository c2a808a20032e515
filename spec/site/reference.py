"""The reference of the API: which names are public, and the page that each of them stands on."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from attrs import frozen

PACKAGE = "foundation_rt"

GROUPS = {
    "Servers": (
        *("server", "features.composition", "features.own_features"),
        *("http", "protocol.principal", "protocol.peer"),
    ),
    "Handlers": ("features.context", "features.session_log", "base.abort", "features.signatures"),
    "Definitions and results": (
        *("kernel.registry", "protocol", "base.app_format", "base.transforms"),
        *("features.prompts", "features.resources", "features.completions"),
    ),
    "Asking the client": ("features.server_requests",),
    "Errors": ("errors",),
    "Agents": ("agents",),
    "Metrics": ("features.observers", "features.instruments"),
    "Embedding and forwarding": ("kernel", "features.forwarding"),
}
"""The headings for the names of the package, each with the modules that define them."""

MODULES = (
    "client",
    "client.blocking",
    "testing",
    "coordinator",
    "agents",
    "mcp_json",
    "host",
    "config.sections",
    "database.sqlite",
    "database.postgres",
    "database.migrations",
    "database.errors",
)
"""The other modules with public names."""


@frozen
class ReferencePage:
    """A page of the reference.

    Attributes:
        name: its file, without a suffix.
        title: its heading.
        module: the module from which the names are imported.
        names: the names, in order.
    """

    name: str
    title: str
    module: str
    names: tuple[str, ...]


def pages() -> list[ReferencePage]:
    """Return the pages; a name that is public in two modules stands on the first page alone."""
    package = import_module(PACKAGE)
    groups: dict[str, list[tuple[int, str]]] = {heading: [] for heading in GROUPS}
    for name in set(package.__all__) - {"__version__"}:
        heading, position = _place(getattr(package, name))
        groups[heading].append((position, name))
    found = [
        ReferencePage(
            heading.lower().replace(" ", "-"),
            heading,
            PACKAGE,
            tuple(name for _, name in sorted(names)),
        )
        for heading, names in groups.items()
    ]
    shown = {id(getattr(package, name)) for page in found for name in page.names}
    for each in MODULES:
        module = import_module(f"{PACKAGE}.{each}")
        names = tuple(name for name in _public(module) if id(getattr(module, name)) not in shown)
        shown.update(id(getattr(module, name)) for name in names)
        found.append(ReferencePage(module.__name__, module.__name__, module.__name__, names))
    return found


def _place(value: Any) -> tuple[str, int]:
    """Return the heading for a value, and the position of its module below that heading.

    The longest prefix of the module that defines the value decides.
    """
    home = value.__module__.removeprefix(f"{PACKAGE}.")
    fitting = [
        (len(prefix), heading, position)
        for heading, prefixes in GROUPS.items()
        for position, prefix in enumerate(prefixes)
        if home == prefix or home.startswith(f"{prefix}.")
    ]
    if not fitting:
        raise ValueError(f"no heading of the reference is for names of {value.__module__}")
    return max(fitting)[1:]


def _public(module: ModuleType) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, TypeVar | ParamSpec)
        and f"{getattr(value, '__module__', None)}.".startswith(f"{module.__name__}.")
    ]


def write(folder: Path) -> None:
    """Write the pages of the reference for Sphinx, which takes the rest from the docstrings."""
    folder.mkdir(parents=True)
    found = pages()
    listed = "\n".join(f"   {page.name}" for page in found)
    (folder / "index.rst").write_text(
        f"{_heading('API reference')}\n"
        f"The public names, from their docstrings. What is not here is internal: it may change.\n\n"
        f".. toctree::\n   :maxdepth: 1\n\n{listed}\n",
        "utf-8",
    )
    for page in found:
        (folder / f"{page.name}.rst").write_text("\n".join(_lines(page)), "utf-8")


def _lines(page: ReferencePage) -> Iterator[str]:
    yield _heading(page.title)
    module = import_module(page.module)
    if page.title == page.module:
        yield f".. automodule:: {page.module}\n   :no-members:\n"
    else:
        yield f"Import these names from ``{page.module}``.\n"
    yield f".. currentmodule:: {page.module}\n"
    for name in page.names:
        value = getattr(module, name)
        if inspect.isclass(value):
            bases = "   :show-inheritance:\n" if issubclass(value, Exception) else ""
            yield f".. autoclass:: {name}\n   :members:\n{bases}"
        elif callable(value) and inspect.isroutine(value):
            yield f".. autofunction:: {name}\n"
        else:
            yield f".. data:: {name}\n\n   {_meaning(name)}\n"


def _meaning(name: str) -> str:
    """Return the docstring below a constant of the package."""
    for path in sorted(Path(import_module(PACKAGE).__path__[0]).rglob("*.py")):
        text = path.read_text("utf-8")
        if f"\n{name}" not in text:
            continue
        for statement, documentation in itertools.pairwise(ast.parse(text).body):
            if (
                isinstance(statement, ast.Assign | ast.AnnAssign)
                and re.match(rf"{name}\b", ast.unparse(statement))
                and isinstance(documentation, ast.Expr)
            ):
                return " ".join(ast.literal_eval(documentation.value).split())
    raise ValueError(f"no docstring stands below {name}")


def _heading(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n"


def as_text() -> Iterator[str]:
    """Yield the reference as Markdown: for each name its signature and its docstring."""
    for page in pages():
        yield f"## {page.title}: `{page.module}`"
        module = import_module(page.module)
        for name in page.names:
            value = getattr(module, name)
            yield from _described(name, value)
            if inspect.isclass(value):
                for member, function in vars(value).items():
                    if not member.startswith("_") and inspect.isroutine(function):
                        yield from _described(f"{name}.{member}", function)


def _described(name: str, value: Any) -> Iterator[str]:
    documentation = inspect.getdoc(value)
    if not callable(value) or not documentation:
        return
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = ""
    yield f"### `{name}{signature}`\n\n{documentation}"
