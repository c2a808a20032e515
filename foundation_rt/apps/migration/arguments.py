"""The arguments of a call, rewritten by an `ArgumentRule` of the table of names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import libcst as cst

from .names import CALLS, ArgumentRule
from .source import code

_CAPITAL = re.compile(r"([A-Z])")

_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))

Report = Callable[[cst.CSTNode, str, bool], None]
"""Takes a node, a text, and whether a person has to decide."""


def keyword(name: str, value: cst.BaseExpression) -> cst.Arg:
    """Return the argument ``name=value``."""
    return cst.Arg(value, keyword=cst.Name(name), equal=_EQUAL)


def rewrite(
    call: cst.Call, rule: ArgumentRule, what: str, report: Report, node: cst.CSTNode
) -> list[cst.Arg]:
    """Return the arguments as we name them.

    Args:
        call: as it is now; its values may have been rewritten.
        rule: of the callable.
        what: the name of the callable, for findings.
        report: takes findings.
        node: the call as it was, for their line.
    """
    kept: list[cst.Arg] = []
    for position, arg in enumerate(call.args):
        name = None if arg.keyword is None else _as_ours(arg.keyword.value, rule)
        if arg.star:
            report(node, f"{what}: look at what {code(arg).strip(', ')} passes", True)
            kept.append(arg)
            continue
        if name is None and position < len(rule.positions):
            known = rule.positions[position]
            ours = rule.renames.get(known, known)
            stays = position == 0 and ours == known
            kept.append(arg if stays else arg.with_changes(keyword=cst.Name(ours), equal=_EQUAL))
        elif name is None:
            report(node, f"{what}: give {code(arg.value)[:60]} by its name, if there is one", True)
            kept.insert(sum(each.keyword is None for each in kept), arg)
        elif name in rule.keeps:
            kept.append(arg.with_changes(keyword=cst.Name(name)))
        elif name in rule.renames:
            kept.append(arg.with_changes(keyword=cst.Name(rule.renames[name])))
        elif name in rule.drops:
            if rule.drops[name]:
                report(node, f"{what}: {name}= was removed: {rule.drops[name]}", False)
        else:
            reason = rule.decides.get(name, "there is no such argument: remove or replace it")
            report(node, f"{what}: {name}={code(arg.value)[:60]}: {reason}", True)
            kept.append(arg)
    return tidy(kept, call.args)


def _as_ours(name: str, rule: ArgumentRule) -> str:
    """Return a name of the wire, such as `mimeType` or `_meta`, as ours, if that is known."""
    ours = _CAPITAL.sub(r"_\1", name).lower().removeprefix("_")
    return ours if ours in rule.keeps or ours in rule.renames else name


def tidy(args: Sequence[cst.Arg], was: Sequence[cst.Arg]) -> list[cst.Arg]:
    """Return the arguments, the last with the comma and the spaces of the last one of `was`."""
    if not args or not was or args[-1] is was[-1]:
        return [*args]
    end = was[-1]
    last = args[-1].with_changes(comma=end.comma, whitespace_after_arg=end.whitespace_after_arg)
    return [*args[:-1], last]


def with_args(call: cst.Call, args: Sequence[cst.Arg]) -> cst.Call:
    """Return the call with these arguments, without spaces where there are none left."""
    if args:
        return call.with_changes(args=args)
    return call.with_changes(args=[], whitespace_before_args=cst.SimpleWhitespace(""))


def argument(args: Sequence[cst.Arg], name: str) -> cst.Arg | None:
    """Return the argument of that keyword."""
    for arg in args:
        if arg.keyword is not None and arg.keyword.value == name:
            return arg
    return None


def without(args: Sequence[cst.Arg], *names: str) -> list[cst.Arg]:
    """Return the arguments but those of these keywords."""
    return tidy([a for a in args if a.keyword is None or a.keyword.value not in names], args)


def first_or_named(args: Sequence[cst.Arg], name: str) -> cst.Arg | None:
    """Return the argument of that keyword, else the first one if it is given by its place."""
    found = argument(args, name)
    if found is None and args and args[0].keyword is None and not args[0].star:
        return args[0]
    return found


def renamed(args: Sequence[cst.Arg], names: Mapping[str, str]) -> list[cst.Arg]:
    """Return the arguments, those of `names` by another keyword."""
    return [
        arg.with_changes(keyword=cst.Name(names[arg.keyword.value]))
        if arg.keyword is not None and arg.keyword.value in names
        else arg
        for arg in args
    ]


def changed(
    args: Sequence[cst.Arg], name: str, change: Callable[[cst.BaseExpression], cst.BaseExpression]
) -> list[cst.Arg]:
    """Return the arguments, the value of that keyword changed, if it is there."""
    return [
        arg.with_changes(value=change(arg.value))
        if arg.keyword is not None and arg.keyword.value == name
        else arg
        for arg in args
    ]


def milliseconds(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return a time in seconds as one in milliseconds."""
    text = code(value)
    if text.replace(".", "", 1).isdigit():
        return cst.parse_expression(str(round(float(text) * 1000)))
    return cst.parse_expression(f"round(({text}) * 1000)")


def decoded(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return bytes for a text in base64."""
    return cst.parse_expression(f"b64decode({code(value)})")


def unwrapped_uri(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return the text inside ``AnyUrl(...)``, or a call of `str` of another value."""
    if isinstance(value, cst.Call) and code(value.func).endswith("AnyUrl") and value.args:
        return value.args[0].value
    if isinstance(value, cst.SimpleString | cst.FormattedString):
        return value
    return cst.parse_expression(f"str({code(value)})")


def hints(value: cst.BaseExpression, need: Callable[[str], str]) -> cst.BaseExpression:
    """Return the call of `ToolAnnotations` for a dict that is written out."""
    if not isinstance(value, cst.Dict):
        return value
    rule = CALLS["types.ToolAnnotations"]
    args = []
    for each in value.elements:
        if not isinstance(each, cst.DictElement) or not isinstance(each.key, cst.SimpleString):
            return value
        name = _as_ours(str(each.key.evaluated_value), rule)
        args.append(keyword(rule.renames.get(name, name), each.value))
    return cst.Call(cst.Name(need("foundation_rt.ToolAnnotations")), args)


def joined(*parts: str) -> str:
    """Return the expression for texts, one after the other; those written out become one."""
    values = [cst.parse_expression(part) for part in parts]
    if all(isinstance(each, cst.SimpleString) for each in values):
        return (
            '"' + "".join(str(cst.ensure_type(v, cst.SimpleString).raw_value) for v in values) + '"'
        )
    return " + ".join(parts)
