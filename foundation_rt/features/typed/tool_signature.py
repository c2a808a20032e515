"""A tool derived from a plain function: its name, description, input schema and handler.

The signature has the names of the arguments, the annotations their types, the docstring their
descriptions (spec/typed-tools.md). One walk over each annotation yields its schema and the
function that makes the argument from the JSON value (`signatures.schema_deriver`). All of it
happens when the tool is registered; a call runs one generated function (`signatures.binding`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import RegistrationError
from ...kernel.registry.tool_definition import ToolDefinition
from ...kernel.registry.tools import ExecutionMode, execution_of
from ..signatures.binding import Handler, make_check
from ..signatures.function_signature import FunctionSignature
from ..signatures.parameters import ParameterCollector
from ..signatures.type_schema import UnsupportedType, plain_type
from ..tool_settings import tool_settings

if TYPE_CHECKING:
    from typing import Unpack

    from ...kernel.registry.tools import RegisteredTool, ToolRegistry
    from ...protocol.content import Icon
    from ...protocol.tool_annotations import ToolAnnotations
    from ..options import ToolHandlerOptions
    from ..signatures.writers import Writer

_ADVICE = ", or give the schema by hand: @server.tool(input_schema={...})"
_BY_NAME = (
    "make it one that is passed by name, or give schema and handler by hand: "
    "server.register(ToolDefinition(name, description, input_schema), handler)"
)


_WITHOUT_STRUCTURE = (str, None, type(None), Any, object)
"""Types of results that have no output schema by default; a look spares an import (TYPED-49)."""


class TypedTool(NamedTuple):
    """A tool as its function describes it (TYPED-01).

    Attributes:
        name: the function's name.
        description: its docstring without the sections about parameters, results and errors.
        input_schema: JSON Schema of an object with one property for each argument.
        output_schema: JSON Schema of the function's result; None without one.
        handler: takes the arguments, as accepted by `input_schema`, and the context of the call;
            calls the function and returns its result, a coroutine if it is async. Raises
            `ToolError` (INVALID_ARGUMENT) before the function is called when an argument cannot
            become a value of its type.
        execution: where it runs by default.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    handler: Handler
    execution: ExecutionMode


def derive_tool(
    function: Callable[..., Any],
    context_type: type,
    *,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | bool | None = None,
    inline: bool = False,
) -> TypedTool:
    """Derive a tool from the signature and the docstring of `function`.

    Args:
        function: a function, a bound method, a ``functools.partial`` of one, or an object whose
            class defines ``__call__``.
        context_type: a parameter of this type is given the context of the call.
        input_schema: used as it is, instead of a derived one (TYPED-22).
        output_schema: used as it is; False for none; True derives it from the return annotation
            (TYPED-26), and so does None where the annotation says a structure (TYPED-49).
        inline: the function is called in place (CALL-12).

    Raises:
        RegistrationError: no schema can be derived, or the given one does not fit the signature;
            the message names the tool, the parameter and the way out.
    """
    signature = FunctionSignature(function, "tool", context_type)
    described: dict[str, str] = {}
    description = ""
    if signature.docstring:
        from ..signatures.docstrings import parse_docstring

        names = [parameter.name for parameter in signature.parameters]
        description, described = parse_docstring(signature.docstring, names)
    collector = ParameterCollector(
        signature, advice=_ADVICE, by_name=_BY_NAME, has_schema=input_schema is not None
    )
    for parameter in signature.parameters:
        collector.add(parameter, described.get(parameter.name, ""))
    if input_schema is None:
        check = None
        schema = collector.object_schema(  # TYPED-02
            required=collector.required(), additionalProperties=False
        )
    else:
        check = make_check(
            collector.bindings,
            context_name=collector.context_name,
            takes_rest=collector.takes_rest,
        )
        schema = dict(input_schema)
        from .given_schemas import check_given_schema

        check_given_schema(schema, collector, signature)
    handler = collector.handler(check, inline=inline)  # its dependencies may make it async
    output, write = _output(signature, output_schema)
    if write is not None:
        from ..signatures.outputs import writing

        handler = writing(handler, write)
    execution = execution_of(function)
    if collector.dependencies:
        execution = ExecutionMode.ASYNC if signature.is_async else ExecutionMode.THREAD
    return TypedTool(signature.name, description, schema, output, handler, execution)


def _output(
    signature: FunctionSignature, wanted: Mapping[str, Any] | bool | None
) -> tuple[dict[str, Any] | None, Writer | None]:
    """Return the output schema, and what is applied to a result before it is written."""
    given = dict(wanted) if isinstance(wanted, Mapping) else None
    try:
        hint = signature.returned()
        if wanted is not True and any(hint is each for each in _WITHOUT_STRUCTURE):
            return given, None
        if (plain := plain_type(hint)) is not None:
            return (plain.schema if wanted in (None, True) else given), None
        from ..signatures.outputs import derive_output, is_structure

        schema, write = derive_output(hint, signature.names)
        if wanted is True or (wanted is None and is_structure(schema)):
            return schema, write
        return given, write
    except UnsupportedType as error:
        if wanted is not True:
            return given, None
        raise RegistrationError(
            f"tool {signature.name!r}, result: {error}; change it, or give the schema by hand: "
            "@server.tool(output_schema={...})"
        ) from None


def add_tool(
    registry: ToolRegistry,
    function: Callable[..., Any],
    context_type: type,
    *,
    name: str | None = None,
    description: str | None = None,
    version: str | None = None,
    title: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | bool | None = None,
    annotations: ToolAnnotations | None = None,
    icons: Sequence[Icon] = (),
    meta: Mapping[str, Any] | None = None,
    **options: Unpack[ToolHandlerOptions],
) -> RegisteredTool:
    """Add a tool that calls `function`; its signature has the schema (spec/typed-tools.md).

    A parameter of `context_type` is given the context of the call. The other arguments are
    `ToolOptions`.

    Raises:
        RegistrationError: names the parameter or the option, and what to change.
    """
    typed = derive_tool(
        function,
        context_type,
        input_schema=input_schema,
        output_schema=output_schema,
        inline=options.get("inline", False),
    )
    definition = ToolDefinition(
        typed.name if name is None else name,
        typed.description if description is None else description,
        typed.input_schema,
        version,
        title=title,
        output_schema=typed.output_schema,
        annotations=annotations,
        icons=icons,
        meta=meta,
    )
    settings = tool_settings(definition, typed.execution, **options)
    return registry.register(definition, typed.handler, **settings, is_typed=True)
