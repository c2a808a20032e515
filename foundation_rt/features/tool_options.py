"""The options of tools, for type checkers; never imported at run time.

`tool_settings` has the defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .options import HandlerOptions, Presentation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..base.app_format import ToolUi
    from ..protocol.tool_annotations import ToolAnnotations

TaskUse = Literal["optional", "required"]
"""The use of tasks by a tool: "required" refuses clients without the extension (TASK-02)."""


class ToolHandlerOptions(HandlerOptions, total=False):
    """Options of the run of a tool's handler.

    Attributes:
        task: "optional": a call becomes a task if its client takes tasks. "required": the tool is
            for such clients only (spec/tasks.md). None: a call never becomes a task.
        task_after_ms: how long a call runs before it becomes a task, in ms.
        deprecated: what to do instead of calling this version: "use version 2" (VERS-08).
    """

    task: TaskUse | None
    task_after_ms: int
    deprecated: str | None


class ToolOptions(Presentation, ToolHandlerOptions, total=False):
    """The options of `Server.tool`.

    Attributes:
        version: of the tool; tools of one name with several are side by side (spec/versions.md).
        input_schema: the schema of the arguments, instead of one derived from the signature.
        output_schema: the schema that results are checked against; by default derived from the
            return annotation if that says a structure; True: derived whatever it says; False: none.
        annotations: hints about the effects of the tool.
        ui: the URI of the app that shows the results (spec/apps.md); or a `ToolUi`, for a tool that
            is for apps alone, or for models alone.
    """

    version: str | None
    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | bool | None
    annotations: ToolAnnotations | None
    ui: str | ToolUi | None
