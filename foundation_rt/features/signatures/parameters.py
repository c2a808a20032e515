"""The parameters of one function, collected: their schemas, and how each gets its argument."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ...errors import RegistrationError
from .binding import NO_DEFAULT, Arguments, Binding, Handler, MadeDefault, make_handler
from .type_schema import COMPUTED, REQUIRED, Schema, TypeSchema, UnsupportedType, plain_type

if TYPE_CHECKING:
    import inspect

    from .function_signature import FunctionSignature
    from .schema_deriver import Deriver


class Dependency:
    """Marks a parameter whose argument comes from a function; made by `Depends`.

    Attributes:
        function: makes the argument.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def Depends(function: Callable[..., Any]) -> Any:  # noqa: N802 -- as other frameworks call it
    """Mark a parameter: a call gives it the value that `function` makes (TYPED-70).

    ::

        def borrow(book: str, db: Annotated[Database, Depends(open_database)]) -> Loan: ...
        def borrow(book: str, db: Database = Depends(open_database)) -> Loan: ...

    Args:
        function: takes nothing but a `ToolContext` and dependencies of its own. It returns the
            value, or yields it once and is closed after the call; it may be asynchronous, a class,
            or a context manager of `contextlib`.

    Raises:
        RegistrationError: `function` cannot be called, or has no hash.
    """
    given: Any = function
    if not callable(given) or type(given).__hash__ is None:
        raise RegistrationError(
            f"Depends takes a function, as in Depends(open_database), not {function!r}"
        )
    return Dependency(function)


def dependency_of(hint: Any, default: Any) -> Callable[..., Any] | None:
    """Return the function of a parameter's dependency; None if it has none.

    Args:
        hint: the type of the parameter, resolved.
        default: of the parameter.
    """
    for mark in (default, *getattr(hint, "__metadata__", ())):
        if type(mark) is Dependency:
            return mark.function
    return None


class ParameterCollector:
    """Collects the parameters of one function, for every kind of function.

    Args:
        signature: of the function.
        advice: ends the refusal of a type: another way out, besides changing the type.
        by_name: what to do with a parameter that is passed by position.
        has_schema: the author has given the schema of the arguments. So a parameter may have a
            type without a schema, and ``**kwargs`` takes what else the schema accepts.

    Attributes:
        types: the type schema of each parameter that has one, but for the context.
        bindings: of the parameters, but for the context.
        context_name: the parameter that is given the context; None if there is none.
        dependencies: by parameter, the function of its dependency.
        takes_rest: the function has ``**kwargs``.
    """

    def __init__(
        self,
        signature: FunctionSignature,
        *,
        advice: str = "",
        by_name: str = "make it one that is passed by name",
        has_schema: bool = False,
    ) -> None:
        self.types: dict[str, TypeSchema] = {}
        self.bindings: list[Binding] = []
        self.context_name: str | None = None
        self.dependencies: dict[str, Callable[..., Any]] = {}
        self.takes_rest = False
        self._signature = signature
        self._advice = advice
        self._by_name = by_name
        self._has_schema = has_schema
        self._deriver: Deriver | None = None

    def add(self, parameter: inspect.Parameter, description: str) -> None:
        """Add one parameter.

        Raises:
            RegistrationError: names the parameter and what to change.
        """
        name = parameter.name
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise self._signature.refusal(name, f"it is passed by position; {self._by_name}")
        if parameter.kind is parameter.VAR_KEYWORD:
            if not self._has_schema:
                problem = f"it takes arguments of any name; give each a parameter{self._advice}"
                raise self._signature.refusal(name, problem)
            self.takes_rest = True
            return
        if type(parameter.default) is Dependency:
            self.dependencies[name] = parameter.default.function
            return
        default = parameter.default if parameter.default is not parameter.empty else REQUIRED
        convert = None
        try:
            hint = self._signature.hint(parameter)
            function = dependency_of(hint, None)
            if function is not None:
                self.dependencies[name] = function
                return
            if self._signature.is_context(hint):
                self._take_context(name)
                return
            name, hint, default = self._without_field(name, hint, default)
            derived = self._derive(hint, description, default)
            self.types[name], convert = derived, derived.convert
        except UnsupportedType as error:
            if not self._has_schema:
                problem = f"{error}; change it{self._advice}"
                raise self._signature.refusal(parameter.name, problem) from None
        default = NO_DEFAULT if default is REQUIRED else default
        self.bindings.append(Binding(parameter.name, name, default, convert))

    def _derive(self, hint: Any, description: str, default: Any) -> TypeSchema:
        """Return the type schema of a parameter; most are plain, and need no `Deriver`."""
        if default is REQUIRED and (plain := plain_type(hint)) is not None:
            if description:
                plain.schema["description"] = description
            return plain
        # With a given schema, a type that failed for one parameter must not fail for the next.
        if self._deriver is None or self._has_schema:
            from .schema_deriver import Deriver

            self._deriver = Deriver(self._signature.names)
        advertised = COMPUTED if isinstance(default, MadeDefault) else default
        return self._deriver.derive(hint, description=description, default=advertised)

    def _without_field(self, name: str, hint: Any, default: Any) -> tuple[str, Any, Any]:
        """Return the name on the wire, the type and the default, which a field of pydantic says.

        Raises:
            RegistrationError: the field says what a parameter cannot have.
        """
        if "pydantic" not in sys.modules:
            return name, hint, default
        from .pydantic_fields import parameter_field

        try:
            alias, hint, default = parameter_field(name, hint, default)
        except UnsupportedType as error:
            raise self._signature.refusal(name, f"{error}; change its Field") from None
        if any(alias == one.name for one in self.bindings):
            raise self._signature.refusal(name, f"another parameter has the name {alias!r} too")
        return alias, hint, default

    def required(self) -> list[str]:
        """Return the names of the parameters without a default."""
        return [binding.name for binding in self.bindings if binding.default is NO_DEFAULT]

    def object_schema(self, **keywords: Any) -> Schema:
        """Return the schema of the object of arguments; call it once, after the last `add`.

        Args:
            keywords: of JSON Schema, besides those for the properties.
        """
        properties = {name: derived.schema for name, derived in self.types.items()}
        schema: Schema = {"type": "object", "properties": properties, **keywords}
        if self._deriver is not None and (definitions := self._deriver.definitions()):
            schema["definitions"] = definitions
        return schema

    def handler(
        self, check: Callable[[Arguments], None] | None = None, *, inline: bool = False
    ) -> Handler:
        """Return the function that is called with the arguments and the context.

        Args:
            check: see `make_handler`.
            inline: whether it is called in place (CALL-12).

        Raises:
            RegistrationError: a dependency cannot be used.
        """
        function = self._signature.function
        if self.dependencies:
            from .dependencies import make_plan

            function = make_plan(self._signature, self.dependencies, inline=inline)
        handler: Any = make_handler(
            function,
            self.bindings,
            is_plan=bool(self.dependencies),
            context_name=self.context_name,
            check=check,
            takes_rest=self.takes_rest,
        )
        handler.__wrapped__ = self._signature.function  # which a refused result names
        return cast("Handler", handler)

    def _take_context(self, name: str) -> None:
        if self.context_name is not None:
            raise self._signature.refusal(
                name, f"it is a second ToolContext, after {self.context_name!r}"
            )
        self.context_name = name
