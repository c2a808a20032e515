"""Tools that FastMCP transforms, as a `Transform` where they join (MIGR-25).

A tool of `Tool.from_tool` becomes one of a server of its own, which is mounted where it was added.
What a server transforms of its own becomes part of the call that mounts it, or makes it of an API.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import libcst as cst
from attrs import define, field, frozen

from . import arguments as args_of
from .names import APIS, TRANSFORM_ADVICE
from .source import CONTEXTS, code

if TYPE_CHECKING:
    from .rewriter import Rewriter

FROM_TOOL = "from_tool"
ADDS = ("add_transform", "add_tool_transformation")
_AS_TOOLS = {
    "PromptsAsTools": "expose_prompts_as_tools",
    "ResourcesAsTools": "expose_resources_as_tools",
}
_TEXTS = {"name": "as", "title": "title", "description": "description"}
_OF_REGISTRATION = ("tags", "annotations", "meta", "output_schema")
"""Arguments of `from_tool` that the registration of the function takes."""

_SHOWN = "a default, a type, examples and required= stay: write a tool that calls the function"
_OF_TOOL = {
    "transform_fn": "write a function (call, arguments, ctx), and give it as `call`",
    "version": "give version= where the tool is registered",
    "tags": "give tags= where the tool is registered",
    "meta": "give meta= where the tool is registered",
    "enabled": 'call server.disable("NAME") if it was False',
}

Values = dict[str, cst.BaseExpression]


class NoCounterpartError(Exception):
    """A transform has something that has no counterpart; the message says what to write."""


@define
class Shapes:
    """The changes of the tools of one server.

    Attributes:
        members: the text of what is done to each tool, by the text of its name.
        calls: that do so.
        reason: why none can be rewritten.
        reasons: why single calls cannot.
    """

    members: dict[str, str] = field(factory=dict)
    calls: list[cst.Call] = field(factory=list)
    reason: str = ""
    reasons: dict[cst.Call, str] = field(factory=dict)


@frozen
class MadeTool:
    """A tool that is made of a function, as a server of its own.

    Attributes:
        server: the text that makes the server.
        registration: the statement that registers the function there, with ``{server}``.
        members: what is done to the tool, as in `Shapes`.
    """

    server: str
    registration: str
    members: Mapping[str, str]


class ToolTransforms(cst.CSTVisitor):
    """Reads a file, and rewrites the calls that transform tools."""

    def __init__(self, rewriter: Rewriter) -> None:
        super().__init__()
        self._to = rewriter
        self._functions: dict[str, cst.FunctionDef] = {}
        self._assigned: dict[str, cst.Call] = {}
        self._added: set[str] = set()
        self._uses: dict[str, int] = {}
        self._joined: dict[str, list[cst.Call]] = {}
        self._shapes: dict[str, Shapes] = {}
        self._made: dict[cst.Call, MadeTool] = {}

    # -- reading -------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._functions.setdefault(node.name.value, node)

    def visit_Name(self, node: cst.Name) -> None:
        self._uses[node.value] = self._uses.get(node.value, 0) + 1

    def visit_Assign(self, node: cst.Assign) -> None:
        call = node.value
        if not isinstance(call, cst.Call) or len(node.targets) != 1:
            return
        name, key = code(node.targets[0].target), self._to.names.key(call.func)
        if key in APIS:
            self._joined.setdefault(name, []).append(call)
        if key == FROM_TOOL:
            self._assigned[name] = call

    def visit_Call(self, node: cst.Call) -> None:
        found = self._to.source.server_method(node.func)
        if found is None or not node.args:
            return
        owner, method = found
        first = node.args[0].value
        if method == "mount":
            given = args_of.first_or_named(node.args, "server")
            if given is not None:
                self._joined.setdefault(code(given.value), []).append(node)
        if method == "add_tool":
            self._added.add(code(first))
        if method in ADDS and self._as_tools(node) is None:
            shapes = self._shapes.setdefault(owner, Shapes())
            shapes.calls.append(node)
            try:
                shapes.members.update(_members(method, node))
            except NoCounterpartError as reason:
                shapes.reason = shapes.reasons[node] = str(reason)

    def finish_reading(self) -> None:
        """Find out which transforms have a call that they can become part of."""
        for owner, shapes in self._shapes.items():
            calls = self._joined.get(owner, [])
            if shapes.reason:
                continue
            if len(calls) != 1:
                shapes.reason = (
                    "tools are shaped where they join: mount this server in another one, and"
                    f" write mount({owner}, {self._argument(shapes.members)})"
                )
            elif any(self._to.line(each) > self._to.line(calls[0]) for each in shapes.calls):
                names = {name for text in shapes.members.values() for name in _names_in(text)}
                if names:
                    listed = ", ".join(sorted(names))
                    shapes.reason = f"move it, and {listed}, before the server is mounted or made"

    # -- transforms of a server ----------------------------------------------------------------

    def joining(self, original: cst.Call, updated: cst.Call, owner: str) -> cst.Call:
        """Return a call that mounts a server, or makes it of an API, with its transform.

        Args:
            original: the call as it was.
            updated: the call as it is now.
            owner: the server.
        """
        found = self._shapes.get(owner)
        members = {} if found is None or found.reason else dict(found.members)
        renames = args_of.argument(updated.args, "tool_names")
        if renames is not None:
            try:
                members = {**_renamed(renames.value, updated), **members}
                updated = updated.with_changes(args=args_of.without(updated.args, "tool_names"))
            except NoCounterpartError as reason:
                self._to.report(original, f"mount: tool_names=: {reason}", True)
        return self._with(updated, members)

    def assigned_to(self, call: cst.Call) -> str:
        """Return the server that a call makes of an API; "" if it is unknown."""
        return next((name for name, calls in self._joined.items() if call in calls), "")

    def _with(self, call: cst.Call, members: Mapping[str, str]) -> cst.Call:
        if not members:
            return call
        self._to.need("foundation_rt.Transform")
        made = cst.parse_expression(f"f({self._argument(members)})")
        added = cst.ensure_type(made, cst.Call).args
        return call.with_changes(args=args_of.tidy([*call.args, *added], call.args))

    def _argument(self, members: Mapping[str, str]) -> str:
        inner = ", ".join(f"{name}: {text}" for name, text in members.items())
        name = "McpTransform" if "Transform" in self._to.source.taken else "Transform"
        return f"transform={name}({{{inner}}})"

    def is_moved(self, statement: cst.SimpleStatementLine) -> bool:
        """Return whether a statement has become part of another one."""
        only = statement.body[0]
        call = only.value if isinstance(only, cst.Expr) else None
        return len(statement.body) == 1 and any(
            call in each.calls and not each.reason for each in self._shapes.values()
        )

    def added(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Return what stands for a call that adds a transform."""
        method = self._as_tools(original)
        if method is not None:
            func = cst.ensure_type(updated.func, cst.Attribute).with_changes(attr=cst.Name(method))
            return updated.with_changes(func=func, args=[])
        for each in self._shapes.values():
            if original in each.calls and each.reason:
                reason = each.reasons.get(original, each.reason)
                self._to.report(original, f"{code(original.func)}(): {reason}", True)
        return updated

    def _as_tools(self, call: cst.Call) -> str | None:
        given = call.args[0].value if call.args else None
        key = self._to.names.key(given.func) if isinstance(given, cst.Call) else None
        return _AS_TOOLS.get(key or "")

    # -- tools that are made of others -----------------------------------------------------------

    def made(self, original: cst.Call, updated: cst.Call) -> tuple[cst.Call, list[str]]:
        """Return the server of a tool that is made of a function, and what follows it."""
        try:
            made = self._made[original] = self._make(original, updated)
        except NoCounterpartError as reason:
            self._to.report(original, f"{code(original.func)}(): {reason}", True)
            return updated, []
        server = cst.ensure_type(cst.parse_expression(made.server), cst.Call)
        return server, [made.registration] if original in self._assigned.values() else []

    def _make(self, original: cst.Call, updated: cst.Call) -> MadeTool:
        given = _keywords(updated, ("tool",))
        function = given.pop("tool", cst.Name("None"))
        parent = self._functions.get(code(function))
        if parent is None:
            raise NoCounterpartError(
                "make it of a function of this file; or write a tool that calls the other one"
            )
        name = next((each for each, call in self._assigned.items() if call is original), None)
        if (code(original) if name is None else name) not in self._added:
            raise NoCounterpartError("add it to a server of this file: server.add_tool(...)")
        known = {*_TEXTS, *_OF_REGISTRATION, "transform_args"}
        for each in given.keys() - known:
            raise NoCounterpartError(_OF_TOOL.get(each, f"{each}= has no counterpart"))
        registered = parent.name.value
        options = [args_of.keyword(each, given[each]) for each in _OF_REGISTRATION if each in given]
        for inherited in self._options_of(parent):
            option = cast("cst.Name", inherited.keyword).value
            if option == "name":
                given.setdefault("name", inherited.value)
            elif option not in {*given, "version"}:
                options.append(inherited)
        if self._to.names.mentions(parent.params, CONTEXTS):
            text = "ctx.state is that of a server of its own: write a tool that calls the function"
            self._to.report(original, f"{code(original.func)}(): if it is used, {text}", True)
        texts = [f"{cast('cst.Name', arg.keyword).value}={code(arg.value)}" for arg in options]
        call = f"({', '.join(texts)})" if texts else ""
        title = code(given["name"]) if "name" in given else f'"{registered}"'
        members = _tool(given, given.get("transform_args"), parent)
        return MadeTool(
            f"{self._to.need('foundation_rt.Server')}({title})",
            f"{{server}}.tool{call}({code(function)})",
            {f'"{registered}"': members} if members != "{}" else {},
        )

    def _options_of(self, parent: cst.FunctionDef) -> Iterator[cst.Arg]:
        """Yield the options of the decorator of a function, which a tool made of it has."""
        for decorator in parent.decorators:
            call = decorator.decorator
            if isinstance(call, cst.Call) and self._to.source.server_method(call.func):
                options = self._to.options_of_tool(call)
                yield from (each for each in options if each.keyword is not None)

    def mounted(self, original: cst.Call, updated: cst.Call) -> tuple[cst.Call, list[str]] | None:
        """Return the call that mounts the server of a tool, and what goes before it.

        None: what is added is no tool that was made of a function.
        """
        given = original.args[0].value
        name = code(given)
        made = self._made.get(given if isinstance(given, cst.Call) else self._assigned.get(name))  # type: ignore[arg-type]
        if made is None:
            return None
        before: list[str] = []
        if isinstance(given, cst.Call):
            title = re.sub(r"\W", "_", made.server.partition("(")[2].strip("\"')"))
            name = f"{title}_server"
            before = [f"{name} = {made.server}", made.registration.replace("{server}", name)]
        elif self._uses.get(name, 0) > 2:
            text = f"{name} is a server of one tool now: look at what is done with it"
            self._to.report(original, text, True)
        func = cst.ensure_type(updated.func, cst.Attribute).with_changes(attr=cst.Name("mount"))
        call = updated.with_changes(func=func, args=[cst.Arg(cst.Name(name))])
        return self._with(call, made.members), before


# -- the parts of a transform ---------------------------------------------------------------------


def _members(method: str, call: cst.Call) -> dict[str, str]:
    """Return what a call does to each tool of its server."""
    if method == "add_tool_transformation":
        given = _keywords(call, ("tool_name", "transformation"))
        return {code(given["tool_name"]): _config(given.get("transformation"))}
    added = call.args[0].value
    name = code(added.func).rpartition(".")[2] if isinstance(added, cst.Call) else ""
    if name != "ToolTransform" or not isinstance(added, cst.Call) or not added.args:
        raise NoCounterpartError(TRANSFORM_ADVICE.get(name, TRANSFORM_ADVICE["ToolTransform"]))
    return {code(key): _config(each) for key, each in _elements(added.args[0].value)}


def _config(config: cst.BaseExpression | None) -> str:
    """Return what a configuration of FastMCP does to a tool."""
    if not isinstance(config, cst.Call):
        raise NoCounterpartError("write the ToolTransformConfig out")
    given = _keywords(config, ())
    for name in given.keys() - {*_TEXTS, "arguments"}:
        raise NoCounterpartError(_OF_TOOL.get(name, f"{name}= has no counterpart"))
    return _tool(given, given.get("arguments"))


def _tool(
    given: Values, arguments: cst.BaseExpression | None, parent: cst.FunctionDef | None = None
) -> str:
    members = [f'"{_TEXTS[name]}": {code(given[name])}' for name in _TEXTS if name in given]
    if arguments is not None and code(arguments) != "None":
        shapes = [
            f"{code(key)}: {_argument(key, each, parent)}" for key, each in _elements(arguments)
        ]
        members.append(f'"arguments": {{{", ".join(shapes)}}}')
    return f"{{{', '.join(members)}}}"


def _argument(
    name: cst.BaseExpression, shape: cst.BaseExpression, parent: cst.FunctionDef | None
) -> str:
    """Return what is done to an argument, of a call or a dict of its members."""
    if isinstance(shape, cst.Call):
        given = _keywords(shape, ())
    else:
        given = {_text(key): value for key, value in _elements(shape)}
    given = {each: value for each, value in given.items() if code(value) not in ("...", "NotSet")}
    hidden = given.pop("hide", None)
    if hidden is not None and code(hidden) == "True":
        if "default_factory" in given:
            return f'{{"from": lambda _: ({code(given["default_factory"])})()}}'
        value = code(given["default"]) if "default" in given else _default(parent, _text(name))
        return f'{{"hide": {value}}}'
    for each in given.keys() - {"name", "description"}:
        raise NoCounterpartError(f"{code(name)}: {each}=: {_SHOWN}")
    members = [f'"{_TEXTS[each]}": {code(given[each])}' for each in _TEXTS if each in given]
    return f"{{{', '.join(members)}}}"


def _default(parent: cst.FunctionDef | None, name: str) -> str:
    """Return the default of a parameter, which a hidden argument has."""
    params = () if parent is None else (*parent.params.params, *parent.params.kwonly_params)
    for each in params:
        if each.name.value == name and each.default is not None and _is_literal(each.default):
            return code(each.default)
    raise NoCounterpartError(f"{name!r} is hidden: give it the value that the tool is to get")


def _is_literal(value: cst.BaseExpression) -> bool:
    try:
        literal_eval(code(value))
    except (ValueError, SyntaxError):
        return False
    return True


def _renamed(names: cst.BaseExpression, mount: cst.Call) -> dict[str, str]:
    """Return the transform of ``mount(..., tool_names={...})``."""
    prefix = args_of.argument(mount.args, "prefix")
    if prefix is not None and code(prefix.value) not in ("None", '""', "''"):
        raise NoCounterpartError(
            "names begin with the prefix here: mount it without, or give transform=Transform({...})"
        )
    return {code(key): f'{{"as": {code(value)}}}' for key, value in _elements(names)}


def _elements(value: cst.BaseExpression) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    if not isinstance(value, cst.Dict):
        raise NoCounterpartError(f"write {code(value)[:40]} out, as a dict")
    found: Sequence[cst.BaseDictElement] = value.elements
    if not all(isinstance(each, cst.DictElement) for each in found):
        raise NoCounterpartError("write the dict out, without **")
    return [(each.key, each.value) for each in found if isinstance(each, cst.DictElement)]


def _keywords(call: cst.Call, positions: Sequence[str]) -> Values:
    """Return the arguments of a call, by name."""
    found: Values = {}
    for place, arg in enumerate(call.args):
        if arg.star or (arg.keyword is None and place >= len(positions)):
            raise NoCounterpartError(f"give {code(call.func)} its arguments by name")
        found[positions[place] if arg.keyword is None else arg.keyword.value] = arg.value
    return found


def _text(value: cst.BaseExpression) -> str:
    return str(value.evaluated_value) if isinstance(value, cst.SimpleString) else code(value)


def _names_in(text: str) -> set[str]:
    """Return the names that a text of Python refers to, but for the parameter of our lambdas."""
    found: set[str] = set()

    class Names(cst.CSTVisitor):
        def visit_Name(self, node: cst.Name) -> None:
            found.add(node.value)

    cst.parse_expression(text).visit(Names())
    return found - {"_", "True", "False", "None"}
