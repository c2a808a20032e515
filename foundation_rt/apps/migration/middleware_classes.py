"""Middleware classes of FastMCP: they have a hook for each kind of message (MIGR-22, MIGR-23).

Here middleware is around calls alone: one callable, which takes a call and what comes next. A class
becomes that if everything in it has a counterpart; otherwise it stays, and what has none is listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst
from attrs import define, field

from .names import ERROR_CODES, NAMES, REVISIONS, advice, canonical
from .source import NameResolver, code

if TYPE_CHECKING:
    from .rewriter import Rewriter

KIND = "middleware"
"""The kind of a hook, and the attribute of a server that has its middleware."""

_CALLS = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
_METHOD = re.compile(
    r"initialize|ping|(?:completion|logging|notifications|prompts|resources|server|subscriptions"
    r"|tasks|tools)/[A-Za-z_/]+"
)
_CALLS_ALONE = "middleware is around calls here, not around handshakes, lists and notifications"

_BASES = ("fastmcp.server.middleware.Middleware", "fastmcp.server.middleware.middleware.Middleware")
_HOOKS = {
    "on_call_tool": "tools/call",
    "on_read_resource": "resources/read",
    "on_get_prompt": "prompts/get",
    "on_request": None,
    "on_message": None,
}
"""The hooks around calls, from the inside to the outside, and the only method of their calls."""

_LISTED = "give visible=... to what some callers do not see"
_HANDSHAKE = "handshakes have no middleware: move what it does into @server.lifespan, or a tool"
_OTHER_HOOKS = {
    "__call__": "name it on_message",
    "check_resource_access": "give scopes=... to each resource, or check in on_read_resource",
    "on_discover": _HANDSHAKE,
    "on_initialize": _HANDSHAKE,
    "on_list_prompts": _LISTED,
    "on_list_resource_templates": _LISTED,
    "on_list_resources": _LISTED,
    "on_list_tools": _LISTED,
    "on_notification": "notifications have no middleware: remove it",
}
_PARTS = {
    "message.arguments": "arguments",
    "message.name": "name",
    "message.uri": "name",
    "method": "method",
}
"""The parts of a context, and the attributes of a call that have them."""

_OTHER_PARTS = {
    "copy": "change call.arguments, and call what comes next without arguments",
    "fastmcp_context": "a call has principal and run_id; handlers see context variables set here",
    "message": "a call has name, arguments and meta",
    "timestamp": "take the time in the hook",
}
_DEPENDENCIES = "a call has headers, which Server(request_headers=...) names, and a principal"
_RESULT = "what comes next gives what the handler returned, not a result of the protocol"


@define
class MiddlewareClasses:
    """The middleware classes of a file.

    Attributes:
        rewritten: those that are rewritten.
        hooks: their hooks.
        names: their names, and those of variables that hold an instance.
        reasons: why the others are not: what has no counterpart, and what to do.
    """

    rewritten: set[cst.ClassDef] = field(factory=set)
    hooks: set[cst.FunctionDef] = field(factory=set)
    names: set[str] = field(factory=set)
    reasons: list[tuple[cst.CSTNode, str]] = field(factory=list)


def read(tree: cst.Module, names: NameResolver) -> MiddlewareClasses:
    """Return the middleware classes of a file."""
    found = MiddlewareClasses()
    classes = [each for each in _all(tree) if isinstance(each, cst.ClassDef)]
    derived = {code(base.value): each.name.value for each in classes for base in each.bases}
    for each in classes:
        if not any(names.full(base.value) in _BASES for base in each.bases):
            continue
        reasons = list(_reasons(each, names))
        if each.name.value in derived:
            reasons.append((each, f"{derived[each.name.value]} derives from it"))
        if _hooks(each) and not reasons:
            found.rewritten.add(each)
            found.hooks.update(_hooks(each))
            found.names.add(each.name.value)
        found.reasons += [(node, f"{each.name.value} stays: {text}") for node, text in reasons]
    assigned = [each for each in _all(tree) if isinstance(each, cst.Assign)]
    for made in assigned:
        if isinstance(made.value, cst.Call) and code(made.value.func) in found.names:
            found.names.update(code(each.target) for each in made.targets)
    return found


def _all(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from _all(child)


def _hooks(node: cst.ClassDef) -> list[cst.FunctionDef]:
    """Return the hooks of a class that are around calls, in the order of `_HOOKS`."""
    functions = [each for each in node.body.body if isinstance(each, cst.FunctionDef)]
    return [each for name in _HOOKS for each in functions if each.name.value == name]


def _reasons(node: cst.ClassDef, names: NameResolver) -> Iterator[tuple[cst.CSTNode, str]]:
    if len(node.bases) != 1 or node.keywords:
        yield node, "middleware needs no base here: remove the others"
    hooks = _hooks(node)
    for member in node.body.body:
        name = member.name.value if isinstance(member, cst.FunctionDef) else ""
        if name in _OTHER_HOOKS:
            yield member, f"{name}: {_OTHER_HOOKS[name]}"
        elif member not in hooks:
            others = _Names(names)
            member.visit(others)
            yield from others.found
    for hook in hooks:
        params = [each.name.value for each in hook.params.params]
        if hook.asynchronous is None or len(params) != 3:
            yield hook, f"{hook.name.value}: write `async def (self, context, call_next)`"
            continue
        is_any = _HOOKS[hook.name.value] is None
        body = _Hook(names, params[1], params[2], is_any)
        hook.body.visit(body)
        yield from body.found


class _Names(cst.CSTVisitor):
    """Gathers the names of other libraries that have no counterpart."""

    def __init__(self, names: NameResolver) -> None:
        super().__init__()
        self._names = names
        self.found: list[tuple[cst.CSTNode, str]] = []

    def visit_Name(self, node: cst.Name) -> None:
        self._is_library(node)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return not self._is_library(node)

    def _is_library(self, node: cst.Name | cst.Attribute) -> bool:
        full = self._names.full(node)
        key = None if full is None else canonical(full)
        if full is not None and not any(key in each for each in (NAMES, ERROR_CODES, REVISIONS)):
            is_dependency = full.startswith("fastmcp.server.dependencies.")
            self.found.append((node, f"{full}: {_DEPENDENCIES if is_dependency else advice(full)}"))
        return full is not None


class _Hook(_Names):
    """Gathers what a hook does that has no counterpart.

    All that it does with its context, with what comes next and with what that gives is of a form
    that means the same here; anything else is listed.

    Args:
        names: of the file.
        context: the parameter that is a call here.
        following: the parameter that runs what comes next.
        is_any: the hook is around calls of every method.
    """

    def __init__(self, names: NameResolver, context: str, following: str, is_any: bool) -> None:
        super().__init__(names)
        self._context, self._following, self._is_any = context, following, is_any
        self._owners = (context, f"{context}.message", f"{context}.fastmcp_context")
        self._results: set[str] = set()
        self._fine: set[cst.CSTNode] = set()

    def _is_next(self, value: cst.BaseExpression | None) -> bool:
        """Return whether what comes next is awaited, and accept that."""
        call = value.expression if isinstance(value, cst.Await) else None
        if not isinstance(call, cst.Call) or code(call.func) != self._following:
            return False
        self._fine.add(call.func)
        if [code(each.value) for each in call.args] == [self._context]:
            self._fine.add(call.args[0].value)
        else:
            self.found.append((call, f"{self._following}: {_OTHER_PARTS['copy']}"))
        return True

    def visit_Expr(self, node: cst.Expr) -> None:
        self._is_next(node.value)

    def visit_Assign(self, node: cst.Assign) -> None:
        target = node.targets[0].target
        is_one = len(node.targets) == 1 and isinstance(target, cst.Name)
        if is_one and self._is_next(node.value):
            self._results.add(code(target))
            self._fine.add(target)

    def visit_Return(self, node: cst.Return) -> None:
        value = node.value
        if isinstance(value, cst.Name) and value.value in self._results:
            self._fine.add(value)
            return
        is_result = isinstance(value, cst.Call) and self._names.key(value.func) == "ToolResult"
        if not self._is_next(value) and not is_result:
            self.found.append((node, "return what comes next gives, or a ToolResult"))

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        owner, text = code(node.value), code(node)
        part = text.removeprefix(f"{self._context}.")
        if owner == f"{self._context}.message.uri" and not hasattr(str, node.attr.value):
            self.found.append((node, f"{text}: the URI is a text here"))
        if owner not in self._owners:
            return super().visit_Attribute(node)
        if part not in _PARTS:
            why = _OTHER_PARTS.get(part) or _OTHER_PARTS.get(part.partition(".")[0])
            self.found.append((node, f"{text}: {why or 'a call has none'}"))
        return False

    def visit_Name(self, node: cst.Name) -> None:
        super().visit_Name(node)
        if node in self._fine:
            return
        if node.value in (self._context, self._following):
            self.found.append((node, f"{node.value} is given away: give what is needed of it"))
        elif node.value in self._results:
            self.found.append((node, f"{node.value}: {_RESULT}"))

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        text = str(node.evaluated_value)
        if self._is_any and _METHOD.fullmatch(text) and text not in _CALLS:
            self.found.append((node, f"middleware is around calls here, not around {text}"))


def _strings(node: cst.CSTNode) -> Iterator[str]:
    return (str(each.evaluated_value) for each in _all(node) if isinstance(each, cst.SimpleString))


def rewrite(to: Rewriter, original: cst.ClassDef, updated: cst.ClassDef) -> cst.ClassDef:
    """Return a class whose instances are middleware.

    Args:
        to: takes findings and imports.
        original: as it was, one of `MiddlewareClasses.rewritten`.
        updated: its names are rewritten already.
    """
    name, line = original.name.value, to.line(original.bases[0])
    to.unmapped = [each for each in to.unmapped if each[0] not in _BASES or each[2] != line]
    to.report(original, f"{name}: its hooks run after the arguments are checked", False)
    hooks = _hooks(original)
    for hook in hooks:
        if _HOOKS[hook.name.value] is None and not _CALLS & {*_strings(hook.body)}:
            to.report(hook, f"{name}.{hook.name.value}: {_CALLS_ALONE}", True)
    called, awaited = to.need("collections.abc.Callable"), to.need("collections.abc.Awaitable")
    types = (to.need("foundation_rt.Invocation"), f"{called}[[], {awaited}[Any]]")
    to.needed |= {"functools.partial", "typing.Any"}
    names = [each.name.value for each in hooks]
    members: list[cst.CSTNode] = [
        _hook(each, types)
        if isinstance(each, cst.FunctionDef) and each.name.value in names
        else each
        for each in updated.body.body
    ]
    none = cst.MaybeSentinel.DEFAULT
    body = updated.body.with_changes(body=[*members, _entry(names, types)])
    return updated.with_changes(bases=[], lpar=none, rpar=none, body=body)


def _entry(hooks: list[str], types: tuple[str, str]) -> cst.BaseStatement:
    """Return the method that runs the hooks of a call."""
    lines = [f"async def __call__(self, call: {types[0]}, proceed: {types[1]}) -> Any:"]
    for hook in hooks:
        step = f"proceed = partial(self.{hook}, call, proceed)"
        test = f'    if call.method == "{_HOOKS[hook]}":'
        lines += [f"    {step}"] if _HOOKS[hook] is None else [test, f"        {step}"]
    text = "\n".join([*lines, "    return await proceed()"])
    return cst.parse_statement(text).with_changes(leading_lines=[cst.EmptyLine(indent=False)])


def _hook(node: cst.FunctionDef, types: tuple[str, str]) -> cst.FunctionDef:
    """Return a hook that takes a call and a function without parameters."""
    own, *params = node.params.params
    typed = [_typed(each, text) for each, text in zip(params, types, strict=True)]
    body = node.body.visit(_Parts(*(each.name.value for each in params)))
    given = node.params.with_changes(params=[own, *typed])
    changed = node.with_changes(params=given, body=body)
    if changed.returns is None:
        return changed
    return changed.with_deep_changes(changed.returns, annotation=cst.Name("Any"))


def _typed(param: cst.Param, text: str) -> cst.Param:
    if param.annotation is None:
        return param
    return param.with_deep_changes(param.annotation, annotation=cst.parse_expression(text))


class _Parts(cst.CSTTransformer):
    """Replaces the parts of a context by those of a call, and calls what comes next."""

    def __init__(self, context: str, following: str) -> None:
        super().__init__()
        self._following = following
        self._parts = {f"{context}.{was}": f"{context}.{now}" for was, now in _PARTS.items()}

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        now = self._parts.get(code(original_node))
        return updated_node if now is None else cst.parse_expression(now)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        is_next = code(original_node.func) == self._following
        return updated_node.with_changes(args=[]) if is_next else updated_node
