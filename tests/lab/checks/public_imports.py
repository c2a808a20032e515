"""The imports of an application on the runtime, which may use only what is documented as public."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import foundation_rt

PACKAGE = Path(foundation_rt.__file__).parent


def private_imports(application: str, public: tuple[str, ...]) -> list[str]:
    """Return the imports of a folder that are neither public names nor from public modules.

    Args:
        application: the name of its package: `apps.gateway`.
        public: modules, and packages with all of their modules, that are documented as public.
    """
    homes = foundation_rt._HOMES
    folder = PACKAGE.joinpath(*application.split("."))
    assert folder.is_dir()
    return [
        f"{path.relative_to(folder)}: {module}.{name}"
        for path in sorted(folder.rglob("*.py"))
        for module, name in _imported(path, application)
        if homes.get(name) != module
        and (module or name not in foundation_rt.__all__)
        and not any(module == each or module.startswith(f"{each}.") for each in public)
    ]


def _imported(path: Path, application: str) -> Iterator[tuple[str, str]]:
    """Yield the names that a module imports from the package outside of its folder, with homes."""
    parts = path.relative_to(PACKAGE).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.level or "foundation_rt" in str(node.module)):
            above = parts[: len(parts) - node.level + 1] if node.level else ()
            home = [*above, *(node.module or "").removeprefix("foundation_rt").split(".")]
            module = ".".join(word for word in home if word)
            if not module.startswith(application):
                yield from ((module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (
                (alias.name, "*") for alias in node.names if alias.name.startswith("foundation_rt")
            )
