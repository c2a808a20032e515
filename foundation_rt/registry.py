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
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import orjson
from attrs import define, field, frozen

from .errors import RegistrationError
from .validation import ValidationIssue, ValidationResult, Validator, compile_schema

if TYPE_CHECKING:
    from .context import ToolContext
    from .extensions.tasks.support import TaskSupport
    from .logs import StructuredLogger

    Handler = Callable[[dict[str, Any], ToolContext], Any]

MAX_TOOL_NAME_LENGTH = 256
MAX_TIMEOUT_MS = 2**31 - 1
"""Longest deadline, in ms: what `tools.default_timeout_ms` can be, and what every timer takes."""


class Execution(Enum):
    """Where a handler runs (CALL-12)."""

    ASYNC = "async"
    """On the event loop, as a task."""
    THREAD = "thread"
    """In a worker thread."""
    INLINE = "inline"
    """In place: for handlers that take microseconds and never block."""


@frozen
class ToolDefinition:
    """What a server says of a tool.

    Args:
        name: unique within a server.
        description: for the model that chooses tools.
        input_schema: JSON Schema of the arguments; its root is ``type: object``.
        version: the tool's own version, if it has one.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    version: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        wire: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
        }
        if self.version is not None:
            wire["version"] = self.version
        return wire


@define(eq=False, repr=False)
class RegisteredTool:
    """A tool, ready to be called.

    Attributes:
        validate: returns what is wrong with arguments; empty when they are valid.
        timeout_ms: deadline of its calls in ms; None means `tools.default_timeout_ms`.
        is_dynamic: it came at run time.
        tool_type: the predefined type a dynamic tool is of, if it is of one (ADMIN-05).
        reserved: it runs in a slot kept for it, so that it answers under overload (RES-09).
        administrative: calls of it are subject to `tools.admin_policy` (ADMIN-03).
        task: whether its calls may become tasks, and when (TASK-03); None: they never do.
    """

    definition: ToolDefinition
    handler: Handler
    validate: Validator
    execution: Execution
    timeout_ms: int | None
    is_dynamic: bool
    tool_type: str | None
    reserved: bool
    administrative: bool
    task: TaskSupport | None = None


class Observer(Protocol):
    """Who wants to know that there are other tools than before."""

    def tools_changed(self) -> None:
        """The registry has changed; called in the thread that changed it."""


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

    Args:
        logger: gets the warnings of registrations; may be attached later (`attach_logger`).
    """

    _logger: StructuredLogger | None = None
    _tools: dict[str, RegisteredTool] = field(factory=dict, init=False)
    _encoded_list: bytes | None = field(default=None, init=False)
    _observers: WeakSet[Observer] = field(factory=WeakSet, init=False)
    # Reentrant: a finalizer or a signal handler may unregister while its thread holds it.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _held_warnings: list[tuple[str, dict[str, Any]]] = field(factory=list, init=False)

    def register(
        self,
        definition: ToolDefinition,
        handler: Handler,
        *,
        is_dynamic: bool = False,
        execution: Execution | None = None,
        timeout_ms: int | None = None,
        tool_type: str | None = None,
        reserved: bool = False,
        administrative: bool = False,
        task: TaskSupport | None = None,
    ) -> RegisteredTool:
        """Add a tool; its validator is generated here, never on a call (REG-05).

        Args:
            handler: called with the arguments and a `ToolContext`.
            is_dynamic: it came at run time; said in the log at WARN (REG-06).
            execution: where it runs; by default a task for `async def`, else a worker thread.
            timeout_ms: deadline of its calls in ms, at most `MAX_TIMEOUT_MS`.
            tool_type, reserved, administrative, task: see `RegisteredTool`.

        Raises:
            RegistrationError: the definition is not valid, or the name is taken.
        """
        issues = _definition_issues(definition)
        if issues:
            raise RegistrationError(_refusal(definition, issues))
        if timeout_ms is not None and not _is_timeout(timeout_ms):
            raise RegistrationError(
                f"tool {definition.name!r}: timeout_ms must be a whole number of milliseconds"
                f" from 1 to {MAX_TIMEOUT_MS}, not {timeout_ms!r}"
            )
        if not callable(handler):
            raise RegistrationError(f"tool {definition.name!r}: the handler is not callable")
        # A private copy: what is advertised and what is enforced cannot drift apart afterwards.
        schema = orjson.loads(orjson.dumps(dict(definition.input_schema)))
        definition = ToolDefinition(
            definition.name, definition.description, schema, definition.version
        )
        try:
            compiled = compile_schema(schema)
        except RegistrationError as error:
            raise RegistrationError(f"tool {definition.name!r}: {error}") from error
        tool = RegisteredTool(
            definition,
            handler,
            compiled.validate,
            execution or (Execution.ASYNC if is_async_callable(handler) else Execution.THREAD),
            timeout_ms,
            is_dynamic,
            tool_type,
            reserved,
            administrative,
            task,
        )
        self._add(tool)
        for warning in compiled.warnings:
            self._warn("tool schema warning", {"toolName": definition.name, "warning": warning})
        if is_dynamic:
            of_type = "" if tool_type is None else f" (type: {tool_type})"
            self._warn(f"Dynamic tool registered: {definition.name}{of_type}", _log_fields(tool))
        self._tell_observers()
        return tool

    def unregister(self, name: str) -> bool:
        """Remove a tool; return whether there was one. Calls that run are not touched."""
        tool = self.get(name)
        return tool is not None and self.remove(tool)

    def remove(self, tool: RegisteredTool) -> bool:
        """Remove this very tool, not another of its name; return whether it was still there."""
        name = tool.definition.name
        with self._lock:
            if self._tools.get(name) is not tool:
                return False
            del self._tools[name]
            self._encoded_list = None
        if tool.is_dynamic:
            self._warn(f"Tool unregistered: {name}", _log_fields(tool))
        self._tell_observers()
        return True

    def get(self, name: str) -> RegisteredTool | None:
        """The tool of that name, if there is one."""
        return self._tools.get(name)

    def list(self) -> tuple[ToolDefinition, ...]:
        """All definitions, in lexicographic order of their names (REG-02)."""
        with self._lock:
            return self._sorted_definitions()

    def has_async_tools(self) -> bool:
        """Whether any handler needs an event loop."""
        with self._lock:
            return any(tool.execution is Execution.ASYNC for tool in self._tools.values())

    @property
    def has_tasks(self) -> bool:
        """Whether the calls of any tool may become tasks."""
        with self._lock:
            return any(tool.task is not None for tool in self._tools.values())

    def encoded_list(self) -> bytes:
        """The list of all tools, encoded; kept until the registry changes (REG-04)."""
        with self._lock:
            if self._encoded_list is None:
                tools = [definition.to_wire() for definition in self._sorted_definitions()]
                self._encoded_list = orjson.dumps(tools)
            return self._encoded_list

    def observe(self, observer: Observer) -> None:
        """Tell `observer` of every change from now on, as long as somebody else holds it."""
        with self._lock:
            self._observers.add(observer)

    def validate_definition(self, definition: ToolDefinition) -> ValidationResult:
        """What `register` would say of `definition`, without registering it."""
        issues = _definition_issues(definition)
        if not issues and definition.name in self._tools:
            issues = (ValidationIssue("/name", "is already registered"),)
        if not issues:
            try:
                compile_schema(definition.input_schema)
            except RegistrationError as error:
                issues = (ValidationIssue("/inputSchema", str(error)),)
        return ValidationResult(not issues, issues)

    def attach_logger(self, logger: StructuredLogger) -> None:
        """Send warnings to `logger` from now on, those first that had nowhere to go."""
        self._logger = logger
        held, self._held_warnings = self._held_warnings, []
        for message, fields in held:
            logger.warn(message, fields)

    def _add(self, tool: RegisteredTool) -> None:
        name = tool.definition.name
        with self._lock:
            if name in self._tools:
                raise RegistrationError(
                    f"tool {name!r} is already registered: choose another name,"
                    " or unregister it first"
                )
            self._tools[name] = tool
            self._encoded_list = None

    def _sorted_definitions(self) -> tuple[ToolDefinition, ...]:
        return tuple(self._tools[name].definition for name in sorted(self._tools))

    def _tell_observers(self) -> None:
        with self._lock:
            observers = [*self._observers]
        for observer in observers:
            observer.tools_changed()

    def _warn(self, message: str, fields: dict[str, Any]) -> None:
        if self._logger is None:
            self._held_warnings.append((message, fields))
        else:
            self._logger.warn(message, fields)


def _definition_issues(definition: ToolDefinition) -> tuple[ValidationIssue, ...]:
    # Values an author gave: their annotated types are what is being checked.
    name: object = definition.name
    description: object = definition.description
    version: object = definition.version
    schema: object = definition.input_schema
    issues = []
    if not isinstance(name, str) or not name or len(name) > MAX_TOOL_NAME_LENGTH:
        issues.append(
            ValidationIssue("/name", f"must be a string of 1 to {MAX_TOOL_NAME_LENGTH} characters")
        )
    elif not name.isprintable() or name != name.strip():
        issues.append(
            ValidationIssue("/name", "must be printable, without white space at its ends")
        )
    if not _is_text(description):
        issues.append(ValidationIssue("/description", "must be a string of valid Unicode"))
    if version is not None and not _is_text(version):
        issues.append(ValidationIssue("/version", "must be a string of valid Unicode"))
    if not isinstance(schema, Mapping):
        issues.append(ValidationIssue("/inputSchema", "must be an object"))
    else:
        try:
            # As `tools/list` nests it: orjson writes 254 levels.
            orjson.dumps([[[dict(schema)]]])
        except TypeError as error:
            issues.append(ValidationIssue("/inputSchema", f"must be JSON: {error}"))
    return tuple(issues)


def _log_fields(tool: RegisteredTool) -> dict[str, Any]:
    fields = {"toolName": tool.definition.name}
    if tool.tool_type is not None:
        fields["toolType"] = tool.tool_type
    return fields


def _is_text(value: object) -> bool:
    """Whether it is a string that can be sent: one with lone surrogates cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refusal(definition: ToolDefinition, issues: tuple[ValidationIssue, ...]) -> str:
    problems = "; ".join(f"{issue.path} {issue.message}" for issue in issues)
    return f"tool {definition.name!r} is refused: {problems}"


def _is_timeout(value: object) -> bool:
    return type(value) is int and 0 < value <= MAX_TIMEOUT_MS
