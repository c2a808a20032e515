"""The migration of the text of one file (MIGR-01).

What a person writes anew (MIGR-24), low-level servers, their pages and SDK 2's middleware, stays as
it stands: code that is half rewritten runs nowhere.

A file often has a client, or an application of its own, beside its server (MIGR-10). If only
functions use what has no counterpart, the import moves into these functions: the server starts
without the other library, and the function fails, which is listed, if it is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from typing import Any

import libcst as cst
from libcst import metadata

from .names import LIBRARIES, LOW_LEVEL, LOW_LEVEL_RESULTS, advice, canonical
from .names import NAMES as _NAMES
from .rewriter import Rewriter, local_name
from .source import (
    CONTEXTS,
    INNER_SERVER,
    Finding,
    MigratedFile,
    NameResolver,
    SourceFacts,
    SourceReader,
    code,
    is_of_library,
    with_names,
)

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
    used = set(_expressions(changed, by_hand.middleware))
    left = _left(used, rewriter)
    if "Any" not in used:
        rewriter.needed.discard("typing.Any")
    changed = changed.visit(_Imports(rewriter, {full for full, _ in left}, by_hand.used))
    changed = changed.visit(LazyImports(changed, by_hand.taken))
    new_text = _SCRIPT.sub(_script, changed.code)
    findings = {*by_hand.findings, *rewriter.findings}
    findings |= {Finding(line, f"{full}: {advice(full)}", True) for full, line in left}
    return MigratedFile(new_text, libraries, tuple(sorted(findings)), rewriter.servers)


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
        if not _is_other(updated_node) or updated_node.module is None:
            return updated_node
        return self._kept(updated_node, f"{code(updated_node.module)}.")

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> Any:
        return self._kept(updated_node, "")

    def _kept(self, node: cst.Import | cst.ImportFrom, prefix: str) -> Any:
        return with_names(node, lambda each: self._is_used(prefix + code(each.name)))

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
        elif standard and first and not any(each.comment for each in body[first].leading_lines):
            # The blank line above the imports stays above them.
            standard[0] = standard[0].with_changes(leading_lines=body[first].leading_lines)
            body[first] = body[first].with_changes(leading_lines=[])
        body = [*body[:first], *standard, *body[first:last], *ours, *body[last:]]
        return updated_node.with_changes(body=body)


def _place(body: Sequence[cst.BaseStatement]) -> tuple[int, int]:
    """Return where the imports at the top of a file begin, and where they end."""
    first = last = 0
    for index, statement in enumerate(body):
        parts = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
        only = parts[0] if len(parts) == 1 else None
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


_SERVER = (
    "this file stays as it is: write Server(...), and register each tool, resource and prompt of "
    "the low-level server with its handler: server.register(ToolDefinition(...), handler)"
)
_PAGES = "lists are paged by this runtime: return all entries, without a cursor"
_MIDDLEWARE = "it stays as it is: write `@server.middleware async def f(call, proceed)`"
_OTHER_HANDLER = "it has no counterpart: remove it, or use server.forward"
_CURSORS = ("nextCursor", "next_cursor")
_DECORATORS = LOW_LEVEL.keys() - {"completion"}  # which the other servers have too


class ByHand(cst.CSTVisitor):
    """Gathers what a person writes by hand.

    Attributes:
        findings: what to write, for each.
        has_low_level: the file has a low-level server or handlers of one, and stays whole.
        middleware: the functions that are middleware, which stay.
        used: full names of the objects of other libraries that these functions use.
        taken: the names by which they use them.
    """

    METADATA_DEPENDENCIES = (metadata.QualifiedNameProvider, metadata.PositionProvider)

    def __init__(self) -> None:
        super().__init__()
        self._names = NameResolver(self)
        self.findings: set[Finding] = set()
        self.has_low_level = False
        self.middleware: set[cst.FunctionDef] = set()
        self.used: set[str] = set()
        self.taken: set[str] = set()

    def _add(self, node: cst.CSTNode, text: str) -> None:
        place = self.get_metadata(metadata.PositionProvider, node)
        self.findings.add(Finding(place.start.line, text, True))

    def _add_low_level(self, node: cst.CSTNode) -> None:
        """Report the first part of a low-level server."""
        if not self.has_low_level:
            self._add(node, f"{code(node)}: {_SERVER}")
        self.has_low_level = True

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        for base in node.bases:
            if self._key(base.value) == "Server":
                self._add_low_level(base)

    def _key(self, node: cst.BaseExpression) -> str | None:
        return self._names.key(node.value if isinstance(node, cst.Subscript) else node)

    def visit_Call(self, node: cst.Call) -> None:
        key = self._key(node.func)
        given = {arg.keyword.value: arg for arg in node.args if arg.keyword is not None}
        if key == "Server":
            self._add_low_level(node.func)
            for name, arg in given.items():
                if name.startswith("on_"):
                    advice = LOW_LEVEL.get(name.removeprefix("on_"), _OTHER_HANDLER)
                    self._add(arg, f"{name}: {advice}")
        elif key in LOW_LEVEL_RESULTS:
            self._add_low_level(node.func)
            for name in _CURSORS:
                if name in given:
                    self._add(given[name], f"{name}: {_PAGES}")

    def visit_Decorator(self, node: cst.Decorator) -> None:
        func = node.decorator.func if isinstance(node.decorator, cst.Call) else None
        if not isinstance(func, cst.Attribute) or func.attr.value not in _DECORATORS:
            return
        if not code(func.value).endswith(f".{INNER_SERVER}"):
            self._add_low_level(func)
            self._add(node, f"@{func.attr.value}: {LOW_LEVEL[func.attr.value]}")

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        is_middleware = self._is_middleware(node)
        if is_middleware:
            self.middleware.add(node)
            self._add(node, f"{node.name.value}: {_MIDDLEWARE}")
            self._use(node)
        return not is_middleware

    def _is_middleware(self, node: cst.FunctionDef) -> bool:
        """Return whether a function is ``async def f(ctx, call_next)`` of the SDK 2."""
        params = [each for each in node.params.params if each.name.value != "self"]
        if node.asynchronous is None or len(params) != 2:
            return False
        context, following = params
        is_next = self._names.mentions(following.annotation, ("CallNext",))
        is_next |= following.annotation is None and following.name.value == "call_next"
        return is_next and self._names.mentions(context.annotation, CONTEXTS)

    def _use(self, node: cst.CSTNode) -> None:
        """Keep the names of the other libraries within a node."""
        full = self._names.full(node) if isinstance(node, cst.Name | cst.Attribute) else None
        if full is not None:
            self.used.add(full)
            self.taken.add(code(node).partition(".")[0])
        for child in node.children:
            self._use(child)


class LazyImports(cst.CSTTransformer):
    """Moves imports into the functions that use them.

    Args:
        tree: the file, otherwise rewritten.
        stay: local names whose imports do not move.
    """

    def __init__(self, tree: cst.Module, stay: Set[str]) -> None:
        super().__init__()
        self._depth = 0
        uses = _Uses("from __future__ import annotations" in tree.code)
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
        kept = with_names(only, lambda each: _local(each) not in self._movable)
        is_gone = isinstance(kept, cst.RemovalSentinel)
        return kept if is_gone else updated_node.with_changes(body=[kept])

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
        # An import cannot move into a function of one line.
        deeper = int(isinstance(node.body, cst.IndentedBlock))
        self._depth += deeper
        node.body.visit(self)
        self._depth -= deeper
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


def _is_other(node: cst.BaseSmallStatement) -> bool:
    """Return whether a statement imports names of another library."""
    if isinstance(node, cst.ImportFrom):
        return is_of_library(node) and not isinstance(node.names, cst.ImportStar)
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
