"""The tools of a server: their definitions, handlers and compiled validators.

Everything a call needs is made when a tool is registered and only looked up when it is called
(REG-05): a call costs the same with ten tools and with ten thousand.

Tools may come and go in any thread while others are called. Changes are made one at a time, under
a lock that a call never takes: looking a tool up is one access to a dict. Whoever observes the
registry is told of each change after it was made, in the thread that made it and without the lock
(REG-09): an observer takes locks of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from ..config.types import SCOPE
from ..errors import RegistrationError
from ..jsonschema.validation import ValidationIssue, ValidationResult, Validator
from .catalog import Catalog, ChangeNotifier
from .tool_definition import ToolDefinition
from .tool_names import SEPARATOR, advertised_name, name_warning
from .tool_schemas import compile_tool

if TYPE_CHECKING:
    import orjson

    from ..core.context import ToolContext
    from ..core.tasks.support import TaskSupport
    from ..jsonschema.headers import HeaderParameter
    from ..logs.logger import StructuredLogger
    from ..protocol.principal import Principal
    from ..protocol.revisions import Revision
    from .catalog import Observer

    Handler = Callable[[dict[str, Any], ToolContext], Any]
    ArgumentScopes = Callable[[dict[str, Any]], frozenset[str]]
    Page = tuple[list[orjson.Fragment], str | None]

MAX_TIMEOUT_MS = 2**31 - 1
"""Longest deadline, in ms: what `tools.default_timeout_ms` can be, and what every timer takes."""


class ExecutionMode(Enum):
    """Where a handler runs (CALL-12)."""

    ASYNC = "async"
    """On the event loop, as a task."""
    THREAD = "thread"
    """In a worker thread."""
    INLINE = "inline"
    """In place: for handlers that take microseconds and never block."""


@define(eq=False, repr=False)
class RegisteredTool:
    """A tool, ready to be called.

    Attributes:
        definition: what is shown of it; its name is the one that clients use (REG-11).
        registered_name: the name it was registered under.
        validate: returns what is wrong with arguments; empty when they are valid.
        validate_output: the same for results; None where the tool has no output schema.
        header_parameters: the arguments that HTTP clients repeat in headers (SCHEMA-23).
        timeout_ms: deadline of its calls in ms; None means `tools.default_timeout_ms`.
        is_dynamic: it came at run time.
        tool_type: the predefined type a dynamic tool is of, if it is of one (ADMIN-05).
        reserved: it runs in a slot kept for it, so that it answers under overload (RES-09).
        administrative: calls of it are subject to `tools.admin_policy` (ADMIN-03).
        scopes: what the principal of a call must have been granted, all of it.
        task: whether its calls may become tasks, and when (TASK-03); None: they never do.
        argument_scopes: returns what a call needs besides `scopes`, given its arguments, which
            nothing has validated yet; must not raise (AUTH-27).
        is_restricted: not everybody may call it.
    """

    definition: ToolDefinition
    registered_name: str
    handler: Handler
    validate: Validator
    validate_output: Validator | None
    header_parameters: tuple[HeaderParameter, ...]
    execution: ExecutionMode
    timeout_ms: int | None
    is_dynamic: bool
    tool_type: str | None
    reserved: bool
    administrative: bool
    scopes: frozenset[str] = frozenset()
    task: TaskSupport | None = None
    argument_scopes: ArgumentScopes | None = None
    is_restricted: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        needs_tasks = self.task is not None and self.task.required
        needs_scopes = self.scopes or self.argument_scopes is not None
        self.is_restricted = bool(self.administrative or needs_scopes or needs_tasks)

    def scopes_for(self, arguments: dict[str, Any]) -> frozenset[str]:
        """Return the scopes that a call with these arguments needs (AUTH-13, AUTH-27)."""
        if self.argument_scopes is None:
            return self.scopes
        return self.scopes | self.argument_scopes(arguments)

    def wire(self, revision: Revision) -> dict[str, Any]:
        """How `tools/list` shows it."""
        return self.definition.to_wire(revision)


def is_async_callable(handler: Callable[..., Any]) -> bool:
    """Whether calling `handler` gives a coroutine, as far as can be seen without calling it."""
    while isinstance(handler, partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 -- an instance whose class has async __call__
    )


@define(eq=False, repr=False)
class ToolRegistry:
    """Keeps tools by name.

    A client calls a tool by the name that is advertised; the code of a server uses the name it was
    registered under. The two differ where `tools.name_separator` says so (REG-11).

    Args:
        logger: gets the warnings of registrations; may be attached later (`attach_logger`).
    """

    _logger: StructuredLogger | None = None
    _notifier: ChangeNotifier = field(factory=lambda: ChangeNotifier("tools"), init=False)
    _tools: Catalog[RegisteredTool] = field(init=False)
    _separator: str = field(default=SEPARATOR, init=False)
    _check_formats: bool = field(default=True, init=False)
    _held_warnings: list[tuple[str, dict[str, Any]]] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._tools = Catalog(self._notifier)

    def register(
        self,
        definition: ToolDefinition,
        handler: Handler,
        *,
        is_dynamic: bool = False,
        execution: ExecutionMode | None = None,
        timeout_ms: int | None = None,
        tool_type: str | None = None,
        reserved: bool = False,
        administrative: bool = False,
        scopes: Iterable[str] = (),
        task: TaskSupport | None = None,
        argument_scopes: ArgumentScopes | None = None,
    ) -> RegisteredTool:
        """Add a tool; its validators are generated here, never on a call (REG-05).

        Args:
            handler: called with the arguments and a `ToolContext`.
            is_dynamic: it came at run time; logged at WARN. It needs neither of the switches for
                what clients register (REG-06).
            execution: where it runs; by default a task for `async def`, else a worker thread.
            timeout_ms: deadline of its calls in ms, at most `MAX_TIMEOUT_MS`.
            tool_type, reserved, administrative, scopes, task, argument_scopes: see
                `RegisteredTool`.

        Raises:
            RegistrationError: the definition is not valid, or the name is taken.
        """
        issues = definition.issues()
        if issues:
            raise RegistrationError(_refusal(definition, issues))
        name = definition.name
        if timeout_ms is not None and not _is_timeout(timeout_ms):
            raise RegistrationError(
                f"tool {name!r}: timeout_ms must be a whole number of milliseconds"
                f" from 1 to {MAX_TIMEOUT_MS}, not {timeout_ms!r}"
            )
        if not callable(handler):
            raise RegistrationError(f"tool {name!r}: the handler is not callable")
        granted = check_scopes(f"tool {name!r}", scopes)
        definition = definition.private_copy()
        try:
            schemas = compile_tool(definition, check_formats=self._check_formats)
        except RegistrationError as error:
            raise RegistrationError(f"tool {name!r}: {error}") from error
        tool = RegisteredTool(
            definition,
            name,
            handler,
            schemas.validate,
            schemas.validate_output,
            schemas.header_parameters,
            execution
            or (ExecutionMode.ASYNC if is_async_callable(handler) else ExecutionMode.THREAD),
            timeout_ms,
            is_dynamic,
            tool_type,
            reserved,
            administrative,
            granted,
            task,
            argument_scopes,
        )
        self._add(tool)
        self._warn_of(tool, schemas.warnings)
        self._notifier.notify()
        return tool

    def unregister(self, name: str) -> bool:
        """Remove the tool registered as `name`; return whether there was one.

        Calls that run are not touched (REG-07).
        """
        tool = self.find(name)
        return tool is not None and self.remove(tool)

    def remove(self, tool: RegisteredTool) -> bool:
        """Remove this very tool, not another of its name; return whether it was still there."""
        with self._notifier.lock:
            name = tool.definition.name
            if self._tools.get(name) is not tool:
                return False
            self._tools.remove(name)
        if tool.is_dynamic:
            self._warn(f"Tool unregistered: {name}", _log_fields(tool))
        self._notifier.notify()
        return True

    def get(self, name: str) -> RegisteredTool | None:
        """The tool that clients call `name`, if there is one."""
        return self._tools.get(name)

    def find(self, name: str) -> RegisteredTool | None:
        """The tool that is registered as `name`, if there is one."""
        tool = self._tools.get(advertised_name(name, self._separator))
        return tool if tool is not None and tool.registered_name == name else None

    def list(self) -> tuple[ToolDefinition, ...]:
        """All definitions, in lexicographic order of their names (REG-02)."""
        return tuple(tool.definition for tool in self._tools.entries())

    @property
    def has_scopes(self) -> bool:
        """Return whether any tool has needed scopes."""
        return self._tools.has_scopes

    def page(
        self,
        cursor: str | None,
        size: int,
        revision: Revision,
        principal: Principal | None = None,
    ) -> Page:
        """One page of `tools/list` as JSON, and the cursor of the page after it (REG-04).

        Args:
            principal: only what it may use is shown (AUTH-26).

        Raises:
            InvalidCursor: `cursor` is none that was ever given out (PAGE-03).
        """
        return self._tools.page(cursor, size, revision, principal)

    def has_async_tools(self) -> bool:
        """Return whether any handler needs an event loop."""
        return any(tool.execution is ExecutionMode.ASYNC for tool in self._tools.entries())

    @property
    def has_tasks(self) -> bool:
        """Return whether the calls of any tool may become tasks."""
        return any(tool.task is not None for tool in self._tools.entries())

    def observe(self, observer: Observer) -> None:
        """Tell `observer` of every change from now on, as long as somebody else holds it."""
        self._notifier.observe(observer)

    def validate_definition(self, definition: ToolDefinition) -> ValidationResult:
        """What `register` would say of `definition`, without registering it."""
        issues = definition.issues()
        if not issues and self.get(advertised_name(definition.name, self._separator)) is not None:
            issues = (ValidationIssue("/name", "is already registered"),)
        if not issues:
            try:
                compile_tool(definition)
            except RegistrationError as error:
                issues = (ValidationIssue("/inputSchema", str(error)),)
        return ValidationResult(not issues, issues)

    def attach_logger(self, logger: StructuredLogger) -> None:
        """Send warnings to `logger` from now on, those first that had nowhere to go."""
        self._logger = logger
        held, self._held_warnings = self._held_warnings, []
        for message, fields in held:
            logger.warn(message, fields)

    def use_separator(self, separator: str) -> None:
        """Put `separator` in the place of `/` in every name that clients see (REG-11).

        Raises:
            RegistrationError: two tools would have one name.
        """
        with self._notifier.lock:
            if separator == self._separator:
                return
            renamed: Catalog[RegisteredTool] = Catalog(self._notifier)
            tools = self._tools.entries()
            for tool in tools:
                _put(renamed, tool, separator)
            for tool in tools:
                _rename(tool, separator)
            self._separator, self._tools = separator, renamed

    def use_formats(self, check: bool) -> None:
        """Enforce `format` in the schemas of all tools, or take it as an annotation (SCHEMA-25).

        Tools that are registered already are compiled again if this changes anything.
        """
        with self._notifier.lock:
            if check == self._check_formats:
                return
            self._check_formats = check
            for tool in self._tools.entries():
                schemas = compile_tool(tool.definition, check_formats=check)
                tool.validate, tool.validate_output = schemas.validate, schemas.validate_output

    def _add(self, tool: RegisteredTool) -> None:
        with self._notifier.lock:
            _put(self._tools, tool, self._separator)
            _rename(tool, self._separator)

    def _warn_of(self, tool: RegisteredTool, schema_warnings: tuple[str, ...]) -> None:
        name = tool.definition.name
        doubt = name_warning(name)
        if doubt is not None:
            self._warn("tool name warning", {"toolName": name, "warning": doubt})
        for warning in schema_warnings:
            self._warn("tool schema warning", {"toolName": name, "warning": warning})
        if tool.is_dynamic:
            of_type = "" if tool.tool_type is None else f" (type: {tool.tool_type})"
            self._warn(f"Dynamic tool registered: {name}{of_type}", _log_fields(tool))

    def _warn(self, message: str, fields: dict[str, Any]) -> None:
        if self._logger is None:
            self._held_warnings.append((message, fields))
        else:
            self._logger.warn(message, fields)


def _put(tools: Catalog[RegisteredTool], tool: RegisteredTool, separator: str) -> None:
    name = tool.registered_name
    called = advertised_name(name, separator)
    if tools.add(called, tool):
        return
    present = tools.get(called)
    if present is None or present.registered_name == name:
        raise RegistrationError(
            f"tool {name!r} is already registered: choose another name, or unregister it first"
        )
    raise RegistrationError(
        f"tools {present.registered_name!r} and {name!r} would both be called {called!r}:"
        " rename one, or choose another `tools.name_separator`"
    )


def _rename(tool: RegisteredTool, separator: str) -> None:
    called = advertised_name(tool.registered_name, separator)
    if called != tool.definition.name:
        tool.definition = evolve(tool.definition, name=called)


def check_scopes(what: str, scopes: Iterable[str]) -> frozenset[str]:
    """The scopes of a tool, a prompt, ..., which stand in headers that refuse its calls (REG-03).

    Args:
        what: it belongs to, as a refusal names it: ``tool 'echo'``.

    Raises:
        RegistrationError: they are no scopes of OAuth 2.1.
    """
    if isinstance(scopes, str):
        raise RegistrationError(f"{what}: scopes must be several strings, not one")
    granted = frozenset(scopes)
    wrong = [scope for scope in granted if not SCOPE.accepts(scope)]
    if wrong:
        raise RegistrationError(f"{what}: {wrong[0]!r} is no scope of OAuth 2.1")
    return granted


def _log_fields(tool: RegisteredTool) -> dict[str, Any]:
    fields = {"toolName": tool.definition.name}
    if tool.tool_type is not None:
        fields["toolType"] = tool.tool_type
    return fields


def _refusal(definition: ToolDefinition, issues: tuple[ValidationIssue, ...]) -> str:
    problems = "; ".join(f"{issue.path} {issue.message}" for issue in issues)
    return f"tool {definition.name!r} is refused: {problems}"


def _is_timeout(value: object) -> bool:
    return type(value) is int and 0 < value <= MAX_TIMEOUT_MS
