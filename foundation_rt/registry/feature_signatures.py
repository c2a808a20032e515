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
from ..signatures.function_signature import FunctionSignature
from ..signatures.schema_deriver import DIALECT, Deriver
from ..signatures.type_schema import REQUIRED, NoneType, Schema, TypeSchema, UnsupportedType
from .completions import Choices
from .prompts import PromptArgument
from .resources import URI
from .tools import ExecutionMode

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
    execution: ExecutionMode
    choices: Mapping[str, Choices]


def derive_prompt(function: Callable[..., Any]) -> TypedFeature:
    """A prompt whose arguments are the parameters of `function` (PROMPT-03).

    Raises:
        RegistrationError: names the prompt, the parameter and what to change.
    """
    return _derive(FunctionSignature(function, "prompt"))


def derive_resource(function: Callable[..., Any], variables: tuple[str, ...]) -> TypedFeature:
    """A resource, or a template with `variables`, that `function` reads (MRES-10).

    Raises:
        RegistrationError: names the resource, the parameter and what to change.
    """
    signature = FunctionSignature(function, "resource")
    typed = _derive(signature)
    known = {argument.name for argument in typed.arguments}
    for name in variables:
        if name not in known:
            raise RegistrationError(
                f"resource {signature.name!r}: its template has a variable {name!r} and the "
                "function no parameter that takes it"
            )
    for name in sorted(known - {*variables, URI}):
        raise signature.refusal(
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
    signature = FunctionSignature(function, "completion")
    context_name: str | None = None
    names: list[str] = []
    for parameter in signature.parameters:
        if _is_context(signature, parameter):
            context_name = parameter.name
        elif parameter.kind is parameter.KEYWORD_ONLY or len(names) == 2:
            raise signature.refusal(parameter.name, "a completion takes value and arguments")
        else:
            names.append(parameter.name)
    if not names:
        raise RegistrationError(
            f"completion {signature.name!r}: it takes what was typed: "
            f"def {signature.name}(value: str)"
        )

    def handler(arguments: dict[str, Any], context: Any) -> Any:
        given = (arguments["value"], arguments["arguments"])[: len(names)]
        return function(*given, **({context_name: context} if context_name else {}))

    return TypedFeature(signature.name, None, (), handler, _execution(signature), {})


def _execution(signature: FunctionSignature) -> ExecutionMode:
    return ExecutionMode.ASYNC if signature.is_async else ExecutionMode.THREAD


def _is_context(signature: FunctionSignature, parameter: inspect.Parameter) -> bool:
    if parameter.annotation is parameter.empty:
        return False
    try:
        return signature.is_context(signature.hint(parameter))
    except UnsupportedType:
        return False


def _derive(signature: FunctionSignature) -> TypedFeature:
    names = [parameter.name for parameter in signature.parameters]
    description, described = parse_docstring(signature.docstring, names)
    parameters = _Parameters(signature)
    for parameter in signature.parameters:
        parameters.add(parameter, described.get(parameter.name, ""))
    return TypedFeature(
        signature.name,
        description or None,
        tuple(parameters.arguments),
        parameters.handler(),
        _execution(signature),
        parameters.choices,
    )


class _Parameters:
    """Collects the parameters of one function."""

    def __init__(self, signature: FunctionSignature) -> None:
        self.arguments: list[PromptArgument] = []
        self.choices: dict[str, Choices] = {}
        self._signature = signature
        self._deriver = Deriver(signature.names)
        self._bindings: list[Binding] = []
        self._properties: Schema = {}
        self._reads: dict[str, Read] = {}
        self._context_name: str | None = None

    def add(self, parameter: inspect.Parameter, description: str) -> None:
        """Takes in one parameter."""
        name = parameter.name
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise self._signature.refusal(name, "make it one that is passed by name")
        default = NO_DEFAULT if parameter.default is parameter.empty else parameter.default
        try:
            hint = self._signature.hint(parameter)
            if self._signature.is_context(hint):
                if self._context_name is not None:
                    raise UnsupportedType(
                        f"it is a second ToolContext, after {self._context_name!r}"
                    )
                self._context_name = name
                return
            derived = self._deriver.derive(
                hint,
                description=description,
                default=REQUIRED if default is NO_DEFAULT else default,
            )
        except UnsupportedType as error:
            raise self._signature.refusal(name, f"{error}; change it") from None
        self._bindings.append(Binding(name, default, derived.convert))
        self._properties[name] = derived.schema
        self.arguments.append(
            PromptArgument(name, derived.schema.get("description"), default is NO_DEFAULT)
        )
        if (read := _reader(derived)) is not None:
            self._reads[name] = read
        if choices := _choices(derived):
            self.choices[name] = Choices(choices)

    def handler(self) -> Handler:
        """The function that is called with the arguments as text, and the context."""
        bound = make_handler(
            self._signature.function, self._bindings, context_name=self._context_name
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
        """Return the check of the arguments; None where every one may be any text."""
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


def _reader(derived: TypeSchema) -> Read | None:
    """How text is read for a parameter; None where the text itself is the value."""
    if str not in derived.accepts:
        return _read_json
    if _takes_any_text(derived.schema):
        return None
    texts = frozenset(value for value in _enumerated(derived.schema) if type(value) is str)
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


def _choices(derived: TypeSchema) -> tuple[str, ...]:
    """All that a parameter can be, as text; nothing where that is more than a few values."""
    if derived.accepts - {NoneType} == {bool} and "enum" not in derived.schema:
        return ("true", "false")
    if "enum" not in derived.schema:
        return ()
    return tuple(
        value if type(value) is str else orjson.dumps(value).decode()
        for value in derived.schema["enum"]
        if value is not None
    )
