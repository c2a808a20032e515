"""Shapes for tools that join from elsewhere: other names, fewer arguments (spec/transforms.md).

A transform is read when it is made, and applied to a tool when that joins: then the schema that
clients see is made, and what a call does with its arguments. A call renames and adds, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import iscoroutinefunction
from typing import Any, Final, Protocol

from attrs import field, frozen

from ..errors import ErrorCode, RegistrationError, ToolError
from .close_names import did_you_mean
from .jsonschema.compilation import Validator, compile_schema
from .jsonschema.issues import refusal

Source = Callable[[Any], Any]
"""Returns the value of a hidden argument for a call."""

Wrapper = Callable[[Callable[[dict[str, Any]], Any], dict[str, Any], Any], Any]
"""Called with the tool, its arguments and the context, instead of the tool."""

_TEXTS: Final = ("title", "description")
_OF_TOOL: Final = ("as", *_TEXTS, "arguments", "call")
_OF_ARGUMENT: Final = ("as", *_TEXTS, "hide", "from")

_BESIDE_ARGUMENTS: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "title", "description"}
    | {"$schema", "$id", "id", "$comment", "$defs", "definitions"}
)
"""The keywords at the root of a schema that name no argument, or are rewritten."""

_DEFINITIONS: Final = ("#/$defs/", "#/definitions/")
"""The beginnings of references that do not lead to the arguments."""

_HEADER: Final = "header:"


@frozen
class ArgumentShape:
    """One argument, and how it is changed.

    Attributes:
        outside: its name for clients; None: it is hidden.
        texts: its title and description, as far as they are replaced.
        hidden: what a hidden one is made of, as it was written.
        source: returns the value of a hidden one.
        is_constant: whether that is the same for every call.
    """

    outside: str | None
    texts: Mapping[str, str]
    hidden: Any = None
    source: Source | None = field(default=None, eq=False)
    is_constant: bool = False


class Caller(Protocol):
    """The part of the context of a call that a hidden argument may be read from."""

    @property
    def principal(self) -> Any:
        """The authenticated principal; None where there is none."""

    @property
    def session_key(self) -> str | None:
        """The key of the client's session."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request, as far as handlers get them."""


@frozen
class ToolShape:
    """One tool, and how it is changed.

    Attributes:
        name: of the tool itself.
        outside: its name for clients.
        texts: its title and description, as far as they are replaced.
        arguments: those that are changed, by their names at the tool.
        call: is called instead.
    """

    name: str
    outside: str
    texts: Mapping[str, Any]
    arguments: Mapping[str, ArgumentShape]
    call: Wrapper | None = None

    def schema(self, schema: Mapping[str, Any], *, linear: bool = False) -> Mapping[str, Any]:
        """Return the schema of the arguments that clients see.

        Args:
            schema: of those of the tool itself.
            linear: see `compile_schema`.

        Raises:
            RegistrationError: they cannot be shaped so.
        """
        if not self.arguments:
            return schema
        present: Mapping[str, Any] = schema.get("properties") or {}
        self._check(schema, present, linear)
        properties: dict[str, Any] = {}
        for name, each in present.items():
            outside = self.outside_of(name)
            if outside in properties:
                raise self.refusal(f"two arguments would be {outside!r}")
            if outside is not None:
                texts = self.arguments[name].texts if name in self.arguments else {}
                properties[outside] = {**each, **texts} if texts else each
        required = [self.outside_of(each) for each in schema.get("required", ())]
        rest = [each for each in required if each is not None]
        shown = {key: each for key, each in schema.items() if key != "required"}
        return {**shown, "properties": properties, **({"required": rest} if rest else {})}

    def outside_of(self, argument: str) -> str | None:
        """Return the name of an argument for clients; None: it is hidden."""
        shape = self.arguments.get(argument)
        return argument if shape is None else shape.outside

    def _check(self, schema: Mapping[str, Any], present: Mapping[str, Any], linear: bool) -> None:
        for name, each in self.arguments.items():
            if name not in present:
                raise self.refusal(f"there is no argument {name!r}{did_you_mean(name, present)}")
            if each.texts and not isinstance(present[name], Mapping):
                raise self.refusal(f"the schema of {name!r} is no object, which texts need")
        if others := schema.keys() - _BESIDE_ARGUMENTS:
            listed = ", ".join(sorted(others))
            raise self.refusal(f"its schema may name arguments in {listed}: write a tool around it")
        if not all(each.startswith(_DEFINITIONS) for each in _references(schema)):
            raise self.refusal("its schema refers to its own arguments: write a tool around it")
        constants = {
            name: each.source(None)
            for name, each in self.arguments.items()
            if each.is_constant and each.source is not None
        }
        if constants:
            for issue in self._validator({**schema, "required": []}, linear)(constants):
                raise self.refusal(f"the constant at {issue.path} {issue.message}")

    def _validator(self, schema: Mapping[str, Any], linear: bool) -> Validator:
        try:
            return compile_schema(schema, linear=linear).validate
        except RegistrationError as error:
            raise self.refusal(str(error)) from error

    def arguments_of(
        self,
        schema: Mapping[str, Any],
        *,
        shown: Mapping[str, Any] | None = None,
        linear: bool = False,
    ) -> ShapedArguments:
        """Return what a call does with its arguments.

        Args:
            schema: of those of the tool itself.
            shown: the one that clients see, if nobody else checks what they send.
            linear: see `compile_schema`.
        """
        names = {self.outside_of(name) for name in schema.get("properties") or {}}
        arguments = self.arguments.items()
        return ShapedArguments(
            {each.outside: name for name, each in arguments if each.outside},
            {name: each.source for name, each in arguments if each.source is not None},
            frozenset(self.arguments.keys() - names),
            None if shown is None else self._validator(shown, linear),
            self._validator(schema, linear)
            if any(each.source is not None and not each.is_constant for _, each in arguments)
            else None,
        )

    def refusal(self, problem: str) -> RegistrationError:
        """Return the error of a tool that cannot be shaped so."""
        return RegistrationError(f"transform of tool {self.name!r}: {problem}")


@frozen
class ShapedArguments:
    """The way of a call from the arguments of a client to those of the tool.

    Attributes:
        renamed: the names of the tool, by those for clients.
        sources: return the values of hidden ones, by their names.
        gone: names of the tool that mean nothing for clients.
        check: checks what clients send; None where somebody else does.
        validate: checks what the values of the caller make of it; None where all are constants.
    """

    renamed: Mapping[str, str]
    sources: Mapping[str, Source]
    gone: frozenset[str]
    check: Validator | None
    validate: Validator | None

    def inside(self, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Return the arguments of the tool.

        Raises:
            ToolError: INVALID_ARGUMENT: one is not valid, is hidden, or has another name;
                UNAUTHORIZED: the caller has not what a hidden one is read from.
        """
        if not self.gone.isdisjoint(given):
            name = min(self.gone & given.keys())
            raise ToolError(ErrorCode.INVALID_ARGUMENT, f"There is no argument {name!r}.")
        if self.check is not None and (issues := self.check(given)):
            raise refusal(issues)
        inner = {self.renamed.get(name, name): value for name, value in given.items()}
        for name, source in self.sources.items():
            inner[name] = source(caller)
        if self.validate is not None and self.validate(inner):
            raise ToolError(ErrorCode.UNAUTHORIZED, "The tool does not take this caller.")
        return inner


def _tools(written: Any) -> dict[str, ToolShape]:
    return {name: _tool(name, each) for name, each in _members("a transform", written)}


@frozen
class Transform:
    """Other names, texts and arguments for the tools of another server (spec/transforms.md).

    ::

        Transform({"find": {"as": "search", "arguments": {"query": {"as": "q"}}}})

    Args:
        tools: by the name of a tool there. `as`, `title` and `description` replace; `arguments` are
            by their names there, with `as`, `title`, `description`; or with `hide` (a constant) or
            `from` (`principal`, `session`, `header:NAME`, or a function of the context), which
            hide one; `call` is a function `(call, arguments, ctx)` that is called instead.

    Raises:
        RegistrationError: it is not made so; the message says what to write.
    """

    tools: Mapping[str, ToolShape] = field(converter=_tools)

    @property
    def headers(self) -> frozenset[str]:
        """The headers of the caller that arguments are read from, in lower case."""
        hidden = [each.hidden for tool in self.tools.values() for each in tool.arguments.values()]
        return frozenset(
            each.removeprefix(_HEADER).lower()
            for each in hidden
            if isinstance(each, str) and each.startswith(_HEADER)
        )

    def check_fits(self, names: Iterable[str], versions: Iterable[str] = ()) -> None:
        """Raise `RegistrationError` unless each tool that is shaped is there, and none two times.

        Args:
            names: of all tools, before they are shaped.
            versions: the names with versions: ``find@1``.
        """
        known = [*dict.fromkeys(names)]
        every = [*known, *versions]
        for name in self.tools:
            if name not in every:
                raise RegistrationError(
                    f"transform: there is no tool {name!r}{did_you_mean(name, every)}"
                )
        taken: dict[str, str] = {}
        for name in known:
            outside = self.tools[name].outside if name in self.tools else name
            if outside in taken:
                both = f"{taken[outside]!r} and {name!r}"
                raise RegistrationError(f"transform: {both} would both be {outside!r}")
            taken[outside] = name


# -- reading --------------------------------------------------------------------------------------


def _tool(name: str, written: Any) -> ToolShape:
    where = f"transform of tool {name!r}"
    members = dict(_members(where, written, _OF_TOOL))
    call = members.get("call")
    if call is not None and not callable(call):
        raise RegistrationError(f"{where}: `call` is a function (call, arguments, ctx)")
    arguments = {
        argument: _argument(argument, f"{where}, argument {argument!r}", each)
        for argument, each in _members(f"{where}, `arguments`", members.get("arguments", {}))
    }
    outside = _text(where, members, "as") or name
    return ToolShape(name, outside, _texts(where, members), arguments, call)


def _argument(name: str, where: str, written: Any) -> ArgumentShape:
    members = dict(_members(where, written, _OF_ARGUMENT))
    texts = _texts(where, members)
    outside = _text(where, members, "as") or name
    hidden = [each for each in ("hide", "from") if each in members]
    if not hidden:
        return ArgumentShape(outside, texts)
    if len(hidden) > 1 or texts or "as" in members:
        raise RegistrationError(f"{where}: `{hidden[0]}` hides it, and stands alone")
    value = members[hidden[0]]
    if hidden == ["hide"]:
        return ArgumentShape(None, texts, value, lambda _: value, is_constant=True)
    if iscoroutinefunction(value):
        raise RegistrationError(f"{where}: `from` is a function without async")
    return ArgumentShape(None, texts, value, value if callable(value) else _source(where, value))


def _source(where: str, written: Any) -> Source:
    """Return what reads a value from the context of a call."""
    if written == "principal":
        return lambda context: _required(context.principal, "a login").subject
    if written == "session":
        return lambda context: _required(context.session_key, "a session")
    if isinstance(written, str) and written.startswith(_HEADER) and written != _HEADER:
        name = written.removeprefix(_HEADER).lower()
        return lambda context: _required(context.headers.get(name), f"the header {name}")
    raise RegistrationError(
        f"{where}: `from` is principal, session, header:NAME, or a function of the context"
    )


def _required(value: Any, what: str) -> Any:
    if value is None:
        raise ToolError(ErrorCode.UNAUTHORIZED, f"The tool needs {what}.")
    return value


def _members(where: str, written: Any, known: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not isinstance(written, Mapping):
        raise RegistrationError(f"{where} is a mapping, by name")
    for name, value in written.items():
        if not isinstance(name, str) or (known and name not in known):
            raise RegistrationError(f"{where}: there is no member {name!r}: {', '.join(known)}")
        yield name, value


def _texts(where: str, members: Mapping[str, Any]) -> dict[str, str]:
    found = {each: _text(where, members, each) for each in _TEXTS}
    return {name: text for name, text in found.items() if text is not None}


def _text(where: str, members: Mapping[str, Any], name: str) -> str | None:
    value = members.get(name)
    if name in members and (not isinstance(value, str) or not value):
        raise RegistrationError(f"{where}: `{name}` is a text")
    return value


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name in ("$ref", "$dynamicRef") and isinstance(each, str):
                yield each
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)
