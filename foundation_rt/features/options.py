"""The options of decorators and `register` methods, for type checkers; never imported at run time.

`Server` takes them by name and passes them to the registries, which have the defaults; those of
tools are in `tool_settings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..base.app_format import AppCsp, Permission, ToolUi
    from ..kernel.registry.catalog import Predicate
    from ..protocol.content import Annotations, Icon
    from ..protocol.tool_annotations import ToolAnnotations


class HandlerOptions(TypedDict, total=False):
    """Options of the run of a handler.

    Attributes:
        inline: run the handler in place instead of in a worker thread; only for a `def` that takes
            microseconds and never blocks.
        timeout_ms: deadline in ms; by default `tools.default_timeout_ms`.
        scopes: the scopes that a token needs, all of them, where clients log in (AUTH-13).
        tags: by which `Server.disable` and `Server.enable` find it (VIS-01).
        visible: who sees it: a function of the principal, or scopes (VIS-02). For all others it is
            not there.
    """

    inline: bool
    timeout_ms: int | None
    scopes: Iterable[str]
    tags: Iterable[str]
    visible: Predicate | Iterable[str] | None


class ResourceHandlerOptions(HandlerOptions, total=False):
    """Options of the run of a resource's handler.

    Attributes:
        cache_ttl_ms: how long a client may keep the contents, in ms; by default
            `server.cache_ttl_ms`.
    """

    cache_ttl_ms: int | None


class SkillOptions(TypedDict, total=False):
    """The options of `Server.skill`.

    Attributes:
        prefix: a path before the name of the skill in its URI: ``acme/billing``.
        cache_ttl_ms: how long a client may keep the contents of its files, in ms; by default
            `server.cache_ttl_ms`.
        scopes, tags, visible: see `HandlerOptions`.
    """

    prefix: str
    cache_ttl_ms: int | None
    scopes: Iterable[str]
    tags: Iterable[str]
    visible: Predicate | Iterable[str] | None


class Presentation(TypedDict, total=False):
    """The members that every definition has.

    Attributes:
        name: for programs; by default that of the function.
        title: for people.
        description: by default that of the docstring.
        icons: for lists.
        meta: the `_meta` of the definition; JSON.
    """

    name: str | None
    title: str | None
    description: str | None
    icons: Sequence[Icon]
    meta: Mapping[str, Any] | None


class PromptOptions(Presentation, HandlerOptions, total=False):
    """The options of `Server.prompt`."""


class ResourceOptions(Presentation, ResourceHandlerOptions, total=False):
    """The options of `Server.resource`.

    Attributes:
        mime_type: of the contents; by default that of the type of the value.
        size: in bytes, if it is known; a template has none.
        annotations: the audience and the priority.
    """

    mime_type: str | None
    size: int | None
    annotations: Annotations | None


class AppOptions(Presentation, ResourceHandlerOptions, total=False):
    """The options of `Server.app`.

    Attributes:
        csp: the origins that the app needs; by default none.
        permissions: what it may ask the browser for: ``camera``, ``microphone``, ``geolocation``,
            ``clipboardWrite``.
        domain: the origin that it wants for itself, in the form that its host has for that.
        prefers_border: whether the host draws a border and a background; None: as the host likes.
    """

    csp: AppCsp | None
    permissions: Iterable[Permission]
    domain: str | None
    prefers_border: bool | None


class CompletionOptions(TypedDict, total=False):
    """The options of `Server.completion`; see `HandlerOptions`."""

    inline: bool
    timeout_ms: int | None


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
