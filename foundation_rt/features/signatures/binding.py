"""The function that binds the arguments of a call to parameters, and calls the author's function.

It is generated, as one would write it by hand for the one signature, and so costs 0.07 us more
than a direct call; a loop over the parameters would cost 0.3 us (CPython 3.11). Its source has
parameter names, which Python has accepted as identifiers, and names of arguments as literals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base.shown import Shown
from ...errors import ToolError
from .converters import ConversionError, Converter

Arguments = dict[str, Any]
Handler = Callable[[Arguments, Any], Any]
"""Takes the arguments, as accepted by the schema, and the context of the call."""

NO_DEFAULT = object()


class MadeDefault(Shown):
    """A default that is made anew for each call.

    Attributes:
        make: makes it.
    """

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


class Binding(Shown):
    """A parameter, and the way from its JSON value to its argument.

    Attributes:
        parameter: its name.
        name: of the argument, as callers have it.
        default: of the parameter; `NO_DEFAULT` if a call needs the argument.
        convert: makes the argument from its JSON value; None if it is the JSON value.
    """

    __slots__ = ("convert", "default", "name", "parameter")

    def __init__(self, parameter: str, name: str, default: Any, convert: Converter | None) -> None:
        self.parameter = parameter
        self.name = name
        self.default = default
        self.convert = convert


def make_handler(
    function: Callable[..., Any],
    bindings: Sequence[Binding],
    *,
    context_name: str | None,
    check: Callable[[Arguments], None] | None = None,
    takes_rest: bool = False,
    is_plan: bool = False,
) -> Handler:
    """Return a handler that calls `function` with keyword arguments only.

    An argument that was not sent is the parameter's default, the same object. A value that does not
    fit its type raises a `ToolError` (INVALID_ARGUMENT), before `function` is called.

    Args:
        function: of the author.
        bindings: its parameters but for the context.
        context_name: the parameter that is given the context, if there is one.
        check: called with the arguments first; raises `ConversionError`. It is for a schema that
            does not vouch for their names.
        takes_rest: pass on arguments without a parameter, unchanged.
        is_plan: `function` takes the context and a dict of the arguments: see `Plan.call`.
    """
    names: dict[str, Any] = {"function": function, "check": check}
    names.update(ConversionError=ConversionError, refusal=_refusal)
    steps = ["name = None", "check(arguments)"] if check else []
    passed = []
    for index, binding in enumerate(bindings):
        key, value, convert = repr(binding.name), f"v{index}", f"c{index}"
        passed.append(f"{binding.parameter}={value}")
        sent = f"arguments[{key}]"
        if binding.convert:
            names[convert] = binding.convert
            steps.append(f"name = {key}")
            sent = f"{convert}({sent})"
        if isinstance(binding.default, MadeDefault):
            names[f"d{index}"] = binding.default.make
            sent = f"{sent} if {key} in arguments else d{index}()"
        elif binding.default is not NO_DEFAULT:
            names[f"d{index}"] = binding.default
            sent = f"{sent} if {key} in arguments else d{index}"
        steps.append(f"{value} = {sent}")
    if context_name:
        passed.append(f"{context_name}=context")
    if takes_rest:
        names["taken"] = frozenset(binding.name for binding in bindings)
        passed.append("**{key: arguments[key] for key in arguments if key not in taken}")
    lines = ["def handler(arguments, context):", " try:"]
    lines += [f"  {step}" for step in steps or ["pass"]]
    lines += [
        " except ConversionError as error:",
        "  raise refusal(error, name) from error.__cause__",
    ]
    arguments = ", ".join(passed)
    lines += [f" return function({f'context, dict({arguments})' if is_plan else arguments})"]
    exec(compile("\n".join(lines), "<argument binding>", "exec"), names)
    handler: Handler = names["handler"]
    return handler


def make_check(
    bindings: Sequence[Binding], *, context_name: str | None, takes_rest: bool
) -> Callable[[Arguments], None]:
    """Return a check of the names of arguments; it raises `ConversionError`."""
    required = [binding.name for binding in bindings if binding.default is NO_DEFAULT]
    known = frozenset(binding.name for binding in bindings)

    def check(arguments: Arguments) -> None:
        for name in arguments:
            if name not in known and (not takes_rest or name == context_name):
                error = ConversionError("is taken by no parameter")
                error.path.append(name)
                raise error
        for name in required:
            if name not in arguments:
                raise ConversionError(f"lacks {name!r}")

    return check


def _refusal(error: ConversionError, name: str | None) -> ToolError:
    """Return the error of the argument `name`, or of the arguments as a whole."""
    if name is not None:
        error.path.append(name)
    return error.to_tool_error()
