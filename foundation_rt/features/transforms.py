"""The tools of another server as a transform shapes them, where they are mounted or imported."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ..errors import RegistrationError
from ..kernel.registry.tools import ExecutionMode, Handler, RegisteredTool, compile_tool

if TYPE_CHECKING:
    from ..base.transforms import ToolShape, Transform
    from .context import ToolContext


def shaped(transform: Transform, tool: RegisteredTool) -> RegisteredTool:
    """Return a tool as it joins; the same one if nothing is changed.

    Raises:
        RegistrationError: its arguments cannot be shaped so.
    """
    shape = transform.tools.get(tool.names[0]) or transform.tools.get(tool.registered_name)
    if shape is None:
        return tool
    own = tool.definition
    schema = shape.schema(own.input_schema)
    name = tool.registered_name if shape.outside == shape.name else shape.outside
    definition = evolve(own, name=name, input_schema=schema, **shape.texts)
    for issue in definition.issues():
        raise shape.refusal(f"its {issue.path[1:]} {issue.message}")
    try:
        checks, header_parameters = compile_tool(evolve(definition, output_schema=None))
    except RegistrationError as error:
        raise shape.refusal(str(error)) from error
    return evolve(
        tool,
        definition=definition,
        registered_name=name,
        handler=_handler(tool, shape),
        execution=_execution(tool, shape),
        checks=(*checks, *tool.checks[1:]),
        header_parameters=header_parameters,
    )


def _execution(tool: RegisteredTool, shape: ToolShape) -> ExecutionMode:
    """Return where the tool runs; a function around it may wait where its own code does not."""
    is_coroutine = tool.execution in (ExecutionMode.ASYNC, ExecutionMode.BRIEF)
    if shape.call is None:
        return tool.execution
    if inspect.iscoroutinefunction(shape.call) is not is_coroutine:
        wanted = "with async def" if is_coroutine else "without async"
        raise shape.refusal(f"write `call` {wanted}, as the tool is")
    return ExecutionMode.ASYNC if is_coroutine else tool.execution


def _handler(tool: RegisteredTool, shape: ToolShape) -> Handler:
    handler, call = tool.handler, shape.call
    arguments = shape.arguments_of(tool.definition.input_schema)

    def run(given: dict[str, Any], context: ToolContext[Any]) -> Any:
        inner = arguments.inside(given, context)
        if call is None:
            return handler(inner, context)
        return call(lambda changed: handler(changed, context), inner, context)

    return run
