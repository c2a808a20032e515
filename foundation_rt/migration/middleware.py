"""Middleware of the SDK 2: it takes the context of a request and what is next (MIGR-17, MIGR-19).

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


def names_of(tree: cst.CSTNode, names: NameResolver) -> set[str]:
    """Return the functions that are middleware, and what they are in: classes and factories."""
    found: set[str] = set()
    for child in tree.children:
        inside = names_of(child, names)
        if isinstance(child, cst.FunctionDef) and is_middleware(child, names):
            inside.add(child.name.value)
        if inside and isinstance(child, cst.FunctionDef | cst.ClassDef):
            inside.add(child.name.value)
        found |= inside
    return found


def is_known(value: cst.BaseExpression, known: set[str]) -> bool:
    """Return whether what is registered is one of `names_of`, or made by one."""
    made = value.func if isinstance(value, cst.Call) else value
    return code(made) in known


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
    by_hand = _ByHand(context, following)
    original.body.visit(by_hand)
    for text in sorted(by_hand.found):
        to.report(original, f"{name}: {text}: write this part by hand", True)
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
            is_there = code(original_node.left) in there
            return _instead(updated_node, updated_node.left) if is_there else updated_node
        if code(original_node.left) in there:
            return _instead(updated_node, updated_node.right)
        is_there = code(original_node.right) in there
        return _instead(updated_node, updated_node.left) if is_there else updated_node

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        is_params = _is_params_or_none(original_node, self._params)
        return _instead(updated_node, updated_node.body) if is_params else updated_node

    def visit_FormattedString(self, node: cst.FormattedString) -> bool:
        return False  # what is written here would be in its quotes: it is listed

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


def _instead(whole: cst.BaseExpression, part: cst.BaseExpression) -> cst.BaseExpression:
    """Return a part of an expression in the parentheses of the whole."""
    return part.with_changes(lpar=[*whole.lpar, *part.lpar], rpar=[*part.rpar, *whole.rpar])


def _is_params_or_none(node: cst.IfExp, params: str) -> bool:
    """Return whether it is ``params if ... else {}``, with a test of nothing but the params."""
    test = code(node.test)
    is_test = test in (params, f"{params} is not None") or re.fullmatch(
        rf"isinstance\({re.escape(params)}, [A-Za-z_.]+\)", test
    )
    return bool(is_test) and code(node.body) == params


class _ByHand(cst.CSTVisitor):
    """Gathers what a rewritten function may mean something else by.

    All that it does with its context, with the params, and with a variable that holds these, has to
    be of a form that means the same here. It is said of anything else.

    Attributes:
        found: what it does else.
    """

    def __init__(self, context: str, following: str) -> None:
        super().__init__()
        self._context, self._following = context, following
        self._params = f"{context}.params"
        self._holders: set[str] = set()
        self._fine: set[cst.CSTNode] = set()
        self._members: set[str] = set()
        self.found: set[str] = set()

    def _holds_params(self, node: cst.BaseExpression) -> bool:
        """Return whether a node is the params, or these with an empty replacement."""
        if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or):
            is_empty = code(node.right) in ("{}", "dict()")
            return is_empty and self._holds_params(node.left)
        if isinstance(node, cst.IfExp):
            fine = _is_params_or_none(node, self._params) and code(node.orelse) in ("{}", "None")
            if fine:
                self._accept(node.test)
                self._accept(node.body)
            return fine
        if code(node) == self._params:
            self._accept(node)
            return True
        return False

    def _accept(self, node: cst.CSTNode) -> None:
        """Say nothing of the context within a node."""
        self._fine.add(node)
        for child in node.children:
            self._accept(child)

    def visit_Assign(self, node: cst.Assign) -> None:
        only = node.targets[0].target if len(node.targets) == 1 else None
        if isinstance(only, cst.Name) and self._holds_params(node.value):
            self._holders.add(only.value)
            self._accept(only)
        for target in node.targets:
            self._change(target.target)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        self._change(node.target)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._change(node.target)

    def visit_Del(self, node: cst.Del) -> None:
        self._change(node.target)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self._change(node.target)

    def _change(self, target: cst.BaseExpression) -> None:
        text = code(target)
        for each in (self._context, *self._holders):
            if text.startswith((f"{each}.", f"{each}[")):
                self.found.add(f"{text} is changed")

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> None:
        if isinstance(node.operator, cst.And):
            for each in (node.left, node.right):
                if code(each) in (self._params, f"{self._params} is not None"):
                    self._accept(each)

    def visit_Call(self, node: cst.Call) -> None:
        if code(node.func) == self._following:
            self._accept(node.func)
            if [code(each.value) for each in node.args] == [self._context]:
                self._accept(node.args[0])  # other arguments are listed as changes
        is_get = isinstance(node.func, cst.Attribute) and node.func.attr.value == "get"
        if is_get and node.args and not node.args[0].keyword:
            assert isinstance(node.func, cst.Attribute)
            self._read(node.func.value, node.args[0].value)

    def visit_Subscript(self, node: cst.Subscript) -> None:
        index = node.slice[0].slice
        if len(node.slice) == 1 and isinstance(index, cst.Index):
            self._read(node.value, index.value)

    def _read(self, owner: cst.BaseExpression, key: cst.BaseExpression) -> None:
        """Accept that one member of the params is read, if a call has it."""
        text = str(key.evaluated_value) if isinstance(key, cst.SimpleString) else ""
        if code(owner) not in (self._params, *self._holders):
            return
        if text in _PARTS or code(owner) == self._params:  # others are listed as unknown
            self._accept(owner)
        if text in ("name", "uri"):
            self._members.add(text)
            if len(self._members) > 1:
                self.found.add("name and uri are one attribute of a call, call.name")

    def visit_FormattedString(self, node: cst.FormattedString) -> bool:
        text = code(node)
        if any(f"{self._context}.{each}" in text for each in ("params", "meta")):
            self.found.add(f"{text} formats what is another thing here")
        return True

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if code(node.value) == self._context:
            if code(node) == self._params and node not in self._fine:
                self.found.add(f"{self._params} is used as a whole")
            self._accept(node)

    def visit_Name(self, node: cst.Name) -> None:
        if node in self._fine:
            return
        if node.value == self._context:
            self.found.add(f"{self._context} is given away")
        elif node.value == self._following:
            self.found.add(f"{self._following} is given away")
        elif node.value in self._holders:
            self.found.add(f"{node.value} has no more than what is read of it by name")


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
