"""The schemas of a tool, compiled: all that is found out about them when a tool is registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

from ..errors import RegistrationError
from ..schemas.validation import Validator, compile_schema

if TYPE_CHECKING:
    from ..schemas.headers import HeaderParameter
    from .definition import ToolDefinition


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


def compile_tool(definition: ToolDefinition) -> ToolSchemas:
    """Compile the schemas of a tool.

    Raises:
        RegistrationError: one of them cannot be enforced (SCHEMA-01 to SCHEMA-23).
    """
    compiled = compile_schema(definition.input_schema)
    parameters: tuple[HeaderParameter, ...] = ()
    if compiled.mirrored:
        from ..schemas.headers import header_parameters

        parameters = header_parameters(definition.input_schema, compiled.mirrored)
    if definition.output_schema is None:
        return ToolSchemas(compiled.validate, None, parameters, compiled.warnings)
    try:
        output = compile_schema(definition.output_schema, any_root=True)
    except RegistrationError as error:
        raise RegistrationError(f"outputSchema: {error}") from error
    warnings = (*compiled.warnings, *(f"outputSchema: {each}" for each in output.warnings))
    return ToolSchemas(compiled.validate, output.validate, parameters, warnings)
