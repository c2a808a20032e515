"""The tools of another server as a transform shapes them, where they are mounted or imported."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ..errors import RegistrationError
from ..kernel.registry.tool_definition import name_problem
from ..kernel.registry.tools import ExecutionMode, Handler, RegisteredTool, compile_tool

if TYPE_CHECKING:
    from ..base.tool_shapes import ToolShape, Transform
    from .context import ToolContext


def shaped(transform: Transform, tool: RegisteredTool) -> RegisteredTool:
    """Return a tool as it joins; the same one if nothing is changed.

    Raises:
        RegistrationError: its arguments cannot be shaped so.
    """
    shape = transform.tools.get(tool.registered_name)
    if shape is None:
        return tool
    own = tool.definition
    try:
        definition = evolve(
            own,
            name=shape.outside,
            input_schema=shape.schema(own.input_schema),
            **shape.texts,
        )
        if (problem := name_problem(shape.outside)) is not None:
            raise shape.refusal(f"its name {problem}")
        validate, _, header_parameters, _ = compile_tool(evolve(definition, output_schema=None))
    except RegistrationError as error:
        raise error if "transform" in str(error) else shape.refusal(str(error)) from error
    return evolve(
        tool,
        definition=definition,
        registered_name=shape.outside,
        handler=_handler(tool, shape),
        execution=ExecutionMode.ASYNC if shape.call and _is_async(tool) else tool.execution,
        validate=validate,
        header_parameters=header_parameters,
    )


def _is_async(tool: RegisteredTool) -> bool:
    return tool.execution in (ExecutionMode.ASYNC, ExecutionMode.BRIEF)


def _handler(tool: RegisteredTool, shape: ToolShape) -> Handler:
    handler, call = tool.handler, shape.call
    if call is not None:
        is_async = _is_async(tool)
        if inspect.iscoroutinefunction(call) is not is_async:
            wanted = "with async def" if is_async else "without async"
            raise shape.refusal(f"write `call` {wanted}, as the tool is")
    arguments = shape.arguments_of(tool.definition.input_schema)

    def run(given: dict[str, Any], context: ToolContext[Any]) -> Any:
        inner = arguments.inside(given, context)
        if call is None:
            return handler(inner, context)
        return call(lambda changed: handler(changed, context), inner, context)

    return run
