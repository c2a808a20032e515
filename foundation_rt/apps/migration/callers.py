"""Callers in other files of functions that serve, which are no coroutines any more (MIGR-16).

A package often has `async def serve()` in one file and `asyncio.run(serve())` in another one. So
what migrates several files looks through all of them for callers of such functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

import libcst as cst
from attrs import evolve

from .source import MigratedFile, code, with_names

_RUNS = {"asyncio.run": "asyncio", "anyio.run": "anyio"}

Servers = Mapping[str, object]
"""The functions of a file that serve, by name."""


def call_servers(files: Mapping[PurePath, MigratedFile]) -> dict[PurePath, MigratedFile]:
    """Return files that were migrated together, with the calls of functions that serve.

    A function of which a call was rewritten is not listed any more.
    """
    called: set[tuple[PurePath, str]] = set()
    found = dict(files)
    for path, file in files.items():
        found[path] = evolve(file, text=_rewritten(path, file.text, files, called))
    for path, name in called:
        known = found[path].servers[name]
        left = tuple(each for each in found[path].findings if each != known)
        found[path] = evolve(found[path], findings=left)
    return found


def _rewritten(
    path: PurePath,
    text: str,
    files: Mapping[PurePath, MigratedFile],
    called: set[tuple[PurePath, str]],
) -> str:
    """Return the text of one file; add the functions that it called to `called`."""
    if not any(each in text for each in _RUNS):
        return text

    def servers_of(level: int, module: str) -> tuple[PurePath, Servers] | None:
        target = _target(path, level, module, files)
        return None if target is None else (target, files[target].servers)

    calls = _Calls(servers_of)
    changed = cst.parse_module(text).visit(calls)
    called |= calls.called
    for module in calls.modules:
        if f"{module}." not in changed.code.replace(f"import {module}.", ""):
            changed = changed.visit(_Without(module))
    return changed.code if calls.called else text


def _target(
    path: PurePath, level: int, module: str, files: Mapping[PurePath, MigratedFile]
) -> PurePath | None:
    """Return the file that a module is, as `path` imports it; None if it is not among them."""
    parts = module.split(".") if module else []
    folders = [*path.parents]
    for folder in folders[level - 1 : level] if level else folders:
        named = folder.joinpath(*parts)
        for file in (named.with_name(f"{named.name}.py") if parts else None, named / "__init__.py"):
            if file is not None and file in files:
                return file
    return None


class _Calls(cst.CSTTransformer):
    """Calls the functions that serve without a loop around them.

    Attributes:
        called: the files and the names of these functions.
        modules: whose `run` was removed.
    """

    def __init__(self, servers_of: Callable[[int, str], tuple[PurePath, Servers] | None]) -> None:
        super().__init__()
        self._servers_of = servers_of
        self._names: dict[str, tuple[PurePath, str]] = {}
        self.called: set[tuple[PurePath, str]] = set()
        self.modules: set[str] = set()

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar):
            return
        level, module = len(node.relative), "" if node.module is None else code(node.module)
        within = self._servers_of(level, module)
        for each in node.names:
            name, local = code(each.name), _local(each)
            if within is not None and name in within[1]:
                self._names[local] = (within[0], name)
            self._add_module(local, level, f"{module}.{name}" if module else name)

    def visit_Import(self, node: cst.Import) -> None:
        for each in node.names:
            self._add_module(_local(each), 0, code(each.name))

    def _add_module(self, local: str, level: int, module: str) -> None:
        found = self._servers_of(level, module)
        if found is not None:
            self._names |= {f"{local}.{name}": (found[0], name) for name in found[1]}

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        run = code(original_node.func)
        if run not in _RUNS or not original_node.args:
            return updated_node
        first = updated_node.args[0].value
        function = first.func if isinstance(first, cst.Call) else first
        known = self._names.get(code(function))
        if known is None:
            return updated_node
        self.called.add(known)
        self.modules.add(_RUNS[run])
        if isinstance(first, cst.Call):
            return first
        given = [each.value for each in updated_node.args[1:] if each.keyword is None]
        return cst.Call(function, [cst.Arg(each) for each in given])


def _local(alias: cst.ImportAlias) -> str:
    return code(alias.name if alias.asname is None else alias.asname.name)


class _Without(cst.CSTTransformer):
    """Removes the import of a module that nothing uses any more."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self._module = module

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> Any:
        return with_names(updated_node, lambda each: code(each.name) != self._module)
