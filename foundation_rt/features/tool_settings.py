"""The options of tools, as they are given, and what is registered of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import RegistrationError
from ..kernel.registry.tools import ExecutionMode, ToolPart, check_ms
from .tasks.support import TaskSupport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..kernel.registry.catalog import Predicate
    from ..kernel.registry.tool_definition import ToolDefinition
    from .options import TaskUse


def tool_settings(
    definition: ToolDefinition,
    execution: ExecutionMode,
    *,
    inline: bool = False,
    timeout_ms: int | None = None,
    scopes: Iterable[str] = (),
    task: TaskUse | None = None,
    task_after_ms: int = 0,
    tags: Iterable[str] = (),
    visible: Predicate | Iterable[str] | None = None,
    deprecated: str | None = None,
) -> dict[str, Any]:
    """Return the arguments of `ToolRegistry.register` for the `ToolHandlerOptions` of a tool.

    Raises:
        RegistrationError: names the option and what to change.
    """
    name = definition.name
    if inline and execution is not ExecutionMode.THREAD:
        raise RegistrationError(f"tool {name!r}: inline=True is for def, not for async def")
    if task not in (None, "optional", "required"):
        raise RegistrationError(f'tool {name!r}: task is "optional" or "required", not {task!r}')
    check_ms(name, "task_after_ms", task_after_ms, 0)
    if task is None and task_after_ms:
        raise RegistrationError(f"tool {name!r}: task_after_ms needs task as well")
    if task is not None and inline:
        raise RegistrationError(f"tool {name!r}: a tool that runs inline cannot be a task")
    if task is not None and execution is ExecutionMode.BRIEF:
        execution = ExecutionMode.ASYNC
    read_tags, predicate = read_audience(f"tool {name!r}", tags, visible)
    parts: list[ToolPart]
    parts = [] if task is None else [TaskSupport(task == "required", task_after_ms)]
    if deprecated is not None:
        from .tool_versions import read_deprecated

        parts.append(read_deprecated(definition, deprecated))
    return {
        "execution": ExecutionMode.INLINE if inline else execution,
        "timeout_ms": timeout_ms,
        "scopes": scopes,
        "parts": parts,
        "tags": read_tags,
        "visible": predicate,
    }


def read_audience(
    subject: str, tags: Iterable[str], visible: Predicate | Iterable[str] | None
) -> tuple[frozenset[str], Predicate | None]:
    """Return the tags of an entry, and the predicate of who sees it (VIS-01).

    Raises:
        RegistrationError: names `subject` and what to change.
    """
    if tags == () and visible is None:
        return frozenset(), None
    from .visibility import read_tags, read_visible

    return read_tags(subject, tags), None if visible is None else read_visible(subject, visible)
