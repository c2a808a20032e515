"""Middleware of the SDK 2, which takes the context of a request and what comes next (MIGR-17).

There it is around every message: the handshake, lists and notifications too. Here it is around the
handlers of calls. So a function is rewritten, and what it did besides is listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from .source import CONTEXTS, NameResolver, code

if TYPE_CHECKING:
    from .rewriter import Rewriter

KIND = "middleware"
"""The kind of a function that is middleware, and the attribute of a server that has it."""

NEXT_CLASS = "CallNext"

_NEXT_NAME = "call_next"
_CALLS = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
_METHOD = re.compile(
    r"initialize|ping|(?:completion|logging|notifications|prompts|resources|server|subscriptions"
    r"|tasks|tools)/[A-Za-z_/]+"
)
_KEPT = frozenset({"arguments", "headers", "method", "name", "principal", "request_id"})
_PARTS = {"name": "name", "uri": "name", "arguments": "arguments"}
"""The members of the params of a request, and the attributes of a call that have them."""

_ADVICE = {
    "lifespan_context": "a call has no state: keep what the middleware needs in a variable",
    "session": "use call.session.connection_correlation_id, or a ToolContext in the handler",
    "request": "use ctx.headers",
}


def is_middleware(node: cst.FunctionDef, names: NameResolver) -> bool:
    """Return whether a function is ``async def f(ctx, call_next)`` of the SDK 2."""
    params = _parameters(node)
    if node.asynchronous is None or len(params) != 2:
        return False
    context, following = params
    if context.annotation is None or not names.mentions(context.annotation, CONTEXTS):
        return False
    is_next = names.mentions(following.annotation, (NEXT_CLASS,))
    return is_next or (following.annotation is None and following.name.value == _NEXT_NAME)


def _parameters(node: cst.FunctionDef) -> list[cst.Param]:
    return [each for each in node.params.params if each.name.value != "self"]


def reference(to: Rewriter, key: str | None) -> cst.BaseExpression | None:
    """Return what stands for a class in the signature of middleware; None for any other."""
    if key in CONTEXTS:
        return cst.Name(to.need("foundation_rt.Invocation"))
    if key == NEXT_CLASS:
        called = to.need("collections.abc.Callable")
        return cst.parse_expression(f"{called}[[], {to.need('collections.abc.Awaitable')}[Any]]")
    return None


def rewrite(to: Rewriter, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
    """Return middleware that takes a call and a function without parameters.

    Args:
        to: takes findings and imports.
        original: as it was.
        updated: its names are rewritten already.
    """
    context, following = (each.name.value for each in _parameters(original))
    parts = _Parts(context, following, set(_strings(original.body)))
    body = updated.body.visit(parts)
    assert isinstance(body, cst.BaseSuite)
    to.needed.add("typing.Any")
    name = original.name.value
    left = [f"{context}.params has no {each} here" for each in sorted(parts.unknown)]
    for text in (*_limits(original.body), *left, *_differences(body, context, following)):
        to.report(original, f"{name}: {text}", True)
    return updated.with_changes(body=body)


def _limits(body: cst.CSTNode) -> Iterator[str]:
    """Return what is said of messages that middleware is not around here."""
    methods = {text for text in _strings(body) if _METHOD.fullmatch(text)}
    if not methods & _CALLS:
        yield "middleware is around calls here, not around handshakes, lists and notifications"
    elif methods - _CALLS:
        yield f"middleware is around calls here, not around {', '.join(sorted(methods - _CALLS))}"


def _differences(body: cst.CSTNode, context: str, following: str) -> Iterator[str]:
    """Return what is said of the rest that means something else here."""
    uses = _Uses(context, following)
    body.visit(uses)
    for name in sorted(uses.attributes - _KEPT - {"meta", "peer"}):
        yield f"{context}.{name}: {_ADVICE.get(name, 'a call has none: change or remove it')}"
    if uses.changes:
        yield f"{following}: give it nothing; change {context}.arguments before it is called"
    if uses.results & uses.read:
        yield f"{following}() returns what the handler returned, not a result of the protocol"
    if uses.others:
        yield "return what a handler may return: a text, content or a ToolResult"


class _Parts(cst.CSTTransformer):
    """Replaces the parts of the context by those of a call, and calls what comes next.

    Args:
        context: the parameter that is a call now.
        following: the parameter that runs what comes next.
        texts: that the function writes out; its params have those of the members that it names.

    Attributes:
        unknown: members of the params that a call does not have.
    """

    def __init__(self, context: str, following: str, texts: set[str]) -> None:
        super().__init__()
        self._context, self._following = context, following
        self._params = f"{context}.params"
        named = [each for each in _PARTS if each in texts] or ["name", "arguments"]
        members = ", ".join(f'"{each}": {context}.{_PARTS[each]}' for each in named)
        self._members = f"{{{members}}}"
        self.unknown: set[str] = set()

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        given = [each.value for each in original_node.args]
        if code(original_node.func) == self._following:
            only = [code(each) for each in given] == [self._context]
            return updated_node.with_changes(args=[]) if only else updated_node
        if code(original_node.func) == f"{self._params}.get" and given:
            return self._part(given[0]) or updated_node
        return updated_node

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        index = original_node.slice[0].slice
        if code(original_node.value) == self._params and isinstance(index, cst.Index):
            return self._part(index.value) or updated_node
        return updated_node

    def _part(self, key: cst.BaseExpression) -> cst.BaseExpression | None:
        text = key.evaluated_value if isinstance(key, cst.SimpleString) else None
        part = _PARTS.get(str(text))
        if part is None:
            self.unknown.add(code(key))
            return None
        return cst.parse_expression(f"{self._context}.{part}")

    def leave_BooleanOperation(
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BaseExpression:
        """Leave out that there are params, which a call always has."""
        there = (self._params, f"{self._params} is not None")
        if isinstance(original_node.operator, cst.Or):
            return updated_node.left if code(original_node.left) in there else updated_node
        if code(original_node.left) in there:
            return updated_node.right
        return updated_node.left if code(original_node.right) in there else updated_node

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        tests_params = self._params in code(original_node.test)
        is_params = code(original_node.body) == self._params
        return updated_node.body if tests_params and is_params else updated_node

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        owner, name = code(original_node.value), original_node.attr.value
        if owner == f"{self._context}.meta" and name not in ("get", "items", "keys", "values"):
            key = "progressToken" if name == "progress_token" else name
            return cst.parse_expression(f'{owner}.get("{key}")')
        if owner != self._context:
            return updated_node
        if name == "protocol_version":
            return cst.parse_expression(f"{owner}.peer.revision.name")
        if name == "params":
            return cst.parse_expression(self._members)
        return updated_node


class _Uses(cst.CSTVisitor):
    """Gathers what middleware does with a call and with what comes next.

    Attributes:
        attributes: of the call.
        results: names of variables that hold what comes next returned.
        read: names of which an attribute or a member is used.
        changes: what comes next is given something.
        others: something else is returned.
    """

    def __init__(self, context: str, following: str) -> None:
        super().__init__()
        self._context, self._following = context, following
        self.attributes: set[str] = set()
        self.results: set[str] = set()
        self.read: set[str] = set()
        self.changes = self.others = False

    def _is_next(self, node: cst.BaseExpression | None) -> bool:
        call = node.expression if isinstance(node, cst.Await) else None
        return isinstance(call, cst.Call) and code(call.func) == self._following

    def visit_Call(self, node: cst.Call) -> None:
        self.changes |= code(node.func) == self._following and bool(node.args)

    def visit_Assign(self, node: cst.Assign) -> None:
        if self._is_next(node.value):
            self.results.update(code(each.target) for each in node.targets)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self.read.add(code(node.value))
        if code(node.value) == self._context:
            self.attributes.add(node.attr.value)

    def visit_Subscript(self, node: cst.Subscript) -> None:
        self.read.add(code(node.value))

    def visit_Return(self, node: cst.Return) -> None:
        is_result = node.value is not None and code(node.value) in self.results
        self.others |= not is_result and not self._is_next(node.value)


def _strings(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.SimpleString):
        yield str(node.evaluated_value)
    for child in node.children:
        yield from _strings(child)
