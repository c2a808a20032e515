"""Imports of the other libraries that stay, moved to where they are used (MIGR-10).

A file often has a client, or an application of its own, beside its server. If only functions use
what has no counterpart, the import moves into these functions: the server starts without the other
library, and the function fails, which is listed, if it is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import libcst as cst

from .names import LIBRARIES
from .source import code


class LazyImports(cst.CSTTransformer):
    """Moves imports into the functions that use them.

    Args:
        tree: the file, otherwise rewritten.
        stay: local names whose imports do not move.
    """

    def __init__(self, tree: cst.Module, stay: Set[str]) -> None:
        super().__init__()
        self._depth = 0
        uses = _Uses(_has_deferred_annotations(tree))
        tree.visit(uses)
        self._movable = {
            name: line
            for name, line in _imported(tree)
            if name not in uses.at_import | stay and name in uses.in_functions
        }

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        only = original_node.body[0]
        if self._depth or len(original_node.body) != 1 or not _is_other(only):
            return updated_node
        assert isinstance(only, cst.Import | cst.ImportFrom)
        assert not isinstance(only.names, cst.ImportStar)
        kept = [each for each in only.names if _local(each) not in self._movable]
        if not kept:
            return cst.RemoveFromParent()
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(body=[only.with_changes(names=kept)])

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._depth += 1

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        self._depth -= 1
        body = updated_node.body
        if self._depth or not isinstance(body, cst.IndentedBlock):
            return updated_node
        used = set(_names(original_node.body))
        lines = sorted({line for name, line in self._movable.items() if name in used})
        if not lines:
            return updated_node
        at = 1 if original_node.get_docstring() is not None else 0
        added = [cst.parse_statement(line) for line in lines]
        return updated_node.with_changes(
            body=body.with_changes(body=[*body.body[:at], *added, *body.body[at:]])
        )


class _Uses(cst.CSTVisitor):
    """Finds the names that a file uses while it is imported, and those that functions use."""

    def __init__(self, deferred: bool) -> None:
        super().__init__()
        self._deferred = deferred
        self._depth = 0
        self.at_import: set[str] = set()
        self.in_functions: set[str] = set()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        for part in (*node.decorators, node.params, *([node.returns] if node.returns else [])):
            part.visit(self)
        self._depth += 1
        node.body.visit(self)
        self._depth -= 1
        return False

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        if not self._deferred or self._depth:
            return True
        # A decorator may read annotations of its function, so they count as used.
        self.at_import.update(_names(node))
        return False

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def visit_Name(self, node: cst.Name) -> None:
        (self.in_functions if self._depth else self.at_import).add(node.value)


def _has_deferred_annotations(tree: cst.Module) -> bool:
    return "from __future__ import annotations" in tree.code


def _is_other(node: cst.BaseSmallStatement) -> bool:
    """Return whether a statement imports names of another library."""
    if isinstance(node, cst.ImportFrom):
        module = "" if node.module is None else code(node.module)
        is_plain = not node.relative and not isinstance(node.names, cst.ImportStar)
        return is_plain and module.partition(".")[0] in LIBRARIES
    return isinstance(node, cst.Import) and all(
        code(each.name).partition(".")[0] in LIBRARIES for each in node.names
    )


def _imported(tree: cst.Module) -> Iterator[tuple[str, str]]:
    """Return the names that the file imports of other libraries, each with its own import."""
    for statement in tree.body:
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            continue
        only = statement.body[0]
        if not isinstance(only, cst.Import | cst.ImportFrom) or not _is_other(only):
            continue
        assert not isinstance(only.names, cst.ImportStar)
        for each in only.names:
            one = each.with_changes(comma=cst.MaybeSentinel.DEFAULT)
            yield (
                _local(each),
                code(
                    only.with_changes(names=[one], lpar=None, rpar=None)
                    if isinstance(only, cst.ImportFrom)
                    else only.with_changes(names=[one])
                )
                + "\n",
            )


def _local(alias: cst.ImportAlias) -> str:
    """Return the name that an import binds."""
    return alias.evaluated_alias or code(alias.name).partition(".")[0]


def _names(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Name):
        yield node.value
    for child in node.children:
        yield from _names(child)
