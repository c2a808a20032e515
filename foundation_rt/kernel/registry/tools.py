"""The tools of a server: their definitions, handlers and compiled validators.

What a call needs is made when a tool is registered, but for the code of its checks, which is
generated when the server starts (REG-18). It is only looked up when the tool is called (REG-05): a
call costs the same with ten tools and with ten thousand.

Tools may come and go in any thread while others are called. Changes are made one at a time, under
a lock that a call never takes: looking a tool up is one access to a dict. Each observer is
notified after a change was made, in the thread that made it and without the lock (REG-09): an
observer takes locks of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from opcode import opmap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from attrs import define, evolve, field

from ...base.config.types import SCOPE
from ...base.jsonschema.budget import MAX_STEPS
from ...base.jsonschema.compilation import (
    CompiledSchema,
    Shared,
    ValidationIssue,
    ValidationResult,
    Validator,
    compile_schema,
)
from ...base.shown import Shown
from ...errors import RegistrationError
from .catalog import ChangeNotifier, Registry
from .tool_definition import SEPARATOR, ToolDefinition, advertised_name, name_warning

if TYPE_CHECKING:
    from ...base.jsonschema.header_params import HeaderParameter
    from ...base.logs.logger import StructuredLogger
    from ...protocol.revisions import Revision
    from .catalog import Predicate

Handler = Callable[[dict[str, Any], Any], Any]
"""Called with the arguments of a call and its `ToolContext`."""

CompiledTool = tuple[tuple[CompiledSchema, ...], "tuple[HeaderParameter, ...]"]
"""The compiled schemas of a tool, and the arguments that are repeated in headers."""

_NONE: Final = frozenset[str]()
_NO_PARTS: Final[Mapping[type, Any]] = MappingProxyType({})

MAX_TIMEOUT_MS: Final = 2**31 - 1
"""Longest deadline, in ms: the most that `tools.default_timeout_ms` and every timer take."""

MAX_RESULT_STEPS: Final = 16 * MAX_STEPS
"""Most steps to check a result. It may be 16 times larger than arguments by default, and the
author of its schema has made it."""


class ExecutionMode(Enum):
    """The place in which a handler runs (CALL-12)."""

    ASYNC = "async"
    """On the event loop, as a task."""
    THREAD = "thread"
    """In a worker thread."""
    INLINE = "inline"
    """In place: for handlers that take microseconds and never block."""
    BRIEF = "brief"
    """In place if its thread allows that, else as a task: for coroutines that never wait."""


INLINE, BRIEF = ExecutionMode.INLINE, ExecutionMode.BRIEF  # see `session.RUNNING`

_LOOP_USERS: Final = frozenset((opmap["SEND"], opmap["IMPORT_NAME"]))
"""The instructions of code that may need an event loop: every kind of `await`, and an import."""


class ToolPart:
    """The options of a feature for one tool."""

    __slots__ = ()

    @property
    def restricts(self) -> bool:
        """Return whether some clients may not call the tool: `RuntimeFeature.admit` is asked."""
        return False


@define(eq=False, repr=False)
class RegisteredTool(Shown):
    """A tool with its handler and its compiled schemas.

    Attributes:
        definition: as lists show it; its name is the one that clients use (REG-11).
        registered_name: the name that the tool was registered under.
        checks: the compiled schemas of its arguments and, if it has one, of its results; tools may
            share them (REG-19).
        header_parameters: the arguments that HTTP clients repeat in headers (SCHEMA-23).
        timeout_ms: deadline of its calls in ms; None means `tools.default_timeout_ms`.
        is_dynamic: it was registered while the server runs.
        tool_type: the predefined type of a dynamic tool, if it has one (ADMIN-05).
        reserved: it runs in a slot kept for it, so that it answers under overload (RES-09).
        scopes: the scopes that the principal of a call needs, all of them.
        parts: what features keep for it, by the class of that.
        tags: by which it can be switched off and on.
        visible: returns whether a principal sees it (VIS-02); None: all do.
        is_typed: it was derived from a function; so a `str` that it returns is text, and content
            may stand anywhere in a list (CONT-11).
        suffix: follows its names, where several tools share one.
        choose: returns which of these a call means; raises `ToolError` if it means none.
        validate: returns the problems of arguments; an empty sequence if they are valid.
        validate_output: returns the problems of a result; None without an output schema.
        is_restricted: some principals may not call it.
        wraps_result: where a structured result has to be an object, it is wrapped in one (CONT-12).
    """

    definition: ToolDefinition
    registered_name: str
    handler: Handler
    checks: tuple[CompiledSchema, ...]
    header_parameters: tuple[HeaderParameter, ...]
    execution: ExecutionMode
    timeout_ms: int | None
    is_dynamic: bool
    tool_type: str | None
    reserved: bool
    scopes: frozenset[str] = frozenset()
    parts: Mapping[type[ToolPart], Any] = _NO_PARTS
    tags: frozenset[str] = _NONE
    visible: Predicate | None = None
    is_typed: bool = False
    suffix: str = ""
    choose: Callable[[Any], RegisteredTool] | None = None
    validate: Validator = field(init=False)
    validate_output: Validator | None = field(init=False)
    is_restricted: bool = field(init=False)
    wraps_result: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.enforce(self.checks)
        has_part = any(part.restricts for part in self.parts.values())
        is_hidden = self.visible is not None
        self.is_restricted = bool(self.scopes or has_part or is_hidden)
        schema = self.definition.output_schema
        if schema is not None and schema.get("type") != "object":
            from .wrapped_outputs import is_wrapped

            self.wraps_result = is_wrapped(schema)

    def enforce(self, checks: tuple[CompiledSchema, ...]) -> None:
        """Check the arguments and results of later calls by these schemas."""
        self.checks = checks
        self.validate = checks[0].validate
        self.validate_output = checks[1].validate if checks[1:] else None

    @property
    def names(self) -> tuple[str, ...]:
        """Its names, for the code of the server and for clients; then those that it shares."""
        names = self.registered_name, self.definition.name
        return (*(name + self.suffix for name in names), *names) if self.suffix else names

    def wire(self, revision: Revision) -> dict[str, Any]:
        """Return the tool as `tools/list` shows it."""
        return self.definition.to_wire(revision)


class ToolRegistry(Registry[RegisteredTool]):
    """The tools of a server, by name.

    A client calls a tool by its advertised name; the code of a server uses the name that the tool
    was registered under. The two differ if `tools.name_separator` is not `/` (REG-11).

    Args:
        logger: gets the warnings of registrations; may be attached later (`attach_logger`).

    Attributes:
        on_version: adds the first tool that has a version.
    """

    on_version: Callable[[ToolRegistry, RegisteredTool], None] | None = None

    def __init__(self, logger: StructuredLogger | None = None) -> None:
        super().__init__(ChangeNotifier("tools"))
        self._logger = logger
        self._separator = SEPARATOR
        self._check_formats = True
        self._generates = False
        self._shared: Shared = WeakValueDictionary[Hashable, CompiledSchema]()
        self._held_warnings: list[tuple[str, dict[str, Any]]] = []

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
        scopes: Iterable[str] = (),
        parts: Iterable[ToolPart] = (),
        tags: frozenset[str] = _NONE,
        visible: Predicate | None = None,
        is_typed: bool = False,
    ) -> RegisteredTool:
        """Add a tool; a schema that cannot be enforced is refused here (REG-05).

        Args:
            definition: of the tool.
            handler: called with the arguments and a `ToolContext`.
            is_dynamic: it is registered while the server runs; logged at WARN. It needs neither of
                the switches for tools that clients register (REG-06).
            execution: where it runs; by default a task for `async def`, else a worker thread.
            timeout_ms: deadline of its calls in ms, at most `MAX_TIMEOUT_MS`.
            tool_type: the predefined type of a dynamic tool.
            reserved: see `RegisteredTool`.
            scopes: the scopes that the principal of a call needs, all of them.
            parts: what features keep for it.
            tags: by which the tool can be switched off and on.
            visible: returns whether a principal sees it; None: all do.
            is_typed: see `RegisteredTool`.

        Raises:
            RegistrationError: the definition is not valid, or the name is taken.
        """
        issues = definition.issues()
        if issues:
            raise RegistrationError(_refusal(definition, issues))
        name = definition.name
        if timeout_ms is not None:
            check_ms(name, "timeout_ms", timeout_ms, 1)
        if not callable(handler):
            raise RegistrationError(f"tool {name!r}: the handler is not callable")
        granted = check_scopes(f"tool {name!r}", scopes)
        definition = definition.private_copy()
        try:
            checks, header_parameters = self._compile(definition)
        except RegistrationError as error:
            raise RegistrationError(f"tool {name!r}: {error}") from error
        tool = RegisteredTool(
            definition,
            name,
            handler,
            checks,
            header_parameters,
            execution or execution_of(handler),
            timeout_ms,
            is_dynamic,
            tool_type,
            reserved,
            granted,
            {type(part): part for part in parts},
            tags,
            visible,
            is_typed,
        )
        self._add(tool)
        self._log_warnings(tool)
        self.notifier.notify(tool)
        return tool

    def adopt(self, tool: RegisteredTool) -> RegisteredTool:
        """Add a tool that another registry has checked; return it.

        Raises:
            RegistrationError: the name is taken.
        """
        if not self._check_formats:
            tool.enforce(self._compile(tool.definition)[0])
        self._add(tool)
        self.notifier.notify(tool)
        return tool

    def unregister(self, name: str) -> bool:
        """Remove the tool registered as `name`; return whether there was one.

        Running calls go on (REG-07).
        """
        tool = self.find(name)
        return tool is not None and self.remove(tool)

    def remove(self, tool: RegisteredTool) -> bool:
        """Remove this tool, and no other tool of its name; return whether it was still there."""
        with self.notifier.lock:
            name = tool.names[1]
            if self.registered(name) is not tool:
                return False
            self.drop(name)
        if tool.is_dynamic:
            self._warn(f"Tool unregistered: {name}", _log_fields(tool))
        self.notifier.notify(tool)
        return True

    def find(self, name: str) -> RegisteredTool | None:
        """Return the tool registered as `name`, if there is one."""
        tool = self.registered(advertised_name(name, self._separator))
        return tool if tool is not None and tool.names[0] == name else None

    def list(self) -> tuple[ToolDefinition, ...]:
        """Return all definitions, in lexicographic order of their names (REG-02)."""
        return tuple(tool.definition for tool in self.entries())

    def has_async_tools(self) -> bool:
        """Return whether any handler needs an event loop."""
        return any(tool.execution is ExecutionMode.ASYNC for tool in self.all_registered())

    def has_part(self, cls: type[ToolPart]) -> bool:
        """Return whether a feature keeps a part of this class for any tool."""
        return any(cls in tool.parts for tool in self.all_registered())

    def validate_definition(self, definition: ToolDefinition) -> ValidationResult:
        """Return the problems that `register` would find, without registering the tool."""
        issues = definition.issues()
        if not issues and self.registered(advertised_name(definition.name, self._separator)):
            issues = (ValidationIssue("/name", "is already registered"),)
        if not issues:
            try:
                compile_tool(definition)
            except RegistrationError as error:
                issues = (ValidationIssue("/inputSchema", str(error)),)
        return ValidationResult(not issues, issues)

    def attach_logger(self, logger: StructuredLogger) -> None:
        """Log the warnings held so far, and all later ones."""
        self._logger = logger
        held, self._held_warnings = self._held_warnings, []
        for message, fields in held:
            logger.warn(message, fields)

    def use_separator(self, separator: str) -> None:
        """Replace `/` by `separator` in every name that clients see (REG-11).

        Raises:
            RegistrationError: two tools would get the same name.
        """
        with self.notifier.lock:
            if separator == self._separator:
                return
            renamed: Registry[RegisteredTool] = Registry(self.notifier)
            renamed.is_on = self.is_on
            tools = self.all_registered()
            for tool in tools:
                _put(renamed, tool, separator)
            for tool in tools:
                _rename(tool, separator)
            self._separator = separator
            self.take_over(renamed)

    def use_formats(self, check: bool) -> None:
        """Enforce `format` in the schemas of all tools, or take it as an annotation (SCHEMA-25).

        Tools that are already registered are compiled again if the setting changes.
        """
        with self.notifier.lock:
            if check == self._check_formats:
                return
            self._check_formats = check
            for tool in self.all_registered():
                tool.enforce(self._compile(tool.definition)[0])

    def generate_checks(self) -> Iterator[None]:
        """Generate the code of the checks, one a step; each later tool's at its registration."""
        self._generates = True
        for check in {each: None for tool in self.all_registered() for each in tool.checks}:
            check.generate()
            yield

    def _compile(self, definition: ToolDefinition) -> CompiledTool:
        return compile_tool(definition, check_formats=self._check_formats, shared=self._shared)

    def _add(self, tool: RegisteredTool) -> None:
        if self.on_version is not None and tool.definition.version is not None:
            self.on_version(self, tool)
            return
        for check in tool.checks if self._generates else ():
            check.generate()
        with self.notifier.lock:
            _put(self, tool, self._separator)
            _rename(tool, self._separator)

    def _log_warnings(self, tool: RegisteredTool) -> None:
        name = tool.definition.name
        warning = name_warning(name)
        if warning is not None:
            self._warn("tool name warning", {"toolName": name, "warning": warning})
        for prefix, check in zip(("", "outputSchema: "), tool.checks, strict=False):
            for each in check.warnings:
                self._warn("tool schema warning", {"toolName": name, "warning": prefix + each})
        if tool.is_dynamic:
            of_type = "" if tool.tool_type is None else f" (type: {tool.tool_type})"
            self._warn(f"Dynamic tool registered: {name}{of_type}", _log_fields(tool))

    def _warn(self, message: str, fields: dict[str, Any]) -> None:
        if self._logger is None:
            self._held_warnings.append((message, fields))
        else:
            self._logger.warn(message, fields)


def _put(tools: Registry[RegisteredTool], tool: RegisteredTool, separator: str) -> None:
    name = tool.names[0]
    called = advertised_name(name, separator)
    if tools.put(called, tool):
        return
    present = tools.registered(called)
    if present is None or present.names[0] == name:
        raise RegistrationError(
            f"tool {name!r} is already registered: choose another name, or unregister it first"
        )
    raise RegistrationError(
        f"tools {present.names[0]!r} and {name!r} would both be called {called!r}:"
        " rename one, or choose another `tools.name_separator`"
    )


def _rename(tool: RegisteredTool, separator: str) -> None:
    called = advertised_name(tool.registered_name, separator)
    if called != tool.definition.name:
        tool.definition = evolve(tool.definition, name=called)


def check_scopes(subject: str, scopes: Iterable[str]) -> frozenset[str]:
    """Return the scopes of a definition; headers that refuse a call carry them (REG-03).

    Args:
        subject: the definition, as a refusal names it: ``tool 'echo'``.
        scopes: as its author has given them.

    Raises:
        RegistrationError: they are not scopes of OAuth 2.1.
    """
    if isinstance(scopes, str):
        raise RegistrationError(f"{subject}: scopes must be several strings, not one")
    granted = frozenset(scopes)
    wrong = [scope for scope in granted if not SCOPE.accepts(scope)]
    if wrong:
        raise RegistrationError(f"{subject}: {wrong[0]!r} is no scope of OAuth 2.1")
    return granted


def _log_fields(tool: RegisteredTool) -> dict[str, Any]:
    fields = {"toolName": tool.definition.name}
    if tool.tool_type is not None:
        fields["toolType"] = tool.tool_type
    return fields


def _refusal(definition: ToolDefinition, issues: tuple[ValidationIssue, ...]) -> str:
    problems = "; ".join(f"{issue.path} {issue.message}" for issue in issues)
    return f"tool {definition.name!r} is refused: {problems}"


def is_async_callable(handler: Callable[..., Any]) -> bool:
    """Return whether calling `handler` gives a coroutine, as far as one can see without a call."""
    while isinstance(handler, partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 -- an instance whose class has async __call__
    )


def execution_of(handler: Callable[..., Any]) -> ExecutionMode:
    """Return where `handler` runs by default."""
    if not is_async_callable(handler):
        return ExecutionMode.THREAD
    code = getattr(handler, "__code__", None)
    # One without the flag is marked as a coroutine function: its coroutine is another one's.
    if code is None or not code.co_flags & inspect.CO_COROUTINE:
        return ExecutionMode.ASYNC
    return BRIEF if _LOOP_USERS.isdisjoint(code.co_code[::2]) else ExecutionMode.ASYNC


def check_ms(name: str, option: str, value: object, least: int) -> None:
    """Raise `RegistrationError` unless an option of a tool is so many milliseconds or more."""
    if type(value) is not int or not least <= value <= MAX_TIMEOUT_MS:
        raise RegistrationError(
            f"tool {name!r}: {option} must be a whole number of milliseconds"
            f" from {least} to {MAX_TIMEOUT_MS}, not {value!r}"
        )


def compile_tool(
    definition: ToolDefinition, *, check_formats: bool = True, shared: Shared | None = None
) -> CompiledTool:
    """Compile the schemas of a tool.

    Args:
        definition: of the tool.
        check_formats: enforce `format`; otherwise it is an annotation (SCHEMA-25).
        shared: see `compile_schema`.

    Returns:
        The attributes `checks` and `header_parameters` of `RegisteredTool`.

    Raises:
        RegistrationError: one of them cannot be enforced (SCHEMA-01 to SCHEMA-23).
    """
    compile_one = partial(compile_schema, check_formats=check_formats, shared=shared)
    compiled = compile_one(definition.input_schema)
    parameters: tuple[HeaderParameter, ...] = ()
    if compiled.header_params:
        from ...base.jsonschema.header_params import header_parameters

        parameters = header_parameters(definition.input_schema, compiled.header_params)
    if definition.output_schema is None:
        return (compiled,), parameters
    try:
        output = compile_one(definition.output_schema, any_root=True, max_steps=MAX_RESULT_STEPS)
    except RegistrationError as error:
        raise RegistrationError(f"outputSchema: {error}") from error
    return (compiled, output), parameters
