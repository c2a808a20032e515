"""The signatures of tools, resources and prompts, as typed functions need them (MIGR-03).

A handler of completions takes one request here (MIGR-09).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .source import code

if TYPE_CHECKING:
    from .rewriter import Rewriter

_UNTYPED = {"tool": "Any", "resource": "str", "prompt": "str"}


def complete(
    to: Rewriter, kind: str | None, original: cst.FunctionDef, updated: cst.FunctionDef
) -> cst.FunctionDef:
    """Return a function whose parameters say their types, and that takes no default of a library.

    Args:
        to: takes findings and imports.
        kind: of the decorator: `tool`, `resource` or `prompt`; None for any other function.
        original: as it was.
        updated: as it is.
    """
    was, now = original.params, updated.params
    if was.star_kwarg is not None and kind is not None:
        to.report(original, f"{original.name.value}: name the parameters: **kwargs has none", True)
    positional = [_param(to, kind, a, b) for a, b in zip(was.params, now.params, strict=True)]
    by_name = [
        _param(to, kind, a, b) for a, b in zip(was.kwonly_params, now.kwonly_params, strict=True)
    ]
    needed = [each for each in positional if each.default is None]
    given = [each for each in positional if each.default is not None]
    ordered = positional if _in_order(positional) else _spaced([*needed, *given])
    return updated.with_changes(params=now.with_changes(params=ordered, kwonly_params=by_name))


def _param(to: Rewriter, kind: str | None, was: cst.Param, now: cst.Param) -> cst.Param:
    default = was.default
    called = to.names.key(default.func) if isinstance(default, cst.Call) else None
    if called == "CurrentContext":
        return now.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)
    if kind == "tool" and was.annotation is not None and _is_bytes(was.annotation):
        to.report(was, f"{was.name.value}: bytes are sent in base64 here, not as text", False)
    if kind is None or now.annotation is not None or now.name.value in ("self", "cls"):
        return now
    if _UNTYPED[kind] == "Any":
        to.needed.add("typing.Any")
    to.report(
        was, f"{was.name.value}: a parameter says its type: {_UNTYPED[kind]} was added", False
    )
    return now.with_changes(annotation=cst.Annotation(cst.Name(_UNTYPED[kind])))


def _is_bytes(annotation: cst.Annotation) -> bool:
    return isinstance(annotation.annotation, cst.Name) and annotation.annotation.value == "bytes"


def _in_order(params: list[cst.Param]) -> bool:
    seen = False
    for each in params:
        if each.default is None and seen:
            return False
        seen = seen or each.default is not None
    return True


def _spaced(params: list[cst.Param]) -> list[cst.Param]:
    return [each.with_changes(comma=cst.MaybeSentinel.DEFAULT) for each in params]


# -- completions ---------------------------------------------------------------------------------

_KINDS = {"PromptReference": "prompt", "ResourceTemplateReference": "template"}
_TYPES = {"ref/prompt": "prompt", "ref/resource": "template"}
_OF_REFERENCE = {"name": "prompt", "uri": "template"}
_OF_ARGUMENT = {"name": "argument", "value": "value"}


def take_request(
    to: Rewriter, original: cst.FunctionDef, updated: cst.FunctionDef
) -> cst.FunctionDef:
    """Return a handler ``(ref, argument, context)`` with our parameter.

    Args:
        to: takes findings and imports.
        original: as it was.
        updated: its names are rewritten already.
    """
    given = [each.name.value for each in original.params.params]
    if len(given) != 3:
        to.report(original, f"{original.name.value}: take one CompletionRequest", True)
        return updated
    ref, argument, context = given
    name = "request" if "request" not in to.source.taken else "completion_request"
    body = updated.body.visit(_Parts(name, ref, argument, context))
    assert isinstance(body, cst.BaseSuite)
    left = _Uses({*given})
    body.visit(left)
    if left.found:
        text = ", ".join(sorted(left.found))
        to.report(original, f"{original.name.value}: look at {text}: use {name} instead", True)
    kind = to.need("foundation_rt.CompletionRequest")
    param = cst.Param(cst.Name(name), cst.Annotation(cst.Name(kind)))
    return updated.with_changes(
        params=cst.Parameters([param]),
        body=body,
        whitespace_before_params=cst.SimpleWhitespace(""),
    )


class _Parts(cst.CSTTransformer):
    """Replaces the parts of the three parameters by those of the request."""

    def __init__(self, name: str, ref: str, argument: str, context: str) -> None:
        super().__init__()
        self._name, self._ref, self._argument, self._context = name, ref, argument, context

    def _is(self, part: str) -> cst.BaseExpression:
        return cst.parse_expression(f"{self._name}.{part} is not None")

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if code(original_node.func) != "isinstance" or len(original_node.args) != 2:
            return updated_node
        kind = code(original_node.args[1].value).rpartition(".")[2]
        if code(original_node.args[0].value) == self._ref and kind in _KINDS:
            return self._is(_KINDS[kind])
        return updated_node

    def leave_Comparison(
        self, original_node: cst.Comparison, updated_node: cst.Comparison
    ) -> cst.BaseExpression:
        if code(original_node.left) == f"{self._ref}.type" and len(original_node.comparisons) == 1:
            target = original_node.comparisons[0]
            value = target.comparator
            text = value.evaluated_value if isinstance(value, cst.SimpleString) else None
            if isinstance(target.operator, cst.Equal) and text in _TYPES:
                return self._is(_TYPES[str(text)])
        return updated_node

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        owner, name = code(original_node.value), original_node.attr.value
        part = None
        if owner == self._ref:
            part = _OF_REFERENCE.get(name)
        elif owner == self._argument:
            part = _OF_ARGUMENT.get(name)
        elif owner == self._context:
            part = "arguments" if name == "arguments" else None
        if part is not None:
            return cst.parse_expression(f"{self._name}.{part}")
        return updated_node

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return cst.Name(self._name) if original_node.value == self._context else updated_node

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)


class _Uses(cst.CSTVisitor):
    """Finds which of some names are still used."""

    def __init__(self, names: set[str]) -> None:
        super().__init__()
        self._names = names
        self.found: set[str] = set()

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        if node.value in self._names:
            self.found.add(node.value)
