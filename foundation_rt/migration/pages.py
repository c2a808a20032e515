"""Handlers that list a page at a time, and return the cursor of the next one (MIGR-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from . import arguments as args_of
from .names import RESULTS
from .source import code

if TYPE_CHECKING:
    from .rewriter import Rewriter

_NEXT = ("nextCursor", "next_cursor")


def rewrite(to: Rewriter, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
    """Return a handler ``(cursor)`` that returns the entries of a page and the next cursor.

    Args:
        to: takes findings and imports.
        original: takes ``(request)`` in the SDK 1 and ``(ctx, params)`` in the SDK 2.
        updated: its names are rewritten already.
    """
    given = [each.name.value for each in original.params.params]
    params = f"{given[0]}.params" if len(given) == 1 else given[-1]
    body = updated.body.visit(_Cursor(params))
    assert isinstance(body, cst.BaseSuite)
    left = sorted({*given} & {*_names(body)} - {"cursor"})
    if left:
        text = f"{original.name.value}: look at {', '.join(left)}: a page has its cursor alone here"
        to.report(original, text, True)
    to.needed.add("typing.Any")
    signature = cst.ensure_type(
        cst.parse_statement("def f(cursor: str | None) -> tuple[list[Any], str | None]: pass"),
        cst.FunctionDef,
    )
    return updated.with_changes(
        params=signature.params,
        returns=signature.returns,
        body=body,
        whitespace_before_params=cst.SimpleWhitespace(""),
    )


def page(key: str, updated: cst.Call) -> cst.BaseExpression | None:
    """Return the entries and the next cursor of a result of the wire; None if it has no entries."""
    entries = next((a for n in RESULTS[key] if (a := args_of.argument(updated.args, n))), None)
    if entries is None:
        return None
    cursor = next((a for n in _NEXT if (a := args_of.argument(updated.args, n))), None)
    after = cst.Name("None") if cursor is None else cursor.value
    return cst.Tuple(
        [cst.Element(entries.value), cst.Element(after)],
        lpar=[cst.LeftParen()],
        rpar=[cst.RightParen()],
    )


def registration(lister: str, action: str, is_first: bool) -> list[str]:
    """Return the lines of a hook that register what all pages have.

    Args:
        lister: the name of the handler.
        action: what is done with `each` entry.
        is_first: of the hook, which names the type of the cursor once.
    """
    kind = ": str | None" if is_first else ""
    return [
        f"    cursor{kind} = None",
        "    while True:",
        f"        page, cursor = await {lister}(cursor)",
        "        for each in page:",
        f"            {action}",
        "        if cursor is None:",
        "            break",
    ]


class _Cursor(cst.CSTTransformer):
    """Replaces the cursor of a request, and the questions whether there is one."""

    def __init__(self, params: str) -> None:
        super().__init__()
        self._params = params

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        is_cursor = original_node.attr.value == "cursor"
        if is_cursor and code(original_node.value) == self._params:
            return cst.Name("cursor")
        return updated_node

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        for branch in (updated_node.body, updated_node.orelse):
            if self._asks(original_node.test) and code(branch) == "cursor":
                return branch
        return updated_node

    def leave_BooleanOperation(
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BaseExpression:
        right = updated_node.right
        asked = right.left if isinstance(right, cst.Comparison) else right
        is_cursor = self._asks(original_node.left) and code(asked) == "cursor"
        return right if is_cursor else updated_node

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        if code(updated_node).strip().rpartition("\n")[2] == "cursor = cursor":
            return cst.RemoveFromParent()
        return updated_node

    def _asks(self, test: cst.BaseExpression) -> bool:
        tested = test.left if isinstance(test, cst.Comparison) else test
        return code(tested) == self._params


def _names(node: cst.CSTNode) -> list[str]:
    own = [node.value] if isinstance(node, cst.Name) else []
    return own + [name for child in node.children for name in _names(child)]
