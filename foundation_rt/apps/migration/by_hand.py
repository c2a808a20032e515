"""Low-level servers, their pages, and SDK 2's middleware: a person writes them anew (MIGR-24).

Their code stays as it stands: code that is half rewritten runs nowhere.
"""

from __future__ import annotations

import libcst as cst
from libcst import metadata

from .findings import Finding
from .names import LOW_LEVEL, LOW_LEVEL_RESULTS
from .source import CONTEXTS, INNER_SERVER, NameResolver, code

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
