"""The function of an author: its name, its parameters, and their types.

Its `kind`, a tool or a prompt for instance, occurs only in messages to the author.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from ...errors import RegistrationError
from .annotations import Names, UnresolvedName, names_of_class, names_of_function, without_metadata
from .type_schema import UnsupportedType


def signature_of(function: Any) -> inspect.Signature:
    """Return the signature of `function`; raises as `inspect.signature` does.

    From Python 3.14 annotations are evaluated when they are read: a name that is not there, as one
    imported for type checkers only, becomes a forward reference.
    """
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=inspect.Format.FORWARDREF)
    return inspect.signature(function)


class FunctionSignature:
    """The function as it was written, under partials, bindings and wrappers.

    Args:
        function: a function, a bound method, a ``functools.partial`` of one, or an object whose
            class defines ``__call__``.
        kind: what the function becomes.
        context_type: a parameter of this type is given the context of the call.
        is_dependency: it may be a class, or a generator function.

    Raises:
        RegistrationError: it is none of these.

    Attributes:
        parameters: those that a partial has not fixed.
        names: the names that its annotations may use.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        kind: str,
        context_type: type,
        *,
        is_dependency: bool = False,
    ) -> None:
        self.kind = kind
        inner, fixed = function, set[str]()
        while isinstance(inner, functools.partial):
            fixed.update(inner.keywords)
            inner = inner.func
        self.function = function
        self.name: str = getattr(inner, "__name__", type(inner).__name__)
        written: Any = inner
        if not callable(written) or (inspect.isclass(inner) and not is_dependency):
            raise RegistrationError(f"{self.name!r} is not a function")
        code: Any = inner if inspect.isroutine(inner) else type(inner).__call__
        self.docstring: str = code.__doc__ or inner.__doc__ or ""
        is_generator = inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code)
        if is_generator and not is_dependency:
            raise RegistrationError(
                f"{kind} {self.name!r} is a generator, and a {kind} has one result: return a list"
            )
        self.is_async = inspect.iscoroutinefunction(code)
        written = inspect.unwrap(getattr(code, "__func__", code))
        try:
            signature = signature_of(function)
        except (TypeError, ValueError) as error:
            raise RegistrationError(
                f"{kind} {self.name!r}: its signature cannot be read: {error}"
            ) from None
        # An argument that a partial has fixed is not one that a caller sends.
        self.parameters = [p for p in signature.parameters.values() if p.name not in fixed]
        self._return_annotation = signature.return_annotation
        self.context_type = context_type
        # A module may import the type for type checkers only.
        fallbacks = {context_type.__name__: context_type}
        self.names = Names({}, {}, fallbacks)
        if inspect.isfunction(written):
            self.names = names_of_function(written, fallbacks)
        elif inspect.isclass(inner):
            self.names = names_of_class(inner, self.names)

    def hint(self, parameter: inspect.Parameter) -> Any:
        """Return the type of a parameter.

        Raises:
            UnsupportedType: it has no annotation, or one that cannot be resolved.
        """
        return self._resolve(parameter.annotation)

    def returned(self) -> Any:
        """Return the type of the function's result; raises as `hint` does."""
        return self._resolve(self._return_annotation)

    def _resolve(self, annotation: Any) -> Any:
        if annotation is inspect.Signature.empty:
            raise UnsupportedType("it has no annotation")
        try:
            return self.names.resolve(annotation)
        except UnresolvedName as error:
            # The state of `ToolContext[State]` is for type checkers, and so may its import be.
            written = getattr(annotation, "__forward_arg__", annotation)
            name, bracket, _ = str(written).partition("[")
            if self.is_context(annotation) or (bracket and self._is_context_name(name)):
                return self.context_type
            shown = f" {written!r}" if isinstance(written, str) else ""
            raise UnsupportedType(f"its annotation{shown} cannot be resolved: {error}") from None

    def _is_context_name(self, name: str) -> bool:
        try:
            return self.names.resolve(name) is self.context_type
        except UnresolvedName:
            return False

    def is_context(self, hint: Any) -> bool:
        """Return whether a parameter of this type is given the context; ``T | None`` is as well."""
        hint = without_metadata(hint)
        origin = typing.get_origin(hint)
        if origin in (typing.Union, types.UnionType):
            return any(map(self.is_context, typing.get_args(hint)))
        return hint is self.context_type or origin is self.context_type

    def refusal(self, parameter: str, problem: str) -> RegistrationError:
        """Return the error that refuses one parameter."""
        return RegistrationError(f"{self.kind} {self.name!r}, parameter {parameter!r}: {problem}")
