"""Prompts, resources and completions derived from plain functions (PROMPT-03, MRES-10, COMP-05).

Their arguments come as text: arguments of prompts are strings on the wire, and so are the parts of
a URI. A parameter that is no `str` is read from the text as JSON would be (PROMPT-04). Its
annotation has the same meaning as that of a tool's parameter; and if it allows only a few values,
these are its completions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from attrs import frozen

from ...base.exact_json import dumps, loads
from ...base.jsonschema.compilation import Validator, compile_schema
from ...base.jsonschema.issues import refusal
from ...errors import RegistrationError, UsageError
from ...kernel.registry.tools import ExecutionMode
from ..completions.registry import Choices, CompletionRequest
from ..prompts.registry import PromptArgument, PromptDefinition
from ..resources.registry import URI, ResourceDefinition, ResourceTemplateDefinition
from ..resources.uri_template import InvalidUri, UriTemplate, parse_template
from ..signatures.binding import NO_DEFAULT
from ..signatures.docstrings import parse_docstring
from ..signatures.function_signature import FunctionSignature
from ..signatures.parameters import ParameterCollector, dependency_of
from ..signatures.type_schema import NoneType, Schema, TypeSchema, UnsupportedType

if TYPE_CHECKING:
    from typing import Unpack

    from ...kernel.registry.tools import Handler
    from ...protocol.content import Annotations, Icon
    from ..completions.registry import CompletionRegistry
    from ..options import (
        CompletionOptions,
        HandlerOptions,
        ResourceHandlerOptions,
        ResourceOptions,
    )
    from ..prompts.registry import PromptRegistry, RegisteredPrompt
    from ..resources.registry import ResourceRegistry

_NOTES = ("description", "default")

_Function = TypeVar("_Function", bound=Callable[..., Any])

Reader = Callable[[str], Any]
"""Makes a JSON value of text; the schema refuses text that has no value of the type."""


@frozen
class TypedFeature:
    """A prompt, a resource or a completer as its function describes it.

    Attributes:
        name: the function's name.
        description: its docstring without sections; None if it has none.
        arguments: its parameters, but for the context.
        handler: takes the arguments as text, and the context; raises `ToolError`
            (INVALID_ARGUMENT) before the function is called when one of them cannot be read.
        execution: where it runs.
        choices: by argument, all of its values, if they are few.
    """

    name: str
    description: str | None
    arguments: tuple[PromptArgument, ...]
    handler: Handler
    execution: ExecutionMode
    choices: Mapping[str, Choices]


def derive_prompt(
    function: Callable[..., Any], context_type: type, *, inline: bool = False
) -> TypedFeature:
    """Derive a prompt whose arguments are the parameters of `function` (PROMPT-03).

    Raises:
        RegistrationError: names the prompt, the parameter and what to change.
    """
    return _derive(FunctionSignature(function, "prompt", context_type), inline)


def derive_resource(
    function: Callable[..., Any],
    template: UriTemplate | None,
    context_type: type,
    *,
    inline: bool = False,
) -> TypedFeature:
    """Derive a resource, or all resources of a template, that `function` reads (MRES-10).

    Raises:
        RegistrationError: names the resource, the parameter and what to change.
    """
    signature = FunctionSignature(function, "resource", context_type)
    typed = _derive(signature, inline)
    variables = () if template is None else template.variables
    known = {argument.name: argument for argument in typed.arguments}
    for name in variables:
        if name not in known:
            raise RegistrationError(
                f"resource {signature.name!r}: its template has a variable {name!r} and the "
                "function no parameter that takes it"
            )
    for name in () if template is None else template.query:
        if known[name].required:
            raise signature.refusal(
                name, "a URI may leave a parameter of its query out: give it a default"
            )
    for name in sorted(known.keys() - {*variables, URI}):
        raise signature.refusal(
            name,
            "there is no such variable in the URI template: a resource takes the variables of its "
            "template, `uri` and a ToolContext",
        )
    return typed


def derive_completion(
    function: Callable[..., Any], context_type: type, *, inline: bool = False
) -> TypedFeature:
    """Derive a completer: it takes the text so far and, with two parameters, the other arguments.

    Raises:
        RegistrationError: names the function and what to change.
    """
    return _derive_completer(
        FunctionSignature(function, "completion", context_type),
        "value: str",
        ("value", "arguments"),
        lambda arguments: (arguments["value"], arguments["arguments"]),
        inline,
    )


def derive_general_completion(
    function: Callable[..., Any], context_type: type, *, inline: bool = False
) -> TypedFeature:
    """Derive a completer of any argument: it takes a `CompletionRequest` (COMP-08).

    Raises:
        RegistrationError: names the function and what to change.
    """
    return _derive_completer(
        FunctionSignature(function, "completion", context_type),
        "request: CompletionRequest",
        ("request",),
        lambda arguments: (CompletionRequest(**arguments),),
        inline,
    )


def _derive_completer(
    signature: FunctionSignature,
    first: str,
    taken: Sequence[str],
    read: Callable[[dict[str, Any]], tuple[Any, ...]],
    inline: bool,
) -> TypedFeature:
    """Derive a completer.

    Args:
        signature: of its function.
        first: the parameter that it needs, for errors.
        taken: the names of the parameters that it may have, besides context and dependencies.
        read: returns their values for the arguments of the call.
        inline: whether it runs in place.
    """
    context_name: str | None = None
    names: list[str] = []
    dependencies: dict[str, Callable[..., Any]] = {}
    for parameter in signature.parameters:
        hint = _hint(signature, parameter)
        depended = dependency_of(hint, parameter.default)
        if depended is not None:
            dependencies[parameter.name] = depended
        elif signature.is_context(hint):
            context_name = parameter.name
        elif parameter.kind is parameter.KEYWORD_ONLY or len(names) == len(taken):
            raise signature.refusal(parameter.name, f"a completion takes {' and '.join(taken)}")
        else:
            names.append(parameter.name)
    if not names:
        raise RegistrationError(
            f"completion {signature.name!r}: it needs a parameter: def {signature.name}({first})"
        )

    plan = None
    if dependencies:
        from ..signatures.dependencies import make_plan

        plan = make_plan(signature, dependencies, inline=inline)

    def handler(arguments: dict[str, Any], context: Any) -> Any:
        given = read(arguments)[: len(names)]
        named = {context_name: context} if context_name else {}
        if plan is not None:
            return plan(context, {**dict(zip(names, given, strict=True)), **named})
        return signature.function(*given, **named)

    return TypedFeature(signature.name, None, (), handler, _execution(signature), {})


def _execution(signature: FunctionSignature) -> ExecutionMode:
    return ExecutionMode.ASYNC if signature.is_async else ExecutionMode.THREAD


def _hint(signature: FunctionSignature, parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter; None if it has none."""
    try:
        return signature.hint(parameter)
    except UnsupportedType:
        return None


def _derive(signature: FunctionSignature, inline: bool) -> TypedFeature:
    names = [parameter.name for parameter in signature.parameters]
    description, described = parse_docstring(signature.docstring, names)
    collector = ParameterCollector(signature)
    for parameter in signature.parameters:
        collector.add(parameter, described.get(parameter.name, ""))
    types = collector.types
    required = collector.required()
    handler = _text_handler(collector, inline)  # its dependencies may make it async
    return TypedFeature(
        signature.name,
        description or None,
        tuple(
            PromptArgument(name, derived.schema.get("description"), name in required)
            for name, derived in types.items()
        ),
        handler,
        _execution(signature),
        {name: Choices(values) for name in types if (values := _choices(types[name]))},
    )


def _text_handler(collector: ParameterCollector, inline: bool) -> Handler:
    """Return the function that is called with the arguments as text, and the context."""
    bound = collector.handler(inline=inline)
    # A field that a user leaves empty has no value (PROMPT-04).
    may_be_empty = {each.name: each.default is NO_DEFAULT for each in collector.bindings}
    for name, derived in collector.types.items():
        may_be_empty[name] |= _takes_empty_text(derived.schema)
    readers = {name: _reader(derived) for name, derived in collector.types.items()}
    validate = _validator(collector)

    @wraps(bound)
    def handler(arguments: dict[str, str], context: Any) -> Any:
        values: dict[str, Any] = {}
        for name, text in arguments.items():
            if name in readers:
                read = readers[name]
                if text or may_be_empty[name]:
                    values[name] = text if read is None else read(text)
        issues = () if validate is None else validate(values)
        if issues:
            raise refusal(issues)
        return bound(values, context)

    return handler


def _validator(collector: ParameterCollector) -> Validator | None:
    """Return the check of the arguments; None if every one may be any text."""
    if all(
        {key: value for key, value in derived.schema.items() if key not in _NOTES}
        == {"type": "string"}
        for derived in collector.types.values()
    ):
        return None
    return compile_schema(collector.object_schema()).validate


# -- from text to JSON values --------------------------------------------------------------------


def _reader(derived: TypeSchema) -> Reader | None:
    """Return the reader of a parameter; None if the text itself is the value."""
    if str not in derived.accepts:
        return _read_json
    if _takes_any_text(derived.schema):
        return None
    texts = frozenset(value for value in _enumerated(derived.schema) if type(value) is str)
    return lambda text: text if text in texts else _read_json(text)


def _read_json(text: str) -> Any:
    try:
        return loads(text)
    except orjson.JSONDecodeError:
        return text


def _takes_any_text(schema: Schema) -> bool:
    """Return whether the schema accepts more strings than those it enumerates."""
    if "enum" in schema:
        return False
    if "anyOf" in schema:
        return any(map(_takes_any_text, schema["anyOf"]))
    return bool(schema.get("type", "string") == "string")


def _takes_empty_text(schema: Schema) -> bool:
    """Return whether an empty text may fit the schema."""
    if "anyOf" in schema:
        return any(map(_takes_empty_text, schema["anyOf"]))
    if "enum" in schema:
        return "" in schema["enum"]
    is_free = not schema.keys() & {"format", "pattern", "minLength"}
    return is_free and schema.get("type", "string") == "string"


def _enumerated(schema: Schema) -> list[Any]:
    """Return the values that a schema enumerates."""
    inside = [value for each in schema.get("anyOf", ()) for value in _enumerated(each)]
    return [*schema.get("enum", ()), *inside]


def _choices(derived: TypeSchema) -> tuple[str, ...]:
    """Return all values of a parameter as text; none if they are not few."""
    if derived.values is None:
        return ("true", "false") if derived.accepts - {NoneType} == {bool} else ()
    return tuple(
        value if type(value) is str else dumps(value).decode()
        for value in derived.values
        if value is not None
    )


def resource_of(
    registry: ResourceRegistry, uri: object, context_type: type, options: ResourceOptions
) -> Callable[[_Function], _Function]:
    """Return a decorator that adds a resource; see `Server.resource`.

    Raises:
        RegistrationError: `uri` is the function, of a decorator without brackets; see
            `add_resource`.
    """
    if not isinstance(uri, str):
        raise RegistrationError('a resource has a URI: @server.resource("task://all")')

    def register(function: _Function) -> _Function:
        add_resource(registry, uri, function, context_type, **options)
        return function

    return register


def add_resource(
    registry: ResourceRegistry,
    uri: str,
    function: Callable[..., Any],
    context_type: type,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: Annotations | None = None,
    icons: Sequence[Icon] = (),
    meta: Mapping[str, Any] | None = None,
    **options: Unpack[ResourceHandlerOptions],
) -> None:
    """Add a resource, or a template if `uri` has variables, that `function` reads (MRES-10).

    The function is called with the variables, and with the URI if it has a parameter `uri`. A
    parameter of `context_type` is given the context of the call. The other arguments are
    `ResourceOptions`.

    Raises:
        RegistrationError: names the parameter or the option, and what to change.
    """
    template: UriTemplate | None = None
    if "{" in uri:
        if size is not None:
            raise RegistrationError(f"resource {uri!r}: a template has no size")
        try:
            template = parse_template(uri)
        except InvalidUri as error:
            raise RegistrationError(f"resource {uri!r} is refused: it {error}") from None
    typed = derive_resource(function, template, context_type, inline=options.get("inline", False))
    members: dict[str, Any] = {
        "name": typed.name if name is None else name,
        "title": title,
        "description": typed.description if description is None else description,
        "mime_type": mime_type,
        "annotations": annotations,
        "icons": icons,
        "meta": meta,
    }
    if template is not None:
        definition = ResourceTemplateDefinition(uri_template=uri, **members)
        names = template.variables
        completers = {name: typed.choices[name] for name in names if name in typed.choices}
        registry.add_template(definition, typed.handler, typed.execution, completers, **options)
    else:
        resource = ResourceDefinition(uri=uri, size=size, **members)
        registry.add(resource, typed.handler, typed.execution, **options)


def add_prompt(
    registry: PromptRegistry,
    function: Callable[..., Any],
    context_type: type,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Icon] = (),
    meta: Mapping[str, Any] | None = None,
    **options: Unpack[HandlerOptions],
) -> RegisteredPrompt:
    """Add a prompt whose arguments are the parameters of `function` (PROMPT-03).

    A parameter of `context_type` is given the context of the call. The other arguments are
    `PromptOptions`.

    Raises:
        RegistrationError: names the parameter or the option, and what to change.
    """
    typed = derive_prompt(function, context_type, inline=options.get("inline", False))
    definition = PromptDefinition(
        typed.name if name is None else name,
        typed.description if description is None else description,
        typed.arguments,
        title,
        icons,
        meta,
    )
    return registry.add(definition, typed.handler, typed.execution, typed.choices, **options)


def completion_of(
    registry: CompletionRegistry,
    subject: str | Callable[..., Any] | None,
    argument: str | None,
    context_type: type,
    options: CompletionOptions,
) -> Any:
    """Return a decorator that adds a completer; add one that is given itself as `subject`.

    With a subject it completes one argument (COMP-05): it is called with the text so far, and with
    the other arguments that are known if it has a second parameter. Without, it completes every
    argument that has no completer of its own (COMP-08): it is called with a `CompletionRequest`,
    and returns None where it knows no values.

    Args:
        registry: of the server.
        subject, argument, options: see `Server.completion`.
        context_type: a parameter of this type is given the context of the call.

    Raises:
        RegistrationError: there is no such prompt, template or argument; there is a general
            completer already; or the function has other parameters.
        UsageError: there is one of subject and argument, and not the other.
    """

    def register(function: _Function) -> _Function:
        inline = options.get("inline", False)
        if isinstance(subject, str) and isinstance(argument, str):
            typed = derive_completion(function, context_type, inline=inline)
            registry.add(subject, argument, typed.handler, typed.execution, **options)
        else:
            typed = derive_general_completion(function, context_type, inline=inline)
            registry.add_general(typed.name, typed.handler, typed.execution, **options)
        return function

    if callable(subject) and argument is None:
        return register(subject)
    if (subject is None) != (argument is None):
        raise UsageError("completion: name the prompt or template, and its argument, or neither")
    return register
