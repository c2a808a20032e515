"""The schemas of a tool, compiled: all that is found out about them when a tool is registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import define

from ..errors import RegistrationError
from ..jsonschema.steps import MAX_STEPS
from ..jsonschema.validation import Validator, compile_schema

if TYPE_CHECKING:
    from ..jsonschema.headers import HeaderParameter
    from .tool_definition import ToolDefinition

MAX_RESULT_STEPS: Final = 16 * MAX_STEPS
"""Most steps to check a result: it may be as many times larger than arguments by default, and comes
from the author of its schema."""


@define(eq=False, repr=False)
class ToolSchemas:
    """What a tool's schemas have become; the attributes are those of `RegisteredTool`.

    Attributes:
        warnings: what they say that is not enforced.
    """

    validate: Validator
    validate_output: Validator | None
    header_parameters: tuple[HeaderParameter, ...]
    warnings: tuple[str, ...]


def compile_tool(definition: ToolDefinition, *, check_formats: bool = True) -> ToolSchemas:
    """Compile the schemas of a tool.

    Args:
        check_formats: enforce `format`; otherwise it is an annotation (SCHEMA-25).

    Raises:
        RegistrationError: one of them cannot be enforced (SCHEMA-01 to SCHEMA-23).
    """
    compiled = compile_schema(definition.input_schema, check_formats=check_formats)
    parameters: tuple[HeaderParameter, ...] = ()
    if compiled.mirrored:
        from ..jsonschema.headers import header_parameters

        parameters = header_parameters(definition.input_schema, compiled.mirrored)
    if definition.output_schema is None:
        return ToolSchemas(compiled.validate, None, parameters, compiled.warnings)
    try:
        output = compile_schema(
            definition.output_schema,
            any_root=True,
            check_formats=check_formats,
            max_steps=MAX_RESULT_STEPS,
        )
    except RegistrationError as error:
        raise RegistrationError(f"outputSchema: {error}") from error
    warnings = (*compiled.warnings, *(f"outputSchema: {each}" for each in output.warnings))
    return ToolSchemas(compiled.validate, output.validate, parameters, warnings)
