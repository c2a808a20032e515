"""The migration of the text of one file (MIGR-01)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from typing import Any

import libcst as cst
from libcst import metadata

from .by_hand import ByHand
from .findings import Finding, MigratedFile
from .lazy_imports import LazyImports
from .names import LIBRARIES, advice, canonical
from .names import NAMES as _NAMES
from .rewriter import Rewriter, local_name
from .source import SourceFacts, SourceReader, code

_SCRIPT = re.compile(r"^# /// script\n(?:#.*\n)+?# ///$", re.MULTILINE)
_REQUIREMENT = re.compile(r"""(["'])(?:fastmcp|mcp)(?:\[[^]]*\])?[^"'a-z-]*\1""")


def _script(block: re.Match[str]) -> str:
    """Return the dependencies of a script with ours in place of theirs."""
    return _REQUIREMENT.sub(r"\1foundation-rt\1", block.group())


class NotPythonError(ValueError):
    """The text is no Python; the message says where."""


def migrate_source(text: str) -> MigratedFile:
    """Return the text of a file, rewritten for this library.

    A file that imports none of the other libraries comes back as it is.

    Args:
        text: of a file of Python.

    Raises:
        NotPythonError: the text cannot be parsed.
    """
    try:
        tree = metadata.MetadataWrapper(cst.parse_module(text))
    except cst.ParserSyntaxError as error:
        raise NotPythonError(f"line {error.raw_line}: {error.message}") from None
    reader = SourceReader()
    tree.visit(reader)
    if not reader.source.libraries:
        return MigratedFile(text, (), ())
    libraries = tuple(sorted(reader.source.libraries))
    by_hand = ByHand()
    tree.visit(by_hand)
    if by_hand.has_low_level:
        return MigratedFile(text, libraries, tuple(sorted(by_hand.findings)))
    reader.source.taken |= by_hand.taken
    rewriter = Rewriter(reader.source, by_hand.middleware)
    changed = tree.visit(rewriter)
    rewriter.finish()
    used = set(_expressions(changed, by_hand.middleware))
    left = _left(used, rewriter)
    if "Any" not in used:
        rewriter.needed.discard("typing.Any")
    changed = changed.visit(_Imports(rewriter, {full for full, _ in left}, by_hand.used))
    changed = changed.visit(LazyImports(changed, by_hand.taken))
    new_text = _SCRIPT.sub(_script, changed.code)
    findings = {*by_hand.findings, *rewriter.findings}
    findings |= {_finding(full, line) for full, line in left}
    return MigratedFile(new_text, libraries, tuple(sorted(findings)), rewriter.servers)


def _finding(full: str, line: int) -> Finding:
    return Finding(line, f"{full}: {advice(full)}", True)


def _left(used: Set[str], rewriter: Rewriter) -> set[tuple[str, int]]:
    """Return the names without a counterpart that the new text still uses, with their lines."""
    found = {(full, text, line) for full, text, line in rewriter.unmapped if text in used}
    texts = {text for _, text, _ in found}
    # Of ``a.b.c`` the name ``a`` is in the tree too; the longest says what it is.
    return {
        (full, line)
        for full, text, line in found
        if not any(other.startswith(f"{text}.") for other in texts)
    }


def _expressions(node: cst.CSTNode, apart: Set[cst.FunctionDef]) -> Iterator[str]:
    """Return the names that are used in a tree, but for some functions."""
    if isinstance(node, cst.Import | cst.ImportFrom) or node in apart:
        return
    if isinstance(node, cst.Name | cst.Attribute):
        yield code(node)
    for child in node.children:
        yield from _expressions(child, apart)


class _Imports(cst.CSTTransformer):
    """Removes imports of the other libraries that nothing needs; adds those of ours."""

    def __init__(self, rewriter: Rewriter, left: set[str], used: set[str]) -> None:
        super().__init__()
        self._source: SourceFacts = rewriter.source
        self._left, self._used = left, used
        self._new = [cst.parse_statement(line) for line in _import_lines(rewriter)]

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> Any:
        module = "" if updated_node.module is None else code(updated_node.module)
        if updated_node.relative or isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        if module.partition(".")[0] not in LIBRARIES:
            return updated_node
        return self._kept(updated_node, f"{module}.")

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> Any:
        return self._kept(updated_node, "")

    def _kept(self, node: cst.Import | cst.ImportFrom, prefix: str) -> Any:
        assert not isinstance(node.names, cst.ImportStar)
        names = [each for each in node.names if self._is_used(prefix + code(each.name))]
        if not names:
            return cst.RemoveFromParent()
        names[-1] = names[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return node.with_changes(names=names) if len(names) < len(node.names) else node

    def _is_used(self, full: str) -> bool:
        if full.partition(".")[0] not in LIBRARIES:
            return True
        key = canonical(full)
        left = self._used if key is not None and key in _NAMES else self._used | self._left
        return any(each == full or each.startswith(f"{full}.") for each in left)

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        if not self._new:
            return updated_node
        body = list(updated_node.body)
        first, last = _place(body)
        ours = [each for each in self._new if "foundation_rt" in code(each)]
        standard = [each for each in self._new if each not in ours]
        if first == last == 1:  # a docstring alone
            every = [*standard, *ours]
            every[0] = every[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
            standard, ours = every, []
        body = [*body[:first], *standard, *body[first:last], *ours, *body[last:]]
        return updated_node.with_changes(body=body)


def _place(body: Sequence[cst.BaseStatement]) -> tuple[int, int]:
    """Return where the imports at the top of a file begin, and where they end."""
    first = last = 0
    for index, statement in enumerate(body):
        only = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        is_text = isinstance(only, cst.Expr) and isinstance(only.value, cst.SimpleString)
        future = isinstance(only, cst.ImportFrom) and "__future__" in code(only)
        if (is_text and index == 0) or future:
            first = last = index + 1
        elif isinstance(only, cst.Import | cst.ImportFrom):
            last = index + 1
        else:
            break
    return first, last


def _import_lines(rewriter: Rewriter) -> list[str]:
    by_module: dict[str, list[str]] = {}
    for full in sorted(rewriter.needed):
        module, _, name = full.rpartition(".")
        if module == "builtins":
            continue
        local = local_name(full, rewriter.source)
        if name in rewriter.source.taken and local == name:
            continue  # the file imports it already
        by_module.setdefault(module, []).append(name if local == name else f"{name} as {local}")
    return [_import_line(module, names) for module, names in sorted(by_module.items())]


def _import_line(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}\n"
    if len(line) <= 100:
        return line
    inside = "".join(f"    {name},\n" for name in names)
    return f"from {module} import (\n{inside})\n"
