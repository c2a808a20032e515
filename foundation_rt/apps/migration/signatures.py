"""The signatures of tools, resources and prompts, as typed functions need them (MIGR-03)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

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
