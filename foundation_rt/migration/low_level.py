"""Low-level servers, whose handlers list and answer: registered from what they list (MIGR-05)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import libcst as cst

from .names import LOW_LEVEL, LOW_LEVEL_ADVICE, NOT_NEEDED
from .source import code

if TYPE_CHECKING:
    from .rewriter import Rewriter

_REGISTER = {
    "list_tools": "register(each, partial({answer}, each.name))",
    "list_resources": "register_resource(each, {answer})",
    "list_resource_templates": "register_resource_template(each, {answer})",
    "list_prompts": "register_prompt(each, partial({answer}, each.name))",
}
_ANSWERS = frozenset(LOW_LEVEL.values())


def _registration(to: Rewriter, handlers: dict[str, str]) -> str:
    """Return the hook that registers what the handlers list, with `{server}` for the server."""
    lines = []
    for lister, answerer in LOW_LEVEL.items():
        if lister in handlers and answerer in handlers:
            action = _REGISTER[lister].format(answer=handlers[answerer])
            if "partial" in action:
                to.needed.add("functools.partial")
            lines += [f"    for each in await {handlers[lister]}():", f"        server.{action}"]
    to.needed.add("collections.abc.AsyncIterator")
    server = to.need("foundation_rt.Server")
    head = [
        "@{server}.lifespan",
        f"async def register_features(server: {server}) -> AsyncIterator[None]:",
        '    """Register what the handlers list."""',
    ]
    return "\n".join([*head, *lines, "    yield", ""])


def registration_of_v2(to: Rewriter, handlers: dict[str, str], node: cst.Call) -> list[str]:
    """Return the statements that register the handlers of a server of the SDK 2."""
    for name in sorted(set(handlers) - set(LOW_LEVEL) - _ANSWERS):
        advice = LOW_LEVEL_ADVICE.get(
            name, "it has no counterpart: remove it, or use server.forward"
        )
        to.report(node, f"on_{name}: {advice}", name not in NOT_NEEDED)
    for name, text in handlers.items():
        if text not in to.source.functions:
            to.report(node, f"on_{name}={text}: give it the parameters of a handler here", True)
    if not any(a in handlers and b in handlers for a, b in LOW_LEVEL.items()):
        return []
    return [_registration(to, handlers)]


class LowLevel:
    """Rewrites the handlers of a low-level server of the SDK 1."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._to = rewriter
        self._uris: list[bool] = []

    def enter(self, node: cst.FunctionDef) -> None:
        for decorator in node.decorators:
            found = self._to.source.handled(decorator)
            if found is not None and found[1] in LOW_LEVEL_ADVICE:
                text = f"@{found[1]}: {LOW_LEVEL_ADVICE[found[1]]}"
                self._to.report(node, text, found[1] not in NOT_NEEDED)

    def leave(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> Any:
        source = self._to.source
        found = next((f for d in original.decorators if (f := source.handled(d)) is not None), None)
        if found is None and original.name.value in source.functions:
            return self._second(source.functions[original.name.value], original, updated)
        if found is None or (found[1] in LOW_LEVEL_ADVICE and found[1] not in NOT_NEEDED):
            return updated
        server, kind = found
        decorators = [
            now
            for was, now in zip(original.decorators, updated.decorators, strict=True)
            if source.handled(was) is None
        ]
        updated = updated.with_changes(decorators=decorators)
        if kind in NOT_NEEDED:
            return updated
        if kind in _ANSWERS:
            updated = self._answering(kind, updated)
        elif original.params.params:
            self._to.report(
                original,
                f"{kind}: return all entries: the server makes pages (spec/pagination.md)",
                True,
            )
        if source.last_handlers[server] is not original:
            return updated
        for lister, answerer in LOW_LEVEL.items():
            has_both = (lister in source.handlers[server]) == (answerer in source.handlers[server])
            if not has_both and answerer != "read_resource":
                self._to.report(original, f"{lister} goes with {answerer}: one is missing", True)
        text = _registration(self._to, source.handlers[server])
        hook = cst.parse_statement(text.replace("{server}", server))
        assert isinstance(hook, cst.FunctionDef)
        hook = hook.with_changes(leading_lines=[cst.EmptyLine(indent=False)] * 2)
        return cst.FlattenSentinel([updated, hook])

    def _second(
        self, kind: str, original: cst.FunctionDef, updated: cst.FunctionDef
    ) -> cst.FunctionDef:
        """Return a handler of the SDK 2, which takes ``(ctx, params)``, with our parameters."""
        if len(original.params.params) != 2 or (kind not in LOW_LEVEL and kind not in _ANSWERS):
            return updated
        ctx, params = (each.name.value for each in original.params.params)
        context = f"{ctx}: {self._to.need('foundation_rt.ToolContext')}"
        parts, new = _PARAMS.get(kind, ({}, []))
        if new:
            self._to.needed.add("typing.Any")
        if kind in LOW_LEVEL:
            context = ""
        body = updated.body.visit(_Params(params, parts))
        assert isinstance(body, cst.BaseSuite)
        if kind == "read_resource":
            body = _with_first(updated, body, 'uri = arguments["uri"]')
        signature = [_param(text) for text in (*new, context) if text]
        changed = updated.with_changes(
            params=cst.Parameters(signature),
            body=body,
            whitespace_before_params=cst.SimpleWhitespace(""),
        )
        used = set(_names(body))
        if params in used or (kind in LOW_LEVEL and ctx in used):
            self._to.report(
                original,
                f"{original.name.value}: look at what it does with {params} "
                f"and {ctx}: a handler of {kind} has none here",
                True,
            )
        return changed

    def _answering(self, kind: str, updated: cst.FunctionDef) -> cst.FunctionDef:
        """Return a handler with the parameters that ours have."""
        context = self._to.need("foundation_rt.ToolContext")
        ctx = _param(f"ctx: {context}")
        params = list(updated.params.params)
        if kind != "read_resource":
            changed = [
                *(
                    each.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)
                    for each in params
                ),
                ctx,
            ]
            body = updated.body
        else:
            self._to.needed.add("typing.Any")
            changed = [_param("arguments: dict[str, Any]"), ctx]
            body = updated.body
            if params and isinstance(body, cst.IndentedBlock):
                uri = params[0]
                value = 'arguments["uri"]'
                if uri.annotation is not None and "AnyUrl" in code(uri.annotation.annotation):
                    value = f"AnyUrl({value})"
                body = _with_first(updated, body, f"{uri.name.value} = {value}")
        return updated.with_changes(params=updated.params.with_changes(params=changed), body=body)


def _with_first(function: cst.FunctionDef, body: cst.BaseSuite, text: str) -> cst.BaseSuite:
    """Return the body of a function that begins with a statement, after its docstring."""
    if not isinstance(body, cst.IndentedBlock):
        return body
    at = 1 if function.get_docstring() is not None else 0
    line = cst.parse_statement(text)
    return body.with_changes(body=[*body.body[:at], line, *body.body[at:]])


_BY_NAME = ({"name": "name", "arguments": "arguments"}, ["name: str", "arguments: dict[str, Any]"])
_PARAMS: dict[str, tuple[dict[str, str], list[str]]] = {
    "call_tool": _BY_NAME,
    "get_prompt": _BY_NAME,
    "read_resource": ({"uri": "uri"}, ["arguments: dict[str, Any]"]),
}
"""The members of the params of a request that handlers read, and our parameters."""


class _Params(cst.CSTTransformer):
    """Replaces ``params.name`` by the parameter that has it."""

    def __init__(self, params: str, parts: dict[str, str]) -> None:
        super().__init__()
        self._params, self._parts = params, parts

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        if code(original_node.value) == self._params and original_node.attr.value in self._parts:
            return cst.parse_expression(self._parts[original_node.attr.value])
        return updated_node


def _names(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Name):
        yield node.value
    for child in node.children:
        yield from _names(child)


def _param(text: str) -> cst.Param:
    function = cst.parse_statement(f"def f({text}): pass")
    assert isinstance(function, cst.FunctionDef)
    return function.params.params[0]
