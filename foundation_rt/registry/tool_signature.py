"""A tool out of a plain function: its name, description and input schema, and how it is called.

The signature says what arguments there are, the annotations what each of them is, the docstring
what it means (spec/typed-tools.md). One walk over each annotation yields its schema and the
function that makes the argument from the JSON value (`typed.deriver`). Everything is worked out
here, when the tool is registered; a call runs one generated function (`typed.binding`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..errors import RegistrationError
from ..signatures.binding import NO_DEFAULT, Binding, Handler, make_check, make_handler
from ..signatures.docstrings import parse_docstring
from ..signatures.function_signature import FunctionSignature
from ..signatures.schema_deriver import DIALECT, Deriver
from ..signatures.type_schema import REQUIRED, Schema, UnsupportedType

if TYPE_CHECKING:
    from ..core.context import ToolContext

_BY_HAND = "or give the schema by hand: @server.tool(input_schema={...})"
_BY_NAME = (
    "make it one that is passed by name, or give schema and handler by hand: "
    "server.register(ToolDefinition(name, description, input_schema), handler)"
)


@frozen
class TypedTool:
    """What a function says about itself as a tool (TYPED-01).

    Attributes:
        name: the function's name.
        description: its docstring without the sections about parameters, results and errors.
        input_schema: JSON Schema of an object with one property for each argument.
        output_schema: JSON Schema of what the function returns, where one is asked for.
        handler: takes the arguments, as accepted by `input_schema`, and the context of the call;
            calls the function and returns what it returns, a coroutine where it is async. Raises
            `ToolError` (INVALID_ARGUMENT) before the function is called when an argument cannot
            become a value of its type.
        is_async: whether the function is a coroutine function.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    handler: Callable[[dict[str, Any], ToolContext], Any]
    is_async: bool


def derive_tool(
    function: Callable[..., Any],
    *,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | bool | None = None,
) -> TypedTool:
    """Derives a tool from the signature and the docstring of `function`.

    Args:
        function: a function, a bound method, a ``functools.partial`` of one, or an object whose
            class defines ``__call__``.
        input_schema: a schema to be used as it is, instead of a derived one (TYPED-22).
        output_schema: likewise; True derives one from the return annotation (TYPED-26).

    Raises:
        RegistrationError: no schema can be derived, or the one given does not go with the
            signature; the message names the tool, the parameter and the way out.
    """
    signature = FunctionSignature(function, "tool")
    described: dict[str, str] = {}
    description = ""
    if signature.docstring:
        described_names = [parameter.name for parameter in signature.parameters]
        description, described = parse_docstring(signature.docstring, described_names)
    binder = _Binder(signature, by_hand=input_schema is not None)
    for parameter in signature.parameters:
        binder.add(parameter, described.get(parameter.name, ""))
    if input_schema is None:
        schema = binder.schema()
    else:
        schema = dict(input_schema)
        binder.check_against(schema)
    return TypedTool(
        signature.name,
        description,
        schema,
        _output_schema(signature, output_schema),
        binder.handler(),
        signature.is_async,
    )


def _output_schema(
    signature: FunctionSignature, wanted: Mapping[str, Any] | bool | None
) -> dict[str, Any] | None:
    if wanted is None or wanted is False:
        return None
    if wanted is not True:
        return dict(wanted)
    from ..signatures.outputs import derive_output_schema

    try:
        return derive_output_schema(signature.returned(), signature.names)
    except UnsupportedType as error:
        raise RegistrationError(
            f"tool {signature.name!r}, what it returns: {error}; change it, or give the schema by"
            " hand: @server.tool(output_schema={...})"
        ) from None


class _Binder:
    """Collects the parameters of one tool, then tells its schema and makes its handler."""

    def __init__(self, signature: FunctionSignature, *, by_hand: bool) -> None:
        self._signature = signature
        self._by_hand = by_hand
        self._deriver = Deriver(signature.names)
        self._bindings: list[Binding] = []
        self._properties: Schema = {}
        self._context_name: str | None = None
        self._takes_rest = False

    def add(self, parameter: inspect.Parameter, description: str) -> None:
        """Takes in one parameter."""
        name = parameter.name
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise self._signature.refusal(name, f"it is passed by position; {_BY_NAME}")
        if parameter.kind is parameter.VAR_KEYWORD:
            if not self._by_hand:
                why = f"it takes arguments of any name; give each a parameter, {_BY_HAND}"
                raise self._signature.refusal(name, why)
            self._takes_rest = True
            return
        convert = None
        try:
            hint = self._signature.hint(parameter)
            if self._signature.is_context(hint):
                self._take_context(name)
                return
            default = REQUIRED if parameter.default is parameter.empty else parameter.default
            # What could not be derived for one parameter must not be met again for the next.
            deriver = Deriver(self._signature.names) if self._by_hand else self._deriver
            derived = deriver.derive(hint, description=description, default=default)
            self._properties[name], convert = derived.schema, derived.convert
        except UnsupportedType as error:
            if not self._by_hand:
                raise self._signature.refusal(name, f"{error}; change it, {_BY_HAND}") from None
        default = NO_DEFAULT if parameter.default is parameter.empty else parameter.default
        self._bindings.append(Binding(name, default, convert))

    def schema(self) -> Schema:
        """The schema of the object of arguments (TYPED-02)."""
        schema: Schema = {"$schema": DIALECT} if self._deriver.needs_dialect else {}
        schema |= {
            "type": "object",
            "properties": self._properties,
            "required": self._required(),
            "additionalProperties": False,
        }
        if definitions := self._deriver.definitions():
            schema["definitions"] = definitions
        return schema

    def check_against(self, schema: Mapping[str, Any]) -> None:
        """Refuses a schema given by hand that plainly does not go with the parameters."""
        known = {binding.name for binding in self._bindings}
        properties = schema.get("properties")
        advertised = properties.keys() if isinstance(properties, Mapping) else set[str]()
        strange = sorted(advertised - known)
        if strange and (not self._takes_rest or self._context_name in strange):
            raise RegistrationError(
                f"tool {self._signature.name!r}: its schema has a property {strange[0]!r} and the "
                "function no parameter that takes it"
            )
        if schema.get("additionalProperties") is False and not schema.get("patternProperties"):
            for name in self._required():
                if name not in advertised:
                    raise self._signature.refusal(
                        name,
                        "it has no default, and the schema given by hand never lets it through",
                    )

    def handler(self) -> Handler:
        """The function that is called with the arguments and the context."""
        check = None
        if self._by_hand:
            check = make_check(
                self._bindings, context_name=self._context_name, takes_rest=self._takes_rest
            )
        return make_handler(
            self._signature.function,
            self._bindings,
            context_name=self._context_name,
            check=check,
            takes_rest=self._takes_rest,
        )

    def _take_context(self, name: str) -> None:
        if self._context_name is not None:
            raise self._signature.refusal(
                name, f"it is a second ToolContext, after {self._context_name!r}"
            )
        self._context_name = name

    def _required(self) -> list[str]:
        return [binding.name for binding in self._bindings if binding.default is NO_DEFAULT]
