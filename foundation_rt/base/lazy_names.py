"""Names imported when first used: public ones of a package (PEP 562), and functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any


def homes_of(names: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each name, from the names of each module in one text."""
    return {name: home for home, text in names.items() for name in text.split()}


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
        import gc
        from importlib import import_module

        # What an import makes lives on: to search it for garbage took 3 % of a start.
        is_enabled = gc.isenabled()
        gc.disable()
        try:
            value = getattr(import_module(f".{home}", package), name)
        finally:
            if is_enabled:
                gc.enable()
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*module.__all__, *homes})


def forward_names(path: str, home: str) -> None:
    """Make a module of the names of another one: the public path of what has moved (EMBED-10).

    Args:
        path: the name of the public module.
        home: the name of the module that has them.
    """
    from importlib import import_module

    module, names = sys.modules[path], import_module(home)

    def get(name: str) -> Any:
        return getattr(names, name)

    public = getattr(names, "__all__", None) or [
        name
        for name, value in vars(names).items()
        if callable(value) and not name.startswith("_") and value.__module__.startswith(home)
    ]
    vars(module).update(__getattr__=get, __dir__=lambda: sorted(public), __all__=public)


def lazy(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module, which is imported when the function is first called."""
    home: Any = None

    def call(*arguments: Any) -> Any:
        nonlocal home
        if home is None:
            from importlib import import_module

            home = import_module(module)
        return getattr(home, name)(*arguments)

    return call
