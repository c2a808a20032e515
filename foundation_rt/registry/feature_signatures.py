"""Prompts, resources and completions out of plain functions (PROMPT-03, MRES-10, COMP-05).

What comes in is text: arguments of prompts are strings on the wire, and so are the parts of a URI.
A parameter that is no `str` is read from the text as JSON would be (PROMPT-04). Its annotation says
what it may be, with the same walk over types that tools have; and where that is one of a few
values, they are known as completions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson
from attrs import frozen

from ..errors import ErrorCode, RegistrationError, ToolError
from ..jsonschema.validation import Validator, compile_schema
from ..signatures.binding import NO_DEFAULT, Binding, make_handler
from ..signatures.docstrings import parse_docstring
from ..signatures.function_signature import Subject
from ..signatures.schema_deriver import DIALECT, Deriver
from ..signatures.type_schema import REQUIRED, Form, NoneType, Schema, Underivable
from .completions import Choices
from .prompts import PromptArgument
from .resources import URI
from .tools import Execution

if TYPE_CHECKING:
    from .tools import Handler

Read = Callable[[str], Any]
"""Makes a JSON value out of text; text that is none of the type is left to the schema to refuse."""


@frozen
class TypedFeature:
    """What a function says about itself as a prompt or as a resource.

    Attributes:
        name: the function's name.
        description: its docstring without sections; None when there is none.
        arguments: its parameters, but for the context.
        handler: takes the arguments as text, and the context; raises `ToolError`
            (INVALID_ARGUMENT) before the function is called when one of them cannot be read.
        execution: where it is to run.
        choices: by argument, all that it can be, where that is a few values.
    """

    name: str
    description: str | None
    arguments: tuple[PromptArgument, ...]
    handler: Handler
    execution: Execution
    choices: Mapping[str, Choices]


def derive_prompt(function: Callable[..., Any]) -> TypedFeature:
    """A prompt whose arguments are the parameters of `function` (PROMPT-03).

    Raises:
        RegistrationError: names the prompt, the parameter and what to change.
    """
    return _derive(Subject(function, "prompt"))


def derive_resource(function: Callable[..., Any], variables: tuple[str, ...]) -> TypedFeature:
    """A resource, or a template with `variables`, that `function` reads (MRES-10).

    Raises:
        RegistrationError: names the resource, the parameter and what to change.
    """
    subject = Subject(function, "resource")
    typed = _derive(subject)
    known = {argument.name for argument in typed.arguments}
    for name in variables:
        if name not in known:
            raise RegistrationError(
                f"resource {subject.name!r}: its template has a variable {name!r} and the function "
                "no parameter that takes it"
            )
    for name in sorted(known - {*variables, URI}):
        raise subject.refusal(
            name,
            "there is no such variable in the URI template: a resource takes the variables of its "
            "template, `uri` and a ToolContext",
        )
    return typed


def derive_completion(function: Callable[..., Any]) -> TypedFeature:
    """A completer: its parameters are the text, and the arguments known, if it wants them.

    Raises:
        RegistrationError: names the function and what to change.
    """
    subject = Subject(function, "completion")
    context_name: str | None = None
    names: list[str] = []
    for parameter in subject.parameters:
        if _is_context(subject, parameter):
            context_name = parameter.name
        elif parameter.kind is parameter.KEYWORD_ONLY or len(names) == 2:
            raise subject.refusal(parameter.name, "a completion takes value and arguments")
        else:
            names.append(parameter.name)
    if not names:
        raise RegistrationError(
            f"completion {subject.name!r}: it takes what was typed: def {subject.name}(value: str)"
        )

    def handler(arguments: dict[str, Any], context: Any) -> Any:
        given = (arguments["value"], arguments["arguments"])[: len(names)]
        return function(*given, **({context_name: context} if context_name else {}))

    return TypedFeature(subject.name, None, (), handler, _execution(subject), {})


def _execution(subject: Subject) -> Execution:
    return Execution.ASYNC if subject.is_async else Execution.THREAD


def _is_context(subject: Subject, parameter: inspect.Parameter) -> bool:
    if parameter.annotation is parameter.empty:
        return False
    try:
        return subject.is_context(subject.hint(parameter))
    except Underivable:
        return False


def _derive(subject: Subject) -> TypedFeature:
    names = [parameter.name for parameter in subject.parameters]
    description, described = parse_docstring(subject.docstring, names)
    parameters = _Parameters(subject)
    for parameter in subject.parameters:
        parameters.add(parameter, described.get(parameter.name, ""))
    return TypedFeature(
        subject.name,
        description or None,
        tuple(parameters.arguments),
        parameters.handler(),
        _execution(subject),
        parameters.choices,
    )


class _Parameters:
    """Collects the parameters of one function."""

    def __init__(self, subject: Subject) -> None:
        self.arguments: list[PromptArgument] = []
        self.choices: dict[str, Choices] = {}
        self._subject = subject
        self._deriver = Deriver(subject.names)
        self._bindings: list[Binding] = []
        self._properties: Schema = {}
        self._reads: dict[str, Read] = {}
        self._context_name: str | None = None

    def add(self, parameter: inspect.Parameter, description: str) -> None:
        """Takes in one parameter."""
        name = parameter.name
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise self._subject.refusal(name, "make it one that is passed by name")
        default = NO_DEFAULT if parameter.default is parameter.empty else parameter.default
        try:
            hint = self._subject.hint(parameter)
            if self._subject.is_context(hint):
                if self._context_name is not None:
                    raise Underivable(f"it is a second ToolContext, after {self._context_name!r}")
                self._context_name = name
                return
            form = self._deriver.derive(
                hint,
                description=description,
                default=REQUIRED if default is NO_DEFAULT else default,
            )
        except Underivable as error:
            raise self._subject.refusal(name, f"{error}; change it") from None
        self._bindings.append(Binding(name, default, form.structure))
        self._properties[name] = form.schema
        self.arguments.append(
            PromptArgument(name, form.schema.get("description"), default is NO_DEFAULT)
        )
        if (read := _reader(form)) is not None:
            self._reads[name] = read
        if choices := _choices(form):
            self.choices[name] = Choices(choices)

    def handler(self) -> Handler:
        """The function that is called with the arguments as text, and the context."""
        bound = make_handler(
            self._subject.function, self._bindings, context_name=self._context_name
        )
        known = {binding.name: binding.default is not NO_DEFAULT for binding in self._bindings}
        reads, validate = self._reads, self._validator()

        def handler(arguments: dict[str, str], context: Any) -> Any:
            values: dict[str, Any] = {}
            for name, text in arguments.items():
                read = reads.get(name)
                # What a form leaves empty was not filled in (PROMPT-04).
                if name in known and (text or read is None or not known[name]):
                    values[name] = text if read is None else read(text)
            _check(validate, values)
            return bound(values, context)

        return handler

    def _validator(self) -> Validator | None:
        """Checks the arguments; None where every one may be any text."""
        if all(
            {key: value for key, value in schema.items() if key not in ("description", "default")}
            == {"type": "string"}
            for schema in self._properties.values()
        ):
            return None
        schema: Schema = {"$schema": DIALECT} if self._deriver.needs_dialect else {}
        schema |= {"type": "object", "properties": self._properties}
        if definitions := self._deriver.definitions():
            schema["definitions"] = definitions
        return compile_schema(schema).validate


def _check(validate: Validator | None, values: dict[str, Any]) -> None:
    issues = () if validate is None else validate(values)
    if issues:
        first = issues[0]
        raise ToolError(
            ErrorCode.INVALID_ARGUMENT,
            f"Invalid arguments: {first.path} {first.message}.",
            {
                "reason": "schema_validation",
                "errors": [{"path": each.path, "message": each.message} for each in issues],
            },
        )


# -- from text to JSON values --------------------------------------------------------------------


def _reader(form: Form) -> Read | None:
    """How text is read for a parameter; None where the text itself is the value."""
    if str not in form.accepts:
        return _read_json
    if _takes_any_text(form.schema):
        return None
    texts = frozenset(value for value in _enumerated(form.schema) if type(value) is str)
    return lambda text: text if text in texts else _read_json(text)


def _read_json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _takes_any_text(schema: Schema) -> bool:
    """Return whether strings are not only taken as members of an enumeration."""
    if "enum" in schema:
        return False
    if "anyOf" in schema:
        return any(map(_takes_any_text, schema["anyOf"]))
    kinds = schema.get("type", "string")
    return kinds == "string" or "string" in kinds


def _enumerated(schema: Schema) -> list[Any]:
    """The values that a schema enumerates."""
    inside = [value for each in schema.get("anyOf", ()) for value in _enumerated(each)]
    return [*schema.get("enum", ()), *inside]


def _choices(form: Form) -> tuple[str, ...]:
    """All that a parameter can be, as text; nothing where that is more than a few values."""
    if form.accepts - {NoneType} == {bool} and "enum" not in form.schema:
        return ("true", "false")
    if "enum" not in form.schema:
        return ()
    return tuple(
        value if type(value) is str else orjson.dumps(value).decode()
        for value in form.schema["enum"]
        if value is not None
    )
