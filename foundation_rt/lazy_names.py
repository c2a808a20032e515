"""Public names of a package, each imported when it is first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    Args:
        package: the name of the package.
        homes: the module of each name, relative to the package; one above it begins with a dot.
    """
    module = sys.modules[package]

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f".{home}", package), name)
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*module.__all__, *homes})
