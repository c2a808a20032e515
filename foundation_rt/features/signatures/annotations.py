"""The meaning of annotations: strings and forward references become types.

Names are looked up where Python would look them up: in the globals of the module and, for a
function inside another one, in its closure and in the enclosing functions that are still running.
Under ``from __future__ import annotations`` a closure lacks the names that occur in annotations
only, so a class beside a tool in one function is found in that function's frame (TYPED-15).
"""

from __future__ import annotations

import builtins
import sys
import typing
from collections.abc import Mapping
from itertools import accumulate
from types import FunctionType, SimpleNamespace
from typing import Any


class UnresolvedName(Exception):
    """A name in an annotation cannot be found; the message has it."""


class Names:
    """The names that the annotations of one function or class may use."""

    def __init__(
        self,
        module_names: dict[str, Any],
        local_names: dict[str, Any],
        fallbacks: Mapping[str, Any],
    ) -> None:
        self.module_names = module_names
        self.local_names = local_names
        for name, value in fallbacks.items():
            if name not in module_names:
                local_names.setdefault(name, value)

    def resolve(self, annotation: Any) -> Any:
        """Return the type of `annotation`, with ``Annotated`` kept.

        Raises:
            UnresolvedName: a name in it cannot be found, or it is not a valid expression.
        """
        if type(annotation) is type:
            return annotation
        if isinstance(annotation, str):
            # Most are plain names, and `typing` takes 13 us for each.
            for names in (self.local_names, self.module_names, vars(builtins)):
                if annotation in names:
                    named = names[annotation]
                    if type(named) is type:
                        return named
                    break
        return self.hints(SimpleNamespace(__annotations__={"it": annotation}))["it"]

    def hints(self, holder: Any) -> dict[str, Any]:
        """Return the types of the annotated attributes of a class, inherited ones included.

        Raises:
            UnresolvedName: as `resolve`.
        """
        # `typing` knows the names of a class better: its bases may be in other modules, and its
        # body may define classes of its own.
        module_names = None if isinstance(holder, type) else self.module_names
        try:
            return typing.get_type_hints(
                holder, module_names, self.local_names or None, include_extras=True
            )
        except Exception as error:  # evaluating an annotation runs any expression
            raise UnresolvedName(f"{type(error).__name__}: {error}") from None


def without_metadata(hint: Any) -> Any:
    """Return the type inside ``Annotated``; any other type unchanged."""
    return hint.__origin__ if typing.get_origin(hint) is typing.Annotated else hint


def names_of_function(function: FunctionType, fallbacks: Mapping[str, Any]) -> Names:
    """Return the names visible to the annotations of `function`.

    Args:
        function: the innermost function, unwrapped.
        fallbacks: names that a module without them may use as well.
    """
    local_names = _enclosing_locals(function.__qualname__, function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            local_names.setdefault(name, cell.cell_contents)
        except ValueError:  # the enclosing function has not bound it yet
            continue
    local_names.update(_type_parameters(function))
    return Names(function.__globals__, local_names, fallbacks)


def names_of_class(cls: type, around: Names) -> Names:
    """Return the names visible to the annotations of `cls`.

    Args:
        cls: the class.
        around: the names of the function or class that uses it; a class made inside a function
            that has returned can still find itself and its neighbours there.
    """
    module_names = getattr(sys.modules.get(cls.__module__), "__dict__", {})
    local_names = _enclosing_locals(cls.__qualname__, module_names)
    if "<locals>" in cls.__qualname__:
        local_names.setdefault(cls.__name__, cls)
        local_names = {**around.local_names, **local_names}
    local_names.update(_type_parameters(cls))
    return Names(module_names, local_names, {})


def _type_parameters(holder: Any) -> dict[str, Any]:
    """Return the parameters of `class Box[T]` or `def first[T]`, by name; of Python 3.12."""
    return {each.__name__: each for each in getattr(holder, "__type_params__", ())}


def _enclosing_locals(qualified_name: str, module_names: dict[str, Any]) -> dict[str, Any]:
    """Return the local variables of the running functions around `qualified_name`."""
    *scopes, _ = accumulate(
        qualified_name.split(".<locals>."), lambda outer, inner: f"{outer}.<locals>.{inner}"
    )
    found: dict[str, Any] = {}
    frame = sys._getframe(1) if scopes else None
    while frame is not None:
        if frame.f_code.co_qualname in scopes and frame.f_globals is module_names:
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found
