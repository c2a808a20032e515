"""A method of the author derived from a plain function: the schema of its params, its handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ...errors import RegistrationError
from ...kernel.registry.tools import ExecutionMode
from ..signatures.function_signature import FunctionSignature
from ..signatures.outputs import derive_output, writing
from ..signatures.parameters import ParameterCollector
from ..signatures.type_schema import UnsupportedType

if TYPE_CHECKING:
    from ..signatures.binding import Handler
    from ..signatures.writers import Writer

_ANY_OBJECT = (None, Any, object)
_NOTHING = {"type": "object", "maxProperties": 0}


@frozen
class TypedMethod:
    """A method as its function describes it (EXT-01).

    Attributes:
        schema: JSON Schema of its params.
        result_schema: JSON Schema of its result; None: any object is one.
        handler: takes the params, as accepted by `schema`, and the context of the call.
        execution: where it runs.
    """

    schema: dict[str, Any]
    result_schema: dict[str, Any] | None
    handler: Handler
    execution: ExecutionMode


def derive_method(
    function: Callable[..., Any], context_type: type, *, inline: bool = False
) -> TypedMethod:
    """Derive a method from the signature of `function`, by the rules of tools (TYPED-01).

    Args:
        function: takes the params by name; returns an object, or None for an empty one.
        context_type: a parameter of this type is given the context of the call.
        inline: the function is called in place.

    Raises:
        RegistrationError: names the method, the parameter or the result, and what to change.
    """
    signature = FunctionSignature(function, "method", context_type)
    collector = ParameterCollector(signature)
    for parameter in signature.parameters:
        collector.add(parameter, "")
    schema = collector.object_schema(required=collector.required(), additionalProperties=False)
    if "_meta" in schema["properties"]:
        raise signature.refusal("_meta", "it is no param: `ctx.call.meta` has it")
    handler = collector.handler(inline=inline)  # its dependencies may make it async
    execution = ExecutionMode.ASYNC if signature.is_async else ExecutionMode.THREAD
    try:
        hint = signature.returned()
    except UnsupportedType:
        hint = None  # as of a tool without an annotation
    if any(hint is each for each in _ANY_OBJECT):
        return TypedMethod(schema, None, handler, execution)
    if hint is type(None):
        return TypedMethod(schema, _NOTHING, handler, execution)
    result, write = _result_of(signature, hint)
    handler = handler if write is None else writing(handler, write)
    return TypedMethod(schema, result, handler, execution)


def _result_of(signature: FunctionSignature, hint: Any) -> tuple[dict[str, Any], Writer | None]:
    """Return the schema of a result, and what is applied before it is written."""
    problem = "a method returns an object: a class with annotations, a dict, or None alone"
    try:
        result, write = derive_output(hint, signature.names)
    except UnsupportedType as error:
        problem = f"{error}; {problem}"
    else:
        if result.get("type") == "object":
            return result, write
    raise RegistrationError(f"method {signature.name!r}, result: {problem}")
