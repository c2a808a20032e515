"""Low-level servers, whose handlers list and answer: registered from what they list (MIGR-05)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import libcst as cst

from . import pages
from .names import LOW_LEVEL, LOW_LEVEL_ADVICE, NOT_NEEDED, OPTIONS
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


_UNANSWERED = "unanswered"


def _refusal(to: Rewriter) -> list[str]:
    """Return the handler of entries that are listed and that nothing answers for."""
    error, error_code = (to.need(f"foundation_rt.{n}") for n in ("ToolError", "ErrorCode"))
    return [
        f"    async def {_UNANSWERED}(*_: object) -> None:",
        f'        raise {error}({error_code}.NOT_FOUND, "no handler answers for it")',
        "",
    ]


def report_missing(to: Rewriter, handlers: Mapping[str, str], node: cst.CSTNode) -> None:
    """Report handlers that list what nothing answers for, and those that answer for no list."""
    for lister, answerer in LOW_LEVEL.items():
        if lister in handlers and answerer not in handlers:
            text = f"{lister} without {answerer}: its entries are listed, and NOT_FOUND if used"
            to.report(node, text, False)
    for answerer in sorted(_ANSWERS & handlers.keys()):
        listers = [lister for lister, other in LOW_LEVEL.items() if other == answerer]
        if not any(lister in handlers for lister in listers):
            text = f"{answerer} without {listers[0]}: register what it answers for"
            to.report(node, text, True)


def _registration(to: Rewriter, handlers: dict[str, str]) -> str:
    """Return the hook that registers what the handlers list, with `{server}` for the server."""
    lines: list[str] = []
    for lister, answerer in LOW_LEVEL.items():
        if lister in handlers:
            answer = handlers.get(answerer, _UNANSWERED)
            if answer == _UNANSWERED and not any(_UNANSWERED in line for line in lines):
                lines = [*_refusal(to), *lines]
            action = _REGISTER[lister].format(answer=answer)
            if "partial" in action:
                to.needed.add("functools.partial")
            if handlers[lister] in to.source.paged:
                is_first = not any("cursor" in line for line in lines)
                lines += pages.registration(handlers[lister], f"server.{action}", is_first)
            else:
                lines += [
                    f"    for each in await {handlers[lister]}():",
                    f"        server.{action}",
                ]
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
    completer = handlers.get("completion")
    hooks = [] if completer is None else [f"{{server}}.completion({completer})"]
    for name in sorted(set(handlers) - set(LOW_LEVEL) - _ANSWERS - {"completion"}):
        advice = LOW_LEVEL_ADVICE.get(
            name, "it has no counterpart: remove it, or use server.forward"
        )
        to.report(node, f"on_{name}: {advice}", name != "set_logging_level")
    for name, text in handlers.items():
        if text not in to.source.functions and text not in to.source.completers:
            to.report(node, f"on_{name}={text}: give it the parameters of a handler here", True)
    report_missing(to, handlers, node)
    if not any(lister in handlers for lister in LOW_LEVEL):
        return hooks
    return [*hooks, _registration(to, handlers)]


class LowLevel:
    """Rewrites the handlers of a low-level server of the SDK 1."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._to = rewriter

    def enter(self, node: cst.FunctionDef) -> None:
        for decorator in node.decorators:
            found = self._to.source.handled(decorator)
            if found is not None and found[1] in LOW_LEVEL_ADVICE:
                text = f"@{found[1]}: {LOW_LEVEL_ADVICE[found[1]]}"
                self._to.report(node, text, found[1] != "set_logging_level")

    def is_not_needed(self, statement: cst.SimpleStatementLine) -> bool:
        """Return whether a statement makes options for `run`, or sets a handler without calls.

        A handler that is not called any more is reported.
        """
        only = statement.body[0]
        if isinstance(only, cst.Assign) and isinstance(only.value, cst.Call):
            made = self._to.source.server_method(only.value.func)
            return made is not None and made[1] == OPTIONS  # an argument of `run`
        call = only.value if isinstance(only, cst.Expr) else None
        inner = call.func if isinstance(call, cst.Call) else None
        found = self._to.source.server_method(inner.func) if isinstance(inner, cst.Call) else None
        if found is None or found[1] not in NOT_NEEDED:
            return False
        self._to.report(statement, f"{found[1]}: {LOW_LEVEL_ADVICE[found[1]]}", True)
        return True

    def kind(self, node: cst.FunctionDef) -> str | None:
        """Return what a function handles for a low-level server; None if it handles nothing."""
        for decorator in node.decorators:
            found = self._to.source.handled(decorator)
            if found is not None:
                return found[1]
        if node.name.value in self._to.source.completers:
            return "completion"
        return self._to.source.functions.get(node.name.value)

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
        elif original.name.value in source.paged and original.params.params:
            updated = pages.rewrite(self._to, original, updated)
        elif original.params.params:
            self._to.report(
                original,
                f"{kind}: return all entries: the server makes pages (spec/pagination.md)",
                True,
            )
        if source.last_handlers[server] is not original:
            return updated
        handlers = source.handlers[server]
        report_missing(self._to, handlers, original)
        if not any(lister in handlers for lister in LOW_LEVEL):
            return updated
        text = _registration(self._to, handlers)
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
        if kind in LOW_LEVEL and original.name.value in self._to.source.paged:
            return pages.rewrite(self._to, original, updated)
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
                if _needs_url(uri, body):
                    value = f"AnyUrl({value})"
                body = _with_first(updated, body, f"{uri.name.value} = {value}")
        return updated.with_changes(params=updated.params.with_changes(params=changed), body=body)


def _needs_url(uri: cst.Param, body: cst.BaseSuite) -> bool:
    """Return whether a handler takes its URI apart, or compares it with an `AnyUrl`.

    Any other handler compares it with URIs of definitions, which are texts here.
    """
    if uri.annotation is None or "AnyUrl" not in code(uri.annotation.annotation):
        return False
    return f"{uri.name.value}." in code(body) or "AnyUrl" in code(body)


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
